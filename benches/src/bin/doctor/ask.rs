//! Asking a vendor's library on a thread of its own: one that hangs must not take the doctor with it.

use std::sync::mpsc;
use std::time::Duration;

use crate::report::Coded;

/// How long a library may take to answer. Loading one takes under a second, and a context some tenths.
const ANSWER_S_MAX: u64 = 30;

/// What `ask` gives, or `failed` of why `whom` has not answered.
pub(crate) fn within_limit<T: Send + 'static>(
    whom: &str,
    ask: impl FnOnce() -> T + Send + 'static,
    failed: impl FnOnce(Coded) -> T,
) -> T {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        // Whoever asked may have given up.
        let _ = tell.send(ask());
    });
    told.recv_timeout(Duration::from_secs(ANSWER_S_MAX)).unwrap_or_else(|_| {
        let text = format!("{whom} has not answered in {ANSWER_S_MAX} s");
        failed(Coded { code: "none".to_owned(), text })
    })
}

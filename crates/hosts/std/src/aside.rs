//! Jobs that may block, aside from whoever has them.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use std::thread::Builder;

use wakeline_core::{Error, ErrorCode};

/// Runs a job that may block on a thread of its own, which ends with it: for backends, which start no threads themselves. Nobody waits for the thread.
///
/// ```
/// use std::sync::mpsc;
/// let (told, hears) = mpsc::channel();
/// wakeline_std::on_a_thread(Box::new(move || told.send(std::thread::current().id()).unwrap()))?;
/// assert_ne!(hears.recv().unwrap(), std::thread::current().id());
/// # Ok::<(), wakeline_core::Error>(())
/// ```
///
/// # Errors
///
/// [`Backend`](ErrorCode::Backend) when the system refuses another thread: the job is dropped.
pub fn on_a_thread(job: Box<dyn FnOnce() + Send>) -> Result<(), Error> {
    let spawned = Builder::new().name("wakeline-aside".to_owned()).spawn(job);
    spawned
        .map(drop)
        .map_err(|error| Error::new(ErrorCode::Backend, [&"std", &"spawn", &error]).with_source(error))
}

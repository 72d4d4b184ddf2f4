//! Panics as errors: a program that panics fails, with what was said and where.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Once;
use std::task::{Context, Poll};

/// What programs say when they panic and are meant to.
pub const ON_PURPOSE: &str = "on purpose";

thread_local! {
    static HERE: RefCell<Here> = const { RefCell::new(Here { catches: false, said: None }) };
}

/// What is known of the panics of a thread.
#[derive(Default)]
struct Here {
    /// Whether they are caught here.
    catches: bool,
    /// What the first said that was not meant.
    said: Option<String>,
}

static HOOK: Once = Once::new();

/// Has panics under [`caught`] noted in place of shown, those on purpose not even that.
fn hook() {
    HOOK.call_once(|| {
        let shown = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let payload = info.payload();
            let words = payload.downcast_ref::<&str>().copied();
            let words = words.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            let text = words.unwrap_or("a panic without words");
            let here = HERE.with_borrow_mut(|here| {
                if here.catches && !text.contains(ON_PURPOSE) {
                    let place = info.location().map(ToString::to_string).unwrap_or_default();
                    here.said.get_or_insert_with(|| format!("{text} ({place})"));
                }
                here.catches
            });
            if !here {
                shown(info);
            }
        }));
    });
}

/// Runs a program.
///
/// # Errors
///
/// What it gave, or what it said when it panicked, and where. A panic that was caught within and was not [on purpose](ON_PURPOSE) is one too.
pub fn caught<T>(program: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    hook();
    HERE.set(Here { catches: true, said: None });
    let result = catch_unwind(AssertUnwindSafe(program));
    let said = HERE.take().said;
    match (result, said) {
        (Ok(Ok(_)) | Err(_), Some(said)) => Err(said),
        (Ok(result), _) => result,
        // What was thrown without the hook: by a program that had nobody to give an error to.
        (Err(payload), None) => Err(match payload.downcast::<String>() {
            Ok(said) => *said,
            Err(_) => "a panic got out that said nothing".to_owned(),
        }),
    }
}

/// A future whose panics are outputs.
pub(crate) struct Caught<F>(Pin<Box<F>>);

impl<F: Future> Caught<F> {
    pub(crate) fn new(future: F) -> Self {
        Self(Box::pin(future))
    }
}

impl<F: Future> Future for Caught<F> {
    /// `None` where it panicked.
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let polled = catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context)));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Some(output)),
            Err(_) => Poll::Ready(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_place_and_one_on_purpose_is_none() {
        let error = caught::<()>(|| panic!("it is {}", 7)).unwrap_err();
        assert!(error.starts_with("it is 7 (") && error.contains("caught.rs:"), "{error}");
        let within = caught(|| {
            drop(catch_unwind(|| panic!("caught elsewhere")));
            Ok(())
        });
        assert!(within.unwrap_err().starts_with("caught elsewhere"));
        let meant = caught(|| {
            drop(catch_unwind(|| panic!("on purpose")));
            Ok(1)
        });
        assert_eq!(meant, Ok(1));
    }
}

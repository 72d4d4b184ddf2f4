//! Events for `tracing`, behind the feature of that name. Without it every function here is empty and its call is gone.
//!
//! All are of the target `wakeline`. None is emitted while a lock or borrow of ours is held, for a subscriber is code of the user's.

#![allow(dead_code, unused_imports, reason = "what a watcher tells is called by the watcher alone")]

pub(crate) use imp::{closed, context_faulted, destructor_panicked, ended, waker_panicked};

#[cfg(feature = "tracing")]
mod imp {
    use tracing::{Level, event};
    use wakeline_core::{Error, ErrorCode, Report};

    use crate::points::end_name;

    const TARGET: &str = "wakeline";

    /// A wait ended: at level TRACE well or cancelled, which somebody asked for; at WARN otherwise.
    pub(crate) fn ended(point: &str, result: &Result<Report, Error>) {
        // The outcome's name is found only where somebody listens: fields are not computed otherwise.
        match result {
            Ok(report) => event!(
                target: TARGET,
                Level::TRACE,
                point,
                outcome = end_name(result),
                elapsed_ns = report.elapsed.as_nanos(),
                queries = report.queries,
                parks = report.parks,
                sleeps = report.sleeps,
                overshoot_ns = report.overshoot.as_nanos(),
                "a wait ended"
            ),
            Err(error) if error.code() == ErrorCode::Cancelled => {
                event!(target: TARGET, Level::TRACE, point, outcome = end_name(result), %error, "a wait was cancelled");
            }
            Err(error) => {
                event!(target: TARGET, Level::WARN, point, outcome = end_name(result), %error, "a wait failed");
            }
        }
    }

    /// A waker of the user's panicked in a watcher's thread, which caught it and goes on; `panic` is its message.
    pub(crate) fn waker_panicked(panic: &str) {
        event!(target: TARGET, Level::ERROR, panic, "a waker panicked");
    }

    /// The same of a port, or of what stands behind a waker, when it was let go.
    pub(crate) fn destructor_panicked(panic: &str) {
        event!(target: TARGET, Level::ERROR, panic, "a destructor panicked");
    }

    /// A device's context failed: every wait on it ends with this error.
    pub(crate) fn context_faulted(error: &Error) {
        event!(target: TARGET, Level::ERROR, %error, "a context faulted");
    }

    /// A watcher was closed while so many waits were pending.
    pub(crate) fn closed(pending: usize) {
        event!(target: TARGET, Level::DEBUG, pending, "a watcher was closed");
    }
}

#[cfg(not(feature = "tracing"))]
mod imp {
    use wakeline_core::{Error, Report};

    #[inline]
    pub(crate) fn ended(_: &str, _: &Result<Report, Error>) {}

    #[inline]
    pub(crate) fn waker_panicked(_: &str) {}

    #[inline]
    pub(crate) fn destructor_panicked(_: &str) {}

    #[inline]
    pub(crate) fn context_faulted(_: &Error) {}

    #[inline]
    pub(crate) fn closed(_: usize) {}
}

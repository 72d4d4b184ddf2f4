//! Streams that nobody holds any more, of drivers that would wait for them: they are destroyed once they are idle.
//!
//! A driver may have its destruction of a stream wait until what is enqueued there is done, and drops here never do. So such a stream is kept until another one is made
//! and it is idle, or until its context goes, which may wait.

use wakeline_core::Status;

use crate::driver::{LineDriver, RawStream};
use crate::error::{CallError, Kind};
use crate::inner::Inner;

/// How many such streams the making of another one looks at.
const LOOKS_MAX: usize = 16;

impl<D: LineDriver> Inner<D> {
    /// Destroys a stream that was made here and has no holder left, now or later. The context is bound.
    pub(crate) fn part_with(&self, stream: RawStream) -> Result<(), CallError> {
        if D::STREAM_DESTROY_WAITS && !self.is_idle(stream) {
            self.parting.lock().push_back(stream);
            return Ok(());
        }
        // SAFETY: the context is bound; the stream was made here and has no holder left.
        unsafe { self.driver.stream_destroy(stream) }
    }

    /// Whether nothing is left in it. Of one that is captured, or whose context has failed, nobody can tell.
    fn is_idle(&self, stream: RawStream) -> bool {
        // SAFETY: the context is bound, says the caller, and the stream alive.
        match unsafe { self.driver.capturing(stream) } {
            Ok(false) => {}
            Ok(true) => return false,
            Err(error) => return self.cannot_tell(&error),
        }
        // SAFETY: as above; it is not captured.
        match unsafe { self.driver.stream_query(stream) } {
            Ok(status) => status == Status::Done,
            Err(error) => self.cannot_tell(&error),
        }
    }

    /// It is not known to be idle, and what a capture forbids is no failure.
    #[cold]
    fn cannot_tell(&self, error: &CallError) -> bool {
        if error.kind != Kind::Capturing {
            self.failed_in_drop(error);
        }
        false
    }

    /// Destroys those of them that are idle by now. The context is bound.
    pub(crate) fn part(&self) {
        if !D::STREAM_DESTROY_WAITS {
            return;
        }
        for _ in 0..LOOKS_MAX {
            let Some(stream) = self.parting.lock().pop_front() else { return };
            // Where it is not idle, it goes to the end of them.
            if let Err(error) = self.part_with(stream) {
                self.failed_in_drop(&error);
            }
        }
    }
}

//! A fake of the driver's library, loaded by the loader under test; and its calls, on handles that a test makes and ends itself.
#![allow(dead_code, reason = "not every test program uses all of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

use std::time::{Duration, Instant};

use wakeline_core::Status;
use wakeline_cuda::Cuda;
use wakeline_fake_driver::{Fake, Options};
use wakeline_mapped::driver::{LineDriver, Ordinal, RawContext, RawEvent, RawPage, RawStream};
use wakeline_mapped::error::CallError;

/// A fake with these options, not yet loaded by anybody but its handle.
pub(crate) fn fake(change: impl FnOnce(&mut Options)) -> Fake {
    let fake = Fake::new().expect("the fake library is built with this test");
    fake.configure(change);
    fake
}

/// A fake of one device, loaded.
pub(crate) fn loaded() -> (Fake, Cuda) {
    let fake = fake(|_| ());
    let cuda = Cuda::load_from(fake.path()).unwrap();
    fake.clear_log();
    (fake, cuda)
}

/// Nothing was done that a driver forbids, and nothing is left.
pub(crate) fn clean(fake: &Fake) {
    assert!(fake.violations().is_empty(), "{:?}", fake.violations());
    assert_eq!(fake.live(), wakeline_fake_driver::Live::default());
}

/// Waits for what another thread does.
pub(crate) fn until(what: &str, mut seen: impl FnMut() -> bool) {
    let start = Instant::now();
    while !seen() {
        assert!(start.elapsed() < Duration::from_secs(10), "never: {what}");
        std::thread::yield_now();
    }
}

/// The first device's primary context, bound to this thread while it lives. The handles that a test gives it are of it and alive.
pub(crate) struct Bound<'c> {
    cuda: &'c Cuda,
    pub(crate) context: RawContext,
}

impl<'c> Bound<'c> {
    pub(crate) fn new(cuda: &'c Cuda) -> Self {
        let context = cuda.retain(Ordinal(0)).unwrap();
        // SAFETY: the context is alive.
        unsafe { cuda.set_current(context) }.unwrap();
        Self { cuda, context }
    }

    pub(crate) fn stream(&self) -> RawStream {
        // SAFETY: a context is bound.
        unsafe { self.cuda.stream_create(-1) }.unwrap()
    }

    pub(crate) fn event(&self) -> RawEvent {
        // SAFETY: a context is bound.
        unsafe { self.cuda.event_create() }.unwrap()
    }

    pub(crate) fn page(&self) -> Result<RawPage, CallError> {
        // SAFETY: a context is bound.
        unsafe { self.cuda.page_alloc(4_096) }
    }

    pub(crate) fn record(&self, event: RawEvent, stream: RawStream) {
        // SAFETY: both are alive.
        unsafe { self.cuda.event_record(event, stream) }.unwrap();
    }

    /// Into the first word of a page, which lives until it is seen there.
    pub(crate) fn store(&self, stream: RawStream, page: RawPage, value: u64) {
        // SAFETY: stream and page are alive, and the word is nobody else's.
        unsafe { self.cuda.store(stream, page.device, value) }.unwrap();
    }

    pub(crate) fn stream_status(&self, stream: RawStream) -> Result<Status, CallError> {
        // SAFETY: the stream is alive.
        unsafe { self.cuda.stream_query(stream) }
    }

    pub(crate) fn event_status(&self, event: RawEvent) -> Result<Status, CallError> {
        // SAFETY: the event is alive.
        unsafe { self.cuda.event_query(event) }
    }

    pub(crate) fn end_stream(&self, stream: RawStream) {
        // SAFETY: the test's own, and ended once.
        unsafe { self.cuda.stream_destroy(stream) }.unwrap();
    }

    pub(crate) fn end_event(&self, event: RawEvent) {
        // SAFETY: the test's own, and ended once.
        unsafe { self.cuda.event_destroy(event) }.unwrap();
    }

    pub(crate) fn end_page(&self, page: RawPage) {
        // SAFETY: the test's own, ended once, and every store into it has been seen.
        unsafe { self.cuda.page_free(page) }.unwrap();
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        // SAFETY: "none" unbinds.
        let unbound = unsafe { self.cuda.set_current(RawContext::NULL) };
        // SAFETY: retained in `new`.
        let released = unsafe { self.cuda.release(Ordinal(0)) };
        if !std::thread::panicking() {
            assert_eq!((unbound, released), (Ok(()), Ok(())));
        }
    }
}

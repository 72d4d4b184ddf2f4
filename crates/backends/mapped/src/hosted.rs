//! Functions of the host that a driver calls behind a stream's work.
//!
//! ```text
//!   Stream::call_host ──► (1) enqueued ──run, by the driver──► (2) taken, called ──► (3) over: freed by a later call
//!                              │
//!                              └──abandon: the context failed, the call did──► (4) taken, dropped; (3) if the driver comes, else its bytes stay
//! ```
//!
//! Invariants:
//! 1. Who takes a function, by one exchange of a flag, calls or drops it; nobody else does.
//! 2. What the driver calls with is never freed before its function has returned, and never where the driver may still come: then some bytes stay for good.
//! 3. The driver's thread takes no lock, makes no driver call, and passes no panic on.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use wakeline_core::Error;

use crate::driver::LineDriver;
use crate::error::CallError;
use crate::inner::Inner;
use crate::stream::Stream;
use crate::sync::Lock;

/// How many of the functions enqueued before one more looks at, to free what is over.
const LOOKS_MAX: usize = 2;

type Function = Box<dyn FnOnce() + Send>;

/// What the driver calls with.
struct Call {
    /// Whether somebody has the function, or had.
    taken: AtomicBool,
    function: UnsafeCell<ManuallyDrop<Function>>,
    /// The driver has come, and will not look at this again.
    over: AtomicBool,
    panics: Arc<AtomicU64>,
}

impl Call {
    /// The function, for the first who asks.
    fn take(&self) -> Option<Function> {
        if self.taken.swap(true, Ordering::AcqRel) {
            return None;
        }
        // SAFETY: of all who ask one alone comes here, so nobody else looks at it.
        let function = unsafe { &mut *self.function.get() };
        // SAFETY: it is taken once, for the same reason, and never dropped in its place.
        Some(unsafe { ManuallyDrop::take(function) })
    }
}

/// A [`Call`] that was leaked for the driver.
struct Leaked(NonNull<Call>);

// SAFETY: a `Call` may be used by any thread: its function is `Send` and had by one alone, the rest are atomics.
unsafe impl Send for Leaked {}

impl Leaked {
    fn new(function: Function, panics: &Arc<AtomicU64>) -> Self {
        let call = Call {
            taken: AtomicBool::new(false),
            function: UnsafeCell::new(ManuallyDrop::new(function)),
            over: AtomicBool::new(false),
            panics: Arc::clone(panics),
        };
        Self(NonNull::from(Box::leak(Box::new(call))))
    }

    fn call(&self) -> &Call {
        // SAFETY: it was leaked in `new` and is freed by `free` alone, which takes the value.
        unsafe { self.0.as_ref() }
    }

    fn is_over(&self) -> bool {
        self.call().over.load(Ordering::Acquire)
    }

    /// # Safety
    ///
    /// The driver will not come any more: it was never told of it, or it is over.
    unsafe fn free(self) {
        // SAFETY: it was leaked in `new`, this is the one handle of it, and nobody looks at it, says the caller.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// The functions of a context that the driver may still call.
#[derive(Default)]
pub(crate) struct Hosted {
    under_way: Lock<VecDeque<Leaked>>,
    panics: Arc<AtomicU64>,
}

impl core::fmt::Debug for Hosted {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Hosted").field("under_way", &self.under_way.lock().len()).finish_non_exhaustive()
    }
}

impl Hosted {
    /// How many functions have panicked, or what was dropped of those that were never called.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Keeps one that was enqueued, or may have been, and frees some that are over.
    fn keep(&self, call: Leaked) {
        let mut under_way = self.under_way.lock();
        for _ in 0..LOOKS_MAX.min(under_way.len()) {
            match under_way.pop_front() {
                // SAFETY: the driver has come and gone.
                Some(call) if call.is_over() => unsafe { call.free() },
                Some(call) => under_way.push_back(call),
                None => {}
            }
        }
        under_way.push_back(call);
    }

    /// Drops the functions that were not called, for their context has failed or gone. One that the driver still comes for is not called.
    ///
    /// They are dropped here, without a lock.
    pub(crate) fn abandon(&self) {
        let calls = core::mem::take(&mut *self.under_way.lock());
        for call in calls {
            self.drop_function(&call);
            if call.is_over() {
                // SAFETY: the driver has come and gone.
                unsafe { call.free() };
            }
        }
    }

    /// Frees those that are over; the others stay for the driver.
    pub(crate) fn leave(&self) {
        for call in core::mem::take(&mut *self.under_way.lock()) {
            if call.is_over() {
                // SAFETY: the driver has come and gone.
                unsafe { call.free() };
            }
        }
    }

    fn drop_function(&self, call: &Leaked) {
        if let Some(function) = call.call().take() {
            survive(|| drop(function), &self.panics);
        }
    }
}

/// Runs what others wrote where there is nobody to be told of its panic.
fn survive(f: impl FnOnce(), panics: &AtomicU64) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        // It may panic as it is dropped.
        core::mem::forget(payload);
        panics.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs on a thread of the driver's.
///
/// # Safety
///
/// `data` is that of a [`Leaked`] that is not over.
unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: as the caller says: it is freed only when it is over.
    let call = unsafe { &*data.cast::<Call>() };
    if let Some(function) = call.take() {
        survive(function, &call.panics);
    }
    // The last thing of all: from here on it may be freed.
    call.over.store(true, Ordering::Release);
}

impl<D: LineDriver> Stream<D> {
    /// Has the driver call `function`, on a thread of its own, when all that is enqueued so far is done; what is enqueued behind waits for it.
    ///
    /// It is called at most once, and dropped where it never is: after a fault, once a wait, a call or a drop of the context finds that out. It must not
    /// call the driver, nor wait for anything that needs it, which drivers answer by an error or a deadlock; what it owns is dropped on that thread as
    /// well. A panic in it is caught, and counted in [`Context::host_function_panics`](crate::Context::host_function_panics). Costs an allocation.
    ///
    /// # Errors
    ///
    /// - [`StreamCapturing`](wakeline_core::ErrorCode::StreamCapturing) while the stream is captured.
    /// - As [`port`](Self::port). The function is dropped then, and not called; but for a driver that fails and has called it by then.
    pub fn call_host(&self, function: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let shared = self.shared();
        let context = &shared.context;
        context.open()?;
        shared.is_here()?;
        let hosted = &context.hosted;
        let bound = context.bind()?;
        // A function in a graph would be called again and again.
        shared.is_free()?;
        let call = Leaked::new(Box::new(function), &hosted.panics);
        // SAFETY: the context is bound and the stream alive; the allocation stays until the function is over, or for good.
        let result = unsafe { context.driver.call_host(shared.raw, run, call.0.as_ptr().cast()) };
        let refused = result.as_ref().is_err_and(CallError::enqueued_nothing);
        let result = result.map_err(|error| shared.failed(error));
        // A capture may have begun between the look and the call.
        let look = if refused { Ok(()) } else { shared.is_free() };
        drop(bound);
        let outside = look.is_ok();
        if let Err(error) = result.and(look) {
            hosted.drop_function(&call);
            if refused {
                // SAFETY: the driver says that it has not enqueued it.
                unsafe { call.free() };
            } else if outside {
                // It may have been enqueued all the same: then the driver comes. In a graph it may come again and again: those bytes stay.
                hosted.keep(call);
            }
            return Err(error);
        }
        hosted.keep(call);
        context.abandon_if_failed();
        Ok(())
    }
}

impl<D: LineDriver> Inner<D> {
    /// Once the context has failed: no function of the host is called any more. Not under a lock: it drops what is others'.
    pub(crate) fn abandon_if_failed(&self) {
        if self.sound().is_err() && !self.forked() {
            self.hosted.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaked(hosted: &Hosted, function: impl FnOnce() + Send + 'static) -> Leaked {
        Leaked::new(Box::new(function), &hosted.panics)
    }

    fn call(leaked: &Leaked) {
        // SAFETY: no test has it be called after it is over.
        unsafe { run(leaked.0.as_ptr().cast()) };
    }

    #[test]
    fn a_function_is_called_once_and_freed_by_later_ones() {
        let (hosted, count) = (Hosted::default(), Arc::new(AtomicU64::new(0)));
        for _ in 0..100 {
            let count = Arc::clone(&count);
            let function = leaked(&hosted, move || {
                count.fetch_add(1, Ordering::Relaxed);
            });
            call(&function);
            hosted.keep(function);
            assert!(hosted.under_way.lock().len() <= LOOKS_MAX);
        }
        assert_eq!((count.load(Ordering::Relaxed), Arc::strong_count(&count)), (100, 1));
        hosted.leave();
    }

    #[test]
    fn what_is_abandoned_is_dropped_and_never_called_though_the_driver_comes() {
        let (hosted, owner) = (Hosted::default(), Arc::new(()));
        let kept = Arc::clone(&owner);
        let function = leaked(&hosted, move || panic!("called with {kept:?}"));
        let late = Leaked(function.0);
        hosted.keep(function);
        hosted.abandon();
        assert_eq!(Arc::strong_count(&owner), 1);
        call(&late);
        assert!(late.is_over());
        assert_eq!(hosted.panics(), 0);
        // SAFETY: the driver has come, and the other handle was let go without being freed.
        unsafe { late.free() };
    }

    /// Each call that a driver carried out and told a failure of cost some bytes for good.
    #[test]
    fn what_a_failed_call_enqueued_is_freed_once_the_driver_has_come() {
        let hosted = Hosted::default();
        for _ in 0..100 {
            let function = leaked(&hosted, || panic!("called"));
            hosted.drop_function(&function);
            call(&function);
            hosted.keep(function);
        }
        assert!(hosted.under_way.lock().len() <= LOOKS_MAX);
        hosted.leave();
        assert_eq!((hosted.panics(), Arc::strong_count(&hosted.panics)), (0, 1));
    }

    #[test]
    fn a_panic_ends_where_it_is_and_is_counted() {
        let hosted = Hosted::default();
        let function = leaked(&hosted, || std::panic::resume_unwind(Box::new(())));
        call(&function);
        hosted.keep(function);
        assert_eq!(hosted.panics(), 1);
        hosted.abandon();
    }
}

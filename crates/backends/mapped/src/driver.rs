//! What a driver supplies: one table of calls, the same for every vendor.
//!
//! | group | calls | used for |
//! |---|---|---|
//! | contexts | [`retain`](LineDriver::retain), [`release`](LineDriver::release), [`create`](LineDriver::create), [`destroy`](LineDriver::destroy), [`current`](LineDriver::current), [`set_current`](LineDriver::set_current) | keeping a device's context alive; binding it around each call |
//! | streams | [`stream_create`](LineDriver::stream_create), [`stream_destroy`](LineDriver::stream_destroy), [`stream_context`](LineDriver::stream_context), [`stream_query`](LineDriver::stream_query), [`store`](LineDriver::store), [`call_host`](LineDriver::call_host) | the awaited streams; the store of a word behind their work |
//! | warming | [`idle_kernel`](LineDriver::idle_kernel), [`launch_idle`](LineDriver::launch_idle) | having what a launch needs in the caches |
//! | captures | [`capturing`](LineDriver::capturing), [`exchange_capture_mode`](LineDriver::exchange_capture_mode) | never disturbing a capture of the user's |
//! | events | [`event_create`](LineDriver::event_create), [`event_destroy`](LineDriver::event_destroy), [`event_record`](LineDriver::event_record), [`event_query`](LineDriver::event_query), [`event_wait`](LineDriver::event_wait) | the point itself; order between streams |
//! | memory | [`page_alloc`](LineDriver::page_alloc), [`page_free`](LineDriver::page_free) | pages of completion lines |
//!
//! All else (who owns what, in which order, what a failure means) is this crate's and is written once.

use core::ffi::c_void;
use core::fmt;
use core::ptr::NonNull;

use wakeline_core::Status;

use crate::census::Census;
use crate::error::CallError;

/// A device's number in its driver's count, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ordinal(pub u32);

impl fmt::Display for Ordinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

mod work;

pub use work::{
    Fill, KernelDriver, LaunchShape, Launches, PoolNumber, RawExec, RawGraph, RawModule, RawPool, RowCopy,
    Side, TextDriver, WorkDriver,
};

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        ///
        /// An opaque number: it is only ever handed back to the driver that gave it.
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(usize);

        impl $name {
            /// The driver's pointer for "none".
            pub const NULL: Self = Self(0);

            /// The handle behind a pointer of the driver's C interface.
            pub fn from_ptr(handle: *mut c_void) -> Self {
                Self(handle.expose_provenance())
            }

            /// The pointer for the driver's C interface.
            pub fn as_ptr(self) -> *mut c_void {
                core::ptr::with_exposed_provenance_mut(self.0)
            }

            /// Whether it is the driver's "none".
            pub const fn is_null(self) -> bool {
                self.0 == 0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    )*};
}

pub(crate) use handles;

handles! {
    /// A context: what CUDA calls so, or the device itself where contexts are gone.
    RawContext
    /// A stream, or one of the numbers that stand for special streams.
    RawStream
    /// An event.
    RawEvent
    /// A kernel.
    RawKernel
}

/// A stream that is named by a number and not made by anybody.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Special {
    /// The context's one default stream, which waits for all other blocking streams and they for it.
    Legacy,
    /// The default stream of whichever thread makes the call.
    PerThread,
}

/// How a thread's driver calls get along with captures of streams by others; a number of the driver's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaptureMode(pub i32);

/// A page of host memory that the device can store into.
#[derive(Clone, Copy, Debug)]
pub struct RawPage {
    /// Where the host sees it. Aligned to 64 bytes at least.
    pub host: NonNull<c_void>,
    /// Where the device sees it.
    pub device: u64,
}

/// A host function, run by the driver behind a stream's work.
pub type HostFunction = unsafe extern "C" fn(data: *mut c_void);

/// A vendor's driver, as far as lines and points need it. A clone is another handle of the one that is loaded, and cheap.
///
/// # Safety
///
/// The methods MUST do what their comments say by the driver's own rules: this crate's memory safety stands on
/// [`store`](Self::store) writing eight bytes at the address given and nowhere else, on [`call_host`](Self::call_host) calling at most once, and on
/// [`page_alloc`](Self::page_alloc) giving memory that stays valid for host and device until [`page_free`](Self::page_free).
///
/// Every failure of a driver call MUST come back as a [`CallError`] whose [`Kind`](crate::error::Kind) is right: the rest acts on it.
///
/// Unless said otherwise the caller has the right context bound on its thread, and a handle given is alive and of that context:
/// both are the `# Safety` of every `unsafe` method here.
#[expect(
    clippy::missing_safety_doc,
    clippy::missing_errors_doc,
    reason = "one contract for all, at the trait"
)]
pub unsafe trait LineDriver: Clone + Send + Sync + fmt::Debug + 'static {
    /// What messages call it: "cuda".
    const NAME: &'static str;

    /// The capture mode in which no call of this thread's can invalidate a capture.
    const RELAXED: CaptureMode;

    /// Whether [`stream_destroy`](Self::stream_destroy) may wait for what is enqueued on the stream. Then streams are destroyed when they are idle, or with their context.
    const STREAM_DESTROY_WAITS: bool = false;

    /// What was counted of this driver, over all of its contexts.
    fn census(&self) -> &Census;

    /// Whether this number stands for a special stream.
    fn special(stream: RawStream) -> Option<Special>;

    /// Takes a reference to the device's primary context. Needs no context.
    fn retain(&self, device: Ordinal) -> Result<RawContext, CallError>;

    /// Gives one such reference back; the last destroys the context with all that is in it.
    unsafe fn release(&self, device: Ordinal) -> Result<(), CallError>;

    /// Makes a context beside the primary one, and leaves the calling thread's as it is.
    fn create(&self, device: Ordinal) -> Result<RawContext, CallError>;

    /// Destroys a context that [`create`](Self::create) made, with all that is in it.
    unsafe fn destroy(&self, context: RawContext) -> Result<(), CallError>;

    /// This thread's context, [`RawContext::NULL`] for none.
    fn current(&self) -> Result<RawContext, CallError>;

    /// Makes `context` this thread's, [`RawContext::NULL`] for none. `context` is alive.
    unsafe fn set_current(&self, context: RawContext) -> Result<(), CallError>;

    /// Makes a stream that does not wait for the legacy default stream. The lower `priority`, the sooner it is served; out of range is clamped.
    unsafe fn stream_create(&self, priority: i32) -> Result<RawStream, CallError>;

    /// Destroys a stream; what is enqueued still runs. MUST NOT wait for it, but as [`STREAM_DESTROY_WAITS`](Self::STREAM_DESTROY_WAITS) says.
    unsafe fn stream_destroy(&self, stream: RawStream) -> Result<(), CallError>;

    /// The context that `stream` belongs to, which need not be bound.
    unsafe fn stream_context(&self, stream: RawStream) -> Result<RawContext, CallError>;

    /// Whether all that was enqueued on `stream` so far is done. MUST NOT be called while it captures.
    unsafe fn stream_query(&self, stream: RawStream) -> Result<Status, CallError>;

    /// Enqueues the store of `value` at the device's `address`, behind everything before it and with a memory barrier: who
    /// sees the value sees what that work wrote. MUST NOT wait for the device, but for room in the stream's queue.
    unsafe fn store(&self, stream: RawStream, address: u64, value: u64) -> Result<(), CallError>;

    /// Has what is enqueued on `stream` from now on wait, on the device, until the word at the device's `address` reads `value` or later, as numbers
    /// wrap. MUST NOT wait here.
    unsafe fn wait_word(&self, stream: RawStream, address: u64, value: u64) -> Result<(), CallError>;

    /// Enqueues a call of `function(data)` behind everything before it; after a fault it may never come. `function` may be called from any thread.
    unsafe fn call_host(
        &self,
        stream: RawStream,
        function: HostFunction,
        data: *mut c_void,
    ) -> Result<(), CallError>;

    /// A kernel of one thread that does nothing, loaded for good; `None`, as provided, where there is none. May take milliseconds.
    unsafe fn idle_kernel(&self) -> Result<Option<RawKernel>, CallError> {
        Ok(None)
    }

    /// Launches what [`idle_kernel`](Self::idle_kernel) gave. Provided: does nothing.
    unsafe fn launch_idle(&self, kernel: RawKernel, stream: RawStream) -> Result<(), CallError> {
        let _ = (kernel, stream);
        Ok(())
    }

    /// Whether `stream` is being captured. MUST NOT disturb the capture.
    unsafe fn capturing(&self, stream: RawStream) -> Result<bool, CallError>;

    /// Sets this thread's capture mode and says what it was. Needs no context.
    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode, CallError>;

    /// Makes an event that measures no time and raises no interrupt.
    unsafe fn event_create(&self) -> Result<RawEvent, CallError>;

    /// Destroys an event, recorded or not. MUST NOT wait for it.
    unsafe fn event_destroy(&self, event: RawEvent) -> Result<(), CallError>;

    /// Has `event` stand for all that was enqueued on `stream` so far.
    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> Result<(), CallError>;

    /// Whether all that `event` stands for is done.
    unsafe fn event_query(&self, event: RawEvent) -> Result<Status, CallError>;

    /// Has what is enqueued on `stream` from now on wait, on the device, for what `event` stands for now; the bound context is the stream's. MUST NOT
    /// wait for it here, and what the event stands for later MUST NOT matter.
    unsafe fn event_wait(&self, stream: RawStream, event: RawEvent) -> Result<(), CallError>;

    /// Allocates host memory that devices can store into, whatever context their stream is of. `bytes` is a multiple of 4,096.
    unsafe fn page_alloc(&self, bytes: usize) -> Result<RawPage, CallError>;

    /// Frees a page. May wait for the device.
    unsafe fn page_free(&self, page: RawPage) -> Result<(), CallError>;
}

//! The Metal backend of wakeline: command buffers, awaited by a shared event behind their work.
//!
//! ```text
//!   Device ──makes──► Stream ──submit(buffer)──► SharedEventPort ──► a wait, on any host
//!                       │ owns                      │ owns
//!                       ▼                           ▼
//!                    one event, one queue        one word, which a listener or a handler stores
//! ```
//!
//! A Metal device stores no words into memory that a host watches: its shared events are objects. So the word of a point is the host's, and is stored by
//! whoever first finds the point's command buffer completed: the event's listener, the buffer's completion handler (both run on a queue of Metal's, no
//! thread is kept for a wait), or a query. The word therefore says what the buffer's status says, also by the word's authority (`+trust`): neither a value
//! that another queue has signaled, nor a buffer that was killed behind its signal, ends a wait well.
//!
//! | what happens | what a wait does |
//! |---|---|
//! | the buffer completes | the listener or the handler stores the word; either alone is enough, and without both a query does at the next backstop |
//! | the buffer is killed, before its signal or behind it | an error that names the cause, by the next backstop; a `block` by [`BLOCK_SLICE_MS_MAX`] |
//! | the device is removed | the same for every point of it, those that come later too |
//! | the buffer is never committed | pending, until its deadline or for as long as nobody cancels it |
//!
//! Every decision is made here over a table of Metal's calls, [`MetalDriver`]: on Apple's systems `Metal` supplies it, in tests a fake does.
//!
//! ```
//! use wakeline_core::{Inline, Nanos, Outcome, Wait, WaitPlan, drive, run_inline};
//! use wakeline_fake_metal::FakeMetal;
//! use wakeline_metal::{Device, Stream};
//! use wakeline_sim::{SimConfig, SimDevice, VirtualHost, VirtualTime};
//!
//! let simulated = SimDevice::new(VirtualTime::new(), SimConfig::default())?; // on a Mac: `Metal::new()` in place of the fake
//! let host = VirtualHost::new(&simulated);
//! let device = Device::system(FakeMetal::new(&simulated))?;
//! let stream = Stream::new(&device, simulated.time().clone())?;
//!
//! let buffer = stream.buffer()?;
//! buffer.work(Nanos::from_micros(250)); // on a Mac: encode what is to be done, and end the encoders
//! let mut port = stream.submit(&buffer)?;
//! let plan: WaitPlan = "flag:park_us=50,backstop_us=1000".parse()?;
//! let inline = Inline::new(&host, &host, &host);
//! let report = run_inline(drive(Wait::new(&plan), &mut port, &inline, None))??;
//! assert_eq!(report.outcome(), Some(Outcome::Parked));
//! # Ok::<(), wakeline_core::Error>(())
//! ```
//!
//! Invariants:
//! 1. No wait ends well before its own buffer's status says completed, under either authority.
//! 2. A stream's submission lock covers taking a value and what enqueues its signal, and no other call.
//! 3. Nothing keeps a buffer once it has ended or its port is dropped, nor a task whose port is; a listener or handler that comes later finds nothing to do.
//! 4. No drop waits for the device. No lock is held while a waker is woken or Metal is called, but the submission lock.
//! 5. It spawns no thread and keeps no state of the process. Unsafe code is in `sys.rs` alone, which is built for Apple's systems.

mod device;
mod driver;
mod error;
mod notified;
mod port;
mod signal;
mod stream;
#[cfg(target_vendor = "apple")]
mod sys;

pub use device::Device;
pub use driver::{BufferStatus, MetalDriver};
pub use error::BufferError;
pub use notified::Notified;
pub use port::{
    BLOCK_NAP_PART, BLOCK_NAP_US_MAX, BLOCK_NAP_US_MIN, BLOCK_SLICE_MS_MAX, SharedEventPort, timeout_ms,
};
pub use signal::Bell;
pub use stream::Stream;
#[cfg(target_vendor = "apple")]
pub use sys::{CommandBuffer, Metal};

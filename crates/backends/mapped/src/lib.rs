//! What the CUDA and HIP backends of wakeline share: completion lines in mapped host memory, who owns them, the streams that store into them, and
//! their points; events between streams, functions of the host and pinned memory; memory, modules, kernels and graphs; and, with the feature `ops`, the device of
//! operations. A backend supplies its driver's calls as a [`LineDriver`] and a [`WorkDriver`]; everything else is here, once.
//!
//! ```text
//!   Context ──makes──► Stream ──port()──► Port ──► a wait, on any host
//!      │ keeps            │ owns             │ owns
//!      ▼                  ▼                  ▼
//!   pages of lines     one word           one event, recorded behind the work
//! ```
//!
//! Invariants:
//! 1. A context is kept from before its first page exists until after its last is freed.
//! 2. A word belongs to one stream while a store of it is outstanding, and its numbers never go backwards.
//! 3. A stream's submission lock covers taking a number and enqueuing its store, and no other call.
//! 4. Every call binds the context that it needs and gives the caller's back; no call of ours invalidates a capture.
//! 5. After a sticky fault every wait of that context fails with the first cause; those of other contexts with what the driver says to them, if it does.
//! 6. No drop panics, or frees what a store may still come into; none waits for the device, but that the last of a context gives it back, for which
//!    the driver may.
#![allow(unsafe_code, reason = "a backend: it hands the driver's pointers on")]

mod bound;
mod callback;
mod census;
#[cfg(feature = "ops")]
mod collective;
#[cfg(feature = "compile")]
pub mod compile;
mod config;
mod context;
pub mod driver;
pub mod error;
mod event;
mod function;
mod gate;
mod graph;
mod hosted;
pub mod image;
mod inner;
mod kernel;
mod library;
mod line;
mod memory;
mod module;
#[cfg(feature = "ops")]
mod ops;
mod parting;
mod path;
mod pinned;
mod pool;
mod port;
mod probe;
mod process;
mod readback;
mod stream;
mod sync;
mod synchronize;
mod warm;
pub mod work;

pub use bound::Bound;
pub use census::{Census, Counts};
#[cfg(feature = "ops")]
#[doc(hidden)]
pub use collective::BareRanks;
#[cfg(feature = "ops")]
pub use collective::{
    CollectiveLibrary, CollectiveVendor, LEAVE_MS_MAX, OpMember, OpPrepared, Spawn, WATCH_US_MAX,
    WATCH_US_MIN,
};
pub use config::{ContextConfig, PINNED_BYTES, PROBE_MS_MAX, SLOTS_MAX};
pub use context::{Context, WeakContext};
pub use driver::{KernelDriver, LineDriver, Ordinal, TextDriver, WorkDriver};
pub use event::Event;
pub use function::{Dim, Function, Parameter, SHARED_BYTES_OF_ALL};
pub use gate::Gate;
pub use graph::Graph;
pub use kernel::KernelWord;
pub use library::{Opened, Wanted};
pub use line::MappedLine;
pub use memory::{DeviceBuffer, HostBuffer};
pub use module::Module;
#[cfg(feature = "ops")]
pub use ops::{
    DEVICE_BYTES_KEPT, DeviceMemory, GraphDriver, OpCaptured, OpDevice, OpDeviceConfig, OpGraph, OpPinned,
    PeerDriver, RawNode, Refused, listed,
};
pub use path::{CompletionPath, Probe};
pub use pinned::{PINNED_BLOCK_BYTES_MIN, Pinned, PinnedUse};
pub use pool::{PAGE_BYTES, SlotUse};
pub use port::{Answer, BLOCK_NAP_PART, BLOCK_NAP_US_MAX, BLOCK_NAP_US_MIN, CALLBACK_LATE_MS_MAX, Port};
pub use readback::Readback;
pub use stream::Stream;
pub use synchronize::synchronize;
pub use work::{Fault, Kernels};

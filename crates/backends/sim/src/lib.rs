//! A simulated device for wakeline: streams, completion words, statuses and seeded faults, without a GPU.
//!
//! It implements the ports of `wakeline-core` as a real backend does, and can be made to fail in every way that
//! real ones were seen to. The same seed and the same calls give the same run.
//!
//! | time line | clock | who moves the device | for |
//! |---|---|---|---|
//! | [`VirtualTime`] | stands still until somebody waits | [`VirtualHost`], in no real time | tests, model checks, soaks |
//! | [`RealTime`] | a host's | a host's thread, through [`Turn`](wakeline_core::Turn) | examples, benches, hosts |
//!
//! ```
//! use wakeline_core::{Clock, CompletionPort, Nanos, Status, Wake};
//! use wakeline_sim::{SimConfig, SimDevice, VirtualHost, VirtualTime};
//!
//! let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
//! let host = VirtualHost::new(&device);
//! let stream = device.stream()?;
//!
//! stream.launch(Nanos::from_millis(5))?;
//! let mut point = stream.point();
//! point.arm()?;
//! assert_eq!(point.park(&host, host.now() + Nanos::from_millis(9)), Wake::Reached);
//! assert_eq!(point.query()?, Status::Done);
//! # Ok::<(), wakeline_core::Error>(())
//! ```
//!
//! Invariants: it spawns no thread, starts no timer, reads no clock but its time line and no environment; no lock
//! is held while a waker or a closure of somebody else is called; every queue and table has a stated bound.

#![forbid(unsafe_code)]

extern crate alloc;

mod access;
mod config;
mod device;
mod dice;
mod error;
mod event;
#[cfg(feature = "ops")]
mod fabric;
mod fault;
mod gate;
mod graph;
mod host;
mod job;
mod line;
mod log;
#[cfg(loom)]
#[cfg(test)]
mod loom_tests;
mod memory;
#[cfg(feature = "ops")]
mod ops;
mod order;
#[cfg(feature = "ops")]
mod peers;
mod port;
mod queue;
mod state;
mod stream;
mod sync;
mod table;
mod tend;
mod time;

pub use access::{SimArg, SimAt, SimEvent, SimMemory, SimPinned};
pub use config::{COST_NS_MAX, GRAPH_NODES_MAX, LOG_LEN_MAX, QUEUE_LEN_MAX, SLOTS_MAX, SimConfig};
pub use device::SimDevice;
pub use event::Truth;
#[cfg(feature = "ops")]
pub use fabric::{COLLECTIVE_NS, SimFabric, SimMember};
pub use fault::{Chance, FAULT_NS_MAX, Faults};
pub use gate::SimGate;
pub use graph::{SimCapture, SimGraph, SimNode, SimNodeKind};
pub use host::VirtualHost;
pub use job::{SimArgs, SimKernel, SimRows};
pub use line::SlotUse;
pub use log::{Counts, LogEntry, LogEvent};
pub use memory::{MISUSES_MAX, MemoryUse, Misuse};
#[cfg(feature = "ops")]
pub use ops::{SHAPE_LIMITS, SimOpStream, SimRuntime};
pub use port::{SimPort, Witness};
pub use stream::SimStream;
pub use tend::{ASK_NS, EARLY_NS, VirtualWatcher, WATCH_NS, WATCH_SLICE_NS};
pub use time::{RealTime, SLICE_NS_MAX, SPIN_NS_MAX, TimeLine, VirtualTime};

//! Device operations for wakeline: lazy, composable, awaited on any runtime, over any backend.
//!
//! An operation says what a device is to do; nothing happens until it is run. Then its work is enqueued in a stream, and whoever runs it
//! waits for the point behind that work, as a future or on the spot.
//!
//! | you want | look at |
//! |---|---|
//! | to run operations | [`Runtime`], [`DeviceOp::on`], [`Runtime::scope`], [`DeviceFuture`] |
//! | to set how ends become known | [`RuntimeConfig`], [`Completion`], [`DeviceFuture::late_us`], [`DeviceFuture::keyed`] |
//! | to shut down | [`Runtime::drain`] |
//! | to end an await early | [`DeviceFuture::timeout`], [`DeviceFuture::cancelled_by`] |
//! | to compose them | [`value`], [`DeviceOp::then`], [`DeviceOp::map`], [`DeviceOp::map_host`], [`zip!`], [`all`], [`DeviceOp::shared`] and the others of [`DeviceOp`] |
//! | many at a time | [`zip!`], [`all`], [`Runtime::join_all`], [`DeviceOp::in_one_stream`] |
//! | to enqueue ahead, and start by a store | [`gate()`] |
//! | to enqueue the same again and again | [`DeviceOp::graph_on`], [`Graph`] |
//! | to write one | [`DeviceOp::execute`], [`Submission`], [`device_op!`] |
//! | to choose streams | [`StreamPoolRoundRobin`], [`SingleStream`], [`LeastLoaded`], [`ByPriority`], [`Runtime::scheduled`], [`Stream`], [`guide::policies`] |
//! | several devices that compute together | [`Ranks`], [`Rank`] |
//! | several devices | [`Machine`], [`Placement`], [`Submission::copy_across`] |
//! | memory, kernels | the tensors of `wakeline-tensor` |
//! | to build on memory yourself | [`Storage`], [`Touch`], [`Submission::touch`] |
//! | to bring a device | [`port`] |
//!
//! ```
//! use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin};
//! use wakeline_tensor::Tensor;
//! use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
//!
//! let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
//! let watcher = VirtualWatcher::new(&device); // a program in real time has that of `wakeline-std`
//! let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), watcher.clone())?;
//! let doubled = Tensor::from_host(vec![1_u32, 2, 3])
//!     .then(|tensor| tensor.to_host())
//!     .map_host(|numbers| numbers.iter().map(|number| number * 2).collect::<Vec<_>>());
//! assert_eq!(watcher.run(doubled.on(&runtime))??, [2, 4, 6]);
//! # Ok::<(), wakeline_core::Error>(())
//! ```
//!
//! Invariants:
//! 1. What an operation keeps belongs to its flight and not to its future: dropping or forgetting a future frees nothing that the device
//!    may still touch, and waits for nothing.
//! 2. A flight lets go what it keeps when the device is done, whether or not anybody asks again; where nobody can know that any more, it
//!    leaks it and counts that.
//! 3. Between any two polls of a future its flight is tended by somebody who needs no polls.
//! 4. No lock is held while a waker, a closure or a destructor of somebody else runs.
//! 5. A device-side wait is only ever enqueued for an event that was recorded before.
//! 6. Of branches in several streams the operation's own stream waits for each: one point, and one flight, is behind all of them.
//! 7. While an operation is submitted its thread executes no other.
//! 8. No backend, thread, driver or environment is known here.

mod ambient;
mod boxed;
mod collective;
mod config;
mod counts;
#[cfg(all(test, not(loom)))]
mod crowd_tests;
mod drain;
mod events;
mod flight;
mod fork;
mod future;
mod gate;
mod graph;
pub mod guide;
mod hazard;
mod interest;
mod into_op;
mod join;
mod known;
mod ladder;
mod lane;
mod lanes;
mod lock;
#[cfg(loom)]
#[cfg(test)]
mod loom_tests;
mod machine;
mod map;
#[cfg(doctest)]
mod must_not_compile;
mod once;
mod op;
mod owner;
mod panics;
mod point;
mod policies;
mod policy;
pub mod port;
mod room;
mod runtime;
mod shared;
mod small;
mod stream;
mod submission;
mod sync;
mod then;
mod unbound;
mod unzip;
mod value;
mod zip;

pub use ambient::Scope;
pub use boxed::{Arriving, Boxed, BoxedHost};
pub use collective::{
    Between, CollectiveConfig, CollectiveMemory, Exchange, GIVE_UP_MS, InPlace, Joining, Numbers, RANKS_MAX,
    RANKS_WITHIN_MS_MAX, Rank, Ranks, Region, Together,
};
pub use config::{
    CROWD_FLIGHTS, CROWD_LATE_US, CROWD_LATE_US_MAX, Completion, FEW_FLIGHTS_MAX, LATE_US_MAX, PLAN,
    RuntimeConfig, SPIN_US_DEFAULT, SPIN_US_MAX,
};
pub use counts::FlightCounts;
pub use drain::Drain;
pub use future::DeviceFuture;
pub use gate::{GATE_MS_MAX, Gate, GateOp, gate};
pub use graph::{Graph, GraphArg, GraphNode, Recorder, Replay};
pub use hazard::{Foreign, Storage, Touch};
pub use into_op::{Gives, Giving, IntoDeviceOp, OfDevice};
pub use join::{JOIN_MAX, JoinAll};
pub use lanes::Loads;
pub use machine::{
    ByKey, DEVICES_MAX, DeviceLoads, InTurn, LeastBusy, Machine, Placement, Retry, STAGE_BYTES, STAGES_MAX,
    Site, Spread, TRIES_MAX,
};
pub use map::{Arrival, FirstOf, InArc, LastOf, Map, MapHost};
pub use op::DeviceOp;
pub use point::{OpLine, OpPoint};
pub use policies::{ByPriority, LeastLoaded};
pub use policy::{STREAMS_MAX, SchedulingPolicy, SingleStream, StreamPoolRoundRobin};
pub use runtime::Runtime;
pub use shared::Shared;
pub use small::{AndThenWithContext, Inspect, ThenUnchecked, UnwrapArc, WithContext, empty, with_context};
pub use stream::{ENTRIES_MAX, IN_FLIGHT_MAX, Stream};
pub use submission::Submission;
pub use then::Then;
pub use unbound::fall_back_on;
pub use unzip::{Has, Part, Sequence, Tuple};
pub use value::{Value, value};
pub use zip::{All, InOneStream, Zip, all};

#[doc(hidden)]
pub use wakeline_core::Error;

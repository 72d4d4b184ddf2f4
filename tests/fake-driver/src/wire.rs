//! What a test and its fake say to each other: options, rules, the log and counts, and the requests that carry them.
//!
//! Both sides are built from this file, but they are two libraries in one process, each with its own statics and
//! perhaps its own allocator. So nothing is handed over but bytes: a request and its answer are JSON.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::Status;

/// How the fake behaves where no rule says otherwise. The defaults are what was measured on an H200 with driver 580.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// How many devices there are. 1.
    pub devices: i32,
    /// The memory of each. 80 GiB.
    pub total_memory_bytes: u64,
    /// What `cuDriverGetVersion` says, and the newest version `cuGetProcAddress` may be asked for. 13000.
    pub driver_version: i32,
    /// Attributes of all devices, by number, in place of the fake's own.
    pub attributes: BTreeMap<i32, i32>,
    /// Symbols, by their exported names, that `cuGetProcAddress` does not know.
    pub hidden: BTreeSet<String>,
    /// Whether this is the toolkit's stub of the library: every call says 34.
    pub stub: bool,
    /// What `cuInit` returns.
    pub init: Status,
    /// Whether the process is on its way out: every call says 4.
    pub deinitialized: bool,
    /// From a kernel's fault to the first call that says so. 340,000.
    pub fault_delay_us: u64,
    /// What a fault ends. [`FaultEnds::Process`].
    pub fault_ends: FaultEnds,
    /// Whether devices can be let reach each other's memory. [`PeerAccess::Granted`].
    pub peer_access: PeerAccess,
    /// From the end of what is before a store to the moment it lands. 1,400.
    pub store_lag_ns: u64,
    /// How long a stream's query says "not ready" after all is done. 2,400.
    pub status_lag_ns: u64,
    /// How many operations of a stream may wait for their turn; one more blocks its caller. 1,024.
    pub queue_depth: usize,
    /// A kernel that no graph can have, by its name.
    pub no_graphs_with: Option<String>,
    /// How HIP's kinds of nodes are numbered. [`HipNodes::FromZero`].
    pub hip_nodes: HipNodes,
    /// What the device's clock shows beyond `CLOCK_MONOTONIC`; by default, what makes it the time of day.
    pub clock_offset_ns: Option<i64>,
    /// The release that the run-time compiler is of. (13, 1).
    pub nvrtc_version: (i32, i32),
    /// The architectures that it knows. 75, 80, 86, 89, 90, 100, 120.
    pub nvrtc_archs: Vec<i32>,
    /// The release that the library of collectives is of. 22,603.
    pub nccl_version: i32,
    /// How long after its call a collective is enqueued, of communicators that do not block. 30.
    pub nccl_lag_us: u64,
    /// Ranks that never come to a collective, of which the others are told. None.
    pub nccl_dead: BTreeSet<i32>,
    /// Whether calls are logged. They are counted in any case.
    pub log: bool,
    /// How many calls the log keeps; the oldest go first. 65,536.
    pub log_len_max: usize,
}

/// Whether devices can be let reach each other's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerAccess {
    /// Each the others'.
    Granted,
    /// None any other's.
    Refused,
}

/// What a kernel's fault ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultEnds {
    /// Its own context. Streams of others that wait for an event of it go on once it is told.
    Context,
    /// Every context of the process, on all devices, and no other can be made.
    Process,
}

/// How HIP numbers the kinds of a graph's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HipNodes {
    /// As 6 does, and CUDA.
    FromZero,
    /// As 5.2 does.
    FromOne,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            devices: 1,
            total_memory_bytes: 80 << 30,
            driver_version: 13_000,
            attributes: BTreeMap::new(),
            hidden: BTreeSet::new(),
            stub: false,
            init: Status::SUCCESS,
            deinitialized: false,
            fault_delay_us: 340_000,
            fault_ends: FaultEnds::Process,
            peer_access: PeerAccess::Granted,
            store_lag_ns: 1_400,
            status_lag_ns: 2_400,
            queue_depth: 1_024,
            no_graphs_with: None,
            hip_nodes: HipNodes::FromZero,
            clock_offset_ns: None,
            nvrtc_version: (13, 1),
            nvrtc_archs: vec![75, 80, 86, 89, 90, 100, 120],
            nccl_version: 22_603,
            nccl_lag_us: 30,
            nccl_dead: BTreeSet::new(),
            log: true,
            log_len_max: 65_536,
        }
    }
}

/// What becomes of calls of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// An exported name, or one without its `_v2`, which then stands for all of them.
    pub call: String,
    /// How many calls pass before the rule acts.
    pub skip: u64,
    /// How often it acts, then; `None` is for ever.
    pub times: Option<u64>,
    /// What it does.
    pub act: Act,
}

impl Rule {
    /// A rule for all calls of that name.
    pub fn new(call: impl Into<String>, act: Act) -> Self {
        Self { call: call.into(), skip: 0, times: None, act }
    }

    /// Lets so many calls pass first.
    #[must_use]
    pub fn skip(self, calls: u64) -> Self {
        Self { skip: calls, ..self }
    }

    /// Acts so many times at most.
    #[must_use]
    pub fn times(self, calls: u64) -> Self {
        Self { times: Some(calls), ..self }
    }
}

/// What a rule does to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Returns this, and does nothing.
    Fail(Status),
    /// Waits so many microseconds, then goes on with the call.
    DelayUs(u64),
    /// Says 0 and does nothing: results are not written, a store never lands.
    DropEffect,
    /// Does what the call does, then returns this in place of a 0.
    FailAfter(Status),
    /// Waits for [`Fake::release`](crate::Fake::release), then goes on with the call.
    Block,
}

/// A rule that was set, to ask for its hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RuleId(pub(crate) u64);

/// A call that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The exported name.
    pub name: String,
    /// The caller's thread, as [`thread_id`](crate::thread_id) gives it.
    pub thread: u64,
    /// The handle of the context that was current when the call came.
    pub context: Option<u64>,
    /// The stream among its arguments.
    pub stream: Option<u64>,
    /// What it returned.
    pub status: Status,
}

/// What was made and is not gone yet. Default streams are not counted, nor is what their context takes with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    /// Retains of primary contexts that no release answered.
    pub primary_retains: u64,
    /// Contexts, primary ones among them.
    pub contexts: u64,
    /// Streams.
    pub streams: u64,
    /// Events.
    pub events: u64,
    /// Allocations of pinned host memory.
    pub pinned_pages: u64,
    /// Their bytes.
    pub pinned_bytes: u64,
    /// Allocations of device memory.
    pub device_allocations: u64,
    /// Their bytes.
    pub device_bytes: u64,
    /// Programs of the run-time compiler.
    pub programs: u64,
    /// Communicators of the library of collectives.
    pub communicators: u64,
    /// Modules.
    pub modules: u64,
    /// Graphs that were captured.
    pub graphs: u64,
    /// Graphs that can be launched.
    pub graph_execs: u64,
    /// Operations that wait in streams.
    pub queued: u64,
}

/// What a test asks of its fake. The answer's type is the one named; a unit is `null`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// [`Options`]
    Options,
    /// `()`
    SetOptions(Options),
    /// [`RuleId`]
    Rule(Rule),
    /// `u64`
    Hits(RuleId),
    /// `()`
    ClearRules,
    /// `()`
    Release,
    /// `u64`
    Blocked,
    /// `u64`
    Calls(String),
    /// `Vec<Call>`
    Log,
    /// `()`
    ClearLog,
    /// `Vec<String>`
    Violations,
    /// `()`
    Forgive,
    /// `i32`
    Priority(u64),
    /// `u64`
    ReleaseThreshold(i32),
    /// [`Live`]
    Live,
    /// `Vec<String>`
    Symbols,
    /// `()`
    Reset,
}

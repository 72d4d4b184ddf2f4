//! How a simulated device is set up.

use wakeline_core::{Error, Seq, within};

use crate::fault::Faults;

/// The most that a call may be made to cost: ten seconds.
pub const COST_NS_MAX: u64 = 10_000_000_000;
/// The most commands that may be enqueued in a stream.
pub const QUEUE_LEN_MAX: usize = 1 << 20;
/// The most nodes that a graph may have.
pub const GRAPH_NODES_MAX: usize = 1 << 16;
/// The most words that a device may have.
pub const SLOTS_MAX: usize = 1 << 16;
/// The most entries that a log may keep.
pub const LOG_LEN_MAX: usize = 1 << 24;

/// How a simulated device is set up: what its calls cost, how large it is, what goes wrong.
///
/// The default has the costs that were measured on an NVIDIA H200 (driver 580, CUDA 13) and no faults;
/// [`SimConfig::exact`] costs nothing, for tests that want round numbers.
///
/// ```
/// use wakeline_sim::{Faults, SimConfig};
/// let config = SimConfig { seed: 7, query_ns: 500, faults: Faults::swarm(7), ..SimConfig::default() };
/// assert_eq!(config.launch_ns, 3_700);
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SimConfig {
    /// What every random draw comes from: the same seed and the same calls give the same run.
    pub seed: u64,
    /// What a status query costs the calling thread.
    pub query_ns: u64,
    /// What arming costs it: an event record and a store.
    pub arm_ns: u64,
    /// What a launch costs it.
    pub launch_ns: u64,
    /// How long an allocation, a copy or a fill runs on the device, whatever its size.
    pub copy_ns: u64,
    /// What a blocking wait costs it beyond the waiting.
    pub block_ns: u64,
    /// From the end of the work to the store's landing in its word.
    pub store_latency_ns: u64,
    /// From the end of the work to the first status that says so. Above [`store_latency_ns`](Self::store_latency_ns)
    /// the status lags behind the word: on an H200 a stream's query right after the word says "not ready" 98 %
    /// of the time and agrees 2.4 us later (4,700 here); an event recorded in front of the store has no such lag.
    pub confirm_lag_ns: u64,
    /// Whether a blocking wait can end at a deadline. Where it cannot, a bounded wait is refused with
    /// [`BlockUnbounded`](wakeline_core::ErrorCode::BlockUnbounded), as by CUDA and HIP.
    pub bounded_block: bool,
    /// How many commands a stream holds, what runs included. A store that has left it and has not landed yet does not count: there may be 16 times as many of these. An H200 holds about 1,000.
    pub queue_len_max: usize,
    /// How many nodes a graph has at most. A larger one cannot be made into one that can be launched.
    pub graph_nodes_max: usize,
    /// How many words the device may have, quarantined ones included.
    pub slots_max: usize,
    /// How many entries the log keeps; the oldest go first. 0 keeps none.
    pub log_len_max: usize,
    /// Whether it reaches memory of devices [beside](crate::SimDevice::beside) it, and they its own, where those do so as well. Else copies between them go by way of the host.
    pub peer_access: bool,
    /// What every word reads at first. A value shortly before 2^32 or 2^64 makes the sequence wrap.
    pub first_word: Seq,
    /// What goes wrong.
    pub faults: Faults,
}

impl SimConfig {
    /// A device whose calls, stores and statuses take no time.
    ///
    /// On a virtual time line a host that only asks then never gets anywhere, since asking takes no time: give
    /// [`query_ns`](Self::query_ns) a value where something polls.
    pub const fn exact() -> Self {
        Self {
            seed: 0,
            query_ns: 0,
            arm_ns: 0,
            launch_ns: 0,
            copy_ns: 0,
            block_ns: 0,
            store_latency_ns: 0,
            confirm_lag_ns: 0,
            bounded_block: true,
            queue_len_max: 1_024,
            graph_nodes_max: GRAPH_NODES_MAX,
            slots_max: 1_024,
            log_len_max: 0,
            peer_access: true,
            first_word: Seq::ZERO,
            faults: Faults::none(),
        }
    }

    /// # Errors
    ///
    /// `InvalidLimit` where a value is out of range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        for (what, ns) in [
            ("query_ns", self.query_ns),
            ("arm_ns", self.arm_ns),
            ("launch_ns", self.launch_ns),
            ("copy_ns", self.copy_ns),
            ("block_ns", self.block_ns),
            ("store_latency_ns", self.store_latency_ns),
            ("confirm_lag_ns", self.confirm_lag_ns),
        ] {
            within(what, ns, 0, COST_NS_MAX)?;
        }
        within("queue_len_max", self.queue_len_max, 1, QUEUE_LEN_MAX)?;
        within("graph_nodes_max", self.graph_nodes_max, 1, GRAPH_NODES_MAX)?;
        within("slots_max", self.slots_max, 1, SLOTS_MAX)?;
        within("log_len_max", self.log_len_max, 0, LOG_LEN_MAX)?;
        self.faults.check()
    }
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            query_ns: 300,
            arm_ns: 1_400,
            launch_ns: 3_700,
            copy_ns: 5_000,
            block_ns: 1_600,
            store_latency_ns: 2_300,
            confirm_lag_ns: 2_600,
            ..Self::exact()
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_value_out_of_range_names_its_field_and_the_range() {
        SimConfig::default().check().unwrap();
        let error = SimConfig { slots_max: 0, ..SimConfig::exact() }.check().unwrap_err();
        assert_eq!(error.to_string(), "slots_max is 0, but must be from 1 to 65536");
        let error = SimConfig { query_ns: u64::MAX, ..SimConfig::exact() }.check().unwrap_err();
        assert_eq!(error.args()[0], "query_ns");
    }
}

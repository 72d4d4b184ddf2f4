//! The arms of `await`: who waits, and those who know the end beforehand, which are bounds for the others.

use std::sync::Arc;

use wakeline_core::{Clock, CompletionPort, Error, Nanos, Wake};
use wakeline_ops::Stream;
use wakeline_ops::port::Device;
use wakeline_std::StdClock;

use super::Machine;
use crate::alarm::Alarm;

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arm {
    /// The device's calls and a spin on the word.
    Spin,
    /// `.await` on tokio's `current_thread`.
    Current,
    /// `.await` in a task of tokio's `multi_thread`, with four workers.
    Multi,
    /// The same as the second, with no spin from submission on.
    CurrentNoSpin,
    /// The same as the second, by a plan without `+warm`.
    CurrentCold,
    /// `sync_on`.
    SyncOn,
    /// The device's calls, a sleep of this thread, which knows when the work ends, until a part of its length before that, and a spin on the word: a bound for all that sleep.
    Bare,
    /// The same by an [`Alarm`](crate::Alarm), which notifies a `current_thread` runtime then: a bound for all that have another thread wake theirs.
    BareCurrent,
    /// The same in a task of `multi_thread`: a bound for all that have a worker woken.
    BareMulti,
}

/// How long before the end whoever knows that is there: with what a sleep costs beside, about as much of a processor as an await may take.
pub(super) fn lead(length: Nanos) -> Nanos {
    let part = if length <= Nanos::from_millis(1) { 20 } else { 25 };
    Nanos::from_nanos(length.as_nanos() / part).max(Nanos::from_micros(40))
}

impl Arm {
    /// All of them; the first is the base.
    pub const ALL: [Self; 9] = [
        Self::Spin,
        Self::Current,
        Self::Multi,
        Self::CurrentNoSpin,
        Self::CurrentCold,
        Self::SyncOn,
        Self::Bare,
        Self::BareCurrent,
        Self::BareMulti,
    ];

    /// Whether it knows the end beforehand: a bound, and no way to wait.
    pub const fn is_bound(self) -> bool {
        matches!(self, Self::Bare | Self::BareCurrent | Self::BareMulti)
    }

    /// What it is called in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Current => "await@current_thread",
            Self::Multi => "await@multi_thread(4)",
            Self::CurrentNoSpin => "await@current_thread,spin_us=0",
            Self::CurrentCold => "await@current_thread, without +warm",
            Self::SyncOn => "sync_on",
            Self::Bare => "bare",
            Self::BareCurrent => "bare@current_thread",
            Self::BareMulti => "bare@multi_thread(4)",
        }
    }
}

/// Has the device do work, by its own calls, and store a word behind it.
pub(super) fn submitted<M: Machine>(
    machine: &M,
    stream: &Stream<M::Device>,
    length: Nanos,
) -> Result<<M::Device as Device>::Point, Error> {
    machine.launch(stream.raw(), length)?;
    let mut point = machine.device().point(stream.raw())?;
    point.arm()?;
    Ok(point)
}

pub(super) fn spin(point: &impl CompletionPort) {
    while point.poll() != Wake::Reached {
        core::hint::spin_loop();
    }
}

/// Has the device do work, and awaits the alarm of whoever knows its end, so often; how long each took.
pub(super) async fn alarmed<M: Machine>(
    machine: Arc<M>,
    stream: Stream<M::Device>,
    (alarm, clock): (Arc<Alarm>, StdClock),
    length: Nanos,
    times: usize,
) -> Result<Vec<u64>, Error> {
    let mut took = Vec::with_capacity(times);
    for _ in 0..times {
        let before = clock.now();
        let point = submitted(&*machine, &stream, length)?;
        alarm.until(before + (length - lead(length))).await;
        spin(&point);
        took.push(clock.now().since(before).as_nanos());
    }
    Ok(took)
}

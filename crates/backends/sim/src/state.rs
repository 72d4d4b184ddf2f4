//! The device's state and the engine that moves it through time.
//!
//! ```text
//!   enqueue_work ──┐                        ┌── WorkEnds ──► end_work ─► step
//!   enqueue_store ─┼─► step ─► due (heap) ──┤
//!   submit ────────┘     └─► issue ─┘       ├── Lands ─────► land
//!                                turn(now): └── Faults ────► stop
//!
//!   end_work ─► a kernel or a host function ─► take_call .. (no lock is held) .. end_call ─► step
//! ```
//!
//! Invariants:
//! 1. Everything happens at its own time and in the order of times, equal times in the order in which they were
//!    scheduled: `turn` to a moment in many steps or in one gives the same.
//! 2. Nothing foreign is called from here, so that the lock around it covers no waker and no closure.
//! 3. After `stop` nothing happens any more.
//! 4. What is due has a bound: for a stream the work that runs, for a word `queue_len_max` stores and as many
//!    repeats, for the device one fault.
//! 5. While a kernel or a host function is called nothing else happens: time goes on from where it was.

mod devices;
mod gates;
mod graphs;
mod jobs;
mod points;

pub(crate) use graphs::{Captured, Node, Nodes};
pub(crate) use jobs::{Call as JobCall, Touch};

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};
use core::task::Waker;

use wakeline_core::{Error, HostLine, Instant, Nanos, Seq};

use crate::config::SimConfig;
use crate::dice::{Dice, Draw};
use crate::error::failed;
use crate::event::Point;
use crate::fault::Faults;
use crate::job::Job;
use crate::line::{Landing, Lines, Place};
use crate::log::{Counts, Log, LogEntry, LogEvent};
use crate::memory::Buffers;
use crate::queue::{Next, Queue, Store, Work};
use crate::table::{Key, Table};

/// How many times as many stores of a stream's word may be under way as the stream holds commands.
const UNDER_WAY_MAX: usize = 16;

/// Which driver call is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Stream,
    Launch,
    Arm,
    Query,
    Block,
    /// Everything else, by its name.
    Other(&'static str),
}

impl Call {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Launch => "launch",
            Self::Arm => "arm",
            Self::Query => "query",
            Self::Block => "block",
            Self::Other(name) => name,
        }
    }
}

#[derive(Debug)]
pub(crate) struct State {
    config: SimConfig,
    /// What goes wrong from now on; at first what the configuration says.
    faults: Faults,
    now: Instant,
    due: BinaryHeap<Reverse<Due>>,
    /// Breaks ties of `due` in the order of scheduling.
    scheduled: u64,
    /// Which device is at hand, and what each of the others has for itself.
    device: usize,
    parts: Vec<Option<Box<devices::Part>>>,
    streams: Table<Queue>,
    /// How many streams were ever made.
    numbered: u64,
    pub(crate) points: Table<Point>,
    pub(crate) lines: Lines,
    fault: Option<Fault>,
    pub(crate) counts: Counts,
    pub(crate) log: Log,
    pub(crate) buffers: Buffers,
    gates: Table<gates::Gate>,
    captures: Table<graphs::Capture>,
    execs: Table<graphs::Exec>,
    runs: Table<graphs::Run>,
    /// What is to be called now, or is being called.
    calling: jobs::Calling,
    bell: Option<Arc<Waker>>,
    /// When whoever drives the device will turn it next.
    promised: Instant,
}

#[derive(Debug)]
struct Fault {
    /// When the calls begin to tell of it.
    known_at: Instant,
    error: Error,
}

#[derive(Debug)]
struct Due {
    at: Instant,
    order: u64,
    what: What,
    /// Of which device.
    device: usize,
}

#[derive(Debug)]
enum What {
    WorkEnds(Key),
    NodeEnds(Key, usize),
    RunEnds(Key),
    Lands(Store),
    Faults,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl State {
    pub(crate) fn new(config: &SimConfig) -> Self {
        let mut state = Self {
            config: *config,
            faults: config.faults,
            now: Instant::ORIGIN,
            due: BinaryHeap::new(),
            scheduled: 0,
            device: 0,
            parts: Vec::from([None]),
            streams: Table::new(),
            numbered: 0,
            points: Table::new(),
            lines: Lines::new(config.slots_max, config.first_word),
            fault: None,
            counts: Counts::default(),
            log: Log::new(config.log_len_max),
            buffers: Buffers::default(),
            gates: Table::new(),
            captures: Table::new(),
            execs: Table::new(),
            runs: Table::new(),
            calling: jobs::Calling::Nothing,
            bell: None,
            promised: Instant::MAX,
        };
        state.set_faults(&config.faults);
        state
    }

    // Time.

    /// Lets everything happen that is due at `now`. A moment in the past changes nothing.
    pub(crate) fn turn(&mut self, now: Instant) {
        self.now = self.now.max(now);
        let own = self.device;
        while matches!(self.calling, jobs::Calling::Nothing)
            && let Some(Reverse(next)) = self.due.peek()
            && next.at <= self.now
        {
            let Some(Reverse(Due { at, what, device, .. })) = self.due.pop() else { break };
            self.select(device);
            match what {
                What::WorkEnds(stream) => self.end_work(stream, at),
                What::NodeEnds(run, node) => self.end_node(run, node, at),
                What::RunEnds(run) => self.end_run(run, at),
                What::Lands(store) => self.land(&store, at),
                What::Faults => self.stop(at),
            }
        }
        self.select(own);
    }

    /// When something is due next, [`Instant::MAX`] while nothing is. Now, while a call is made or is to be made.
    pub(crate) fn next_due(&self) -> Instant {
        if !matches!(self.calling, jobs::Calling::Nothing) {
            return self.now;
        }
        self.due.peek().map_or(Instant::MAX, |Reverse(next)| next.at)
    }

    fn schedule(&mut self, at: Instant, what: What) {
        self.push_due(at, what, self.device);
    }

    // Who drives the device.

    /// Takes the bell, gives back the one it replaces: a waker is dropped outside of the lock.
    #[must_use]
    pub(crate) fn set_bell(&mut self, bell: Arc<Waker>) -> Option<Arc<Waker>> {
        self.bell.replace(bell)
    }

    /// Notes what `turn` promised to whoever drives the device.
    pub(crate) fn promise(&mut self) -> Instant {
        self.promised = self.next_due();
        self.promised
    }

    /// The bell to ring once the lock is free, where something has come to be due before what was promised.
    #[must_use]
    pub(crate) fn bell_to_ring(&mut self) -> Option<Arc<Waker>> {
        let next = self.next_due();
        if next >= self.promised {
            return None;
        }
        let bell = self.bell.clone()?;
        self.promised = next;
        Some(bell)
    }

    // Faults.

    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(crate) fn set_faults(&mut self, faults: &Faults) {
        self.faults = *faults;
        let own = self.device;
        self.due.retain(|Reverse(due)| due.device != own || !matches!(due.what, What::Faults));
        if let Some(at) = faults.fault_at
            && self.fault.is_none()
        {
            self.schedule(at, What::Faults);
        }
    }

    /// Begins a driver call: counts it and lets the device fault at it where that was asked for. Whether the call
    /// fails shows when it ends.
    pub(crate) fn begin(&mut self, call: Call, now: Instant) {
        self.turn(now);
        self.counts.calls += 1;
        if self.faults.fault_at_call == Some(self.counts.calls) {
            self.stop(self.now);
        }
        match call {
            Call::Query => self.counts.queries += 1,
            Call::Block => self.counts.blocks += 1,
            Call::Stream | Call::Launch | Call::Arm | Call::Other(_) => {}
        }
    }

    /// The device's fault, once it is known.
    pub(crate) fn health(&self) -> Result<(), Error> {
        match &self.fault {
            Some(fault) if self.now >= fault.known_at => Err(fault.error.clone()),
            _ => Ok(()),
        }
    }

    /// When the calls begin to tell of a fault that has happened.
    pub(crate) fn fault_known_at(&self) -> Option<Instant> {
        self.fault.as_ref().map(|fault| fault.known_at)
    }

    /// The device faults, unless it did already.
    pub(crate) fn stop(&mut self, at: Instant) {
        let text = alloc::format!("the device faulted at {}", at.since(Instant::ORIGIN));
        self.stop_by(at, &text);
    }

    /// The same, where it is known by what.
    pub(crate) fn stop_by(&mut self, at: Instant, text: &str) {
        if self.fault.is_some() {
            return;
        }
        let known_at = at + devices::lag(&self.faults);
        self.fault = Some(Fault { known_at, error: failed("work", &text) });
        self.stop_streams(known_at);
        self.log(at, u64::MAX, LogEvent::Faulted);
    }

    // Streams.

    pub(crate) fn new_stream(&mut self) -> Result<(Key, Place, Arc<HostLine>, Seq), Error> {
        let Some((place, line, armed)) = self.lines.take() else {
            let slots = self.lines.slot_use();
            let text = alloc::format!(
                "all {} words are taken ({} quarantined)",
                self.config.slots_max,
                slots.quarantined
            );
            return Err(failed(Call::Stream.name(), &text));
        };
        let mut dice = Dice::new(self.config.seed, self.numbered);
        let unsupported = dice.happens(Draw::Unsupported, self.faults.unsupported_ppm);
        self.counts.unsupported += u64::from(unsupported);
        let queue = Queue::new(self.numbered, self.device, place, dice, unsupported);
        self.numbered += 1;
        Ok((self.streams.insert(queue), place, line, armed))
    }

    /// Nobody holds the stream any more. As with a real one, what is enqueued still runs.
    pub(crate) fn release_stream(&mut self, stream: Key) {
        self.submit(stream);
        self.leave_capture(stream);
        let Some(queue) = self.streams.get_mut(stream) else { return };
        queue.released = true;
        self.lines.release(queue.place);
        self.remove_if_over(stream);
    }

    fn remove_if_over(&mut self, stream: Key) {
        if self.streams.get(stream).is_some_and(|queue| queue.released && queue.is_empty()) {
            self.streams.remove(stream);
        }
    }

    pub(crate) fn enqueue_work(
        &mut self,
        stream: Key,
        work: Work,
        job: Option<Box<Job>>,
    ) -> Result<(), Error> {
        if self.is_capturing(stream) {
            return match work {
                Work::For(length) => self.capture_work(Call::Launch.name(), stream, length, None, &[]),
                Work::Until(_) => self.forbid_captured(Call::Launch.name(), stream),
            };
        }
        self.check_room(stream, Call::Launch)?;
        let Some(queue) = self.streams.get_mut(stream) else { return Ok(()) };
        if self.fault.is_some() {
            queue.push_in_vain();
            return Ok(());
        }
        queue.push_work(work, job, self.now);
        let number = queue.number;
        self.counts.launches += 1;
        self.log(self.now, number, LogEvent::Launched);
        self.step(stream, self.now);
        self.turn(self.now);
        Ok(())
    }

    /// Says whether the stream can store; where it cannot, nothing is enqueued.
    pub(crate) fn enqueue_store(&mut self, stream: Key, seq: Seq, point: Key) -> Result<bool, Error> {
        self.refuse_captured(stream)?;
        if self.streams.get(stream).is_none_or(|queue| queue.unsupported) {
            return Ok(false);
        }
        self.check_room(stream, Call::Arm)?;
        let Some(queue) = self.streams.get_mut(stream) else { return Ok(false) };
        let faults = &self.faults;
        let place = queue.place;
        let early = queue.dice.roll(Draw::EarlyStore, faults.early_store);
        let deferred = queue.dice.happens(Draw::DeferredStore, faults.deferred_store_ppm);
        let busy_until = queue.busy_until();
        let number = queue.number;
        let store = Store { stream, place, seq, point, deferred, repeat: false };
        self.counts.arms += 1;
        self.lines.armed(place, seq);
        if let Some(point) = self.points.get_mut(point) {
            point.truth.armed = Some(seq);
        }
        self.log(self.now, number, LogEvent::Armed(seq));
        if self.fault.is_some() {
            return Ok(true); // not known yet: it is accepted and never lands
        }
        match early {
            Some(ns) if busy_until > self.now => {
                // Work that never ends has no time before its end: count from now instead.
                let never = busy_until == Instant::MAX;
                let ns = Nanos::from_nanos(ns);
                let at = if never { self.now + ns } else { self.now.max(busy_until - ns) };
                self.counts.early += 1;
                self.schedule(at, What::Lands(Store { deferred: false, ..store }));
            }
            _ => {
                self.counts.deferred += u64::from(deferred);
                if let Some(queue) = self.streams.get_mut(stream) {
                    queue.push_store(store);
                }
                self.step(stream, self.now);
            }
        }
        self.turn(self.now);
        Ok(true)
    }

    fn check_room(&self, stream: Key, call: Call) -> Result<(), Error> {
        let Some(queue) = self.streams.get(stream) else { return Ok(()) };
        let most = self.config.queue_len_max;
        if queue.len() >= most {
            return Err(failed(call.name(), &alloc::format!("the queue of this stream is full ({most})")));
        }
        let under_way = most.saturating_mul(UNDER_WAY_MAX);
        if self.lines.in_flight(queue.place) >= under_way {
            let text = alloc::format!("{under_way} stores of this stream's word are under way");
            return Err(failed(call.name(), &text));
        }
        Ok(())
    }

    /// Submits what waits for a query.
    pub(crate) fn submit(&mut self, stream: Key) {
        if self.streams.get_mut(stream).is_some_and(Queue::submit) {
            self.step(stream, self.now);
            self.turn(self.now);
        }
    }

    fn step(&mut self, stream: Key, at: Instant) {
        while let Some(queue) = self.streams.get_mut(stream) {
            match queue.next(at) {
                Next::Rest => return self.remove_if_over(stream),
                Next::Run(until) => return self.schedule(until, What::WorkEnds(stream)),
                Next::Await(other, works) => return self.wait_for(stream, other, works, at),
                Next::AwaitGate(gate) => return self.wait_for_gate(stream, gate, at),
                Next::Replay(run) => return self.start_run(run, at),
                Next::Issue(store) => self.issue(store, at),
            }
        }
    }

    fn end_work(&mut self, stream: Key, at: Instant) {
        if self.begin_job(stream, at) {
            self.finish_work(stream, at);
        }
    }

    fn finish_work(&mut self, stream: Key, at: Instant) {
        let Some(queue) = self.streams.get_mut(stream) else { return };
        queue.end_work(at);
        while let Some(point) = queue.pop_point() {
            debug_assert!(self.points.get(point).is_some(), "a point that is gone is forgotten by its queue");
            if let Some(point) = self.points.get_mut(point) {
                point.truth.ended_at = Some(at);
            }
        }
        let number = queue.number;
        self.log(at, number, LogEvent::Ended);
        self.end_waits(stream, at);
        self.step(stream, at);
    }

    // Stores.

    /// The stream has come to a store: draws what becomes of it.
    fn issue(&mut self, mut store: Store, at: Instant) {
        let Some(queue) = self.streams.get_mut(store.stream) else { return };
        let faults = &self.faults;
        if queue.dice.happens(Draw::SwappedStore, faults.swapped_store_ppm) && queue.swap(&mut store) {
            self.counts.swapped += 1;
        }
        let lost = queue.dice.happens(Draw::LostStore, faults.lost_store_ppm);
        let late = queue.dice.roll(Draw::LateStore, faults.late_store);
        let repeated = queue.dice.roll(Draw::RepeatedStore, faults.repeated_store);
        let number = queue.number;
        if lost {
            self.counts.lost += 1;
            self.lines.settled(store.place);
            self.log(at, number, LogEvent::Lost(store.seq));
            return;
        }
        self.counts.late += u64::from(late.is_some());
        let latency = self.config.store_latency_ns.saturating_add(late.unwrap_or(0));
        let landing = queue.landing(at + Nanos::from_nanos(latency));
        self.schedule(landing, What::Lands(store));
        if let Some(ns) = repeated
            && self.lines.repeated(store.place, self.config.queue_len_max)
        {
            self.counts.repeated += 1;
            self.schedule(landing + Nanos::from_nanos(ns), What::Lands(Store { repeat: true, ..store }));
        }
    }

    fn land(&mut self, store: &Store, at: Instant) {
        let landing = self.lines.land(store.place, store.seq);
        self.counts.landed += 1;
        self.counts.overtaken += u64::from(landing == Landing::Overtaken && !store.repeat);
        if store.repeat {
            self.lines.repeat_landed(store.place);
        } else {
            self.lines.settled(store.place);
            if let Some(point) = self.points.get_mut(store.point) {
                point.truth.landed_at = Some(at);
                point.truth.stored_at = Some(self.now);
            }
        }
        let number = self.streams.get(store.stream).map_or(u64::MAX, |queue| queue.number);
        let event = match landing {
            Landing::Stored => LogEvent::Landed(store.seq),
            Landing::Overtaken => LogEvent::Overtaken(store.seq),
        };
        self.log(at, number, event);
    }

    /// How much longer this query takes than it should.
    pub(crate) fn slow_query(&mut self, stream: Key) -> u64 {
        let chance = self.faults.slow_query;
        let Some(queue) = self.streams.get_mut(stream) else { return 0 };
        let slow = queue.dice.roll(Draw::SlowQuery, chance);
        self.counts.slow += u64::from(slow.is_some());
        slow.unwrap_or(0)
    }

    pub(crate) fn log(&mut self, at: Instant, stream: u64, event: LogEvent) {
        self.counts.log_dropped += u64::from(self.log.push(LogEntry { at, stream, event }));
    }

    pub(crate) fn log_call(&mut self, stream: Key, event: LogEvent) {
        let number = self.streams.get(stream).map_or(u64::MAX, |queue| queue.number);
        self.log(self.now, number, event);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::fault::Chance;
    use crate::queue::Work;

    const FAR: Nanos = Nanos::from_millis(1_000);

    #[test]
    fn a_fault_that_is_planned_again_and_again_is_due_once() {
        let mut state = State::new(&SimConfig::exact());
        for ns in 0..1_000 {
            let at = Instant::ORIGIN + FAR + Nanos::from_nanos(ns);
            state.set_faults(&Faults { fault_at: Some(at), ..Faults::none() });
            assert_eq!((state.due.len(), state.next_due()), (1, at));
        }
        state.set_faults(&Faults::none());
        assert_eq!(state.due.len(), 0);
        state.stop(Instant::ORIGIN);
        state.set_faults(&Faults { fault_at: Some(Instant::ORIGIN + FAR), ..Faults::none() });
        assert_eq!(state.due.len(), 0, "nothing happens after a fault");
    }

    #[test]
    fn repeats_far_in_the_future_are_bounded_for_each_word_whoever_owns_it() {
        let faults = Faults { repeated_store: Chance::always(FAR.as_nanos()), ..Faults::none() };
        let config = SimConfig { queue_len_max: 4, slots_max: 1, faults, ..SimConfig::exact() };
        let mut state = State::new(&config);
        for _ in 0..10 {
            let (stream, _, _, mut seq) = state.new_stream().unwrap();
            for _ in 0..10 {
                state.enqueue_work(stream, Work::For(Nanos::ZERO), None).unwrap();
                let point = state.new_point(stream);
                seq = seq.next();
                assert!(state.enqueue_store(stream, seq, point).unwrap());
                state.release_point(point);
                assert!(state.due.len() <= 4, "{} are due", state.due.len());
            }
            state.release_stream(stream);
        }
        assert_eq!((state.counts.arms, state.counts.repeated), (100, 4));
        state.turn(Instant::ORIGIN + FAR);
        assert_eq!((state.due.len(), state.counts.landed), (0, 104));
        let (stream, _, _, seq) = state.new_stream().unwrap();
        let point = state.new_point(stream);
        assert!(state.enqueue_store(stream, seq.next(), point).unwrap());
        assert_eq!(state.counts.repeated, 5, "there is room again");
    }
}

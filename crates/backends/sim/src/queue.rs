//! One stream's queue: work and stores in the order in which they were enqueued.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use wakeline_core::{Instant, Nanos, Seq};

use crate::dice::Dice;
use crate::job::Job;
use crate::line::Place;
use crate::order::Order;
use crate::table::Key;

/// How long work runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// For this long from its start.
    For(Nanos),
    /// Until this moment, at least until its start.
    Until(Instant),
}

impl Work {
    fn end(self, start: Instant) -> Instant {
        match self {
            Self::For(length) => start + length,
            Self::Until(end) => end.max(start),
        }
    }
}

/// A store of a completion word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store {
    pub(crate) stream: Key,
    pub(crate) place: Place,
    pub(crate) seq: Seq,
    /// Whose store it is.
    pub(crate) point: Key,
    /// Whether it waits for a query to submit it.
    pub(crate) deferred: bool,
    /// Whether it landed once before.
    pub(crate) repeat: bool,
}

#[derive(Debug)]
enum Command {
    Work(Work, Option<Box<Job>>),
    /// Until so many works of that stream have ended. Counts as work itself.
    Wait(Key, u64),
    /// Until that gate is open. Counts as work itself.
    Gate(Key),
    /// A run of a graph. Counts as one work.
    Graph(Key),
    Store(Store),
}

/// What a stream does next.
pub(crate) enum Next {
    /// Nothing, until its work ends, a query comes or something is enqueued.
    Rest,
    /// It starts work that ends then.
    Run(Instant),
    /// It waits until so many works of that stream have ended.
    Await(Key, u64),
    /// It waits until that gate is open.
    AwaitGate(Key),
    /// It starts this run of a graph.
    Replay(Key),
    /// It issues a store.
    Issue(Store),
}

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) number: u64,
    /// Of which device.
    pub(crate) device: usize,
    pub(crate) place: Place,
    pub(crate) dice: Dice,
    /// Whether its words can be stored.
    pub(crate) unsupported: bool,
    /// Whether nobody can enqueue any more; it goes when it is empty.
    pub(crate) released: bool,
    commands: VecDeque<Command>,
    /// How many of them wait for a query.
    deferred: usize,
    /// Whether the work in front runs.
    running: bool,
    launched: u64,
    ended: u64,
    /// When the last work ended.
    ended_at: Instant,
    /// When all its work will have ended if no deferred store holds it up.
    busy_until: Instant,
    /// No store lands before the one in front of it.
    landing_at: Instant,
    /// Points not yet reached, in the order of their places: how many works are in front, and which point.
    points: VecDeque<(u64, Key)>,
    /// Streams that wait for this one, and for how many of its works.
    waiters: Vec<(u64, Key)>,
    /// Which works of which streams everything enqueued from now on comes after.
    pub(crate) order: Order,
    /// The capture that it is in: what is enqueued becomes part of that.
    pub(crate) capture: Option<Key>,
}

impl Queue {
    pub(crate) fn new(number: u64, device: usize, place: Place, dice: Dice, unsupported: bool) -> Self {
        Self {
            number,
            device,
            place,
            dice,
            unsupported,
            released: false,
            commands: VecDeque::new(),
            deferred: 0,
            running: false,
            launched: 0,
            ended: 0,
            ended_at: Instant::ORIGIN,
            busy_until: Instant::ORIGIN,
            landing_at: Instant::ORIGIN,
            points: VecDeque::new(),
            waiters: Vec::new(),
            order: Order::default(),
            capture: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// How many commands it holds: what runs and what is enqueued behind that, stores included.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Enqueues work, and what takes effect as it ends.
    pub(crate) fn push_work(&mut self, work: Work, job: Option<Box<Job>>, now: Instant) {
        self.busy_until = work.end(self.busy_until.max(now));
        self.launched += 1;
        self.commands.push_back(Command::Work(work, job));
    }

    pub(crate) fn push_wait(&mut self, other: Key, works: u64) {
        self.launched += 1;
        self.commands.push_back(Command::Wait(other, works));
    }

    pub(crate) fn push_gate(&mut self, gate: Key) {
        self.launched += 1;
        self.commands.push_back(Command::Gate(gate));
    }

    pub(crate) fn push_graph(&mut self, run: Key, work: Work, now: Instant) {
        self.busy_until = work.end(self.busy_until.max(now));
        self.launched += 1;
        self.commands.push_back(Command::Graph(run));
    }

    /// How many works were ever enqueued, and how many have ended.
    pub(crate) const fn progress(&self) -> (u64, u64) {
        (self.launched, self.ended)
    }

    /// Has `stream` told when `works` works have ended.
    pub(crate) fn add_waiter(&mut self, works: u64, stream: Key) {
        self.waiters.push((works, stream));
    }

    /// A stream whose wait has come to its end.
    pub(crate) fn pop_waiter(&mut self) -> Option<Key> {
        let at = self.waiters.iter().position(|&(works, _)| works <= self.ended)?;
        Some(self.waiters.remove(at).1)
    }

    /// What takes effect as the running work ends.
    pub(crate) fn take_job(&mut self) -> Option<Box<Job>> {
        match self.commands.front_mut() {
            Some(Command::Work(_, job)) if self.running => job.take(),
            _ => None,
        }
    }

    /// Work of a device that has faulted without anybody knowing: accepted, but it never runs.
    pub(crate) fn push_in_vain(&mut self) {
        self.launched += 1;
    }

    pub(crate) fn push_store(&mut self, store: Store) {
        self.deferred += usize::from(store.deferred);
        self.commands.push_back(Command::Store(store));
    }

    /// When all work enqueued so far will have ended, if nothing holds it up.
    pub(crate) const fn busy_until(&self) -> Instant {
        self.busy_until
    }

    /// What it does at `at`; work it starts is then running, a store it issues is gone.
    pub(crate) fn next(&mut self, at: Instant) -> Next {
        match self.commands.front() {
            Some(Command::Work(work, _)) if !self.running => {
                self.running = true;
                Next::Run(work.end(at))
            }
            Some(&Command::Wait(other, works)) if !self.running => {
                self.running = true;
                Next::Await(other, works)
            }
            Some(&Command::Gate(gate)) if !self.running => {
                self.running = true;
                Next::AwaitGate(gate)
            }
            Some(&Command::Graph(run)) if !self.running => {
                self.running = true;
                Next::Replay(run)
            }
            Some(&Command::Store(store)) if !store.deferred => {
                self.commands.pop_front();
                Next::Issue(store)
            }
            _ => Next::Rest,
        }
    }

    /// The running work ends at `at`.
    pub(crate) fn end_work(&mut self, at: Instant) {
        self.commands.pop_front();
        self.running = false;
        self.ended += 1;
        self.ended_at = at;
    }

    /// Submits what waits for a query; says whether anything did.
    pub(crate) fn submit(&mut self) -> bool {
        if self.deferred == 0 {
            return false;
        }
        for command in &mut self.commands {
            if let Command::Store(store) = command {
                store.deferred = false;
            }
        }
        self.deferred = 0;
        true
    }

    /// Lets `store`, which is just being issued, change places with the next one enqueued, if there is one.
    pub(crate) fn swap(&mut self, store: &mut Store) -> bool {
        let next = self.commands.iter_mut().find_map(|command| match command {
            Command::Store(next) => Some(next),
            Command::Work(..) | Command::Wait(..) | Command::Gate(_) | Command::Graph(_) => None,
        });
        let Some(next) = next else { return false };
        core::mem::swap(&mut store.seq, &mut next.seq);
        core::mem::swap(&mut store.point, &mut next.point);
        true
    }

    /// When a store lands that would do so at `at`: not before the one in front of it.
    pub(crate) fn landing(&mut self, at: Instant) -> Instant {
        self.landing_at = self.landing_at.max(at);
        self.landing_at
    }

    /// How many works are in front of a point made now, and when they ended if they did.
    pub(crate) fn place_of_point(&self) -> (u64, Option<Instant>) {
        (self.launched, (self.ended == self.launched).then_some(self.ended_at))
    }

    /// Has `point` told when `works` works have ended.
    pub(crate) fn await_point(&mut self, works: u64, point: Key) {
        self.points.push_back((works, point));
    }

    /// The next point that all its work has ended for.
    pub(crate) fn pop_point(&mut self) -> Option<Key> {
        let &(works, point) = self.points.front()?;
        if works > self.ended {
            return None;
        }
        self.points.pop_front();
        Some(point)
    }

    pub(crate) fn forget_point(&mut self, works: u64, point: Key) {
        let first = self.points.partition_point(|&(its, _)| its < works);
        let same = self.points.iter().skip(first).take_while(|&&(its, _)| its == works);
        if let Some(offset) = same.map(|&(_, key)| key).position(|key| key == point) {
            self.points.remove(first + offset);
        }
    }

    /// All streams that wait for this one.
    pub(crate) fn take_waiters(&mut self) -> impl Iterator<Item = Key> {
        core::mem::take(&mut self.waiters).into_iter().map(|(_, stream)| stream)
    }

    /// The device has faulted: nothing of this will ever happen.
    pub(crate) fn stop(&mut self) {
        self.commands.clear();
        self.waiters.clear();
        self.deferred = 0;
        self.running = false;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::line::Lines;
    use crate::table::Table;
    use alloc::vec::Vec;

    #[test]
    fn points_are_told_in_order_and_forgotten_ones_leave_nothing_behind() {
        let (place, ..) = Lines::new(1, Seq::ZERO).take().unwrap();
        let mut queue = Queue::new(0, 0, place, Dice::new(0, 0), false);
        let mut keys = Table::new();
        let mut points = Vec::new();
        for _ in 0..2 {
            queue.push_work(Work::For(Nanos::ZERO), None, Instant::ORIGIN);
            for _ in 0..2 {
                let (works, ended_at) = queue.place_of_point();
                assert_eq!(ended_at, None);
                points.push((works, keys.insert(())));
                queue.await_point(works, points.last().unwrap().1);
            }
        }
        queue.forget_point(points[1].0, points[1].1);
        queue.forget_point(points[2].0, points[2].1);
        queue.forget_point(points[2].0, points[2].1);
        assert_eq!(queue.points.len(), 2);
        assert_eq!(queue.pop_point(), None);
        queue.end_work(Instant::ORIGIN);
        assert_eq!((queue.pop_point(), queue.pop_point()), (Some(points[0].1), None));
        queue.end_work(Instant::ORIGIN);
        assert_eq!((queue.pop_point(), queue.pop_point()), (Some(points[3].1), None));
        assert!(queue.is_empty());
    }
}

//! What streams do as time goes by: the earliest end first, over all streams, each effect at its time in that order.
//!
//! ```text
//!          its turn, and all that it waits for     its end
//!   queued ───────── begin ─────────► begun ───── finish ────► gone, with its effect
//!                                       │
//!                                       └─ a host function ends when it returned, a wait when the word is as asked, a collective when all have come
//! ```

use std::thread;

use super::context::Context;
use super::kernel::Kernel;
use super::op::Op;
use super::state::{State, shared};
use super::stream::Point;
use super::{clock, hosts};

/// How often a word is looked at that a stream waits for.
const LOOK_NS: u64 = 300_000;

/// How long `occupy_until` keeps its thread busy at most, whatever the time that it is given.
const OCCUPY_NS_MAX: u64 = 60_000_000_000;

/// Starts the thread that moves time on when nobody calls. Says whether it runs.
pub(super) fn start() -> bool {
    thread::Builder::new().name("fake-driver".to_owned()).spawn(run).is_ok()
}

fn run() {
    // Where it is refused, naps are some 50 us longer.
    let _ = rustix::thread::set_current_timer_slack(core::num::NonZeroU64::new(1));
    let mut state = shared().lock();
    loop {
        shared().advance(&mut state);
        state = shared().wait_for_due(state);
    }
}

impl State {
    /// Lets everything happen that should have by `now`.
    pub(super) fn advance(&mut self) {
        loop {
            let busy: Vec<u64> = self.busy.iter().copied().collect();
            let ends = busy.into_iter().filter_map(|stream| Some((self.begin(stream)?, stream)));
            let Some((end, stream)) = ends.min().filter(|(end, _)| *end <= self.now) else { return };
            self.finish(stream, end);
        }
    }

    /// When something is due by itself next.
    pub(super) fn next_due(&self) -> u64 {
        let mut due = u64::MAX;
        for stream in self.busy.iter().filter_map(|stream| self.streams.get(stream)) {
            let Some(head) = stream.queue.front() else { continue };
            if self.contexts.get(&stream.context).is_none_or(Context::is_halted) {
                continue;
            }
            let looks = head.begun && matches!(head.op, Op::Wait { .. } | Op::Meet(_));
            let next = if looks { Some(self.now.saturating_add(LOOK_NS)) } else { head.end };
            due = due.min(next.unwrap_or(u64::MAX));
        }
        let told = self.contexts.values().filter_map(Context::tells_at);
        told.filter(|at| *at > self.now).fold(due, u64::min)
    }

    /// Begins what is first in a stream, if it can; says when it ends, if that is known.
    fn begin(&mut self, handle: u64) -> Option<u64> {
        let stream = self.streams.get(&handle)?;
        let context = self.contexts.get(&stream.context)?;
        let head = stream.queue.front()?;
        if context.is_halted() {
            return None;
        }
        if head.end.is_some() {
            return head.end;
        }
        let is_past = |point: &Point| self.is_reached(*point) || self.is_lost(*point, stream.context);
        if !head.begun && !head.after.iter().all(is_past) {
            return None;
        }
        let others = head.after.iter().filter_map(|point| self.streams.get(&point.stream));
        let from = others.map(|stream| stream.ended_at).fold(stream.ended_at.max(head.at), u64::max);
        let from = from.min(self.now);
        let (begun, op) = (head.begun, head.op.clone());
        let end = match op {
            Op::Wait { address, value, test } => {
                if let Some(word) = self.pages.load(address) {
                    test.passes(word, value).then_some(self.now)
                } else {
                    let context = stream.context;
                    self.call = "a stream";
                    self.misses(context, address, "a wait");
                    Some(self.now)
                }
            }
            Op::Meet(meet) => {
                let is_there = self.has_comm(meet.comm);
                if !begun && is_there && !self.is_dead(meet.rank) {
                    meet.post();
                }
                // What was aborted ends.
                let ends = !is_there || meet.is_met() && !self.is_dead(meet.rank);
                ends.then_some(self.now)
            }
            Op::Host { function, data } => {
                if !begun {
                    self.hosted.push_back(hosts::Hosted { stream: handle, function, data });
                    self.stirred = true;
                }
                None
            }
            Op::Kernel(Kernel::OccupyUntil { at }) => {
                // As the device counts: what has passed by the time that it begins is over at once.
                let shown = from.wrapping_add_signed(self.clock_offset());
                let left = u64::try_from(at.wrapping_sub(shown).cast_signed()).unwrap_or(0);
                Some(from.saturating_add(left.min(OCCUPY_NS_MAX)))
            }
            // Its length stands in memory until then; without that it ends at once.
            Op::Kernel(Kernel::TimedStep { length, .. } | Kernel::TimedStore { length, .. }) => {
                Some(from.saturating_add(self.pages.load(length).unwrap_or(0)))
            }
            _ => head.takes_ns.map(|ns| from.saturating_add(ns)),
        };
        let head = self.streams.get_mut(&handle)?.queue.front_mut()?;
        head.begun = true;
        head.end = end;
        end
    }

    /// Ends what is first in a stream, at that time.
    pub(super) fn finish(&mut self, handle: u64, end: u64) {
        let Some(stream) = self.streams.get_mut(&handle) else { return };
        let Some(head) = stream.queue.pop_front() else { return };
        let context = stream.context;
        if stream.queue.is_empty() {
            self.busy.remove(&handle);
        }
        self.call = "a stream";
        self.perform(context, &head.op, end);
        self.stirred = true;
        let Some(stream) = self.streams.get_mut(&handle) else { return };
        stream.completed += 1;
        stream.ended_at = stream.ended_at.max(end);
        if stream.is_over() {
            self.streams.remove(&handle);
        }
    }

    /// A host function of that stream has returned.
    pub(super) fn returned(&mut self, handle: u64) {
        self.now = clock::now();
        let halted = |context: u64| self.contexts.get(&context).is_none_or(Context::is_halted);
        let stream = self.streams.get(&handle).filter(|stream| !halted(stream.context));
        if let Some(stream) = stream {
            let first = stream.queue.front();
            if first.is_some_and(|head| head.begun && matches!(head.op, Op::Host { .. })) {
                self.finish(handle, self.now);
            }
        }
    }
}

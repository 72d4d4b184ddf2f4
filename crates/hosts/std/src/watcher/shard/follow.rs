//! What a flight needs next, and when it is looked at.

use std::sync::Arc;

use wakeline_core::{CANCEL_NS_MAX, Instant, Nanos};

use crate::approach::approach;

use super::super::flight::{Fly, Next, Seen};
use super::{Core, Early, Errand, Shard};

/// How often a token that does not ring is looked at.
const LOOK: Nanos = Nanos::from_nanos(CANCEL_NS_MAX);

/// How long a flight whose deadline has come waits at most for its last question while others of that moment are asked theirs. (600 of
/// them at 1.5 us a query.) A driver that is being asked by then gets no more time.
const LAST_ASK: Nanos = Nanos::from_millis(1);

/// With how many flights tasks are stirred before they are woken early: with more of them threads seldom sleep for long.
const STIRRED_FLIGHTS_MAX: usize = 8;

impl Core {
    pub(super) fn unwatch(&mut self, number: u32) {
        let Some(Some(entry)) = self.entries.get_mut(number as usize) else { return };
        if core::mem::replace(&mut entry.watched, false) {
            self.hot -= usize::from(entry.exact);
            entry.fly.unwatch(&mut self.lines, number);
        }
    }

    pub(super) fn seen(&mut self, shard: &Shard, number: u32, now: Instant, seen: Seen) {
        let Some(Some(entry)) = self.entries.get_mut(number as usize) else { return };
        if seen == Seen::Reached {
            // The scan has taken it out.
            entry.watched = false;
            self.hot -= usize::from(entry.exact);
        }
        if entry.fly.tag().abandoned() {
            return self.leave(shard, number);
        }
        if seen == Seen::Due && !entry.fly.cancelled() {
            // The scan has seen that its word is not there.
            if entry.watched && !entry.exact && now < entry.watch_until {
                let at = shared_look(&*entry.fly, now, entry.watch_until);
                return self.at(number, at);
            }
            if let Some(turn) = entry.turn
                && now < entry.fly.deadline()
            {
                return self.ask_at(number, now, turn);
            }
            entry.unqueue(&mut self.contexts);
            if let Some(Early::Stir { wake_at, look_at, lead }) = entry.early {
                entry.early = Some(Early::Rouse { wake_at, look_at, lead });
                if now < wake_at {
                    self.errands.push(Errand::Stir(Arc::clone(&entry.fly)));
                    return self.at(number, wake_at);
                }
            }
            if let Some(early) = entry.early.take() {
                let next = entry.fly.land(now);
                if let (Early::Rouse { wake_at, look_at, lead }, Next::Watch { until }) = (early, next) {
                    entry.fly.rouse(wake_at, lead);
                    shard.counters.early_wakes.add(1);
                    self.errands.push(Errand::Rouse(Arc::clone(&entry.fly)));
                    self.roused.push(number);
                    return self.at(number, look_at.min(until));
                }
                return self.follow(shard, number, now, next);
            }
        }
        let next = entry.fly.see(now, seen);
        if seen == Seen::Due
            && matches!(next, Next::Watch { .. })
            && !entry.watched
            && entry.fly.trusted()
            && core::mem::replace(&mut self.rehearsed, self.turns) != self.turns
        {
            // It has slept until here, and so has this thread. One for all that land at a time: what is fetched is most of it theirs too, and they would wait.
            entry.fly.rehearse(now);
        }
        self.follow(shard, number, now, next);
    }

    /// Does what a flight needs next.
    pub(super) fn follow(&mut self, shard: &Shard, number: u32, now: Instant, next: Next) {
        let few = self.entries.len() - self.free.len() <= STIRRED_FLIGHTS_MAX;
        let Some(Some(entry)) = self.entries.get_mut(number as usize) else { return };
        match next {
            Next::Watch { until } => {
                let late = entry.fly.late();
                if !core::mem::replace(&mut entry.watched, true) {
                    if late == Nanos::ZERO {
                        self.hot += 1;
                        self.hot_since = now;
                    }
                    entry.fly.watch(&mut self.lines, number);
                }
                entry.watch_until = until;
                let at = if late == Nanos::ZERO { until } else { shared_look(&*entry.fly, now, until) };
                self.at(number, at);
            }
            Next::Watched { until } => {
                self.roused.push(number);
                self.at(number, until);
            }
            Next::Sleep { until } => {
                let exact = entry.exact;
                self.unwatch(number);
                if exact { self.exactly_at(number, until) } else { self.at(number, until) }
            }
            Next::Land { at: until } => {
                let (late, trusted) = (entry.fly.late(), entry.fly.trusted());
                let early = entry.fly.early(until).filter(|lead| until.since(now) > lead.before);
                let (exactly, at) = match early {
                    Some(lead) => {
                        let look_at = if trusted { lead.until } else { until };
                        let wake_at = Instant::from_nanos(until.as_nanos() - lead.before.as_nanos());
                        let stir_at = if few && entry.fly.stirs() { approach(now, wake_at) } else { wake_at };
                        let stirs = stir_at < wake_at;
                        entry.early = Some(if stirs {
                            Early::Stir { wake_at, look_at, lead }
                        } else {
                            Early::Rouse { wake_at, look_at, lead }
                        });
                        // What a sleep in one ends late is known with the rest: no second sleep for it.
                        (false, stir_at)
                    }
                    None if late == Nanos::ZERO => (true, until),
                    None => {
                        // Before its landing, so that its end is seen from the next of the shared times.
                        entry.early = Some(Early::Land);
                        (false, shared_before(until, late).max(now))
                    }
                };
                self.unwatch(number);
                if exactly { self.exactly_at(number, at) } else { self.at(number, at) }
            }
            Next::Ask => {
                // With its word in the lines it is a backstop; else the wait cannot go on without an answer.
                if let (true, None, Some(context)) = (entry.watched, entry.turn, entry.context)
                    && now < entry.fly.deadline()
                {
                    let turn = self.contexts.turn(context, now);
                    return self.ask_at(number, now, turn);
                }
                self.ask(number, now);
            }
            Next::Asked { until } => self.at(number, until),
            Next::Block { until } => {
                if !core::mem::replace(&mut entry.blocking, true) {
                    shard.counters.blocks.add(1);
                    self.errands.push(Errand::Block(Arc::clone(&entry.fly)));
                }
                self.at(number, until);
            }
            Next::Over => self.leave(shard, number),
        }
    }

    /// Looks at a flight about then, and at no other time.
    pub(super) fn at(&mut self, number: u32, at: Instant) {
        self.sharp.remove(number);
        self.blunt.set(number, at);
    }

    /// Looks at a flight exactly then, and at no other time.
    fn exactly_at(&mut self, number: u32, at: Instant) {
        self.blunt.remove(number);
        self.sharp.set(number, at);
    }

    /// Has it asked when it is its turn.
    fn ask_at(&mut self, number: u32, now: Instant, turn: Instant) {
        let Some(Some(entry)) = self.entries.get_mut(number as usize) else { return };
        if turn <= now {
            return self.ask(number, now);
        }
        entry.turn = Some(turn);
        let look = if entry.fly.looks() { now + LOOK } else { Instant::MAX };
        let at = turn.min(look).min(entry.fly.deadline());
        self.at(number, at);
    }

    fn ask(&mut self, number: u32, now: Instant) {
        let Some(Some(entry)) = self.entries.get_mut(number as usize) else { return };
        let deadline = entry.fly.deadline();
        entry.turn = None;
        if !core::mem::replace(&mut entry.asking, true) {
            self.asks.push_back(number);
        }
        // Should the driver not answer. The last question may have to wait for those of others.
        self.at(number, if now < deadline { deadline } else { now + LAST_ASK });
    }
}

/// When a flight that may be told late and watches its word until then is looked at: at a time that it shares, which may be late by as much. On time
/// only for its deadline, and where it has a token to look at.
fn shared_look(fly: &dyn Fly, now: Instant, until: Instant) -> Instant {
    let sharp = if fly.looks() { until } else { fly.deadline() };
    sharp.min(shared_after(now, fly.late()))
}

/// The last of the times that flights of one lateness share, at or before `at`: multiples of their lateness.
fn shared_before(at: Instant, late: Nanos) -> Instant {
    Instant::from_nanos(at.as_nanos() - at.as_nanos() % late.as_nanos().max(1))
}

/// The first of them after `at`.
fn shared_after(at: Instant, late: Nanos) -> Instant {
    shared_before(at, late) + late
}

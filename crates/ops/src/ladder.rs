//! The ladder of completion: how the end of what was submitted becomes known.
//!
//! ```text
//!   depart: point, arm ──fails──────────────────────────────► leaked, counted
//!      │
//!      ├─ by the word, expected within the budget, few in flight:
//!      │      (1) the poll watches for a slice ──word──► landed on the spot: no flight, nobody else knows of it
//!      │                 │ slice over
//!      │                 ▼
//!      ├─────────► (2) a flight, handed to who tends; where the task watches on, until when
//!      │                 │
//!      │      each poll: ├─ its word is there ─────────────► landed by the poll
//!      │                 ├─ it watches (from (1), or woken early): for a slice, then yields
//!      │                 └─ else nothing
//!      └─ who tends:     └─ word, driver, fault, closing ──► landed or leaked by its thread, task woken
//! ```
//!
//! What is expected to take longer than the budget is handed over with what is expected, and slept through: who tends wakes the task by as much
//! before the end as its thread takes to wake up, and the poll watches from then on for a bounded time.
//!
//! Invariant: whenever a poll has returned, a flight owns what the work touches and somebody tends it; so that the future can be forgotten
//! between any two polls. Only within one poll does the submission itself own it, and its drop hands it over.

use core::task::Context;

use wakeline_core::{
    Arming, Charge, CompletionPort, Error, ErrorCode, Instant, Lookout, MemoryDescriptor, Nanos, Status,
    Watched,
};

use crate::config::{CROWD_FLIGHTS, CROWD_LATE_US, CROWD_LATE_US_MAX, Completion, FEW_FLIGHTS_MAX};
use crate::counts::Counters;
use crate::flight::{Awaited, Course, Ended, Handle, Seen};
use crate::known::Kind;
use crate::lane::Ticket;
use crate::point::{OpLine, OpPoint};
use crate::port::Device;
use crate::runtime::Core;
use crate::stream::Stream;
use crate::submission::Submission;

/// How long after what is expected a task goes on watching at most.
const SPREAD_NS: u64 = 60_000;

/// How late one of many may be told: by steps that many share, at most a 64th of what it waits for.
fn crowd_late_us(expected: Nanos) -> u32 {
    let mut late = CROWD_LATE_US;
    while late < CROWD_LATE_US_MAX && u64::from(late) * 2 * 64 <= expected.as_micros() {
        late *= 2;
    }
    late
}

/// Long sleeps end later, and long work is less sure to take as long as before: by this part of what is expected it is to be looked at
/// sooner, and by no more than the next.
const SOONER: u64 = 256;
const SOONER_NS_MAX: u64 = 60_000;

/// A word that alone says that its work is done.
pub(crate) type Word<D> = MemoryDescriptor<OpLine<<D as Device>::Line>>;

/// The point behind a submission, and what came of arming it.
pub(crate) type Armed<D> = (OpPoint<<D as Device>::Point>, Arming);

/// What has become of a submission in the poll that made it.
pub(crate) enum Departed<D: Device> {
    /// It is done, and what it kept is let go.
    Landed,
    /// In flight. The word is there where it alone counts; whether the task watches it from now on.
    Flying(Handle, Option<Word<D>>, bool),
}

/// What a submission sets out with.
#[derive(Clone, Copy, Debug)]
struct Outlook {
    now: Instant,
    /// How long its kind takes, where that is known.
    service: Option<Nanos>,
    /// How many others are in flight.
    flying: u64,
    /// Whether its task may watch from now on.
    spins: bool,
}

/// What came of a later poll's look at the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Looked {
    /// It is done: the task has ended its flight, and nobody else tells it so.
    Ended,
    /// Nothing, unless somebody else has ended it.
    Pends,
    /// The same, and it is to be polled again at once.
    Again,
}

/// What whoever awaits it said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) kind: Kind,
    pub(crate) late_us: u32,
}

impl<D: Device> Core<D> {
    /// The point behind all that is enqueued in `stream`, armed where it can be.
    #[expect(
        clippy::inline_always,
        reason = "measured: it is called once, and a call costs more than it does"
    )]
    #[inline(always)]
    pub(crate) fn arm(&self, stream: &Stream<D>) -> Result<Armed<D>, Error> {
        if self.by_word {
            let (device, raw) = (&self.device, stream.raw());
            let point = if self.trusts { device.word_point(raw) } else { device.armed_point(raw) };
            let mut point = OpPoint::new(point?);
            if point.arm_own()? == Arming::Armed {
                return Ok((point, Arming::Armed));
            }
            let arming = self.call_back(stream, &mut point)?;
            return Ok((point, arming));
        }
        self.arm_otherwise(stream)
    }

    #[inline(never)]
    fn arm_otherwise(&self, stream: &Stream<D>) -> Result<Armed<D>, Error> {
        let mut point = OpPoint::new(self.device.point(stream.raw())?);
        let calls_back = self.watches_words && self.config.completion == Completion::Callback;
        let arming = if calls_back { self.call_back(stream, &mut point)? } else { Arming::Unsupported };
        Ok((point, arming))
    }

    /// The third rung; where the device is well and refuses it, who tends asks.
    #[cold]
    fn call_back(&self, stream: &Stream<D>, point: &mut OpPoint<D::Point>) -> Result<Arming, Error> {
        match point.arm_by_callback(stream) {
            Ok(()) => Ok(Arming::Armed),
            Err(error) if self.device.health().is_err() => Err(error),
            Err(_) => Ok(Arming::Unsupported),
        }
    }

    /// Until when the task is to watch from submission on, if it is to.
    fn spin_until(&self, now: Instant, ticket: &Ticket) -> Option<Instant> {
        let expected = ticket.expected.filter(|expected| *expected <= now + self.spin)?;
        (self.spin > Nanos::ZERO).then(|| (now + self.spin).min(expected + Nanos::from_nanos(SPREAD_NS)))
    }

    /// Hands a flight to who tends.
    fn tend(&self, point: OpPoint<D::Point>, arming: Arming, expected: Nanos, late: Nanos, flight: &Handle) {
        let charge = Charge { plan: &self.config.plan, arming: Some(arming), residual: Some(expected), late };
        self.tender.tend(point, &charge, flight.clone());
    }
}

impl<D: Device> Submission<D> {
    /// Ends it in a poll: watches for a slice where that is likely to be enough, else hands it over. `armed` is what came of arming the point behind
    /// all that it enqueued.
    ///
    /// # Errors
    ///
    /// What the device says where it cannot be known when it is done; what it keeps is leaked then.
    #[expect(
        clippy::inline_always,
        reason = "measured: it is called once, and a call costs more than it does"
    )]
    #[inline(always)]
    pub(crate) fn depart(
        &mut self,
        armed: &mut Option<Result<Armed<D>, Error>>,
        wish: Wish,
        context: &Context<'_>,
    ) -> Result<Departed<D>, Error> {
        if let Some(Ok((point, arming))) = armed {
            let Some(outlook) = self.set_out(point, *arming, wish) else { return Ok(Departed::Landed) };
            if let Some(Ok((point, arming))) = armed.take() {
                return Ok(self.hand_over(point, arming, wish, outlook, context));
            }
        }
        // Nobody can say when it ends.
        self.leak();
        Err(armed.take().and_then(Result::err).unwrap_or_else(|| Error::new(ErrorCode::WatcherClosed, [])))
    }

    /// Looks whether its end has come already where that may be; `None` where it has, and what it kept is let go.
    ///
    /// What is alone in its stream, and ends so, is never known of there.
    #[inline(never)]
    fn set_out(&mut self, point: &OpPoint<D::Point>, arming: Arming, wish: Wish) -> Option<Outlook> {
        let core = &**self.stream.core();
        let fleet = &*core.fleet;
        let flying = fleet.counters.in_flight_before(self.number);
        let now = core.tender.now();
        // Nobody knows when a gate is opened.
        let service = if self.held { None } else { fleet.known.expect(wish.kind) };
        let few = flying < FEW_FLIGHTS_MAX && wish.late_us == 0;
        let spins = few && core.trusts && arming == Arming::Armed;
        if spins
            && service.is_some_and(|service| service <= core.spin)
            && self.stream.lane().is_alone()
            && point.reached()
        {
            // The clock was read right before.
            fleet.known.learn(wish.kind, Nanos::ZERO, Nanos::ZERO, true, service);
            self.land();
            return None;
        }
        Some(Outlook { now, service, flying, spins })
    }

    /// Its end was seen by whoever submits it.
    #[expect(
        clippy::inline_always,
        reason = "measured: it is called once, and a call costs more than it does"
    )]
    #[inline(always)]
    fn land(&mut self) {
        let fleet = &*self.stream.core().fleet;
        self.departed = true;
        fleet.let_go(&mut self.owners);
        Counters::add(&fleet.counters.spun, 1);
        self.permit = None;
        fleet.drains.ended(&fleet.counters);
    }

    /// The same where it has not ended by now.
    #[inline(never)]
    fn hand_over(
        &mut self,
        mut point: OpPoint<D::Point>,
        arming: Arming,
        wish: Wish,
        outlook: Outlook,
        context: &Context<'_>,
    ) -> Departed<D> {
        self.settle_entries();
        let core = &**self.stream.core();
        let (fleet, Outlook { now, service, flying, spins }) = (&core.fleet, outlook);
        let mut ticket = self.stream.lane().depart(now, service);
        ticket.held = self.held;
        if let (Some(places), Some(expected)) =
            (self.permit.as_ref().and_then(|it| it.others().as_ref()), ticket.expected)
        {
            places.expect_until(expected);
        }
        let mut course = Course { kind: wish.kind, ticket, handed: now, late: Nanos::ZERO };
        let spin = if spins { core.spin_until(now, &ticket) } else { None };
        let mut watches = false;
        // A name of its own among those of this device, and most likely of others.
        let who = usize::try_from(self.number << 1 & 0xFFFF_FFFF).unwrap_or(0);
        let who = core::ptr::from_ref(fleet).addr().wrapping_add(who) | 1;
        if let Some(until) = spin {
            match core.watch_first(&point, until, who, ticket.expected) {
                Watched::Ended => {
                    let seen = Seen { at: core.tender.now(), exact: true };
                    fleet.learn(&course, self.permit.as_ref(), Some(seen));
                    self.land();
                    return Departed::Landed;
                }
                Watched::Again => watches = true,
                Watched::NotAsked => {}
            }
            course.handed = core.tender.now();
        }
        // Somebody else's code, before anything of ours is half done.
        let waker = context.waker().clone();
        if arming == Arming::Armed {
            point.seal();
        }
        let trusted = core.trusts && arming == Arming::Armed;
        let word = if trusted { point.word().cloned() } else { None };
        // What is watched now is not slept through.
        let expected = ticket.expected.filter(|_| !watches).map_or(Nanos::ZERO, |at| at.since(course.handed));
        let sooner = (expected.as_nanos() / SOONER).min(SOONER_NS_MAX);
        let expected = expected - Nanos::from_nanos(sooner);
        let crowd = if flying >= CROWD_FLIGHTS { crowd_late_us(expected) } else { 0 };
        course.late = Nanos::from_micros(wish.late_us.max(crowd).into());
        let early = flying < FEW_FLIGHTS_MAX && wish.late_us == 0 && arming == Arming::Armed;
        let until = spin.filter(|_| watches);
        let awaited = Awaited { course, waker, who, watches: early, until };
        self.departed = true;
        let flight = Handle::new(fleet, &mut self.owners, self.permit.take(), Some(awaited));
        core.tend(point, arming, expected, course.late, &flight);
        Departed::Flying(flight, word, watches)
    }

    /// Ends it with a flight that nobody awaits.
    pub(crate) fn fly(&mut self) {
        self.close();
        self.settle_entries();
        let stream = self.stream.clone();
        let core = stream.core();
        match core.arm(&stream) {
            Ok((mut point, arming)) => {
                if arming == Arming::Armed {
                    point.seal();
                }
                self.departed = true;
                let flight = Handle::new(&core.fleet, &mut self.owners, self.permit.take(), None);
                core.tend(point, arming, Nanos::ZERO, Nanos::ZERO, &flight);
            }
            Err(_) => self.leak(),
        }
    }

    /// Ends it by waiting on the spot until all is done that is enqueued in its stream.
    ///
    /// # Errors
    ///
    /// What the device says; what it keeps is leaked then.
    pub(crate) fn wait(mut self) -> Result<(), Error> {
        self.close();
        let waited = wait_for(&self.stream);
        self.departed = true;
        let fleet = &self.stream.core().fleet;
        let ended = if waited.is_ok() { Ended::Done } else { self.unknown() };
        fleet.settle(&mut self.owners, &mut self.permit, ended);
        waited
    }

    /// Nobody can know when it is done.
    #[cold]
    fn leak(&mut self) {
        self.departed = true;
        self.abandon();
        let fleet = &self.stream.core().fleet;
        let ended = self.unknown();
        fleet.settle(&mut self.owners, &mut self.permit, ended);
    }

    /// What is known of what it enqueued where a call of the device failed: that device, or it is as it was.
    #[cold]
    fn unknown(&self) -> Ended {
        if self.device().health().is_ok() { Ended::Unseen } else { Ended::Failed }
    }
}

/// Waits until all that is enqueued in the stream is done: watches its word for as long as a task would from submission on, where that counts, then by the driver's
/// own wait.
pub(crate) fn wait_for<D: Device>(stream: &Stream<D>) -> Result<(), Error> {
    let core = stream.core();
    let (point, arming) = core.arm(stream)?;
    wait_for_armed(core, point, arming)
}

/// The same for a point that is armed.
pub(crate) fn wait_for_armed<D: Device>(
    core: &Core<D>,
    mut point: OpPoint<D::Point>,
    arming: Arming,
) -> Result<(), Error> {
    let trusted = core.trusts && arming == Arming::Armed;
    if trusted {
        let lookout = Lookout::new();
        lookout.watch_until(core.tender.now() + Nanos::from_micros(core.config.spin_us.into()));
        let who = core::ptr::from_ref(&lookout).addr();
        while core.tender.watch(&lookout, who, &mut || point.reached()) == Watched::Again {}
        core.tender.unwatch(&lookout, who);
    }
    while !(trusted && point.reached()) && point.block(None)? == Status::Pending {}
    Ok(())
}

impl<D: Device> Core<D> {
    /// The slice of the poll that submits.
    fn watch_first(
        &self,
        point: &OpPoint<D::Point>,
        until: Instant,
        who: usize,
        expected: Option<Instant>,
    ) -> Watched {
        if point.reached() {
            return Watched::Ended;
        }
        let lookout = Lookout::new();
        lookout.expect(expected.unwrap_or(Instant::ORIGIN));
        lookout.watch_until(until);
        self.tender.watch(&lookout, who, &mut || point.reached())
    }

    /// The first poll of a task that was woken before the end: has the device touch what the next submission needs, where the plan says so. Whether it did.
    pub(crate) fn warm(&self, flight: &Handle, word: Option<&Word<D>>) -> bool {
        let early = self.config.plan.warms()
            && flight.lookout().0.until().is_some()
            && !flight.is_over()
            && !word.is_some_and(MemoryDescriptor::reached);
        if early {
            self.device.warm();
        }
        early
    }

    /// A later poll: looks at the word, and watches it where the task is to. `watched` says that the last one did until it returned: what has come since then is known
    /// to have come now, give or take the turn of the others.
    pub(crate) fn watch_on(&self, flight: &Handle, word: Option<&Word<D>>, watched: bool) -> Looked {
        let reached = || word.is_some_and(MemoryDescriptor::reached);
        let (lookout, who) = flight.lookout();
        if flight.is_over() {
            self.tender.unwatch(lookout, who);
            return Looked::Pends;
        }
        if reached() {
            self.tender.unwatch(lookout, who);
            return self.see(flight, Seen { at: self.tender.now(), exact: watched });
        }
        if lookout.until().is_none() {
            return Looked::Pends;
        }
        match self.tender.watch(lookout, who, &mut || flight.is_over() || reached()) {
            Watched::Ended if !flight.is_over() => {
                self.see(flight, Seen { at: self.tender.now(), exact: true })
            }
            Watched::Ended | Watched::NotAsked => Looked::Pends,
            Watched::Again => Looked::Again,
        }
    }

    fn see(&self, flight: &Handle, seen: Seen) -> Looked {
        if !flight.see(seen) {
            return Looked::Pends;
        }
        self.tender.let_go();
        Looked::Ended
    }

    /// Its task watches no longer.
    pub(crate) fn unwatch(&self, flight: &Handle) {
        let (lookout, who) = flight.lookout();
        if lookout.until().is_some() {
            self.tender.unwatch(lookout, who);
        }
    }
}

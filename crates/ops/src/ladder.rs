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
    Arming, Charge, CompletionPort, Error, Instant, Lookout, MemoryDescriptor, Nanos, Status, Watched,
};

use crate::config::{CROWD_FLIGHTS, CROWD_LATE_US, CROWD_LATE_US_MAX, Completion, FEW_FLIGHTS_MAX};
use crate::counts::Counters;
use crate::flight::{Course, Handle, Seen};
use crate::known::Kind;
use crate::lane::Ticket;
use crate::point::{OpLine, OpPoint};
use crate::port::Device;
use crate::runtime::Core;
use crate::stream::Stream;
use crate::submission::Submission;

/// How long after what is expected a task goes on watching at most.
const SPREAD_NS: u64 = 60_000;

/// How long a slice lasts, by whoever tends, and how long before what is expected the next begins where that is about when the first ends.
const SLICE_NS: u64 = 20_000;
const SOONER_SLICE_NS: u64 = 12_000;

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
const SOONER: u64 = 128;
const SOONER_NS_MAX: u64 = 60_000;

/// A word that alone says that its work is done.
pub(crate) type Word<D> = MemoryDescriptor<OpLine<<D as Device>::Line>>;

/// What has become of a submission in the poll that made it.
pub(crate) enum Departed<D: Device> {
    /// It is done, and what it kept is let go.
    Landed,
    /// In flight. The word is there where it alone counts; whether the task watches it from now on.
    Flying(Handle, Option<Word<D>>, bool),
}

/// What whoever awaits it said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) kind: Kind,
    pub(crate) late_us: u32,
}

impl<D: Device> Core<D> {
    /// The point behind all that is enqueued in `stream`, armed where it can be.
    pub(crate) fn arm(&self, stream: &Stream<D>) -> Result<(OpPoint<D::Point>, Arming), Error> {
        let by_word = self.watches_words && self.config.completion == Completion::Word;
        let made =
            if by_word { self.device.armed_point(stream.raw()) } else { self.device.point(stream.raw()) };
        let mut point = OpPoint::new(made?);
        let arming = match self.config.completion {
            _ if !self.watches_words => Arming::Unsupported,
            Completion::Poll => Arming::Unsupported,
            Completion::Word => match point.arm_own()? {
                Arming::Armed => Arming::Armed,
                Arming::Unsupported => self.call_back(stream, &mut point)?,
            },
            Completion::Callback => self.call_back(stream, &mut point)?,
        };
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
    fn spin_until(&self, now: Instant, ticket: &Ticket, few: bool) -> Option<Instant> {
        let budget = Nanos::from_micros(self.config.spin_us.into());
        let expected = ticket.expected.filter(|expected| few && *expected <= now + budget)?;
        (budget > Nanos::ZERO).then(|| (now + budget).min(expected + Nanos::from_nanos(SPREAD_NS)))
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
    pub(crate) fn depart(
        &mut self,
        armed: Result<(OpPoint<D::Point>, Arming), Error>,
        wish: Wish,
        context: &Context<'_>,
    ) -> Result<Departed<D>, Error> {
        let number = self.count();
        let (mut point, arming) = match armed {
            Ok(armed) => armed,
            Err(error) => {
                self.leak();
                return Err(error);
            }
        };
        let core = &**self.stream.core();
        let fleet = &core.fleet;
        let trusted = core.trusts && arming == Arming::Armed;
        let flying = fleet.counters.in_flight_before(number);
        let now = core.tender.now();
        let ticket = self.stream.lane().depart(now, fleet.known.expect(wish.kind));
        self.expected = true;
        if let (Some(places), Some(expected)) =
            (self.permit.as_mut().and_then(|it| it.also().as_ref()), ticket.expected)
        {
            places.expect_until(expected);
        }
        let few = flying < FEW_FLIGHTS_MAX && wish.late_us == 0;
        let mut course = Course { kind: wish.kind, ticket, handed: now, late: Nanos::ZERO };
        let spin = core.spin_until(now, &ticket, few && trusted);
        let mut watches = false;
        // A name of its own among those of this device, and most likely of others.
        let who = usize::try_from(number << 1 & 0xFFFF_FFFF).unwrap_or(0);
        let who = core::ptr::from_ref(fleet).addr().wrapping_add(who) | 1;
        if let Some(until) = spin {
            match core.watch_first(&point, until, who, ticket.expected.map(|at| at.since(now))) {
                Watched::Ended => {
                    let at = core.tender.now();
                    self.departed = true;
                    Counters::add(&fleet.counters.spun, 1);
                    fleet.learn(&course, self.permit.as_ref(), Some(Seen { at, exact: true }));
                    fleet.settle(&mut self.owners, &mut self.permit, true);
                    return Ok(Departed::Landed);
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
        let word = if trusted { point.word().cloned() } else { None };
        // What is watched now is not slept through.
        let expected = ticket.expected.filter(|_| !watches).map_or(Nanos::ZERO, |at| at.since(course.handed));
        let sooner = (expected.as_nanos() / SOONER).min(SOONER_NS_MAX);
        let expected = expected - Nanos::from_nanos(sooner);
        let crowd = if flying >= CROWD_FLIGHTS { crowd_late_us(expected) } else { 0 };
        let late = Nanos::from_micros(wish.late_us.max(crowd).into());
        course.late = late;
        let (owners, permit) = (core::mem::take(&mut self.owners), self.permit.take());
        self.departed = true;
        let flight = Handle::new(fleet, owners, permit);
        flight.prepare(course, Some(waker), who);
        if few && arming == Arming::Armed {
            flight.let_watch(spin.filter(|_| watches));
        }
        core.tend(point, arming, expected, late, &flight);
        Ok(Departed::Flying(flight, word, watches))
    }

    /// Ends it with a flight that nobody awaits.
    pub(crate) fn fly(&mut self) {
        self.count();
        let stream = self.stream.clone();
        let core = stream.core();
        if self.expected {
            // A waker that panicked as it was cloned: nobody tells of the end.
            stream.lane().lose();
        }
        match core.arm(&stream) {
            Ok((mut point, arming)) => {
                if arming == Arming::Armed {
                    point.seal();
                }
                self.departed = true;
                let (owners, permit) = (core::mem::take(&mut self.owners), self.permit.take());
                let flight = Handle::new(&core.fleet, owners, permit);
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
        self.count();
        let waited = wait_for(&self.stream);
        self.departed = true;
        let fleet = &self.stream.core().fleet;
        fleet.settle(&mut self.owners, &mut self.permit, waited.is_ok());
        waited
    }

    /// Nobody can know when it is done.
    #[cold]
    fn leak(&mut self) {
        self.count();
        self.departed = true;
        let fleet = &self.stream.core().fleet;
        fleet.settle(&mut self.owners, &mut self.permit, false);
    }
}

/// Waits until all that is enqueued in the stream is done: watches its word for as long as a task would from submission on, where that counts, then by the driver's
/// own wait.
pub(crate) fn wait_for<D: Device>(stream: &Stream<D>) -> Result<(), Error> {
    let core = stream.core();
    let (mut point, arming) = core.arm(stream)?;
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
        expected: Option<Nanos>,
    ) -> Watched {
        if point.reached() {
            return Watched::Ended;
        }
        // What ends about when the slice does would be seen by the next one, after others had their turn: that one is begun sooner.
        let between =
            |at: &Nanos| (SLICE_NS - SLICE_NS / 8..SLICE_NS + SLICE_NS / 2).contains(&at.as_nanos());
        match expected.filter(between) {
            None => self.watch_a_slice(point, until, who),
            Some(at) => {
                let sooner = self.tender.now() + at - Nanos::from_nanos(SOONER_SLICE_NS);
                match self.watch_a_slice(point, until.min(sooner), who) {
                    // Unless it was not for it to watch.
                    Watched::NotAsked if self.tender.now() >= until.min(sooner) => Watched::Again,
                    watched => watched,
                }
            }
        }
    }

    #[inline(never)]
    fn watch_a_slice(&self, point: &OpPoint<D::Point>, until: Instant, who: usize) -> Watched {
        let lookout = Lookout::new();
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

    /// A later poll: looks at the word, and watches it where the task is to. Whether it is to be polled again at once.
    pub(crate) fn watch_on(&self, flight: &Handle, word: Option<&Word<D>>) -> bool {
        let reached = || word.is_some_and(MemoryDescriptor::reached);
        let (lookout, who) = flight.lookout();
        if flight.is_over() {
            self.tender.unwatch(lookout, who);
            return false;
        }
        if reached() {
            self.tender.unwatch(lookout, who);
            flight.land_seen(Seen { at: self.tender.now(), exact: false });
            return false;
        }
        if lookout.until().is_none() {
            return false;
        }
        match self.tender.watch(lookout, who, &mut || flight.is_over() || reached()) {
            Watched::Ended if !flight.is_over() => {
                flight.land_seen(Seen { at: self.tender.now(), exact: true });
                false
            }
            Watched::Ended | Watched::NotAsked => false,
            Watched::Again => true,
        }
    }

    /// Its task watches no longer.
    pub(crate) fn unwatch(&self, flight: &Handle) {
        let (lookout, who) = flight.lookout();
        if lookout.until().is_some() {
            self.tender.unwatch(lookout, who);
        }
    }
}

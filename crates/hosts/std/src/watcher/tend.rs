//! Seeing points to their ends for somebody who may never ask again.

use core::fmt;
use core::task::{Context, Waker};
use std::sync::Arc;

use wakeline_core::{
    Arming, Awaiter, Charge, Clock, CompletionPort, ContextKey, Error, ErrorCode, HostLine, Instant, Lookout,
    Mode, Nanos, Report, Tend, Wait, Watched,
};

use super::flight::{Flight, Fly, Next, Options, Seen, Tag};
use super::lines::Lines;
use super::look::Look;
use super::shelf::Shelf;
use super::sync::Lock;
use super::wake_time::Lead;
use super::{WatcherHandle, home::Home, panics, wake_time};
use crate::points::Point;

/// A watcher that sees points to their ends; see [`Tend`]. Made by [`WatcherHandle::tender`]. Clones are the same.
///
/// What it is told to call is called on a thread of the watcher, so it must be short, as a waker; at once and on the calling thread where
/// the wait cannot begin. An awaiter with a lookout is woken early, as the task of a [`WatcherWait`](crate::WatcherWait) is. Its point counts
/// and learns of those whose ends the watcher has seen, not of those that their tasks saw first. Of these the watcher lets go within 10 ms, and 1 us for each
/// flight of the same shard; it is woken for that only where it would sleep for longer.
///
/// Cost: no allocation a point once as many have been in flight at a time, but that the way to the watcher's thread makes one for every
/// 31 of them.
///
/// ```
/// use std::sync::mpsc;
/// use wakeline_core::{Charge, Nanos, Tend};
/// use wakeline_sim::{RealTime, SimConfig, SimDevice};
/// use wakeline_std::{DeviceThread, Point, StdClock, Watcher};
/// let clock = StdClock::new();
/// let sleep = |length: Nanos| std::thread::sleep(std::time::Duration::from_nanos(length.as_nanos()));
/// let device = SimDevice::new(RealTime::new(clock, sleep), SimConfig::default())?;
/// let thread = DeviceThread::spawn(clock, device.clone())?;
/// let watcher = Watcher::new()?;
/// let tender = watcher.handle().tender(&Point::new("copies"));
/// let stream = device.stream()?;
/// stream.launch(Nanos::from_micros(300))?;
/// let (tell, told) = mpsc::channel();
/// let plan = "flag:park_us=50,backstop_us=1000".parse()?;
/// tender.tend(stream.point(), &Charge::new(&plan), (), move |result| tell.send(result).unwrap());
/// assert!(told.recv().unwrap().is_ok());
/// # watcher.close(Watcher::CLOSE)?;
/// # drop(stream);
/// # thread.stop()?;
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Tender {
    home: Arc<Home>,
    point: Point,
    shelf: Arc<Shelf>,
}

impl fmt::Debug for Tender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tender").field("point", &self.point.name()).finish_non_exhaustive()
    }
}

impl WatcherHandle {
    /// What sees points to their ends by this watcher. `point` says what waits may be predicted by that come without a prediction, and
    /// learns from all.
    pub fn tender(&self, point: &Point) -> Tender {
        Tender { home: Arc::clone(&self.home), point: point.clone(), shelf: Arc::default() }
    }
}

impl Clock for Tender {
    #[inline]
    fn now(&self) -> Instant {
        self.home.hub.clock.now()
    }
}

impl Tender {
    /// The flight of a point, and what it needs next. The error is for `ended`.
    fn begin<P>(&self, mut port: P, charge: &Charge<'_>, early_wake: bool) -> Result<(Flight<P>, Next), Error>
    where
        P: CompletionPort + Send + 'static,
        P::Line: Send + Sync + 'static,
    {
        let hub = &self.home.hub;
        if hub.is_closing() {
            return Err(Error::new(ErrorCode::WatcherClosed, []));
        }
        let tag = Tag::seated(&self.home)?;
        let arming = match (charge.arming, charge.plan.mode()) {
            (Some(arming), _) => arming,
            (None, Mode::Flag { .. }) => port.arm()?,
            (None, Mode::Block | Mode::Poll) => Arming::Unsupported,
        };
        let options = Options {
            deadline: Instant::MAX,
            cancel: None,
            late: charge.late,
            // Who may be told late has no use for an early wake.
            early_wake: early_wake && hub.config.early_wake && charge.late == Nanos::ZERO,
            stir: hub.config.stir,
            kernel: false,
        };
        let wait = Wait::new(charge.plan);
        let wait = match charge.residual {
            Some(residual) => wait.predicted(Some(residual)),
            None => wait.expecting(self.point.forecast(charge.plan).late_by(charge.late)),
        };
        let now = hub.clock.now();
        let (wait, action) = wait.watched(arming).start(now);
        let flight = Flight::new(tag, options, self.point.clone(), wait, port);
        let next = flight.carry(now, action);
        Ok((flight, next))
    }
}

impl<P> Tend<P> for Tender
where
    P: CompletionPort + Send + 'static,
    P::Line: Send + Sync + 'static,
{
    fn tend<A, E>(&self, port: P, charge: &Charge<'_>, awaiter: A, ended: E)
    where
        A: Awaiter,
        E: FnOnce(Result<Report, Error>) + Send + 'static,
    {
        let watches = awaiter.lookout().map(Lookout::until);
        let shard = &self.home.hub.posts[self.home.hub.shard_of(&port)].shard;
        let (flight, next) = match self.begin(port, charge, watches.is_some()) {
            Ok(begun) => begun,
            Err(error) => return ended(Err(error)),
        };
        if let Some(outcome) = flight.outcome() {
            flight.learn();
            return ended(outcome);
        }
        let next = match (next, watches.flatten()) {
            // The task does, from the start.
            (Next::Watch { until }, Some(itself)) => Next::Watched { until: itself.min(until) },
            (next, _) => next,
        };
        let mut tended =
            self.shelf.take::<Tended<P, A, E>>().unwrap_or_else(|| Arc::new(Tended::blank(&self.point)));
        let filled = Tended {
            flight,
            awaiter: Some(awaiter),
            ended: Lock::new(Some(ended)),
            shelf: Some(Arc::clone(&self.shelf)),
        };
        match Arc::get_mut(&mut tended) {
            Some(blank) => *blank = filled,
            // Never: nobody else has one of the shelf's.
            None => tended = Arc::new(filled),
        }
        shard.add(tended, next);
    }

    fn watch(&self, lookout: &Lookout, who: usize, ended: impl FnMut() -> bool) -> Watched {
        let hub = &self.home.hub;
        wake_time::learn(lookout, &self.home.wake_time, &hub.clock);
        if !hub.config.early_wake {
            // It would take the time of those who are to run.
            wake_time::stop(lookout, who);
            return Watched::NotAsked;
        }
        wake_time::watch(lookout, who, &hub.clock, self.home.nap, || (), ended)
    }

    fn again(&self, context: &mut Context<'_>) {
        (self.home.again)(context);
    }

    fn unwatch(&self, lookout: &Lookout, who: usize) {
        wake_time::learn(lookout, &self.home.wake_time, &self.home.hub.clock);
        wake_time::stop(lookout, who);
    }

    fn let_go(&self) {
        let hub = &self.home.hub;
        // Which of them has it is not known here; each costs an exchange.
        hub.posts.iter().for_each(|post| post.shard.let_go(&hub.clock));
    }

    fn attend(&self) {
        self.home.hub.posts.iter().for_each(|post| post.shard.attend());
    }

    fn alarm(&self, at: Instant, waker: &Waker) {
        let look = Look::<Arc<HostLine>>::new(Tag::new(), None, at);
        look.tag.waker.register(waker);
        // The time is looked at by a thread of the watcher even where it has passed: it calls the waker.
        let hub = &self.home.hub;
        if !hub.is_closing() {
            hub.posts[hub.shard_at(0)].shard.add(Arc::new(look), Next::Sleep { until: at });
        }
    }
}

/// A wait that nobody polls: what is told of its end is called by the shard's thread.
struct Tended<P, A, E>
where
    P: CompletionPort,
{
    flight: Flight<P>,
    /// Always there while it flies.
    awaiter: Option<A>,
    ended: Lock<Option<E>>,
    /// Where its memory goes when it is over; the blank ones there do not hold it.
    shelf: Option<Arc<Shelf>>,
}

impl<P: CompletionPort, A, E> Tended<P, A, E> {
    fn blank(point: &Point) -> Self {
        Self { flight: Flight::blank(point), awaiter: None, ended: Lock::new(None), shelf: None }
    }
}

impl<P: CompletionPort, A: Awaiter, E> Tended<P, A, E> {
    /// The awaiter's own, which it looks at; else one that nobody does.
    fn lookout(&self) -> &Lookout {
        self.awaiter.as_ref().and_then(Awaiter::lookout).unwrap_or(&self.flight.lookout)
    }
}

impl<P, A, E> Fly for Tended<P, A, E>
where
    P: CompletionPort + Send + 'static,
    P::Line: Send + Sync + 'static,
    A: Awaiter,
    E: FnOnce(Result<Report, Error>) + Send + 'static,
{
    fn tag(&self) -> &Tag {
        self.flight.tag()
    }

    fn rouse(&self, wake_at: Instant, lead: Lead) {
        self.flight.rouse_by(self.lookout(), wake_at, lead);
    }

    fn tell(&self) -> bool {
        let outcome = self.flight.outcome();
        let seen = self.awaiter.as_ref().is_some_and(Awaiter::is_over);
        match outcome {
            _ if seen => {
                let ended = self.ended.lock().take();
                drop(ended);
                false
            }
            None => {
                self.awaiter.iter().for_each(Awaiter::wake);
                true
            }
            Some(outcome) => {
                let Some(ended) = self.ended.lock().take() else { return false };
                // Its task may be awake, and watch: nothing is to be learned of that.
                self.lookout().take_woken();
                ended(outcome);
                self.flight.learn();
                true
            }
        }
    }

    fn retire(mut self: Arc<Self>) {
        let Some(tended) = Arc::get_mut(&mut self) else { return panics::let_go(self) };
        let blank = Self::blank(tended.flight.point());
        let Self { flight, awaiter, ended, shelf } = core::mem::replace(tended, blank);
        if let Some(shelf) = &shelf {
            shelf.put(self);
        }
        panics::let_go(ended);
        panics::let_go(awaiter);
        panics::let_go(flight);
        // The last of all may be that of a tender that is gone.
        drop(shelf);
    }

    fn see(&self, now: Instant, seen: Seen) -> Next {
        self.flight.see(now, seen)
    }

    fn rehearse(&self, now: Instant) {
        self.flight.rehearse(now);
    }

    fn land(&self, now: Instant) -> Next {
        self.flight.land(now)
    }

    fn ask(&self, clock: &dyn Clock) -> (Next, Option<Error>) {
        self.flight.ask(clock)
    }

    fn block(&self, clock: &dyn Clock) {
        self.flight.block(clock);
    }

    fn let_go(&self) {
        self.flight.let_go();
    }

    fn fail(&self, error: Error) {
        self.flight.fail(error);
    }

    fn deadline(&self) -> Instant {
        self.flight.deadline()
    }

    fn late(&self) -> Nanos {
        self.flight.late()
    }

    fn looks(&self) -> bool {
        false
    }

    fn cancelled(&self) -> bool {
        false
    }

    fn trusted(&self) -> bool {
        self.flight.trusted()
    }

    fn early(&self, landing: Instant) -> Option<Lead> {
        self.flight.early(landing)
    }

    fn context(&self) -> Option<ContextKey> {
        self.flight.context()
    }

    fn ended(&self) -> bool {
        self.flight.is_over() || self.awaiter.as_ref().is_some_and(Awaiter::is_over)
    }

    fn observe(&self) {
        self.flight.learn();
    }

    fn watch(&self, lines: &mut Lines, flight: u32) {
        self.flight.watch(lines, flight);
    }

    fn unwatch(&self, lines: &mut Lines, flight: u32) {
        self.flight.unwatch(lines, flight);
    }
}

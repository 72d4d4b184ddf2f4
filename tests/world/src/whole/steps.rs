//! The steps of a task, and those of them whose waits are judged by their time.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use wakeline_core::{CancelToken, Charge, Nanos, Tend, Wait, WaitPlan, drive};
use wakeline_ops::{DeviceFuture, DeviceOp, Runtime, Submission, value, with_context};
use wakeline_sim::{SimDevice, SimKernel, SimPort};

use super::judge::{Judged, Owner, Truth, Work};
use super::task::Task;
use super::world::{Place, World};
use crate::swarm::How;

/// As many operations one step awaits at a time at most.
const CROWD_MAX: u64 = 40;

/// The steps by their numbers, the first eight being one.
const STEPS: [&str; 9] = [
    "of the swarm",
    "an operation that is judged",
    "an operation that is judged",
    "a crowd of them",
    "hands memory over",
    "has a point tended",
    "races",
    "drains, or waits for a point",
    "waits for a point",
];

/// How a bare point is waited for: strictly, and by the word.
const PLANS: [[&str; 3]; 2] = [
    [
        "flag:park_us=50,backstop_us=500",
        "flag:park_us=50,backstop_us=500+predict:margin_us=40,min_sleep_us=100,max_sleep_us=20000,window=8",
        "flag:park_us=20,backstop_us=200",
    ],
    [
        "flag:park_us=50,backstop_us=500+trust",
        "flag:park_us=100,backstop_us=1000+trust",
        "flag:park_us=20,backstop_us=200+trust",
    ],
];

/// How points of runtimes are waited for.
pub(crate) fn plan_of(how: How) -> WaitPlan {
    how.plan.unwrap_or(wakeline_ops::PLAN).parse().unwrap_or_else(|_| WaitPlan::poll())
}

/// Which work, and what is promised of it.
type Timed = (DeviceFuture<BoxedOp>, Work, Judged, Option<CancelToken>);
pub(crate) type BoxedOp = wakeline_ops::Boxed<SimDevice, ()>;

/// A kernel of this length, and what is true of it. `known` is one of a kind of which all others are that are; else nothing is known of it.
pub(crate) fn operation(
    world: &World<'_>,
    place: &Place,
    runtime: &Runtime<SimDevice>,
    length: Nanos,
    known: bool,
) -> (DeviceFuture<BoxedOp>, Work) {
    let work = Work::new(world.time.clone());
    let (mine, at_end, its) = (work.clone(), work.clone(), runtime.clone());
    let kernel = SimKernel::new(length, move |_| at_end.end());
    let own = {
        // Made when it is submitted, and not before.
        let (broken, owners, device) = (world.broken.clone(), place.owners.clone(), place.device.clone());
        move |work: &Work| Owner::of(work, device, owners, broken)
    };
    let op = with_context(move |submission: &mut Submission<SimDevice>| {
        submission.stream().raw().run(&kernel, &[])?;
        submission.retain(own(&mine));
        if known {
            mine.submitted(its.counts().in_flight());
        }
        Ok(value(()))
    });
    let future = op.boxed().on(runtime);
    // Of a new number nothing is known.
    (if known { future } else { future.keyed(world.new_key()) }, work)
}

impl Task<'_> {
    pub(crate) async fn step(&mut self, step: u32) {
        let kind = self.dice.below(16);
        self.world.note(|| format!("  {}", STEPS[usize::try_from(kind.saturating_sub(7)).unwrap_or(0)]));
        match kind {
            0..=7 => {
                self.graphs.program.dice = self.dice.clone();
                self.graphs.step().await;
            }
            8 | 9 => self.times().await,
            10 => self.crowds().await,
            11 => self.hands_over(),
            12 => self.tends(),
            13 => self.races().await,
            14 if step.is_multiple_of(2) => self.drains().await,
            _ => self.waits_bare().await,
        }
    }

    fn length(&mut self) -> Nanos {
        let scale = [2_000, 60_000, 2_000_000][self.dice.place(3)];
        Nanos::from_nanos(1 + self.dice.below(scale))
    }

    /// An operation that is judged, with any limits.
    fn timed(&mut self, what: &'static str) -> Timed {
        let world = Rc::clone(&self.world);
        let place = &world.places[self.place];
        let length = self.length();
        let runtime = place.a_runtime(self.dice.below(8));
        let known = self.dice.one_in(2);
        let (mut future, work) = operation(&world, place, runtime, length, known);
        let mut judged = Judged::now(what, &world).by(&plan_of(place.how));
        let mut token = None;
        if self.dice.one_in(3) {
            let timeout = self.length();
            judged.deadline = Some(world.now() + timeout);
            future = future.timeout(timeout);
        }
        if self.dice.one_in(4) {
            let late_us = u32::try_from(self.dice.below(600)).unwrap_or(0);
            judged.slack = judged.slack + Nanos::from_micros(late_us.into());
            future = future.late_us(late_us);
        }
        if self.dice.one_in(4) {
            let rings = self.dice.one_in(2);
            let its = if rings { runtime.cancel_token() } else { CancelToken::new() };
            future = future.cancelled_by(&its);
            token = Some(its);
        }
        (future, work, judged, token)
    }

    /// One, awaited.
    async fn times(&mut self) {
        let (mut future, work, mut judged, token) = self.timed("an operation");
        let cancels = token.filter(|_| self.dice.one_in(2));
        let after = self.dice.below(4);
        let mut polls = 0;
        let world = Rc::clone(&self.world);
        let result = poll_fn(|context| {
            let polled = Pin::new(&mut future).poll(context);
            polls += 1;
            if let Some(token) = &cancels
                && polled.is_pending()
                && polls > after
                && judged.cancelled.is_none()
            {
                token.cancel();
                // Whether it rings is not to be relied on: the time of those that do not is enough for both.
                judged.cancelled = Some((world.now(), false));
            }
            polled
        })
        .await;
        judged.judge(&self.world, self.its(), &result, work.truth());
    }

    /// Many at a time, each judged when it ends.
    async fn crowds(&mut self) {
        let count = 1 + self.dice.below(CROWD_MAX);
        let mut crowd: Vec<Option<Timed>> = (0..count).map(|_| Some(self.timed("one of a crowd"))).collect();
        let drops = self.dice.one_in(4);
        let world = Rc::clone(&self.world);
        let place = &world.places[self.place];
        poll_fn(|context| {
            let mut left = 0;
            for timed in &mut crowd {
                let Some((future, work, judged, _)) = timed else { continue };
                match Pin::new(future).poll(context) {
                    Poll::Pending => left += 1,
                    Poll::Ready(result) => {
                        judged.judge(&world, place, &result, work.truth());
                        *timed = None;
                    }
                }
            }
            // Some are dropped when half have ended.
            if left == 0 || drops && left < count / 2 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// An operation against a moment: whichever comes first.
    async fn races(&mut self) {
        let (mut future, work, judged, _) = self.timed("an operation in a race");
        let until = self.world.now() + self.length();
        let watcher = self.its().watcher.clone();
        let (world, place) = (Rc::clone(&self.world), self.place);
        let set = Cell::new(false);
        poll_fn(|context| {
            if let Poll::Ready(result) = Pin::new(&mut future).poll(context) {
                judged.judge(&world, &world.places[place], &result, work.truth());
                return Poll::Ready(());
            }
            if world.now() >= until {
                return Poll::Ready(());
            }
            // A waker that was replaced is not relied on.
            let _ = set.replace(true);
            Tend::<SimPort>::alarm(&watcher, until, context.waker());
            Poll::Pending
        })
        .await;
    }

    /// Memory goes from task to task, in whatever state of use.
    fn hands_over(&mut self) {
        let mut pool = self.world.pool.borrow_mut();
        let tensors = &mut self.graphs.program.tensors;
        let mine = pool.iter().position(|(place, ..)| *place == self.place);
        if let Some(at) = mine.filter(|_| self.dice.one_in(2)) {
            let (_, tensor, byte) = pool.swap_remove(at);
            tensors.push((tensor, byte));
        } else if let Some((tensor, byte)) = tensors.pop() {
            pool.push((self.place, tensor, byte));
        }
    }

    fn plan(&mut self) -> WaitPlan {
        let trusts = usize::from(!self.its().how.is_strict());
        PLANS[trusts][self.dice.place(3)].parse().unwrap_or_else(|_| WaitPlan::poll())
    }

    /// A point of a stream of no runtime is tended for nobody.
    fn tends(&mut self) {
        let world = Rc::clone(&self.world);
        let place = &world.places[self.place];
        if place.raw.is_empty() {
            return;
        }
        let stream = &place.raw[self.dice.place(place.raw.len())];
        let (plan, length) = (self.plan(), self.length());
        if stream.launch(length).is_err() {
            return;
        }
        let point = stream.point();
        let (witness, time) = (point.witness(), world.time.clone());
        let (tended, broken, device) = (world.tended.clone(), world.broken.clone(), place.device.clone());
        tended.begin();
        let residual = self.dice.one_in(2).then(|| self.length());
        let charge = Charge { residual, ..Charge::new(&plan) };
        place.watcher.tend(point, &charge, (), move |result| {
            tended.end();
            let now = wakeline_core::Clock::now(&time);
            if result.is_ok() && witness.truth().ended_at.is_none_or(|at| at > now) {
                broken.note(|| format!("a tended point was done before its work: {:?}", witness.truth()));
            }
            let _ = device.health();
        });
    }

    /// A wait for a bare point on the reactor, where there is one.
    async fn waits_bare(&mut self) {
        let Some(waits) = self.way().waits.clone() else { return self.tends() };
        let world = Rc::clone(&self.world);
        let place = &world.places[self.place];
        if place.raw.is_empty() {
            return self.times().await;
        }
        let at = self.dice.place(place.raw.len());
        let (plan, length) = (self.plan(), self.length());
        if place.raw[at].launch(length).is_err() {
            return;
        }
        let mut point = place.raw[at].point();
        let witness = point.witness();
        let mut judged = Judged::now("a bare wait", &world).by(&plan);
        judged.deadline = self.dice.one_in(2).then(|| world.now() + self.length());
        let wait = Wait::new(&plan).deadline(judged.deadline);
        let drops = self.dice.one_in(6).then(|| self.dice.below(4));
        let result = {
            let mut driven = pin!(drive(wait, &mut point, &*waits, None));
            let mut polls = 0;
            poll_fn(|context| match driven.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending if Some(polls) == drops => Poll::Ready(None),
                Poll::Pending => {
                    polls += 1;
                    Poll::Pending
                }
            })
            .await
        };
        drop(point);
        if let Some(result) = result {
            let truth = Truth { ended: witness.truth().ended_at, expected: Nanos::MAX };
            judged.judge(&world, place, &result, truth);
        }
    }

    /// Until nothing is in flight on its device.
    async fn drains(&mut self) {
        let within = self.length();
        let runtime = self.graphs.program.runtime.clone();
        let mut judged = Judged::now("a drain", &self.world);
        judged.deadline = Some(self.world.now() + within);
        let result = runtime.drain(within).await;
        let left = runtime.counts().in_flight();
        let broken = &self.world.broken;
        match result {
            Ok(()) if left > 0 => broken.note(|| format!("drained, and {left} are in flight")),
            Err(error) if error.code() != wakeline_core::ErrorCode::NotDrained => {
                broken.note(|| format!("a drain ended so: {error}"));
            }
            _ => {}
        }
        let ended: Result<(), wakeline_core::Error> = Ok(());
        let truth = Truth { ended: Some(judged.begun), expected: Nanos::ZERO };
        judged.judge(&self.world, self.its(), &ended, truth);
    }
}

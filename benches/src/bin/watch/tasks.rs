//! The tasks of `burn`: flights of one length, over and over, all on one thread.

use core::cell::RefCell;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use wakeline::sim::{RealTime, SimDevice};
use wakeline::{Clock, Error, Instant, Nanos, Outcome, Report, Timer, WaitPlan};
use wakeline_benches::{Quantiles, Tail};
use wakeline_std::{Point, StdClock, StdIdle, WatcherHandle};

use crate::output::real;

/// How many flights there are at a time.
pub(crate) const FLIGHTS: u32 = 64;

/// How long each takes.
pub(crate) const FLIGHT: Nanos = Nanos::from_millis(20);

/// The simulated device.
pub(crate) type Device = SimDevice<RealTime<StdClock, fn(Nanos)>>;

/// When the flights begin and end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Begin {
    /// All at the same time; the next ones begin when all have ended.
    AtOnce,
    /// Each at its own time, and from then on as soon as the one before has ended. Each may be told of so much later.
    Spread { late_us: u64 },
}

/// All that the tasks need.
pub(crate) struct Tasks {
    pub(crate) clock: StdClock,
    pub(crate) device: Device,
    pub(crate) handle: WatcherHandle,
    /// One for all flights that are spread. Those that end at once have one each: they are late together, by the same timer.
    pub(crate) point: Point,
    pub(crate) plan: WaitPlan,
    pub(crate) begin: Begin,
    /// When the first flight begins that is spread.
    pub(crate) start: Instant,
    /// Set once no flight shall begin any more.
    pub(crate) stop: Arc<AtomicBool>,
}

/// How much later than its end the tasks were told of each flight.
pub(crate) struct Told {
    tail: Tail,
    sum_ns: u64,
    /// How many had ended when their sleep did.
    overslept: u64,
}

/// What [`Told`] tells.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Late {
    pub(crate) mean_ns: f64,
    #[serde(flatten)]
    pub(crate) quantiles: Quantiles,
}

impl Told {
    fn record(&mut self, report: &Report, late: Nanos) {
        self.overslept += u64::from(report.outcome() == Some(Outcome::Late));
        self.tail.record(late.as_nanos());
        self.sum_ns += late.as_nanos();
    }

    /// How many waits slept too long, in percent.
    pub(crate) fn overslept_percent(&self) -> f64 {
        100.0 * real(self.overslept) / real(self.tail.quantiles().count.max(1))
    }

    pub(crate) fn late(&self) -> Late {
        let quantiles = self.tail.quantiles();
        Late { mean_ns: real(self.sum_ns) / real(quantiles.count.max(1)), quantiles }
    }
}

type Task<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;

impl Tasks {
    /// Runs them on this thread until all have stopped.
    pub(crate) fn run(&self) -> Result<Told, Error> {
        let told = RefCell::new(Told { tail: Tail::new(), sum_ns: 0, overslept: 0 });
        let mut tasks: Vec<Task<'_>> = match self.begin {
            Begin::AtOnce => vec![Box::pin(self.at_once(&told))],
            Begin::Spread { late_us } => {
                (0..FLIGHTS).map(|n| Box::pin(self.spread(n, late_us, &told)) as Task<'_>).collect()
            }
        };
        StdIdle::new(self.clock).block_on(poll_fn(|context| poll_all(&mut tasks, context)))?;
        drop(tasks);
        Ok(told.into_inner())
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// One flight after the other: the `n`th of those that are spread.
    async fn spread(&self, n: u32, late_us: u64, told: &RefCell<Told>) -> Result<(), Error> {
        let (stream, point) = (self.device.stream()?, self.point.clone());
        let offset = FLIGHT.as_nanos() * u64::from(n) / u64::from(FLIGHTS);
        self.handle.sleep_until(self.start + Nanos::from_nanos(offset)).await;
        while !self.stopped() {
            let end = self.clock.now() + FLIGHT;
            stream.launch_until(end)?;
            let report = self.handle.wait(stream.point(), &self.plan, &point).late_us(late_us).await?;
            told.borrow_mut().record(&report, self.clock.now().since(end));
        }
        Ok(())
    }

    /// All flights, again and again.
    async fn at_once(&self, told: &RefCell<Told>) -> Result<(), Error> {
        let streams = (0..FLIGHTS).map(|_| self.device.stream()).collect::<Result<Vec<_>, _>>()?;
        let points: Vec<Point> = (0..FLIGHTS).map(|n| Point::new(&n.to_string())).collect();
        while !self.stopped() {
            let end = self.clock.now() + FLIGHT;
            let mut waits = Vec::with_capacity(streams.len());
            for (stream, point) in streams.iter().zip(&points) {
                stream.launch_until(end)?;
                let wait = self.handle.wait(stream.point(), &self.plan, point);
                waits.push(Box::pin(async {
                    let report = wait.await?;
                    told.borrow_mut().record(&report, self.clock.now().since(end));
                    Ok(())
                }));
            }
            poll_fn(|context| poll_all(&mut waits, context)).await?;
        }
        Ok(())
    }
}

/// Polls every task and drops those that have ended. Ready once none is left, or with the error of one.
fn poll_all<T>(tasks: &mut Vec<Pin<Box<T>>>, context: &mut Context<'_>) -> Poll<Result<(), Error>>
where
    T: Future<Output = Result<(), Error>> + ?Sized,
{
    let mut ended = Ok(());
    tasks.retain_mut(|task| match task.as_mut().poll(context) {
        Poll::Ready(result) => {
            if result.is_err() {
                ended = result;
            }
            false
        }
        Poll::Pending => true,
    });
    if tasks.is_empty() || ended.is_err() { Poll::Ready(ended) } else { Poll::Pending }
}

//! The script of waits that every pair of backend and host passes: `tests/conformance.rs`, and `tests/metal.rs`.
//!
//! A backend shows itself as a [`Backend`], who waits as [`Waits`].

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "for tests")]

use core::fmt;
use std::sync::Arc;

use wakeline_core::{
    Authority, CancelToken, Clock, CompletionPort, Error, ErrorCode, Forecast, HostLine, Instant, Mode,
    Nanos, Outcome, PointTable, Report, Timer, Wait, WaitPlan, Watch, drive,
};
use wakeline_sim::{SimDevice, SimPort, SimStream, TimeLine, Witness};
use wakeline_std::{Point, WatcherHandle};

/// Every kind of plan.
pub const PLANS: [&str; 10] = [
    "block",
    "poll",
    "poll+predict:margin_us=100,min_sleep_us=50,max_sleep_us=5000,window=4",
    "flag:park_us=100,backstop_us=2000",
    "flag:park_us=100,backstop_us=2000+predict:margin_us=100,min_sleep_us=50,max_sleep_us=5000,window=4",
    "flag:park_us=100,backstop_us=2000+trust",
    "flag:park_us=100,backstop_us=2000+predict:margin_us=100,min_sleep_us=50,max_sleep_us=5000,window=4+trust",
    "poll+adapt:late_pct=2,guard_us=20,min_sleep_us=50,max_sleep_us=5000,window=32",
    "flag:park_us=100,backstop_us=2000+adapt:late_pct=2,guard_us=20,min_sleep_us=50,max_sleep_us=5000,window=32",
    "flag:park_us=100,backstop_us=2000+adapt:late_pct=2,guard_us=20,min_sleep_us=50,max_sleep_us=5000,window=32+trust",
];

/// As many residuals as a point has to have for a wait by `+adapt` to sleep in one go, or almost.
const KNOWN: usize = 32;

/// What a point would know that took so long each time.
fn forecast(plan: &WaitPlan, predicted: Option<Nanos>) -> Forecast {
    let mut table = PointTable::of_one();
    for residual in predicted.iter().cycle().take(KNOWN) {
        table.record((), plan, *residual);
    }
    table.forecast(&(), plan)
}

/// A device to wait for.
pub trait Backend {
    /// What has an order.
    type Stream;
    /// A point of it.
    type Port: CompletionPort<Line = Arc<HostLine>> + fmt::Debug;
    /// Who knows the truth about a point.
    type Truth: Truth;

    /// A new stream.
    ///
    /// # Errors
    ///
    /// The device's fault.
    fn stream(&self) -> Result<Self::Stream, Error>;

    /// Work that takes so long.
    ///
    /// # Errors
    ///
    /// The device's fault.
    fn launch(&self, stream: &Self::Stream, length: Nanos) -> Result<(), Error>;

    /// The point behind all of the stream's work, and who knows about it.
    ///
    /// # Errors
    ///
    /// The device's fault.
    fn point(&self, stream: &Self::Stream) -> Result<(Self::Port, Self::Truth), Error>;

    /// Whether streams cannot store words: then points are asked for.
    fn cannot_store(&self) -> bool;

    /// Breaks the device for good.
    fn break_down(&self);
}

/// What really happened to a point.
pub trait Truth {
    /// When its work ended, once it has.
    fn ended_at(&self) -> Option<Instant>;

    /// How often the driver was asked.
    fn queries(&self) -> u64;
}

impl<T: TimeLine> Backend for SimDevice<T> {
    type Stream = SimStream<T>;
    type Port = SimPort<T>;
    type Truth = Witness<T>;

    fn stream(&self) -> Result<SimStream<T>, Error> {
        Self::stream(self)
    }

    fn launch(&self, stream: &SimStream<T>, length: Nanos) -> Result<(), Error> {
        stream.launch(length)
    }

    fn point(&self, stream: &SimStream<T>) -> Result<(SimPort<T>, Witness<T>), Error> {
        let port = stream.point();
        let truth = port.witness();
        Ok((port, truth))
    }

    fn cannot_store(&self) -> bool {
        self.faults().unsupported_ppm > 0
    }

    fn break_down(&self) {
        self.inject_fault();
    }
}

impl<T: TimeLine> Truth for Witness<T> {
    fn ended_at(&self) -> Option<Instant> {
        self.truth().ended_at
    }

    fn queries(&self) -> u64 {
        self.truth().queries
    }
}

/// Who makes a wait: whatever else it is, it keeps the script.
pub trait Waits<P> {
    /// The host's time.
    fn now(&self) -> Instant;

    /// Waits for the port's point; `predicted` may be left to what the one who waits has learned.
    fn wait(
        &self,
        plan: &WaitPlan,
        port: P,
        predicted: Option<Nanos>,
        deadline: Option<Instant>,
        cancel: Option<&CancelToken>,
    ) -> impl Future<Output = Result<Report, Error>>;
}

/// `drive` on the ports of a host.
#[derive(Debug)]
pub struct Driven<'h, H>(pub &'h H);

impl<P: CompletionPort, H: Clock + Timer + Watch<P>> Waits<P> for Driven<'_, H> {
    fn now(&self) -> Instant {
        self.0.now()
    }

    async fn wait(
        &self,
        plan: &WaitPlan,
        mut port: P,
        predicted: Option<Nanos>,
        deadline: Option<Instant>,
        cancel: Option<&CancelToken>,
    ) -> Result<Report, Error> {
        let wait = Wait::new(plan).expecting(forecast(plan, predicted)).deadline(deadline);
        drive(wait, &mut port, self.0, cancel).await
    }
}

/// A watcher's own waits.
#[derive(Debug)]
pub struct Watched(pub WatcherHandle, pub Point);

impl<P> Waits<P> for Watched
where
    P: CompletionPort<Line: Send + Sync + 'static> + Send + 'static,
{
    fn now(&self) -> Instant {
        self.0.now()
    }

    async fn wait(
        &self,
        plan: &WaitPlan,
        port: P,
        _: Option<Nanos>,
        deadline: Option<Instant>,
        cancel: Option<&CancelToken>,
    ) -> Result<Report, Error> {
        let mut wait = self.0.wait(port, plan, &self.1);
        if let Some(deadline) = deadline {
            wait = wait.deadline(deadline);
        }
        if let Some(token) = cancel {
            wait = wait.cancelled_by(token);
        }
        wait.await
    }
}

/// What every plan keeps on every pair, from an idle stream to a faulted device.
///
/// # Errors
///
/// A wait that should have ended well.
pub async fn script<B: Backend>(device: &B, host: impl Waits<B::Port>) -> Result<(), Error> {
    for text in PLANS {
        let plan: WaitPlan = text.parse()?;
        let stream = device.stream()?;
        for length in [0, 30, 400, 2_000].map(Nanos::from_micros) {
            ends_well(&plan, device, &stream, &host, length).await?;
        }
        times_out(&plan, device, &stream, &host).await?;
        is_cancelled(&plan, device, &stream, &host).await?;
        // What timed out and was cancelled goes on; later points of the stream end well all the same.
        ends_well(&plan, device, &stream, &host, Nanos::from_micros(100)).await?;
    }
    let stream = device.stream()?;
    device.launch(&stream, Nanos::from_millis(5))?;
    let points = PLANS.map(|text| (text, device.point(&stream)));
    device.break_down();
    for (text, port) in points {
        let (port, _) = port?;
        let error = host.wait(&text.parse()?, port, None, None, None).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Backend, "{text}: {error}");
    }
    Ok(())
}

async fn ends_well<B: Backend>(
    plan: &WaitPlan,
    device: &B,
    stream: &B::Stream,
    host: &impl Waits<B::Port>,
    length: Nanos,
) -> Result<(), Error> {
    device.launch(stream, length)?;
    let (port, truth) = device.point(stream)?;
    let prediction = (length > Nanos::ZERO).then_some(length);
    let report = host.wait(plan, port, prediction, None, None).await?;
    let ended = truth.ended_at();
    assert!(ended.is_some_and(|at| at <= host.now()), "{plan}: before its work was done");
    let outcome = report.outcome();
    let allowed: &[Outcome] = match (plan.mode(), report.authority) {
        (Mode::Block, _) => &[Outcome::Blocked],
        (_, Authority::Word) => &[Outcome::Trusted, Outcome::Late],
        _ => &[Outcome::Immediate, Outcome::Late, Outcome::Parked],
    };
    assert!(outcome.is_some_and(|outcome| allowed.contains(&outcome)), "{plan}: {outcome:?} after {length}");
    assert_eq!(report.plan, *plan);
    assert!(
        report.sleeps == 0 || plan.predict().is_some() || plan.adapt().is_some(),
        "{plan}: slept without a prediction"
    );
    assert!(
        report.authority == plan.authority() || device.cannot_store(),
        "{plan}: by the authority of another"
    );
    Ok(())
}

async fn times_out<B: Backend>(
    plan: &WaitPlan,
    device: &B,
    stream: &B::Stream,
    host: &impl Waits<B::Port>,
) -> Result<(), Error> {
    // Far from the deadline, for a machine that others load.
    device.launch(stream, Nanos::from_millis(150))?;
    let deadline = host.now() + Nanos::from_micros(1_500);
    let error = host.wait(plan, device.point(stream)?.0, None, Some(deadline), None).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout, "{plan}: {error}");
    assert!(host.now() >= deadline, "{plan}: timed out early");
    Ok(())
}

async fn is_cancelled<B: Backend>(
    plan: &WaitPlan,
    device: &B,
    stream: &B::Stream,
    host: &impl Waits<B::Port>,
) -> Result<(), Error> {
    let token = CancelToken::new();
    token.cancel();
    let (port, truth) = device.point(stream)?;
    let error = host.wait(plan, port, None, None, Some(&token)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Cancelled, "{plan}: {error}");
    assert_eq!(truth.queries(), 0, "{plan}: asked the driver for a wait that nobody wants");
    Ok(())
}

//! Carrying out what a [`Wait`] decides, as a future.

use core::cell::RefCell;

use crate::cancel::CancelToken;
use crate::error::Error;
use crate::port::{Arming, Clock, CompletionPort, Timer, Wake, Watch};
use crate::table::PointTable;
use crate::time::Instant;
use crate::wait::{Action, Observation, Report, Wait};

/// Drives one wait to its end: the async face of the [`Wait`] machine.
///
/// The same code runs inline (with [`Inline`](crate::Inline), where it never pends), on an
/// [`Executor`](crate::Executor) (with its [`Reactor`](crate::Reactor)) and on any other runtime (with its timer and a
/// watcher). Between two queries other ready work runs. Driver calls are made on the calling thread.
///
/// A plan with `+predict` sleeps only by a prediction: [`drive_at`] takes it from a [`PointTable`], or [`Wait::predicted`] hands
/// one in.
///
/// Dropping the future at any moment ends the waiting only: what the device may still touch belongs to `port` and
/// its backend. No allocation unless it fails.
///
/// # Errors
///
/// - [`ErrorCode::Timeout`](crate::ErrorCode::Timeout) when the wait's deadline came first,
///   [`ErrorCode::Cancelled`](crate::ErrorCode::Cancelled) when `cancel` did.
/// - [`ErrorCode::StoreLost`](crate::ErrorCode::StoreLost) when a trusted word was not stored though the driver says done.
/// - Whatever a failed call of `port` returned, the device's fault say.
///
/// ```
/// use wakeline_core::{Inline, Nanos, Outcome, Wait, WaitPlan, drive, run_inline};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualHost, VirtualTime};
///
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let host = VirtualHost::new(&device);
/// let inline = Inline::new(&host, &host, &host);
/// let stream = device.stream()?;
/// stream.launch(Nanos::from_micros(250))?;
/// let plan: WaitPlan = "flag:park_us=50,backstop_us=1000".parse()?;
/// let report = run_inline(drive(Wait::new(&plan), &mut stream.point(), &inline, None))??;
/// assert_eq!(report.outcome(), Some(Outcome::Parked));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub async fn drive<P, H>(
    wait: Wait,
    port: &mut P,
    host: &H,
    cancel: Option<&CancelToken>,
) -> Result<Report, Error>
where
    P: CompletionPort,
    H: Clock + Timer + Watch<P>,
{
    let (mut wait, mut action) = wait.cancellable(cancel.is_some()).start(host.now());
    let mut fault = None;
    let mut failed = |error| {
        fault = Some(error);
        Observation::Failed
    };
    let (mut asked, mut slept) = (false, false);
    let report = loop {
        if cancel.is_some_and(CancelToken::is_cancelled) && !matches!(action, Action::Finish(_)) {
            action = wait.step(host.now(), Observation::Cancelled);
        }
        let asked_before = asked;
        asked = false;
        let observation = match action {
            Action::Finish(report) => break report,
            Action::Query => {
                if asked_before {
                    host.yield_now().await;
                }
                asked = true;
                port.query().map_or_else(&mut failed, Observation::Status)
            }
            Action::Block { until } => port.block(until).map_or_else(&mut failed, Observation::Status),
            Action::Arm => match port.arm() {
                Ok(Arming::Armed) => Observation::Armed,
                Ok(Arming::Unsupported) => Observation::Unsupported,
                Err(error) => failed(error),
            },
            Action::Warm => {
                port.warm();
                Observation::Woke
            }
            Action::SleepUntil(at) => {
                host.sleep_until(at).await;
                slept = true;
                Observation::Woke
            }
            Action::Park { until } => match port.poll() {
                Wake::Reached => Observation::Reached,
                Wake::Woke => {
                    if core::mem::take(&mut slept) {
                        rehearse(&wait, port, host.now());
                    }
                    match host.watch(port, until).await {
                        Wake::Reached => Observation::Reached,
                        Wake::Woke => Observation::Woke,
                    }
                }
            },
        };
        action = wait.step(host.now(), observation);
    };
    let ended = report.outcome().and_then(|_| port.ended());
    report.ended_at(wait.started(), ended).into_result(port.descriptor(), fault)
}

/// Does what is done at an end by the word, for nothing: what that needs has gone from the caches in a sleep, and is fetched while its word would only be
/// watched. Costs about a microsecond of the host's time there.
fn rehearse<P: CompletionPort>(wait: &Wait, port: &P, now: Instant) {
    let mut other = wait.clone();
    if let Action::Finish(report) = other.step(now, Observation::Reached) {
        let ended = report.ended_at(wait.started(), port.ended()).into_result(port.descriptor(), None);
        core::hint::black_box(&ended);
    }
}

/// Drives a wait for the point `key` with what the table knows of it, and lets the table learn from it.
///
/// The table is borrowed before and after the wait, not during it, so any number of tasks may share one.
///
/// # Errors
///
/// As [`drive`]; a wait that fails teaches nothing.
///
/// ```
/// use std::cell::RefCell;
/// use wakeline_core::{Inline, Nanos, PointTable, Wait, WaitPlan, drive_at, run_inline};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualHost, VirtualTime};
///
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let host = VirtualHost::new(&device);
/// let inline = Inline::new(&host, &host, &host);
/// let plan: WaitPlan =
///     "flag:park_us=50,backstop_us=1000+predict:margin_us=40,min_sleep_us=100,max_sleep_us=20000,window=8".parse()?;
/// let table = RefCell::new(PointTable::new(16)?);
/// let stream = device.stream()?;
/// let mut sleeps = Vec::new();
/// for _ in 0..3 {
///     stream.launch(Nanos::from_millis(2))?;
///     let wait = Wait::new(&plan);
///     let report = run_inline(drive_at(&table, "decode", wait, &mut stream.point(), &inline, None))??;
///     sleeps.push(report.sleeps);
/// }
/// assert_eq!(sleeps, [0, 1, 1]); // a cold point never sleeps
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub async fn drive_at<K, P, H>(
    table: &RefCell<PointTable<K>>,
    key: K,
    wait: Wait,
    port: &mut P,
    host: &H,
    cancel: Option<&CancelToken>,
) -> Result<Report, Error>
where
    K: Ord,
    P: CompletionPort,
    H: Clock + Timer + Watch<P>,
{
    let forecast = table.try_borrow_mut().map(|mut table| table.forecast(&key, wait.plan()));
    let report = drive(wait.expecting(forecast.unwrap_or_default()), port, host, cancel).await?;
    if let Ok(mut table) = table.try_borrow_mut() {
        table.observe(key, &report);
    }
    Ok(report)
}

//! The same scripted waits on every pair of backend and host.
//!
//! A backend and a host that are new get a test here and must pass the script as it stands.

#![allow(clippy::unwrap_used, clippy::large_types_passed_by_value, reason = "tests")]

use std::sync::Arc;

use tokio::runtime::Builder;
use tokio::task::LocalSet;
use wakeline_core::{
    CancelToken, Clock, CompletionLine, Error, ErrorCode, Executor, Inline, Mode, Nanos, Outcome, Reactor,
    Timer, Wait, WaitPlan, Watch, drive, run_inline,
};
use wakeline_sim::{RealTime, SimConfig, SimDevice, SimPort, SimStream, TimeLine, VirtualHost, VirtualTime};
use wakeline_std::{DeviceThread, ParkPolicy, StdClock, StdIdle, StdPark};
use wakeline_tokio::TokioLocal;

const PLANS: [&str; 7] = [
    "block",
    "poll",
    "poll+predict:margin_us=100,min_sleep_us=50,max_sleep_us=5000,window=4",
    "flag:park_us=100,backstop_us=2000",
    "flag:park_us=100,backstop_us=2000+predict:margin_us=100,min_sleep_us=50,max_sleep_us=5000,window=4",
    "flag:park_us=100,backstop_us=2000+trust",
    "flag:park_us=100,backstop_us=2000+predict:margin_us=100,min_sleep_us=50,max_sleep_us=5000,window=4+trust",
];

/// What every plan keeps on every pair, from an idle stream to a faulted device.
async fn script<T, H>(device: &SimDevice<T>, host: &H) -> Result<(), Error>
where
    T: TimeLine,
    H: Clock + Timer + Watch<SimPort<T>>,
{
    for text in PLANS {
        let plan: WaitPlan = text.parse()?;
        let stream = device.stream()?;
        for length in [0, 30, 400, 2_000].map(Nanos::from_micros) {
            ends_well(&plan, &stream, host, length).await?;
        }
        times_out(&plan, &stream, host).await?;
        is_cancelled(&plan, &stream, host).await?;
        // What timed out and was cancelled goes on; later points of the stream end well all the same.
        ends_well(&plan, &stream, host, Nanos::from_micros(100)).await?;
    }
    let stream = device.stream()?;
    stream.launch(Nanos::from_millis(5))?;
    let points = PLANS.map(|text| (text, stream.point()));
    device.inject_fault();
    for (text, mut port) in points {
        let error = drive(Wait::new(&text.parse()?), &mut port, host, None).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Backend, "{text}: {error}");
    }
    Ok(())
}

async fn ends_well<T, H>(plan: &WaitPlan, stream: &SimStream<T>, host: &H, length: Nanos) -> Result<(), Error>
where
    T: TimeLine,
    H: Clock + Timer + Watch<SimPort<T>>,
{
    stream.launch(length)?;
    let mut port = stream.point();
    let truth = port.witness();
    let prediction = (length > Nanos::ZERO).then_some(length);
    let report = drive(Wait::new(plan).predicted(prediction), &mut port, host, None).await?;
    let ended = truth.truth().ended_at;
    assert!(ended.is_some_and(|at| at <= host.now()), "{plan}: before its work was done");
    let outcome = report.outcome();
    let allowed: &[Outcome] = match (plan.mode(), plan.authority()) {
        (Mode::Block, _) => &[Outcome::Blocked],
        (_, wakeline_core::Authority::Word) => &[Outcome::Trusted, Outcome::Late],
        _ => &[Outcome::Immediate, Outcome::Late, Outcome::Parked],
    };
    assert!(outcome.is_some_and(|outcome| allowed.contains(&outcome)), "{plan}: {outcome:?} after {length}");
    assert_eq!(report.plan, *plan);
    assert!(report.sleeps == 0 || plan.predict().is_some(), "{plan}: slept without a prediction");
    Ok(())
}

async fn times_out<T, H>(plan: &WaitPlan, stream: &SimStream<T>, host: &H) -> Result<(), Error>
where
    T: TimeLine,
    H: Clock + Timer + Watch<SimPort<T>>,
{
    stream.launch(Nanos::from_millis(30))?;
    let start = host.now();
    let deadline = start + Nanos::from_micros(1_500);
    let wait = Wait::new(plan).deadline(Some(deadline));
    let error = drive(wait, &mut stream.point(), host, None).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout, "{plan}: {error}");
    assert!(host.now() >= deadline, "{plan}: timed out early");
    Ok(())
}

async fn is_cancelled<T, H>(plan: &WaitPlan, stream: &SimStream<T>, host: &H) -> Result<(), Error>
where
    T: TimeLine,
    H: Clock + Timer + Watch<SimPort<T>>,
{
    let token = CancelToken::new();
    token.cancel();
    let mut port = stream.point();
    let truth = port.witness();
    let error = drive(Wait::new(plan), &mut port, host, Some(&token)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Cancelled, "{plan}: {error}");
    assert_eq!(truth.truth().queries, 0, "{plan}: asked the driver for a wait that nobody wants");
    Ok(())
}

fn config() -> SimConfig {
    SimConfig { seed: 1, ..SimConfig::default() }
}

#[test]
fn sim_on_virtual_time_inline() {
    let device = SimDevice::new(VirtualTime::new(), config()).unwrap();
    let host = VirtualHost::new(&device);
    run_inline(script(&device, &Inline::new(&host, &host, &host))).unwrap().unwrap();
}

#[test]
fn sim_on_virtual_time_on_the_executor() {
    let device = SimDevice::new(VirtualTime::new(), config()).unwrap();
    let host = VirtualHost::new(&device);
    let reactor = Reactor::new(&host);
    let mut executor = Executor::new(&reactor, &host, &host, 1).unwrap();
    executor.spawn(script(&device, &reactor)).unwrap();
    executor.run(|_, result| result.unwrap()).unwrap();
    assert_eq!(reactor.registered(), 0);
}

/// A device in real time, with the thread that drives it.
type RealDevice = SimDevice<RealTime<StdClock, fn(Nanos)>>;

fn real() -> (StdClock, RealDevice, DeviceThread<RealDevice>) {
    let clock = StdClock::new();
    let sleep: fn(Nanos) = |length| std::thread::sleep(std::time::Duration::from_nanos(length.as_nanos()));
    let device = SimDevice::new(RealTime::new(clock, sleep), config()).unwrap();
    let thread = DeviceThread::spawn(clock, device.clone()).unwrap();
    (clock, device, thread)
}

#[test]
fn sim_in_real_time_inline_on_the_std_host() {
    let (clock, device, thread) = real();
    let idle = StdIdle::new(clock);
    let park = StdPark::new(&idle, ParkPolicy::default());
    run_inline(script(&device, &Inline::new(clock, &idle, &park))).unwrap().unwrap();
    thread.stop().unwrap();
}

#[test]
fn sim_in_real_time_on_the_executor_of_the_std_host() {
    let (clock, device, thread) = real();
    let idle = StdIdle::new(clock);
    let park = StdPark::new(&idle, ParkPolicy::default());
    let reactor = Reactor::<_, Arc<CompletionLine>>::new(clock);
    let mut executor = Executor::new(&reactor, &idle, &park, 1).unwrap();
    executor.spawn(script(&device, &reactor)).unwrap();
    executor.run(|_, result| result.unwrap()).unwrap();
    thread.stop().unwrap();
}

#[test]
fn sim_in_real_time_on_the_thread_of_a_tokio_runtime() {
    let (clock, device, thread) = real();
    // Without tokio's timers, which the host has no use for.
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        let local = TokioLocal::new(clock, ParkPolicy::default()).unwrap();
        script(&device, &local).await.unwrap();
        assert_eq!(local.registered(), 0);
    });
    thread.stop().unwrap();
}

#[test]
fn sim_in_real_time_on_a_local_set_of_a_tokio_runtime_with_workers() {
    let (clock, device, thread) = real();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_io().build().unwrap();
    let set = LocalSet::new();
    let task = set.spawn_local(async move {
        let local = TokioLocal::new(clock, ParkPolicy::default()).unwrap();
        local.run_until(script(&device, &local)).await.unwrap();
        assert_eq!(local.registered(), 0);
    });
    set.block_on(&runtime, task).unwrap();
    thread.stop().unwrap();
}

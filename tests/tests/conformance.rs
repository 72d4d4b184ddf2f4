//! The same scripted waits on every pair of backend and host.
//!
//! A backend and a host that are new get a test here and must pass the script as it stands.

#![allow(clippy::unwrap_used, clippy::large_types_passed_by_value, reason = "tests")]

use std::sync::Arc;

use tokio::runtime::Builder;
use tokio::task::LocalSet;
use wakeline_core::{
    Authority, CancelToken, Clock, Error, ErrorCode, Executor, Forecast, HostLine, Inline, Instant, Mode,
    Nanos, Outcome, PointTable, Reactor, Report, Timer, Wait, WaitPlan, Watch, drive, run_inline,
};
use wakeline_sim::{
    Chance, Faults, RealTime, SimConfig, SimDevice, SimPort, SimStream, TimeLine, VirtualHost, VirtualTime,
};
use wakeline_std::{
    DeviceThread, ParkPolicy, Point, StdClock, StdIdle, StdPark, Watcher, WatcherConfig, WatcherHandle,
    block_on,
};
use wakeline_tokio::TokioLocal;

const PLANS: [&str; 10] = [
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

/// Who makes a wait: whatever else it is, it keeps the script.
trait Waits<T: TimeLine> {
    fn now(&self) -> Instant;

    /// Waits for the port's point; `predicted` may be left to what the one who waits has learned.
    async fn wait(
        &self,
        plan: &WaitPlan,
        port: SimPort<T>,
        predicted: Option<Nanos>,
        deadline: Option<Instant>,
        cancel: Option<&CancelToken>,
    ) -> Result<Report, Error>;
}

/// `drive` on the ports of a host.
struct Driven<'h, H>(&'h H);

impl<T: TimeLine, H: Clock + Timer + Watch<SimPort<T>>> Waits<T> for Driven<'_, H> {
    fn now(&self) -> Instant {
        self.0.now()
    }

    async fn wait(
        &self,
        plan: &WaitPlan,
        mut port: SimPort<T>,
        predicted: Option<Nanos>,
        deadline: Option<Instant>,
        cancel: Option<&CancelToken>,
    ) -> Result<Report, Error> {
        let wait = Wait::new(plan).expecting(forecast(plan, predicted)).deadline(deadline);
        drive(wait, &mut port, self.0, cancel).await
    }
}

/// A watcher's own waits.
struct Watched(WatcherHandle, Point);

impl Waits<RealTime<StdClock, fn(Nanos)>> for Watched {
    fn now(&self) -> Instant {
        self.0.now()
    }

    async fn wait(
        &self,
        plan: &WaitPlan,
        port: SimPort<RealTime<StdClock, fn(Nanos)>>,
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
async fn script<T: TimeLine>(device: &SimDevice<T>, host: impl Waits<T>) -> Result<(), Error> {
    for text in PLANS {
        let plan: WaitPlan = text.parse()?;
        let stream = device.stream()?;
        for length in [0, 30, 400, 2_000].map(Nanos::from_micros) {
            ends_well(&plan, &stream, &host, length).await?;
        }
        times_out(&plan, &stream, &host).await?;
        is_cancelled(&plan, &stream, &host).await?;
        // What timed out and was cancelled goes on; later points of the stream end well all the same.
        ends_well(&plan, &stream, &host, Nanos::from_micros(100)).await?;
    }
    let stream = device.stream()?;
    stream.launch(Nanos::from_millis(5))?;
    let points = PLANS.map(|text| (text, stream.point()));
    device.inject_fault();
    for (text, port) in points {
        let error = host.wait(&text.parse()?, port, None, None, None).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Backend, "{text}: {error}");
    }
    Ok(())
}

async fn ends_well<T: TimeLine>(
    plan: &WaitPlan,
    stream: &SimStream<T>,
    host: &impl Waits<T>,
    length: Nanos,
) -> Result<(), Error> {
    stream.launch(length)?;
    let port = stream.point();
    let truth = port.witness();
    let prediction = (length > Nanos::ZERO).then_some(length);
    let report = host.wait(plan, port, prediction, None, None).await?;
    let ended = truth.truth().ended_at;
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
    let cannot_store = stream.device().faults().unsupported_ppm > 0;
    assert!(report.authority == plan.authority() || cannot_store, "{plan}: by the authority of another");
    Ok(())
}

async fn times_out<T: TimeLine>(
    plan: &WaitPlan,
    stream: &SimStream<T>,
    host: &impl Waits<T>,
) -> Result<(), Error> {
    // Far from the deadline, for a machine that others load.
    stream.launch(Nanos::from_millis(150))?;
    let deadline = host.now() + Nanos::from_micros(1_500);
    let error = host.wait(plan, stream.point(), None, Some(deadline), None).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout, "{plan}: {error}");
    assert!(host.now() >= deadline, "{plan}: timed out early");
    Ok(())
}

async fn is_cancelled<T: TimeLine>(
    plan: &WaitPlan,
    stream: &SimStream<T>,
    host: &impl Waits<T>,
) -> Result<(), Error> {
    let token = CancelToken::new();
    token.cancel();
    let port = stream.point();
    let truth = port.witness();
    let error = host.wait(plan, port, None, None, Some(&token)).await.unwrap_err();
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
    run_inline(script(&device, Driven(&Inline::new(&host, &host, &host)))).unwrap().unwrap();
}

#[test]
fn sim_on_virtual_time_on_the_executor() {
    let device = SimDevice::new(VirtualTime::new(), config()).unwrap();
    let host = VirtualHost::new(&device);
    let reactor = Reactor::new(&host);
    let mut executor = Executor::new(&reactor, &host, &host, 1).unwrap();
    executor.spawn(script(&device, Driven(&reactor))).unwrap();
    executor.run(|_, result| result.unwrap()).unwrap();
    assert_eq!(reactor.registered(), 0);
}

/// A device in real time, with the thread that drives it.
type RealDevice = SimDevice<RealTime<StdClock, fn(Nanos)>>;

fn real() -> (StdClock, RealDevice, DeviceThread<RealDevice>) {
    real_with(config())
}

fn real_with(config: SimConfig) -> (StdClock, RealDevice, DeviceThread<RealDevice>) {
    let clock = StdClock::new();
    let sleep: fn(Nanos) = |length| std::thread::sleep(std::time::Duration::from_nanos(length.as_nanos()));
    let device = SimDevice::new(RealTime::new(clock, sleep), config).unwrap();
    let thread = DeviceThread::spawn(clock, device.clone()).unwrap();
    (clock, device, thread)
}

#[test]
fn sim_in_real_time_inline_on_the_std_host() {
    let (clock, device, thread) = real();
    let idle = StdIdle::new(clock);
    let park = StdPark::new(&idle, ParkPolicy::default());
    run_inline(script(&device, Driven(&Inline::new(clock, &idle, &park)))).unwrap().unwrap();
    thread.stop().unwrap();
}

#[test]
fn sim_in_real_time_on_the_executor_of_the_std_host() {
    let (clock, device, thread) = real();
    let idle = StdIdle::new(clock);
    let park = StdPark::new(&idle, ParkPolicy::default());
    let reactor = Reactor::<_, Arc<HostLine>>::new(clock);
    let mut executor = Executor::new(&reactor, &idle, &park, 1).unwrap();
    executor.spawn(script(&device, Driven(&reactor))).unwrap();
    executor.run(|_, result| result.unwrap()).unwrap();
    thread.stop().unwrap();
}

/// What a device may do to its words and its calls so that every wait still ends well.
fn faulty() -> [(&'static str, SimConfig); 6] {
    let with = |faults| SimConfig { faults, ..config() };
    [
        ("healthy", config()),
        ("no bounded block", SimConfig { bounded_block: false, ..config() }),
        ("no stores", with(Faults { unsupported_ppm: 1_000_000, ..Faults::none() })),
        ("late stores", with(Faults { late_store: Chance::always(400_000), ..Faults::none() })),
        ("deferred stores", with(Faults { deferred_store_ppm: 1_000_000, ..Faults::none() })),
        ("slow queries", with(Faults { slow_query: Chance::always(300_000), ..Faults::none() })),
    ]
}

#[test]
fn sim_in_real_time_on_the_watcher() {
    for ((name, config), shards) in faulty().into_iter().zip([1, 3].into_iter().cycle()) {
        let (_, device, thread) = real_with(config);
        let watcher = Watcher::with(WatcherConfig::default().shards(shards).unwrap()).unwrap();
        let waits = Watched(watcher.handle(), Point::new("script"));
        block_on(script(&device, waits)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(watcher.handle().pending(), 0, "{name}");
        watcher.close(Watcher::CLOSE).unwrap();
        thread.stop().unwrap();
    }
}

#[test]
fn sim_in_real_time_driven_on_the_ports_of_the_watcher() {
    for (name, config) in faulty().into_iter().filter(|(_, config)| config.bounded_block) {
        let (_, device, thread) = real_with(config);
        let watcher = Watcher::new().unwrap();
        let handle = watcher.handle();
        block_on(script(&device, Driven(&handle))).unwrap_or_else(|error| panic!("{name}: {error}"));
        watcher.close(Watcher::CLOSE).unwrap();
        thread.stop().unwrap();
    }
}

/// Nobody watches any more: then the task looks itself.
#[test]
fn sim_in_real_time_driven_on_the_ports_of_a_closed_watcher() {
    let (_, device, thread) = real();
    let watcher = Watcher::new().unwrap();
    let handle = watcher.handle();
    watcher.close(Watcher::CLOSE).unwrap();
    block_on(script(&device, Driven(&handle))).unwrap();
    thread.stop().unwrap();
}

/// `None`, and a line that is counted, where there is no ring to be had.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn ring(clock: StdClock) -> Option<wakeline_uring::UringIdle> {
    wakeline_uring::UringIdle::new(clock).map_err(|error| println!("skipped: no io_uring: {error}")).ok()
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[test]
fn sim_in_real_time_inline_on_the_uring_host() {
    let (clock, device, thread) = real();
    let Some(ring) = ring(clock) else { return };
    let park = StdPark::new(&ring, ParkPolicy::default());
    run_inline(script(&device, Driven(&Inline::new(clock, &ring, &park)))).unwrap().unwrap();
    thread.stop().unwrap();
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[test]
fn sim_in_real_time_on_the_executor_of_the_uring_host() {
    let (clock, device, thread) = real();
    let Some(ring) = ring(clock) else { return };
    let park = StdPark::new(&ring, ParkPolicy::default());
    let reactor = Reactor::<_, Arc<HostLine>>::new(clock);
    let mut executor = Executor::new(&reactor, &ring, &park, 1).unwrap();
    executor.spawn(script(&device, Driven(&reactor))).unwrap();
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
        script(&device, Driven(&local)).await.unwrap();
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
        local.run_until(script(&device, Driven(&local))).await.unwrap();
        assert_eq!(local.registered(), 0);
    });
    set.block_on(&runtime, task).unwrap();
    thread.stop().unwrap();
}

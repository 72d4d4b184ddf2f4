//! Points whose device stamps the time: their residuals are exact, however late a wait notices.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Arc;

use wakeline_core::{
    Arming, CompletionPort, ContextKey, Error, HostLine, Inline, Instant, MemoryDescriptor, Nanos, Outcome,
    Residual, Status, Wait, WaitPlan, drive, run_inline,
};
use wakeline_sim::{RealTime, SimConfig, SimDevice, SimPort, TimeLine, VirtualHost, VirtualTime, Witness};
use wakeline_std::{Point, StdClock, Watcher, block_on};
use wakeline_tests::watching::Stage;

/// A port of a device that stamps the time.
struct Stamped<T: TimeLine> {
    port: SimPort<T>,
    truth: Witness<T>,
}

impl<T: TimeLine> Stamped<T> {
    fn new(port: SimPort<T>) -> Self {
        Self { truth: port.witness(), port }
    }
}

impl<T: TimeLine> CompletionPort for Stamped<T> {
    type Line = Arc<HostLine>;

    fn query(&mut self) -> Result<Status, Error> {
        self.port.query()
    }

    fn block(&mut self, until: Option<Instant>) -> Result<Status, Error> {
        self.port.block(until)
    }

    fn arm(&mut self) -> Result<Arming, Error> {
        self.port.arm()
    }

    fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>> {
        self.port.descriptor()
    }

    fn context(&self) -> Option<ContextKey> {
        self.port.context()
    }

    fn ended(&self) -> Option<Instant> {
        self.truth.truth().ended_at
    }
}

const PLANS: [&str; 3] = [
    "poll+predict:margin_us=10,min_sleep_us=50,max_sleep_us=9000,window=4",
    "flag:park_us=100,backstop_us=2000+predict:margin_us=10,min_sleep_us=50,max_sleep_us=9000,window=4",
    "flag:park_us=100,backstop_us=2000+predict:margin_us=10,min_sleep_us=50,max_sleep_us=9000,window=4+trust",
];

#[test]
fn a_wait_that_slept_past_the_end_knows_the_residual_all_the_same() {
    let device = SimDevice::new(VirtualTime::new(), SimConfig::exact()).unwrap();
    let host = VirtualHost::new(&device);
    let inline = Inline::new(&host, &host, &host);
    for text in PLANS {
        let plan: WaitPlan = text.parse().unwrap();
        let stream = device.stream().unwrap();
        stream.launch(Nanos::from_micros(700)).unwrap();
        let wait = Wait::new(&plan).predicted(Some(Nanos::from_micros(3_000)));
        let mut port = Stamped::new(stream.point());
        let report = run_inline(drive(wait, &mut port, &inline, None)).unwrap().unwrap();
        assert_eq!(report.outcome(), Some(Outcome::Late), "{text}");
        let Some(Residual::Exact(residual)) = report.residual else { panic!("{text}: {report:?}") };
        assert_eq!(residual, Nanos::from_micros(700), "{text}");
        assert!(report.elapsed > Nanos::from_micros(2_900), "{text}: {}", report.elapsed);
    }
}

/// A port that panics when it is asked for the time.
struct Panics(SimPort<RealTime<StdClock, fn(Nanos)>>);

impl CompletionPort for Panics {
    type Line = Arc<HostLine>;

    fn query(&mut self) -> Result<Status, Error> {
        self.0.query()
    }

    fn block(&mut self, until: Option<Instant>) -> Result<Status, Error> {
        self.0.block(until)
    }

    fn arm(&mut self) -> Result<Arming, Error> {
        self.0.arm()
    }

    fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>> {
        self.0.descriptor()
    }

    fn ended(&self) -> Option<Instant> {
        panic!("on purpose")
    }
}

#[test]
fn a_port_that_panics_when_it_is_asked_for_the_time_holds_up_nobody() {
    let stage = Stage::new(SimConfig::default()).unwrap();
    let watcher = Watcher::new().unwrap();
    let point = Point::new("panics");
    for text in PLANS.into_iter().chain(["flag:park_us=50,backstop_us=1000+trust", "block"]) {
        let plan: WaitPlan = text.parse().unwrap();
        let port = Panics(stage.work(Nanos::from_millis(1)).unwrap());
        let other = watcher.wait(stage.work(Nanos::from_millis(2)).unwrap(), &plan, &point);
        block_on(watcher.wait(port, &plan, &point)).unwrap();
        block_on(other).unwrap();
    }
    watcher.close(Watcher::CLOSE).unwrap();
}

#[test]
fn a_watcher_asks_for_the_time_as_well() {
    let stage = Stage::new(SimConfig::default()).unwrap();
    let watcher = Watcher::new().unwrap();
    for text in PLANS {
        let plan: WaitPlan = text.parse().unwrap();
        let point = Point::new("stamped");
        let before = wakeline_core::Clock::now(&StdClock::new());
        let port = Stamped::new(stage.work(Nanos::from_millis(2)).unwrap());
        let truth = port.truth.clone();
        let report = block_on(watcher.wait(port, &plan, &point)).unwrap();
        let ended = truth.truth().ended_at.unwrap();
        let Some(Residual::Exact(residual)) = report.residual else { panic!("{text}: {report:?}") };
        assert!(residual <= ended.since(before), "{text}: {residual}");
        assert!(residual + Nanos::from_millis(50) > ended.since(before), "{text}: {residual}");
    }
}

//! A simulated device in real time, and waits on it.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::cell::Cell;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use wakeline_core::{
    Arming, Clock, CompletionPort, Error, Instant, MemoryDescriptor, Nanos, Report, Status, Wait, WaitPlan,
    drive,
};
use wakeline_sim::{RealTime, SimConfig, SimDevice, SimPort, SimStream};
use wakeline_std::{DeviceThread, ParkPolicy, StdClock};
use wakeline_tokio::TokioLocal;

pub(crate) type Time = RealTime<StdClock, fn(Nanos)>;
pub(crate) type Device = SimDevice<Time>;
pub(crate) type Stream = SimStream<Time>;
pub(crate) type Local = TokioLocal<<SimPort<Time> as CompletionPort>::Line>;

pub(crate) const STRICT: &str = "flag:park_us=50,backstop_us=1000";
pub(crate) const TRUST: &str = "flag:park_us=50,backstop_us=1000+trust";
pub(crate) const PREDICTED: &str =
    "flag:park_us=50,backstop_us=1000+predict:margin_us=60,min_sleep_us=50,max_sleep_us=20000,window=8+trust";

/// A device whose calls take no time, so that what is measured is the host's, and its thread.
pub(crate) fn device() -> (StdClock, Device, DeviceThread<Device>) {
    let clock = StdClock::new();
    let sleep: fn(Nanos) = |length| std::thread::sleep(Duration::from_nanos(length.as_nanos()));
    let device = SimDevice::new(RealTime::new(clock, sleep), SimConfig::exact()).unwrap();
    let thread = DeviceThread::spawn(clock, device.clone()).unwrap();
    (clock, device, thread)
}

/// A runtime in which every timer of tokio's would panic.
pub(crate) fn without_timers() -> Runtime {
    Builder::new_current_thread().enable_io().build().unwrap()
}

pub(crate) fn local(clock: StdClock) -> Local {
    TokioLocal::new(clock, ParkPolicy::default()).unwrap()
}

pub(crate) fn plan(text: &str) -> WaitPlan {
    text.parse().unwrap()
}

/// Launches work of `length` and waits for it; says by how much the wait was late, and its report.
pub(crate) async fn wait(plan: &WaitPlan, stream: &Stream, length: Nanos, local: &Local) -> (Nanos, Report) {
    stream.launch(length).unwrap();
    let mut port = stream.point();
    let truth = port.witness();
    let report = drive(of(plan, length), &mut port, local, None).await.unwrap();
    let now = local.now();
    let ended = truth.truth().ended_at.unwrap_or(Instant::MAX);
    assert!(ended <= now, "before its work was done");
    (now.since(ended), report)
}

/// A wait that knows how long its work takes, where its plan asks for that.
pub(crate) fn of(plan: &WaitPlan, length: Nanos) -> Wait {
    Wait::new(plan).predicted(plan.predict().is_some().then_some(length))
}

/// Adds up what the calls of a port take.
pub(crate) struct Timed<'c> {
    pub(crate) port: SimPort<Time>,
    pub(crate) calls: &'c Cell<Nanos>,
}

impl Timed<'_> {
    fn call<T>(&mut self, call: impl FnOnce(&mut SimPort<Time>) -> T) -> T {
        let (clock, start) = (StdClock::new(), StdClock::new().now());
        let result = call(&mut self.port);
        self.calls.set(Nanos::from_nanos(self.calls.get().as_nanos() + clock.now().since(start).as_nanos()));
        result
    }
}

impl CompletionPort for Timed<'_> {
    type Line = <SimPort<Time> as CompletionPort>::Line;

    fn query(&mut self) -> Result<Status, Error> {
        self.call(SimPort::query)
    }

    fn block(&mut self, until: Option<Instant>) -> Result<Status, Error> {
        self.port.block(until)
    }

    fn arm(&mut self) -> Result<Arming, Error> {
        self.call(SimPort::arm)
    }

    fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>> {
        self.port.descriptor()
    }
}

/// The value that so many of a hundred of the sample stay within.
pub(crate) fn quantile(sample: &mut [Nanos], per_cent: usize) -> Nanos {
    sample.sort_unstable();
    sample[(sample.len() * per_cent).div_ceil(100).saturating_sub(1)]
}

/// `Err` with the text unless it holds.
pub(crate) fn holds(right: bool, text: impl FnOnce() -> String) -> Result<(), String> {
    if right { Ok(()) } else { Err(text()) }
}

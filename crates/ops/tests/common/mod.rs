//! A simulated device, its watcher and a runtime, and what every test ends with.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use wakeline_core::{Error, Nanos};
use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin, Submission, device_op};
use wakeline_sim::{MemoryUse, SimConfig, SimDevice, VirtualTime, VirtualWatcher};

/// Copies that take a while, so that there is a time in which they are in flight.
pub(crate) const CONFIG: SimConfig = SimConfig { copy_ns: 10_000, ..SimConfig::exact() };

pub(crate) struct Rig {
    pub(crate) device: SimDevice,
    pub(crate) watcher: VirtualWatcher,
    pub(crate) runtime: Runtime<SimDevice>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(&CONFIG, "flag:park_us=50,backstop_us=1000+trust")
    }

    pub(crate) fn with(config: &SimConfig, plan: &str) -> Self {
        Self::try_with(config, plan).unwrap()
    }

    pub(crate) fn try_with(config: &SimConfig, plan: &str) -> Result<Self, Error> {
        let device = SimDevice::new(VirtualTime::new(), *config)?;
        let watcher = VirtualWatcher::new(&device);
        let policy = StreamPoolRoundRobin::new(3)?;
        let runtime = Runtime::with_plan(device.clone(), &policy, watcher.clone(), plan.parse()?)?;
        Ok(Self { device, watcher, runtime })
    }

    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        self.watcher.run(future).unwrap()
    }

    /// Lets everything end that can.
    pub(crate) fn settle(&self) {
        while self.watcher.pending() > 0 && self.watcher.turn() {}
        while self.watcher.turn() {}
    }

    /// Nothing was misused, nothing is in flight, and all memory was given back.
    pub(crate) fn assert_clean(&self) {
        self.settle();
        assert_eq!(self.device.misuses(), []);
        assert_eq!(self.runtime.counts().in_flight(), 0);
        assert_eq!(self.runtime.counts().leaked, 0);
        assert_eq!(self.device.memory_use(), MemoryUse::default());
    }
}

/// Polls once, waking nobody.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Work that runs for a while and keeps an owner meanwhile.
pub(crate) struct Busy<T>(pub(crate) Nanos, pub(crate) T);

impl<T: Send + 'static> DeviceOp for Busy<T> {
    type Device = SimDevice;
    type Pending = ();
    type Output = ();

    fn execute(self, submission: &mut Submission<SimDevice>) -> Result<(), Error> {
        submission.retain(self.1);
        submission.stream().raw().launch(self.0)
    }

    fn finish((): ()) -> Result<(), Error> {
        Ok(())
    }
}

device_op!([T] Busy<T> where T: Send + 'static);

/// A waker that counts its wakes.
#[derive(Default)]
pub(crate) struct Woken(pub(crate) AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

//! Ports and hosts that count what calls and late wakes take, so that a bound can be judged to the nanosecond.

use core::cell::Cell;
use core::task::Waker;

use wakeline_core::{
    Arming, CancelToken, Clock, CompletionLine, CompletionPort, Error, Idle, Instant, MemoryDescriptor,
    Nanos, Park, Status, Timer, Wake,
};
use wakeline_sim::{SimPort, VirtualHost};

/// A virtual host that notes the time which is nobody's waiting: that of calls, and of wakes that came late.
#[derive(Debug)]
pub struct Probe<'h> {
    host: &'h VirtualHost,
    injected: Cell<u64>,
    calls: Cell<u64>,
    /// Cancelled at the call of this number.
    cancel: Option<(u64, CancelToken)>,
    cancelled_at: Cell<Option<Instant>>,
}

impl<'h> Probe<'h> {
    /// Notes what happens on `host`; cancels the token at the call of the number given.
    pub fn new(host: &'h VirtualHost, cancel: Option<(u64, CancelToken)>) -> Self {
        Self { host, injected: Cell::new(0), calls: Cell::new(0), cancel, cancelled_at: Cell::new(None) }
    }

    /// Time that calls and late wakes have taken so far.
    pub fn injected(&self) -> Nanos {
        Nanos::from_nanos(self.injected.get())
    }

    /// When the token was cancelled.
    pub fn cancelled_at(&self) -> Option<Instant> {
        self.cancelled_at.get()
    }

    /// Runs a call whose time is noted.
    pub fn call<T>(&self, call: impl FnOnce() -> T) -> T {
        self.calls.set(self.calls.get() + 1);
        if let Some((number, token)) = &self.cancel
            && *number == self.calls.get()
        {
            token.cancel();
            self.cancelled_at.set(Some(self.now()));
        }
        let start = self.now();
        let result = call();
        self.add(self.now().since(start));
        result
    }

    fn add(&self, length: Nanos) {
        self.injected.set(self.injected.get().saturating_add(length.as_nanos()));
    }
}

impl Clock for Probe<'_> {
    fn now(&self) -> Instant {
        self.host.now()
    }
}

impl Timer for Probe<'_> {
    async fn sleep_until(&self, at: Instant) {
        self.idle(Some(at));
    }

    async fn yield_now(&self) {}
}

impl Idle for Probe<'_> {
    fn idle(&self, until: Option<Instant>) {
        let start = self.now();
        self.host.idle(until);
        self.add(self.now().since(until.unwrap_or(Instant::MAX).max(start)));
    }

    fn bell(&self) -> Waker {
        self.host.bell()
    }
}

impl Park for Probe<'_> {
    fn park(&self, line: Option<&CompletionLine>, until: Instant, mut ready: impl FnMut() -> bool) -> Wake {
        let start = self.now();
        let mut looked = start;
        let wake = self.host.park(line, until, || {
            looked = self.host.now();
            ready()
        });
        // Late is what came after the last look, and where that saw nothing, after the end.
        let due = if wake == Wake::Reached { looked } else { until.max(looked) };
        self.add(self.now().since(due));
        wake
    }
}

/// A port whose calls are noted.
#[derive(Debug)]
pub struct Probed<'p, 'h> {
    port: SimPort,
    probe: &'p Probe<'h>,
}

impl<'p, 'h> Probed<'p, 'h> {
    /// Notes the calls of `port`, a block excepted: that is waiting.
    pub fn new(port: SimPort, probe: &'p Probe<'h>) -> Self {
        Self { port, probe }
    }
}

impl CompletionPort for Probed<'_, '_> {
    type Line = <SimPort as CompletionPort>::Line;

    fn query(&mut self) -> Result<Status, Error> {
        let Self { port, probe } = self;
        probe.call(|| port.query())
    }

    fn block(&mut self, until: Option<Instant>) -> Result<Status, Error> {
        self.port.block(until)
    }

    fn arm(&mut self) -> Result<Arming, Error> {
        let Self { port, probe } = self;
        probe.call(|| port.arm())
    }

    fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>> {
        self.port.descriptor()
    }
}

//! Ports and hosts that count what calls and late wakes take, so that a bound can be judged to the nanosecond, and that end a
//! program whose waits go on and on without time passing.

use core::cell::{Cell, RefCell};
use core::task::Waker;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use wakeline_core::{
    Arming, CancelToken, Clock, CompletionLine, CompletionPort, Error, Idle, Instant, MemoryDescriptor,
    Nanos, Park, Status, Timer, WaitPlan, Wake,
};
use wakeline_sim::{SimPort, VirtualHost};

/// How often the clock may be read within [`STRETCH_NS`] of virtual time. Each step of a wait reads it, and each query takes time of its
/// own: what reads it more often stands still. (The most in 100,000 programs was 129.)
pub const READS_MAX: u32 = 1_000;

/// The stretches of virtual time in which readings are counted.
pub const STRETCH_NS: u64 = 1_000;

/// When a program is over at the latest, on its virtual time line, slow calls and jumps of the clock included: what goes on longer waits for what
/// never comes.
pub const PROGRAM_NS_MAX: u64 = 100_000_000_000;

/// Why [`within_bounds`] ended a program.
#[derive(Debug)]
struct Stuck(String);

/// Runs a program that reads the clock through a [`Probe`].
///
/// # Errors
///
/// It read the clock more than [`READS_MAX`] times within [`STRETCH_NS`], or past [`PROGRAM_NS_MAX`]: what then was under way.
pub fn within_bounds<T>(program: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(program)).map_err(|panic| match panic.downcast::<Stuck>() {
        Ok(stuck) => stuck.0,
        Err(other) => resume_unwind(other),
    })
}

/// A virtual host that notes the time which is nobody's waiting: that of calls, and of wakes that came late.
#[derive(Debug)]
pub struct Probe<'h> {
    host: &'h VirtualHost,
    injected: Cell<u64>,
    calls: Cell<u64>,
    /// Cancelled at the call of this number.
    cancel: Option<(u64, CancelToken)>,
    cancelled_at: Cell<Option<Instant>>,
    /// When the stretch began, and how often the clock was read in it.
    stretch: Cell<(Instant, u32)>,
    /// The waits that are under way: of which stream, of which number there, and how.
    under_way: RefCell<Vec<(usize, usize, WaitPlan)>>,
}

impl<'h> Probe<'h> {
    /// Notes what happens on `host`; cancels the token at the call of the number given.
    pub fn new(host: &'h VirtualHost, cancel: Option<(u64, CancelToken)>) -> Self {
        Self {
            host,
            injected: Cell::new(0),
            calls: Cell::new(0),
            cancel,
            cancelled_at: Cell::new(None),
            stretch: Cell::new((Instant::ORIGIN, 0)),
            under_way: RefCell::new(Vec::new()),
        }
    }

    /// Notes that a wait begins.
    pub fn begin(&self, stream: usize, number: usize, plan: &WaitPlan) {
        self.under_way.borrow_mut().push((stream, number, *plan));
    }

    /// Notes that the wait of this stream is over.
    pub fn end(&self, stream: usize) {
        self.under_way.borrow_mut().retain(|(other, ..)| *other != stream);
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

    /// Ends the program, as no error could: a wait that stands still asks nobody who might fail.
    #[cold]
    fn stuck(&self, now: Instant, reads: u32) -> ! {
        use core::fmt::Write;
        let (began, _) = self.stretch.get();
        let mut text =
            format!("no progress: {reads} readings of the clock from {began:?} to {now:?}; under way:");
        for (stream, number, plan) in self.under_way.borrow().iter() {
            // Into a string it cannot fail.
            let _ = write!(text, " stream {stream}, wait {number} by `{plan}`;");
        }
        resume_unwind(Box::new(Stuck(text)));
    }

    fn add(&self, length: Nanos) {
        self.injected.set(self.injected.get().saturating_add(length.as_nanos()));
    }
}

impl Clock for Probe<'_> {
    fn now(&self) -> Instant {
        let now = self.host.now();
        let (began, reads) = self.stretch.get();
        let reads = reads + 1;
        if now.since(began).as_nanos() >= STRETCH_NS {
            self.stretch.set((now, 0));
        } else {
            self.stretch.set((began, reads));
        }
        // Whoever reads the clock while it unwinds is not ended again.
        if (reads > READS_MAX || now.as_nanos() > PROGRAM_NS_MAX) && !std::thread::panicking() {
            self.stuck(now, reads);
        }
        now
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

#[cfg(test)]
mod tests {
    use super::*;
    use wakeline_sim::{SimConfig, SimDevice, VirtualTime};

    #[test]
    fn a_program_that_stands_still_ends_with_an_error_and_one_that_goes_on_does_not() {
        let device = SimDevice::new(VirtualTime::new(), SimConfig::default()).unwrap();
        let host = VirtualHost::new(&device);
        let probe = Probe::new(&host, None);
        let step = |ns| {
            probe.idle(Some(probe.now() + Nanos::from_nanos(ns)));
        };
        assert_eq!(within_bounds(|| (0..1_000).for_each(|_| step(STRETCH_NS / 10))), Ok(()));
        probe.begin(3, 7, &WaitPlan::poll());
        for ns in [0, 1] {
            let error = within_bounds(|| {
                loop {
                    step(ns);
                }
            })
            .unwrap_err();
            assert!(error.starts_with("no progress: "), "{error}");
            assert!(error.ends_with("stream 3, wait 7 by `poll`;"), "{error}");
        }
        probe.end(3);
        let error = within_bounds(|| {
            loop {
                step(PROGRAM_NS_MAX / 100);
            }
        })
        .unwrap_err();
        assert!(error.ends_with("under way:"), "{error}");
    }
}

//! The stage of the watcher's tests: simulated devices in real time, a port that tells of its calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use wakeline_core::{
    Arming, Clock, CompletionPort, ContextKey, Error, Instant, MemoryDescriptor, Nanos, Status,
};
use wakeline_sim::{RealTime, SimConfig, SimDevice, SimPort, SimStream};
use wakeline_std::{DEVICE_SPIN_US_MAX, DeviceThread, StdClock};

/// Real time on the standard library's clock.
pub type Real = RealTime<StdClock, fn(Nanos)>;
/// A device in real time.
pub type RealDevice = SimDevice<Real>;
/// A stream of it.
pub type RealStream = SimStream<Real>;
/// A point of it.
pub type RealPort = SimPort<Real>;

/// A plan of each kind.
pub const PLANS: [&str; 7] = [
    "block",
    "poll",
    "poll+predict:margin_us=100,min_sleep_us=50,max_sleep_us=5000,window=4",
    "flag:park_us=100,backstop_us=2000",
    "flag:park_us=100,backstop_us=2000+predict:margin_us=100,min_sleep_us=50,max_sleep_us=5000,window=4",
    "flag:park_us=100,backstop_us=2000+trust",
    "flag:park_us=100,backstop_us=2000+predict:margin_us=100,min_sleep_us=50,max_sleep_us=5000,window=4+trust",
];

/// A simulated device in real time and the thread that drives it.
#[derive(Debug)]
pub struct Stage {
    /// The clock of everything.
    pub clock: StdClock,
    /// The device.
    pub device: RealDevice,
    _thread: DeviceThread<RealDevice>,
}

impl Stage {
    /// A device set up like this.
    ///
    /// # Errors
    ///
    /// A value out of range, or the system refuses a thread.
    pub fn new(config: SimConfig) -> Result<Self, Error> {
        Self::spinning(config, DEVICE_SPIN_US_MAX)
    }

    /// The same, with a thread that spins for at most so long before something is due.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn spinning(config: SimConfig, spin_us_max: u32) -> Result<Self, Error> {
        let clock = StdClock::new();
        let sleep: fn(Nanos) = |length| std::thread::sleep(Duration::from_nanos(length.as_nanos()));
        let device = SimDevice::new(RealTime::new(clock, sleep), config)?;
        let thread = DeviceThread::spawn_spinning(clock, device.clone(), spin_us_max)?;
        Ok(Self { clock, device, _thread: thread })
    }

    /// Work that takes so long, on a stream of its own, and its point.
    ///
    /// # Errors
    ///
    /// The device's fault.
    pub fn work(&self, length: Nanos) -> Result<RealPort, Error> {
        let stream = self.device.stream()?;
        stream.launch(length)?;
        Ok(stream.point())
    }

    /// The moment so far from now.
    pub fn after(&self, length: Nanos) -> Instant {
        self.clock.now() + length
    }
}

/// What is done to a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    /// A status query.
    Query,
    /// The driver's own wait.
    Block,
    /// The arming.
    Arm,
    /// Its end.
    Drop,
}

/// A port that tells of its calls before it makes them.
pub struct HookPort {
    port: RealPort,
    calls: Arc<Calls>,
}

/// What is told of a port's calls.
pub struct Calls {
    counts: [AtomicUsize; 4],
    hook: Box<dyn Fn(Call) + Send + Sync>,
}

impl Calls {
    /// Runs `hook` in each call, on the thread that makes it.
    pub fn new(hook: impl Fn(Call) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { counts: Default::default(), hook: Box::new(hook) })
    }

    /// Only counts.
    pub fn counted() -> Arc<Self> {
        Self::new(|_| {})
    }

    /// How many there were of a kind.
    pub fn count(&self, call: Call) -> usize {
        self.counts[call as usize].load(Ordering::SeqCst)
    }

    fn tell(&self, call: Call) {
        self.counts[call as usize].fetch_add(1, Ordering::SeqCst);
        (self.hook)(call);
    }
}

impl core::fmt::Debug for Calls {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Calls").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl HookPort {
    /// `port`, which tells `calls`.
    pub fn new(port: RealPort, calls: &Arc<Calls>) -> Self {
        Self { port, calls: Arc::clone(calls) }
    }
}

impl core::fmt::Debug for HookPort {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HookPort").field("port", &self.port).finish_non_exhaustive()
    }
}

impl CompletionPort for HookPort {
    type Line = <RealPort as CompletionPort>::Line;

    fn query(&mut self) -> Result<Status, Error> {
        self.calls.tell(Call::Query);
        self.port.query()
    }

    fn block(&mut self, until: Option<Instant>) -> Result<Status, Error> {
        self.calls.tell(Call::Block);
        self.port.block(until)
    }

    fn arm(&mut self) -> Result<Arming, Error> {
        self.calls.tell(Call::Arm);
        self.port.arm()
    }

    fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>> {
        self.port.descriptor()
    }

    fn context(&self) -> Option<ContextKey> {
        self.port.context()
    }
}

impl Drop for HookPort {
    fn drop(&mut self) {
        self.calls.tell(Call::Drop);
    }
}

/// Waits until `yes` says so, for at most so long; whether it did.
pub fn eventually(within: Duration, mut yes: impl FnMut() -> bool) -> bool {
    let start = std::time::Instant::now();
    loop {
        if yes() {
            return true;
        }
        if start.elapsed() > within {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Runs `run` on a thread of its own.
///
/// # Panics
///
/// When it has not returned after so long, or panicked: a hang is a failure and not a test run that never ends.
#[expect(clippy::panic, reason = "for tests")]
pub fn within<T: Send + 'static>(limit: Duration, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _ = tell.send(run());
    });
    match told.recv_timeout(limit) {
        Ok(value) => value,
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("it has not returned after {limit:?}"),
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => panic!("it ended without a value"),
        },
    }
}

//! What the arms share: a played device on a thread of its own, and a tokio runtime on this one.

use core::task::Waker;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::runtime::{Builder, Runtime};
use wakeline::{
    Arming, Clock, CompletionPort, Error, ErrorCode, HostLine, Instant, MemoryDescriptor, Nanos, Slot,
    Status, Turn,
};
use wakeline_std::usage::thread_cpu_time;
use wakeline_std::{DeviceThread, ParkPolicy, StdClock, Watcher, WatcherHandle};
use wakeline_tokio::{TokioLocal, TokioWatcher};

const SLOT: Slot = Slot::ALL[0];

/// How long the device's thread watches the clock before a store is due, microseconds: its sleeps must not make the store late.
const DEVICE_SPIN_US: u32 = 1_000;

/// How many workers the `multi_thread` runtime has.
const WORKERS: usize = 4;

/// How much longer than its length the work takes at most, in thousandths of that: the steps of a decode loop spread so, and the end is
/// at no set place of a nap or slice.
const SPREAD_PERMILLE: u64 = 7;

/// What is called when a word has been stored, on the device's thread.
pub(crate) type Hook = Arc<dyn Fn() + Send + Sync>;

pub(crate) struct Stage {
    device: Arc<Device>,
    runtime: Runtime,
    workers: Runtime,
    /// Kept for its drop.
    _watcher: Watcher,
    /// The handle for each runtime, since what wake-ups take is learned by each.
    handles: [WatcherHandle; 3],
    local: TokioLocal<Arc<HostLine>>,
    /// Kept for its drop.
    _thread: DeviceThread<Playing>,
}

struct Device {
    clock: StdClock,
    line: Arc<HostLine>,
    /// When the next store is due, in nanoseconds; the highest value while none is.
    due_ns: AtomicU64,
    stored_at_ns: AtomicU64,
    hook: Mutex<Option<Hook>>,
    bell: OnceLock<Waker>,
    /// CPU time that its thread had used when it last turned.
    cpu_ns: AtomicU64,
    /// CPU time that launching has taken.
    launch_cpu_ns: AtomicU64,
}

impl Device {
    fn hook(&self) -> std::sync::MutexGuard<'_, Option<Hook>> {
        self.hook.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The device in the hands of its thread.
struct Playing(Arc<Device>);

impl Turn for Playing {
    fn turn(&self, now: Instant) -> Option<Instant> {
        let device = &self.0;
        let due = Instant::from_nanos(device.due_ns.load(Ordering::Acquire));
        if now < due {
            return (due < Instant::MAX).then_some(due);
        }
        let hook = device.hook().clone();
        device.due_ns.store(u64::MAX, Ordering::Relaxed);
        device.stored_at_ns.store(device.clock.now().as_nanos(), Ordering::Relaxed);
        device.line.store(SLOT, device.line.load(SLOT).next());
        if let Some(hook) = hook {
            hook();
        }
        device.cpu_ns.store(thread_cpu_time().unwrap_or(Nanos::ZERO).as_nanos(), Ordering::Relaxed);
        None
    }

    fn set_bell(&self, bell: Waker) {
        // It is set once, before the thread runs.
        let _ = self.0.bell.set(bell);
    }
}

impl Stage {
    pub(crate) fn new() -> Result<Self, Error> {
        let clock = StdClock::new();
        let device = Arc::new(Device {
            clock,
            line: Arc::default(),
            due_ns: AtomicU64::new(u64::MAX),
            stored_at_ns: AtomicU64::new(0),
            hook: Mutex::new(None),
            bell: OnceLock::new(),
            cpu_ns: AtomicU64::new(0),
            launch_cpu_ns: AtomicU64::new(0),
        });
        let thread = DeviceThread::spawn_spinning(clock, Playing(Arc::clone(&device)), DEVICE_SPIN_US)?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| {
            Error::new(ErrorCode::Backend, [&"wake", &"building the runtime", &error]).with_source(error)
        })?;
        let workers =
            Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().map_err(|error| {
                Error::new(ErrorCode::Backend, [&"wake", &"building the runtime", &error]).with_source(error)
            })?;
        let watcher = Watcher::new()?;
        let of_tokio = || TokioWatcher::new(&watcher).handle().clone();
        let handles = [watcher.handle(), of_tokio(), of_tokio()];
        let local = runtime.block_on(async { TokioLocal::new(clock, ParkPolicy::default()) })?;
        Ok(Self { device, runtime, workers, _watcher: watcher, handles, local, _thread: thread })
    }

    pub(crate) fn clock(&self) -> StdClock {
        self.device.clock
    }

    /// A `current_thread` runtime, for the measuring thread.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// A `multi_thread` runtime of four workers.
    pub(crate) fn workers(&self) -> &Runtime {
        &self.workers
    }

    /// The watcher's handle for a kind of place to wait in.
    pub(crate) fn handle(&self, place: Place) -> &WatcherHandle {
        &self.handles[place as usize]
    }

    /// What playing the device has used so far: its thread, and waking that for each launch.
    pub(crate) fn device_cpu(&self) -> Nanos {
        let Device { cpu_ns, launch_cpu_ns, .. } = &*self.device;
        Nanos::from_nanos(cpu_ns.load(Ordering::Relaxed) + launch_cpu_ns.load(Ordering::Relaxed))
    }

    /// A lender of work for a task of another thread.
    pub(crate) fn launcher(&self) -> Launcher {
        Launcher(Arc::clone(&self.device))
    }

    pub(crate) fn local(&self) -> &TokioLocal<Arc<HostLine>> {
        &self.local
    }

    /// Has the device's thread call `hook` right after each store, until what is returned is dropped.
    pub(crate) fn hook(&self, hook: Hook) -> impl Drop {
        *self.device.hook() = Some(hook);
        Hooked(Arc::clone(&self.device))
    }

    /// As [`Launcher::launch`].
    pub(crate) fn launch(&self, length: Nanos) -> Point {
        self.launcher().launch(length)
    }
}

/// Where a task waits.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Thread,
    CurrentThread,
    Workers,
}

/// Launches work.
#[derive(Clone)]
pub(crate) struct Launcher(Arc<Device>);

impl Launcher {
    /// Has the word stored after `length`, or a little more. One at a time.
    pub(crate) fn launch(&self, length: Nanos) -> Point {
        let device = &self.0;
        let cpu = || thread_cpu_time().unwrap_or(Nanos::ZERO);
        let before = cpu();
        let seq = device.line.load(SLOT).next();
        let spread = length.as_nanos() * SPREAD_PERMILLE / 1_000;
        let due = device.clock.now() + length + Nanos::from_nanos(seq.get() * 37_003 % spread.max(1));
        device.due_ns.store(due.as_nanos(), Ordering::Release);
        if let Some(bell) = device.bell.get() {
            bell.wake_by_ref();
        }
        device.launch_cpu_ns.fetch_add((cpu() - before).as_nanos(), Ordering::Relaxed);
        let word = MemoryDescriptor::new(Arc::clone(&device.line), SLOT, seq);
        Point { device: Arc::clone(device), word, due }
    }
}

struct Hooked(Arc<Device>);

impl Drop for Hooked {
    fn drop(&mut self) {
        *self.0.hook() = None;
    }
}

/// The work that was launched last.
#[derive(Clone)]
pub(crate) struct Point {
    device: Arc<Device>,
    word: MemoryDescriptor<Arc<HostLine>>,
    due: Instant,
}

impl Point {
    /// When its word is to be stored.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// When its word was stored. To be asked once the word is reached.
    pub(crate) fn stored_at(&self) -> Instant {
        // The store of the word published it; who was woken otherwise saw the word through that.
        let reached = self.word.reached();
        debug_assert!(reached, "asked too early");
        Instant::from_nanos(self.device.stored_at_ns.load(Ordering::Relaxed))
    }
}

impl CompletionPort for Point {
    type Line = Arc<HostLine>;

    fn query(&mut self) -> Result<Status, Error> {
        Ok(if self.word.reached() { Status::Done } else { Status::Pending })
    }

    fn block(&mut self, _: Option<Instant>) -> Result<Status, Error> {
        Err(Error::new(ErrorCode::BlockUnbounded, [&"the played device"]))
    }

    fn arm(&mut self) -> Result<Arming, Error> {
        Ok(Arming::Armed) // the device stores the word by itself
    }

    fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>> {
        Some(&self.word)
    }
}

//! A GPU: kernels of given lengths that tell when they ended, and the driver's own ways of waiting for them.

use core::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wakeline_core::{
    Arming, Clock, CompletionPort, ContextKey, Error, ErrorCode, Instant, MemoryDescriptor, Nanos, Status,
};
use wakeline_cuda::kernels::{Kernels, TimedSteps};
use wakeline_cuda::{
    Calls, Caps, CuStream, CudaContext, CudaLine, CudaPort, STAMPS, Schedule, TimedPort, TimedStream,
};
use wakeline_nvml::Gpu as Named;
use wakeline_std::StdClock;

use super::{About, Device, RawWay};
use crate::Quantiles;
use crate::gpu::{CudaMachine, Failure, Gpu};
use crate::ops::{Bench, Operations};

/// How many streams many flights are spread over, at least and at most: devices run about 128 grids at a time.
const LANES_LEAST: usize = 64;
const LANES_MAX: usize = 256;

/// How long a flight's end may be unknown once somebody knows that it ended.
const LANDS_WITHIN: Nanos = Nanos::from_millis(1_000);

/// A GPU and what runs on it.
#[derive(Debug)]
pub struct CudaBench {
    gpu: Gpu,
    clock: StdClock,
    context: CudaContext,
    steps: TimedSteps<StdClock>,
    kernels: Kernels,
    /// Where it can be had. Made with the rest: its threads are to run on other processors than the one that waits.
    operations: Option<Bench<CudaMachine>>,
}

impl CudaBench {
    /// The first GPU, by the driver at `driver` or else the system's.
    ///
    /// # Errors
    ///
    /// [`Failure::NoGpu`] where there is none.
    pub fn open(driver: Option<&Path>) -> Result<Self, Failure> {
        let gpu = Gpu::open(driver)?;
        let stream = gpu.context()?.stream()?;
        Ok(Self::on(gpu, &stream)?)
    }

    /// The same with work on a stream of this GPU that others have made.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn on(gpu: Gpu, stream: &CuStream) -> Result<Self, Error> {
        let (clock, context) = (StdClock::new(), stream.context());
        let steps = TimedSteps::new(stream, clock)?;
        let kernels = Kernels::load(&context)?;
        let operations = CudaMachine::new(&context).and_then(Bench::new).ok();
        Ok(Self { gpu, clock, context, steps, kernels, operations })
    }

    /// How the management library may know this GPU, best first.
    pub fn names(&self) -> Vec<Named> {
        let device = self.gpu.cuda().devices().next().and_then(Result::ok);
        let uuid = device.and_then(|device| device.uuid().ok()).map(|uuid| Named::Uuid(uuid.to_string()));
        uuid.into_iter().chain([Named::Index(0)]).collect()
    }

    /// Its primary context, which other libraries use as well.
    pub const fn context(&self) -> &CudaContext {
        &self.context
    }

    /// The stream that work is launched on.
    pub fn steps(&self) -> &TimedSteps<StdClock> {
        &self.steps
    }
}

/// The release of the driver, which CUDA does not tell: `580.159.03`.
fn release() -> Option<String> {
    let text = std::fs::read_to_string("/sys/module/nvidia/version").ok()?;
    Some(text.trim().to_owned())
}

impl Device for CudaBench {
    type Port = CudaPort;
    type Launched = Instant;
    type Lane = Lane;
    type Flight = Flight;
    type Landed = Arc<AtomicU64>;

    const KIND: &'static str = "cuda";

    fn about(&self) -> About {
        let cuda = format!("CUDA {}, completion by {}", self.gpu.cuda().version(), self.context.completion());
        let driver = release().map_or_else(|| cuda.clone(), |release| format!("{release}, {cuda}"));
        let device = self.gpu.cuda().devices().next().and_then(Result::ok);
        About {
            gpu: device.and_then(|device| device.name().ok()),
            driver: Some(driver),
            uncertainty: Some(self.steps.uncertainty()),
        }
    }

    fn clock(&self) -> StdClock {
        self.clock
    }

    fn own_cpu(&self) -> Nanos {
        Nanos::ZERO
    }

    fn tells_ends_freely(&self) -> bool {
        // It runs a kernel to compare the clocks.
        false
    }

    fn launch(&self, length: Nanos) -> Result<Self::Launched, Error> {
        self.steps.launch(length, false)
    }

    fn port(&self) -> Result<Self::Port, Error> {
        self.steps.stream().port()
    }

    fn ended(&self, launched: &Self::Launched, _known: Instant) -> Result<Instant, Error> {
        self.steps.ended(*launched)
    }

    fn operations(&self) -> Option<&dyn Operations> {
        self.operations.as_ref().map(|bench| bench as &dyn Operations)
    }

    fn own_lateness(&self) -> Option<Quantiles> {
        None
    }

    fn ways(&self) -> Result<Vec<Box<dyn RawWay + '_>>, Error> {
        let caps = self.gpu.cuda().caps();
        let calls = Rc::new(Calls::blocking(&self.context, self.steps.stream())?);
        let mut ways: Vec<Box<dyn RawWay + '_>> = Vec::new();
        if caps.contains(Caps::SYNCHRONIZE) {
            let scheduled = [
                ("sync-spin", Schedule::Spin),
                ("sync-yield", Schedule::Yield),
                ("sync-block", Schedule::Block),
            ];
            let flags = caps.contains(Caps::CONTEXT_FLAGS);
            for (name, schedule) in scheduled.into_iter().filter(|_| flags) {
                let before = Cell::new(None);
                ways.push(Box::new(Synchronize { calls: Rc::clone(&calls), name, schedule, before }));
            }
            ways.push(Box::new(BlockingEvent { calls: Rc::clone(&calls) }));
        }
        #[cfg(target_os = "linux")]
        if caps.contains(Caps::HOST_FUNCTIONS) {
            ways.push(Box::new(host_function::HostFunction::new(calls)?));
        }
        Ok(ways)
    }

    fn lanes(&self, flights: usize) -> Result<Vec<Self::Lane>, Error> {
        let lanes = flights.div_ceil(STAMPS).max(LANES_LEAST.min(flights)).min(LANES_MAX);
        let lane = || {
            let timed = TimedStream::new(&self.context.stream()?, self.clock)?;
            Ok(Lane { timed })
        };
        (0..lanes).map(|_| lane()).collect()
    }

    fn fly(&self, lane: &Self::Lane, end: Instant) -> Result<(Self::Flight, Self::Landed), Error> {
        // Lanes share the device's queues, of which there are few, so a kernel may begin late; but those before it end before it is to end.
        self.kernels.occupy_until(lane.timed.stream(), lane.timed.on_device(end))?;
        let mut port = lane.timed.port()?;
        // The next flight of the lane is enqueued before anybody waits for this one.
        port.arm()?;
        let landed = Arc::new(AtomicU64::new(NOT_YET));
        Ok((Flight { port, landed: Arc::clone(&landed) }, landed))
    }

    fn landed(&self, landed: &Self::Landed, _known: Instant) -> Result<Instant, Error> {
        // The watcher may still be about to let go of the port.
        let until = self.clock.now() + LANDS_WITHIN;
        loop {
            match landed.load(Ordering::Acquire) {
                NOT_YET if self.clock.now() < until => std::thread::yield_now(),
                NOT_YET => {
                    let what = [&"cuda" as &dyn core::fmt::Display, &"telling an end", &"no stamp was seen"];
                    return Err(Error::new(ErrorCode::Backend, what));
                }
                ns => return Ok(Instant::from_nanos(ns)),
            }
        }
    }
}

/// What stands for an end that nobody has looked at yet.
const NOT_YET: u64 = 0;

/// A stream whose points are stamped.
#[derive(Debug)]
pub struct Lane {
    timed: TimedStream<StdClock>,
}

/// The point behind a flight, which leaves behind when it ended.
#[derive(Debug)]
pub struct Flight {
    port: TimedPort<StdClock>,
    landed: Arc<AtomicU64>,
}

impl CompletionPort for Flight {
    type Line = CudaLine;

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
        let ended = self.port.ended()?;
        self.landed.store(ended.as_nanos(), Ordering::Release);
        Some(ended)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.landed.load(Ordering::Relaxed) == NOT_YET {
            let _ = self.ended();
        }
    }
}

/// `cuStreamSynchronize`, waiting as a context's flag says.
struct Synchronize<'c> {
    calls: Rc<Calls<'c>>,
    name: &'static str,
    schedule: Schedule,
    before: Cell<Option<Schedule>>,
}

impl RawWay for Synchronize<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn begin(&self) -> Result<(), Error> {
        self.before.set(Some(self.calls.schedule(self.schedule)?));
        Ok(())
    }

    fn wait(&self) -> Result<(), Error> {
        Ok(self.calls.synchronize_stream()?)
    }

    fn end(&self) -> Result<(), Error> {
        match self.before.take() {
            Some(before) => Ok(self.calls.schedule(before).map(drop)?),
            None => Ok(()),
        }
    }
}

/// An event that is recorded behind the work, and slept for until the device's interrupt.
struct BlockingEvent<'c> {
    calls: Rc<Calls<'c>>,
}

impl RawWay for BlockingEvent<'_> {
    fn name(&self) -> &'static str {
        "event-block"
    }

    fn wait(&self) -> Result<(), Error> {
        self.calls.record()?;
        Ok(self.calls.synchronize_event()?)
    }
}

#[cfg(target_os = "linux")]
mod host_function {
    //! A function that the driver's thread calls behind the work, and an eventfd by which it wakes the thread that waits.

    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
    use rustix::io::{Errno, read, write};

    use super::{Calls, Error, ErrorCode, RawWay, Rc};

    /// How long the function may take to be called: after a fault it never is.
    const SECONDS_MAX: i64 = 20;

    pub(super) struct HostFunction<'c> {
        calls: Rc<Calls<'c>>,
        event: Arc<OwnedFd>,
    }

    fn failed(what: &'static str, error: Errno) -> Error {
        Error::new(ErrorCode::Backend, [&"the host function", &what, &error])
    }

    impl<'c> HostFunction<'c> {
        pub(super) fn new(calls: Rc<Calls<'c>>) -> Result<Self, Error> {
            let event =
                eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| failed("making an eventfd", error))?;
            Ok(Self { calls, event: Arc::new(event) })
        }
    }

    impl RawWay for HostFunction<'_> {
        fn name(&self) -> &'static str {
            "host-fn"
        }

        fn has_threads(&self) -> bool {
            // The driver's, which calls the function.
            true
        }

        fn wait(&self) -> Result<(), Error> {
            let event = Arc::clone(&self.event);
            self.calls.call_host(move || {
                // It takes 2^64 - 2 of these until one blocks.
                let _ = write(&*event, &1_u64.to_ne_bytes());
            })?;
            let limit = Timespec { tv_sec: SECONDS_MAX, tv_nsec: 0 };
            let mut waited = [PollFd::new(&*self.event, PollFlags::IN)];
            let ready = poll(&mut waited, Some(&limit)).map_err(|error| failed("waiting for it", error))?;
            if ready == 0 {
                return Err(failed("waiting for it", Errno::TIMEDOUT));
            }
            let mut count = [0_u8; 8];
            read(&*self.event, &mut count).map_err(|error| failed("reading the eventfd", error))?;
            Ok(())
        }
    }
}

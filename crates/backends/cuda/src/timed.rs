//! Exact residuals: points behind which the device stamps the time.
//!
//! A wait that slept past the end of its work knows only that it was over by then. A kernel of one thread, launched behind the work, stores
//! the device's time in host memory; read on the host's time line it tells when the work ended.
//!
//! The two clocks are never compared by a measurement of its own. Every stamp bounds their difference from both sides: it was made after its
//! kernel was launched, and before its word was seen. The bounds of all points are kept, and widen at the rate at which clocks may drift.

use core::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use wakeline_core::{
    Arming, Clock, CompletionPort, ContextKey, Error, Instant, MemoryDescriptor, Nanos, Seq, Status,
};

use crate::clock::ClockOffset;
use crate::kernels;
use crate::wait::{CuStream, CudaLine, CudaPort, Function, Module};
use crate::words::StreamWords;

/// How many points of a timed stream may be outstanding and still know when they ended.
pub const STAMPS: usize = 16;

/// How many points bound the clocks' difference before the first is awaited.
const WARM_UPS: usize = 8;

/// How long one of these may take at most, looks at a word.
const WARM_UP_LOOKS_MAX: u32 = 50_000_000;

/// A stream whose points know when they ended.
///
/// Each point costs one more launch: about 4 us of the calling thread and 2 us of the stream on an H200.
///
/// ```no_run
/// use wakeline_cuda::{Cuda, TimedStream};
/// use wakeline_core::CompletionPort;
/// # #[derive(Clone)] struct StdClock;
/// # impl wakeline_core::Clock for StdClock { fn now(&self) -> wakeline_core::Instant { wakeline_core::Instant::ORIGIN } }
/// let context = Cuda::load()?.context(0)?;
/// let stream = TimedStream::new(&context.stream()?, StdClock)?; // the clock of the host that waits
/// // .. launch work on `stream.stream().raw()` ..
/// let mut port = stream.port()?;
/// // .. await it ..
/// println!("ended at {:?}, to within {}", port.ended(), stream.uncertainty());
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub struct TimedStream<C> {
    inner: Arc<Inner<C>>,
}

impl<C> Clone for TimedStream<C> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

struct Inner<C> {
    /// Where stamps are stored.
    cells: StreamWords<STAMPS>,
    /// Counts the points that have used each cell.
    uses: [AtomicU64; STAMPS],
    next: Mutex<usize>,
    stamp: Function,
    clock: C,
    apart: Mutex<ClockOffset>,
}

impl<C: Clock> TimedStream<C> {
    /// Has points of `stream` stamped, for waits on the time line of `clock`. Loads a kernel, and waits for a few stamps on an idle stream: some tens of
    /// microseconds each.
    ///
    /// # Errors
    ///
    /// As [`Module::from_ptx`] and [`CuStream::port`](wakeline_mapped::Stream::port).
    pub fn new(stream: &CuStream, clock: C) -> Result<Self, Error> {
        let context = stream.context();
        let stamp = Module::from_ptx(&context, kernels::PTX)?.kept().function(kernels::STAMP)?;
        let cells = StreamWords::new(stream)?;
        let uses = [const { AtomicU64::new(0) }; STAMPS];
        let (next, apart) = (Mutex::new(0), Mutex::new(ClockOffset::UNKNOWN));
        let timed = Self { inner: Arc::new(Inner { cells, uses, next, stamp, clock, apart }) };
        for _ in 0..WARM_UPS {
            let mut port = timed.port()?;
            let mut looks = 0;
            while port.query()? == Status::Pending && looks < WARM_UP_LOOKS_MAX {
                looks += 1;
            }
            let _ = port.ended();
        }
        Ok(timed)
    }

    /// The point that all work enqueued so far is in front of, and a stamp behind that work.
    ///
    /// # Errors
    ///
    /// As [`CuStream::port`](wakeline_mapped::Stream::port) and [`Function::launch`].
    pub fn port(&self) -> Result<TimedPort<C>, Error> {
        let inner = &self.inner;
        // Before anything is enqueued: a stamp in a capture, or on another thread's stream, would be nobody's.
        let stream = self.stream();
        stream.ready()?;
        // Of several threads each has its own cell; they may launch in another order.
        let cell = {
            let mut next = inner.next.lock().unwrap_or_else(PoisonError::into_inner);
            let cell = *next;
            *next = (cell + 1) % STAMPS;
            cell
        };
        let use_number = inner.uses[cell].fetch_add(1, Ordering::AcqRel) + 1;
        let before = inner.stamp_in(cell);
        let launched = inner.clock.now();
        if let Some(words) = inner.cells.all() {
            let address = words[cell].address();
            // SAFETY: the stream is alive and of the function's context; the kernel takes one address and stores eight bytes there, in a word
            // that is given back behind it.
            unsafe { inner.stamp.launch(stream.raw(), 1, 1, 0, [&address]) }?;
        }
        let port = inner.cells.doubt(stream.port())?;
        Ok(TimedPort { port, timed: self.clone(), cell, use_number, before, launched })
    }

    /// The stream that it is.
    pub fn stream(&self) -> &CuStream {
        self.inner.cells.stream()
    }

    /// What the device's clock shows at `at`, in nanoseconds: to within [`uncertainty`](Self::uncertainty), and less well the longer after its last point that is.
    pub fn on_device(&self, at: Instant) -> u64 {
        self.inner.apart.lock().unwrap_or_else(PoisonError::into_inner).on_device(at)
    }

    /// To within how much the ends of its points are known by now, either way.
    pub fn uncertainty(&self) -> Nanos {
        let apart = *self.inner.apart.lock().unwrap_or_else(PoisonError::into_inner);
        apart.uncertainty()
    }
}

impl<C> Inner<C> {
    fn stamp_in(&self, cell: usize) -> Seq {
        self.cells.all().map_or(Seq::ZERO, |words| words[cell].reads())
    }
}

impl<C> fmt::Debug for TimedStream<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedStream").field("stream", self.inner.cells.stream()).finish_non_exhaustive()
    }
}

/// One awaited point of a [`TimedStream`]: a [`CudaPort`] that knows when its work ended.
pub struct TimedPort<C> {
    port: CudaPort,
    timed: TimedStream<C>,
    cell: usize,
    use_number: u64,
    /// What the cell read before.
    before: Seq,
    launched: Instant,
}

impl<C> fmt::Debug for TimedPort<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedPort").field("port", &self.port).finish_non_exhaustive()
    }
}

impl<C: Clock> CompletionPort for TimedPort<C> {
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

    fn warm(&mut self) {
        self.port.warm();
    }

    /// `None` too where [`STAMPS`] later points of the stream have taken its place.
    fn ended(&self) -> Option<Instant> {
        let inner = &self.timed.inner;
        let stamp = inner.stamp_in(self.cell);
        if stamp == self.before || inner.uses[self.cell].load(Ordering::Acquire) != self.use_number {
            return None;
        }
        let mut apart = inner.apart.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = inner.clock.now();
        *apart = apart.bounded(stamp.get(), self.launched, seen);
        // A clock that goes backwards is none to tell the time by.
        (self.launched <= seen).then(|| apart.on_host(stamp.get()).clamp(self.launched, seen))
    }
}

//! Steps of work of given lengths, which tell when they ended: a stand-in for a model's steps.

use core::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wakeline_core::{Clock, CompletionPort, Error, Instant, Nanos, Seq};

use crate::clock::ClockOffset;
use crate::kernels;
use crate::wait::{CuStream, CudaKernelWord, Function, Graph, Module};
use crate::words::StreamWords;

/// How many steps of no length are run to compare the clocks before the first.
const WARM_UPS: usize = 16;

/// How long one may take, in looks at its word, before the driver is asked what is wrong.
const LOOKS_MAX: u32 = 1_000_000;

/// Steps of given lengths on a stream, one at a time, launched directly or as a graph. Clones are handles of the same.
///
/// ```no_run
/// use wakeline_core::Nanos;
/// use wakeline_cuda::{Cuda, kernels::TimedSteps};
/// # #[derive(Clone)] struct StdClock;
/// # impl wakeline_core::Clock for StdClock { fn now(&self) -> wakeline_core::Instant { wakeline_core::Instant::ORIGIN } }
/// let context = Cuda::load()?.context(0)?;
/// let steps = TimedSteps::new(&context.stream()?, StdClock)?;
/// let launched = steps.launch(Nanos::from_millis(5), true)?;
/// let port = steps.stream().port()?;
/// // .. await the port ..
/// println!("ended at {:?}", steps.ended(launched)?);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub struct TimedSteps<C> {
    inner: Arc<Inner<C>>,
}

struct Inner<C> {
    /// Dropped before what it uses.
    graph: Mutex<Graph<Function>>,
    /// How long the next step is, and when the last one ended.
    words: StreamWords<2>,
    kernel: Function,
    storing: Function,
    clock: C,
    offset: Mutex<ClockOffset>,
}

impl<C> Clone for TimedSteps<C> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<C: Clock> TimedSteps<C> {
    /// Loads the kernel, captures the graph, and compares the device's clock with `clock`, the host's that waits.
    ///
    /// # Errors
    ///
    /// As [`Module::from_ptx`], [`Graph::capture`] and [`Function::launch`].
    pub fn new(stream: &CuStream, clock: C) -> Result<Self, Error> {
        let context = stream.context();
        let module = Module::from_ptx(&context, kernels::PTX)?.kept();
        let kernel = module.function(kernels::TIMED_STEP)?;
        let storing = module.function(kernels::TIMED_STORE)?;
        let words = StreamWords::new(stream)?;
        let graph = Graph::capture(stream, kernel.clone(), |kernel| launch(kernel, &words))?;
        let (graph, offset) = (Mutex::new(graph), Mutex::new(ClockOffset::UNKNOWN));
        let steps = Self { inner: Arc::new(Inner { graph, words, kernel, storing, clock, offset }) };
        for _ in 0..WARM_UPS {
            steps.compare_clocks()?;
        }
        Ok(steps)
    }

    /// Launches a step; says when. The one before it has ended: else that one's length may be this one's.
    ///
    /// # Errors
    ///
    /// As [`Function::launch`].
    pub fn launch(&self, length: Nanos, graphed: bool) -> Result<Instant, Error> {
        let inner = &self.inner;
        let launched = inner.set(length)?;
        if graphed {
            // SAFETY: the stream is alive and of the context of the capture; the words that the graph uses are given back behind it.
            unsafe { lock(&inner.graph).launch(self.stream().raw()) }?;
        } else {
            launch(&inner.kernel, &inner.words)?;
        }
        inner.words.look()?;
        Ok(launched)
    }

    /// As [`launch`](Self::launch), of a step that stores `number` into `word` itself when it ends: a point inside a kernel.
    ///
    /// # Errors
    ///
    /// As [`launch`](Self::launch); [`ForeignStream`](wakeline_core::ErrorCode::ForeignStream) for a word of another context.
    pub fn launch_storing(
        &self,
        length: Nanos,
        word: &CudaKernelWord,
        number: Seq,
    ) -> Result<Instant, Error> {
        let inner = &self.inner;
        word.belongs_with(self.stream())?;
        let launched = inner.set(length)?;
        let Some((length, end)) = addresses(&inner.words) else { return Ok(launched) };
        let (address, number) = (word.address(), number.get());
        // SAFETY: as for `launch`, and the number is stored into a word that is given to others only when its owner has said, by `retire`, that no
        // kernel stores into it.
        unsafe { inner.storing.launch(self.stream().raw(), 1, 1, 0, [&length, &end, &address, &number]) }?;
        inner.words.look()?;
        Ok(launched)
    }

    /// When the step that was launched at `launched` ended, on the host's time line. It has ended.
    ///
    /// Runs a step of no length to compare the clocks: some 10 us.
    ///
    /// # Errors
    ///
    /// As [`launch`](Self::launch), or the device's fault.
    pub fn ended(&self, launched: Instant) -> Result<Instant, Error> {
        let stamp = self.inner.stamp();
        self.learn(stamp, launched);
        self.compare_clocks()?;
        Ok(lock(&self.inner.offset).on_host(stamp).max(launched))
    }

    /// To within how much ends are known.
    pub fn uncertainty(&self) -> Nanos {
        lock(&self.inner.offset).uncertainty()
    }

    /// The stream that they run on.
    pub fn stream(&self) -> &CuStream {
        self.inner.words.stream()
    }

    fn compare_clocks(&self) -> Result<(), Error> {
        let before = self.inner.stamp();
        let launched = self.launch(Nanos::ZERO, false)?;
        let Some([_, end]) = self.inner.words.all() else { return Ok(()) };
        // Looked at without the system call of `reads`, which would widen what is known of the clocks.
        let end = end.word(Seq::ZERO);
        let mut looks = 0;
        loop {
            let stamp = end.word().get();
            if stamp != before {
                self.learn(stamp, launched);
                return Ok(());
            }
            looks += 1;
            if looks > LOOKS_MAX {
                // Ends, well or not; should the clock have shown the same twice, this is no comparison.
                let mut port = self.stream().port()?;
                while port.block(None)? == wakeline_core::Status::Pending {}
                return Ok(());
            }
            core::hint::spin_loop();
        }
    }

    fn learn(&self, stamp: u64, launched: Instant) {
        let seen = self.inner.clock.now();
        let mut offset = lock(&self.inner.offset);
        *offset = offset.bounded(stamp, launched, seen);
    }
}

impl<C> Inner<C> {
    fn stamp(&self) -> u64 {
        self.words.all().map_or(0, |[_, end]| end.reads().get())
    }
}

impl<C: Clock> Inner<C> {
    /// Says how long the next step is, before its launch; when that was.
    fn set(&self, length: Nanos) -> Result<Instant, Error> {
        self.words.stream().ready()?;
        if let Some([word, _]) = self.words.all() {
            word.set(Seq::new(length.as_nanos()));
        }
        Ok(self.clock.now())
    }
}

/// Where a kernel reads how long it takes, and stores when it ended.
fn addresses(words: &StreamWords<2>) -> Option<(u64, u64)> {
    words.all().map(|[length, end]| (length.address(), end.address()))
}

fn launch(kernel: &Function, words: &StreamWords<2>) -> Result<(), Error> {
    let Some((length, end)) = addresses(words) else { return Ok(()) };
    // SAFETY: the stream is alive and of the kernel's context; the kernel takes two addresses, reads a word at one and stores one at the other,
    // both of which are given back behind it.
    unsafe { kernel.launch(words.stream().raw(), 1, 1, 0, [&length, &end]) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<C> fmt::Debug for TimedSteps<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedSteps").field("stream", self.inner.words.stream()).finish_non_exhaustive()
    }
}

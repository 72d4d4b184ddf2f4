//! The driver's calls that waits are made of, one by one: for measuring what each costs, and for comparing a wait of ours with the
//! driver's own. No wait needs them.

use core::ffi::{c_uint, c_void};
use core::fmt;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use wakeline_core::{Error, Status};
use wakeline_mapped::driver::{LineDriver, RawEvent, WorkDriver};
use wakeline_mapped::error::CallError;
use wakeline_mapped::{Bound, Graph};

use crate::cuda::Cuda;
use crate::sys::{
    CU_CTX_SCHED_AUTO, CU_CTX_SCHED_BLOCKING_SYNC, CU_CTX_SCHED_MASK, CU_CTX_SCHED_SPIN, CU_CTX_SCHED_YIELD,
    CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING,
};
use crate::wait::{CuStream, CudaContext, HostBuffer};

/// Single calls of the driver about one stream, with its context bound on this thread for as long as the value lives.
///
/// A failure is the call's alone: it breaks the context for no wait, unlike one that a wait meets.
///
/// ```no_run
/// use wakeline_cuda::{Calls, Cuda};
/// let context = Cuda::load()?.context(0)?;
/// let calls = Calls::new(&context, &context.stream()?)?;
/// let start = std::time::Instant::now();
/// println!("{:?} after {:?}", calls.query_stream()?, start.elapsed());
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub struct Calls<'c> {
    stream: CuStream,
    event: RawEvent,
    context: &'c CudaContext,
    /// What [`store`](Self::store) stores into.
    word: Option<HostBuffer>,
    /// What [`launch_graph`](Self::launch_graph) launches.
    graph: Option<Graph<Cuda>>,
    /// Kept for its drop.
    _bound: Bound<'c, Cuda>,
}

impl<'c> Calls<'c> {
    /// Binds `context`, which `stream` is of, and makes an event.
    ///
    /// # Errors
    ///
    /// - [`ForeignStream`](wakeline_core::ErrorCode::ForeignStream): the stream is of another context.
    /// - The context's fault, or whatever made a call fail.
    pub fn new(context: &'c CudaContext, stream: &CuStream) -> Result<Self, Error> {
        let (own, other) = (context.raw(), stream.context().raw());
        if own != other {
            let code = wakeline_core::ErrorCode::ForeignStream;
            return Err(Error::new(code, [&crate::error::BACKEND, &stream.raw(), &other, &own]));
        }
        let bound = context.bind()?;
        // SAFETY: the context is bound.
        let event = unsafe { context.driver().event_create() }?;
        Ok(Self { stream: stream.clone(), event, context, word: None, graph: None, _bound: bound })
    }

    /// The same with an event for which [`synchronize_event`](Self::synchronize_event) sleeps until the device's interrupt.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn blocking(context: &'c CudaContext, stream: &CuStream) -> Result<Self, Error> {
        let mut calls = Self::new(context, stream)?;
        let mut event = ptr::null_mut();
        let create = calls.cuda().symbols().cuEventCreate;
        // SAFETY: the context is bound, and `event` is a handle's room.
        let status = unsafe { create(&raw mut event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING) };
        calls.cuda().check("cuEventCreate", status)?;
        let plain = core::mem::replace(&mut calls.event, RawEvent::from_ptr(event));
        // SAFETY: the context is bound, and the event was made by `new` and is destroyed once.
        unsafe { calls.cuda().event_destroy(plain) }?;
        Ok(calls)
    }

    fn cuda(&self) -> &Cuda {
        self.context.driver()
    }

    /// Has the event stand for all that was enqueued so far.
    ///
    /// # Errors
    ///
    /// What the driver said.
    pub fn record(&self) -> Result<(), CallError> {
        // SAFETY: the context is bound, the event is its own and the stream kept.
        unsafe { self.cuda().event_record(self.event, self.stream.raw()) }
    }

    /// Has the stream store this into a word of the host's memory behind all that was enqueued so far. The first call makes room for it.
    ///
    /// # Errors
    ///
    /// What the driver said, or there is no memory.
    pub fn store(&mut self, value: u64) -> Result<(), Error> {
        let word = match &mut self.word {
            Some(word) => word,
            none => none.insert(HostBuffer::new(self.context, size_of::<u64>())?),
        };
        // SAFETY: the context is bound and the stream kept. The word is our own, and freed when the stream is done, or not at all.
        let stored = unsafe { self.context.driver().store(self.stream.raw(), word.address(), value) };
        stored.map_err(|error| self.context.told(error))
    }

    /// What the word reads: 0 before the first [`store`](Self::store), and `u64::MAX` where there is no room for it yet.
    pub fn stored(&self) -> u64 {
        let Some(word) = &self.word else { return u64::MAX };
        // SAFETY: the word is our own, aligned to a page, and written by nothing but stores of eight bytes.
        unsafe { AtomicU64::from_ptr(word.start().cast()) }.load(Ordering::Acquire)
    }

    /// Captures what `work` enqueues on the stream, for [`launch_graph`](Self::launch_graph).
    ///
    /// # Errors
    ///
    /// As [`Graph::capture`]; and where a launch of the one before may be under way whose end cannot be waited for.
    pub fn capture(&mut self, work: impl FnOnce(&CuStream) -> Result<(), Error>) -> Result<(), Error> {
        if self.graph.is_some() {
            self.synchronize_stream()?;
        }
        self.graph = Some(Graph::capture(&self.stream, (), |()| work(&self.stream))?);
        Ok(())
    }

    /// Launches what was captured: `cuGraphLaunch`. Nothing where nothing was.
    ///
    /// # Errors
    ///
    /// What the driver said.
    pub fn launch_graph(&self) -> Result<(), CallError> {
        let Some(graph) = &self.graph else { return Ok(()) };
        // SAFETY: the context is bound, the stream kept and the graph its own, which is dropped when the stream is done, or not at all. That what was captured may be launched
        // again, until then, is what whoever enqueued it has promised of a capture.
        unsafe { self.cuda().graph_launch(graph.raw(), self.stream.raw()) }
    }

    /// Whether anything is left in the stream. Breaks a capture of it.
    ///
    /// # Errors
    ///
    /// What the driver said.
    pub fn query_stream(&self) -> Result<Status, CallError> {
        // SAFETY: the context is bound and the stream kept.
        unsafe { self.cuda().stream_query(self.stream.raw()) }
    }

    /// Whether what the event stands for is done.
    ///
    /// # Errors
    ///
    /// What the driver said.
    pub fn query_event(&self) -> Result<Status, CallError> {
        // SAFETY: the context is bound and the event its own.
        unsafe { self.cuda().event_query(self.event) }
    }

    /// Blocks this thread until what the event stands for is done. As [`synchronize`](crate::synchronize), without an end.
    ///
    /// # Errors
    ///
    /// What the driver said.
    pub fn synchronize_event(&self) -> Result<(), CallError> {
        let cuda = self.cuda();
        let wait = cuda.symbols().cuEventSynchronize.ok_or_else(|| cuda.absent("cuEventSynchronize"))?;
        // SAFETY: the context is bound and the event its own.
        let status = unsafe { wait(self.event.as_ptr()) };
        cuda.check("cuEventSynchronize", status)
    }

    /// Blocks this thread until the stream has nothing left. As [`synchronize`](crate::synchronize), of which the context's binding is left out.
    ///
    /// # Errors
    ///
    /// What the driver said.
    pub fn synchronize_stream(&self) -> Result<(), CallError> {
        let cuda = self.cuda();
        let wait = cuda.symbols().cuStreamSynchronize.ok_or_else(|| cuda.absent("cuStreamSynchronize"))?;
        // SAFETY: the context is bound and the stream kept.
        let status = unsafe { wait(self.stream.raw().as_ptr()) };
        cuda.check("cuStreamSynchronize", status)
    }

    /// Has a thread of the driver's run `then` once all that was enqueued so far is done. After a fault it never does, and `then` is leaked.
    ///
    /// `then` must call nothing of CUDA, by the driver's rules. Should it panic, the process ends.
    ///
    /// # Errors
    ///
    /// What the driver said.
    pub fn call_host(&self, then: impl FnOnce() + Send + 'static) -> Result<(), CallError> {
        let then: *mut Then = Box::into_raw(Box::new(Box::new(then)));
        // SAFETY: the context is bound and the stream kept; `run` takes just this box, which is kept until it is called.
        unsafe { self.cuda().call_host(self.stream.raw(), run, then.cast()) }.inspect_err(|_| {
            // SAFETY: nothing was enqueued, so the box is still this function's.
            drop(unsafe { Box::from_raw(then) });
        })
    }

    /// Sets how the driver's own waits in this context wait from now on, for every user of the context. What it was before.
    ///
    /// # Errors
    ///
    /// What the driver said; it lacks [`Caps::CONTEXT_FLAGS`](crate::Caps::CONTEXT_FLAGS).
    pub fn schedule(&self, schedule: Schedule) -> Result<Schedule, CallError> {
        let (cuda, symbols) = (self.cuda(), self.cuda().symbols());
        let get = symbols.cuCtxGetFlags.ok_or_else(|| cuda.absent("cuCtxGetFlags"))?;
        let set = symbols.cuCtxSetFlags.ok_or_else(|| cuda.absent("cuCtxSetFlags"))?;
        let mut flags: c_uint = 0;
        // SAFETY: the context is bound, and `flags` is a number's room.
        let status = unsafe { get(&raw mut flags) };
        cuda.check("cuCtxGetFlags", status)?;
        // SAFETY: the context is bound; of flags that it does not take the driver says so.
        let status = unsafe { set(flags & !CU_CTX_SCHED_MASK | schedule.flags()) };
        cuda.check("cuCtxSetFlags", status)?;
        Ok(Schedule::of(flags))
    }

    /// Whether the stream is being captured.
    ///
    /// # Errors
    ///
    /// What the driver said.
    pub fn capturing(&self) -> Result<bool, CallError> {
        // SAFETY: the context is bound and the stream kept.
        unsafe { self.cuda().capturing(self.stream.raw()) }
    }

    /// Asks for this thread's context, as every binding does first. Says whether it is the stream's.
    ///
    /// # Errors
    ///
    /// What the driver said.
    pub fn current(&self) -> Result<bool, CallError> {
        Ok(self.cuda().current()? == self.context.raw())
    }

    /// Sets this thread's capture mode to what it is, as every binding does twice.
    ///
    /// # Errors
    ///
    /// What the driver said.
    pub fn exchange_capture_mode(&self) -> Result<(), CallError> {
        self.cuda().exchange_capture_mode(Cuda::RELAXED).map(drop)
    }
}

/// What [`Calls::call_host`] hands to the driver: a thin pointer to it.
type Then = Box<dyn FnOnce() + Send>;

/// # Safety
///
/// `then` is a box of [`Calls::call_host`] that nobody else has, called once.
unsafe extern "C" fn run(then: *mut c_void) {
    // SAFETY: by the contract.
    let then = unsafe { Box::from_raw(then.cast::<Then>()) };
    then();
}

/// How the driver's own waits wait: a setting of a context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Schedule {
    /// As the driver likes: it spins where there are more processors than contexts.
    Auto,
    /// By a loop.
    Spin,
    /// By a loop that lets other threads run.
    Yield,
    /// Asleep, until the device's interrupt.
    Block,
}

impl Schedule {
    const fn flags(self) -> c_uint {
        match self {
            Self::Auto => CU_CTX_SCHED_AUTO,
            Self::Spin => CU_CTX_SCHED_SPIN,
            Self::Yield => CU_CTX_SCHED_YIELD,
            Self::Block => CU_CTX_SCHED_BLOCKING_SYNC,
        }
    }

    const fn of(flags: c_uint) -> Self {
        match flags & CU_CTX_SCHED_MASK {
            CU_CTX_SCHED_SPIN => Self::Spin,
            CU_CTX_SCHED_YIELD => Self::Yield,
            CU_CTX_SCHED_BLOCKING_SYNC => Self::Block,
            _ => Self::Auto,
        }
    }
}

impl Drop for Calls<'_> {
    fn drop(&mut self) {
        // A store or a launch may be under way.
        if (self.word.is_some() || self.graph.is_some())
            && let Err(error) = self.synchronize_stream()
        {
            self.context.failed_in_drop(&error);
            core::mem::forget((self.word.take(), self.graph.take()));
        }
        // SAFETY: the context is bound, and the event was made here and is destroyed once; the driver keeps what it still needs of it.
        if let Err(error) = unsafe { self.cuda().event_destroy(self.event) } {
            self.context.failed_in_drop(&error);
        }
    }
}

impl fmt::Debug for Calls<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls")
            .field("stream", &self.stream)
            .field("event", &self.event)
            .finish_non_exhaustive()
    }
}

//! A device that does nothing: what it costs to run an operation on it is what the layer costs.

#![allow(dead_code, reason = "each user has a part of it")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::Waker;

use wakeline_core::{
    Arming, Awaiter, Charge, Clock, CompletionPort, Error, HostLine, Instant, Lookout, MemoryDescriptor,
    Report, Seq, Slot, Status, Tend, Watched,
};
use wakeline_ops::port::{
    Arg, At, Device, Graphs, Launch, Memory, Node, Pattern, Pinned, Priority, Promise, Rows, Shape,
};

const SLOT: Slot = Slot::ALL[0];

/// Clones are the same device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noop {
    /// Whether words are stored by [`NoopStream::store`] alone, and not as soon as they are armed.
    pub(crate) lazy: bool,
    pub(crate) streams: Arc<std::sync::Mutex<Vec<NoopStream>>>,
}

/// Clones are the same stream.
#[derive(Clone, Debug)]
pub(crate) struct NoopStream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    line: Arc<HostLine>,
    armed: AtomicU64,
    lazy: bool,
}

impl NoopStream {
    /// Says that all is done that was armed by now.
    pub(crate) fn store(&self) {
        let armed = Seq::new(self.0.armed.load(Ordering::Acquire));
        if !self.0.line.load(SLOT).reached(armed) {
            self.0.line.store(SLOT, armed);
        }
    }
}

impl Noop {
    pub(crate) fn streams(&self) -> Vec<NoopStream> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The calls of the port that every operation makes, and a look at the word.
    #[inline(never)]
    pub(crate) fn raw(&self, stream: &NoopStream) -> Result<bool, Error> {
        let mut point = self.point(stream)?;
        point.arm()?;
        Ok(point.descriptor().is_some_and(MemoryDescriptor::reached))
    }
}

pub(crate) struct NoopPoint {
    stream: NoopStream,
    word: Option<MemoryDescriptor<Arc<HostLine>>>,
}

impl CompletionPort for NoopPoint {
    type Line = Arc<HostLine>;

    fn query(&mut self) -> Result<Status, Error> {
        let done = self.word.as_ref().is_none_or(MemoryDescriptor::reached);
        Ok(if done { Status::Done } else { Status::Pending })
    }

    fn block(&mut self, _: Option<Instant>) -> Result<Status, Error> {
        Ok(Status::Done)
    }

    fn arm(&mut self) -> Result<Arming, Error> {
        // As a device's own points, which may be armed by now.
        if self.word.is_some() {
            return Ok(Arming::Armed);
        }
        let seq = Seq::new(self.stream.0.armed.fetch_add(1, Ordering::AcqRel) + 1);
        if !self.stream.0.lazy {
            self.stream.0.line.store(SLOT, seq);
        }
        self.word = Some(MemoryDescriptor::new(Arc::clone(&self.stream.0.line), SLOT, seq));
        Ok(Arming::Armed)
    }

    fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>> {
        self.word.as_ref()
    }
}

impl Device for Noop {
    type Stream = NoopStream;
    type Event = ();
    type Line = Arc<HostLine>;
    type Point = NoopPoint;

    fn stream(&self, _: Priority) -> Result<NoopStream, Error> {
        let (line, armed) = (Arc::new(HostLine::new()), AtomicU64::new(0));
        let stream = NoopStream(Arc::new(Inner { line, armed, lazy: self.lazy }));
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream.clone());
        Ok(stream)
    }

    fn event(&self) -> Result<(), Error> {
        Ok(())
    }

    fn record(&self, _: &NoopStream, (): &()) -> Result<(), Error> {
        Ok(())
    }

    fn wait(&self, _: &NoopStream, (): &()) -> Result<(), Error> {
        Ok(())
    }

    fn point(&self, stream: &NoopStream) -> Result<NoopPoint, Error> {
        Ok(NoopPoint { stream: stream.clone(), word: None })
    }

    fn call_host<F>(&self, _: &NoopStream, function: F) -> Result<(), Error>
    where
        F: FnOnce() + Send + 'static,
    {
        function();
        Ok(())
    }

    fn health(&self) -> Result<(), Error> {
        Ok(())
    }
}

pub(crate) struct NoMemory;

impl Pinned for NoMemory {
    fn read(&self, _: usize, _: &mut [u8], _: Promise) -> Result<(), Error> {
        Ok(())
    }

    fn write(&self, _: usize, _: &[u8], _: Promise) -> Result<(), Error> {
        Ok(())
    }
}

impl Memory for Noop {
    type Buffer = ();
    type Pinned = NoMemory;

    fn alloc(&self, _: &NoopStream, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn pinned(&self, _: usize) -> Result<NoMemory, Error> {
        Ok(NoMemory)
    }

    fn free(&self, _: &NoopStream, (): &(), _: Promise) -> Result<(), Error> {
        Ok(())
    }

    fn fill(&self, _: &NoopStream, _: At<'_, ()>, _: Pattern, _: usize, _: Promise) -> Result<(), Error> {
        Ok(())
    }

    fn copy(&self, _: &NoopStream, _: At<'_, ()>, _: At<'_, ()>, _: usize, _: Promise) -> Result<(), Error> {
        Ok(())
    }

    fn upload(
        &self,
        _: &NoopStream,
        _: At<'_, NoMemory>,
        _: At<'_, ()>,
        _: usize,
        _: Promise,
    ) -> Result<(), Error> {
        Ok(())
    }

    fn copy_rows(
        &self,
        _: &NoopStream,
        _: At<'_, ()>,
        _: At<'_, ()>,
        _: Rows,
        _: Promise,
    ) -> Result<(), Error> {
        Ok(())
    }

    fn upload_rows(
        &self,
        _: &NoopStream,
        _: At<'_, NoMemory>,
        _: At<'_, ()>,
        _: Rows,
        _: Promise,
    ) -> Result<(), Error> {
        Ok(())
    }

    fn download_rows(
        &self,
        _: &NoopStream,
        _: At<'_, ()>,
        _: At<'_, NoMemory>,
        _: Rows,
        _: Promise,
    ) -> Result<(), Error> {
        Ok(())
    }

    fn download(
        &self,
        _: &NoopStream,
        _: At<'_, ()>,
        _: At<'_, NoMemory>,
        _: usize,
        _: Promise,
    ) -> Result<(), Error> {
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct NoopKernel;

impl Launch for Noop {
    type Kernel = NoopKernel;

    fn launch(
        &self,
        _: &NoopStream,
        _: &NoopKernel,
        shape: Shape,
        args: &[Arg<'_, ()>],
        _: Promise,
    ) -> Result<(), Error> {
        std::hint::black_box((shape, args));
        Ok(())
    }
}

impl Graphs for Noop {
    type Captured = ();
    type Executable = ();

    fn capture_stream(&self, priority: Priority) -> Result<NoopStream, Error> {
        self.stream(priority)
    }

    fn begin_capture(&self, _: &NoopStream, _: Promise) -> Result<(), Error> {
        Ok(())
    }

    fn end_capture(&self, _: &NoopStream, _: Promise) -> Result<(), Error> {
        Ok(())
    }

    fn nodes(&self, (): &()) -> Result<Vec<Node>, Error> {
        Ok(Vec::new())
    }

    fn instantiate(&self, (): &()) -> Result<(), Error> {
        Ok(())
    }

    fn launch_graph(&self, _: &NoopStream, (): &(), _: Promise) -> Result<(), Error> {
        Ok(())
    }

    fn update_graph(&self, (): &(), (): &()) -> Result<(), Error> {
        Ok(())
    }

    fn set_kernel(
        &self,
        (): &(),
        (): &(),
        _: usize,
        _: &NoopKernel,
        _: Shape,
        _: &[Arg<'_, ()>],
        _: Promise,
    ) -> Result<(), Error> {
        Ok(())
    }
}

/// Watches in every poll, and never has to be handed anything: its clock costs a load.
#[derive(Clone, Debug, Default)]
pub(crate) struct NoopTender {
    pub(crate) now: Arc<AtomicU64>,
    /// It leaves what is handed over to its task, and tells of nothing.
    pub(crate) leaves: bool,
    /// Something was handed over.
    pub(crate) tended: Arc<AtomicBool>,
}

impl Clock for NoopTender {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.now.load(Ordering::Relaxed))
    }
}

impl<P: CompletionPort> Tend<P> for NoopTender {
    fn tend<A, E>(&self, _: P, charge: &Charge<'_>, _: A, ended: E)
    where
        A: Awaiter,
        E: FnOnce(Result<Report, Error>) + Send + 'static,
    {
        self.tended.store(true, Ordering::Relaxed);
        if self.leaves {
            return;
        }
        let wait = wakeline_core::Wait::new(charge.plan).watched(Arming::Armed);
        let (mut wait, _) = wait.start(Instant::ORIGIN);
        let reached = wakeline_core::Observation::Reached;
        if let wakeline_core::Action::Finish(report) = wait.step(Instant::from_nanos(1_000), reached) {
            ended(Ok(report));
        }
    }

    fn watch(&self, _: &Lookout, _: usize, mut ended: impl FnMut() -> bool) -> Watched {
        if ended() { Watched::Ended } else { Watched::NotAsked }
    }

    fn unwatch(&self, _: &Lookout, _: usize) {}

    fn alarm(&self, _: Instant, _: &Waker) {}
}

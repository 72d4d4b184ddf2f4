//! Graphs: work that is recorded once, and launched and awaited many times.
//!
//! ```text
//!   an operation ──recorded, by captured streams──► captured ──instantiate──► graph ──launch()──► an operation ──► a flight, and a point of its own
//!        │                                              ▲                      │ ▲
//!        └─ failed, panicked, refused: the capture ends └── recapture ─────────┘ └── set_kernel: other arguments from now on
//!           all the same, and nothing is left of it
//! ```
//!
//! The recording claims no accesses. Each launch takes those of the whole graph at once, by a list that was made with the graph, in the stream in which it is launched: it comes behind what
//! conflicts with it, and what conflicts comes behind it. The point that it is awaited by is enqueued behind it and never captured, so that each launch has one of its own. An executable can run once
//! at a time: launches in several streams are ordered, as if each wrote a buffer of the graph's own.
//!
//! Invariants:
//! 1. A capture ends where it began, whatever happens meanwhile: an error, a panic, a refusal.
//! 2. Only streams that were made for it are captured: nobody else enqueues in them or asks about them.
//! 3. What was recorded lives as long as the graph or a flight that launched it does: buffers, and all that operations retained.
//! 4. Whatever changes what can be launched does so with the record of launches locked, and a launch looks at it under that lock.

// What is promised of a capture.
#![allow(unsafe_code)]

mod draw;
mod record;
mod replay;

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wakeline_core::Error;

use crate::events::Place;
use crate::hazard::{Storage, Uses};
use crate::lock::{self, Submits};
use crate::op::DeviceOp;
use crate::owner::Owners;
use crate::port::{self, Graphs, Node, Promise};
use crate::stream::Stream;
use crate::submission::Submission;
use crate::sync::Lock;

use record::Recorded;
pub(crate) use record::Recording;
pub use replay::{GraphArg, Replay};

/// Work of a device that was recorded once and can be launched again and again, by one call.
///
/// Made by [`DeviceOp::graph_on`] of one operation, by [`scope`](Self::scope) of several. `T` is what the recorded operation gives at submission, names of what launches write most often:
/// [`take_output`](Self::take_output). [`launch`](Self::launch) is an operation as any.
///
/// ```
/// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin, port::Priority};
/// use wakeline_tensor::Tensor;
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let watcher = VirtualWatcher::new(&device);
/// let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), watcher.clone())?;
/// // What it works on is there before.
/// let mut input = Tensor::from_host(vec![1_u8, 2]).on(&runtime).sync()?;
/// let output = Tensor::zeros(2).on(&runtime).sync()?;
/// let mut graph = input.copy_to(output).graph_on(&runtime.stream(Priority::Normal)?)?;
/// let output = graph.take_output().expect("it was not taken yet");
/// for numbers in [[3, 4], [5, 6]] {
///     // Each comes behind the one before, on the device.
///     input = watcher.run(input.overwrite(numbers.into()).on(&runtime))??;
///     watcher.run(graph.launch().on(&runtime))??;
///     assert_eq!(output.to_host().on(&runtime).sync()?, numbers);
/// }
/// # Ok::<(), wakeline_core::Error>(())
/// ```
///
/// # What is recorded
///
/// Kernels, copies, fills, and whatever [`with_context`](crate::with_context) enqueues. Branches of [`zip!`](crate::zip) and [`all`](crate::all) are branches of the graph, which run at a time, up to
/// 16 of them, unless they are [`in_one_stream`](DeviceOp::in_one_stream); what conflicts among them runs in the order in which it was recorded. What is sent from the host is
/// sent by each launch, as it was when it was recorded.
///
/// What cannot be repeated is [`CaptureRefused`](wakeline_core::ErrorCode::CaptureRefused), and the whole capture fails, also where the operation that it was told goes on: allocations (allocate before, and hand the memory
/// in, to a copy or a kernel that writes it), reads to the host (read behind a launch; most do not compile in a capture, where `Output = Pending` means that nothing is read), waits for gates, functions of the host, launches of other graphs, and shared
/// operations, or parts of one, that did not run yet (one that did is what launches come behind). To execute an operation, to wait for one, or to capture within a capture is [`NestedExecution`](wakeline_core::ErrorCode::NestedExecution),
/// which fails nothing but itself: record the operation instead, or execute it before; where `then_unchecked` allows it, it runs at once and is no part of the graph.
///
/// # What it owns
///
/// The buffers that were recorded, and all that operations [retain](Submission::retain): memory of the host that is sent, kernels and their modules. They live until the graph and all its launches are gone.
///
/// # Cost
///
/// A capture makes streams, and the driver's graph: milliseconds. A launch makes one call for the graph, records one event, and waits for each conflicting use in another stream; it
/// allocates nothing where the graph uses up to 31 buffers.
pub struct Graph<D: Graphs, T = ()> {
    inner: Arc<Inner<D>>,
    output: Option<T>,
}

/// An operation that gives nothing: what [`Graph::update`] takes. Every such operation is one.
pub trait GraphNode: DeviceOp<Pending = (), Output = ()> {}

impl<O: DeviceOp<Pending = (), Output = ()>> GraphNode for O {}

/// Records operations in a graph; see [`Graph::scope`].
pub struct Recorder<'s, D: Graphs> {
    submission: &'s mut Submission<D>,
    failed: Option<Error>,
    /// Whether an operation is being recorded, or was when it panicked.
    panics: bool,
}

impl<D: Graphs> Recorder<'_, D> {
    /// Records an operation behind those before, and gives what it gives at submission: names of what launches are to make.
    ///
    /// # Errors
    ///
    /// What the operation says. The whole capture then ends with the first such error, whatever the closure makes of it, and with one where the operation panics and the closure
    /// survives that.
    pub fn record<O>(&mut self, op: O) -> Result<O::Pending, Error>
    where
        O: DeviceOp<Device = D, Output = <O as DeviceOp>::Pending>,
    {
        let before = core::mem::replace(&mut self.panics, true);
        let executed = op.execute(self.submission);
        self.panics = before;
        executed.inspect_err(|error| {
            self.failed.get_or_insert_with(|| error.clone());
        })
    }
}

/// What flights keep of a graph.
struct Inner<D: Graphs> {
    /// What it is launched in where nothing else is said.
    stream: Stream<D>,
    /// Tells graphs of these runtimes apart.
    number: u64,
    /// Before what it uses: it is dropped first.
    executable: D::Executable,
    /// The record of its launches: locked while it is launched or changed.
    launches: Lock<Uses<D>>,
    kept: Lock<Arc<Kept<D>>>,
    /// Which of those is the one of now.
    version: AtomicU64,
    captured: Lock<Captured<D>>,
}

/// What was captured: what `executable` was made of, and that by its nodes.
struct Captured<D: Graphs> {
    raw: D::Captured,
    nodes: Vec<Node>,
}

/// What a launch uses. Flights keep the one that they were launched with.
struct Kept<D: Graphs> {
    version: u64,
    /// In the order of the buffers' numbers, each once.
    accesses: Accesses<D>,
    /// Those of them that were recorded.
    recorded: Arc<Accesses<D>>,
    /// Those of nodes whose arguments were set, and their kernels, by the numbers of the nodes.
    changed: BTreeMap<usize, Arc<Changed<D>>>,
    /// What was submitted before and is not in the graph: launches come behind it.
    after: Arc<[(Stream<D>, Place)]>,
    /// Never looked at: they are dropped with the last who uses them.
    owners: Arc<Lock<Owners>>,
}

/// Buffers, and whether they are written.
type Accesses<D> = Vec<(Arc<Storage<D>>, bool)>;

type Changed<D> = (Accesses<D>, <D as port::Launch>::Kernel);

impl<D: Graphs> Kept<D> {
    fn new(recorded: Recorded<D>) -> Self {
        let Recorded { accesses, after, owners } = recorded;
        let (after, owners) = (after.into(), Arc::new(Lock::new(owners)));
        let (recorded, changed) = (Arc::new(accesses.clone()), BTreeMap::new());
        Self { version: 0, accesses, recorded, changed, after, owners }
    }

    /// The same, with other arguments of a node.
    fn with(&self, node: usize, used: Accesses<D>, kernel: D::Kernel) -> Self {
        let mut changed = self.changed.clone();
        changed.insert(node, Arc::new((used, kernel)));
        let all = changed.values().flat_map(|changed| &changed.0).chain(&*self.recorded);
        let mut merged: BTreeMap<u64, (Arc<Storage<D>>, bool)> = BTreeMap::new();
        for (storage, writes) in all {
            let access = merged.entry(storage.number()).or_insert_with(|| (Arc::clone(storage), false));
            access.1 |= writes;
        }
        let (after, owners) = (Arc::clone(&self.after), Arc::clone(&self.owners));
        let (accesses, recorded) = (merged.into_values().collect(), Arc::clone(&self.recorded));
        Self { version: 0, accesses, recorded, changed, after, owners }
    }
}

/// A capture under way. Ended when it is dropped.
struct Capture<'s, D: Graphs> {
    stream: &'s Stream<D>,
    ended: bool,
}

impl<'s, D: Graphs> Capture<'s, D> {
    fn begin(stream: &'s Stream<D>) -> Result<Self, Error> {
        // SAFETY: the stream is private, as are those that the recording lets join it; what is enqueued there, the recording keeps, and the graph after it.
        let promise = unsafe { Promise::new() };
        stream.device().begin_capture(stream.raw(), promise)?;
        Ok(Self { stream, ended: false })
    }

    fn end(mut self) -> Result<D::Captured, Error> {
        self.ended = true;
        self.end_now()
    }

    fn end_now(&self) -> Result<D::Captured, Error> {
        // SAFETY: it was begun by this, whose recording is over.
        let promise = unsafe { Promise::new() };
        self.stream.device().end_capture(self.stream.raw(), promise)
    }
}

impl<D: Graphs> Drop for Capture<'_, D> {
    fn drop(&mut self) {
        if !self.ended {
            // Something panics: there is nobody to tell.
            drop(self.end_now());
        }
    }
}

/// Captures what `body` enqueues.
fn capture<D: Graphs, T>(
    stream: &Stream<D>,
    body: impl FnOnce(&mut Submission<D>) -> Result<T, Error>,
) -> Result<(D::Captured, Recorded<D>, T), Error> {
    lock::check()?;
    let device = stream.device();
    device.health()?;
    // Nobody else has it.
    let origin = Stream::for_captures(stream.core(), stream.priority())?;
    device.together(|| {
        let mut submission = Submission::to_record(origin.clone());
        let capture = Capture::begin(&origin)?;
        // Given back first, where `body` panics: then the capture ends, and what was retained is dropped.
        let submits = Submits::lock()?;
        let output = body(&mut submission);
        drop(submits);
        let captured = capture.end();
        let output = output?;
        let recorded = submission.recorded()?;
        Ok((captured?, recorded, output))
    })
}

impl<D: Graphs, T> Graph<D, T> {
    /// Records an operation: as [`DeviceOp::graph_on`].
    ///
    /// # Errors
    ///
    /// As [`scope`](Self::scope).
    pub fn capture<O>(stream: &Stream<D>, op: O) -> Result<Self, Error>
    where
        O: DeviceOp<Device = D, Pending = T, Output = T>,
    {
        Self::made_of(stream, |submission| op.execute(submission))
    }

    /// Records the operations that a closure hands to [`Recorder::record`], one behind the other.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Graph, Runtime, SingleStream, port::Priority};
    /// use wakeline_tensor::Tensor;
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
    /// let [from, through, to] = [1_u8, 0, 0].map(|number| Tensor::full(4, number).on(&runtime).sync());
    /// let (from, through, to) = (from?, through?, to?);
    /// let graph = Graph::scope(&runtime.stream(Priority::Normal)?, |graph| {
    ///     let through = graph.record(from.copy_to(through))?;
    ///     graph.record(through.copy_to(to))
    /// })?;
    /// println!("{}", graph.dot());
    /// graph.launch().on(&runtime).sync()?;
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - What the closure returns, or an operation that it recorded has said; [`CaptureRefused`](wakeline_core::ErrorCode::CaptureRefused) for what cannot be recorded.
    /// - [`NestedExecution`](wakeline_core::ErrorCode::NestedExecution) where an operation is being submitted or recorded on this thread.
    /// - [`GraphRefused`](wakeline_core::ErrorCode::GraphRefused): the device makes no graph of it; it names the node that is the reason.
    /// - What the device says.
    pub fn scope(
        stream: &Stream<D>,
        body: impl FnOnce(&mut Recorder<'_, D>) -> Result<T, Error>,
    ) -> Result<Self, Error> {
        Self::made_of(stream, |submission| {
            let mut recorder = Recorder { submission, failed: None, panics: false };
            let output = body(&mut recorder);
            match recorder {
                Recorder { failed: Some(error), .. } => Err(error),
                Recorder { panics: true, submission, .. } => {
                    Err(submission
                        .refusal(&"an operation that panicked", &"what of it is recorded nobody knows"))
                }
                _ => output,
            }
        })
    }

    fn made_of(
        stream: &Stream<D>,
        body: impl FnOnce(&mut Submission<D>) -> Result<T, Error>,
    ) -> Result<Self, Error> {
        let (raw, recorded, output) = capture(stream, body)?;
        let device = stream.device();
        let nodes = device.nodes(&raw)?;
        let executable = device.instantiate(&raw)?;
        let inner = Inner {
            stream: stream.clone(),
            number: stream.core().fleet.number_graph(),
            executable,
            launches: Lock::new(Uses::new()),
            kept: Lock::new(Arc::new(Kept::new(recorded))),
            version: AtomicU64::new(0),
            captured: Lock::new(Captured { raw, nodes }),
        };
        Ok(Self { inner: Arc::new(inner), output: Some(output) })
    }

    /// What the recorded operation gave, once. What it names is written by the launches; until the first of them it reads as it was before.
    pub const fn take_output(&mut self) -> Option<T> {
        self.output.take()
    }

    /// The same, left where it is.
    pub const fn output(&self) -> Option<&T> {
        self.output.as_ref()
    }

    /// The stream that it was made with: where [`update`](Self::update) enqueues.
    pub fn stream(&self) -> &Stream<D> {
        &self.inner.stream
    }

    /// An operation that launches it, in whichever stream that is run in. It can be cloned, and keeps the graph; several may be in flight at a time, and each is awaited by itself. They run one after
    /// another, in the order in which they are submitted, behind what conflicts with the graph.
    ///
    /// Errs, besides what the device says, with [`ForeignMemory`](wakeline_core::ErrorCode::ForeignMemory) in a stream of another runtime.
    pub fn launch(&self) -> Replay<D> {
        Replay::new(&self.inner)
    }

    /// Enqueues an operation that gives nothing in the graph's own stream, now, and waits for nothing: what feeds the launches to come, which come behind it where they conflict. A fault in it is
    /// told by those.
    ///
    /// # Errors
    ///
    /// Whatever made the submission fail; [`NestedExecution`](wakeline_core::ErrorCode::NestedExecution) where an operation is being submitted on this thread.
    pub fn update<O: GraphNode<Device = D>>(&self, op: O) -> Result<(), Error> {
        let submits = Submits::lock()?;
        let stream = &self.inner.stream;
        let mut submission = Submission::new(stream.clone(), stream.lane().admit_anyway(1));
        submission.run_anyway(op)?;
        drop(submits);
        submission.fly();
        Ok(())
    }

    /// Records an operation anew and has the graph do that from the next launch on, where its nodes are alike: as many, of the same kinds, each behind the same others. Launches that are in flight
    /// stay as they are. Costs a capture, but no new graph of the driver's.
    ///
    /// # Errors
    ///
    /// [`GraphMismatch`](wakeline_core::ErrorCode::GraphMismatch), which says what differs; else as [`capture`](Self::capture). The graph is as it was then; where a device may have left it half
    /// changed, its launches err with that code until this succeeds.
    pub fn recapture<O>(&mut self, op: O) -> Result<(), Error>
    where
        O: DeviceOp<Device = D, Pending = T, Output = T>,
    {
        let (raw, recorded, output) = capture(&self.inner.stream, |submission| op.execute(submission))?;
        self.inner.become_of(&raw, recorded)?;
        self.output = Some(output);
        Ok(())
    }

    /// Its nodes, as they were captured first: the numbers are those that [`set_kernel`](Self::set_kernel) takes.
    pub fn nodes(&self) -> Vec<Node> {
        self.inner.captured.lock().nodes.clone()
    }

    /// It as a text in the language of Graphviz.
    pub fn dot(&self) -> String {
        draw::dot(&self.inner.captured.lock().nodes)
    }

    /// It as a picture: SVG.
    pub fn svg(&self) -> String {
        draw::svg(&self.inner.captured.lock().nodes)
    }
}

impl<D: Graphs> Inner<D> {
    /// Has the launches from now on do what was recorded anew.
    fn become_of(&self, raw: &D::Captured, recorded: Recorded<D>) -> Result<(), Error> {
        let kept = Kept::new(recorded);
        let update = || self.stream.device().update_graph(&self.executable, raw);
        self.change(update, |_| kept).map(drop)
    }

    /// Changes what can be launched, and what a launch uses with it. What it used before is to be dropped under no lock: it is of others.
    /// So is what `make` has, which is after this where it is not called.
    fn change(
        &self,
        call: impl FnOnce() -> Result<(), Error>,
        make: impl FnOnce(&Kept<D>) -> Kept<D>,
    ) -> Result<Arc<Kept<D>>, Error> {
        let _launches = self.launches.lock();
        call()?;
        let before = Arc::clone(&self.kept.lock());
        let mut kept = make(&before);
        kept.version = before.version + 1;
        self.version.store(kept.version, Ordering::Release);
        *self.kept.lock() = Arc::new(kept);
        Ok(before)
    }
}

impl<D: Graphs, T> fmt::Debug for Graph<D, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.inner.captured.lock().nodes.len();
        f.debug_struct("Graph")
            .field("number", &self.inner.number)
            .field("nodes", &nodes)
            .finish_non_exhaustive()
    }
}

impl<D: Graphs> fmt::Debug for Recorder<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("failed", &self.failed).finish_non_exhaustive()
    }
}

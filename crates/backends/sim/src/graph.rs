//! Graphs: what was captured of streams, to be launched as one, any number of times.

use alloc::vec::Vec;
use core::fmt;

use wakeline_core::Error;

use crate::access::{SimArg, launched};
use crate::device::SimDevice;
use crate::job::{Effect, SimKernel};
use crate::memory::Misuse;
use crate::state::{Call, Node, Nodes};
use crate::stream::SimStream;
use crate::table::Key;
use crate::time::{TimeLine, VirtualTime};

/// Work that was captured of streams of a [`SimDevice`]: nodes, and what comes after what. Clones are the same graph.
///
/// ```
/// use wakeline_core::{CompletionPort, Instant, Nanos};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::exact())?;
/// let (home, branch) = (device.stream()?, device.stream()?);
/// home.begin_capture()?;
/// let (begin, end) = (device.event(), device.event());
/// home.record(&begin)?;
/// branch.wait(&begin)?; // joins the capture
/// branch.launch(Nanos::from_micros(30))?;
/// home.launch(Nanos::from_micros(20))?;
/// branch.record(&end)?;
/// home.wait(&end)?;
/// let graph = device.instantiate(&home.end_capture()?)?;
/// home.launch_graph(&graph)?; // both at a time
/// let mut point = home.point();
/// point.block(None)?;
/// assert_eq!(point.witness().truth().ended_at, Some(Instant::from_nanos(30_000)));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SimCapture {
    nodes: Nodes,
}

/// What a node of a graph does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SimNodeKind {
    /// Runs a kernel, or work without an effect.
    Kernel,
    /// Copies.
    Copy,
    /// Fills memory.
    Fill,
}

/// A node of a graph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimNode {
    /// What it does.
    pub kind: SimNodeKind,
    /// Of a kernel, what it is called where it [has a name](SimKernel::named).
    pub name: Option<&'static str>,
    /// The nodes that it comes right after, by their numbers.
    pub after: Vec<usize>,
}

impl SimCapture {
    /// Its nodes.
    pub fn nodes(&self) -> Vec<SimNode> {
        let node = |node: &Node| {
            let (kind, name) = match node.effect() {
                Some(Effect::Kernel(kernel, ..)) => (SimNodeKind::Kernel, kernel.name),
                Some(Effect::Copy { .. }) => (SimNodeKind::Copy, None),
                Some(Effect::Fill(..)) => (SimNodeKind::Fill, None),
                None => (SimNodeKind::Kernel, None),
            };
            SimNode { kind, name, after: node.after.clone() }
        };
        self.nodes.iter().map(node).collect()
    }
}

/// A graph that can be launched. Runs once at a time: launching it in another stream is to be ordered behind its last launch, and dropping it while a launch is
/// enqueued is a [`Misuse`] too.
pub struct SimGraph<T: TimeLine = VirtualTime> {
    device: SimDevice<T>,
    key: Key,
}

impl<T: TimeLine> SimGraph<T> {
    /// Gives it the work of another capture with the same nodes in the same order. What was launched before stays as it was.
    ///
    /// # Errors
    ///
    /// The device's fault; [`GraphMismatch`](wakeline_core::ErrorCode::GraphMismatch), which says what differs.
    pub fn update(&self, captured: &SimCapture) -> Result<(), Error> {
        self.call("update_graph", |state| state.update_exec(self.key, &captured.nodes))
    }

    /// Has the node of this number run `kernel` with these arguments from its next launch on.
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update); [`Backend`](wakeline_core::ErrorCode::Backend) for a [`Misuse`].
    pub fn set_kernel(&self, node: usize, kernel: &SimKernel, args: &[SimArg<'_>]) -> Result<(), Error> {
        let (effect, touches) = launched(kernel, args)?;
        let context = self.device.context();
        let foreign = touches.iter().any(|(memory, ..)| memory.context != context);
        let touches = touches.iter().map(|&(memory, bytes, touch)| (memory.key, bytes, touch)).collect();
        self.call("set_kernel", |state| {
            if foreign {
                return Err(state.misused("set_kernel", Misuse::Foreign));
            }
            state.set_node(self.key, node, kernel.length, effect, touches)
        })
    }

    fn call<R>(
        &self,
        name: &'static str,
        f: impl FnOnce(&mut crate::state::State) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let now = self.device.now();
        self.device.with(|state| {
            state.begin(Call::Other(name), now);
            state.health()?;
            f(state)
        })
    }
}

impl<T: TimeLine> Drop for SimGraph<T> {
    fn drop(&mut self) {
        let now = self.device.now();
        self.device.with(|state| {
            state.turn(now);
            state.drop_exec(self.key);
        });
    }
}

impl<T: TimeLine> fmt::Debug for SimGraph<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimGraph").field("key", &self.key).finish_non_exhaustive()
    }
}

impl<T: TimeLine> SimDevice<T> {
    /// Makes what was captured into a graph that can be launched.
    ///
    /// # Errors
    ///
    /// The device's fault; [`GraphRefused`](wakeline_core::ErrorCode::GraphRefused) where it has more than
    /// [`graph_nodes_max`](crate::SimConfig::graph_nodes_max) nodes.
    pub fn instantiate(&self, captured: &SimCapture) -> Result<SimGraph<T>, Error> {
        let now = self.now();
        let key = self.with(|state| {
            state.begin(Call::Other("instantiate"), now);
            state.health()?;
            state.instantiate(&captured.nodes)
        })?;
        Ok(SimGraph { device: self.clone(), key })
    }

    /// How many graphs there are that can be launched.
    pub fn graphs(&self) -> usize {
        self.with(crate::state::State::execs_in_use)
    }
}

impl<T: TimeLine> SimStream<T> {
    /// Captures what is enqueued from now on, until [`end_capture`](Self::end_capture): it becomes nodes and does not run. A stream that waits for an event that was recorded in
    /// the capture joins it, and is to be waited for in this stream before the end.
    ///
    /// A host function, an allocation, a free, a wait for a gate or for an event of no capture, and a launch of another graph are errors and end it as one. The store of a
    /// word is refused with [`StreamCapturing`](wakeline_core::ErrorCode::StreamCapturing), and the capture goes on.
    ///
    /// # Errors
    ///
    /// The device's fault; [`StreamCapturing`](wakeline_core::ErrorCode::StreamCapturing) where it is being captured.
    pub fn begin_capture(&self) -> Result<(), Error> {
        self.call("begin_capture", |state| state.begin_capture(self.key()))
    }

    /// Ends the capture, whatever has become of it: the streams that are in it are as before.
    ///
    /// # Errors
    ///
    /// The device's fault; [`Backend`](wakeline_core::ErrorCode::Backend) where there is none, it has become invalid, or a stream was not joined.
    pub fn end_capture(&self) -> Result<SimCapture, Error> {
        let device = self.device();
        let now = device.now();
        let ended = device.with(|state| {
            state.begin(Call::Other("end_capture"), now);
            // Also where the device has failed: the streams are in it no more.
            let ended = state.end_capture(self.key());
            state.health().and(ended)
        });
        ended.map(|nodes| SimCapture { nodes })
    }

    /// Whether it is in a capture.
    pub fn is_capturing(&self) -> bool {
        self.device().with(|state| state.is_capturing(self.key()))
    }

    /// That it is not to join a capture.
    #[cfg(feature = "ops")]
    pub(crate) fn refused_in_captures(&self) -> Error {
        self.device().with(|state| state.stream_capturing(self.key()))
    }

    /// That it is in no capture.
    #[cfg(feature = "ops")]
    pub(crate) fn refuse_capturing(&self) -> Result<(), Error> {
        self.device().with(|state| state.refuse_captured(self.key()))
    }

    /// Launches a graph, as one work of this stream.
    ///
    /// # Errors
    ///
    /// The device's fault; [`Backend`](wakeline_core::ErrorCode::Backend) when the queue is full, for a [`Misuse`], and where this stream is being captured.
    pub fn launch_graph(&self, graph: &SimGraph<T>) -> Result<(), Error> {
        self.call("launch_graph", |state| {
            if graph.device.context() != self.device().context() {
                return Err(state.misused("launch_graph", Misuse::Foreign));
            }
            state.enqueue_graph(self.key(), graph.key)
        })
    }
}

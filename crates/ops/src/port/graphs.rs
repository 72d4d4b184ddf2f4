//! What graphs need of a device: captures, and what can be launched of them.

use core::fmt;

use wakeline_core::Error;

use super::{Arg, Launch, Priority, Promise, Shape};

/// What a node of a graph does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum NodeKind {
    /// Runs a kernel.
    Kernel,
    /// Copies.
    Copy,
    /// Fills memory.
    Fill,
    /// Nothing: it only has its place in the order.
    Empty,
    /// Calls a function of the host.
    Host,
    /// Stores words, or waits for some.
    Words,
    /// Another graph.
    Graph,
    /// Something else.
    Other,
}

impl fmt::Display for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::Copy => "copy",
            Self::Fill => "fill",
            Self::Empty => "nothing",
            Self::Host => "host function",
            Self::Words => "words",
            Self::Graph => "graph",
            Self::Other => "other",
        })
    }
}

/// A node of a graph: what it does, and behind which others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// What it does.
    pub kind: NodeKind,
    /// What it is called: of a kernel its name, where the device can tell; else empty.
    pub name: String,
    /// The nodes that it comes right after, by their numbers.
    pub after: Vec<usize>,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() { self.kind.fmt(f) } else { write!(f, "{} `{}`", self.kind, self.name) }
    }
}

/// A device with graphs: what is enqueued in a stream while that is captured becomes a node and does not run; all nodes can then be launched as one, again and again.
///
/// Of one capture, and of one graph that was made of it, the caller makes one call at a time.
pub trait Graphs: Launch {
    /// What was captured: nodes, and what comes after what. MUST NOT wait for the device as it is dropped.
    type Captured: Send + 'static;
    /// A graph that can be launched. The caller keeps it until all launches of it are done.
    type Executable: Send + Sync + 'static;

    /// A stream for captures, which is captured or joins a capture by waiting for an event that was recorded there. No other stream MUST join one: [`wait`](crate::port::Device::wait)
    /// MUST be an error, and enqueue nothing, where such a one would wait for an event that was recorded in a stream for captures. So nothing that somebody enqueues elsewhere at that
    /// moment becomes a part of the capture.
    ///
    /// # Errors
    ///
    /// The device's fault, or that no further stream can be had.
    fn capture_stream(&self, priority: Priority) -> Result<Self::Stream, Error>;

    /// Captures what is enqueued in `stream` from now on, which is one for captures. Another one that waits for an event that was recorded in the capture joins it.
    ///
    /// MUST be a capture that calls of other threads do not disturb, and that disturbs none of theirs. While it lasts, functions of the host and waits for gates in its streams MUST
    /// be errors; so MUST the arming of a point there be, which MUST store no word. Nobody allocates or frees there.
    ///
    /// # Errors
    ///
    /// The device's fault; [`StreamCapturing`](wakeline_core::ErrorCode::StreamCapturing) where the stream is being captured; that there are no graphs.
    ///
    /// # Promise
    ///
    /// Nobody else has the stream, or one that joins the capture. What is enqueued there meanwhile is kept until all launches of what it becomes are done.
    fn begin_capture(&self, stream: &Self::Stream, promise: Promise) -> Result<(), Error>;

    /// Ends the capture that was begun in `stream`, by the thread that did so.
    ///
    /// MUST end it whatever has become of it: all of its streams are as before, but where the device itself has failed.
    ///
    /// # Errors
    ///
    /// The device's fault; why it can be nothing.
    ///
    /// # Promise
    ///
    /// It is the caller's own capture: nobody takes what is enqueued from now on for a part of it.
    fn end_capture(&self, stream: &Self::Stream, promise: Promise) -> Result<Self::Captured, Error>;

    /// Its nodes. Each MUST have those that it comes after in front of it, as far as the device numbers them so.
    ///
    /// # Errors
    ///
    /// What the device says, or that it cannot tell.
    fn nodes(&self, captured: &Self::Captured) -> Result<Vec<Node>, Error>;

    /// Makes it into what can be launched. MAY take long, MUST NOT wait for work that is enqueued.
    ///
    /// # Errors
    ///
    /// The device's fault; [`GraphRefused`](wakeline_core::ErrorCode::GraphRefused), which names the node that is the reason, where one is.
    fn instantiate(&self, captured: &Self::Captured) -> Result<Self::Executable, Error>;

    /// Enqueues all of it as one entry of the stream's queue. MUST NOT allocate.
    ///
    /// # Errors
    ///
    /// The device's fault, or whatever made the call fail; nothing is enqueued then.
    ///
    /// # Promise
    ///
    /// What held of each call that was captured holds of this one, and its last launch is done or ordered before this.
    fn launch_graph(
        &self,
        stream: &Self::Stream,
        executable: &Self::Executable,
        promise: Promise,
    ) -> Result<(), Error>;

    /// Gives it the work of another capture whose nodes are alike and in the same order. Launches that were enqueued by now MUST stay as they are.
    ///
    /// # Errors
    ///
    /// [`GraphMismatch`](wakeline_core::ErrorCode::GraphMismatch), which says what differs: it stays as it was. A device that cannot leave it so MUST refuse its launches until an update succeeds. The device's fault.
    fn update_graph(&self, executable: &Self::Executable, captured: &Self::Captured) -> Result<(), Error>;

    /// Has a node launch `kernel` so from the next launch on; launches that were enqueued by now MUST stay as they are. `captured` is what `executable` was made of, and `node` the
    /// number of the node in that.
    ///
    /// # Errors
    ///
    /// [`GraphMismatch`](wakeline_core::ErrorCode::GraphMismatch): there is no such node, or it launches no kernel, or not this one. What a launch of the kernel says.
    ///
    /// # Promise
    ///
    /// As of [`launch`](Launch::launch), for each launch of the graph from now on.
    #[expect(clippy::too_many_arguments, reason = "what a launch has, and of which node it is")]
    fn set_kernel(
        &self,
        executable: &Self::Executable,
        captured: &Self::Captured,
        node: usize,
        kernel: &Self::Kernel,
        shape: Shape,
        args: &[Arg<'_, Self::Buffer>],
        promise: Promise,
    ) -> Result<(), Error>;
}

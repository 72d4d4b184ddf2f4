//! The launch of a graph, and other arguments for a kernel of it.

// A promise to the port, which the lists of what a graph uses keep; and what sets arguments is declared unsafe.
#![allow(unsafe_code)]

use core::fmt;
use core::iter;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use wakeline_core::{Error, ErrorCode};

use super::{Graph, Inner, Kept};
use crate::device_op;
use crate::hazard::{Item, Storage, Use, Uses, Wants};
use crate::op::DeviceOp;
use crate::port::{Arg, At, Graphs, Promise, Shape};
use crate::submission::Submission;
use crate::sync::MutexGuard;

/// How many buffers of a graph, and one for the graph itself, cost no allocation in a launch.
const BUFFERS_INLINE: usize = 32;

/// An operation that launches a graph; see [`Graph::launch`].
#[must_use = "an operation does nothing until it is awaited or run"]
pub struct Replay<D: Graphs> {
    graph: Arc<Inner<D>>,
}

impl<D: Graphs> Replay<D> {
    pub(super) fn new(graph: &Arc<Inner<D>>) -> Self {
        Self { graph: Arc::clone(graph) }
    }
}

impl<D: Graphs> Clone for Replay<D> {
    fn clone(&self) -> Self {
        Self { graph: Arc::clone(&self.graph) }
    }
}

impl<D: Graphs> fmt::Debug for Replay<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("graph", &self.graph.number).finish()
    }
}

impl<D: Graphs> DeviceOp for Replay<D> {
    type Device = D;
    type Pending = ();
    type Output = ();

    fn execute(self, submission: &mut Submission<D>) -> Result<(), Error> {
        submission.not_recorded(&"the launch of a graph", &"record the operations that it was made of")?;
        if !Arc::ptr_eq(self.graph.stream.core(), submission.stream.core()) {
            return Err(Error::new(ErrorCode::ForeignMemory, []));
        }
        submission.touched.set(true);
        // Whatever happens from here on, it stays until this submission's work is done.
        submission.retain(Arc::clone(&self.graph));
        let mut launched = false;
        while !launched {
            let kept = Arc::clone(&self.graph.kept.lock());
            submission.retain(Arc::clone(&kept));
            launched = self.graph.launch(submission, &kept)?;
        }
        Ok(())
    }

    fn finish((): ()) -> Result<(), Error> {
        Ok(())
    }

    /// The launch, and the event behind it.
    fn entries(&self) -> u32 {
        2
    }

    fn kind_key(&self) -> u64 {
        self.graph.number
    }
}

device_op!([D] Replay<D> where D: Graphs);

impl<D: Graphs> Kept<D> {
    fn items(&self) -> impl Iterator<Item = Item<'_, D>> + Clone {
        self.accesses.iter().map(|(storage, writes)| Item {
            uses: storage.uses(),
            writes: *writes,
            keeps: None,
        })
    }
}

impl<D: Graphs> Inner<D> {
    /// Launches it, with what a launch used a moment ago; false where that has changed.
    fn launch(&self, submission: &mut Submission<D>, kept: &Kept<D>) -> Result<bool, Error> {
        for (stream, place) in kept.after.iter() {
            if stream.id() != submission.stream.id() {
                submission.room(1)?;
                submission.wait_behind(stream, *place)?;
            }
        }
        // Each launch writes what there is of it alone.
        let own = iter::once(Item { uses: &self.launches, writes: true, keeps: None });
        let current = || self.version.load(Ordering::Acquire) == kept.version;
        submission.in_order::<[(MutexGuard<'_, Uses<D>>, Wants); BUFFERS_INLINE], [Use<D>; BUFFERS_INLINE]>(
            own.chain(kept.items()),
            current,
            |device, stream| {
                // SAFETY: the submission keeps the graph, and with it the buffers and all that operations retained as they were recorded, until this is done; the records that
                // are locked order what else uses the buffers, and the last launch.
                let promise = unsafe { Promise::new() };
                device.launch_graph(stream, &self.executable, promise)
            },
        )
    }
}

/// An argument of a kernel of a graph; see [`Graph::set_kernel`].
#[derive(Debug)]
pub enum GraphArg<'a, D: Graphs> {
    /// A number; narrower ones are its low bytes.
    Word(u64),
    /// A buffer that the kernel only reads, from a byte on.
    Read(&'a Arc<Storage<D>>, usize),
    /// A buffer that the kernel writes, and may read.
    Write(&'a Arc<Storage<D>>, usize),
}

impl<D: Graphs, T> Graph<D, T> {
    /// Has the node of this number launch `kernel` so from the next launch on. What is in flight stays as it was.
    ///
    /// The graph owns the buffers that are named here from now on, and its launches come behind other uses of them, until the arguments of the node are set again. What was recorded of the node it owns all the
    /// same.
    ///
    /// # Errors
    ///
    /// [`GraphMismatch`](ErrorCode::GraphMismatch): there is no such node, or it launches no kernel, or another. [`ForeignMemory`](ErrorCode::ForeignMemory) for a buffer of another runtime. What the
    /// device says.
    ///
    /// # Safety
    ///
    /// The kernel takes these arguments, touches no memory but theirs and its own, within their lengths, and writes only what is handed in by [`GraphArg::Write`]. Nodes of the graph that come
    /// neither behind this one nor in front of it use none of the buffers that it writes, and write none that it uses.
    pub unsafe fn set_kernel(
        &self,
        node: usize,
        kernel: &D::Kernel,
        shape: Shape,
        args: &[GraphArg<'_, D>],
    ) -> Result<(), Error> {
        let inner = &*self.inner;
        let mut used: Vec<(Arc<Storage<D>>, bool)> = Vec::new();
        for arg in args {
            let (storage, writes) = match arg {
                GraphArg::Word(_) => continue,
                GraphArg::Read(storage, _) => (*storage, false),
                GraphArg::Write(storage, _) => (*storage, true),
            };
            if !storage.is_of(inner.stream.core()) {
                return Err(Error::new(ErrorCode::ForeignMemory, []));
            }
            used.push((Arc::clone(storage), writes));
        }
        let raw = args.iter().map(|arg| match *arg {
            GraphArg::Word(word) => Arg::Word(word),
            GraphArg::Read(storage, offset) => {
                Arg::Read(At { memory: storage.buffer(), offset_bytes: offset })
            }
            GraphArg::Write(storage, offset) => {
                Arg::Write(At { memory: storage.buffer(), offset_bytes: offset })
            }
        });
        let raw: Vec<Arg<'_, D::Buffer>> = raw.collect();
        let captured = inner.captured.lock();
        let set = || {
            // SAFETY: what the kernel does is as the caller says; the list of what a launch uses has these buffers from here on, and the kernel is kept with it.
            let promise = unsafe { Promise::new() };
            inner.stream.device().set_kernel(
                &inner.executable,
                &captured.raw,
                node,
                kernel,
                shape,
                &raw,
                promise,
            )
        };
        let before = inner.change(set, |before| before.with(node, used, kernel.clone()));
        drop(captured);
        before.map(drop)
    }
}

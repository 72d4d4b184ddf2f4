//! The simulated device as the device of operations. What a real device takes on trust is checked here: see [`Misuse`](crate::Misuse).

use alloc::sync::Arc;
use alloc::vec::Vec;

use wakeline_core::{Error, HostLine, Nanos};
use wakeline_ops::port::{
    Arg, At, Device, Gates, Graphs, HostArgs, HostKernels, Launch, Memory, Node, NodeKind, Pattern, Pinned,
    PoolUse, Pools, Priority, Promise, Rows, Shape, ShapeLimits,
};

use crate::access::{SimArg, SimAt, SimEvent, SimMemory, SimPinned};
use crate::device::SimDevice;
use crate::gate::SimGate;
use crate::graph::{SimCapture, SimGraph, SimNode, SimNodeKind};
use crate::job::{SimArgs, SimKernel, SimRows};
use crate::memory::Tally;
use crate::port::SimPort;
use crate::stream::SimStream;
use crate::time::{TimeLine, VirtualTime};

/// What a simulated device runs at most: as much as an H200.
pub const SHAPE_LIMITS: ShapeLimits = ShapeLimits {
    blocks: [2_147_483_647, 65_535, 65_535],
    threads: [1_024, 1_024, 64],
    block_threads: 1_024,
    shared_bytes: 227 << 10,
    cluster_blocks: 16,
};

/// A runtime of operations on a simulated device.
pub type SimRuntime<L = VirtualTime> = wakeline_ops::Runtime<SimDevice<L>>;

/// A stream of such a runtime.
pub type SimOpStream<L = VirtualTime> = wakeline_ops::Stream<SimDevice<L>>;

impl<T: TimeLine + Send + Sync + 'static> Device for SimDevice<T> {
    type Stream = SimStream<T>;
    type Event = SimEvent;
    type Line = Arc<HostLine>;
    type Point = SimPort<T>;

    /// All streams are alike: every one runs as if it had the device for itself.
    fn stream(&self, _priority: Priority) -> Result<Self::Stream, Error> {
        Self::stream(self)
    }

    fn event(&self) -> Result<Self::Event, Error> {
        Ok(Self::event(self))
    }

    fn record(&self, stream: &Self::Stream, event: &Self::Event) -> Result<(), Error> {
        stream.record(event)
    }

    fn wait(&self, stream: &Self::Stream, event: &Self::Event) -> Result<(), Error> {
        if event.is_captured() && !stream.is_for_captures() {
            return Err(stream.refused_in_captures());
        }
        stream.wait(event)
    }

    fn point(&self, stream: &Self::Stream) -> Result<Self::Point, Error> {
        Ok(stream.point())
    }

    fn call_host<F>(&self, stream: &Self::Stream, function: F) -> Result<(), Error>
    where
        F: FnOnce() + Send + 'static,
    {
        stream.call_host(function)
    }

    fn ready(&self, stream: &Self::Stream) -> Result<(), Error> {
        stream.refuse_capturing()
    }

    fn health(&self) -> Result<(), Error> {
        Self::health(self).map_or(Ok(()), Err)
    }
}

impl<T: TimeLine + Send + Sync + 'static> Gates for SimDevice<T> {
    type Word = SimGate<T>;

    fn word(&self) -> Result<SimGate<T>, Error> {
        self.gate()
    }

    fn wait_open(&self, stream: &Self::Stream, word: &SimGate<T>) -> Result<(), Error> {
        stream.wait_open(word)
    }

    fn open(word: &SimGate<T>) {
        word.open();
    }
}

impl<T: TimeLine + Send + Sync + 'static> Pinned for SimPinned<T> {
    fn read(&self, offset_bytes: usize, out: &mut [u8], _: Promise) -> Result<(), Error> {
        Self::read_at(self, offset_bytes, out)
    }

    fn write(&self, offset_bytes: usize, from: &[u8], _: Promise) -> Result<(), Error> {
        Self::write_at(self, offset_bytes, from)
    }
}

impl<T: TimeLine + Send + Sync + 'static> Memory for SimDevice<T> {
    type Buffer = SimMemory;
    type Pinned = SimPinned<T>;

    fn alloc(&self, stream: &Self::Stream, len: usize) -> Result<Self::Buffer, Error> {
        stream.alloc(len)
    }

    fn pinned(&self, len: usize) -> Result<Self::Pinned, Error> {
        Self::pinned(self, len)
    }

    fn free(&self, stream: &Self::Stream, buffer: &Self::Buffer, _: Promise) -> Result<(), Error> {
        stream.free(buffer)
    }

    fn fill(
        &self,
        stream: &Self::Stream,
        to: At<'_, Self::Buffer>,
        pattern: Pattern,
        count: usize,
        _: Promise,
    ) -> Result<(), Error> {
        let to = sim_at(to);
        match pattern {
            Pattern::One(byte) => stream.fill_with(to, &[byte], count),
            Pattern::Two(number) => stream.fill_with(to, &number.to_ne_bytes(), count),
            Pattern::Four(number) => stream.fill_with(to, &number.to_ne_bytes(), count),
        }
    }

    fn copy(
        &self,
        stream: &Self::Stream,
        from: At<'_, Self::Buffer>,
        to: At<'_, Self::Buffer>,
        len: usize,
        _: Promise,
    ) -> Result<(), Error> {
        stream.copy(sim_at(from), sim_at(to), len)
    }

    fn upload(
        &self,
        stream: &Self::Stream,
        from: At<'_, Self::Pinned>,
        to: At<'_, Self::Buffer>,
        len: usize,
        _: Promise,
    ) -> Result<(), Error> {
        stream.upload(sim_at(from), sim_at(to), len)
    }

    fn download(
        &self,
        stream: &Self::Stream,
        from: At<'_, Self::Buffer>,
        to: At<'_, Self::Pinned>,
        len: usize,
        _: Promise,
    ) -> Result<(), Error> {
        stream.download(sim_at(from), sim_at(to), len)
    }

    fn copy_rows(
        &self,
        stream: &Self::Stream,
        from: At<'_, Self::Buffer>,
        to: At<'_, Self::Buffer>,
        rows: Rows,
        _: Promise,
    ) -> Result<(), Error> {
        stream.copy_rows(sim_at(from), sim_at(to), sim_rows(rows))
    }

    fn upload_rows(
        &self,
        stream: &Self::Stream,
        from: At<'_, Self::Pinned>,
        to: At<'_, Self::Buffer>,
        rows: Rows,
        _: Promise,
    ) -> Result<(), Error> {
        stream.upload_rows(sim_at(from), sim_at(to), sim_rows(rows))
    }

    fn download_rows(
        &self,
        stream: &Self::Stream,
        from: At<'_, Self::Buffer>,
        to: At<'_, Self::Pinned>,
        rows: Rows,
        _: Promise,
    ) -> Result<(), Error> {
        stream.download_rows(sim_at(from), sim_at(to), sim_rows(rows))
    }
}

impl<T: TimeLine + Send + Sync + 'static> Pools for SimDevice<T> {
    /// Reserved is what is in use, and what is to be freed by work that did not run yet.
    fn device_pool(&self) -> Result<PoolUse, Error> {
        Self::health(self).map_or(Ok(()), Err)?;
        Ok(self.with(|state| PoolUse {
            reserved_bytes: state.buffers.reserved(),
            ..pool_use(*state.buffers.tally_mut(false))
        }))
    }

    fn limit_device_pool(&self, bytes: u64) {
        self.with(|state| state.buffers.tally_mut(false).limit = bytes);
    }

    /// It keeps nothing that is not in use.
    fn trim_device_pool(&self, _keep_bytes: u64) -> Result<(), Error> {
        Self::health(self).map_or(Ok(()), Err)
    }

    fn pinned_pool(&self) -> PoolUse {
        self.with(|state| pool_use(*state.buffers.tally_mut(true)))
    }

    fn limit_pinned_pool(&self, bytes: u64) {
        self.with(|state| state.buffers.tally_mut(true).limit = bytes);
    }

    fn trim_pinned_pool(&self, _keep_bytes: u64) -> Result<(), Error> {
        Self::health(self).map_or(Ok(()), Err)
    }
}

fn pool_use(tally: Tally) -> PoolUse {
    let Tally { in_use, high_water, limit } = tally;
    PoolUse { in_use_bytes: in_use, reserved_bytes: in_use, high_water_bytes: high_water, limit_bytes: limit }
}

fn sim_rows(rows: Rows) -> SimRows {
    let Rows { len, count, from_pitch, to_pitch } = rows;
    SimRows { len, count, from_pitch, to_pitch }
}

pub(crate) fn sim_at<B>(at: At<'_, B>) -> SimAt<'_, B> {
    SimAt { memory: at.memory, offset: at.offset_bytes }
}

impl HostArgs for SimArgs {
    fn word(&self, place: usize) -> u64 {
        Self::word(self, place)
    }

    fn bytes(&self, place: usize) -> &[u8] {
        Self::bytes(self, place)
    }

    fn bytes_mut(&mut self, place: usize) -> &mut [u8] {
        Self::bytes_mut(self, place)
    }
}

impl<T: TimeLine + Send + Sync + 'static> HostKernels for SimDevice<T> {
    type HostArgs = SimArgs;

    fn host_kernel(
        name: &'static str,
        length: Nanos,
        takes: &[usize],
        code: impl Fn(&mut SimArgs) + Send + Sync + 'static,
    ) -> SimKernel {
        SimKernel::new(length, code).named(name).taking(takes)
    }
}

impl<T: TimeLine + Send + Sync + 'static> Launch for SimDevice<T> {
    type Kernel = SimKernel;

    /// Of a kernel that says what it [takes](SimKernel::taking); any other may.
    fn takes(&self, kernel: &Self::Kernel, bytes: &[usize]) -> Result<(), Error> {
        kernel.check_takes(bytes)
    }

    /// The closure runs once, whatever the shape, which must be one that [`SHAPE_LIMITS`] allow.
    fn launch(
        &self,
        stream: &Self::Stream,
        kernel: &Self::Kernel,
        shape: Shape,
        args: &[Arg<'_, Self::Buffer>],
        _: Promise,
    ) -> Result<(), Error> {
        shape.check("sim", &SHAPE_LIMITS)?;
        stream.run(kernel, &sim_args(args))
    }
}

fn sim_args<'a>(args: &[Arg<'a, SimMemory>]) -> Vec<SimArg<'a>> {
    let arg = |arg: &Arg<'a, SimMemory>| match *arg {
        Arg::Word(word) => SimArg::Word(word),
        Arg::Read(at) => SimArg::Read(sim_at(at)),
        Arg::Write(at) => SimArg::Write(sim_at(at)),
    };
    args.iter().map(arg).collect()
}

impl<T: TimeLine + Send + Sync + 'static> Graphs for SimDevice<T> {
    type Captured = SimCapture;
    type Executable = SimGraph<T>;

    fn capture_stream(&self, _: Priority) -> Result<Self::Stream, Error> {
        self.make_stream(true)
    }

    fn begin_capture(&self, stream: &Self::Stream, _: Promise) -> Result<(), Error> {
        stream.begin_capture()
    }

    fn end_capture(&self, stream: &Self::Stream, _: Promise) -> Result<SimCapture, Error> {
        stream.end_capture()
    }

    fn nodes(&self, captured: &SimCapture) -> Result<Vec<Node>, Error> {
        let node = |SimNode { kind, name, after }| {
            let kind = match kind {
                SimNodeKind::Kernel => NodeKind::Kernel,
                SimNodeKind::Copy => NodeKind::Copy,
                SimNodeKind::Fill => NodeKind::Fill,
            };
            Node { kind, name: name.unwrap_or_default().into(), after }
        };
        Ok(captured.nodes().into_iter().map(node).collect())
    }

    fn instantiate(&self, captured: &SimCapture) -> Result<SimGraph<T>, Error> {
        Self::instantiate(self, captured)
    }

    fn launch_graph(&self, stream: &Self::Stream, graph: &SimGraph<T>, _: Promise) -> Result<(), Error> {
        stream.launch_graph(graph)
    }

    fn update_graph(&self, graph: &SimGraph<T>, captured: &SimCapture) -> Result<(), Error> {
        graph.update(captured)
    }

    fn set_kernel(
        &self,
        graph: &SimGraph<T>,
        _: &SimCapture,
        node: usize,
        kernel: &SimKernel,
        shape: Shape,
        args: &[Arg<'_, SimMemory>],
        _: Promise,
    ) -> Result<(), Error> {
        shape.check("sim", &SHAPE_LIMITS)?;
        graph.set_kernel(node, kernel, &sim_args(args))
    }
}

//! The simulated device as the device of operations. What a real device takes on trust is checked here: see [`Misuse`](crate::Misuse).

use alloc::sync::Arc;
use alloc::vec::Vec;

use wakeline_core::{Error, HostLine};
use wakeline_ops::port::{Arg, Device, Gates, Launch, Memory, Pinned, Priority, Promise, Shape};

use crate::access::{SimArg, SimEvent, SimMemory, SimPinned};
use crate::device::SimDevice;
use crate::gate::SimGate;
use crate::job::SimKernel;
use crate::port::SimPort;
use crate::stream::SimStream;
use crate::time::{TimeLine, VirtualTime};

/// Numbers in memory of a simulated device.
pub type SimTensor<T, L = VirtualTime> = wakeline_ops::Tensor<T, SimDevice<L>>;

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
    fn read(&self, out: &mut [u8], _: Promise) -> Result<(), Error> {
        Self::read(self, out)
    }

    fn write(&self, from: &[u8], _: Promise) -> Result<(), Error> {
        Self::write(self, from)
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

    fn fill(&self, stream: &Self::Stream, buffer: &Self::Buffer, byte: u8, _: Promise) -> Result<(), Error> {
        stream.fill(buffer, byte)
    }

    fn copy(
        &self,
        stream: &Self::Stream,
        from: &Self::Buffer,
        to: &Self::Buffer,
        len: usize,
        _: Promise,
    ) -> Result<(), Error> {
        stream.copy(from, to, len)
    }

    fn upload(
        &self,
        stream: &Self::Stream,
        from: &Self::Pinned,
        to: &Self::Buffer,
        len: usize,
        _: Promise,
    ) -> Result<(), Error> {
        stream.upload(from, to, len)
    }

    fn download(
        &self,
        stream: &Self::Stream,
        from: &Self::Buffer,
        to: &Self::Pinned,
        len: usize,
        _: Promise,
    ) -> Result<(), Error> {
        stream.download(from, to, len)
    }
}

impl<T: TimeLine + Send + Sync + 'static> Launch for SimDevice<T> {
    type Kernel = SimKernel;

    /// The closure runs once, whatever the shape.
    fn launch(
        &self,
        stream: &Self::Stream,
        kernel: &Self::Kernel,
        _shape: Shape,
        args: &[Arg<'_, Self::Buffer>],
        _: Promise,
    ) -> Result<(), Error> {
        let args: Vec<SimArg<'_>> = args
            .iter()
            .map(|arg| match *arg {
                Arg::Word(word) => SimArg::Word(word),
                Arg::Read(buffer) => SimArg::Read(buffer),
                Arg::Write(buffer) => SimArg::Write(buffer),
            })
            .collect();
        stream.run(kernel, &args)
    }
}

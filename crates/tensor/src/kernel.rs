//! Kernels on tensors.

// A promise to the port, which whoever makes the operation has given; and what takes that is declared unsafe.
#![allow(unsafe_code)]

use core::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use wakeline_core::Error;
use wakeline_ops::port::{self, Arg, At, Memory, Promise, Shape};
use wakeline_ops::{DeviceOp, Graph, GraphArg, Submission, Touch, device_op};

use crate::block::Block;
use crate::element::Element;
use crate::tensor::Tensor;

/// How many arguments are kept without an allocation.
const ARGS_INLINE: usize = 8;

/// An argument of a kernel: a number, or a tensor that it reads or writes.
pub struct KernelArg<D: Memory>(Kind<D>);

enum Kind<D: Memory> {
    Word(u64),
    /// From a byte on.
    Read(Arc<Block<D>>, usize),
    Write(Arc<Block<D>>, usize),
}

impl<D: Memory> KernelArg<D> {
    /// A number; narrower ones are its low bytes.
    pub const fn word(word: u64) -> Self {
        Self(Kind::Word(word))
    }

    /// A tensor that the kernel only reads: the address of its first number.
    pub fn read<T: Element>(tensor: &Tensor<T, D>) -> Self {
        Self(Kind::Read(Arc::clone(tensor.block()), tensor.span().offset_bytes))
    }

    /// A tensor that the kernel writes, and may read.
    pub fn write<T: Element>(tensor: &Tensor<T, D>) -> Self {
        Self(Kind::Write(Arc::clone(tensor.block()), tensor.span().offset_bytes))
    }
}

impl<D: Memory> fmt::Debug for KernelArg<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Word(word) => f.debug_tuple("Word").field(word).finish(),
            Kind::Read(block, offset) => f.debug_tuple("Read").field(block).field(offset).finish(),
            Kind::Write(block, offset) => f.debug_tuple("Write").field(block).field(offset).finish(),
        }
    }
}

/// An operation that launches a kernel on these arguments. What it reads and writes is ordered as every use of a tensor. Up to eight arguments
/// cost no allocation, where they come in an array and no more than three of them are tensors.
///
/// ```
/// use wakeline_core::Nanos;
/// use wakeline_ops::port::Shape;
/// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
/// use wakeline_sim::{SimConfig, SimDevice, SimKernel, VirtualTime, VirtualWatcher};
/// use wakeline_tensor::{KernelArg, Tensor, launch};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let watcher = VirtualWatcher::new(&device);
/// let runtime = Runtime::new(device, &SingleStream, watcher.clone())?;
/// // On a simulated device a kernel is a closure.
/// let scale = SimKernel::new(Nanos::from_micros(20), |args| {
///     let by = args.word(1) as u8;
///     args.bytes_mut(0).iter_mut().for_each(|byte| *byte *= by);
/// });
/// let op = Tensor::full(3, 5_u8).then(move |tensor| {
///     let args = [KernelArg::write(&tensor), KernelArg::word(4)];
///     let shape = Shape::new([1, 1, 1], [3, 1, 1]);
///     // SAFETY: the kernel takes bytes and a number, and writes those bytes only.
///     unsafe { launch(scale, shape, args) }.then(move |()| tensor.to_host())
/// });
/// assert_eq!(watcher.run(op.on(&runtime))??, [20, 20, 20]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
///
/// # Safety
///
/// The kernel takes these arguments, touches no memory but theirs and its own, within their lengths, and writes only what is handed in by
/// [`KernelArg::write`].
pub unsafe fn launch<D: port::Launch>(
    kernel: D::Kernel,
    shape: Shape,
    args: impl IntoIterator<Item = KernelArg<D>>,
) -> Launch<D> {
    Launch { kernel, shape, args: args.into_iter().collect() }
}

/// Has a node of a graph launch `kernel` on these arguments from its next launch on; see [`Graph::set_kernel`].
///
/// # Errors
///
/// As [`Graph::set_kernel`].
///
/// # Safety
///
/// As [`Graph::set_kernel`]; as of [`launch`], what is written is handed in by [`KernelArg::write`].
pub unsafe fn set_kernel<D: port::Graphs, T>(
    graph: &Graph<D, T>,
    node: usize,
    kernel: &D::Kernel,
    shape: Shape,
    args: impl IntoIterator<Item = KernelArg<D>>,
) -> Result<(), Error> {
    let args: SmallVec<[KernelArg<D>; ARGS_INLINE]> = args.into_iter().collect();
    let args: SmallVec<[GraphArg<'_, D>; ARGS_INLINE]> = args
        .iter()
        .map(|arg| match &arg.0 {
            Kind::Word(word) => GraphArg::Word(*word),
            Kind::Read(block, offset) => GraphArg::Read(block.storage(), *offset),
            Kind::Write(block, offset) => GraphArg::Write(block.storage(), *offset),
        })
        .collect();
    // SAFETY: as the caller says.
    unsafe { graph.set_kernel(node, kernel, shape, &args) }
}

/// See [`launch`].
#[must_use = "an operation does nothing until it is awaited or run"]
pub struct Launch<D: port::Launch> {
    kernel: D::Kernel,
    shape: Shape,
    args: SmallVec<[KernelArg<D>; ARGS_INLINE]>,
}

impl<D: port::Launch> DeviceOp for Launch<D> {
    type Device = D;
    type Pending = ();
    type Output = ();

    fn execute(self, submission: &mut Submission<D>) -> Result<(), Error> {
        let Self { kernel, shape, args } = self;
        submission.retain(kernel.clone());
        let touches: SmallVec<[Touch<'_, D>; ARGS_INLINE]> = args
            .iter()
            .filter_map(|arg| match &arg.0 {
                Kind::Word(_) => None,
                Kind::Read(block, _) => Some(block.storage().read()),
                Kind::Write(block, _) => Some(block.storage().write()),
            })
            .collect();
        submission.touch(&touches, |device, stream| {
            let args: SmallVec<[Arg<'_, D::Buffer>; ARGS_INLINE]> = args
                .iter()
                .map(|arg| match &arg.0 {
                    Kind::Word(word) => Arg::Word(*word),
                    Kind::Read(block, offset) => Arg::Read(at(block, *offset)),
                    Kind::Write(block, offset) => Arg::Write(at(block, *offset)),
                })
                .collect();
            // SAFETY: the submission keeps kernel and buffers until this is done, and `touch` orders what else uses the buffers; that
            // the kernel does with them as it says was promised to `launch`.
            let promise = unsafe { Promise::new() };
            device.launch(stream, &kernel, shape, &args, promise)
        })
    }

    fn finish((): ()) -> Result<(), Error> {
        Ok(())
    }

    /// The launch, and the event behind it where there are tensors.
    fn entries(&self) -> u32 {
        let has_tensors = self.args.iter().any(|arg| !matches!(arg.0, Kind::Word(_)));
        if has_tensors { 2 } else { 1 }
    }
}

fn at<D: Memory>(block: &Block<D>, offset_bytes: usize) -> At<'_, D::Buffer> {
    At { memory: block.storage().buffer(), offset_bytes }
}

device_op!([D] Launch<D> where D: port::Launch);

impl<D: port::Launch> fmt::Debug for Launch<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch").field("shape", &self.shape).field("args", &self.args).finish_non_exhaustive()
    }
}

//! What no safe call gives: a stream that somebody else made, and a kernel on a tensor.

#![allow(unsafe_code, reason = "a foreign stream and a kernel's arguments are promises")]

use wakeline_core::Error;
use wakeline_cuda::kernels::AFFINE;
use wakeline_cuda::{CuStream, CudaContext, CudaDevice, Function};
use wakeline_ops::port::Shape;
use wakeline_tensor::{KernelArg, Launch, Tensor, launch};

/// A stream as another library would hand it in: a handle, and a value that keeps it.
pub(super) fn foreign(context: &CudaContext) -> Result<CuStream, Error> {
    let theirs = context.stream()?;
    let raw = theirs.raw().as_ptr();
    // SAFETY: the stream is alive, and is kept by what is handed in with it.
    unsafe { CuStream::from_raw_kept(context, raw, theirs) }
}

/// The kernel of [`affine`].
pub(super) fn affines(device: &CudaDevice) -> Result<Function, Error> {
    device.ptx(wakeline_cuda::kernels::PTX)?.function(AFFINE)
}

/// Multiplies the numbers of a tensor, and adds to them.
pub(super) fn affine(
    kernel: &Function,
    tensor: &Tensor<u32, CudaDevice>,
    (factor, addend): (u32, u32),
) -> Launch<CudaDevice> {
    let words = [tensor.len() as u64, factor.into(), addend.into()].map(KernelArg::word);
    let args = [KernelArg::write(tensor)].into_iter().chain(words);
    let shape = Shape::new([4, 1, 1], [64, 1, 1]);
    // SAFETY: the kernel takes an address, a count and two numbers, and writes so many numbers there.
    unsafe { launch(kernel.clone(), shape, args) }
}

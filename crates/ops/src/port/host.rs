//! Kernels that are functions of the host, for devices that can run such.

use wakeline_core::Nanos;

use super::Launch;

/// What a kernel of the host was launched with, by the place of the argument, counted from 0.
pub trait HostArgs {
    /// The number at this place. MUST be 0 where there is none.
    fn word(&self, place: usize) -> u64;

    /// The bytes of the buffer at this place, from the argument's offset to the buffer's end. MUST be none where there is none.
    fn bytes(&self, place: usize) -> &[u8];

    /// The same, to be changed.
    fn bytes_mut(&mut self, place: usize) -> &mut [u8];
}

/// A device whose kernels can be functions of the host: a simulated one.
///
/// ```
/// use wakeline_core::Nanos;
/// use wakeline_ops::port::{HostArgs, HostKernels};
/// fn doubles<D: HostKernels>() -> D::Kernel {
///     D::host_kernel("doubles", Nanos::from_micros(10), &[8], |args| {
///         args.bytes_mut(0).iter_mut().for_each(|byte| *byte *= 2);
///     })
/// }
/// let kernel: wakeline_sim::SimKernel = doubles::<wakeline_sim::SimDevice>();
/// ```
pub trait HostKernels: Launch {
    /// What such a kernel is called with.
    type HostArgs: HostArgs;

    /// A kernel that takes arguments of these bytes, runs for `length` as the device counts time, and does what `code` says, once a launch. MUST NOT call it
    /// before all is done that is in front of it, nor let work behind it begin before it has returned. Where it panics the device MUST be faulted, by an error that has
    /// the kernel's name and the panic's message.
    fn host_kernel(
        name: &'static str,
        length: Nanos,
        takes: &[usize],
        code: impl Fn(&mut Self::HostArgs) + Send + Sync + 'static,
    ) -> Self::Kernel;
}

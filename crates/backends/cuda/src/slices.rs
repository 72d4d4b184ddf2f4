//! Slices of cudarc, as memory of operations.

// What makes storage of memory that was allocated elsewhere is declared unsafe.
#![allow(unsafe_code)]

use core::fmt;

use ::cudarc::driver::{CudaSlice, DevicePtrMut as _};
use wakeline_core::Error;
use wakeline_ops::{DeviceOp, Foreign, Storage, Submission, device_op};

use crate::cudarc::FromCudarc as _;
use crate::ops::{CudaDevice, CudaEvent, CudaMemory};
use crate::wait::CuStream;

/// An operation that lends a slice of cudarc's to operations, behind all that cudarc has enqueued in its stream by then. With the features `cudarc` and `ops`.
///
/// What it gives becomes a tensor by `Tensor::from_foreign` of `wakeline-tensor`; `Tensor::give_back` gives the slice back once nothing here uses it, and then cudarc
/// may use it at once, in any stream. Until then it is kept; where the tensor is dropped, the slice is dropped once the last use is done, by
/// whoever sees that, in cudarc's way.
///
/// Costs a word of the context, an event and a wait for it; nothing is copied.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use wakeline_cuda::{Cuda, CudaContext, CudaDevice, DEVICE_BYTES_KEPT, FromCudarc as _, LendSlice};
/// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin};
/// use wakeline_std::{Point, Watcher};
/// use wakeline_tensor::Tensor;
///
/// let theirs = cudarc::driver::CudaContext::new(0)?.new_stream()?;
/// let slice = theirs.clone_htod(&[1.0_f32, 2.0, 3.0])?;
/// let device = CudaDevice::in_context(CudaContext::from_cudarc(&Cuda::load()?, &theirs)?, DEVICE_BYTES_KEPT)?;
/// let watcher = Watcher::new()?;
/// let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), watcher.handle().tender(&Point::new("ops")))?;
/// let tensor = Tensor::<f32, _>::from_foreign(LendSlice::new(slice).on(&runtime).sync()?, 3)?;
/// assert_eq!(tensor.to_host().on(&runtime).sync()?, [1.0, 2.0, 3.0]);
/// let slice: cudarc::driver::CudaSlice<f32> = tensor.give_back().map_err(|(_, error)| error)?;
/// # let _ = slice;
/// # Ok(())
/// # }
/// ```
#[must_use = "an operation does nothing until it is awaited or run"]
pub struct LendSlice<T> {
    slice: CudaSlice<T>,
}

impl<T: 'static> LendSlice<T> {
    /// Lends this slice.
    pub const fn new(slice: CudaSlice<T>) -> Self {
        Self { slice }
    }
}

impl<T: 'static> DeviceOp for LendSlice<T> {
    type Device = CudaDevice;
    type Pending = Foreign<CudaDevice>;
    type Output = Foreign<CudaDevice>;

    /// # Errors
    ///
    /// The slice is dropped then:
    /// - [`ForeignStream`](wakeline_core::ErrorCode::ForeignStream): it is of another context than the device is in, or cudarc has loaded another library.
    /// - As [`CuStream::from_cudarc`](crate::FromCudarc::from_cudarc); what the device says.
    fn execute(self, submission: &mut Submission<CudaDevice>) -> Result<Foreign<CudaDevice>, Error> {
        let mut slice = self.slice;
        let stream = slice.stream().clone();
        let context = submission.device().context().clone();
        let theirs = CuStream::from_cudarc(&context, &stream)?;
        let address = {
            // Has its stream wait for uses of it in others, where cudarc keeps account of them.
            let (address, used) = slice.device_ptr_mut(&stream);
            drop(used);
            address
        };
        let event = CudaEvent::new(&context)?;
        event.record(&theirs)?;
        event.wait(submission.stream().raw())?;
        submission.retain((event, theirs));
        let bytes = slice.num_bytes();
        // SAFETY: the slice owns those bytes, on this device, for its context is the device's, and it is the owner; its elements were of it, so that it is aligned for
        // them. Nobody else has the slice; what was enqueued that uses it is in front of the event.
        unsafe { Storage::foreign(submission, CudaMemory::at(address, bytes), bytes, slice) }
    }

    fn finish(foreign: Foreign<CudaDevice>) -> Result<Foreign<CudaDevice>, Error> {
        Ok(foreign)
    }
}

device_op!([T] LendSlice<T> where T: 'static);

impl<T> fmt::Debug for LendSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LendSlice").field("len", &self.slice.len()).finish_non_exhaustive()
    }
}

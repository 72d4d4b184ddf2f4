//! Pinned memory of one's own, which tensors are sent from and fetched into: no copy by the host, and no new memory for each.

use core::fmt;
use core::marker::PhantomData;

use wakeline_core::{Error, within};
use wakeline_ops::port::Memory;
use wakeline_ops::{DeviceOp, Submission, device_op};

use crate::block::Named;
use crate::dims::Dims;
use crate::element::Element;
use crate::enqueue::{Fresh, Landed, gathers, rows_calls, uses};
use crate::host::fits;
use crate::tensor::Tensor;

/// Pinned memory of the host with room for numbers.
///
/// A device reads and writes it by itself, as fast as its bus: numbers are not copied once more on their way, as those of
/// [`from_host`](Tensor::from_host) and [`to_host`](Tensor::to_host) are. The operations that use it take it and give it back when they are done. With one that is
/// dropped before that, or fails, it is gone: it lives on until the device is done, and its memory is then used again by others.
///
/// ```
/// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// use wakeline_tensor::{PinnedBuffer, Tensor};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let watcher = VirtualWatcher::new(&device);
/// let runtime = Runtime::new(device.clone(), &SingleStream, watcher.clone())?;
/// let mut buffer = PinnedBuffer::<u32, _>::new(&device, 3)?;
/// buffer.write(0, &[5, 6, 7])?;
/// let sent = Tensor::<u32, SimDevice>::zeros(3).then(|tensor| tensor.overwrite_from(buffer));
/// let (tensor, mut buffer) = watcher.run(sent.on(&runtime))??;
/// buffer.write(0, &[0; 3])?; // the copy has been made
/// let buffer = watcher.run(tensor.fetch_into(buffer).on(&runtime))??;
/// assert_eq!(buffer.to_vec()?, [5, 6, 7]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
///
/// What is in flight has it:
///
/// ```compile_fail,E0382
/// # use wakeline_sim::SimDevice;
/// # use wakeline_tensor::{PinnedBuffer, Tensor};
/// fn race(tensor: &Tensor<u32, SimDevice>, buffer: PinnedBuffer<u32, SimDevice>) {
///     let fetching = tensor.fetch_into(buffer);
///     let torn = buffer.to_vec();
/// }
/// ```
pub struct PinnedBuffer<T, D: Memory> {
    memory: Fresh<D>,
    len: usize,
    element: PhantomData<fn() -> T>,
}

impl<T: Element, D: Memory> PinnedBuffer<T, D> {
    /// Room for so many numbers; what they are at first is not defined. Comes from the device's pool of pinned memory, and goes back there: the first of a size may wait
    /// for the device, and takes the driver milliseconds to seconds, by its size.
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](wakeline_core::ErrorCode::InvalidShape) for more than can be counted in bytes, the device's fault, or that there is not enough memory.
    pub fn new(device: &D, len: usize) -> Result<Self, Error> {
        let bytes = Dims::from(len).numbers(T::BYTES)? * T::BYTES;
        Ok(Self { memory: Fresh::new(device, bytes)?, len, element: PhantomData })
    }

    /// How many numbers it has room for.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether that is none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes these numbers from the one of this index on.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit) where there is no room for as many.
    pub fn write(&mut self, at: usize, numbers: &[T]) -> Result<(), Error> {
        self.memory.write(self.bytes_at(at, numbers.len())?, T::bytes(numbers))
    }

    /// Reads numbers from the one of this index on.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit) where there are not as many.
    pub fn read(&self, at: usize, numbers: &mut [T]) -> Result<(), Error> {
        let at = self.bytes_at(at, numbers.len())?;
        T::read(numbers, |bytes| self.memory.read(at, bytes))
    }

    /// All its numbers.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); on no device that there is.
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        let mut numbers = vec![T::ZERO; self.len];
        self.read(0, &mut numbers)?;
        Ok(numbers)
    }

    /// Where so many numbers begin.
    fn bytes_at(&self, at: usize, count: usize) -> Result<usize, Error> {
        let end = at.saturating_add(count);
        within("the end of what is read or written of a pinned buffer, in numbers,", end, 0, self.len)?;
        Ok(at * T::BYTES)
    }
}

impl<T, D: Memory> fmt::Debug for PinnedBuffer<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<T: Element, D: Memory> Tensor<T, D> {
    /// Writes the numbers of pinned memory over its own, row by row, and gives both back.
    ///
    /// Its errors are those of [`overwrite`](Self::overwrite): it has to be as long, and to be named by nobody else.
    pub const fn overwrite_from(self, buffer: PinnedBuffer<T, D>) -> OverwriteFrom<T, D> {
        OverwriteFrom { tensor: self, buffer }
    }

    /// Fetches its numbers, row by row, into pinned memory, which is given back. Writes that are submitted later do not change what is fetched.
    ///
    /// Errs with [`InvalidShape`](wakeline_core::ErrorCode::InvalidShape) where there is room for another number of numbers, and with
    /// [`InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit) where its own lie in more pieces than [`COPY_CALLS_MAX`](crate::COPY_CALLS_MAX) calls copy.
    pub fn fetch_into(&self, buffer: PinnedBuffer<T, D>) -> FetchInto<T, D> {
        FetchInto { from: self.named(), buffer }
    }
}

/// What was overwritten, and what with.
type Sent<T, D> = (Tensor<T, D>, PinnedBuffer<T, D>);

/// See [`Tensor::overwrite_from`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct OverwriteFrom<T, D: Memory> {
    tensor: Tensor<T, D>,
    buffer: PinnedBuffer<T, D>,
}

impl<T: Element, D: Memory> DeviceOp for OverwriteFrom<T, D> {
    type Device = D;
    type Pending = (Tensor<T, D>, InFlight<T, D>);
    type Output = Sent<T, D>;

    fn execute(self, submission: &mut Submission<D>) -> Result<(Tensor<T, D>, InFlight<T, D>), Error> {
        let Self { tensor, buffer } = self;
        tensor.block().named_by(1, "a tensor that is to be overwritten")?;
        fits(tensor.layout(), buffer.len)?;
        let landed = buffer.memory.spread(submission, &tensor.named(), T::BYTES)?;
        Ok((tensor, InFlight { landed, len: buffer.len, element: PhantomData }))
    }

    fn finish((tensor, buffer): (Tensor<T, D>, InFlight<T, D>)) -> Result<Sent<T, D>, Error> {
        Ok((tensor, buffer.over()?))
    }

    fn entries(&self) -> u32 {
        uses(rows_calls(self.tensor.layout(), T::BYTES))
    }
}

device_op!([T, D] OverwriteFrom<T, D> where T: Element, D: Memory);

/// See [`Tensor::fetch_into`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct FetchInto<T, D: Memory> {
    from: Named<D>,
    buffer: PinnedBuffer<T, D>,
}

impl<T: Element, D: Memory> DeviceOp for FetchInto<T, D> {
    type Device = D;
    type Pending = InFlight<T, D>;
    type Output = PinnedBuffer<T, D>;

    fn execute(self, submission: &mut Submission<D>) -> Result<InFlight<T, D>, Error> {
        let Self { from, buffer } = self;
        fits(&from.layout, buffer.len)?;
        let plan = gathers(&from.layout, T::BYTES)?;
        let landed = buffer.memory.gather(submission, &from, T::BYTES, &plan)?;
        Ok(InFlight { landed, len: buffer.len, element: PhantomData })
    }

    fn finish(buffer: InFlight<T, D>) -> Result<PinnedBuffer<T, D>, Error> {
        buffer.over()
    }

    fn entries(&self) -> u32 {
        uses(rows_calls(&self.from.layout, T::BYTES))
    }
}

device_op!([T, D] FetchInto<T, D> where T: Element, D: Memory);

/// A [`PinnedBuffer`] that a device reads or writes.
pub struct InFlight<T, D: Memory> {
    landed: Landed<D>,
    len: usize,
    element: PhantomData<fn() -> T>,
}

impl<T, D: Memory> InFlight<T, D> {
    /// It, once the work is done; [`StillInFlight`](wakeline_core::ErrorCode::StillInFlight) before.
    fn over(self) -> Result<PinnedBuffer<T, D>, Error> {
        Ok(PinnedBuffer { memory: self.landed.over()?, len: self.len, element: PhantomData })
    }
}

impl<T, D: Memory> fmt::Debug for InFlight<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("len", &self.len).finish_non_exhaustive()
    }
}

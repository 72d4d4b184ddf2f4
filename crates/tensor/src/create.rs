//! Tensors of one number, and of ones on a diagonal.

use core::marker::PhantomData;

use wakeline_core::Error;
use wakeline_ops::port::{Memory, Pattern, Rows};
use wakeline_ops::{DeviceOp, Submission, device_op};

use crate::block::Span;
use crate::dims::Dims;
use crate::element::{Element, Number};
use crate::enqueue::{self, Fresh, uses};
use crate::layout::Layout;
use crate::tensor::Tensor;

/// How many bytes of numbers that the device cannot fill with are sent, before it copies on from what is there.
const SEED_BYTES: usize = 64 << 10;

impl<T: Element, D: Memory> Tensor<T, D> {
    /// A tensor of which nobody knows what it has: for what is written whole by what comes next. Costs the allocation alone.
    pub fn uninit(dims: impl Into<Dims>) -> Uninit<T, D> {
        Uninit { dims: dims.into(), element: PhantomData }
    }

    /// A tensor that has this number everywhere.
    ///
    /// Costs one fill by the device where the number has up to four bytes, or bytes that repeat. Others are sent once, up to 64 KiB of them, and copied on by the
    /// device, twice as many each time.
    pub fn full(dims: impl Into<Dims>, number: T) -> Full<T, D> {
        Full { dims: dims.into(), number, device: PhantomData }
    }

    /// A tensor of zeros.
    pub fn zeros(dims: impl Into<Dims>) -> Full<T, D> {
        Self::full(dims, T::ZERO)
    }
}

impl<T: Number, D: Memory> Tensor<T, D> {
    /// A tensor of ones.
    pub fn ones(dims: impl Into<Dims>) -> Full<T, D> {
        Self::full(dims, T::ONE)
    }

    /// So many rows and columns of zeros, with ones where a row's number is its column's.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// use wakeline_tensor::Tensor;
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
    /// let eye = Tensor::<i32, _>::eye(2, 3).then(|tensor| tensor.to_host());
    /// assert_eq!(eye.on(&runtime).sync()?, [1, 0, 0, 0, 1, 0]);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// # Cost
    ///
    /// A fill by the device, and one copy of the ones from the host, which are put in their places by the way.
    pub const fn eye(rows: usize, columns: usize) -> Eye<T, D> {
        Eye { rows, columns, element: PhantomData }
    }
}

/// See [`Tensor::uninit`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct Uninit<T, D> {
    dims: Dims,
    element: PhantomData<fn() -> (T, D)>,
}

impl<T: Element, D: Memory> DeviceOp for Uninit<T, D> {
    type Device = D;
    type Pending = Tensor<T, D>;
    type Output = Tensor<T, D>;

    /// # Errors
    ///
    /// As of [`Full`].
    fn execute(self, submission: &mut Submission<D>) -> Result<Tensor<T, D>, Error> {
        Tensor::alloc(submission, Layout::rows(self.dims, T::BYTES)?)
    }

    fn finish(tensor: Tensor<T, D>) -> Result<Tensor<T, D>, Error> {
        Ok(tensor)
    }

    fn entries(&self) -> u32 {
        uses(1)
    }
}

device_op!([T, D] Uninit<T, D> where T: Element, D: Memory);

/// See [`Tensor::full`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct Full<T, D> {
    dims: Dims,
    number: T,
    device: PhantomData<fn() -> D>,
}

/// What the device can fill with so that these bytes are there again and again.
fn pattern(bytes: &[u8]) -> Option<Pattern> {
    let repeats =
        |len: usize| bytes.len().is_multiple_of(len) && bytes.chunks(len).all(|part| part == &bytes[..len]);
    match *bytes {
        [one, ..] if repeats(1) => Some(Pattern::One(one)),
        [one, two, ..] if repeats(2) => Some(Pattern::Two(u16::from_ne_bytes([one, two]))),
        [one, two, three, four, ..] if repeats(4) => {
            Some(Pattern::Four(u32::from_ne_bytes([one, two, three, four])))
        }
        _ => None,
    }
}

/// How many bytes are sent of numbers of these.
const fn seed_bytes(bytes: &[u8]) -> usize {
    let repeats = SEED_BYTES / bytes.len();
    if repeats == 0 { bytes.len() } else { repeats * bytes.len() }
}

/// Sends some of these bytes, and has the device copy on from what is there.
fn double<D: Memory>(submission: &mut Submission<D>, to: Span<'_, D>, bytes: &[u8]) -> Result<(), Error> {
    let mut there = to.len_bytes.min(seed_bytes(bytes));
    let mut fresh = Fresh::new(submission.device(), there)?;
    fresh.write(0, &bytes.repeat(there / bytes.len()))?;
    fresh.send(submission, Span { len_bytes: there, ..to })?;
    while there < to.len_bytes {
        let len_bytes = there.min(to.len_bytes - there);
        let next = Span { offset_bytes: to.offset_bytes + there, len_bytes, ..to };
        enqueue::copy_on(submission, Span { len_bytes, ..to }, next)?;
        there += len_bytes;
    }
    Ok(())
}

impl<T: Element, D: Memory> DeviceOp for Full<T, D> {
    type Device = D;
    type Pending = Tensor<T, D>;
    type Output = Tensor<T, D>;

    /// # Errors
    ///
    /// Besides what the device says, [`InvalidShape`](wakeline_core::ErrorCode::InvalidShape) where there cannot be that many.
    fn execute(self, submission: &mut Submission<D>) -> Result<Tensor<T, D>, Error> {
        let tensor = Tensor::alloc(submission, Layout::rows(self.dims, T::BYTES)?)?;
        let number = [self.number];
        let bytes = T::bytes(&number);
        if tensor.len_bytes() == 0 {
            return Ok(tensor);
        }
        match pattern(bytes) {
            Some(pattern) => enqueue::fill(submission, tensor.span(), pattern)?,
            None => double(submission, tensor.span(), bytes)?,
        }
        Ok(tensor)
    }

    fn finish(tensor: Tensor<T, D>) -> Result<Tensor<T, D>, Error> {
        Ok(tensor)
    }

    fn entries(&self) -> u32 {
        // Where there cannot be that many, it is an error.
        let len_bytes = self.dims.numbers(T::BYTES).unwrap_or(0) * T::BYTES;
        let number = [self.number];
        let bytes = T::bytes(&number);
        let calls = match pattern(bytes) {
            _ if len_bytes == 0 => 0,
            Some(_) => 1,
            None => {
                let there = len_bytes.min(seed_bytes(bytes));
                // What is sent, and twice as much each time.
                1 + len_bytes.div_ceil(there).next_power_of_two().trailing_zeros()
            }
        };
        uses(1 + calls)
    }
}

device_op!([T, D] Full<T, D> where T: Element, D: Memory);

/// See [`Tensor::eye`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct Eye<T, D> {
    rows: usize,
    columns: usize,
    element: PhantomData<fn() -> (T, D)>,
}

impl<T: Number, D: Memory> DeviceOp for Eye<T, D> {
    type Device = D;
    type Pending = Tensor<T, D>;
    type Output = Tensor<T, D>;

    /// # Errors
    ///
    /// As of [`Full`]; [`InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit) where a row has more than 2 GiB.
    fn execute(self, submission: &mut Submission<D>) -> Result<Tensor<T, D>, Error> {
        let Self { rows, columns, .. } = self;
        let tensor = Tensor::<T, D>::zeros([rows, columns]).execute(submission)?;
        let count = rows.min(columns);
        if count == 0 {
            return Ok(tensor);
        }
        let mut ones = Fresh::new(submission.device(), count * T::BYTES)?;
        ones.write(0, &T::bytes(&[T::ONE]).repeat(count))?;
        let to_pitch = (columns + 1) * T::BYTES;
        let rows = Rows { len: T::BYTES, count, from_pitch: T::BYTES, to_pitch };
        ones.send_rows(submission, tensor.span(), rows)?;
        Ok(tensor)
    }

    fn finish(tensor: Tensor<T, D>) -> Result<Tensor<T, D>, Error> {
        Ok(tensor)
    }

    fn entries(&self) -> u32 {
        let ones = u32::from(self.rows.min(self.columns) != 0);
        Tensor::<T, D>::zeros([self.rows, self.columns]).entries() + ones
    }
}

device_op!([T, D] Eye<T, D> where T: Number, D: Memory);

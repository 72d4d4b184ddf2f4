//! Tensors, as little of them as operations need: memory of a device with a type and a length.

// Promises to the port, each kept where it is made.
#![allow(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wakeline_core::{Error, ErrorCode, within};

use crate::device_op;
use crate::hazard::Storage;
use crate::op::DeviceOp;
use crate::port::{Memory, Pinned, Promise};
use crate::submission::Submission;

/// A number that tensors are made of, in the byte order of the host.
pub trait Element: Copy + Send + Sync + 'static {
    /// How many bytes one has.
    const BYTES: usize;
    /// Writes it to that many bytes.
    fn put(self, out: &mut [u8]);
    /// Reads it from that many bytes.
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! elements {
    ($($number:ty)*) => {$(
        impl Element for $number {
            const BYTES: usize = size_of::<Self>();

            fn put(self, out: &mut [u8]) {
                out.iter_mut().zip(self.to_ne_bytes()).for_each(|(out, byte)| *out = byte);
            }

            fn get(bytes: &[u8]) -> Self {
                let mut number = [0; size_of::<Self>()];
                number.iter_mut().zip(bytes).for_each(|(number, byte)| *number = *byte);
                Self::from_ne_bytes(number)
            }
        }
    )*};
}

elements!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

/// Numbers in memory of a device.
///
/// Operations on one tensor are ordered as they are submitted, whichever streams they run in: one that conflicts with another waits for
/// it on the device. Dropping it frees the memory once the device is done with it, and waits for nothing.
///
/// ```
/// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin, Tensor};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let watcher = VirtualWatcher::new(&device);
/// let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), watcher.clone())?;
/// let back = watcher.run(runtime.scope(async {
///     let from: Tensor<f32, SimDevice> = Tensor::from_host(vec![1.5, -2.0]).await?;
///     let to = from.copy_to(Tensor::full(2, 0.0).await?).await?; // each in a stream of its own
///     to.to_host().await
/// }))?;
/// assert_eq!(back?, [1.5, -2.0]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub struct Tensor<T, D: Memory> {
    storage: Arc<Storage<D>>,
    len: usize,
    element: PhantomData<fn() -> T>,
}

impl<T: Element, D: Memory> Tensor<T, D> {
    /// A tensor of these numbers. They go through pinned memory, into which they are copied at submission.
    pub const fn from_host(numbers: Vec<T>) -> FromHost<T, D> {
        FromHost { numbers, device: PhantomData }
    }

    /// A tensor of `len` times this number.
    pub const fn full(len: usize, number: T) -> Full<T, D> {
        Full { len, number, device: PhantomData }
    }

    /// Its numbers, on the host. Later writes do not change what is read.
    pub fn to_host(&self) -> ToHost<T, D> {
        ToHost { storage: Arc::clone(&self.storage), len: self.len, element: PhantomData }
    }

    /// Copies its numbers to `target`, which is given back.
    pub fn copy_to(&self, target: Self) -> CopyTo<T, D> {
        CopyTo { from: Arc::clone(&self.storage), len: self.len, target }
    }

    /// How many numbers it has.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) const fn storage(&self) -> &Arc<Storage<D>> {
        &self.storage
    }

    fn new(submission: &mut Submission<D>, len: usize) -> Result<(Self, usize), Error> {
        let bytes = len.checked_mul(T::BYTES);
        let too_long = || Error::new(ErrorCode::InvalidLimit, [&"len", &len, &0, &(usize::MAX / T::BYTES)]);
        let bytes = bytes.ok_or_else(too_long)?;
        let storage = Storage::alloc(submission, bytes)?;
        Ok((Self { storage, len, element: PhantomData }, bytes))
    }

    /// Sends bytes that fill it.
    fn upload(&self, submission: &mut Submission<D>, bytes: &[u8]) -> Result<(), Error> {
        let pinned = Arc::new(submission.device().pinned(bytes.len())?);
        // SAFETY: nobody else has it yet.
        let promise = unsafe { Promise::new() };
        pinned.write(bytes, promise)?;
        submission.retain_shared(&pinned);
        submission.touch(&[self.storage.write()], |device, stream| {
            // SAFETY: the submission keeps both until this is done; `touch` orders what else uses the buffer, and the host has no
            // other name for the pinned memory.
            let promise = unsafe { Promise::new() };
            device.upload(stream, &pinned, self.storage.buffer(), bytes.len(), promise)
        })
    }
}

impl<T, D: Memory> fmt::Debug for Tensor<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor").field("len", &self.len).field("storage", &self.storage).finish()
    }
}

/// See [`Tensor::from_host`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct FromHost<T, D> {
    numbers: Vec<T>,
    device: PhantomData<fn() -> D>,
}

impl<T: Element, D: Memory> DeviceOp for FromHost<T, D> {
    type Device = D;
    type Pending = Tensor<T, D>;
    type Output = Tensor<T, D>;

    fn execute(self, submission: &mut Submission<D>) -> Result<Tensor<T, D>, Error> {
        let (tensor, len) = Tensor::new(submission, self.numbers.len())?;
        let mut bytes = vec![0; len];
        for (out, number) in bytes.chunks_exact_mut(T::BYTES).zip(self.numbers) {
            number.put(out);
        }
        tensor.upload(submission, &bytes)?;
        Ok(tensor)
    }

    fn finish(tensor: Tensor<T, D>) -> Result<Tensor<T, D>, Error> {
        Ok(tensor)
    }
}

device_op!([T, D] FromHost<T, D> where T: Element, D: Memory);

/// See [`Tensor::full`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct Full<T, D> {
    len: usize,
    number: T,
    device: PhantomData<fn() -> D>,
}

impl<T: Element, D: Memory> DeviceOp for Full<T, D> {
    type Device = D;
    type Pending = Tensor<T, D>;
    type Output = Tensor<T, D>;

    fn execute(self, submission: &mut Submission<D>) -> Result<Tensor<T, D>, Error> {
        let (tensor, len) = Tensor::new(submission, self.len)?;
        let mut pattern = vec![0; T::BYTES];
        self.number.put(&mut pattern);
        match pattern.first() {
            // The device fills by bytes.
            Some(&byte) if pattern.iter().all(|other| *other == byte) => {
                submission.touch(&[tensor.storage.write()], |device, stream| {
                    // SAFETY: the submission keeps the buffer until this is done; `touch` orders what else uses it.
                    let promise = unsafe { Promise::new() };
                    device.fill(stream, tensor.storage.buffer(), byte, promise)
                })?;
            }
            _ => {
                let bytes: Vec<u8> = pattern.iter().copied().cycle().take(len).collect();
                tensor.upload(submission, &bytes)?;
            }
        }
        Ok(tensor)
    }

    fn finish(tensor: Tensor<T, D>) -> Result<Tensor<T, D>, Error> {
        Ok(tensor)
    }
}

device_op!([T, D] Full<T, D> where T: Element, D: Memory);

/// See [`Tensor::copy_to`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct CopyTo<T, D: Memory> {
    from: Arc<Storage<D>>,
    len: usize,
    target: Tensor<T, D>,
}

impl<T: Element, D: Memory> DeviceOp for CopyTo<T, D> {
    type Device = D;
    type Pending = Tensor<T, D>;
    type Output = Tensor<T, D>;

    /// # Errors
    ///
    /// Besides what the device says, [`InvalidLimit`](ErrorCode::InvalidLimit) where the lengths differ.
    fn execute(self, submission: &mut Submission<D>) -> Result<Tensor<T, D>, Error> {
        let Self { from, len, target } = self;
        within("the length of the target", target.len, len, len)?;
        if !Arc::ptr_eq(&from, &target.storage) {
            submission.touch(&[from.read(), target.storage.write()], |device, stream| {
                // SAFETY: the submission keeps both until this is done; `touch` orders what else uses them.
                let promise = unsafe { Promise::new() };
                device.copy(stream, from.buffer(), target.storage.buffer(), len * T::BYTES, promise)
            })?;
        }
        Ok(target)
    }

    fn finish(tensor: Tensor<T, D>) -> Result<Tensor<T, D>, Error> {
        Ok(tensor)
    }
}

device_op!([T, D] CopyTo<T, D> where T: Element, D: Memory);

/// See [`Tensor::to_host`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct ToHost<T, D: Memory> {
    storage: Arc<Storage<D>>,
    len: usize,
    element: PhantomData<fn() -> T>,
}

/// Numbers on their way to the host.
pub struct HostCopy<T, D: Memory> {
    pinned: Arc<D::Pinned>,
    len: usize,
    landed: Arc<AtomicBool>,
    element: PhantomData<fn() -> T>,
}

impl<T, D: Memory> fmt::Debug for HostCopy<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostCopy").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Says that the work is done when its flight lets it go, and never where that leaks it.
struct Landing(Arc<AtomicBool>);

impl Drop for Landing {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl<T: Element, D: Memory> DeviceOp for ToHost<T, D> {
    type Device = D;
    type Pending = HostCopy<T, D>;
    type Output = Vec<T>;

    fn execute(self, submission: &mut Submission<D>) -> Result<HostCopy<T, D>, Error> {
        let len = self.len * T::BYTES;
        let pinned = Arc::new(submission.device().pinned(len)?);
        submission.retain_shared(&pinned);
        submission.touch(&[self.storage.read()], |device, stream| {
            // SAFETY: the submission keeps both until this is done; `touch` orders what else uses the buffer; the host reads the
            // pinned memory only once it has landed.
            let promise = unsafe { Promise::new() };
            device.download(stream, self.storage.buffer(), &pinned, len, promise)
        })?;
        let landed = Arc::new(AtomicBool::new(false));
        submission.retain(Landing(Arc::clone(&landed)));
        Ok(HostCopy { pinned, len: self.len, landed, element: PhantomData })
    }

    /// # Errors
    ///
    /// [`StillInFlight`](ErrorCode::StillInFlight) where it is called while the device may still write.
    fn finish(copy: HostCopy<T, D>) -> Result<Vec<T>, Error> {
        if !copy.landed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorCode::StillInFlight, [&"what is read back"]));
        }
        let mut bytes = vec![0; copy.len * T::BYTES];
        // SAFETY: the only work that writes it has landed, and none is enqueued any more.
        let promise = unsafe { Promise::new() };
        copy.pinned.read(&mut bytes, promise)?;
        Ok(bytes.chunks_exact(T::BYTES).map(T::get).collect())
    }
}

device_op!([T, D] ToHost<T, D> where T: Element, D: Memory);

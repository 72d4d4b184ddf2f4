//! Tensors of numbers that the host computes as they are submitted: sequences, and random ones.
//!
//! Why on the host: a device has no call for them, and a kernel of one device is none of another's, while these are the same on each. What it costs: the
//! time of the thread that submits (a poll does not wait, but it computes), and the way to the device.

use core::fmt;
use core::marker::PhantomData;

use wakeline_core::Error;
use wakeline_ops::port::Memory;
use wakeline_ops::{DeviceOp, Submission, device_op};

use crate::dims::Dims;
use crate::element::{Element, Number};
use crate::enqueue::{Fresh, uses};
use crate::layout::Layout;
use crate::random::{self, Float};
use crate::tensor::Tensor;

/// How many numbers are computed at a time, before they go to pinned memory. A multiple of what one block of random bits gives.
const CHUNK: usize = 512;

impl<T: Number, D: Memory> Tensor<T, D> {
    /// `start`, `start + step`, .. : so many. Floating point numbers are computed in `f64`, each by itself, and rounded once.
    ///
    /// The error of it is [`InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit) where a whole number would be out of its range.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// use wakeline_tensor::Tensor;
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
    /// let odd = Tensor::arange(1_i64, 2, 4).then(|tensor| tensor.to_host());
    /// assert_eq!(odd.on(&runtime).sync()?, [1, 3, 5, 7]);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    pub fn arange(start: T, step: T, len: usize) -> Generated<T, D> {
        Generated::new(len, move |first, room: &mut [T]| {
            for (index, room) in (first..).zip(room) {
                *room = start.nth(step, index).ok_or_else(|| {
                    let most = index.saturating_sub(1);
                    let what = format!("the length of a sequence of {} that stays in its range", T::NAME);
                    Error::new(wakeline_core::ErrorCode::InvalidLimit, [&what, &len, &0, &(most + 1)])
                })?;
            }
            Ok(())
        })
    }
}

impl<T: Float, D: Memory> Tensor<T, D> {
    /// So many numbers from `start` to `end`, both included, equally far apart: of one number that is `start`. Computed in `f64`, each by itself, and rounded once;
    /// both ends are exact, infinite ones too.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// use wakeline_tensor::Tensor;
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
    /// let line = Tensor::<f32, _>::linspace(0.0, 1.0, 5).then(|tensor| tensor.to_host());
    /// assert_eq!(line.on(&runtime).sync()?, [0.0, 0.25, 0.5, 0.75, 1.0]);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    pub fn linspace(start: f64, end: f64, len: usize) -> Generated<T, D> {
        let last = len.saturating_sub(1).max(1);
        Generated::new(len, move |first, room: &mut [T]| {
            for (index, room) in (first..).zip(room) {
                #[allow(clippy::cast_precision_loss)]
                let part = index as f64 / last as f64;
                // Not computed at the ends: an infinite one times 0 is no number.
                *room = T::nearest(match index {
                    0 => start,
                    _ if index == last => end,
                    _ => start * (1.0 - part) + end * part,
                });
            }
            Ok(())
        })
    }

    /// Random numbers of [0, 1), the same for a seed wherever they are made: [`randn`](Self::randn) says how.
    pub fn rand(dims: impl Into<Dims>, seed: u64) -> Generated<T, D> {
        Generated::new(dims, move |first, room: &mut [T]| {
            fill(seed, first, room, T::uniform);
            Ok(())
        })
    }

    /// Random numbers of the normal distribution with mean 0 and variance 1, the same for a seed wherever they are made.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// use wakeline_tensor::Tensor;
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
    /// let noise = Tensor::<f32, _>::randn([2, 3], 42).then(|tensor| tensor.to_host());
    /// let again = Tensor::<f32, _>::randn(6, 42).then(|tensor| tensor.to_host());
    /// assert_eq!(noise.on(&runtime).sync()?, again.on(&runtime).sync()?);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// # Which numbers
    ///
    /// Philox4x32-10, with the seed as its key (the low half first) and blocks counted from 0 by the first two words of its counter. Row by row,
    /// four numbers are made of each block, of `f64` two. [`rand`](Self::rand) takes the highest bits of a word, as many as a number below 1 can tell apart (24 for
    /// `f32`, 11 for `f16`, 8 for `bf16`), and for `f64` the highest 53 of two words, the first the lower. `randn` is by Box and Muller: of two
    /// words `a` and `b` the numbers `r cos t` and `r sin t`, with `r = sqrt(-2 ln(((a >> 8) + 1) / 2^24))`, `t = 2 pi (b >> 8) / 2^24`, in `f64`, rounded once; of
    /// `f64` with 53 bits. Logarithm, sine and cosine are those of the crate `libm`, which are alike on all machines.
    ///
    /// # Cost
    ///
    /// They are computed by the thread that submits, straight into pinned memory: about 10 ns each by `rand` and 40 ns by `randn` on one core of a 2.8 GHz Xeon, of
    /// `f64` twice that. So a poll that submits a million takes 10 and 40 ms: run many of them by [`sync`](DeviceOp::sync) on a thread that may take its time.
    pub fn randn(dims: impl Into<Dims>, seed: u64) -> Generated<T, D> {
        Generated::new(dims, move |first, room: &mut [T]| {
            fill(seed, first, room, T::normal);
            Ok(())
        })
    }
}

/// Fills in the numbers from `first` on, which begins a block.
fn fill<T: Float>(seed: u64, first: usize, room: &mut [T], of: impl Fn([u32; 4]) -> [T; 4]) {
    for (number, room) in ((first / T::PER_BLOCK) as u64..).zip(room.chunks_mut(T::PER_BLOCK)) {
        room.iter_mut().zip(of(random::block(seed, number))).for_each(|(room, number)| *room = number);
    }
}

/// Computes the numbers from that index on.
type Fill<T> = Box<dyn FnMut(usize, &mut [T]) -> Result<(), Error> + Send>;

/// See [`Tensor::arange`], [`Tensor::linspace`], [`Tensor::rand`], [`Tensor::randn`].
#[must_use = "an operation does nothing until it is awaited or run"]
pub struct Generated<T, D> {
    dims: Dims,
    fill: Fill<T>,
    device: PhantomData<fn() -> D>,
}

impl<T, D> Generated<T, D> {
    fn new(
        dims: impl Into<Dims>,
        fill: impl FnMut(usize, &mut [T]) -> Result<(), Error> + Send + 'static,
    ) -> Self {
        Self { dims: dims.into(), fill: Box::new(fill), device: PhantomData }
    }
}

impl<T: Element, D: Memory> DeviceOp for Generated<T, D> {
    type Device = D;
    type Pending = Tensor<T, D>;
    type Output = Tensor<T, D>;

    /// # Errors
    ///
    /// Besides what the device says, [`InvalidShape`](wakeline_core::ErrorCode::InvalidShape) where there cannot be that many.
    fn execute(self, submission: &mut Submission<D>) -> Result<Tensor<T, D>, Error> {
        let Self { dims, mut fill, .. } = self;
        let tensor = Tensor::alloc(submission, Layout::rows(dims, T::BYTES)?)?;
        let mut fresh = Fresh::new(submission.device(), tensor.len_bytes())?;
        let mut room = [T::ZERO; CHUNK];
        for first in (0..tensor.len()).step_by(CHUNK) {
            let room = &mut room[..CHUNK.min(tensor.len() - first)];
            fill(first, room)?;
            fresh.write(first * T::BYTES, T::bytes(room))?;
        }
        fresh.send(submission, tensor.span())?;
        Ok(tensor)
    }

    fn finish(tensor: Tensor<T, D>) -> Result<Tensor<T, D>, Error> {
        Ok(tensor)
    }

    fn entries(&self) -> u32 {
        uses(2)
    }
}

device_op!([T, D] Generated<T, D> where T: Element, D: Memory);

impl<T, D> fmt::Debug for Generated<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generated").field("dims", &self.dims).finish_non_exhaustive()
    }
}

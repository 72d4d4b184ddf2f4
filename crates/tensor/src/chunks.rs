//! Numbers from the host and to the host piece by piece: with little pinned memory, and in polls that each copy little.
//!
//! What goes in one operation needs as much pinned memory as it has bytes, at once, and the poll that submits it copies them all. Here a few pieces are in
//! flight at a time; each is a submission of its own, and the pinned memory of those that have ended is used again.

use core::marker::PhantomData;
use core::ops::Range;
use std::sync::Arc;

use wakeline_core::Error;
use wakeline_ops::port::Memory;
use wakeline_ops::{DeviceOp, Runtime, Submission, device_op};

use crate::block::{Block, Span};
use crate::dims::Dims;
use crate::element::Element;
use crate::enqueue::{Fresh, Landed, uses};
use crate::tensor::Tensor;

/// How many bytes a piece has.
pub const CHUNK_BYTES: usize = 4 << 20;

/// How many pieces are in flight at a time: one that the host copies, one that the device does, and one between.
pub const CHUNKS_AT_A_TIME: usize = 3;

/// [`CHUNK_BYTES`] a piece, [`CHUNKS_AT_A_TIME`] of them in flight: so much pinned memory at once, and no more in one poll, however many numbers there are.
///
/// Where the device's pool has no such blocks yet, the first polls pin them, which is slow. To have that done by then, make as many by
/// [`Memory::pinned`](wakeline_ops::port::Memory::pinned) where it does not matter, and drop them: the pool keeps them.
impl<T: Element, D: Memory> Tensor<T, D> {
    /// A tensor of these numbers, row by row, sent piece by piece.
    ///
    /// ```
    /// use wakeline_ops::{Runtime, StreamPoolRoundRobin};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// use wakeline_tensor::Tensor;
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let watcher = VirtualWatcher::new(&device);
    /// let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), watcher.clone())?;
    /// let numbers: Vec<u32> = (0..3_000_000).collect();
    /// let back = watcher.run(async {
    ///     let tensor = Tensor::send_in_chunks(&runtime, [3, 1_000_000], numbers).await?;
    ///     tensor.fetch_in_chunks(&runtime).await
    /// })??;
    /// assert!(back.into_iter().eq(0..3_000_000));
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`from_shaped`](Self::from_shaped).
    pub async fn send_in_chunks(
        runtime: &Runtime<D>,
        dims: impl Into<Dims>,
        numbers: Vec<T>,
    ) -> Result<Self, Error> {
        let dims = dims.into();
        let count = dims.numbers(T::BYTES)?;
        if count != numbers.len() {
            let wrong = format!("it has {count} number(s), but {} were handed in", numbers.len());
            return Err(dims.invalid(&wrong));
        }
        let (tensor, numbers): (Self, _) = (Self::uninit(dims).on(runtime).await?, Arc::new(numbers));
        let pieces = pieces::<T>(count).map(|range| Send {
            block: Arc::clone(tensor.block()),
            numbers: Arc::clone(&numbers),
            range,
        });
        runtime.join_all(pieces, CHUNKS_AT_A_TIME).await?;
        Ok(tensor)
    }

    /// Its numbers, row by row, fetched piece by piece. Writes that are submitted meanwhile may change what is read of later pieces: nobody should.
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](wakeline_core::ErrorCode::InvalidShape) where its numbers do not lie row by row; what the device says.
    pub async fn fetch_in_chunks(&self, runtime: &Runtime<D>) -> Result<Vec<T>, Error> {
        let whole = self.clone().reshape(self.len())?;
        let first = whole.layout().offset();
        let pieces = pieces::<T>(self.len()).map(|range| Fetch {
            block: Arc::clone(whole.block()),
            range: range.start + first..range.end + first,
            element: PhantomData,
        });
        Ok(runtime.join_all(pieces, CHUNKS_AT_A_TIME).await?.concat())
    }
}

/// The numbers of each piece.
fn pieces<T: Element>(count: usize) -> impl Iterator<Item = Range<usize>> {
    let each = (CHUNK_BYTES / T::BYTES.max(1)).max(1);
    (0..count).step_by(each).map(move |start| start..count.min(start + each))
}

fn span<'b, T: Element, D: Memory>(block: &'b Block<D>, range: &Range<usize>) -> Span<'b, D> {
    let (offset_bytes, len_bytes) = (range.start * T::BYTES, range.len() * T::BYTES);
    Span { storage: block.storage(), offset_bytes, len_bytes }
}

/// Sends these numbers to where they are in memory.
struct Send<T, D: Memory> {
    block: Arc<Block<D>>,
    numbers: Arc<Vec<T>>,
    range: Range<usize>,
}

impl<T: Element, D: Memory> DeviceOp for Send<T, D> {
    type Device = D;
    type Pending = ();
    type Output = ();

    fn execute(self, submission: &mut Submission<D>) -> Result<(), Error> {
        let to = span::<T, D>(&self.block, &self.range);
        let mut fresh = Fresh::new(submission.device(), to.len_bytes)?;
        fresh.write(0, T::bytes(self.numbers.get(self.range.clone()).unwrap_or_default()))?;
        fresh.send(submission, to)
    }

    fn finish((): ()) -> Result<(), Error> {
        Ok(())
    }

    fn entries(&self) -> u32 {
        uses(1)
    }
}

device_op!([T, D] Send<T, D> where T: Element, D: Memory);

/// Fetches the numbers that are there in memory.
struct Fetch<T, D: Memory> {
    block: Arc<Block<D>>,
    range: Range<usize>,
    element: PhantomData<fn() -> T>,
}

impl<T: Element, D: Memory> DeviceOp for Fetch<T, D> {
    type Device = D;
    type Pending = (Landed<D>, usize);
    type Output = Vec<T>;

    fn execute(self, submission: &mut Submission<D>) -> Result<(Landed<D>, usize), Error> {
        let from = span::<T, D>(&self.block, &self.range);
        let room = Fresh::new(submission.device(), from.len_bytes)?;
        Ok((room.fetch(submission, from)?, self.range.len()))
    }

    fn finish((landed, len): (Landed<D>, usize)) -> Result<Vec<T>, Error> {
        let mut numbers = vec![T::ZERO; len];
        T::read(&mut numbers, |bytes| landed.read(0, bytes))?;
        Ok(numbers)
    }

    fn entries(&self) -> u32 {
        uses(1)
    }
}

device_op!([T, D] Fetch<T, D> where T: Element, D: Memory);

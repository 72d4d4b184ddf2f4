//! Many operations, a few at a time.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};

use wakeline_core::{Error, ErrorCode, within};

use crate::future::DeviceFuture;
use crate::into_op::IntoDeviceOp;
use crate::op::DeviceOp;
use crate::port::Device;
use crate::runtime::Runtime;

/// How many operations [`Runtime::join_all`] has in flight at most.
pub const JOIN_MAX: usize = 1_024;

impl<D: Device> Runtime<D> {
    /// Awaits all of these operations, with at most `at_a_time` in flight, each a flight of its own in the stream that the policy says. Their
    /// outputs come in their order.
    ///
    /// Ends with the first error that it meets: what was not submitted by then never is; what was goes on, and keeps what it touches. The same where it is dropped.
    /// The iterator is asked for an operation only when that can be submitted. Each time that one of them ends, it polls those in flight;
    /// costs an allocation for those, and one for the outputs, which grow beyond [`JOIN_MAX`].
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin};
    /// use wakeline_tensor::Tensor;
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let watcher = VirtualWatcher::new(&device);
    /// let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), watcher.clone())?;
    /// let reads = (0..100_u8).map(|n| Tensor::full(1, n).then(|tensor| tensor.to_host()).map_host(|read| read[0]));
    /// let numbers = watcher.run(runtime.join_all(reads, 8))??;
    /// assert!(numbers.into_iter().eq(0..100));
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`DeviceFuture`]; [`InvalidLimit`](ErrorCode::InvalidLimit) where `at_a_time` is 0 or more than [`JOIN_MAX`].
    pub fn join_all<I>(&self, ops: I, at_a_time: usize) -> JoinAll<D, I::IntoIter>
    where
        I: IntoIterator<Item: IntoDeviceOp<D>>,
    {
        let ops = ops.into_iter();
        // How many an iterator says there are at least is not to be relied on: of one without an end that is `usize::MAX`.
        let (outputs, flying) = (Vec::with_capacity(ops.size_hint().0.min(JOIN_MAX)), Vec::new());
        JoinAll { runtime: self.clone(), at_a_time, ops: Some(ops), flying, outputs, over: false }
    }
}

type OpOf<D, I> = <<I as Iterator>::Item as IntoDeviceOp<D>>::Op;

/// See [`Runtime::join_all`].
#[must_use = "it does nothing until it is awaited"]
pub struct JoinAll<D: Device, I: Iterator<Item: IntoDeviceOp<D>>> {
    runtime: Runtime<D>,
    at_a_time: usize,
    /// `None` once there are no more.
    ops: Option<I>,
    /// Those in flight, by the place of their outputs.
    flying: Vec<(usize, DeviceFuture<OpOf<D, I>>)>,
    outputs: Vec<Option<<OpOf<D, I> as DeviceOp>::Output>>,
    over: bool,
}

/// Nothing of it is pinned.
impl<D: Device, I: Iterator<Item: IntoDeviceOp<D>>> Unpin for JoinAll<D, I> {}

impl<D: Device, I: Iterator<Item: IntoDeviceOp<D>>> JoinAll<D, I> {
    /// Polls one; whether it pends.
    fn poll_one(
        &mut self,
        place: usize,
        future: &mut DeviceFuture<OpOf<D, I>>,
        context: &mut Context<'_>,
    ) -> Result<bool, Error> {
        let Poll::Ready(output) = Pin::new(future).poll(context) else { return Ok(true) };
        let output = output?;
        if let Some(slot) = self.outputs.get_mut(place) {
            *slot = Some(output);
        }
        Ok(false)
    }

    fn advance(&mut self, context: &mut Context<'_>) -> Result<bool, Error> {
        within("at_a_time", self.at_a_time, 1, JOIN_MAX)?;
        let mut at = 0;
        while at < self.flying.len() {
            let (place, mut future) = self.flying.swap_remove(at);
            if self.poll_one(place, &mut future, context)? {
                self.flying.push((place, future));
                let last = self.flying.len() - 1;
                self.flying.swap(at, last);
                at += 1;
            }
        }
        // Those that end in the poll that submits them do not keep it from coming to an end.
        for _ in 0..self.at_a_time {
            if self.flying.len() >= self.at_a_time {
                return Ok(false);
            }
            let Some(op) = self.ops.as_mut().and_then(Iterator::next) else {
                self.ops = None;
                break;
            };
            let (place, mut future) = (self.outputs.len(), op.into_op().on(&self.runtime));
            self.outputs.push(None);
            if self.poll_one(place, &mut future, context)? {
                self.flying.push((place, future));
            }
        }
        if self.ops.is_some() && self.flying.len() < self.at_a_time {
            context.waker().wake_by_ref();
        }
        Ok(self.ops.is_none() && self.flying.is_empty())
    }
}

impl<D: Device, I: Iterator<Item: IntoDeviceOp<D>>> Future for JoinAll<D, I> {
    type Output = Result<Vec<<OpOf<D, I> as DeviceOp>::Output>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if core::mem::replace(&mut this.over, true) {
            return Poll::Ready(Err(Error::new(ErrorCode::PolledAfterEnd, [])));
        }
        match this.advance(context) {
            Ok(false) => {
                this.over = false;
                Poll::Pending
            }
            Ok(true) => {
                let outputs: Option<Vec<_>> = core::mem::take(&mut this.outputs).into_iter().collect();
                // Never: each was put there by then.
                Poll::Ready(outputs.ok_or_else(|| Error::new(ErrorCode::PolledAfterEnd, [])))
            }
            Err(error) => {
                this.ops = None;
                this.flying.clear();
                this.outputs.clear();
                Poll::Ready(Err(error))
            }
        }
    }
}

impl<D: Device, I: Iterator<Item: IntoDeviceOp<D>>> fmt::Debug for JoinAll<D, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinAll").field("in_flight", &self.flying.len()).finish_non_exhaustive()
    }
}

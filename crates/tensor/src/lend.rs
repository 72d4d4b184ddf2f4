//! Operations on what is borrowed.
//!
//! An operation owns what it works with, for it may be run by somebody else and outlive everybody. To let it write what a caller has by
//! `&mut`, it is given the memory, which flights keep, and the borrow stays with the future: nobody can name the tensor meanwhile.
//!
//! Why that is sound however the future ends: a borrow restricts names and guards no memory. Where the future is dropped in flight or forgotten,
//! the borrow ends while the device still writes. Whoever uses the tensor then is ordered behind that on the device, as every use is, and
//! who drops it leaves the memory to the flight.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};

use wakeline_core::{Error, ErrorCode};
use wakeline_ops::{DeviceFuture, DeviceOp, Runtime, Stream};

/// An operation, and what it was lent, which comes back with its output.
///
/// It is run as any operation, but is none: operations own what they work with. The tensor cannot be used while it is lent:
///
/// ```compile_fail,E0502
/// use wakeline_ops::Runtime;
/// use wakeline_sim::SimDevice;
/// use wakeline_tensor::Tensor;
/// async fn both(runtime: &Runtime<SimDevice>, from: Tensor<u8, SimDevice>, mut to: Tensor<u8, SimDevice>) {
///     let flying = from.copy_into(&mut to).on(runtime);
///     let read = to.to_host(); // it is being written
///     flying.await.unwrap();
/// }
/// ```
///
/// ```
/// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// use wakeline_tensor::Tensor;
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let watcher = VirtualWatcher::new(&device);
/// let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), watcher.clone())?;
/// let back = watcher.run(runtime.scope(async {
///     let (from, mut to) = (Tensor::full(4, 7_u8).await?, Tensor::zeros(4).await?);
///     drop(from.copy_into(&mut to).on(&runtime)); // never polled, so never submitted
///     let ((), to) = from.copy_into(&mut to).await?;
///     to.to_host().await
/// }))?;
/// assert_eq!(back?, [7; 4]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct Lent<O, B> {
    op: O,
    lent: B,
}

impl<O: DeviceOp, B> Lent<O, B> {
    /// An operation that works with the memory of what is lent.
    pub const fn new(op: O, lent: B) -> Self {
        Self { op, lent }
    }

    /// As [`DeviceOp::on`].
    pub fn on(self, runtime: &Runtime<O::Device>) -> LentFuture<O, B> {
        LentFuture { future: self.op.on(runtime), lent: Some(self.lent) }
    }

    /// As [`DeviceOp::sync`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn sync(self) -> Result<(<O as DeviceOp>::Output, B), Error> {
        Ok((self.op.sync()?, self.lent))
    }

    /// As [`DeviceOp::sync_on`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn sync_on(self, stream: &Stream<O::Device>) -> Result<(<O as DeviceOp>::Output, B), Error> {
        Ok((self.op.sync_on(stream)?, self.lent))
    }
}

impl<O: DeviceOp, B> IntoFuture for Lent<O, B>
where
    O: IntoFuture<IntoFuture = DeviceFuture<O>>,
    B: Unpin,
{
    type Output = Result<(<O as DeviceOp>::Output, B), Error>;
    type IntoFuture = LentFuture<O, B>;

    fn into_future(self) -> LentFuture<O, B> {
        LentFuture { future: self.op.into_future(), lent: Some(self.lent) }
    }
}

/// The future of an operation that was lent something: gives that back with the output. Where the operation fails, the borrow just ends.
#[must_use = "futures do nothing unless polled"]
pub struct LentFuture<O: DeviceOp, B> {
    future: DeviceFuture<O>,
    lent: Option<B>,
}

impl<O: DeviceOp, B> LentFuture<O, B> {
    /// As [`DeviceFuture::sync`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn sync(self) -> Result<(<O as DeviceOp>::Output, B), Error> {
        let output = self.future.sync()?;
        Ok((output, self.lent.ok_or_else(|| Error::new(ErrorCode::PolledAfterEnd, []))?))
    }
}

impl<O: DeviceOp, B: Unpin> Future for LentFuture<O, B> {
    type Output = Result<(<O as DeviceOp>::Output, B), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.future).poll(context).map(|output| {
            let output = output?;
            Ok((output, self.lent.take().ok_or_else(|| Error::new(ErrorCode::PolledAfterEnd, []))?))
        })
    }
}

impl<O: DeviceOp, B> fmt::Debug for LentFuture<O, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentFuture").finish_non_exhaustive()
    }
}

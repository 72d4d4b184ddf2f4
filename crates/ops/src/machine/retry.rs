//! An operation that is made again on another device where its own has faulted.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode, Nanos, within};

use crate::future::DeviceFuture;
use crate::machine::spread::Wish;
use crate::machine::{Machine, Site};
use crate::op::DeviceOp;
use crate::port::Device;

/// How often an operation may be made.
pub const TRIES_MAX: u32 = 16;

impl<D: Device> Machine<D> {
    /// As [`run`](Self::run), and where the device that it was placed on faults it is made again and placed elsewhere, `tries` times in all. Any other failure is
    /// told at once.
    ///
    /// Who asks for this says that it may be done twice: what it did on the device that faulted is lost with that, but what it did elsewhere (a file that was
    /// written, memory of another device) is not undone. `make` brings all that it needs each time; memory of the device that faulted is gone.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Machine, SingleStream};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// use wakeline_tensor::Tensor;
    /// let first = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let second = first.beside(SimConfig::default())?;
    /// let watcher = VirtualWatcher::new(&first);
    /// let machine = Machine::new([first.clone(), second], &SingleStream, watcher.clone())?;
    /// first.inject_fault();
    /// let ones = machine.retrying(2, |_| Tensor::full(2, 1_u8).then(|tensor| tensor.to_host()))?;
    /// assert_eq!(watcher.run(ones)??, [1, 1]);
    /// assert!(!machine.site(0)?.is_in());
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](ErrorCode::InvalidLimit) for none, or more than [`TRIES_MAX`].
    pub fn retrying<O, F>(&self, tries: u32, make: F) -> Result<Retry<D, O, F>, Error>
    where
        O: DeviceOp<Device = D>,
        F: FnMut(&Site<D>) -> O,
    {
        let left = within("tries", tries, 1, TRIES_MAX)?;
        Ok(Retry { machine: self.clone(), make, left, flying: None, is_over: false, wish: Wish::default() })
    }
}

/// See [`Machine::retrying`].
#[must_use = "it does nothing until it is awaited"]
pub struct Retry<D: Device, O: DeviceOp<Device = D>, F> {
    machine: Machine<D>,
    make: F,
    left: u32,
    flying: Option<(Arc<Site<D>>, DeviceFuture<O>)>,
    is_over: bool,
    wish: Wish,
}

impl<D: Device, O: DeviceOp<Device = D>, F> Retry<D, O, F> {
    /// As [`Spread::keyed`](crate::Spread::keyed).
    pub fn keyed(mut self, key: u64) -> Self {
        self.wish.key = key;
        self
    }

    /// As [`DeviceFuture::timeout`], of each try.
    pub fn timeout(mut self, length: Nanos) -> Self {
        self.wish.timeout = Some(length);
        self
    }
}

/// Nothing of it is pinned.
impl<D: Device, O: DeviceOp<Device = D>, F> Unpin for Retry<D, O, F> {}

impl<D, O, F> Future for Retry<D, O, F>
where
    D: Device,
    O: DeviceOp<Device = D>,
    F: FnMut(&Site<D>) -> O,
{
    type Output = Result<<O as DeviceOp>::Output, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(Err(Error::new(ErrorCode::PolledAfterEnd, [])));
        }
        let result = loop {
            let (site, future) = match &mut this.flying {
                Some(flying) => flying,
                none => {
                    this.left -= 1;
                    // Where `make` or the placement panics it is over: there may be no try left for another poll.
                    this.is_over = true;
                    let placed = this.wish.place(&this.machine, &mut this.make);
                    this.is_over = false;
                    match placed {
                        Ok(flying) => none.insert(flying),
                        Err(error) => break Err(error),
                    }
                }
            };
            match Pin::new(future).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) if site.health().is_err() && this.left > 0 => this.flying = None,
                Poll::Ready(result) => break result,
            }
        };
        (this.is_over, this.flying) = (true, None);
        Poll::Ready(result)
    }
}

impl<D: Device, O: DeviceOp<Device = D>, F> fmt::Debug for Retry<D, O, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = self.flying.as_ref().map(|(site, _)| site.number());
        f.debug_struct("Retry").field("on", &on).field("left", &self.left).finish_non_exhaustive()
    }
}

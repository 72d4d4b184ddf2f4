//! An operation that runs on whichever device of a machine it is placed on.

use core::fmt;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode, Nanos};

use crate::future::DeviceFuture;
use crate::known::Kind;
use crate::machine::{Machine, Site};
use crate::op::DeviceOp;
use crate::port::Device;

impl<D: Device> Machine<D> {
    /// An operation that is placed when it is first polled, and made then: `make` is told where. It is what any future of an operation is from then on: dropping it has
    /// nothing undone.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Machine, SingleStream, value};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// let first = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let second = first.beside(SimConfig::default())?;
    /// let watcher = VirtualWatcher::new(&first);
    /// let machine = Machine::new([first, second], &SingleStream, watcher.clone())?;
    /// let number = || watcher.run(machine.run(|site| value(site.number()))).unwrap();
    /// assert_eq!([number()?, number()?, number()?], [0, 1, 0]);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// What it resolves to is what the operation does, besides [`DevicesOut`](ErrorCode::DevicesOut) where no device is in. Costs a look at the devices' loads where the
    /// placement goes by them, and no allocation.
    pub fn run<O, F>(&self, make: F) -> Spread<D, O, F>
    where
        O: DeviceOp<Device = D>,
        F: FnOnce(&Site<D>) -> O,
    {
        Spread { state: State::Unplaced(self.clone(), make), wish: Wish::default(), of: PhantomData }
    }
}

/// What its user asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wish {
    pub(super) key: u64,
    pub(super) timeout: Option<Nanos>,
}

impl Wish {
    /// Places an operation and makes it.
    pub(super) fn place<D: Device, O: DeviceOp<Device = D>>(
        self,
        machine: &Machine<D>,
        make: impl FnOnce(&Site<D>) -> O,
    ) -> Result<(Arc<Site<D>>, DeviceFuture<O>), Error> {
        let site = machine.place_kind(Kind::of::<O>(self.key), self.key)?;
        let future = make(&site).on(site.runtime()).keyed(self.key);
        let future = match self.timeout {
            Some(length) => future.timeout(length),
            None => future,
        };
        Ok((site, future))
    }
}

/// See [`Machine::run`].
#[must_use = "it does nothing until it is awaited"]
pub struct Spread<D: Device, O: DeviceOp<Device = D>, F> {
    state: State<D, O, F>,
    wish: Wish,
    of: PhantomData<fn() -> O>,
}

enum State<D: Device, O: DeviceOp<Device = D>, F> {
    Unplaced(Machine<D>, F),
    Placed(Arc<Site<D>>, DeviceFuture<O>),
    Over,
}

impl<D: Device, O: DeviceOp<Device = D>, F> Spread<D, O, F> {
    /// With this key: for placements that go by it, and as [`DeviceFuture::keyed`].
    pub fn keyed(mut self, key: u64) -> Self {
        self.wish.key = key;
        self
    }

    /// As [`DeviceFuture::timeout`].
    pub fn timeout(mut self, length: Nanos) -> Self {
        self.wish.timeout = Some(length);
        self
    }
}

/// Nothing of it is pinned.
impl<D: Device, O: DeviceOp<Device = D>, F> Unpin for Spread<D, O, F> {}

impl<D, O, F> Future for Spread<D, O, F>
where
    D: Device,
    O: DeviceOp<Device = D>,
    F: FnOnce(&Site<D>) -> O,
{
    type Output = Result<<O as DeviceOp>::Output, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if matches!(this.state, State::Unplaced(..))
            && let State::Unplaced(machine, make) = core::mem::replace(&mut this.state, State::Over)
        {
            let (site, future) = this.wish.place(&machine, make)?;
            this.state = State::Placed(site, future);
        }
        let State::Placed(site, future) = &mut this.state else {
            return Poll::Ready(Err(Error::new(ErrorCode::PolledAfterEnd, [])));
        };
        let Poll::Ready(result) = Pin::new(future).poll(context) else { return Poll::Pending };
        if result.is_err() {
            // Where it is the device's fault, that is out from now on; whoever awaits it is told by the error itself.
            let _ = site.health();
        }
        this.state = State::Over;
        Poll::Ready(result)
    }
}

impl<D: Device, O: DeviceOp<Device = D>, F> fmt::Debug for Spread<D, O, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = match &self.state {
            State::Placed(site, _) => Some(site.number()),
            State::Unplaced(..) | State::Over => None,
        };
        f.debug_struct("Spread").field("on", &on).field("wish", &self.wish).finish_non_exhaustive()
    }
}

//! Several devices of one driver: who reaches whose memory, copies between them, and all of them at once.
//!
//! An event is recorded with its own context bound and waited for with that of the stream which waits, in [`Event`](crate::Event); pinned memory is portable in every
//! backend, so that any device copies from it.

use core::ptr;

use wakeline_core::{Error, within};
use wakeline_ops::port::{At, Link, Peers, Promise};

use super::{DeviceMemory, OpDevice, OpDeviceConfig};
use crate::driver::{Ordinal, RawContext, RawPool, RawStream, WorkDriver};
use crate::error::{CallError, Kind};
use crate::stream::Stream;

/// A driver with several devices.
///
/// # Safety
///
/// As [`WorkDriver`].
#[expect(
    clippy::missing_safety_doc,
    clippy::missing_errors_doc,
    reason = "one contract for all, at the trait"
)]
pub unsafe trait PeerDriver: WorkDriver {
    /// How many devices there were when the driver was loaded.
    fn devices(&self) -> u32;

    /// The number of the bound device.
    unsafe fn bound_device(&self) -> Result<Ordinal, CallError>;

    /// Whether a device can be let reach the memory of another. Needs no context.
    fn can_reach(&self, device: Ordinal, other: Ordinal) -> Result<bool, CallError>;

    /// Lets the bound device reach memory of another's context, for good. That it does so already is no failure. May wait for both.
    unsafe fn reach(&self, other: RawContext) -> Result<(), CallError>;

    /// Lets a device reach what is allocated of a pool of another.
    unsafe fn share_pool(&self, pool: RawPool, with: Ordinal) -> Result<(), CallError>;

    /// Enqueues a copy of `len` bytes from memory of one context to memory of another, in a stream of the bound one. MUST NOT wait for either.
    unsafe fn copy_peer(
        &self,
        stream: RawStream,
        from: (RawContext, u64),
        to: (RawContext, u64),
        len: usize,
    ) -> Result<(), CallError>;
}

impl<D: PeerDriver> OpDevice<D> {
    /// All devices of a driver, each in its primary context: for a `Machine` of them.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), of the first of them that fails.
    pub fn all(driver: &D) -> Result<Vec<Self>, Error> {
        let all: Vec<_> = (0..driver.devices()).map(Ordinal).collect();
        Self::those(driver, &all, &OpDeviceConfig::default())
    }

    /// The devices of these numbers. Nothing is made on any other: its context stays as it is, which is not there where nobody else uses it.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), of the first of them that fails.
    pub fn those(driver: &D, ordinals: &[Ordinal], config: &OpDeviceConfig) -> Result<Vec<Self>, Error> {
        ordinals.iter().map(|ordinal| Self::with(driver, *ordinal, config)).collect()
    }

    fn ordinal(&self) -> Result<Ordinal, Error> {
        self.context.open()?;
        let _bound = self.context.bind()?;
        // SAFETY: the context is bound.
        unsafe { self.context.driver().bound_device() }.map_err(|error| self.context.told(error))
    }

    /// Whether the driver has let this device reach memory of that one. What it refuses is no error, but a fault of this context.
    fn has_reached(&self, result: Result<(), CallError>) -> Result<bool, Error> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.kind == Kind::Sticky => Err(self.context.told(error)),
            Err(_) => Ok(false),
        }
    }
}

impl<D: PeerDriver> Peers for OpDevice<D> {
    fn beside(&self, other: &Self) -> bool {
        ptr::eq(self.context.driver().census(), other.context.driver().census())
    }

    /// Two contexts of one device reach each other.
    fn link(&self, from: &Self) -> Result<Link, Error> {
        let (own, other) = (self.ordinal()?, from.ordinal()?);
        let driver = self.context.driver();
        if own == other {
            return Ok(Link::Direct);
        }
        if !matches!(driver.can_reach(own, other), Ok(true)) {
            return Ok(Link::Staged);
        }
        let _bound = self.context.bind()?;
        // SAFETY: this context is bound, and the other is alive as long as its handle.
        let reached = self.has_reached(unsafe { driver.reach(from.context.raw()) })?;
        // What is allocated in the order of streams is not reached by that.
        // SAFETY: the pool is the other device's own.
        let shared = self.has_reached(unsafe { driver.share_pool(from.tally.pool(), own) })?;
        Ok(if reached && shared { Link::Direct } else { Link::Staged })
    }

    fn copy_peer(
        &self,
        stream: &Stream<D>,
        (device, from): (&Self, At<'_, DeviceMemory<D>>),
        to: At<'_, DeviceMemory<D>>,
        len: usize,
        _: Promise,
    ) -> Result<(), Error> {
        let (own, other) = (&self.context, &device.context);
        own.open()?;
        other.open()?;
        let place = |At { memory, offset_bytes }: At<'_, DeviceMemory<D>>| {
            within("the end of a copy, in bytes,", offset_bytes.saturating_add(len), 0, memory.len())?;
            Ok::<_, Error>(memory.address().wrapping_add(offset_bytes as u64))
        };
        let (from, to) = (place(from)?, place(to)?);
        if len == 0 {
            return Ok(());
        }
        let _bound = own.bind()?;
        let (from, to) = ((other.raw(), from), (own.raw(), to));
        // SAFETY: the stream's context is bound; both contexts are alive, and the memory as the promise says.
        let copied = unsafe { own.driver().copy_peer(stream.raw(), from, to, len) };
        copied.map_err(|error| match other.health() {
            // It may be the other's fault that the call tells of.
            Err(theirs) if error.kind == Kind::Sticky => theirs,
            _ => own.told(error),
        })
    }
}

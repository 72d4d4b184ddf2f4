//! How much of the device's memory is in use, and how much may be.

use core::sync::atomic::{AtomicU64, Ordering};

use wakeline_core::{Error, ErrorCode};
use wakeline_ops::port::PoolUse;

use crate::driver::RawPool;

/// Of one device and its clones.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Whose driver it is.
    backend: &'static str,
    /// The driver's pool that all of it is of, which stays as long as the device does.
    pool: RawPool,
    in_use: AtomicU64,
    high_water: AtomicU64,
    limit: AtomicU64,
}

/// Bytes that are counted as in use, until this is dropped.
#[must_use]
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    tally: &'a Tally,
    bytes: usize,
}

impl Tally {
    pub(crate) fn new(backend: &'static str, pool: RawPool) -> Self {
        let (in_use, high_water, limit) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Self { backend, pool, in_use, high_water, limit }
    }

    pub(crate) const fn pool(&self) -> RawPool {
        self.pool
    }

    pub(crate) fn limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Counts so many more. Numbers alone: nothing else is ordered by them.
    pub(crate) fn take(&self, bytes: usize) -> Result<Taken<'_>, Error> {
        let (limit, more) = (self.limit.load(Ordering::Relaxed), bytes as u64);
        let within = |used: u64| used.checked_add(more).filter(|sum| *sum <= limit || more == 0);
        match self.in_use.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within) {
            Ok(before) => {
                self.high_water.fetch_max(before + more, Ordering::Relaxed);
                Ok(Taken { tally: self, bytes })
            }
            Err(used) => {
                let why = format!("the device's limit is {limit} bytes, of which {used} are in use");
                Err(Error::new(ErrorCode::OutOfMemory, [&self.backend, &"device", &bytes, &why]))
            }
        }
    }

    /// Counts so many less.
    pub(crate) fn give(&self, bytes: usize) {
        self.in_use.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// All but what the driver knows.
    pub(crate) fn usage(&self) -> PoolUse {
        PoolUse {
            in_use_bytes: self.in_use.load(Ordering::Relaxed),
            reserved_bytes: 0,
            high_water_bytes: self.high_water.load(Ordering::Relaxed),
            limit_bytes: self.limit.load(Ordering::Relaxed),
        }
    }
}

impl Taken<'_> {
    /// They were allocated.
    pub(crate) const fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.tally.give(self.bytes);
    }
}

//! Several devices: who reaches whose memory, and copies between them.

use core::ffi::{c_int, c_uint};

use wakeline_mapped::PeerDriver;
use wakeline_mapped::driver::{Ordinal, RawContext, RawPool, RawStream};
use wakeline_mapped::error::CallError;

use crate::driver::pointer;
use crate::hip::Hip;
use crate::sys::{ACCESS_READ_WRITE, LOCATION_DEVICE, PEER_ACCESS_ALREADY_ENABLED, hipMemAccessDesc};

/// The only flags that there are.
const NO_FLAGS: c_uint = 0;

// SAFETY: each method is the call of that meaning by AMD's header.
unsafe impl PeerDriver for Hip {
    fn devices(&self) -> u32 {
        self.device_count()
    }

    unsafe fn bound_device(&self) -> Result<Ordinal, CallError> {
        self.current_device()
    }

    fn can_reach(&self, device: Ordinal, other: Ordinal) -> Result<bool, CallError> {
        let ask = self.had("hipDeviceCanAccessPeer", self.symbols().hipDeviceCanAccessPeer)?;
        let (device, other) = (self.device_of(device)?, self.device_of(other)?);
        let mut can = 0;
        // SAFETY: both are the library's, and `can` is a number's room.
        let status = unsafe { ask(&raw mut can, device, other) };
        self.check("hipDeviceCanAccessPeer", status)?;
        Ok(can != 0)
    }

    unsafe fn reach(&self, other: RawContext) -> Result<(), CallError> {
        let enable = self.had("hipDeviceEnablePeerAccess", self.symbols().hipDeviceEnablePeerAccess)?;
        // SAFETY: it takes any number, and says so of one that is no device's.
        match unsafe { enable(self.number_of(other)?, NO_FLAGS) } {
            PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            status => self.check("hipDeviceEnablePeerAccess", status),
        }
    }

    unsafe fn share_pool(&self, pool: RawPool, with: Ordinal) -> Result<(), CallError> {
        let share = self.had("hipMemPoolSetAccess", self.symbols().hipMemPoolSetAccess)?;
        let access = hipMemAccessDesc {
            location_type: LOCATION_DEVICE,
            location_id: c_int::try_from(with.0).unwrap_or(c_int::MAX),
            flags: ACCESS_READ_WRITE,
        };
        // SAFETY: the pool is a device's own, and one value is handed in, which is read before the call returns.
        let status = unsafe { share(pool.as_ptr(), &raw const access, 1) };
        self.check("hipMemPoolSetAccess", status)
    }

    unsafe fn copy_peer(
        &self,
        stream: RawStream,
        (source, from): (RawContext, u64),
        (target, to): (RawContext, u64),
        len: usize,
    ) -> Result<(), CallError> {
        let copy = self.had("hipMemcpyPeerAsync", self.symbols().hipMemcpyPeerAsync)?;
        let (source, target) = (self.number_of(source)?, self.number_of(target)?);
        let (from, to) = (pointer(from).cast_const(), pointer(to));
        // SAFETY: the stream is alive and of the current device; the memory is of the two devices and stays as long as the copy.
        let status = unsafe { copy(to, target, from, source, len, stream.as_ptr()) };
        self.check("hipMemcpyPeerAsync", status)
    }
}

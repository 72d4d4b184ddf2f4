//! Several devices: who reaches whose memory, and copies between them.

use core::ffi::{c_int, c_uint};

use wakeline_mapped::PeerDriver;
use wakeline_mapped::driver::{Ordinal, RawContext, RawPool, RawStream};
use wakeline_mapped::error::CallError;

use crate::cuda::Cuda;
use crate::device::Device;
use crate::sys::{
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
    CUmemAccessDesc,
};

/// The only flags that there are.
const NO_FLAGS: c_uint = 0;

// SAFETY: each method is the driver's call of that meaning by NVIDIA's manual.
unsafe impl PeerDriver for Cuda {
    fn devices(&self) -> u32 {
        self.device_count()
    }

    unsafe fn bound_device(&self) -> Result<Ordinal, CallError> {
        Ok(Device::current(self)?.ordinal())
    }

    fn can_reach(&self, device: Ordinal, other: Ordinal) -> Result<bool, CallError> {
        let ask = self.had("cuDeviceCanAccessPeer", self.symbols().cuDeviceCanAccessPeer)?;
        let (device, other) = (self.device_of(device)?, self.device_of(other)?);
        let mut can = 0;
        // SAFETY: both are the driver's, and `can` is a number's room.
        let status = unsafe { ask(&raw mut can, device, other) };
        self.check("cuDeviceCanAccessPeer", status)?;
        Ok(can != 0)
    }

    unsafe fn reach(&self, other: RawContext) -> Result<(), CallError> {
        let enable = self.had("cuCtxEnablePeerAccess", self.symbols().cuCtxEnablePeerAccess)?;
        // SAFETY: a context is bound, and the other is alive.
        match unsafe { enable(other.as_ptr(), NO_FLAGS) } {
            CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            status => self.check("cuCtxEnablePeerAccess", status),
        }
    }

    unsafe fn share_pool(&self, pool: RawPool, with: Ordinal) -> Result<(), CallError> {
        let share = self.had("cuMemPoolSetAccess", self.symbols().cuMemPoolSetAccess)?;
        let access = CUmemAccessDesc {
            location_type: CU_MEM_LOCATION_TYPE_DEVICE,
            location_id: c_int::try_from(with.0).unwrap_or(c_int::MAX),
            flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the pool is a device's own, and one value is handed in, which is read before the call returns.
        let status = unsafe { share(pool.as_ptr(), &raw const access, 1) };
        self.check("cuMemPoolSetAccess", status)
    }

    unsafe fn copy_peer(
        &self,
        stream: RawStream,
        (source, from): (RawContext, u64),
        (target, to): (RawContext, u64),
        len: usize,
    ) -> Result<(), CallError> {
        let copy = self.had("cuMemcpyPeerAsync", self.symbols().cuMemcpyPeerAsync)?;
        // SAFETY: the stream is alive and of the bound context; both contexts are alive, and the memory is theirs and stays as long as the copy.
        let status = unsafe { copy(to, target.as_ptr(), from, source.as_ptr(), len, stream.as_ptr()) };
        self.check("cuMemcpyPeerAsync", status)
    }
}

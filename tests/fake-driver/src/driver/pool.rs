//! Pools of device memory: the default one of each device, and how much it keeps.

use core::ffi::c_int;

use super::Answer;
use super::arg::Out;
use super::device::checked;
use super::state::State;
use crate::Status;

/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`: a number of 64 bits.
const RELEASE_THRESHOLD: c_int = 4;

/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`: a number of 64 bits.
const RESERVED_MEM_CURRENT: c_int = 5;

/// No address, and no handle of another kind.
const BASE: u64 = 0x0fa4_ff00_0000_0000;

pub(super) fn default_of(state: &mut State, out: Out<u64>, device: c_int) -> Answer {
    out.needed()?;
    checked(state, device)?;
    out.set(BASE + u64::try_from(device).unwrap_or(0) * 16)
}

/// The device whose default pool it is.
pub(super) fn device_of(state: &State, pool: u64) -> Answer<c_int> {
    let device = pool.checked_sub(BASE).map(|from| from / 16).and_then(|device| c_int::try_from(device).ok());
    let device = device.ok_or(Status::INVALID_VALUE)?;
    checked(state, device)?;
    Ok(device)
}

pub(super) fn get_attribute(state: &mut State, pool: u64, attribute: c_int, value: Out<u64>) -> Answer {
    let device = device_of(state, pool)?;
    if attribute == RESERVED_MEM_CURRENT {
        // It keeps nothing that is free.
        return value.set(state.pages.live().device_bytes);
    }
    if attribute != RELEASE_THRESHOLD {
        return Err(Status::INVALID_VALUE.into());
    }
    value.set(state.release_thresholds.get(&device).copied().unwrap_or(0))
}

pub(super) fn set_attribute(state: &mut State, pool: u64, attribute: c_int, value: Out<u64>) -> Answer {
    let device = device_of(state, pool)?;
    if attribute != RELEASE_THRESHOLD {
        return Err(Status::INVALID_VALUE.into());
    }
    let value = value.get()?;
    state.release_thresholds.insert(device, value);
    Ok(())
}

/// There is nothing that is kept and not in use.
pub(super) fn trim(state: &mut State, pool: u64, _keep: usize) -> Answer {
    device_of(state, pool).map(drop)
}

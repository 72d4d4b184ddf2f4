//! Devices, and what is asked of the driver as a whole.

use core::ffi::{c_char, c_int};

use super::arg::{Chars, Out};
use super::state::{State, shared};
use super::{Answer, engine, hosts};
use crate::Status;

/// What attributes are on the fake's devices, by their numbers: those of an H200 that programs ask for. All others are 0.
const ATTRIBUTES: &[(c_int, c_int)] = &[
    (1, 1_024),         // MAX_THREADS_PER_BLOCK
    (2, 1_024),         // MAX_BLOCK_DIM_X
    (3, 1_024),         // MAX_BLOCK_DIM_Y
    (4, 64),            // MAX_BLOCK_DIM_Z
    (5, 2_147_483_647), // MAX_GRID_DIM_X
    (6, 65_535),        // MAX_GRID_DIM_Y
    (7, 65_535),        // MAX_GRID_DIM_Z
    (8, 49_152),        // MAX_SHARED_MEMORY_PER_BLOCK
    (10, 32),           // WARP_SIZE
    (13, 1_980_000),    // CLOCK_RATE, in kHz
    (16, 132),          // MULTIPROCESSOR_COUNT
    (19, 1),            // CAN_MAP_HOST_MEMORY
    (31, 1),            // CONCURRENT_KERNELS
    (40, 3),            // ASYNC_ENGINE_COUNT
    (41, 1),            // UNIFIED_ADDRESSING
    (75, 9),            // COMPUTE_CAPABILITY_MAJOR
    (76, 0),            // COMPUTE_CAPABILITY_MINOR
    (78, 1),            // STREAM_PRIORITIES_SUPPORTED
    (83, 1),            // MANAGED_MEMORY
    (90, 1),            // COMPUTE_PREEMPTION_SUPPORTED
    (91, 1),            // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
    (92, 0),            // CAN_USE_STREAM_MEM_OPS_V1
    (93, 0),            // CAN_USE_64_BIT_STREAM_MEM_OPS_V1
    (95, 1),            // COOPERATIVE_LAUNCH
    (97, 232_448),      // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    (98, 1),            // CAN_FLUSH_REMOTE_WRITES
    (115, 1),           // MEMORY_POOLS_SUPPORTED
    (120, 1),           // CLUSTER_LAUNCH
    (122, 1),           // CAN_USE_64_BIT_STREAM_MEM_OPS
    (123, 1),           // CAN_USE_STREAM_WAIT_VALUE_NOR
];

/// Beyond the last attribute there is.
const ATTRIBUTES_END: c_int = 200;

/// The bytes of a device's identity.
type Uuid = [c_char; 16];

/// Stops at a device that is not there.
pub(super) fn checked(state: &State, device: c_int) -> Answer {
    let there = (0..state.options.devices).contains(&device);
    if there { Ok(()) } else { Err(Status::INVALID_DEVICE.into()) }
}

pub(super) fn init(state: &mut State, flags: u32) -> Answer {
    if flags != 0 {
        return Err(Status::INVALID_VALUE.into());
    }
    if state.options.init != Status::SUCCESS {
        return Err(state.options.init.into());
    }
    if state.options.devices == 0 {
        return Err(Status::NO_DEVICE.into());
    }
    if !state.runs {
        state.runs = engine::start() && hosts::start();
    }
    if !state.runs {
        return Err(Status::OPERATING_SYSTEM.into());
    }
    shared().initialize();
    Ok(())
}

pub(super) fn driver_version(state: &mut State, out: Out<c_int>) -> Answer {
    out.set(state.options.driver_version)
}

pub(super) fn error_name(_: &mut State, status: Status, out: Out<usize>) -> Answer {
    let known = status.name_and_text();
    out.set(known.map_or(0, |(name, _)| name.as_ptr().expose_provenance()))?;
    if known.is_some() { Ok(()) } else { Err(Status::INVALID_VALUE.into()) }
}

pub(super) fn error_text(_: &mut State, status: Status, out: Out<usize>) -> Answer {
    let known = status.name_and_text();
    out.set(known.map_or(0, |(_, text)| text.as_ptr().expose_provenance()))?;
    if known.is_some() { Ok(()) } else { Err(Status::INVALID_VALUE.into()) }
}

pub(super) fn count(state: &mut State, out: Out<c_int>) -> Answer {
    out.set(state.options.devices)
}

pub(super) fn get(state: &mut State, out: Out<c_int>, ordinal: c_int) -> Answer {
    checked(state, ordinal)?;
    out.set(ordinal)
}

pub(super) fn name(state: &mut State, out: Chars, len: c_int, device: c_int) -> Answer {
    checked(state, device)?;
    out.write(&format!("Fake GPU {device}"), len)
}

pub(super) fn uuid(state: &mut State, out: Out<Uuid>, device: c_int) -> Answer {
    checked(state, device)?;
    let mut bytes = *b"fake-device-0000";
    let digits = format!("{device:04}");
    let from = bytes.len() - digits.len().min(bytes.len());
    bytes[from..].copy_from_slice(digits.as_bytes());
    out.set(bytes.map(|byte| c_char::from_ne_bytes([byte])))
}

pub(super) fn attribute(state: &mut State, out: Out<c_int>, attribute: c_int, device: c_int) -> Answer {
    out.needed()?;
    checked(state, device)?;
    if !(1..ATTRIBUTES_END).contains(&attribute) {
        return Err(Status::INVALID_VALUE.into());
    }
    out.set(state.attribute_of(attribute))
}

impl State {
    /// An attribute of the devices, which are all alike.
    pub(super) fn attribute_of(&self, attribute: c_int) -> c_int {
        let own =
            || ATTRIBUTES.iter().find(|(number, _)| *number == attribute).map_or(0, |(_, value)| *value);
        self.options.attributes.get(&attribute).copied().unwrap_or_else(own)
    }
}

pub(super) fn total_memory(state: &mut State, out: Out<usize>, device: c_int) -> Answer {
    checked(state, device)?;
    out.set(usize::try_from(state.options.total_memory_bytes).unwrap_or(usize::MAX))
}

//! Where no runtime is bound: whoever holds a default one for the whole process, a facade say, may be asked. No runtime is held here.

use core::any::Any;
use std::sync::OnceLock;

use crate::port::Device;
use crate::runtime::Runtime;

/// Who is asked.
static FALLBACK: OnceLock<fn(&mut dyn Any)> = OnceLock::new();

/// Has `fill` asked for a runtime wherever an operation is awaited or run and none is bound. It gets an `Option<Runtime<D>>` that is
/// `None`, as [`Any`], and puts one there if it has one of that kind.
///
/// For the binary, or for whoever holds its default runtime: it counts for the whole process, and the first that is handed in stays.
/// Says whether that is this one.
pub fn fall_back_on(fill: fn(&mut dyn Any)) -> bool {
    core::ptr::fn_addr_eq(*FALLBACK.get_or_init(|| fill), fill)
}

/// A runtime for this kind of device, of whoever was handed in.
pub(crate) fn ask<D: Device>() -> Option<Runtime<D>> {
    let mut slot: Option<Runtime<D>> = None;
    FALLBACK.get()?(&mut slot);
    slot
}

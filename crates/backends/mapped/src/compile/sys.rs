//! The C interface of run-time compilers, which is one but for the names: its types, its numbers, and the functions that are used of it.
//!
//! NVRTC has had each of these under its one name since 11.2, by its header `nvrtc.h`; HIPRTC all but those of architectures and texts, by `hiprtc.h`. So no version is
//! asked for.

use core::ffi::{c_char, c_int, c_void};
use core::ptr::NonNull;

use super::vendor::RtcVendor;

/// What a call came to.
pub(super) type RtcResult = c_int;
/// A program of the compiler's.
pub(super) type RtcProgram = *mut c_void;

pub(super) const SUCCESS: RtcResult = 0;
pub(super) const COMPILATION: RtcResult = 6;

pub(super) type Numbers = unsafe extern "C" fn(*mut c_int, *mut c_int) -> RtcResult;
pub(super) type Says = unsafe extern "C" fn(RtcResult) -> *const c_char;
pub(super) type Number = unsafe extern "C" fn(*mut c_int) -> RtcResult;
pub(super) type Create = unsafe extern "C" fn(
    *mut RtcProgram,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> RtcResult;
pub(super) type Destroy = unsafe extern "C" fn(*mut RtcProgram) -> RtcResult;
pub(super) type AddName = unsafe extern "C" fn(RtcProgram, *const c_char) -> RtcResult;
pub(super) type Compile = unsafe extern "C" fn(RtcProgram, c_int, *const *const c_char) -> RtcResult;
pub(super) type Lowered = unsafe extern "C" fn(RtcProgram, *const c_char, *mut *const c_char) -> RtcResult;
pub(super) type Size = unsafe extern "C" fn(RtcProgram, *mut usize) -> RtcResult;
pub(super) type Get = unsafe extern "C" fn(RtcProgram, *mut c_char) -> RtcResult;

/// The compiler's functions. Calling one is unsafe as its manual says.
#[derive(Debug)]
pub(super) struct Functions {
    pub(super) version: Numbers,
    pub(super) says: Says,
    /// How many architectures it knows, and those.
    pub(super) archs: Option<(Number, Number)>,
    pub(super) create: Create,
    pub(super) destroy: Destroy,
    pub(super) add_name: AddName,
    pub(super) compile: Compile,
    pub(super) lowered: Lowered,
    pub(super) machine: (Size, Get),
    pub(super) text: Option<(Size, Get)>,
    pub(super) log: (Size, Get),
}

impl Functions {
    /// Fills the table with what `find` finds.
    ///
    /// # Errors
    ///
    /// The first name that is absent.
    ///
    /// # Safety
    ///
    /// What `find` gives for a name is the address of the function of that name of the vendor's compiler, and stays so for as long as the process lives.
    pub(super) unsafe fn find<R: RtcVendor>(
        find: impl Fn(&str) -> Option<NonNull<c_void>>,
    ) -> Result<Self, String> {
        macro_rules! function {
            ($name:expr, $function:ty) => {{
                let name = format!("{}{}", R::PREFIX, $name);
                let address = find(&name).ok_or(name)?;
                // SAFETY: by the contract the address is of the function of that name; the type is its declaration in the vendor's header.
                unsafe { core::mem::transmute::<*mut c_void, $function>(address.as_ptr()) }
            }};
        }
        let version = function!("Version", Numbers);
        let archs = if R::HAS_ARCHS {
            Some((function!("GetNumSupportedArchs", Number), function!("GetSupportedArchs", Number)))
        } else {
            None
        };
        let text = match R::TEXT {
            Some(text) => {
                Some((function!(format!("Get{text}Size"), Size), function!(format!("Get{text}"), Get)))
            }
            None => None,
        };
        Ok(Self {
            version,
            says: function!("GetErrorString", Says),
            archs,
            create: function!("CreateProgram", Create),
            destroy: function!("DestroyProgram", Destroy),
            add_name: function!("AddNameExpression", AddName),
            compile: function!("CompileProgram", Compile),
            lowered: function!("GetLoweredName", Lowered),
            machine: (
                function!(format!("Get{}Size", R::MACHINE), Size),
                function!(format!("Get{}", R::MACHINE), Get),
            ),
            text,
            log: (function!("GetProgramLogSize", Size), function!("GetProgramLog", Get)),
        })
    }
}

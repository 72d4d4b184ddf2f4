//! The C interface of NVRTC, the compiler of CUDA C: its types, its numbers, and the functions that are used of it.
//!
//! Each has had the interface below under this one name since NVRTC 11.2, by its header `nvrtc.h`; so no version is asked for.

use core::ffi::{c_char, c_int, c_void};
use core::ptr::NonNull;

// The C names are kept, so that what is read here can be looked up there.
pub(super) type nvrtcResult = c_int;
pub(super) type nvrtcProgram = *mut c_void;

pub(super) const NVRTC_SUCCESS: nvrtcResult = 0;
pub(super) const NVRTC_ERROR_COMPILATION: nvrtcResult = 6;

macro_rules! functions {
    ($($name:ident($($argument:ty),* $(,)?) -> $result:ty;)*) => {
        /// The compiler's functions. Calling one is unsafe as its manual says.
        #[expect(non_snake_case, reason = "the names of the C interface")]
        #[derive(Debug)]
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
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
            /// What `find` gives for a name is the address of NVRTC's function of that name, and stays so for as long as the process lives.
            pub(super) unsafe fn find(find: impl Fn(&str) -> Option<NonNull<c_void>>) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        let address = find(stringify!($name)).ok_or(stringify!($name))?;
                        // SAFETY: by the contract the address is of the function of that name; the type is its declaration in `nvrtc.h`.
                        unsafe {
                            core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(
                                address.as_ptr(),
                            )
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    nvrtcVersion(*mut c_int, *mut c_int) -> nvrtcResult;
    nvrtcGetErrorString(nvrtcResult) -> *const c_char;
    nvrtcGetNumSupportedArchs(*mut c_int) -> nvrtcResult;
    nvrtcGetSupportedArchs(*mut c_int) -> nvrtcResult;
    nvrtcCreateProgram(
        *mut nvrtcProgram,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> nvrtcResult;
    nvrtcDestroyProgram(*mut nvrtcProgram) -> nvrtcResult;
    nvrtcAddNameExpression(nvrtcProgram, *const c_char) -> nvrtcResult;
    nvrtcCompileProgram(nvrtcProgram, c_int, *const *const c_char) -> nvrtcResult;
    nvrtcGetLoweredName(nvrtcProgram, *const c_char, *mut *const c_char) -> nvrtcResult;
    nvrtcGetCUBINSize(nvrtcProgram, *mut usize) -> nvrtcResult;
    nvrtcGetCUBIN(nvrtcProgram, *mut c_char) -> nvrtcResult;
    nvrtcGetPTXSize(nvrtcProgram, *mut usize) -> nvrtcResult;
    nvrtcGetPTX(nvrtcProgram, *mut c_char) -> nvrtcResult;
    nvrtcGetProgramLogSize(nvrtcProgram, *mut usize) -> nvrtcResult;
    nvrtcGetProgramLog(nvrtcProgram, *mut c_char) -> nvrtcResult;
}

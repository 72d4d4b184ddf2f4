//! HIP's run-time compiler, which up to HIP 5 is a part of its library: the same symbols as NVRTC's but for their names, and code objects in place of machine code and PTX.
#![allow(unsafe_code, non_snake_case)]

use core::ffi::{CStr, c_char, c_int};

use super::arg::{Chars, List, Out, Text};
use super::nvrtc::{self, Dialect, Places};
use crate::Status;

macro_rules! exports {
    ($($name:ident($($arg:ident: $ty:ty),*) => $body:expr;)*) => {$(
        // SAFETY: the name is the compiler's own, and this library is loaded in its place, into a scope of its own.
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $ty),*) -> Status {
            nvrtc::call(stringify!($name), |state| $body(state $(, $arg)*))
        }
    )*};
}

exports! {
    hiprtcVersion(major: Out<c_int>, minor: Out<c_int>) => nvrtc::version;
    hiprtcCreateProgram(out: Out<u64>, source: Text, name: Text, count: c_int, headers: List<Text>, names: List<Text>) => nvrtc::create;
    hiprtcDestroyProgram(handle: Out<u64>) => nvrtc::destroy;
    hiprtcAddNameExpression(handle: u64, expression: Text) => nvrtc::add_name;
    hiprtcCompileProgram(handle: u64, count: c_int, options: List<Text>) => |state, handle, count, options| nvrtc::compile_program(state, handle, count, options, Dialect::Hip);
    hiprtcGetLoweredName(handle: u64, expression: Text, out: Out<usize>) => nvrtc::lowered_name;
    hiprtcGetCodeSize(handle: u64, out: Out<usize>) => nvrtc::code_size;
    hiprtcGetCode(handle: u64, out: Places<u8>) => nvrtc::code;
    hiprtcGetProgramLogSize(handle: u64, out: Out<usize>) => nvrtc::log_size;
    hiprtcGetProgramLog(handle: u64, out: Chars) => nvrtc::log;
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn hiprtcGetErrorString(status: Status) -> *const c_char {
    const NAMES: &[&CStr] = &[
        c"HIPRTC_SUCCESS",
        c"HIPRTC_ERROR_OUT_OF_MEMORY",
        c"HIPRTC_ERROR_PROGRAM_CREATION_FAILURE",
        c"HIPRTC_ERROR_INVALID_INPUT",
        c"HIPRTC_ERROR_INVALID_PROGRAM",
        c"HIPRTC_ERROR_INVALID_OPTION",
        c"HIPRTC_ERROR_COMPILATION",
        c"HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE",
        c"HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
        c"HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
        c"HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
    ];
    let name = usize::try_from(status.0).ok().and_then(|number| NAMES.get(number));
    name.unwrap_or(&c"HIPRTC_ERROR_INTERNAL_ERROR").as_ptr()
}

//! The C interface of libraries of collectives, which NVIDIA's and AMD's have alike: types, numbers, and the functions that are used of it, by NCCL's header `nccl.h`.
//!
//! All but the calls that do not wait have been there since 2.10; those since 2.14, when `ncclCommInitRankConfig` came.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr::NonNull;

use wakeline_ops::port::{Number, Reduce, UNIQUE_ID_BYTES};

/// `ncclResult_t`
pub(super) type RawResult = c_int;
/// `ncclDataType_t`
pub(super) type RawNumber = c_int;
/// `ncclRedOp_t`
pub(super) type RawReduce = c_int;
/// `ncclComm_t`
pub(super) type RawComm = *mut c_void;
/// `cudaStream_t`, `hipStream_t`
pub(super) type RawStream = *mut c_void;

pub(super) const SUCCESS: RawResult = 0;
pub(super) const IN_PROGRESS: RawResult = 7;

/// The oldest that has averages, and numbers its versions so.
pub(super) const VERSION_LEAST: c_int = 21_000;
/// The first with a configuration: as `NCCL_VERSION(2, 14, 0)` has it.
const CONFIG_VERSION: c_uint = 21_400;
/// `NCCL_API_MAGIC`
const CONFIG_MAGIC: c_uint = 0xcafe_beef;

/// `ncclUniqueId`
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RawId {
    pub(super) internal: [c_char; UNIQUE_ID_BYTES],
}

/// `ncclConfig_t` as it was in 2.14: later ones read as much of it as it says that it has, and have their defaults for the rest.
#[repr(C)]
pub(super) struct RawConfig {
    pub(super) size: usize,
    magic: c_uint,
    version: c_uint,
    pub(super) blocking: c_int,
    /// Of 2.17 and later; before that it is a gap. `NCCL_CONFIG_UNDEF_INT`.
    cluster: c_int,
}

impl RawConfig {
    /// Calls come back at once.
    pub(super) const fn nonblocking() -> Self {
        Self {
            size: size_of::<Self>(),
            magic: CONFIG_MAGIC,
            version: CONFIG_VERSION,
            blocking: 0,
            cluster: c_int::MIN,
        }
    }
}

#[cfg(test)]
impl RawConfig {
    /// Where its fields are.
    pub(super) const PLACES: [(&str, usize); 5] = [
        ("size", core::mem::offset_of!(Self, size)),
        ("magic", core::mem::offset_of!(Self, magic)),
        ("version", core::mem::offset_of!(Self, version)),
        ("blocking", core::mem::offset_of!(Self, blocking)),
        ("cgaClusterSize", core::mem::offset_of!(Self, cluster)),
    ];

    pub(super) const fn magic(&self) -> c_uint {
        self.magic
    }
}

/// `ncclDataType_t` of a number.
pub(super) const fn raw_number(number: Number) -> RawNumber {
    match number {
        Number::I8 => 0,
        Number::U8 => 1,
        Number::I32 => 2,
        Number::U32 => 3,
        Number::I64 => 4,
        Number::U64 => 5,
        Number::F16 => 6,
        Number::F32 => 7,
        Number::F64 => 8,
        Number::Bf16 => 9,
    }
}

/// `ncclRedOp_t` of a reduction.
pub(super) const fn raw_reduce(reduce: Reduce) -> RawReduce {
    match reduce {
        Reduce::Sum => 0,
        Reduce::Prod => 1,
        Reduce::Max => 2,
        Reduce::Min => 3,
        Reduce::Avg => 4,
    }
}

/// Makes the table: a function a row, with its arguments; required, or absent in older libraries.
macro_rules! functions {
    ($($field:ident $name:literal $need:ident ($($argument:ty),*) -> $returns:ty;)*) => {
        /// The library's functions. Calling one is unsafe as its manual says.
        #[derive(Debug)]
        pub(super) struct Functions {
            $(pub(super) $field: functions!(@field $need unsafe extern "C" fn($($argument),*) -> $returns),)*
        }

        impl Functions {
            /// Of each function its name, what it returns, and its arguments, as the table has them.
            #[cfg(test)]
            pub(super) const PROTOTYPES: &[(&str, &str, &[&str])] =
                &[$(($name, stringify!($returns), &[$(stringify!($argument)),*]),)*];

            /// Fills the table with what `find` finds.
            ///
            /// # Errors
            ///
            /// The first name that is absent and required.
            ///
            /// # Safety
            ///
            /// What `find` gives for a name is the address of the library's function of that name, and stays so for as long as the process lives.
            pub(super) unsafe fn find(
                find: impl Fn(&str) -> Option<NonNull<c_void>>,
            ) -> Result<Self, &'static str> {
                Ok(Self {
                    $($field: {
                        let address = find($name).map(|address| {
                            // SAFETY: by the contract the address is of the function of that name; the type is its declaration in the header.
                            unsafe {
                                core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $returns>(
                                    address.as_ptr(),
                                )
                            }
                        });
                        functions!(@found $need $name address)
                    },)*
                })
            }
        }
    };
    (@field required $function:ty) => { $function };
    (@field newer $function:ty) => { Option<$function> };
    (@found required $name:literal $address:ident) => { $address.ok_or($name)? };
    (@found newer $name:literal $address:ident) => { $address };
}

functions! {
    version "ncclGetVersion" required (*mut c_int) -> RawResult;
    says "ncclGetErrorString" required (RawResult) -> *const c_char;
    last "ncclGetLastError" newer (RawComm) -> *const c_char;
    unique_id "ncclGetUniqueId" required (*mut RawId) -> RawResult;
    init_config "ncclCommInitRankConfig" newer (*mut RawComm, c_int, RawId, c_int, *mut RawConfig) -> RawResult;
    init "ncclCommInitRank" required (*mut RawComm, c_int, RawId, c_int) -> RawResult;
    finalize "ncclCommFinalize" newer (RawComm) -> RawResult;
    destroy "ncclCommDestroy" required (RawComm) -> RawResult;
    abort "ncclCommAbort" required (RawComm) -> RawResult;
    async_error "ncclCommGetAsyncError" required (RawComm, *mut RawResult) -> RawResult;
    group_start "ncclGroupStart" required () -> RawResult;
    group_end "ncclGroupEnd" required () -> RawResult;
    all_reduce "ncclAllReduce" required (*const c_void, *mut c_void, usize, RawNumber, RawReduce, RawComm, RawStream) -> RawResult;
    all_gather "ncclAllGather" required (*const c_void, *mut c_void, usize, RawNumber, RawComm, RawStream) -> RawResult;
    reduce_scatter "ncclReduceScatter" required (*const c_void, *mut c_void, usize, RawNumber, RawReduce, RawComm, RawStream) -> RawResult;
    broadcast "ncclBroadcast" required (*const c_void, *mut c_void, usize, RawNumber, c_int, RawComm, RawStream) -> RawResult;
    reduce "ncclReduce" required (*const c_void, *mut c_void, usize, RawNumber, RawReduce, c_int, RawComm, RawStream) -> RawResult;
    send "ncclSend" required (*const c_void, usize, RawNumber, c_int, RawComm, RawStream) -> RawResult;
    receive "ncclRecv" required (*mut c_void, usize, RawNumber, c_int, RawComm, RawStream) -> RawResult;
}

//! The driver's interface as a C program has it, for the tests of the fake: symbols by their names, from one file.
#![allow(unsafe_code, clippy::unwrap_used, dead_code)] // It is for tests, and none of them uses all of it.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libloading::Library;
use wakeline_fake_driver::{Fake, Status};

pub(crate) const NON_BLOCKING: c_uint = 1;
pub(crate) const NO_TIMING: c_uint = 2;
/// Portable and device-mapped.
pub(crate) const MAPPED: c_uint = 3;

/// All kernels that the fake knows, and one that it does not.
pub(crate) const KERNELS: &CStr = c".version 8.0
.visible .entry occupy(.param .u64 ns) { ret; }
.visible .entry occupy_until(.param .u64 at) { ret; }
.visible .entry store_word(.param .u64 address, .param .u64 value, .param .u64 ns) { ret; }
.visible .entry stamp(.param .u64 address) { ret; }
.visible .entry affine(.param .u64 address, .param .u64 count, .param .u64 factor, .param .u64 addend) { ret; }
.visible .entry traps() { trap; }
.visible .entry illegal_address() { ret; }
.visible .entry assert_fails() { ret; }
.entry mine(.param .f32 x) { ret; }
";

type Launch = extern "C" fn(
    u64,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    u64,
    *const *const u64,
    *const c_void,
) -> Status;

pub(crate) type HostFn = extern "C" fn(*mut c_void);

/// A loaded driver.
pub(crate) struct Driver {
    library: Library,
}

/// Calls that take numbers, and give a status or write a number.
macro_rules! calls {
    ($($method:ident = $symbol:ident($($arg:ident: $ty:ty),*) $(-> $out:ty)?;)*) => {
        $(calls!(@one $method, $symbol, ($($arg: $ty),*), ($($out)?));)*
    };
    (@one $method:ident, $symbol:ident, ($($arg:ident: $ty:ty),*), ()) => {
        pub(crate) fn $method(&self, $($arg: $ty),*) -> Status {
            let call: extern "C" fn($($ty),*) -> Status = self.symbol(stringify!($symbol));
            call($($arg),*)
        }
    };
    (@one $method:ident, $symbol:ident, ($($arg:ident: $ty:ty),*), ($out:ty)) => {
        pub(crate) fn $method(&self, $($arg: $ty),*) -> Result<$out, Status> {
            let call: extern "C" fn(*mut $out, $($ty),*) -> Status = self.symbol(stringify!($symbol));
            let mut out = <$out>::default();
            match call(&raw mut out, $($arg),*) {
                Status::SUCCESS => Ok(out),
                status => Err(status),
            }
        }
    };
}

impl Driver {
    pub(crate) fn open(path: &Path) -> Self {
        // SAFETY: it is the fake, whose loading does nothing but what std does.
        let library = unsafe { Library::new(path) }.unwrap();
        Self { library }
    }

    /// Opened, initialized, and with the primary context of device 0 current.
    pub(crate) fn ready(fake: &Fake) -> Self {
        let driver = Self::open(fake.path());
        assert_eq!(driver.init(0), Status::SUCCESS);
        let context = driver.primary_retain(0).unwrap();
        assert_eq!(driver.set_current(context), Status::SUCCESS);
        driver
    }

    fn symbol<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the methods below name the types that the driver's header has.
        *unsafe { self.library.get::<F>(name) }.unwrap()
    }

    calls! {
        init = cuInit(flags: c_uint);
        version = cuDriverGetVersion() -> c_int;
        device_count = cuDeviceGetCount() -> c_int;
        device = cuDeviceGet(ordinal: c_int) -> c_int;
        attribute = cuDeviceGetAttribute(attribute: c_int, device: c_int) -> c_int;
        primary_retain = cuDevicePrimaryCtxRetain(device: c_int) -> u64;
        primary_release = cuDevicePrimaryCtxRelease_v2(device: c_int);
        context_create = cuCtxCreate_v2(flags: c_uint, device: c_int) -> u64;
        context_destroy = cuCtxDestroy_v2(context: u64);
        push = cuCtxPushCurrent_v2(context: u64);
        pop = cuCtxPopCurrent_v2() -> u64;
        current = cuCtxGetCurrent() -> u64;
        set_current = cuCtxSetCurrent(context: u64);
        context_synchronize = cuCtxSynchronize();
        stream_create = cuStreamCreate(flags: c_uint) -> u64;
        stream_destroy = cuStreamDestroy_v2(stream: u64);
        stream_query = cuStreamQuery(stream: u64);
        stream_synchronize = cuStreamSynchronize(stream: u64);
        wait_event = cuStreamWaitEvent(stream: u64, event: u64, flags: c_uint);
        write_v1 = cuStreamWriteValue64(stream: u64, address: u64, value: u64, flags: c_uint);
        write = cuStreamWriteValue64_v2(stream: u64, address: u64, value: u64, flags: c_uint);
        wait = cuStreamWaitValue64_v2(stream: u64, address: u64, value: u64, flags: c_uint);
        host = cuLaunchHostFunc(stream: u64, function: HostFn, data: *mut c_void);
        event_create = cuEventCreate(flags: c_uint) -> u64;
        event_record = cuEventRecord(event: u64, stream: u64);
        event_query = cuEventQuery(event: u64);
        event_synchronize = cuEventSynchronize(event: u64);
        event_destroy = cuEventDestroy_v2(event: u64);
        elapsed_ms = cuEventElapsedTime(start: u64, end: u64) -> f32;
        host_alloc = cuMemHostAlloc(bytes: usize, flags: c_uint) -> u64;
        host_free = cuMemFreeHost(address: u64);
        device_pointer = cuMemHostGetDevicePointer_v2(address: u64, flags: c_uint) -> u64;
        alloc = cuMemAlloc_v2(bytes: usize) -> u64;
        free = cuMemFree_v2(address: u64);
        alloc_async = cuMemAllocAsync(bytes: usize, stream: u64) -> u64;
        free_async = cuMemFreeAsync(address: u64, stream: u64);
        default_pool = cuDeviceGetDefaultMemPool(device: c_int) -> u64;
        get_pool_attribute = cuMemPoolGetAttribute(pool: u64, attribute: c_int, value: *mut u64);
        set_pool_attribute = cuMemPoolSetAttribute(pool: u64, attribute: c_int, value: *mut u64);
        trim_pool = cuMemPoolTrimTo(pool: u64, keep: usize);
        copy = cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64);
        to_device = cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64);
        to_host = cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, stream: u64);
        begin_capture = cuStreamBeginCapture_v2(stream: u64, mode: c_uint);
        is_capturing_status = cuStreamIsCapturing(stream: u64, out: *mut c_int);
        end_capture_into = cuStreamEndCapture(stream: u64, graph: *mut u64);
        exchange_mode = cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
        instantiate = cuGraphInstantiateWithFlags(graph: u64, flags: u64) -> u64;
        graph_launch = cuGraphLaunch(exec: u64, stream: u64);
        exec_destroy = cuGraphExecDestroy(exec: u64);
        graph_destroy = cuGraphDestroy(graph: u64);
        module_load = cuModuleLoadData(image: *const c_char) -> u64;
        module_unload = cuModuleUnload(module: u64);
        module_function = cuModuleGetFunction(module: u64, name: *const c_char) -> u64;
        fill = cuMemsetD8Async(to: u64, value: u8, bytes: usize, stream: u64);
    }

    /// The address that the driver's own look-up gives, and what it says of the search.
    pub(crate) fn lookup(&self, name: &CStr, version: c_int, flags: u64) -> Result<(usize, c_int), Status> {
        let call: extern "C" fn(*const c_char, *mut usize, c_int, u64, *mut c_int) -> Status =
            self.symbol("cuGetProcAddress_v2");
        let (mut address, mut found) = (0, -1);
        match call(name.as_ptr(), &raw mut address, version, flags, &raw mut found) {
            Status::SUCCESS => Ok((address, found)),
            status => Err(status),
        }
    }

    pub(crate) fn end_capture(&self, stream: u64) -> Result<u64, Status> {
        let mut graph = 0;
        match self.end_capture_into(stream, &raw mut graph) {
            Status::SUCCESS => Ok(graph),
            status => Err(status),
        }
    }

    pub(crate) fn is_capturing(&self, stream: u64) -> c_int {
        let mut status = -1;
        assert_eq!(self.is_capturing_status(stream, &raw mut status), Status::SUCCESS);
        status
    }

    /// Runs a kernel of [`KERNELS`] in one thread.
    pub(crate) fn run(&self, name: &CStr, stream: u64, parameters: &[u64]) -> Status {
        let module = self.module_load(KERNELS.as_ptr()).unwrap();
        let function = self.module_function(module, name.as_ptr()).unwrap();
        self.launch(function, stream, parameters)
    }

    pub(crate) fn launch(&self, function: u64, stream: u64, parameters: &[u64]) -> Status {
        let places: Vec<*const u64> = parameters.iter().map(ptr::from_ref).collect();
        let call: Launch = self.symbol("cuLaunchKernel");
        call(function, 1, 1, 1, 1, 1, 1, 0, stream, places.as_ptr(), ptr::null())
    }

    /// An exported symbol that takes a handle.
    pub(crate) fn function(&self, name: &str) -> extern "C" fn(u64) -> Status {
        self.symbol(name)
    }

    /// The address of an exported symbol.
    pub(crate) fn address(&self, name: &str) -> usize {
        let symbol: extern "C" fn() = self.symbol(name);
        symbol as *const () as usize
    }
}

/// The word at an address of a pinned page that lives.
pub(crate) fn word(address: u64) -> u64 {
    let word: *mut u64 = ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap());
    // SAFETY: the tests pass addresses of words in pages that they have not freed.
    unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Acquire)
}

/// Waits for something that is to come soon.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "{what} has not come");
        std::thread::yield_now();
    }
}

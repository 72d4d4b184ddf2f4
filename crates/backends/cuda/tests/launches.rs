//! Launches as operations ask for them: much shared memory, clusters, cooperative and overlapping ones, and what is refused. On the stand-in, and on the machine's own
//! device where there is one.
#![cfg(all(feature = "ops", target_os = "linux", target_pointer_width = "64"))]
#![allow(unsafe_code, reason = "what a kernel does with its arguments is a promise")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr;
use std::ffi::CString;
use std::time::Instant;

use common::{fake, loaded};
use libloading::Library;
use wakeline_core::{Error, ErrorCode};
use wakeline_cuda::kernels::{AFFINE, OCCUPY, PTX};
use wakeline_cuda::{
    Arch, ContextConfig, CuStream, Cuda, CudaContext, CudaDevice, CudaMemory, DEVICE_BYTES_KEPT, Function,
    Ordinal, synchronize,
};
use wakeline_fake_driver::{Act, Fake, Rule, Status};
use wakeline_ops::port::{Arg, At, Device as _, Launch as _, Memory as _, Pattern, Priority, Promise, Shape};

const ONE: Shape = Shape::new([1; 3], [1; 3]);

struct Rig {
    device: CudaDevice,
    stream: CuStream,
    occupy: Function,
}

impl Rig {
    fn new(cuda: &Cuda) -> Self {
        let device = CudaDevice::new(cuda, Ordinal(0)).unwrap();
        let stream = device.stream(Priority::Normal).unwrap();
        let occupy = device.ptx(PTX).unwrap().function(OCCUPY).unwrap();
        Self { device, stream, occupy }
    }

    /// Launches a kernel that does nothing.
    fn launch(&self, shape: Shape) -> Result<(), Error> {
        self.launch_with(&self.occupy, shape, &[Arg::Word(0)])
    }

    fn launch_with(
        &self,
        kernel: &Function,
        shape: Shape,
        args: &[Arg<'_, CudaMemory>],
    ) -> Result<(), Error> {
        // SAFETY: stream and kernel are of the device, the arguments are the kernel's, and the buffers are kept until the stream was synchronized.
        let promise = unsafe { Promise::new() };
        self.device.launch(&self.stream, kernel, shape, args, promise)
    }
}

/// Runs a test on the stand-in, and on the device of this machine if it has one.
fn on_each(test: impl Fn(&Rig)) {
    let (fake, cuda) = loaded();
    test(&Rig::new(&cuda));
    assert!(fake.violations().is_empty(), "{:?}", fake.violations());
    match Cuda::load() {
        Ok(cuda) => test(&Rig::new(&cuda)),
        Err(error) => println!("skipped: no CUDA device: {error}"),
    }
}

/// A stand-in for a device with these attributes.
fn device_with(attributes: &[(i32, i32)]) -> (Fake, Rig) {
    let fake = fake(|options| options.attributes.extend(attributes.iter().copied()));
    let rig = Rig::new(&Cuda::load_from(fake.path()).unwrap());
    (fake, rig)
}

fn is_generation(rig: &Rig, from: u32) -> bool {
    let cuda = rig.device.context().driver();
    cuda.device(Ordinal(0)).unwrap().arch().unwrap() >= Arch::new(from, 0)
}

#[test]
fn every_way_to_launch_reaches_the_device() {
    on_each(|rig| {
        let mut shapes =
            vec![ONE, Shape::new([4, 2, 1], [64, 2, 1]), ONE.shared_bytes(96 << 10), ONE.cooperative()];
        if is_generation(rig, 9) {
            let clusters = Shape::new([32, 2, 1], [32, 1, 1]);
            shapes.extend([ONE.overlapping(), clusters.cluster([2, 2, 1]), clusters.cluster([8, 1, 1])]);
            shapes.push(clusters.cluster([2, 1, 1]).cooperative().overlapping().shared_bytes(1 << 10));
        }
        for shape in shapes {
            rig.launch(shape).unwrap_or_else(|error| panic!("{shape:?}: {error}"));
            synchronize(&rig.stream).unwrap();
        }
    });
}

#[test]
fn results_are_those_of_any_launch() {
    on_each(|rig| {
        let affine = rig.occupy.module().function(AFFINE).unwrap();
        rig.device.takes(&affine, &[8; 4]).unwrap();
        let bytes = 4 * 1_000;
        let (memory, pinned) =
            (rig.device.alloc(&rig.stream, bytes).unwrap(), rig.device.pinned(bytes).unwrap());
        // SAFETY: nobody else has the memory, which is kept until the stream was synchronized; so for the promises below.
        let promise = || unsafe { Promise::new() };
        rig.device.fill(&rig.stream, At::from(&memory), Pattern::One(1), bytes, promise()).unwrap();
        let shape = Shape::new([4, 1, 1], [128, 1, 1]).shared_bytes(64 << 10);
        for shape in [shape, shape.cooperative()] {
            let args = [Arg::Write(At::from(&memory)), Arg::Word(1_000), Arg::Word(3), Arg::Word(5)];
            rig.launch_with(&affine, shape, &args).unwrap();
        }
        rig.device.download(&rig.stream, At::from(&memory), At::from(&pinned), bytes, promise()).unwrap();
        synchronize(&rig.stream).unwrap();
        let mut read = vec![0; bytes];
        wakeline_ops::port::Pinned::read(&pinned, 0, &mut read, promise()).unwrap();
        let wanted = (0x0101_0101_u32.wrapping_mul(3).wrapping_add(5)).wrapping_mul(3).wrapping_add(5);
        assert!(read.chunks_exact(4).all(|number| number == wanted.to_ne_bytes()));
        rig.device.free(&rig.stream, &memory, promise()).unwrap();
        synchronize(&rig.stream).unwrap();
    });
}

#[test]
fn a_shape_beyond_the_device_is_told_by_its_size() {
    on_each(|rig| {
        for (shape, says) in [
            (Shape::new([0, 1, 1], [1; 3]), "the blocks of a launch in x is 0, but must be from 1"),
            (
                Shape::new([1; 3], [2_048, 1, 1]),
                "the threads of a block in x is 2048, but must be from 1 to 1024",
            ),
            (Shape::new([1; 3], [64, 64, 1]), "the threads of a block is 4096, but must be from 1 to 1024"),
            (
                ONE.shared_bytes(1 << 20),
                "the bytes of shared memory of a block is 1048576, but must be from 0",
            ),
            (ONE.cluster([32, 1, 1]), "the blocks of a cluster is 32, but must be from 1 to 16"),
        ] {
            if shape.cluster.is_some() && !is_generation(rig, 9) {
                continue;
            }
            let error = rig.launch(shape).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidLimit, "{shape:?}: {error}");
            assert!(error.to_string().contains(says), "{error}");
            // Nothing has come to harm.
            rig.launch(ONE).unwrap();
            synchronize(&rig.stream).unwrap();
        }
    });
}

#[test]
fn what_a_device_has_not_got_is_told_before_the_driver_is_asked() {
    let (fake, rig) = device_with(&[(75, 8), (95, 0), (120, 0)]);
    for (shape, how) in [
        (ONE.cluster([1, 1, 1]), "in clusters"),
        (ONE.cooperative(), "cooperatively"),
        (ONE.overlapping(), "before the one in front of it has ended"),
    ] {
        let error = rig.launch(shape).unwrap_err();
        assert_eq!((error.code(), &error.args()[1][..]), (ErrorCode::LaunchUnsupported, how));
    }
    assert_eq!(fake.calls("cuLaunchKernelEx"), 0);
    let (fake, rig) = device_with(&[]);
    fake.rule(Rule::new("cuLaunchKernelEx", Act::Fail(Status::NOT_SUPPORTED)));
    let error = rig.launch(ONE.cooperative()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LaunchUnsupported);
    assert!(error.args()[2].contains("CUDA_ERROR_NOT_SUPPORTED (801)"), "{error}");
}

#[test]
fn a_kernel_of_another_context_is_refused() {
    let (_fake, cuda) = loaded();
    let rig = Rig::new(&cuda);
    let other = CudaContext::create(&cuda, Ordinal(0), &ContextConfig::default()).unwrap();
    let kernel =
        CudaDevice::in_context(other, DEVICE_BYTES_KEPT).unwrap().ptx(PTX).unwrap().function(OCCUPY).unwrap();
    let error = rig.launch_with(&kernel, ONE, &[Arg::Word(0)]).unwrap_err();
    assert_eq!((error.code(), &error.args()[1][..]), (ErrorCode::LaunchUnsupported, "of another context"));
}

#[test]
fn shared_memory_is_asked_for_once_a_kernel() {
    let (fake, rig) = device_with(&[]);
    for kib in [16, 48, 64, 64, 32, 96, 80] {
        rig.launch(ONE.shared_bytes(kib << 10)).unwrap();
    }
    assert_eq!(fake.calls("cuFuncSetAttribute"), 2);
    let error = rig.launch_with(&rig.occupy, ONE.shared_bytes(96 << 10), &[Arg::Word(0)]);
    assert!(error.is_ok());
    fake.rule(Rule::new("cuFuncSetAttribute", Act::Fail(Status::OUT_OF_MEMORY)));
    assert_eq!(rig.launch(ONE.shared_bytes(200 << 10)).unwrap_err().code(), ErrorCode::Backend);
}

#[test]
fn a_kernel_is_looked_up_and_asked_about_once_and_not_by_a_launch() {
    let (fake, rig) = device_with(&[]);
    fake.clear_log();
    for _ in 0..10 {
        rig.launch(ONE).unwrap();
    }
    assert_eq!(fake.calls("cuLaunchKernel"), 10);
    for call in ["cuModuleGetFunction", "cuFuncGetParamInfo", "cuFuncGetAttribute", "cuDeviceGetAttribute"] {
        assert_eq!(fake.calls(call), 0, "{call}");
    }
}

/// The driver's functions that a raw launch needs, without anything between.
struct Raw {
    launch: LaunchKernel,
    kernel: *mut c_void,
    _library: Library,
}

type LaunchKernel = unsafe extern "C" fn(
    *mut c_void,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;
type Load = unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> c_int;
type Find = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> c_int;

impl Raw {
    /// The context is bound.
    fn new(cuda: &Cuda, text: &CStr, name: &CStr) -> Self {
        // SAFETY: the library is loaded by now.
        let library = unsafe { Library::new(cuda.library()) }.unwrap();
        // SAFETY: the function is of that type, by the driver's manual.
        let load = *unsafe { library.get::<Load>("cuModuleLoadData") }.unwrap();
        // SAFETY: as above.
        let find = *unsafe { library.get::<Find>("cuModuleGetFunction") }.unwrap();
        // SAFETY: as above.
        let launch = *unsafe { library.get::<LaunchKernel>("cuLaunchKernel") }.unwrap();
        let (mut module, mut kernel) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a context is bound, and the text ends with a zero.
        assert_eq!(unsafe { load(&raw mut module, text.as_ptr().cast()) }, 0);
        // SAFETY: the module is loaded, and the name ends with a zero.
        assert_eq!(unsafe { find(&raw mut kernel, module, name.as_ptr()) }, 0);
        Self { launch, kernel, _library: library }
    }

    fn launch(&self, stream: &CuStream) {
        let mut ns = 0_u64;
        let mut values = [(&raw mut ns).cast::<c_void>()];
        let (values, extra) = (values.as_mut_ptr(), ptr::null_mut());
        // SAFETY: stream and kernel are alive and of the bound context, and the kernel has one parameter, a u64.
        let status =
            unsafe { (self.launch)(self.kernel, 1, 1, 1, 1, 1, 1, 0, stream.raw().as_ptr(), values, extra) };
        assert_eq!(status, 0);
    }
}

/// What a launch by the port takes beyond the driver's call, ns: the most that is promised.
const OVER_RAW_NS_MAX: i128 = 300;

#[test]
fn a_launch_takes_little_more_than_the_drivers_call() {
    const ROUNDS: usize = 101;
    const LAUNCHES: i128 = 100;
    on_each(|rig| {
        let context = rig.device.context();
        let _bound = context.bind().unwrap();
        let (text, name) = (CString::new(PTX).unwrap(), CString::new(OCCUPY).unwrap());
        let raw = Raw::new(context.driver(), &text, &name);
        let took = |launch: &dyn Fn()| {
            synchronize(&rig.stream).unwrap();
            let start = Instant::now();
            (0..LAUNCHES).for_each(|_| launch());
            i128::try_from(start.elapsed().as_nanos()).unwrap() / LAUNCHES
        };
        let mut over = Vec::new();
        for _ in 0..ROUNDS {
            let plain = took(&|| raw.launch(&rig.stream));
            // As in a submission: the context is bound once for all of its calls.
            let typed = rig.device.together(|| took(&|| rig.launch(ONE).unwrap()));
            over.push((typed - plain, plain));
        }
        over.sort_unstable();
        let (median, plain) = over[ROUNDS / 2];
        println!("a launch by the port: {median} ns over the driver's {plain} ns");
        let is_gpu = context.driver().library().contains("libcuda.so");
        if is_gpu && !cfg!(debug_assertions) {
            assert!(median <= OVER_RAW_NS_MAX, "{median} ns");
        }
    });
}

//! What holds of cudarc's streams on every driver.

use std::sync::Arc;
use std::time::{Duration, Instant as Wall};

use cudarc::driver::{CudaContext as Theirs, CudaStream, result, sys};
use cudarc::nvrtc::Ptx;
use cudarc_interop::Occupy;
use wakeline::CudaTensor;
use wakeline::cuda::kernels::{self, TRAP};
use wakeline::cuda::{
    CuStream, Cuda, CudaContext, CudaDevice, CudaPort, CudaRuntime, DEVICE_BYTES_KEPT, FromCudarc as _,
    LendSlice,
};
use wakeline::ops::{DeviceOp, StreamPoolRoundRobin};
use wakeline::{Error, ErrorCode, Inline, Report, Wait, drive, run_inline};
use wakeline_fake_driver::Fake;
use wakeline_std::{ParkPolicy, Point, StdClock, StdIdle, StdPark, Watcher, block_on};

/// The driver that a test runs on.
pub(crate) struct Rig {
    pub(crate) cuda: Cuda,
}

/// A test.
pub(crate) struct Case {
    /// Its function's name.
    pub(crate) name: &'static str,
    /// What it does.
    pub(crate) run: fn(&Rig),
}

macro_rules! cases {
    ($($name:ident),+ $(,)?) => {
        pub(crate) const CASES: &[Case] = &[$(Case { name: stringify!($name), run: $name },)+];
    };
}

cases![
    a_stream_is_awaited_under_every_plan,
    default_streams_are_awaited,
    a_stream_of_another_context_is_refused,
    a_stream_of_another_library_is_refused,
    a_context_is_found_again_as_long_as_it_is_used,
    the_primary_context_is_the_one_that_cudarc_has,
    a_point_keeps_cudarcs_stream_and_context,
    letting_go_leaves_the_threads_context_as_it_was,
    cudarcs_own_events_and_our_points_get_along,
    a_stream_that_cudarc_captures_has_no_points,
    a_slice_is_lent_to_operations_and_given_back,
    a_slice_in_use_is_not_given_back_and_one_of_another_context_is_refused,
    a_fault_of_cudarcs_kernel_is_told,
];

const PLANS: [&str; 4] = [
    "block",
    "poll",
    "flag:park_us=100,backstop_us=2000",
    "flag:park_us=100,backstop_us=2000+predict:margin_us=100,min_sleep_us=50,max_sleep_us=5000,window=4+trust",
];

const WORK: Duration = Duration::from_millis(3);

fn occupy(stream: &Arc<CudaStream>) -> Wall {
    let kernel = Occupy::load(stream.context()).unwrap();
    let launched = Wall::now();
    kernel.launch(stream, WORK.as_nanos().try_into().unwrap()).unwrap();
    launched
}

/// Waits on this thread.
fn wait(plan: &str, port: &mut CudaPort) -> Result<Report, Error> {
    let clock = StdClock::new();
    let idle = StdIdle::new(clock);
    let park = StdPark::new(&idle, ParkPolicy::default());
    let host = Inline::new(clock, &idle, &park);
    run_inline(drive(Wait::new(&plan.parse().unwrap()), port, &host, None)).unwrap()
}

impl Rig {
    fn awaited(&self, stream: &Arc<CudaStream>) -> CuStream {
        let context = CudaContext::from_cudarc(&self.cuda, stream).unwrap();
        CuStream::from_cudarc(&context, stream).unwrap()
    }
}

fn a_stream_is_awaited_under_every_plan(rig: &Rig) {
    let stream = Theirs::new(0).unwrap().new_stream().unwrap();
    let ours = rig.awaited(&stream);
    for plan in PLANS {
        let launched = occupy(&stream);
        let report = wait(plan, &mut ours.port().unwrap()).unwrap();
        assert!(launched.elapsed() >= WORK, "{plan}: before its work was done, {report:?}");
        assert!(launched.elapsed() < WORK + Duration::from_secs(5), "{plan}: {report:?}");
    }
}

fn default_streams_are_awaited(rig: &Rig) {
    let context = Theirs::new(0).unwrap();
    for stream in [context.default_stream(), context.per_thread_stream()] {
        let ours = rig.awaited(&stream);
        let launched = occupy(&stream);
        wait(PLANS[2], &mut ours.port().unwrap()).unwrap();
        assert!(launched.elapsed() >= WORK);
    }
    let ours = rig.awaited(&context.per_thread_stream());
    let elsewhere = std::thread::scope(|scope| scope.spawn(|| ours.port().map(drop)).join().unwrap());
    assert_eq!(elsewhere.unwrap_err().code(), ErrorCode::ForeignStream);
}

fn a_stream_of_another_context_is_refused(rig: &Rig) {
    let (one, other) = (Theirs::new(0).unwrap(), Theirs::new_non_primary(0, 0).unwrap());
    let context = CudaContext::from_cudarc(&rig.cuda, &one.default_stream()).unwrap();
    for stream in [other.default_stream(), other.new_stream().unwrap()] {
        let error = CuStream::from_cudarc(&context, &stream).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ForeignStream, "{error}");
        assert_eq!(error.args()[2], format!("{:#x}", other.cu_ctx().addr()));
    }
    // Of a stream that was lent, cudarc takes the caller's word for its context.
    let theirs = other.new_stream().unwrap();
    // SAFETY: the stream is alive as long as what borrows it, but it is another context's: nothing is done with it here.
    #[allow(unsafe_code, reason = "what is told wrongly is to be found out")]
    let lent = unsafe { one.wrap_borrowed_stream(theirs.cu_stream()) };
    assert_eq!(CuStream::from_cudarc(&context, &lent).unwrap_err().code(), ErrorCode::ForeignStream);
}

fn a_stream_of_another_library_is_refused(rig: &Rig) {
    let copy = Fake::new().unwrap();
    let other = Cuda::load_from(copy.path()).unwrap();
    let stream = Theirs::new(0).unwrap().new_stream().unwrap();
    assert!(CudaContext::from_cudarc(&rig.cuda, &stream).is_ok());
    let error = CudaContext::from_cudarc(&other, &stream).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ForeignStream);
    assert_eq!(error.args()[2..], ["another driver library", other.library()]);
    let context = other.context(0).unwrap();
    assert_eq!(CuStream::from_cudarc(&context, &stream).unwrap_err().code(), ErrorCode::ForeignStream);
}

fn a_context_is_found_again_as_long_as_it_is_used(rig: &Rig) {
    let cuda = &rig.cuda;
    let pages = || cuda.census().counts().pages_made;
    let stream = Theirs::new(0).unwrap().new_stream().unwrap();
    let context = CudaContext::from_cudarc(cuda, &stream).unwrap();
    let ours = CuStream::from_cudarc(&context, &stream).unwrap();
    drop(context);
    let made = pages();
    for _ in 0..100 {
        let context = CudaContext::from_cudarc(cuda, &stream).unwrap();
        assert_eq!(context.raw(), ours.context().raw());
        drop(CuStream::from_cudarc(&context, &stream).unwrap());
    }
    assert_eq!(pages(), made, "found");
    drop(ours);
    let context = CudaContext::from_cudarc(cuda, &stream).unwrap();
    assert_eq!(pages(), made + 1, "made anew");
    context.close(Duration::from_secs(5)).unwrap();
    let context = CudaContext::from_cudarc(cuda, &stream).unwrap();
    assert_eq!(pages(), made + 2, "the one that was closed is not found");
    drop(context);
}

fn the_primary_context_is_the_one_that_cudarc_has(rig: &Rig) {
    let stream = Theirs::new(0).unwrap().new_stream().unwrap();
    let context = rig.cuda.context(0).unwrap();
    let ours = CuStream::from_cudarc(&context, &stream).unwrap();
    let launched = occupy(&stream);
    wait(PLANS[2], &mut ours.port().unwrap()).unwrap();
    assert!(launched.elapsed() >= WORK);
}

fn a_point_keeps_cudarcs_stream_and_context(rig: &Rig) {
    let stream = Theirs::new_non_primary(0, 0).unwrap().new_stream().unwrap();
    let kernel = Occupy::load(stream.context()).unwrap();
    let mut port = {
        let ours = rig.awaited(&stream);
        kernel.launch(&stream, WORK.as_nanos().try_into().unwrap()).unwrap();
        ours.armed_port().unwrap()
    };
    drop((kernel, stream));
    std::thread::spawn(move || wait(PLANS[2], &mut port).unwrap()).join().unwrap();
}

fn letting_go_leaves_the_threads_context_as_it_was(rig: &Rig) {
    // On a thread of its own: a context that is made stays on its thread's stack.
    let make = || rig.awaited(&Theirs::new_non_primary(0, 0).unwrap().new_stream().unwrap());
    let ours = std::thread::scope(|scope| scope.spawn(make).join().unwrap());
    let mine = Theirs::new(0).unwrap();
    drop(ours);
    assert_eq!(result::ctx::get_current().unwrap(), Some(mine.cu_ctx()));
}

fn cudarcs_own_events_and_our_points_get_along(rig: &Rig) {
    let context = Theirs::new(0).unwrap();
    let (one, two) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    assert!(context.is_managing_stream_synchronization());
    let (ours, theirs) = (rig.awaited(&one), rig.awaited(&two));
    let sent: Vec<u64> = (0..1_000).collect();
    for plan in PLANS {
        let launched = occupy(&one);
        let first = one.clone_htod(&sent).unwrap();
        // The second stream waits on the device for the events that cudarc keeps with the slice.
        let second = two.clone_dtod(&first).unwrap();
        wait(plan, &mut theirs.port().unwrap()).unwrap();
        assert!(launched.elapsed() >= WORK, "{plan}");
        wait(plan, &mut ours.port().unwrap()).unwrap();
        assert_eq!(two.clone_dtoh(&second).unwrap(), sent);
    }
}

fn a_stream_that_cudarc_captures_has_no_points(rig: &Rig) {
    let stream = Theirs::new(0).unwrap().new_stream().unwrap();
    let (ours, kernel) = (rig.awaited(&stream), Occupy::load(stream.context()).unwrap());
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    kernel.launch(&stream, WORK.as_nanos().try_into().unwrap()).unwrap();
    assert_eq!(ours.port().unwrap_err().code(), ErrorCode::StreamCapturing);
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).unwrap().unwrap();
    let launched = Wall::now();
    graph.launch().unwrap();
    wait(PLANS[2], &mut ours.port().unwrap()).unwrap();
    assert!(launched.elapsed() >= WORK);
}

/// A runtime of operations in the context of a stream of cudarc's.
fn runtime(rig: &Rig, stream: &Arc<CudaStream>) -> (CudaRuntime, Watcher) {
    let context = CudaContext::from_cudarc(&rig.cuda, stream).unwrap();
    let device = CudaDevice::in_context(context, DEVICE_BYTES_KEPT).unwrap();
    let watcher = Watcher::new().unwrap();
    let tender = watcher.handle().tender(&Point::new("ops"));
    (CudaRuntime::new(device, &StreamPoolRoundRobin::default(), tender).unwrap(), watcher)
}

/// What is in flight ends, and nothing is left.
fn end((runtime, watcher): (CudaRuntime, Watcher)) {
    block_on(runtime.drain(wakeline::Nanos::from_millis(5_000))).unwrap();
    assert_eq!(runtime.counts().leaked, 0);
    drop(runtime);
    watcher.close(Watcher::CLOSE).unwrap();
}

fn a_slice_is_lent_to_operations_and_given_back(rig: &Rig) {
    let stream = Theirs::new(0).unwrap().new_stream().unwrap();
    let ours = runtime(rig, &stream);
    let sent: Vec<u32> = (0..10_000).collect();
    // The copy is behind work that takes a while, and nobody waits for it here.
    occupy(&stream);
    let slice = stream.clone_htod(&sent).unwrap();
    let lent = block_on(LendSlice::new(slice).on(&ours.0)).unwrap();
    let tensor = CudaTensor::<u32>::from_foreign(lent, [100, 100]).unwrap();
    // In another stream than it was lent in.
    assert_eq!(block_on(tensor.to_host().on(&ours.0)).unwrap(), sent);
    let twice: Vec<u32> = sent.iter().map(|number| number * 2).collect();
    let tensor = block_on(tensor.overwrite(twice.clone()).on(&ours.0)).unwrap();
    let slice: cudarc::driver::CudaSlice<u32> = tensor.give_back().map_err(|(_, error)| error).unwrap();
    assert_eq!(stream.clone_dtoh(&slice).unwrap(), twice);
    drop(slice);
    stream.synchronize().unwrap();
    end(ours);
}

fn a_slice_in_use_is_not_given_back_and_one_of_another_context_is_refused(rig: &Rig) {
    let stream = Theirs::new(0).unwrap().new_stream().unwrap();
    let ours = runtime(rig, &stream);
    let lent = LendSlice::new(stream.clone_htod(&[1_u8, 2, 3]).unwrap()).on(&ours.0);
    let tensor = CudaTensor::<u8>::from_foreign(block_on(lent).unwrap(), 3).unwrap();
    let view = tensor.slice(0, 1..).unwrap();
    let (tensor, error) = tensor.give_back::<cudarc::driver::CudaSlice<u8>>().unwrap_err();
    assert_eq!(error.code(), ErrorCode::TensorShared, "{error}");
    drop(view);
    let (tensor, error) = tensor.give_back::<u8>().unwrap_err();
    assert_eq!(error.code(), ErrorCode::StillInFlight, "{error}");
    // What is too short for the shape is let go.
    let lent = LendSlice::new(stream.clone_htod(&[0_u8; 3]).unwrap()).on(&ours.0);
    let error = CudaTensor::<u32>::from_foreign(block_on(lent).unwrap(), 1).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidLimit, "{error}");
    // Dropped and not given back: cudarc frees it once the last use is done.
    let reading = tensor.to_host().on(&ours.0);
    drop(tensor);
    assert_eq!(block_on(reading).unwrap(), [1, 2, 3]);
    let context =
        CudaContext::create(&rig.cuda, wakeline::cuda::Ordinal(0), &wakeline::cuda::ContextConfig::default())
            .unwrap();
    let device = CudaDevice::in_context(context, DEVICE_BYTES_KEPT).unwrap();
    let tender = ours.1.handle().tender(&Point::new("other"));
    let other = CudaRuntime::new(device, &StreamPoolRoundRobin::default(), tender).unwrap();
    let foreign = LendSlice::new(stream.clone_htod(&[0_u8; 3]).unwrap()).on(&other);
    assert_eq!(block_on(foreign).unwrap_err().code(), ErrorCode::ForeignStream);
    drop(other);
    stream.synchronize().unwrap();
    end(ours);
}

fn a_fault_of_cudarcs_kernel_is_told(rig: &Rig) {
    let context = Theirs::new_non_primary(0, 0).unwrap();
    let module = context.load_module(Ptx::from_src(kernels::PTX)).unwrap();
    let (stream, traps) = (context.new_stream().unwrap(), module.load_function(TRAP).unwrap());
    let ours = rig.awaited(&stream);
    let one = cudarc::driver::LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
    // SAFETY: the kernel takes nothing, and ends in a trap, which is what it is for.
    #[allow(unsafe_code, reason = "cudarc cannot know what a kernel takes and does")]
    unsafe { stream.launch_builder(&traps).launch(one) }.unwrap();
    // Without a word: nobody knows whether that of a broken context still lands, so its page would be leaked.
    // On a busy machine the point itself may come after the driver has told.
    let error = ours.port().and_then(|mut port| wait(PLANS[1], &mut port)).unwrap_err();
    assert!(error.to_string().contains("CUDA_ERROR_LAUNCH_FAILED (719)"), "{error}");
    assert_eq!(
        ours.port().unwrap_err().to_string(),
        error.to_string(),
        "the first cause, now and ever after"
    );
    assert!(stream.synchronize().is_err(), "cudarc is told as well");
}

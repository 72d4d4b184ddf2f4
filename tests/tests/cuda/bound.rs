//! Contexts of threads, streams of others, captures by others.

use core::ffi::{c_int, c_void};
use std::time::Duration;

use wakeline_core::{CompletionPort, ErrorCode, Status as Answer};
use wakeline_fake_driver::{Act, Rule, Status, thread_id};
use wakeline_mapped::{ContextConfig, Graph, Kernels, Stream};
use wakeline_std::{Point, Watcher, block_on};
use wakeline_tests::driver_tests;
use wakeline_tests::rig::Rig;
use wakeline_tests::vendor::Vendor;

use crate::waiting::{PLANS, lands, ms, plan, too_late, wait};

driver_tests![
    Both: case_59_a_thread_without_a_context_waits_and_drops,
        case_56_each_call_has_its_own_device_and_the_callers_comes_back,
        a_stream_of_another_context_is_refused,
        default_streams_are_what_they_are,
        a_stream_that_is_captured_has_no_points,
        case_36_a_wait_during_a_capture_neither_asks_nor_fails,
        case_36_a_capture_elsewhere_is_not_disturbed,
        case_36_a_capture_of_the_users_in_global_mode_is_not_disturbed,
        case_7_each_replay_has_a_point_of_its_own;
    Fake: case_55_a_watchers_helper_binds_the_context,
        what_another_capture_forbids_is_pending_and_no_failure;
];

const LIMIT: Duration = Duration::from_secs(20);

/// Copies and drops failed on threads without a context.
fn case_59_a_thread_without_a_context_waits_and_drops<D: Vendor>(rig: &Rig<D>) {
    let stream = rig.busy(ms(5));
    let ports: Vec<_> = PLANS.iter().map(|_| stream.port().unwrap()).collect();
    for (text, mut port) in PLANS.into_iter().zip(ports) {
        std::thread::spawn(move || {
            wait(text, &mut port).unwrap();
        })
        .join()
        .unwrap();
    }
    std::thread::spawn(move || drop(stream)).join().unwrap();
}

/// A reused thread kept the first device's context.
fn case_56_each_call_has_its_own_device_and_the_callers_comes_back<D: Vendor>(rig: &Rig<D>) {
    let other = rig.context_beside(&ContextConfig::default()).unwrap();
    let theirs = other.stream().unwrap();
    let ours = rig.stream();
    let current = || rig.driver().current().unwrap();
    let before = current();
    for _ in 0..3 {
        for stream in [&ours, &theirs] {
            wait(PLANS[3], &mut stream.port().unwrap()).unwrap();
            assert_eq!(current(), before);
        }
    }
    let bound = other.bind().unwrap();
    assert_eq!(current(), other.raw());
    wait(PLANS[3], &mut ours.port().unwrap()).unwrap();
    assert_eq!(current(), other.raw(), "the caller's own is back");
    drop(bound);
    assert_eq!(current(), before);
}

fn a_stream_of_another_context_is_refused<D: Vendor>(rig: &Rig<D>) {
    let other = rig.context_beside(&ContextConfig::default()).unwrap();
    let theirs = other.stream().unwrap();
    // SAFETY: the stream lives to the end of the test.
    let error = unsafe { Stream::from_raw(rig.context(), theirs.raw().as_ptr()) }.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ForeignStream);
    assert_eq!(error.args()[2], other.raw().to_string());
    assert_eq!(error.args()[3], rig.context().raw().to_string());
}

fn default_streams_are_what_they_are<D: Vendor>(rig: &Rig<D>) {
    for number in [0_usize, 1, 2] {
        // SAFETY: these numbers stand for streams that are always there.
        let stream =
            unsafe { Stream::from_raw(rig.context(), core::ptr::without_provenance_mut(number)) }.unwrap();
        for text in PLANS {
            rig.kernels().occupy(&stream, ms(1)).unwrap();
            let mut port = stream.port().unwrap();
            assert_eq!(port.descriptor().is_some(), number == 2, "a thread's own is armed at once");
            // A per-thread stream's point can be awaited anywhere, though it is made on its thread alone.
            std::thread::scope(|scope| {
                scope.spawn(|| wait(text, &mut port).unwrap()).join().unwrap();
            });
        }
        let elsewhere = std::thread::scope(|scope| scope.spawn(|| stream.port().map(drop)).join().unwrap());
        match elsewhere {
            Err(error) if number == 2 => assert_eq!(error.code(), ErrorCode::ForeignStream),
            elsewhere => {
                assert_ne!(number, 2);
                elsewhere.unwrap();
            }
        }
    }
}

fn captured<D: Vendor>(rig: &Rig<D>, stream: &Stream<D>, during: impl FnOnce()) -> Graph<D, Kernels<D>> {
    Graph::capture(stream, rig.kernels().clone(), |kernels| {
        kernels.occupy(stream, ms(3))?;
        during();
        Ok(())
    })
    .unwrap()
}

fn a_stream_that_is_captured_has_no_points<D: Vendor>(rig: &Rig<D>) {
    let stream = rig.stream();
    let mut early = stream.port().unwrap();
    let graph = captured(rig, &stream, || {
        assert_eq!(stream.port().unwrap_err().code(), ErrorCode::StreamCapturing);
        assert_eq!(early.arm().unwrap_err().code(), ErrorCode::StreamCapturing);
    });
    drop(graph);
    wait(PLANS[3], &mut early).unwrap();
    wait(PLANS[3], &mut stream.port().unwrap()).unwrap();
}

/// A watchdog's query hit another thread's capture, and the process ended.
fn case_36_a_wait_during_a_capture_neither_asks_nor_fails<D: Vendor>(rig: &Rig<D>) {
    let stream = rig.busy(ms(20));
    let ports: Vec<_> = PLANS.iter().map(|_| stream.armed_port().unwrap()).collect();
    let mut graph = captured(rig, &stream, || {
        for (text, mut port) in PLANS.into_iter().zip(ports) {
            std::thread::spawn(move || wait(text, &mut port).unwrap()).join().unwrap();
        }
    });
    // SAFETY: the graph is kept until it is done.
    unsafe { graph.launch(stream.raw()) }.unwrap();
    wait(PLANS[3], &mut stream.port().unwrap()).unwrap();
}

fn case_36_a_capture_elsewhere_is_not_disturbed<D: Vendor>(rig: &Rig<D>) {
    let (captured_stream, other) = (rig.stream(), rig.busy(ms(10)));
    let watcher = Watcher::new().unwrap();
    let point = Point::new("other");
    let mut graph = captured(rig, &captured_stream, || {
        for text in PLANS {
            rig_waits(&watcher, &point, text, &other);
            wait(text, &mut other.port().unwrap()).unwrap();
            // On the thread that captures as well as on another.
            std::thread::scope(|scope| {
                scope.spawn(|| wait(text, &mut other.port().unwrap()).unwrap()).join().unwrap();
            });
        }
        drop(rig.stream());
    });
    // SAFETY: the graph is kept until it is done.
    unsafe { graph.launch(captured_stream.raw()) }.unwrap();
    wait(PLANS[3], &mut captured_stream.port().unwrap()).unwrap();
}

/// In this mode what any thread of the process does may invalidate the capture.
fn case_36_a_capture_of_the_users_in_global_mode_is_not_disturbed<D: Vendor>(rig: &Rig<D>) {
    type Begin = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
    type End = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int;
    type Destroy = unsafe extern "C" fn(*mut c_void) -> c_int;
    const GLOBAL: c_int = 0;

    // SAFETY: the driver's library, which is loaded already.
    let library = unsafe { libloading::Library::new(Vendor::library(rig.driver())) }.unwrap();
    // SAFETY: these names have had these interfaces since CUDA 10.1, and HIP 4.3.
    let begin = unsafe { library.get::<Begin>(D::CAPTURES[0]) }.unwrap();
    // SAFETY: as above.
    let end = unsafe { library.get::<End>(D::CAPTURES[1]) }.unwrap();
    // SAFETY: as above.
    let destroy = unsafe { library.get::<Destroy>(D::CAPTURES[2]) }.unwrap();

    let (captured, other) = (rig.stream(), rig.busy(ms(10)));
    let watcher = Watcher::new().unwrap();
    let point = Point::new("other");
    let bound = rig.context().bind().unwrap();
    // SAFETY: the context is bound, the stream alive and nobody else's.
    assert_eq!(unsafe { begin(captured.raw().as_ptr(), GLOBAL) }, 0);
    drop(bound);
    for text in PLANS {
        rig_waits(&watcher, &point, text, &other);
        wait(text, &mut other.port().unwrap()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| wait(text, &mut other.port().unwrap()).unwrap()).join().unwrap();
        });
    }
    // A stream, a page's word, a kernel of another stream and their ends.
    let made = rig.busy(ms(1));
    wait(PLANS[5], &mut made.port().unwrap()).unwrap();
    drop(made);
    rig.context().health().unwrap();
    let bound = rig.context().bind().unwrap();
    let mut graph = core::ptr::null_mut();
    // SAFETY: the context is bound, and this the thread that began the capture.
    let status = unsafe { end(captured.raw().as_ptr(), &raw mut graph) };
    assert_eq!((status, graph.is_null()), (0, false), "the capture was invalidated");
    // SAFETY: it was made just now.
    assert_eq!(unsafe { destroy(graph) }, 0);
    drop(bound);
}

fn rig_waits<D: Vendor>(watcher: &Watcher, point: &Point, text: &str, stream: &Stream<D>) {
    block_on(watcher.wait(stream.port().unwrap(), &plan(text), point).deadline(too_late())).unwrap();
}

/// A captured value was the same in each replay, and the second wait passed at once.
fn case_7_each_replay_has_a_point_of_its_own<D: Vendor>(rig: &Rig<D>) {
    let stream = rig.stream();
    let mut graph = captured(rig, &stream, || {});
    // SAFETY: the graph is kept until it is done.
    unsafe { graph.launch(stream.raw()) }.unwrap();
    let mut first = stream.armed_port().unwrap();
    wait(PLANS[5], &mut first).unwrap();
    rig.kernels().occupy(&stream, ms(100)).unwrap();
    // SAFETY: as above.
    unsafe { graph.launch(stream.raw()) }.unwrap();
    let mut second = stream.armed_port().unwrap();
    assert!(!second.descriptor().unwrap().reached());
    assert_eq!(second.query().unwrap(), Answer::Pending);
    wait(PLANS[5], &mut second).unwrap();
    assert!(lands(&second, LIMIT));
}

/// A progress thread had no context, and its query crashed.
fn case_55_a_watchers_helper_binds_the_context<D: Vendor>(rig: &Rig<D>) {
    let watcher = Watcher::new().unwrap();
    let point = Point::new("point");
    let stream = rig.busy(ms(5));
    let port = stream.port().unwrap();
    rig.stand_in().clear_log();
    block_on(watcher.wait(port, &plan("block"), &point)).unwrap();
    let own = rig.context().raw().as_ptr().addr() as u64;
    let queries: Vec<_> = rig
        .log()
        .into_iter()
        .filter(|call| ["cuStreamQuery", "cuEventQuery"].contains(&&*call.name))
        .collect();
    assert!(queries.iter().any(|call| call.thread != thread_id()), "no helper asked");
    assert!(queries.iter().all(|call| call.context == Some(own)), "{queries:?}");
}

/// A default stream must not be asked while a stream that waits for it is captured.
fn what_another_capture_forbids_is_pending_and_no_failure<D: Vendor>(rig: &Rig<D>) {
    let fake = rig.stand_in();
    let stream = rig.busy(ms(5));
    let mut port = stream.armed_port().unwrap();
    fake.clear_log();
    for call in ["cuStreamIsCapturing", "cuStreamQuery", "cuEventQuery"] {
        // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
        fake.rule(Rule::new(call, Act::Fail(Status(906))));
    }
    assert_eq!(port.query().unwrap(), Answer::Pending);
    assert_eq!(stream.port().unwrap_err().code(), ErrorCode::StreamCapturing);
    assert_eq!(fake.calls("cuStreamQuery"), 0, "not even asked");
    fake.clear_rules();
    wait(PLANS[3], &mut port).unwrap();
    rig.context().health().unwrap();
}

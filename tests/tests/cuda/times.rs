//! Points that know when they ended, by the device's own clock.

use std::time::Instant as Wall;

use wakeline_core::{Clock, CompletionPort, ErrorCode, Nanos, Residual, Wait};
use wakeline_cuda::kernels::{Kernels, TimedSteps};
use wakeline_cuda::{ContextConfig, CuStream, Cuda, CudaContext, Graph, Ordinal, TimedStream};
use wakeline_fake_driver::{Act, Rule, Status};
use wakeline_std::{Point, StdClock, Watcher, block_on};
use wakeline_tests::driver_tests;
use wakeline_tests::rig::Rig;

use crate::waiting::{ms, not_before, plan, wait_for};

driver_tests![@cuda
    Both: a_wait_that_noticed_late_has_an_exact_residual,
        a_watcher_learns_the_exact_residual,
        a_point_whose_stamp_was_taken_by_later_ones_does_not_guess,
        nothing_is_launched_in_a_capture_or_on_another_threads_stream,
        steps_are_as_long_as_they_are_told_and_say_when_they_ended,
        words_of_kernels_pass_on_behind_the_work_that_they_are_dropped_under,
        words_of_kernels_pass_on_while_their_context_closes;
    FakeLeaving: words_of_kernels_behind_which_nothing_can_be_stored_are_set_aside;
];

/// What a busy machine may add between a launch and its kernel, or the end and the look at it.
const SLACK: Nanos = Nanos::from_millis(150);

fn a_wait_that_noticed_late_has_an_exact_residual(rig: &Rig<Cuda>) {
    let clock = StdClock::new();
    let stream = TimedStream::new(&rig.stream(), clock).unwrap();
    assert!(stream.uncertainty() < SLACK, "{}", stream.uncertainty());
    // It sleeps 30 ms past the end.
    let plan = plan(
        "flag:park_us=50,backstop_us=2000+predict:margin_us=10,min_sleep_us=50,max_sleep_us=90000,window=4",
    );
    let launched = clock.now();
    let before = Wall::now();
    rig.kernels().occupy(stream.stream(), ms(10)).unwrap();
    let mut port = stream.port().unwrap();
    not_before(before, ms(10), port.ended().is_some());
    let start = clock.now();
    let late = ms(40) + start.since(launched);
    let report = wait_for(Wait::new(&plan).predicted(Some(late)), &mut port).unwrap();
    let Some(Residual::Exact(residual)) = report.residual else { panic!("{report:?}") };
    assert!(residual < report.elapsed, "{report:?}");
    // From the launch it took at least as long as it was told to.
    let ended = port.ended().unwrap();
    assert!(ended.since(launched) + Nanos::from_micros(100) >= ms(10), "{}", ended.since(launched));
    assert!(ended.since(launched) < ms(10) + SLACK, "{}", ended.since(launched));
}

fn a_watcher_learns_the_exact_residual(rig: &Rig<Cuda>) {
    let clock = StdClock::new();
    let stream = TimedStream::new(&rig.stream(), clock).unwrap();
    let watcher = Watcher::new().unwrap();
    let point = Point::new("timed");
    for text in
        ["poll", "flag:park_us=50,backstop_us=2000", "flag:park_us=50,backstop_us=2000+trust", "block"]
    {
        rig.kernels().occupy(stream.stream(), ms(5)).unwrap();
        let report = block_on(watcher.wait(stream.port().unwrap(), &plan(text), &point)).unwrap();
        let Some(Residual::Exact(residual)) = report.residual else { panic!("{text}: {report:?}") };
        assert!(residual <= report.elapsed, "{text}: {report:?}");
    }
}

fn a_point_whose_stamp_was_taken_by_later_ones_does_not_guess(rig: &Rig<Cuda>) {
    let stream = TimedStream::new(&rig.stream(), StdClock::new()).unwrap();
    let mut first = stream.port().unwrap();
    let mut later: Vec<_> = (0..wakeline_cuda::STAMPS).map(|_| stream.port().unwrap()).collect();
    for port in core::iter::once(&mut first).chain(&mut later) {
        wait_for(Wait::new(&plan("poll")), port).unwrap();
    }
    assert!(first.ended().is_none());
    assert!(later.iter().all(|port| port.ended().is_some()));
}

/// The user's graph then stored into words that were others' by then.
fn nothing_is_launched_in_a_capture_or_on_another_threads_stream(rig: &Rig<Cuda>) {
    let stream = rig.stream();
    let timed = TimedStream::new(&stream, StdClock::new()).unwrap();
    let steps = TimedSteps::new(&stream, StdClock::new()).unwrap();
    let graph = Graph::capture(&stream, (), |()| {
        assert_eq!(timed.port().unwrap_err().code(), ErrorCode::StreamCapturing);
        assert_eq!(steps.launch(Nanos::ZERO, false).unwrap_err().code(), ErrorCode::StreamCapturing);
        assert_eq!(steps.launch(Nanos::ZERO, true).unwrap_err().code(), ErrorCode::StreamCapturing);
        Ok(())
    });
    drop(graph);
    let stream = {
        // SAFETY: 2 stands for this thread's own default stream, which is always there.
        let stream = unsafe { CuStream::from_raw(rig.context(), core::ptr::without_provenance_mut(2)) };
        stream.unwrap()
    };
    let timed = TimedStream::new(&stream, StdClock::new()).unwrap();
    let steps = TimedSteps::new(&stream, StdClock::new()).unwrap();
    let launches = || if rig.is_fake() { rig.stand_in().calls("cuLaunchKernel") } else { 0 };
    let before = launches();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(timed.port().unwrap_err().code(), ErrorCode::ForeignStream);
            assert_eq!(steps.launch(Nanos::ZERO, false).unwrap_err().code(), ErrorCode::ForeignStream);
        });
    });
    assert_eq!(launches(), before);
    let mut port = timed.port().unwrap();
    wait_for(Wait::new(&plan("poll")), &mut port).unwrap();
}

/// Drops a timed stream and steps under work that takes so long.
fn drop_under_work(rig: &Rig<Cuda>, length: Nanos) {
    let stream = rig.stream();
    let timed = TimedStream::new(&stream, StdClock::new()).unwrap();
    let steps = TimedSteps::new(&stream, StdClock::new()).unwrap();
    rig.kernels().occupy(&stream, length).unwrap();
    drop(timed.port().unwrap());
    steps.launch(Nanos::ZERO, true).unwrap();
    drop((timed, steps));
}

/// They were set aside for good, and their context with them.
fn words_of_kernels_pass_on_behind_the_work_that_they_are_dropped_under(rig: &Rig<Cuda>) {
    let before = rig.context().slots();
    drop_under_work(rig, ms(700));
    let slots = rig.context().slots();
    // The stamp, the length and the end, and the words of the stamps that compared the clocks.
    assert!(slots.lost == before.lost && slots.settling >= 3, "{slots:?}");
    let start = Wall::now();
    while rig.context().slots().settling > 0 {
        assert!(start.elapsed() < std::time::Duration::from_secs(20));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(rig.context().slots().lost, before.lost);
    // They are good for others: for streams, and for stamps again.
    let streams: Vec<_> = (0..slots.settling).map(|_| rig.stream()).collect();
    for stream in &streams {
        let timed = TimedStream::new(stream, StdClock::new()).unwrap();
        let mut port = timed.port().unwrap();
        wait_for(Wait::new(&plan("flag:park_us=50,backstop_us=1000000")), &mut port).unwrap();
        assert!(port.ended().is_some());
    }
}

/// Whoever closed a context had its page and the context itself leaked by what was dropped meanwhile.
fn words_of_kernels_pass_on_while_their_context_closes(rig: &Rig<Cuda>) {
    let before = rig.driver().census().counts();
    for busy in [ms(0), ms(300)] {
        let context = CudaContext::create(rig.driver(), Ordinal(0), &ContextConfig::default()).unwrap();
        let kernels = Kernels::load(&context).unwrap();
        let stream = context.stream().unwrap();
        let timed = TimedStream::new(&stream, StdClock::new()).unwrap();
        kernels.occupy(&stream, busy).unwrap();
        drop(timed.port().unwrap());
        let error = context.close(std::time::Duration::ZERO).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ContextInUse);
        let context = timed.stream().context();
        drop((kernels, stream, timed));
        context.close(std::time::Duration::from_secs(20)).unwrap();
    }
    let after = rig.driver().census().counts();
    assert_eq!(
        (after.slots_leaked, after.pages_leaked, after.contexts_leaked),
        (before.slots_leaked, before.pages_leaked, before.contexts_leaked)
    );
}

fn words_of_kernels_behind_which_nothing_can_be_stored_are_set_aside(rig: &Rig<Cuda>) {
    rig.stand_in().rule(Rule::new("cuStreamWriteValue64", Act::FailAfter(Status(999))));
    drop_under_work(rig, ms(200));
    let slots = rig.context().slots();
    assert!(slots.lost >= 3 && slots.settling == 0, "{slots:?}");
    let counts = rig.driver().census().counts();
    assert_eq!(counts.drop_failures, counts.slots_leaked);
    assert_eq!(counts.slots_leaked, u64::try_from(slots.lost).unwrap());
}

fn steps_are_as_long_as_they_are_told_and_say_when_they_ended(rig: &Rig<Cuda>) {
    let clock = StdClock::new();
    let steps = TimedSteps::new(&rig.stream(), clock).unwrap();
    for graphed in [false, true, false, true] {
        for length in [0, 200, 3_000].map(Nanos::from_micros) {
            let launched = steps.launch(length, graphed).unwrap();
            let mut port = steps.stream().port().unwrap();
            wait_for(Wait::new(&plan("poll")), &mut port).unwrap();
            let returned = clock.now();
            let ended = steps.ended(launched).unwrap();
            let took = ended.since(launched);
            assert!(took + Nanos::from_micros(100) >= length, "{graphed}, {length}: {took}");
            assert!(took < length + SLACK, "{graphed}, {length}: {took}");
            assert!(ended <= returned + Nanos::from_micros(100), "{graphed}, {length}");
        }
    }
}

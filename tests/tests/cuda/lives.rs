//! Who keeps what alive: drops at any moment, and closing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant as Wall};

use wakeline_core::{CompletionPort, ErrorCode};
use wakeline_cuda::{Calls, Cuda};
use wakeline_fake_driver::{Act, Rule, Status};
use wakeline_mapped::{Context, ContextConfig, Kernels, Stream};
use wakeline_std::{Point, Watcher, WatcherConfig, block_on};
use wakeline_tests::driver_tests;
use wakeline_tests::rig::Rig;
use wakeline_tests::vendor::Vendor;

use crate::waiting::{PLANS, lands, ms, wait};

driver_tests![
    Both: a_port_outlives_its_stream_and_context_handles,
        case_24_nothing_is_asked_of_a_stream_that_is_gone,
        dropping_ports_and_streams_under_work_returns_at_once,
        a_word_passes_on_when_its_stores_have_landed,
        a_kept_owner_goes_after_the_last_port,
        a_kept_owner_goes_before_its_context,
        an_owner_that_panics_when_it_is_dropped_is_counted,
        a_blocking_wait_that_is_dropped_lets_its_helper_go,
        a_kept_context_goes_after_the_last_page,
        a_weak_handle_finds_a_context_while_it_is_there_and_open,
        closing_waits_for_stores_and_then_frees,
        closing_what_is_in_use_says_what_by_when,
        threads_make_use_and_drop_everything_at_once;
    Fake: slots_run_out_with_an_error;
    FakeLeaving: case_30_no_failure_in_a_drop_panics_and_each_is_counted,
        a_kept_context_is_leaked_with_a_page_that_a_store_may_come_into,
        case_25_what_comes_after_the_driver_is_gone_is_silent,
        a_slot_whose_store_may_have_been_enqueued_is_never_given_again;
    @cuda Both: single_calls_are_dropped_behind_their_store;
];

const LIMIT: Duration = Duration::from_secs(20);

fn own<D: Vendor>(rig: &Rig<D>) -> (Context<D>, Kernels<D>) {
    let context = rig.context_beside(&ContextConfig::default()).unwrap();
    let kernels = Kernels::load(&context).unwrap();
    (context, kernels)
}

fn a_port_outlives_its_stream_and_context_handles<D: Vendor>(rig: &Rig<D>) {
    let (context, kernels) = own(rig);
    let stream = context.stream().unwrap();
    kernels.occupy(&stream, ms(20)).unwrap();
    let mut port = stream.armed_port().unwrap();
    drop((stream, context));
    wait(PLANS[3], &mut port).unwrap();
    drop(port);
    drop(kernels);
}

/// Using a destroyed stream crashed.
fn case_24_nothing_is_asked_of_a_stream_that_is_gone<D: Vendor>(rig: &Rig<D>) {
    for _ in 0..20 {
        let stream = rig.busy(ms(1));
        let ports: Vec<_> = (0..4).map(|_| stream.armed_port().unwrap()).collect();
        std::thread::scope(|scope| {
            for mut port in ports {
                scope.spawn(move || wait(PLANS[3], &mut port).unwrap());
            }
            drop(stream);
        });
    }
}

/// Its memory is not freed under a store.
fn single_calls_are_dropped_behind_their_store(rig: &Rig<Cuda>) {
    let stream = rig.busy(ms(40));
    let mut calls = Calls::new(rig.context(), &stream).unwrap();
    let start = Wall::now();
    calls.store(7).unwrap();
    calls.store(8).unwrap();
    assert!(start.elapsed() < Duration::from_millis(30), "they are enqueued");
    drop(calls);
    assert!(start.elapsed() >= Duration::from_millis(20), "{:?}", start.elapsed());
    let calls = Calls::new(rig.context(), &stream).unwrap();
    assert_eq!(calls.query_stream().unwrap(), wakeline_core::Status::Done);
}

fn dropping_ports_and_streams_under_work_returns_at_once<D: Vendor>(rig: &Rig<D>) {
    let stream = rig.busy(ms(1_500));
    let (armed, bare) = (stream.armed_port().unwrap(), stream.port().unwrap());
    let start = Wall::now();
    drop((armed, bare, stream));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(rig.context().slots().settling, 1);
    let start = Wall::now();
    while rig.context().slots().settling > 0 {
        assert!(start.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn a_word_passes_on_when_its_stores_have_landed<D: Vendor>(rig: &Rig<D>) {
    let place = |stream: &Stream<D>| {
        let port = stream.armed_port().unwrap();
        let word = port.descriptor().unwrap();
        let place = (core::ptr::from_ref(word.line()).addr(), word.slot());
        (place, port)
    };
    let busy = rig.busy(ms(100));
    let (first, port) = place(&busy);
    drop((busy, port));
    let other = rig.stream();
    let (second, port) = place(&other);
    assert_ne!(first, second, "a store of it is under way");
    assert!(lands(&port, LIMIT));
    drop((other, port));
    let start = Wall::now();
    while rig.context().slots().settling > 0 {
        assert!(start.elapsed() < LIMIT);
    }
    let again = rig.stream();
    let (third, port) = place(&again);
    assert!(third == first || third == second);
    assert!(lands(&port, LIMIT));
    assert!(port.descriptor().unwrap().seq().get() > 1, "it goes on where the last one ended");
}

/// Keeps something alive, and counts when it goes.
struct Owner<T>(Arc<AtomicUsize>, T);

impl<T> Drop for Owner<T> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn a_kept_owner_goes_after_the_last_port<D: Vendor>(rig: &Rig<D>) {
    let gone = Arc::new(AtomicUsize::new(0));
    let theirs = rig.busy(ms(5));
    let raw = theirs.raw().as_ptr();
    let owner = Owner(Arc::clone(&gone), theirs);
    // SAFETY: the owner keeps the stream.
    let stream = unsafe { Stream::from_raw_kept(rig.context(), raw, owner) }.unwrap();
    let mut port = stream.port().unwrap();
    drop(stream);
    assert_eq!(gone.load(Ordering::SeqCst), 0);
    wait(PLANS[3], &mut port).unwrap();
    drop(port);
    assert_eq!(gone.load(Ordering::SeqCst), 1);
}

/// `theirs`, as a context that somebody else made and keeps until `gone` is one more.
fn handed_in<D: Vendor>(rig: &Rig<D>, theirs: Context<D>, gone: &Arc<AtomicUsize>) -> Context<D> {
    let raw = theirs.raw().as_ptr();
    let owner = Owner(Arc::clone(gone), theirs);
    // SAFETY: the owner keeps the context.
    unsafe { Context::from_raw_kept(rig.driver(), raw, owner, &ContextConfig::default()) }.unwrap()
}

fn a_kept_context_goes_after_the_last_page<D: Vendor>(rig: &Rig<D>) {
    let gone = Arc::new(AtomicUsize::new(0));
    let (theirs, kernels) = own(rig);
    drop(kernels);
    let freed = || rig.driver().census().counts().pages_freed;
    let before = freed();
    let context = handed_in(rig, theirs, &gone);
    let mut port = context.stream().unwrap().armed_port().unwrap();
    drop(context);
    wait(PLANS[3], &mut port).unwrap();
    assert_eq!((gone.load(Ordering::SeqCst), freed()), (0, before));
    drop(port);
    assert_eq!(gone.load(Ordering::SeqCst), 1);
    assert_eq!(freed(), before + 2, "the page of either handle");
}

fn a_kept_context_is_leaked_with_a_page_that_a_store_may_come_into<D: Vendor>(rig: &Rig<D>) {
    let gone = Arc::new(AtomicUsize::new(0));
    let (theirs, kernels) = own(rig);
    drop(kernels);
    let context = handed_in(rig, theirs, &gone);
    rig.stand_in().rule(Rule::new("cuStreamWriteValue64", Act::FailAfter(Status(999))).times(1));
    context.stream().unwrap().armed_port().unwrap_err();
    drop(context);
    assert_eq!(gone.load(Ordering::SeqCst), 0);
    assert_eq!(rig.driver().census().counts().contexts_leaked, 1);
}

fn a_weak_handle_finds_a_context_while_it_is_there_and_open<D: Vendor>(rig: &Rig<D>) {
    let (context, kernels) = own(rig);
    drop(kernels);
    let weak = context.downgrade();
    assert_eq!(weak.raw(), context.raw());
    let stream = context.stream().unwrap();
    assert_eq!(weak.upgrade().unwrap().raw(), context.raw());
    assert_eq!(context.close(Duration::ZERO).unwrap_err().code(), ErrorCode::ContextInUse);
    assert!(weak.upgrade().is_none(), "it is closed");
    drop(stream);
    let (context, kernels) = own(rig);
    drop(kernels);
    let weak = context.downgrade();
    drop(context);
    assert!(weak.clone().upgrade().is_none(), "it is gone");
}

fn closing_waits_for_stores_and_then_frees<D: Vendor>(rig: &Rig<D>) {
    let before = rig.driver().census().counts();
    let (context, kernels) = own(rig);
    let stream = context.stream().unwrap();
    kernels.occupy(&stream, ms(60)).unwrap();
    drop(stream.armed_port().unwrap());
    drop((stream, kernels));
    let start = Wall::now();
    context.close(LIMIT).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(30), "{:?}", start.elapsed());
    let after = rig.driver().census().counts();
    assert_eq!(after.pages_freed - before.pages_freed, after.pages_made - before.pages_made);
    assert_eq!((after.pages_leaked, after.drop_failures), (before.pages_leaked, before.drop_failures));
}

fn closing_what_is_in_use_says_what_by_when<D: Vendor>(rig: &Rig<D>) {
    let (context, kernels) = own(rig);
    let stream = context.stream().unwrap();
    drop(kernels);
    let start = Wall::now();
    let error = context.close(Duration::from_millis(20)).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(2));
    assert_eq!(error.code(), ErrorCode::ContextInUse);
    assert_eq!(error.args()[2..], ["1", "0"], "{error}");
    assert_eq!(stream.port().unwrap_err().code(), ErrorCode::ContextClosed);
}

fn threads_make_use_and_drop_everything_at_once<D: Vendor>(rig: &Rig<D>) {
    const THREADS: usize = 8;
    let shared = rig.stream();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let shared = &shared;
            scope.spawn(move || {
                for round in 0..60 {
                    let mine = rig.stream();
                    let stream = if (thread + round) % 3 == 0 { shared } else { &mine };
                    if round % 4 == 0 {
                        rig.kernels()
                            .occupy(stream, wakeline_core::Nanos::from_micros(round as u64 * 3))
                            .unwrap();
                    }
                    let mut port = stream.port().unwrap();
                    match (thread * 7 + round) % 5 {
                        0 => drop(port),
                        1 => drop(stream.armed_port().unwrap()),
                        2 => {
                            port.arm().unwrap();
                            let line = port.descriptor().unwrap().clone();
                            drop((port, mine));
                            let _ = line.reached();
                        }
                        way => drop(wait(PLANS[way], &mut port).unwrap()),
                    }
                }
            });
        }
    });
}

/// A destructor panicked on an error of the driver.
fn case_30_no_failure_in_a_drop_panics_and_each_is_counted<D: Vendor>(rig: &Rig<D>) {
    for call in D::ENDS {
        let (context, kernels) = own(rig);
        drop(kernels);
        let stream = context.stream().unwrap();
        let mut port = stream.armed_port().unwrap();
        wait(PLANS[3], &mut port).unwrap();
        let before = rig.driver().census().counts().drop_failures;
        let rule = rig.stand_in().rule(Rule::new(call, Act::FailAfter(Status(999))));
        drop((port, stream, context));
        let after = rig.driver().census().counts().drop_failures;
        assert!(rig.stand_in().hits(rule) > 0, "{call}");
        assert!(after > before, "{call} is not counted");
        rig.stand_in().clear_rules();
    }
}

/// At exit the driver went first, and destructors crashed.
fn case_25_what_comes_after_the_driver_is_gone_is_silent<D: Vendor>(rig: &Rig<D>) {
    let (context, kernels) = own(rig);
    drop(kernels);
    let stream = context.stream().unwrap();
    let mut port = stream.armed_port().unwrap();
    assert!(lands(&port, LIMIT));
    let before = rig.driver().census().counts().drop_failures;
    rig.stand_in().configure(|options| options.deinitialized = true);
    let error = port.query().unwrap_err();
    assert!(error.to_string().contains("(4)"), "{error}");
    drop((port, stream, context));
    assert_eq!(rig.driver().census().counts().drop_failures, before);
    rig.stand_in().configure(|options| options.deinitialized = false);
}

fn a_slot_whose_store_may_have_been_enqueued_is_never_given_again<D: Vendor>(rig: &Rig<D>) {
    let stream = rig.stream();
    let mut port = stream.port().unwrap();
    rig.stand_in().rule(Rule::new("cuStreamWriteValue64", Act::FailAfter(Status(999))).times(1));
    let error = port.arm().unwrap_err();
    assert!(error.to_string().contains(D::call("cuStreamWriteValue64")), "{error}");
    // The next point's number is another one: the store that failed cannot end it.
    let mut next = stream.armed_port().unwrap();
    assert_eq!(next.descriptor().unwrap().seq().get(), 3, "1 is the start-up probe's, 2 the one that failed");
    wait(PLANS[5], &mut next).unwrap();
    drop((port, next, stream));
    assert_eq!(rig.context().slots().lost, 0, "behind a store that has landed nothing is under way");
    let stream = rig.stream();
    rig.stand_in().rule(Rule::new("cuStreamWriteValue64", Act::FailAfter(Status(999))).times(1));
    stream.armed_port().unwrap_err();
    drop(stream);
    assert_eq!(rig.context().slots().lost, 1);
    assert_eq!(rig.driver().census().counts().slots_leaked, 1);
}

/// It may have something in that context.
fn a_kept_owner_goes_before_its_context<D: Vendor>(rig: &Rig<D>) {
    let (context, kernels) = own(rig);
    let theirs = context.stream().unwrap();
    let raw = theirs.raw().as_ptr();
    // SAFETY: the owner keeps the stream.
    let stream = unsafe { Stream::from_raw_kept(&context, raw, theirs) }.unwrap();
    let mut port = stream.port().unwrap();
    wait(PLANS[3], &mut port).unwrap();
    drop((kernels, context, stream));
    drop(port);
}

/// A panic of somebody else's destructor came out of the drop of a port.
fn an_owner_that_panics_when_it_is_dropped_is_counted<D: Vendor>(rig: &Rig<D>) {
    struct Panics;
    impl Drop for Panics {
        #[expect(clippy::panic, reason = "on purpose")]
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let theirs = rig.stream();
    // SAFETY: the stream lives to the end of the test.
    let stream = unsafe { Stream::from_raw_kept(rig.context(), theirs.raw().as_ptr(), Panics) }.unwrap();
    let port = stream.port().unwrap();
    drop(stream);
    drop(port);
    assert_eq!(rig.driver().census().counts().drop_failures, 1);
}

fn a_blocking_wait_that_is_dropped_lets_its_helper_go<D: Vendor>(rig: &Rig<D>) {
    let watcher = Watcher::with(WatcherConfig::default().helpers_max(1).unwrap()).unwrap();
    let point = Point::new("point");
    let stream = rig.busy(ms(700));
    for _ in 0..4 {
        let mut waiting = watcher.wait(stream.port().unwrap(), &crate::waiting::plan("block"), &point);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(std::pin::Pin::new(&mut waiting).poll(&mut context).is_pending());
        std::thread::sleep(Duration::from_millis(10));
        drop(waiting);
        std::thread::sleep(Duration::from_millis(10));
    }
    // The one helper is free again.
    block_on(watcher.wait(stream.port().unwrap(), &crate::waiting::plan("block"), &point)).unwrap();
    watcher.close(Watcher::CLOSE).unwrap();
}

fn slots_run_out_with_an_error<D: Vendor>(rig: &Rig<D>) {
    let config = ContextConfig { slots_max: 512, ..ContextConfig::default() };
    let context = rig.context_beside(&config).unwrap();
    let words: Vec<_> = (0..512).map(|_| context.kernel_word().unwrap()).collect();
    let error = context.stream().unwrap_err();
    assert_eq!(error.code(), ErrorCode::SlotsFull);
    assert_eq!(error.args(), [D::NAME, "512"]);
    for word in words {
        // SAFETY: no kernel was ever given its address.
        unsafe { word.retire() };
    }
    context.stream().unwrap();
}

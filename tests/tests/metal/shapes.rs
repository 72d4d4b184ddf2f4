//! What was seen to go wrong with Metal, one test each, under every plan.

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Waker};

use wakeline_core::{
    CancelToken, Clock, CompletionPort, Error, ErrorCode, Inline, Instant, Nanos, Park, Report, Status,
    Timer, Wait, WaitPlan, Wake, drive, run_inline,
};
use wakeline_fake_metal::{Absent, Call, DEVICE_REMOVED, FakeMetal, Faults, Kill};
use wakeline_metal::{BLOCK_SLICE_MS_MAX, Device, MetalDriver, Notified, Stream};
use wakeline_sim::{SimConfig, SimDevice, VirtualHost, VirtualTime};
use wakeline_tests::conform::PLANS;
use wakeline_tests::metal::{MetalPort, MetalRig};

type Port = MetalPort<VirtualTime>;

const WORK: Nanos = Nanos::from_micros(400);

/// The backstop of [`PLANS`], or the slice of a wait that blocks, and the calls in between.
const PROMPT: Nanos = Nanos::from_micros(BLOCK_SLICE_MS_MAX * 1_000 + 500);

/// When a wait counts as hung.
const LONG: Nanos = Nanos::from_millis(200);

fn killed(kill: Kill) -> Faults {
    Faults { kill: Some(kill), ..Faults::default() }
}

fn wait(host: &VirtualHost, plan: &str, port: &mut Port, within: Option<Nanos>) -> Result<Report, Error> {
    let plan: WaitPlan = plan.parse().unwrap();
    let wait = Wait::new(&plan).deadline(within.map(|length| host.now() + length));
    run_inline(drive(wait, port, &Inline::new(host, host, host), None)).unwrap()
}

fn pass(host: &VirtualHost, length: Nanos) {
    host.park(None, host.now() + length, || false);
}

/// That each plan ends by an error of this number, soon after `at`.
fn fails(faults: Faults, code: i64, at: Nanos) {
    for plan in PLANS {
        let (rig, host) = MetalRig::on_virtual_time(faults);
        let (_, mut port) = rig.submit(&rig.stream(), WORK);
        let error = wait(&host, plan, &mut port, Some(LONG)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Backend, "{plan}: {error}");
        assert!(error.to_string().contains(&format!("({code})")), "{plan}: {error}");
        let late = host.now().since(Instant::ORIGIN + at);
        assert!(late <= PROMPT, "{plan}: {late} late");
        // And again.
        assert!(port.query().is_err(), "{plan}");
    }
}

#[test]
fn case_16_a_killed_buffer_that_never_signals_is_an_error_and_no_hang() {
    for code in [1, 2, 3, 8, 9, DEVICE_REMOVED] {
        fails(killed(Kill::BeforeSignal(code)), code, WORK);
    }
    // Nobody says so either: neither the listener nor the handler ever comes.
    let silent = Faults { listener: Call::Lost, handler: Call::Lost, ..killed(Kill::BeforeSignal(2)) };
    fails(silent, 2, WORK);
}

#[test]
fn case_16_a_buffer_killed_while_it_runs_ends_who_waits_by_its_handler_alone() {
    let (rig, host) = MetalRig::on_virtual_time(Faults::default());
    let (buffer, mut port) = rig.submit(&rig.stream(), Nanos::MAX);
    buffer.kill(2);
    let plan: WaitPlan = "flag:park_us=2000,backstop_us=2000".parse().unwrap();
    let wait = Wait::new(&plan).deadline(Some(host.now() + LONG));
    let end = run_inline(drive(wait, &mut port, &Notified::new(&host), None)).unwrap();
    assert!(end.unwrap_err().to_string().contains("MTLCommandBufferErrorTimeout (2)"));
}

#[test]
fn a_value_that_is_reached_with_status_error_is_an_error_under_the_words_authority_too() {
    let lag = Nanos::from_micros(300);
    let faults = Faults { status_lag: lag, ..killed(Kill::ValueAndError(3)) };
    fails(faults, 3, WORK + lag);
}

#[test]
fn killed_behind_its_signal_is_an_error() {
    fails(killed(Kill::BehindSignal(2)), 2, WORK);
}

#[test]
fn a_value_that_is_overtaken_counts_as_reached_and_ends_nobody_early() {
    for plan in PLANS {
        let (rig, host) = MetalRig::on_virtual_time(Faults { handler: Call::Lost, ..Faults::default() });
        let stream = rig.stream();
        let (first, mut port) = rig.submit(&stream, WORK);
        // Somebody signals a higher value before the work is done.
        stream.event().signal(port.value() + 2);
        wait(&host, plan, &mut port, None).unwrap();
        assert!(first.ended_at().is_some_and(|at| at <= host.now()), "{plan}: before its work was done");

        // And a waiter on 2 that comes when the value is 3 finds it reached.
        let (_, mut second) = rig.submit(&stream, WORK);
        let (_, mut third) = rig.submit(&stream, WORK);
        third.block(None).unwrap();
        assert_eq!(stream.event().value(), third.value());
        second.arm().unwrap();
        assert_eq!(second.poll(), Wake::Reached, "{plan}");
        assert_eq!(second.query().unwrap(), Status::Done);
    }
}

#[test]
fn an_event_that_two_queues_share_ends_each_point_by_its_own_buffer() {
    for plan in PLANS {
        let (rig, host) = MetalRig::on_virtual_time(Faults::default());
        let long = rig.stream();
        let short = long.sharing(rig.metal.new_queue(&()).unwrap());
        let (buffer, mut port) = rig.submit(&long, Nanos::from_micros(900));
        let (_, mut other) = rig.submit(&short, Nanos::from_micros(50));
        assert!(other.value() > port.value(), "one row of values");
        wait(&host, plan, &mut other, None).unwrap();
        assert!(long.event().value() > port.value() && buffer.ended_at().is_none(), "{plan}");
        wait(&host, plan, &mut port, None).unwrap();
        assert!(buffer.ended_at().is_some_and(|at| at <= host.now()), "{plan}: on the value of another");
    }
}

#[test]
fn a_listener_and_a_handler_that_come_after_the_drop_find_nothing() {
    for call in [Call::Prompt, Call::Late(Nanos::from_millis(2)), Call::Twice, Call::Lost] {
        let faults = Faults { listener: call, handler: call, ..Faults::default() };
        let (rig, host) = MetalRig::on_virtual_time(faults);
        let stream = rig.stream();
        let (buffer, mut port) = rig.submit(&stream, WORK);
        let word = {
            port.arm().unwrap();
            port.descriptor().unwrap().clone()
        };
        drop(port);
        let asked = buffer.asked_times();
        drop(buffer);
        pass(&host, Nanos::from_millis(5));
        assert!(!word.reached() && asked == 1, "{call:?}: {asked}");
        assert_eq!((rig.metal.live(), stream.event().listeners()), ((0, 0), 0), "{call:?}");
    }
}

#[test]
fn a_point_that_has_ended_keeps_no_buffer() {
    for kill in [None, Some(Kill::BehindSignal(2))] {
        let (rig, host) = MetalRig::on_virtual_time(Faults { kill, ..Faults::default() });
        let (buffer, mut port) = rig.submit(&rig.stream(), WORK);
        let ended = wait(&host, "poll", &mut port, Some(LONG));
        drop(buffer);
        assert_eq!((rig.metal.live(), ended.is_ok()), ((0, 0), kill.is_none()));
        // It still tells of its end.
        assert_eq!(port.query().is_ok(), kill.is_none());
    }
}

#[test]
fn time_outs_of_0_1_and_2_to_the_64_less_1_milliseconds() {
    let (rig, host) = MetalRig::on_virtual_time(Faults::default());
    let stream = rig.stream();
    let (_, mut port) = rig.submit(&stream, Nanos::from_millis(40));
    let mut took = |timeout_ms| {
        let start = host.now();
        (port.wait_ms(timeout_ms).unwrap(), host.now().since(start))
    };
    let (status, none) = took(0);
    assert!(status == Status::Pending && none < Nanos::from_micros(10), "{none}");
    let (status, one) = took(1);
    let whole = Nanos::from_millis(1);
    assert!(status == Status::Pending && one >= whole && one < Nanos::from_micros(1_050), "{one}");
    let (status, long) = took(u64::MAX);
    assert!(status == Status::Done && long < Nanos::from_millis(40), "{long}");
    assert_eq!(stream.event().longest_wait_ms(), BLOCK_SLICE_MS_MAX);

    // For good, and killed: it ends all the same.
    let (buffer, mut port) = rig.submit(&stream, Nanos::MAX);
    buffer.kill(2);
    assert!(port.wait_ms(u64::MAX).is_err());
}

#[test]
fn a_blocking_wait_ends_by_its_deadline_rounded_up_to_a_millisecond() {
    for us in [1, 500, 1_000, 1_700, 25_300] {
        let (rig, host) = MetalRig::on_virtual_time(Faults::default());
        let (_, mut port) = rig.submit(&rig.stream(), Nanos::from_millis(150));
        let deadline = host.now() + Nanos::from_micros(us);
        let error = wait(&host, "block", &mut port, Some(Nanos::from_micros(us))).unwrap_err();
        let late = host.now().since(deadline);
        assert_eq!(error.code(), ErrorCode::Timeout);
        assert!(host.now() >= deadline && late <= Nanos::from_micros(1_010), "{us}: {late} late");
        // In one call of Metal's, where a slice is long enough.
        let deadline = host.now() + Nanos::from_micros(us.min(9_900));
        assert_eq!(port.block(Some(deadline)).unwrap(), Status::Pending);
        assert!(host.now() >= deadline, "{us}: early");
    }
}

#[test]
fn a_device_that_is_removed_ends_all_that_waits_and_all_that_comes_by_the_first_cause() {
    for plan in PLANS {
        let (rig, host) = MetalRig::on_virtual_time(Faults::default());
        let streams = [rig.stream(), rig.stream()];
        let mut ports = streams.each_ref().map(|stream| rig.submit(stream, Nanos::MAX).1);
        let done = {
            let (_, mut port) = rig.submit(&rig.stream(), Nanos::ZERO);
            port.block(None).unwrap();
            port
        };
        rig.metal.remove_device();
        for port in ports.iter_mut().chain([&mut { done }]) {
            let error = wait(&host, plan, port, None).unwrap_err();
            assert!(error.to_string().contains("DeviceRemoved (11)"), "{plan}: {error}");
        }
        let first = rig.device.health().unwrap_err().to_string();
        let later = [
            streams[0].buffer().err(),
            Stream::new(&rig.device, host.time().clone()).err(),
            ports[1].arm().err(),
        ];
        assert!(later.iter().all(|error| error.as_ref().is_some_and(|error| error.to_string() == first)));
    }
}

#[test]
fn a_buffer_that_is_never_committed_is_pending_until_the_deadline() {
    for plan in PLANS {
        let (rig, host) = MetalRig::on_virtual_time(Faults::default());
        let stream = rig.stream();
        let buffer = stream.buffer().unwrap();
        let mut port = stream.point(&buffer).unwrap();
        let error = wait(&host, plan, &mut port, Some(Nanos::from_millis(30))).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Timeout, "{plan}: {error}");
        let token = CancelToken::new();
        token.cancel();
        let inline = Inline::new(&host, &host, &host);
        let plan_read: WaitPlan = plan.parse().unwrap();
        let cancelled = run_inline(drive(Wait::new(&plan_read), &mut port, &inline, Some(&token))).unwrap();
        assert_eq!(cancelled.unwrap_err().code(), ErrorCode::Cancelled, "{plan}");
        // Committed after all, it ends well.
        buffer.commit();
        wait(&host, plan, &mut port, None).unwrap();

        drop(port);

        // One that is dropped as it is keeps nothing alive.
        let dropped = stream.buffer().unwrap();
        let mut port = stream.point(&dropped).unwrap();
        port.arm().unwrap();
        drop((port, dropped, buffer, stream));
        assert_eq!(rig.metal.live(), (0, 0), "{plan}");
    }
}

#[test]
fn what_metal_gives_none_of_is_a_coded_error_that_names_the_call() {
    let simulated = SimDevice::new(VirtualTime::new(), SimConfig::exact()).unwrap();
    let without = |absent| {
        let metal = FakeMetal::new(&simulated);
        metal.set_faults(Faults { absent: Some(absent), ..Faults::default() });
        metal
    };
    let error = Device::system(without(Absent::Device)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoDevice);
    for (absent, call) in [
        (Absent::Queue, "newCommandQueue"),
        (Absent::Event, "newSharedEvent"),
        (Absent::Buffer, "commandBuffer"),
    ] {
        let device = Device::system(without(absent)).unwrap();
        let made = Stream::new(&device, simulated.time().clone()).and_then(|stream| stream.buffer());
        let error = made.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Backend);
        assert!(error.to_string().contains(call), "{error}");
    }
}

/// The fake ends the test where Metal would end the process.
#[test]
fn a_buffer_of_another_queue_or_handed_in_before_is_refused() {
    let (rig, _host) = MetalRig::on_virtual_time(Faults::default());
    let (one, other) = (rig.stream(), rig.stream());
    let buffer = one.buffer().unwrap();
    buffer.work(WORK);
    assert_eq!(other.submit(&buffer).unwrap_err().code(), ErrorCode::ForeignStream);
    let _enqueued = one.point(&buffer).unwrap();
    let twice = one.submit(&buffer).unwrap_err();
    assert!(twice.to_string().contains("is enqueued already"), "{twice}");
    buffer.commit();
    let late = one.point(&buffer).unwrap_err();
    assert!(late.to_string().contains("is committed already"), "{late}");
}

/// Both saw that it had no place in its queue, and the second committed it again: Metal would end the process.
#[test]
fn a_buffer_that_two_threads_hand_in_at_once_is_handed_in_by_one() {
    let (rig, _host) = MetalRig::on_virtual_time(Faults::default());
    let stream = rig.stream();
    for _ in 0..200 {
        let buffer = stream.buffer().unwrap();
        let barrier = Barrier::new(2);
        let hand_in = || {
            barrier.wait();
            stream.submit(&buffer).map(drop)
        };
        let handed_in = std::thread::scope(|scope| {
            let threads = [scope.spawn(hand_in), scope.spawn(hand_in)];
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(handed_in.iter().filter(|handed_in| handed_in.is_ok()).count(), 1);
        let error = handed_in.into_iter().find_map(Result::err).unwrap();
        assert!(error.to_string().contains("already"), "{error}");
    }
}

/// What is told by nobody kept the task of who had awaited it, as long as the event.
#[test]
fn a_port_that_is_dropped_keeps_nobody_who_awaited_it() {
    struct Task;

    impl std::task::Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    /// Whose timers never end.
    struct Asleep(VirtualHost);

    impl Clock for Asleep {
        fn now(&self) -> Instant {
            self.0.now()
        }
    }

    impl Timer for Asleep {
        async fn sleep_until(&self, _: Instant) {
            pending::<()>().await;
        }

        async fn yield_now(&self) {}
    }

    // A value that never comes, and a handler that never does.
    let faults = Faults { listener: Call::Lost, handler: Call::Lost, ..killed(Kill::BeforeSignal(2)) };
    let (rig, host) = MetalRig::on_virtual_time(faults);
    let stream = rig.stream();
    let (buffer, mut port) = rig.submit(&stream, WORK);
    let task = Arc::new(Task);
    let waker = Waker::from(Arc::clone(&task));
    let plan: WaitPlan = "flag:park_us=2000,backstop_us=2000".parse().unwrap();
    let asleep = Asleep(host);
    let notified = Notified::new(&asleep);
    {
        let mut waits = pin!(drive(Wait::new(&plan), &mut port, &notified, None));
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop(waker);
    assert!(Arc::strong_count(&task) > 1, "the port knows it");
    drop((port, buffer));
    assert_eq!(Arc::strong_count(&task), 1);
    drop(stream);
}

/// Values in another order than their buffers have an event go backwards.
#[test]
fn buffers_that_threads_submit_at_once_signal_in_the_order_of_their_values() {
    let (rig, host) = MetalRig::on_virtual_time(Faults::default());
    let stream = rig.stream();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| drop(rig.submit(&stream, Nanos::ZERO))));
        }
    });
    pass(&host, Nanos::from_millis(1));
    assert_eq!((stream.event().value(), stream.event().went_back()), (200, 0));
}

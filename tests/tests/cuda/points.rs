//! A point is what was enqueued before it.

use std::time::{Duration, Instant as Wall};

use wakeline_core::{Arming, CompletionPort, Nanos, Outcome, Seq, Status, Wait};
use wakeline_fake_driver::{Act, Rule};
use wakeline_mapped::Stream;
use wakeline_tests::driver_tests;
use wakeline_tests::rig::Rig;
use wakeline_tests::vendor::Vendor;

use crate::waiting::{PLANS, lands, ms, not_before, plan, wait, wait_for};

driver_tests![
    Both: a_word_is_stored_behind_its_work_and_not_before,
        an_idle_stream_is_done_at_once,
        work_queued_behind_a_point_does_not_delay_it,
        a_point_of_an_earlier_moment_is_done_before_a_later_one,
        numbers_of_one_stream_rise_whoever_arms_it,
        a_port_armed_twice_is_armed_once,
        a_port_by_its_word_is_told_by_that_before_the_driver_knows,
        a_port_by_its_word_of_a_threads_own_stream_is_done_once_nothing_is_left,
        each_number_of_a_kernels_own_word_is_a_point,
        a_deadline_ends_every_plan_and_the_work_goes_on,
        many_streams_have_words_of_their_own;
    Fake: case_53_a_wait_by_the_word_makes_no_call_but_backstops,
        a_port_by_its_word_records_no_event;
];

const LIMIT: Duration = Duration::from_secs(20);

fn a_word_is_stored_behind_its_work_and_not_before<D: Vendor>(rig: &Rig<D>) {
    let launched = Wall::now();
    let stream = rig.busy(ms(30));
    let mut port = stream.port().unwrap();
    assert!(port.descriptor().is_none());
    assert_eq!(port.arm().unwrap(), Arming::Armed);
    not_before(launched, ms(30), port.descriptor().unwrap().reached());
    not_before(launched, ms(30), port.query().unwrap() == Status::Done);
    assert!(lands(&port, LIMIT));
    // The status may lag behind the word, but not for long.
    let start = Wall::now();
    while port.query().unwrap() == Status::Pending {
        assert!(start.elapsed() < LIMIT);
    }
}

fn an_idle_stream_is_done_at_once<D: Vendor>(rig: &Rig<D>) {
    let stream = rig.stream();
    for text in PLANS {
        let report = wait(text, &mut stream.port().unwrap()).unwrap();
        assert!(report.elapsed < ms(1_000), "{text}: {}", report.elapsed);
        assert_eq!(report.sleeps, 0, "{text}");
    }
}

/// The status of a whole stream is that of the work behind the point as well.
fn work_queued_behind_a_point_does_not_delay_it<D: Vendor>(rig: &Rig<D>) {
    for text in PLANS {
        let stream = rig.busy(ms(5));
        let mut port = stream.armed_port().unwrap();
        rig.kernels().occupy(&stream, ms(1_000)).unwrap();
        let start = Wall::now();
        let report = wait(text, &mut port).unwrap();
        assert!(start.elapsed() < Duration::from_millis(800), "{text}: {:?}, {report:?}", start.elapsed());
        let mut behind = stream.port().unwrap();
        assert_eq!(behind.query().unwrap(), Status::Pending, "{text}");
        if !rig.is_fake() {
            // A stream made later may get the same hardware queue, and then waits for what is left in it.
            wait(PLANS[0], &mut behind).unwrap();
        }
    }
}

fn a_point_of_an_earlier_moment_is_done_before_a_later_one<D: Vendor>(rig: &Rig<D>) {
    let stream = rig.busy(ms(3));
    let mut first = stream.armed_port().unwrap();
    let launched = Wall::now();
    rig.kernels().occupy(&stream, ms(200)).unwrap();
    let mut second = stream.armed_port().unwrap();
    wait(PLANS[3], &mut first).unwrap();
    not_before(launched, ms(200), second.descriptor().unwrap().reached());
    not_before(launched, ms(200), second.query().unwrap() == Status::Done);
    wait(PLANS[3], &mut second).unwrap();
    assert!(first.descriptor().unwrap().reached(), "overtaken counts as reached");
}

fn numbers_of_one_stream_rise_whoever_arms_it<D: Vendor>(rig: &Rig<D>) {
    const THREADS: usize = 8;
    const PORTS: usize = 50;
    let stream = rig.stream();
    let numbers = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..PORTS {
                    let mut port = stream.armed_port().unwrap();
                    let seq = port.descriptor().unwrap().seq();
                    wait(PLANS[5], &mut port).unwrap();
                    // Whoever sees the word sees no number of a store that was enqueued later and landed first.
                    assert!(port.descriptor().unwrap().word().reached(seq));
                    numbers.lock().unwrap().push(seq.get());
                }
            });
        }
    });
    let mut numbers = numbers.into_inner().unwrap();
    numbers.sort_unstable();
    let first = numbers[0];
    assert!(numbers.iter().zip(first..).all(|(number, expected)| *number == expected), "{numbers:?}");
    assert_eq!(numbers.len(), THREADS * PORTS);
}

fn a_port_armed_twice_is_armed_once<D: Vendor>(rig: &Rig<D>) {
    let stream = rig.stream();
    let mut port = stream.armed_port().unwrap();
    let seq = port.descriptor().unwrap().seq();
    assert_eq!(port.arm().unwrap(), Arming::Armed);
    assert_eq!(port.descriptor().unwrap().seq(), seq);
    assert_eq!(stream.armed_port().unwrap().descriptor().unwrap().seq(), seq.next());
}

/// It has no event: what is behind it keeps the driver from knowing of it.
fn a_port_by_its_word_is_told_by_that_before_the_driver_knows<D: Vendor>(rig: &Rig<D>) {
    let launched = Wall::now();
    let stream = rig.busy(ms(20));
    let mut port = stream.word_port().unwrap();
    rig.kernels().occupy(&stream, ms(300)).unwrap();
    not_before(launched, ms(20), port.descriptor().unwrap().reached());
    let report = wait(PLANS[5], &mut port).unwrap();
    assert!(report.outcome().is_some() && launched.elapsed() < Duration::from_millis(250), "{report:?}");
    not_before(launched, ms(320), port.query().unwrap() == Status::Done);
    // Nor is it lost to who asks the driver alone.
    wait(PLANS[1], &mut port).unwrap();
    assert!(launched.elapsed() >= Duration::from_millis(320));
}

/// Such a stream is not to be asked: nobody knows on which thread that is.
fn a_port_by_its_word_of_a_threads_own_stream_is_done_once_nothing_is_left<D: Vendor>(rig: &Rig<D>) {
    // SAFETY: the handle 2 is the thread's own default stream, which is always there.
    #[expect(unsafe_code, reason = "a stream that the driver has")]
    let stream = unsafe { Stream::from_raw(rig.context(), std::ptr::without_provenance_mut(2)) }.unwrap();
    let mut port = stream.word_port().unwrap();
    let start = Wall::now();
    while port.query().unwrap() == Status::Pending {
        assert!(start.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn a_port_by_its_word_records_no_event<D: Vendor>(rig: &Rig<D>) {
    let stream = rig.stream();
    let calls = |name: &str| rig.stand_in().calls(name);
    rig.stand_in().clear_log();
    let mut port = stream.word_port().unwrap();
    assert_eq!((calls("cuEventRecord"), calls("cuStreamWriteValue64")), (0, 1));
    wait(PLANS[5], &mut port).unwrap();
    assert_eq!(calls("cuEventQuery"), 0);
    // Where the driver takes no store there is nothing else to go by.
    rig.stand_in().rule(Rule::new("cuStreamWriteValue64", Act::Fail(wakeline_fake_driver::Status(801))));
    let mut port = stream.word_port().unwrap();
    assert_eq!(calls("cuEventRecord"), 1);
    assert!(port.descriptor().is_none());
    wait(PLANS[1], &mut port).unwrap();
    rig.stand_in().clear_rules();
}

fn each_number_of_a_kernels_own_word_is_a_point<D: Vendor>(rig: &Rig<D>) {
    let stream = rig.stream();
    let word = rig.context().kernel_word().unwrap();
    let start = word.reads();
    let numbers: Vec<Seq> =
        core::iter::successors(Some(start.next()), |seq| Some(seq.next())).take(3).collect();
    let launched = Wall::now();
    for seq in &numbers {
        rig.kernels().store_word(&stream, &word, seq.get(), ms(20)).unwrap();
    }
    for seq in &numbers {
        let mut port = word.port(&stream, *seq).unwrap();
        let plan = plan("flag:park_us=100,backstop_us=2000");
        let report = wait_for(Wait::new(&plan).kernel_point(), &mut port).unwrap();
        assert_eq!(report.outcome(), Some(Outcome::Trusted));
        assert!(word.reads().reached(*seq));
        not_before(launched, ms(60), word.reads().reached(numbers[2]));
    }
    wait("poll", &mut stream.port().unwrap()).unwrap();
    assert_eq!(word.reads(), numbers[2]);
    // SAFETY: the kernels have ended.
    unsafe { word.retire() };
}

fn a_deadline_ends_every_plan_and_the_work_goes_on<D: Vendor>(rig: &Rig<D>) {
    use wakeline_core::{Clock, ErrorCode};
    for text in PLANS {
        let stream = rig.busy(ms(1_200));
        let mut port = stream.armed_port().unwrap();
        let deadline = wakeline_std::StdClock::new().now() + ms(10);
        let start = Wall::now();
        let error = wait_for(Wait::new(&plan(text)).deadline(Some(deadline)), &mut port).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Timeout, "{text}: {error}");
        assert!(start.elapsed() < Duration::from_secs(1), "{text}: {:?}", start.elapsed());
        wait(text, &mut port).unwrap();
    }
}

fn many_streams_have_words_of_their_own<D: Vendor>(rig: &Rig<D>) {
    let streams: Vec<_> = (0..100).map(|_| rig.stream()).collect();
    let ports: Vec<_> = streams.iter().map(|stream| stream.armed_port().unwrap()).collect();
    let mut words: Vec<_> = ports
        .iter()
        .map(|port| {
            let word = port.descriptor().unwrap();
            (core::ptr::from_ref(word.line()).addr(), word.slot().index())
        })
        .collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), streams.len());
    assert!(ports.iter().all(|port| lands(port, LIMIT)));
}

/// Each poll copied four bytes from the device.
fn case_53_a_wait_by_the_word_makes_no_call_but_backstops<D: Vendor>(rig: &Rig<D>) {
    let fake = rig.stand_in();
    let stream = rig.busy(ms(150));
    let mut port = stream.armed_port().unwrap();
    fake.clear_log();
    let report = wait("flag:park_us=100,backstop_us=20000+trust", &mut port).unwrap();
    assert!(report.elapsed > Nanos::from_millis(20));
    let queries = fake.calls("cuStreamQuery");
    assert!(queries <= report.queries && queries <= 10, "{queries}, {report:?}");
    let other: Vec<_> = rig
        .log()
        .into_iter()
        .filter(|call| {
            !["cuStreamQuery", "cuEventQuery", "cuStreamIsCapturing", "cuCtxGetCurrent"]
                .contains(&&*call.name)
                && !call.name.starts_with("cuCtx")
                && call.name != "cuThreadExchangeStreamCaptureMode"
        })
        .collect();
    assert!(other.is_empty(), "{other:?}");
}

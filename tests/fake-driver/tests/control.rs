//! What a test does to its fake: rules, options, the log, and several at once.

mod raw;

use std::thread;
use std::time::{Duration, Instant};

use raw::{Driver, MAPPED, NON_BLOCKING, until, word};
use wakeline_fake_driver::{Act, Fake, Live, Rule, Status, thread_id};

#[test]
fn rules_fail_drop_and_delay_the_calls_they_name() {
    let fake = Fake::new().unwrap();
    let driver = Driver::ready(&fake);
    let stream = driver.stream_create(NON_BLOCKING).unwrap();
    let page = driver.host_alloc(64, MAPPED).unwrap();

    let rule = fake.rule(Rule::new("cuStreamQuery", Act::Fail(Status::LAUNCH_FAILED)).skip(1).times(2));
    let said = [(); 4].map(|()| driver.stream_query(stream).0);
    assert_eq!(said, [0, 719, 719, 0]);
    assert_eq!(fake.hits(rule), 2);

    // A rule without a version is for all of them.
    fake.rule(Rule::new("cuStreamWriteValue64", Act::DropEffect).times(1));
    assert_eq!(driver.write(stream, page, 1, 0), Status::SUCCESS);
    fake.rule(Rule::new("cuStreamWriteValue64_v2", Act::FailAfter(Status::UNKNOWN)).times(1));
    assert_eq!(driver.stream_synchronize(stream), Status::SUCCESS);
    assert_eq!(word(page), 0);
    assert_eq!(driver.write(stream, page, 2, 0), Status::UNKNOWN);
    assert_eq!(driver.stream_synchronize(stream), Status::SUCCESS);
    assert_eq!(word(page), 2);

    fake.rule(Rule::new("cuStreamQuery", Act::DelayUs(2_000)).times(1));
    let begin = Instant::now();
    assert_eq!(driver.stream_query(stream), Status::SUCCESS);
    assert!(begin.elapsed() >= Duration::from_millis(2));
}

#[test]
fn a_blocked_call_holds_up_nobody_else() {
    let fake = Fake::new().unwrap();
    let driver = Driver::ready(&fake);
    fake.rule(Rule::new("cuEventCreate", Act::Block));
    thread::scope(|scope| {
        let context = driver.current().unwrap();
        let driver = &driver;
        let blocked = scope.spawn(move || {
            driver.push(context);
            driver.event_create(0)
        });
        until("the block", || fake.blocked() == 1);
        assert_eq!((fake.calls("cuEventCreate"), fake.live().events), (1, 0));
        assert_eq!(driver.stream_query(0), Status::SUCCESS);
        fake.release();
        assert!(blocked.join().unwrap().is_ok());
    });
    assert_eq!((fake.blocked(), fake.live().events), (0, 1));
}

#[test]
fn the_log_tells_name_thread_context_stream_and_status() {
    let fake = Fake::new().unwrap();
    let driver = Driver::ready(&fake);
    let context = driver.current().unwrap();
    fake.clear_log();
    fake.configure(|options| options.log_len_max = 2);
    driver.stream_query(2);
    thread::scope(|scope| scope.spawn(|| driver.stream_query(1)).join().unwrap());
    driver.stream_query(0);
    let log = fake.log();
    assert_eq!(log.len(), 2);
    let told = |index: usize| (log[index].context, log[index].stream, log[index].status.0);
    assert_eq!((log[0].name.as_str(), told(0)), ("cuStreamQuery", (None, Some(1), 201)));
    assert_eq!(told(1), (Some(context), Some(0), 0));
    assert!(log[1].thread == thread_id() && log[0].thread != thread_id());
    fake.configure(|options| options.log = false);
    driver.stream_query(0);
    assert_eq!((fake.log(), fake.calls("cuStreamQuery")), (log, 4));
}

#[test]
fn instances_share_nothing() {
    let fakes = [(); 2].map(|()| Fake::new().unwrap());
    assert_ne!(fakes[0].path(), fakes[1].path());
    let drivers = [0, 1].map(|index| Driver::open(fakes[index].path()));
    assert_eq!(drivers[0].init(0), Status::SUCCESS);
    assert_eq!(drivers[1].device_count(), Err(Status::NOT_INITIALIZED));
    assert_eq!([0, 1].map(|index| fakes[index].calls("cuInit")), [1, 0]);
    let context = drivers[0].context_create(0, 0).unwrap();
    assert_eq!(drivers[1].init(0), Status::SUCCESS);
    assert_eq!(drivers[1].current(), Ok(0));
    assert_eq!(drivers[0].current(), Ok(context));
    let path = fakes[0].path().to_owned();
    drop(fakes);
    assert!(!path.exists());
    assert_eq!(drivers[0].context_destroy(context), Status::SUCCESS);
}

#[test]
fn the_driver_as_a_whole_can_be_a_stub_gone_or_without_a_device() {
    let fake = Fake::new().unwrap();
    let driver = Driver::open(fake.path());
    fake.configure(|options| options.stub = true);
    assert_eq!((driver.init(0), driver.version()), (Status::STUB_LIBRARY, Err(Status::STUB_LIBRARY)));
    fake.configure(|options| (options.stub, options.devices) = (false, 0));
    assert_eq!(driver.init(0), Status::NO_DEVICE);
    fake.configure(|options| (options.devices, options.init) = (2, Status::SYSTEM_NOT_READY));
    assert_eq!(driver.init(0), Status::SYSTEM_NOT_READY);
    fake.configure(|options| {
        options.init = Status::SUCCESS;
        options.attributes.insert(122, 0);
    });
    assert_eq!(driver.init(0), Status::SUCCESS);
    assert_eq!(
        (driver.device_count(), driver.attribute(122, 1), driver.attribute(16, 1)),
        (Ok(2), Ok(0), Ok(132))
    );
    fake.configure(|options| options.deinitialized = true);
    assert_eq!(driver.device_count(), Err(Status::DEINITIALIZED));
}

#[test]
fn a_full_stream_blocks_its_caller() {
    let fake = Fake::new().unwrap();
    fake.configure(|options| options.queue_depth = 3);
    let driver = Driver::ready(&fake);
    let page = driver.host_alloc(64, MAPPED).unwrap();
    let stream = driver.stream_create(NON_BLOCKING).unwrap();
    assert_eq!(driver.wait(stream, page, 1, 0), Status::SUCCESS);
    for value in 0..2 {
        assert_eq!(driver.write(stream, page + 8, value, 0), Status::SUCCESS);
    }
    thread::scope(|scope| {
        let context = driver.current().unwrap();
        let driver = &driver;
        let full = scope.spawn(move || {
            driver.push(context);
            driver.write(stream, page + 8, 3, 0)
        });
        until("the call", || fake.calls("cuStreamWriteValue64_v2") == 3);
        thread::sleep(Duration::from_millis(1));
        assert!(!full.is_finished());
        assert_eq!(driver.write(2, page, 1, 0), Status::SUCCESS);
        assert_eq!(full.join().unwrap(), Status::SUCCESS);
    });
    assert_eq!(driver.stream_synchronize(stream), Status::SUCCESS);
    assert_eq!(word(page + 8), 3);
}

#[test]
fn a_handle_by_path_is_one_more_of_that_instance() {
    let fake = Fake::new().unwrap();
    let _driver = Driver::ready(&fake);
    let same = Fake::at(fake.path()).unwrap();
    assert_eq!(same.calls("cuInit"), 1);
    drop(same);
    assert!(fake.path().exists(), "the file is not the second handle's");
    assert!(Fake::at("no/such/libcuda.so.1").unwrap_err().to_string().starts_with("no/such/libcuda.so.1: "));
}

#[test]
fn a_reset_fake_is_as_new() {
    let fake = Fake::new().unwrap();
    let driver = Driver::ready(&fake);
    fake.rule(Rule::new("cuStreamQuery", Act::Fail(Status::UNKNOWN)));
    let stream = driver.stream_create(NON_BLOCKING).unwrap();
    let page = driver.host_alloc(64, MAPPED).unwrap();
    assert_eq!(driver.wait(stream, page, 1, 0), Status::SUCCESS);
    assert_eq!(driver.stream_destroy(0x10), Status::INVALID_HANDLE);
    fake.reset();
    assert_eq!((fake.live(), fake.calls("cuInit"), fake.violations().len()), (Live::default(), 0, 0));
    assert_eq!(driver.stream_query(0), Status::NOT_INITIALIZED);
    assert_eq!(driver.init(0), Status::SUCCESS);
    assert_eq!(driver.stream_query(0), Status::INVALID_CONTEXT);
    let context = driver.primary_retain(0).unwrap();
    assert_eq!(driver.set_current(context), Status::SUCCESS);
    assert_eq!(driver.stream_query(0), Status::SUCCESS);
    assert_eq!(driver.stream_query(stream), Status::INVALID_HANDLE);
}

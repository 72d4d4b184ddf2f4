//! What the ports of the core oblige an implementer to, one test each, in virtual time.
#![cfg(not(loom))]

extern crate alloc;

use alloc::sync::Arc;
use alloc::task::Wake as RawWake;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::Waker;

use wakeline_core::{
    Arming, Clock, CompletionPort, Error, ErrorCode, Idle, Instant, MemoryDescriptor, Nanos, Park, Seq,
    Status, Timer, Turn, Wake,
};
use wakeline_sim::{
    Faults, SimConfig, SimDevice, SimPort, SimStream, SlotUse, TimeLine, VirtualHost, VirtualTime, Witness,
};

const US: u64 = 1_000;

fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

fn device(config: &SimConfig) -> Result<(SimDevice, VirtualHost, SimStream), Error> {
    let device = SimDevice::new(VirtualTime::new(), *config)?;
    let host = VirtualHost::new(&device);
    let stream = device.stream()?;
    Ok((device, host, stream))
}

fn exact() -> Result<(SimDevice, VirtualHost, SimStream), Error> {
    device(&SimConfig::exact())
}

#[test]
fn what_threads_share_can_be_shared() {
    fn shared<V: Send + Sync + 'static>() {}
    shared::<SimDevice>();
    shared::<SimStream>();
    shared::<SimPort>();
    shared::<Witness>();
    shared::<VirtualHost>();
}

#[test]
fn query_says_done_from_the_end_of_the_work_and_its_lag_on() -> Result<(), Error> {
    let (device, _, stream) = device(&SimConfig { confirm_lag_ns: 700, ..SimConfig::exact() })?;
    stream.launch(Nanos::from_nanos(1_000))?;
    let mut point = stream.point();
    for (ns, status) in
        [(0, Status::Pending), (999, Status::Pending), (1_699, Status::Pending), (1_700, Status::Done)]
    {
        device.time().pass(at(ns));
        assert_eq!(point.query()?, status, "at {ns} ns");
    }
    assert_eq!(point.witness().truth().ended_at, Some(at(1_000)));
    assert_eq!(point.witness().truth().queries, 4);
    Ok(())
}

#[test]
fn query_costs_its_price_and_does_not_wait() -> Result<(), Error> {
    let (device, host, stream) = device(&SimConfig { query_ns: 300, ..SimConfig::exact() })?;
    stream.launch(Nanos::from_millis(1))?;
    assert_eq!(stream.point().query()?, Status::Pending);
    assert_eq!(host.now(), at(300));
    assert_eq!(device.counts().queries, 1);
    Ok(())
}

#[test]
fn query_and_block_fail_on_a_faulted_device_whatever_the_word_says() -> Result<(), Error> {
    let (device, host, stream) = exact()?;
    stream.launch(Nanos::from_micros(1))?;
    let mut stored = stream.point();
    stored.arm()?;
    assert_eq!(stored.park(&host, at(US)), Wake::Reached);
    stream.launch(Nanos::from_micros(1))?;
    let mut pending = stream.point();
    pending.arm()?;
    device.inject_fault();
    let cause = device.health().map(|error| error.to_string());
    assert_eq!(cause.as_deref(), Some("sim: work failed: the device faulted at 1.000 us"));
    for point in [&mut stored, &mut pending] {
        let failures = [point.query().err(), point.block(None).err(), point.block(Some(at(0))).err()];
        for failure in failures {
            assert_eq!(failure.map(|error| error.to_string()), cause);
        }
    }
    assert!(stream.launch(Nanos::ZERO).is_err() && stream.point().arm().is_err() && device.stream().is_err());
    assert_eq!(pending.park(&host, at(9 * US)), Wake::Woke, "the word of unfinished work is never stored");
    Ok(())
}

#[test]
fn block_ends_when_the_point_is_done_or_the_time_has_come() -> Result<(), Error> {
    let (_, host, stream) = device(&SimConfig { block_ns: 50, ..SimConfig::exact() })?;
    stream.launch(Nanos::from_micros(10))?;
    let mut point = stream.point();
    assert_eq!(point.block(Some(at(4 * US)))?, Status::Pending);
    assert_eq!(host.now(), at(4 * US));
    assert_eq!(point.block(Some(at(0)))?, Status::Pending, "a moment in the past does not block");
    assert_eq!(host.now(), at(4 * US));
    assert_eq!(point.block(None)?, Status::Done);
    assert_eq!(host.now(), at(10 * US + 50));
    assert_eq!(point.witness().truth().blocks, 3);
    Ok(())
}

#[test]
fn block_without_bound_on_work_that_never_ends_fails_at_the_end_of_time() -> Result<(), Error> {
    let (_, host, stream) = exact()?;
    stream.launch(Nanos::MAX)?;
    let error = stream.point().block(None).err();
    assert_eq!(error.map(|error| error.code()), Some(ErrorCode::Backend));
    assert_eq!(host.now(), Instant::MAX);
    Ok(())
}

#[test]
fn block_that_cannot_be_bounded_is_refused_and_does_not_block() -> Result<(), Error> {
    let (device, host, stream) = device(&SimConfig { bounded_block: false, ..SimConfig::exact() })?;
    stream.launch(Nanos::from_micros(10))?;
    let mut point = stream.point();
    let error = point.block(Some(at(US))).err();
    assert_eq!(error.map(|error| error.code()), Some(ErrorCode::BlockUnbounded));
    assert_eq!((host.now(), device.counts().blocks), (at(0), 0));
    assert_eq!(point.block(None)?, Status::Done);
    Ok(())
}

#[test]
fn the_point_is_fixed_when_it_is_made_and_later_work_never_delays_it() -> Result<(), Error> {
    let (_, host, stream) = exact()?;
    stream.launch(Nanos::from_micros(1))?;
    let mut armed = stream.point();
    armed.arm()?;
    let mut asked = stream.point();
    stream.launch(Nanos::from_millis(1))?;
    assert_eq!(armed.park(&host, at(US)), Wake::Reached);
    assert_eq!((armed.query()?, asked.query()?), (Status::Done, Status::Done));
    assert_eq!(stream.point().query()?, Status::Pending);
    Ok(())
}

#[test]
fn a_point_of_an_idle_stream_is_done_at_once() -> Result<(), Error> {
    let (_, _, stream) = exact()?;
    assert_eq!(stream.point().query()?, Status::Done);
    stream.launch(Nanos::ZERO)?;
    let mut point = stream.point();
    assert_eq!((point.query()?, point.arm()?, point.poll()), (Status::Done, Arming::Armed, Wake::Reached));
    Ok(())
}

#[test]
fn arm_takes_numbers_in_order_and_its_store_lands_behind_the_work() -> Result<(), Error> {
    let (device, host, stream) = device(&SimConfig { store_latency_ns: 300, ..SimConfig::exact() })?;
    let mut points = Vec::new();
    for _ in 0..3 {
        stream.launch(Nanos::from_micros(1))?;
        let mut point = stream.point();
        assert!(point.descriptor().is_none());
        assert_eq!(point.arm()?, Arming::Armed);
        points.push(point);
    }
    for (number, point) in (1..).zip(&points) {
        assert_eq!(point.descriptor().map(MemoryDescriptor::seq), Some(Seq::new(number)));
        assert_eq!(point.park(&host, at(number * US + 299)), Wake::Woke);
        assert_eq!(point.park(&host, at(number * US + 300)), Wake::Reached);
        let truth = point.witness().truth();
        assert_eq!((truth.ended_at, truth.landed_at), (Some(at(number * US)), Some(at(number * US + 300))));
    }
    assert_eq!((device.counts().queries, device.counts().overtaken), (0, 0));
    Ok(())
}

#[test]
fn arm_on_a_stream_that_cannot_store_enqueues_nothing() -> Result<(), Error> {
    let faults = Faults { unsupported_ppm: 1_000_000, ..Faults::none() };
    let (device, _, stream) = device(&SimConfig { faults, ..SimConfig::exact() })?;
    let mut point = stream.point();
    assert_eq!(point.arm()?, Arming::Unsupported);
    assert!(point.descriptor().is_none());
    assert_eq!((device.counts().arms, device.counts().unsupported), (0, 1));
    Ok(())
}

#[test]
fn a_full_queue_refuses_work_and_stores_and_no_number_is_lost() -> Result<(), Error> {
    let (_, host, stream) = device(&SimConfig { queue_len_max: 2, ..SimConfig::exact() })?;
    stream.launch(Nanos::from_micros(1))?;
    stream.launch(Nanos::from_micros(1))?;
    let refused = [stream.launch(Nanos::ZERO).err(), stream.point().arm().err()];
    let texts = refused.map(|error| error.map(|error| error.to_string()).unwrap_or_default());
    assert_eq!(texts[0], "sim: launch failed: the queue of this stream is full (2)");
    assert_eq!(texts[1], "sim: arm failed: the queue of this stream is full (2)");
    host.idle(Some(at(US)));
    let mut point = stream.point();
    point.arm()?;
    assert_eq!(point.descriptor().map(MemoryDescriptor::seq), Some(Seq::new(1)));
    Ok(())
}

#[test]
fn poll_and_park_make_no_driver_call() -> Result<(), Error> {
    let (device, host, stream) = exact()?;
    stream.launch(Nanos::from_micros(1))?;
    let mut point = stream.point();
    point.arm()?;
    let calls = device.counts().calls;
    assert_eq!(point.poll(), Wake::Woke);
    assert_eq!(point.park(&host, Instant::MAX), Wake::Reached);
    assert_eq!(point.poll(), Wake::Reached);
    assert_eq!(device.counts().calls, calls);
    Ok(())
}

#[test]
fn park_looks_at_least_once_and_ends_at_its_time() -> Result<(), Error> {
    let (_, host, stream) = exact()?;
    host.time().pass(at(9));
    let mut looks = 0;
    let wake = host.park(None, at(5), || {
        looks += 1;
        true
    });
    assert_eq!((wake, looks, host.now()), (Wake::Reached, 1, at(9)));
    assert_eq!(host.park(None, at(5), || false), Wake::Woke);
    assert_eq!(stream.point().park(&host, at(70)), Wake::Woke, "a point without a word");
    assert_eq!(host.now(), at(70));
    Ok(())
}

#[test]
fn a_ring_ends_one_park_or_idle_call_and_no_other() -> Result<(), Error> {
    let (_, host, _) = exact()?;
    let bell = host.bell();
    bell.wake_by_ref();
    assert_eq!((host.park(None, at(10), || false), host.now()), (Wake::Woke, at(0)));
    assert_eq!((host.park(None, at(10), || false), host.now()), (Wake::Woke, at(10)));
    bell.wake_by_ref();
    assert_eq!(host.park(None, at(20), || true), Wake::Reached);
    host.idle(Some(at(20)));
    assert_eq!(host.now(), at(10), "the park did not end by the ring");
    host.idle(Some(at(30)));
    assert_eq!(host.now(), at(30));
    host.idle(None); // nothing is due and nobody can ring: comes back
    assert_eq!(host.now(), at(30));
    Ok(())
}

#[test]
fn a_timer_is_ready_at_its_first_poll() -> Result<(), Error> {
    let (_, host, _) = exact()?;
    let mut sleep = Box::pin(host.sleep_until(at(50)));
    let ready = sleep.as_mut().poll(&mut core::task::Context::from_waker(Waker::noop())).is_ready();
    drop(sleep);
    assert!(ready);
    assert_eq!(host.now(), at(50));
    Ok(())
}

/// A bell that looks at the device when it rings, which a lock held around it would not survive.
struct Curious {
    device: SimDevice,
    rings: AtomicUsize,
}

impl RawWake for Curious {
    fn wake(self: Arc<Self>) {
        let _ = self.device.counts();
        self.rings.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn turn_says_what_is_due_next_and_earlier_work_rings_the_bell() -> Result<(), Error> {
    let (device, _, stream) = exact()?;
    let curious = Arc::new(Curious { device: device.clone(), rings: AtomicUsize::new(0) });
    let rings = || curious.rings.load(Ordering::SeqCst);
    device.set_bell(Waker::from(Arc::clone(&curious)));
    assert_eq!(device.turn(at(0)), None);
    stream.launch(Nanos::from_micros(10))?;
    assert_eq!(rings(), 1);
    assert_eq!(device.turn(at(0)), Some(at(10 * US)));
    let other = device.stream()?;
    other.launch(Nanos::from_micros(20))?;
    assert_eq!(rings(), 1, "later than promised");
    other.point().arm()?;
    device.stream()?.launch(Nanos::from_micros(5))?;
    assert_eq!(rings(), 2, "earlier than promised");
    assert_eq!(device.turn(at(4 * US)), Some(at(5 * US)));
    assert_eq!(device.turn(at(99 * US)), None);
    device.set_bell(Waker::noop().clone());
    Ok(())
}

#[test]
fn turning_once_or_in_many_steps_gives_the_same() -> Result<(), Error> {
    let run = |seed: u64, steps: u64| -> Result<_, Error> {
        let swarm = Faults::swarm(seed).survivable();
        let faults = Faults { deferred_store_ppm: 0, unsupported_ppm: 0, ..swarm };
        let config = SimConfig { seed, log_len_max: 1_000, faults, ..SimConfig::exact() };
        let (device, _, stream) = device(&config)?;
        let mut points = Vec::new();
        for length in [3, 1, 4, 1, 5, 9, 2, 6] {
            stream.launch(Nanos::from_micros(length))?;
            let mut point = stream.point();
            point.arm()?;
            points.push(point);
        }
        for step in 1..=steps {
            device.turn(at(step * 1_000_000_000 / steps));
        }
        Ok(device.log())
    };
    for seed in 0..50 {
        let log = run(seed, 1)?;
        assert_eq!(log, run(seed, 1_000)?, "seed {seed}");
        assert!(log.len() >= 32, "seed {seed}: launches, ends, arms, and landings or losses");
    }
    Ok(())
}

#[test]
fn a_word_passes_on_when_its_stream_is_gone_and_every_store_has_landed() -> Result<(), Error> {
    let (device, host, stream) = device(&SimConfig { slots_max: 1, ..SimConfig::exact() })?;
    stream.launch(Nanos::from_micros(1))?;
    let mut point = stream.point();
    point.arm()?;
    drop(stream);
    assert_eq!(device.slots(), SlotUse { owned: 1, free: 0, quarantined: 0 }, "the point holds it");
    drop(point);
    assert_eq!(device.slots(), SlotUse { owned: 0, free: 0, quarantined: 1 });
    let error = device.stream().err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some("sim: stream failed: all 1 words are taken (1 quarantined)"));
    host.idle(Some(at(US)));
    assert_eq!(device.slots(), SlotUse { owned: 0, free: 1, quarantined: 0 });
    let mut next = device.stream()?.point();
    next.arm()?;
    assert_eq!(next.descriptor().map(MemoryDescriptor::seq), Some(Seq::new(2)), "the sequence goes on");
    Ok(())
}

#[test]
fn numbers_run_over_the_end_of_their_range() -> Result<(), Error> {
    for first_word in [u64::from(u32::MAX) - 2, u64::MAX - 2] {
        let (_, host, stream) =
            device(&SimConfig { first_word: Seq::new(first_word), ..SimConfig::exact() })?;
        for _ in 0..6 {
            stream.launch(Nanos::from_micros(1))?;
            let mut point = stream.point();
            point.arm()?;
            assert_eq!(point.poll(), Wake::Woke);
            assert_eq!(point.park(&host, Instant::MAX), Wake::Reached);
        }
    }
    Ok(())
}

#[test]
fn one_host_moves_all_devices_of_its_time_line() -> Result<(), Error> {
    let (device, host, stream) = exact()?;
    let other = SimDevice::new(device.time().clone(), SimConfig::exact())?;
    let host = host.and(&other);
    let far = other.stream()?;
    far.launch(Nanos::from_micros(1))?;
    stream.launch(Nanos::from_micros(2))?;
    let (mut near, mut distant) = (stream.point(), far.point());
    near.arm()?;
    distant.arm()?;
    let mut seen = None;
    host.park(None, at(5 * US), || {
        if distant.poll() == Wake::Reached && seen.is_none() {
            seen = Some(host.now());
        }
        near.poll() == Wake::Reached
    });
    assert_eq!((seen, host.now()), (Some(at(US)), at(2 * US)));
    Ok(())
}

#[test]
fn a_point_that_is_armed_again_keeps_its_store() -> Result<(), Error> {
    let (device, host, stream) = exact()?;
    stream.launch(Nanos::from_nanos(US))?;
    let mut point = stream.point();
    assert_eq!(point.arm()?, Arming::Armed);
    assert_eq!(point.park(&host, at(US / 2)), Wake::Woke);
    stream.launch(Nanos::from_nanos(5 * US))?; // behind the point
    let calls = device.counts().calls;
    assert_eq!(point.arm()?, Arming::Armed);
    assert_eq!((device.counts().calls, device.counts().arms), (calls, 1));
    assert_eq!((point.park(&host, Instant::MAX), host.now()), (Wake::Reached, at(US)));
    assert_eq!(point.query()?, Status::Done);
    Ok(())
}

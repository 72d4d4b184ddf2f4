//! Cases from the field, as far as they are about the device alone.
#![cfg(not(loom))]

use wakeline_core::{Clock, CompletionPort, Error, Idle, Instant, Nanos, Seq, Status, Wake};
use wakeline_sim::{Chance, Faults, SimConfig, SimDevice, TimeLine, VirtualHost, VirtualTime};

const US: u64 = 1_000;
const ALWAYS: u32 = 1_000_000;

fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

fn device(faults: Faults) -> Result<(SimDevice, VirtualHost), Error> {
    let config = SimConfig { faults, slots_max: 1, ..SimConfig::exact() };
    let device = SimDevice::new(VirtualTime::new(), config)?;
    let host = VirtualHost::new(&device);
    Ok((device, host))
}

/// The driver recorded the store but never submitted it, and who only watched the word waited forever.
#[test]
fn case_1_a_store_that_only_a_query_submits_lands_within_one_backstop() -> Result<(), Error> {
    let (device, host) = device(Faults { deferred_store_ppm: ALWAYS, ..Faults::none() })?;
    let stream = device.stream()?;
    stream.launch(Nanos::from_micros(5))?;
    let mut point = stream.point();
    point.arm()?;
    let backstop = Nanos::from_millis(1);
    assert_eq!(point.park(&host, host.now() + backstop), Wake::Woke, "watching alone never ends");
    assert_eq!(point.query()?, Status::Done);
    assert_eq!(point.park(&host, host.now() + backstop), Wake::Reached);
    assert_eq!(host.now(), at(1_000 * US));
    assert_eq!(device.counts().queries, 1);
    Ok(())
}

/// A store of a word's former use landed late and was taken for the new one's.
#[test]
fn case_2_a_late_store_of_a_former_use_leaves_the_new_waiter_pending() -> Result<(), Error> {
    // Late: the word does not pass to another stream before it has landed.
    let (device, host) = device(Faults { late_store: Chance::always(50 * US), ..Faults::none() })?;
    let stream = device.stream()?;
    stream.point().arm()?;
    drop(stream);
    assert!(device.stream().is_err());
    host.idle(Some(at(50 * US)));
    let stream = device.stream()?;
    stream.launch(Nanos::from_millis(1))?;
    let mut new = stream.point();
    new.arm()?;
    assert_eq!(new.poll(), Wake::Woke);

    // Once more, when nobody can know of it: the new number is beyond its reach.
    let faults = Faults { repeated_store: Chance::always(70 * US), ..Faults::none() };
    device.set_faults(&faults)?;
    drop((new, stream));
    host.idle(Some(at(2_000 * US)));
    let stream = device.stream()?;
    stream.point().arm()?; // lands now, and again 70 us later
    device.set_faults(&Faults::none())?;
    drop(stream);
    let stream = device.stream()?;
    stream.launch(Nanos::from_millis(1))?;
    let mut new = stream.point();
    new.arm()?;
    let landed = device.counts().landed;
    assert_eq!(new.park(&host, at(2_999 * US)), Wake::Woke);
    assert_eq!(device.counts().landed, landed + 1, "the old store landed meanwhile");
    assert_eq!(new.descriptor().map(|word| (word.word(), word.seq())), Some((Seq::new(3), Seq::new(4))));
    assert_eq!(new.park(&host, Instant::MAX), Wake::Reached);
    assert_eq!(host.now(), at(3_000 * US));
    Ok(())
}

/// The counter had passed the awaited value when the waiter looked.
#[test]
fn case_3_a_word_that_jumps_completes_the_point_it_passes() -> Result<(), Error> {
    for first_word in [4, u64::from(u32::MAX) - 1, u64::MAX - 1] {
        let config = SimConfig { first_word: Seq::new(first_word), ..SimConfig::exact() };
        let device = SimDevice::new(VirtualTime::new(), config)?;
        let host = VirtualHost::new(&device);
        let stream = device.stream()?;
        stream.point().arm()?;
        stream.launch(Nanos::from_micros(1))?;
        device.set_faults(&Faults { lost_store_ppm: ALWAYS, ..Faults::none() })?;
        let mut passed = stream.point();
        passed.arm()?;
        host.idle(Some(at(US)));
        assert_eq!(passed.poll(), Wake::Woke);
        device.set_faults(&Faults::none())?;
        stream.point().arm()?;
        assert_eq!(passed.poll(), Wake::Reached);
    }
    Ok(())
}

/// A fault came while the word was stored already, or would never be: success was reported.
#[test]
fn case_9_a_fault_is_an_error_with_the_word_stored_and_not_stored() -> Result<(), Error> {
    for early_store in [Chance::always(US), Chance::NEVER] {
        let faults = Faults { early_store, fault_at: Some(at(5 * US)), ..Faults::none() };
        let (device, host) = device(faults)?;
        let stream = device.stream()?;
        stream.launch_until(at(5 * US + 1))?;
        let mut point = stream.point();
        point.arm()?;
        let stored = point.park(&host, at(5 * US)) == Wake::Reached;
        assert_eq!(stored, early_store != Chance::NEVER);
        host.time().pass(at(6 * US));
        assert!(point.query().is_err() && point.block(None).is_err());
    }
    Ok(())
}

/// The status said "not ready" forever.
#[test]
fn case_12_a_point_that_is_never_ready_gives_control_back() -> Result<(), Error> {
    let faults = Faults { stuck_ppm: ALWAYS, lost_store_ppm: ALWAYS, ..Faults::none() };
    let (device, host) = device(faults)?;
    let stream = device.stream()?;
    stream.launch(Nanos::from_micros(5))?;
    let mut point = stream.point();
    point.arm()?;
    for deadline in [10 * US, 10_000 * US] {
        assert_eq!(point.park(&host, at(deadline)), Wake::Woke);
        assert_eq!(point.query()?, Status::Pending);
        assert_eq!(point.block(Some(at(2 * deadline)))?, Status::Pending);
        assert_eq!(host.now(), at(2 * deadline));
    }
    Ok(())
}

//! Every kind of fault: that it happens, that it does what it says, and what it must leave alone.
#![cfg(not(loom))]

use wakeline_core::{
    Clock, CompletionPort, Error, Idle, Instant, MemoryDescriptor, Nanos, Park, Seq, Status, Wake,
};
use wakeline_sim::{
    Chance, Faults, LogEvent, SimConfig, SimDevice, SimPort, SimStream, SlotUse, VirtualHost, VirtualTime,
};

const US: u64 = 1_000;
const ALWAYS: u32 = 1_000_000;

fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

fn device(faults: Faults) -> Result<(SimDevice, VirtualHost, SimStream), Error> {
    let config = SimConfig { faults, log_len_max: 100, ..SimConfig::exact() };
    let device = SimDevice::new(VirtualTime::new(), config)?;
    let host = VirtualHost::new(&device);
    let stream = device.stream()?;
    Ok((device, host, stream))
}

/// A point behind work of this length, armed.
fn armed(stream: &SimStream, length: u64) -> Result<SimPort, Error> {
    stream.launch(Nanos::from_nanos(length))?;
    let mut point = stream.point();
    point.arm()?;
    Ok(point)
}

#[test]
fn a_late_store_holds_up_the_stores_behind_it_but_not_the_work() -> Result<(), Error> {
    let (device, host, stream) = device(Faults { late_store: Chance::always(50 * US), ..Faults::none() })?;
    let late = armed(&stream, US)?;
    host.idle(Some(at(US)));
    device.set_faults(&Faults::none())?;
    let mut behind = armed(&stream, US)?;
    host.idle(Some(at(2 * US)));
    assert_eq!((behind.query()?, behind.poll()), (Status::Done, Wake::Woke));
    assert_eq!(late.park(&host, Instant::MAX), Wake::Reached);
    assert_eq!((host.now(), behind.poll()), (at(51 * US), Wake::Reached));
    assert_eq!((device.counts().late, device.counts().overtaken), (1, 0));
    Ok(())
}

#[test]
fn a_lost_store_never_lands_and_the_next_one_passes_it() -> Result<(), Error> {
    let (device, host, stream) = device(Faults { lost_store_ppm: ALWAYS, ..Faults::none() })?;
    let mut lost = armed(&stream, US)?;
    assert_eq!(lost.park(&host, at(1_000 * US)), Wake::Woke);
    assert_eq!(lost.query()?, Status::Done);
    assert_eq!(lost.witness().truth().landed_at, None);
    device.set_faults(&Faults::none())?;
    armed(&stream, US)?.park(&host, Instant::MAX);
    assert_eq!(lost.poll(), Wake::Reached, "overtaken counts as reached");
    assert_eq!(device.counts().lost, 1);
    Ok(())
}

#[test]
fn a_word_whose_last_store_was_lost_is_quarantined_for_good() -> Result<(), Error> {
    let (device, host, stream) = device(Faults { lost_store_ppm: ALWAYS, ..Faults::none() })?;
    drop(armed(&stream, US)?);
    drop(stream);
    host.idle(Some(at(1_000 * US)));
    assert_eq!(device.slots(), SlotUse { owned: 0, free: 7, quarantined: 1 });
    Ok(())
}

#[test]
fn an_early_store_lands_before_the_work_has_ended_and_the_status_knows_better() -> Result<(), Error> {
    let (device, host, stream) = device(Faults { early_store: Chance::always(3 * US), ..Faults::none() })?;
    stream.launch(Nanos::from_micros(6))?;
    let mut point = armed(&stream, 4 * US)?;
    assert_eq!(point.park(&host, Instant::MAX), Wake::Reached);
    assert_eq!((host.now(), point.query()?), (at(7 * US), Status::Pending));
    assert_eq!(point.block(None)?, Status::Done);
    assert_eq!((host.now(), device.counts().early), (at(10 * US), 1));
    let short = armed(&stream, US)?;
    assert_eq!(
        (short.park(&host, Instant::MAX), host.now()),
        (Wake::Reached, at(10 * US)),
        "at most at once"
    );
    Ok(())
}

#[test]
fn an_early_store_lands_also_where_the_work_never_ends() -> Result<(), Error> {
    let (_, host, stream) = device(Faults { early_store: Chance::always(3 * US), ..Faults::none() })?;
    let mut point = armed(&stream, u64::MAX)?;
    assert_eq!((point.park(&host, Instant::MAX), host.now()), (Wake::Reached, at(3 * US)));
    assert_eq!(point.query()?, Status::Pending);
    Ok(())
}

#[test]
fn swapped_stores_show_the_later_number_early_and_lower_nothing() -> Result<(), Error> {
    let (device, host, stream) = device(Faults { swapped_store_ppm: ALWAYS, ..Faults::none() })?;
    let (first, mut second) = (armed(&stream, US)?, armed(&stream, US)?);
    assert_eq!(second.park(&host, Instant::MAX), Wake::Reached);
    assert_eq!((host.now(), first.poll(), second.query()?), (at(US), Wake::Reached, Status::Pending));
    host.idle(Some(at(2 * US)));
    assert_eq!((second.poll(), second.query()?), (Wake::Reached, Status::Done));
    assert_eq!((device.counts().swapped, device.counts().overtaken), (1, 1));
    assert_eq!(first.witness().truth().landed_at, Some(at(2 * US)));
    Ok(())
}

#[test]
fn a_deferred_store_holds_up_what_is_behind_it_until_a_query_or_a_block() -> Result<(), Error> {
    for query in [true, false] {
        let (device, host, stream) = device(Faults { deferred_store_ppm: ALWAYS, ..Faults::none() })?;
        let mut point = armed(&stream, US)?;
        stream.launch(Nanos::from_micros(1))?;
        let mut behind = stream.point();
        assert_eq!(point.park(&host, at(10 * US)), Wake::Woke);
        assert_eq!(behind.witness().truth().ended_at, None);
        let status = if query { point.query()? } else { point.block(None)? };
        assert_eq!((status, point.poll()), (Status::Done, Wake::Reached));
        assert_eq!(behind.block(None)?, Status::Done);
        assert_eq!((host.now(), device.counts().deferred), (at(11 * US), 1));
    }
    Ok(())
}

#[test]
fn a_stream_that_is_dropped_submits_what_was_deferred() -> Result<(), Error> {
    let (device, host, stream) = device(Faults { deferred_store_ppm: ALWAYS, ..Faults::none() })?;
    drop(armed(&stream, US)?);
    drop(stream);
    host.idle(Some(at(US)));
    assert_eq!(device.slots().free, 8);
    Ok(())
}

#[test]
fn a_slow_query_takes_its_time_and_answers_for_its_end() -> Result<(), Error> {
    let (device, host, stream) =
        device(Faults { slow_query: Chance::always(500_000 * US), ..Faults::none() })?;
    let mut point = armed(&stream, US)?;
    assert_eq!(point.query()?, Status::Done);
    assert_eq!((host.now(), device.counts().slow), (at(500_000 * US), 1));
    Ok(())
}

#[test]
fn a_stuck_point_is_never_done_for_the_driver_while_others_are() -> Result<(), Error> {
    let (device, host, stream) = device(Faults { stuck_ppm: ALWAYS, ..Faults::none() })?;
    let mut stuck = armed(&stream, US)?;
    device.set_faults(&Faults::none())?;
    assert_eq!(stuck.park(&host, Instant::MAX), Wake::Reached);
    assert_eq!(stream.point().query()?, Status::Done);
    assert_eq!((stuck.query()?, stuck.block(Some(at(9 * US)))?), (Status::Pending, Status::Pending));
    assert_eq!((host.now(), device.counts().stuck), (at(9 * US), 1));
    Ok(())
}

#[test]
fn the_device_faults_at_its_moment_and_no_store_of_unfinished_work_lands() -> Result<(), Error> {
    let (device, host, stream) = device(Faults { fault_at: Some(at(2 * US)), ..Faults::none() })?;
    let (mut before, behind) = (armed(&stream, US)?, armed(&stream, 2 * US)?);
    host.idle(Some(at(2 * US - 1)));
    assert!(before.query().is_ok() && device.health().is_none());
    host.idle(Some(at(9 * US)));
    assert!(before.query().is_err() && device.health().is_some());
    assert_eq!((before.poll(), behind.poll()), (Wake::Reached, Wake::Woke));
    assert_eq!(
        device.log().last().map(|entry| (entry.at, entry.event)),
        Some((at(2 * US), LogEvent::Faulted))
    );
    Ok(())
}

#[test]
fn the_device_faults_at_each_call_in_turn() -> Result<(), Error> {
    let calls = |fault_at_call| -> Result<Vec<bool>, Error> {
        let faults = Faults { fault_at_call, ..Faults::none() };
        let device = SimDevice::new(VirtualTime::new(), SimConfig { faults, ..SimConfig::exact() })?;
        let Ok(stream) = device.stream() else { return Ok(vec![false]) };
        let mut point = stream.point();
        Ok(vec![
            true,
            stream.launch(Nanos::ZERO).is_ok(),
            point.arm().is_ok(),
            point.query().is_ok(),
            point.block(None).is_ok(),
        ])
    };
    assert_eq!(calls(None)?, [true; 5]);
    assert_eq!(calls(Some(1))?, [false]);
    for nth in 2..=5 {
        let expected: Vec<bool> = (1..=5).map(|call| call < nth).collect();
        assert_eq!(calls(Some(nth))?, expected, "call {nth}");
    }
    Ok(())
}

#[test]
fn a_fault_nobody_knows_of_yet_completes_nothing_more() -> Result<(), Error> {
    let (device, host, stream) = device(Faults { fault_lag_ns: 340_000 * US, ..Faults::none() })?;
    let mut before = armed(&stream, US)?;
    host.idle(Some(at(US)));
    device.inject_fault();
    let mut after = armed(&stream, US)?; // accepted
    assert_eq!((before.query()?, after.query()?), (Status::Done, Status::Pending));
    assert_eq!(after.park(&host, at(300_000 * US)), Wake::Woke);
    assert!(after.block(None).is_err(), "a blocking wait ends when the fault becomes known");
    assert_eq!(host.now(), at(340_001 * US));
    assert!(before.query().is_err());
    Ok(())
}

#[test]
fn a_query_during_an_unknown_fault_submits_nothing_more() -> Result<(), Error> {
    let faults = Faults { deferred_store_ppm: ALWAYS, fault_lag_ns: 340_000 * US, ..Faults::none() };
    let (device, host, stream) = device(faults)?;
    let mut point = armed(&stream, US)?;
    stream.launch(Nanos::ZERO)?;
    let mut behind = stream.point();
    host.idle(Some(at(2 * US)));
    device.inject_fault();
    assert_eq!((point.query()?, behind.query()?), (Status::Done, Status::Pending));
    assert_eq!(point.park(&host, at(300_000 * US)), Wake::Woke);
    assert_eq!(behind.query()?, Status::Pending);
    Ok(())
}

#[test]
fn a_park_ends_for_no_reason() -> Result<(), Error> {
    let (_, host, _) = device(Faults { spurious_wake: Chance::always(7), ..Faults::none() })?;
    assert_eq!((host.park(None, at(100), || false), host.now()), (Wake::Woke, at(7)));
    assert_eq!((host.park(None, at(9), || false), host.now()), (Wake::Woke, at(9)), "never after its end");
    Ok(())
}

#[test]
fn a_park_that_ends_for_no_reason_at_once_still_lets_time_pass() -> Result<(), Error> {
    let (_, host, _) = device(Faults { spurious_wake: Chance::always(0), ..Faults::none() })?;
    for ns in 1..=3 {
        assert_eq!((host.park(None, at(3), || false), host.now()), (Wake::Woke, at(ns)));
    }
    Ok(())
}

#[test]
fn a_sleep_ends_early_but_time_always_passes() -> Result<(), Error> {
    let (_, host, _) = device(Faults { early_sleep: Chance::always(30), ..Faults::none() })?;
    host.idle(Some(at(100)));
    assert_eq!(host.now(), at(70));
    let mut sleeps = 0;
    while host.now() < at(100) {
        host.idle(Some(at(100)));
        sleeps += 1;
    }
    assert_eq!((sleeps, host.now()), (5, at(100)));
    host.idle(None);
    assert_eq!(host.now(), at(100));
    Ok(())
}

#[test]
fn the_clock_jumps_and_what_came_due_has_happened() -> Result<(), Error> {
    let (_, host, stream) = device(Faults { clock_step: Chance::always(50 * US), ..Faults::none() })?;
    let point = armed(&stream, 20 * US)?;
    host.idle(Some(at(US)));
    assert_eq!((host.now(), point.poll()), (at(51 * US), Wake::Reached));
    Ok(())
}

#[test]
fn faults_out_of_range_are_refused_and_the_old_ones_stay() -> Result<(), Error> {
    let (device, _, _) = device(Faults::none())?;
    let error = device.set_faults(&Faults { stuck_ppm: ALWAYS + 1, ..Faults::none() }).err();
    assert_eq!(
        error.map(|error| error.to_string()).as_deref(),
        Some("faults.stuck_ppm is 1000001, but must be from 0 to 1000000")
    );
    assert_eq!(device.faults(), Faults::none());
    Ok(())
}

#[test]
fn a_fault_that_was_planned_can_be_called_off() -> Result<(), Error> {
    let (device, host, _) = device(Faults { fault_at: Some(at(10)), ..Faults::none() })?;
    device.set_faults(&Faults::none())?;
    host.idle(Some(at(20)));
    assert!(device.health().is_none());
    Ok(())
}

#[test]
fn a_repeated_store_lands_again_and_changes_nothing() -> Result<(), Error> {
    let (device, host, stream) = device(Faults { repeated_store: Chance::always(5 * US), ..Faults::none() })?;
    let first = armed(&stream, US)?;
    host.idle(Some(at(US)));
    device.set_faults(&Faults::none())?;
    let second = armed(&stream, US)?;
    host.idle(Some(at(9 * US)));
    assert_eq!((device.counts().repeated, device.counts().landed), (1, 3));
    assert_eq!(second.descriptor().map(MemoryDescriptor::word), Some(Seq::new(2)));
    assert_eq!(first.witness().truth().landed_at, Some(at(US)));
    let events: Vec<_> = device.log().iter().rev().take(1).map(|entry| (entry.at, entry.event)).collect();
    assert_eq!(events, [(at(6 * US), LogEvent::Overtaken(Seq::new(1)))]);
    Ok(())
}

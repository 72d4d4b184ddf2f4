//! Streams that wait for the host.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use wakeline_core::{CompletionPort, Instant, Nanos, Status};
use wakeline_sim::{Misuse, SimConfig, SimDevice, VirtualTime};

const US: Nanos = Nanos::from_micros(1);

fn device() -> SimDevice {
    SimDevice::new(VirtualTime::new(), SimConfig::exact()).unwrap()
}

#[test]
fn what_is_behind_a_gate_starts_when_it_is_opened_in_every_stream() {
    let device = device();
    let gate = device.gate().unwrap();
    let streams = [device.stream().unwrap(), device.stream().unwrap()];
    let mut points = streams.each_ref().map(|stream| {
        stream.launch(US).unwrap();
        let before = stream.point();
        stream.wait_open(&gate).unwrap();
        stream.launch(US).unwrap();
        (before, stream.point())
    });
    device.time().clock().advance(Nanos::from_millis(5));
    for (before, behind) in &mut points {
        assert_eq!((before.query().unwrap(), behind.query().unwrap()), (Status::Done, Status::Pending));
    }
    gate.open();
    for (_, behind) in &mut points {
        assert_eq!(behind.block(None).unwrap(), Status::Done);
        assert_eq!(behind.witness().truth().ended_at, Some(Instant::ORIGIN + Nanos::from_millis(5) + US));
    }
    // It stays open.
    streams[0].wait_open(&gate).unwrap();
    assert_eq!(streams[0].point().query().unwrap(), Status::Done);
    drop(gate);
    assert_eq!(device.misuses(), []);
}

#[test]
fn a_gate_that_goes_is_opened_and_told_where_a_stream_was_to_come_to_it() {
    let device = device();
    let stream = device.stream().unwrap();
    let gate = device.gate().unwrap();
    stream.launch(US).unwrap();
    stream.wait_open(&gate).unwrap();
    drop(gate);
    assert_eq!(device.misuses(), [Misuse::WordInUse { waits: 1 }]);
    assert_eq!(stream.point().block(None).unwrap(), Status::Done, "nothing hangs for it");
    let (other, gate) =
        (SimDevice::new(VirtualTime::new(), SimConfig::exact()).unwrap(), device.gate().unwrap());
    other.stream().unwrap().wait_open(&gate).unwrap_err();
    assert_eq!(other.misuses(), [Misuse::Foreign]);
}

#[test]
fn after_a_fault_a_gate_opens_and_goes_without_a_word() {
    let device = device();
    let (stream, gate) = (device.stream().unwrap(), device.gate().unwrap());
    stream.wait_open(&gate).unwrap();
    device.inject_fault();
    assert_eq!(stream.wait_open(&gate).unwrap_err().to_string(), device.health().unwrap().to_string());
    gate.open();
    drop(gate);
    device.gate().unwrap_err();
    assert_eq!(device.misuses(), []);
}

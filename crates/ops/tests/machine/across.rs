//! What devices have to do with each other: copies, and conflicting uses of one tensor on several devices.

use std::sync::{Arc, Mutex};

use wakeline_core::{Clock, ErrorCode, Nanos};
use wakeline_ops::port::{Link, Priority};
use wakeline_ops::{
    DeviceFuture, DeviceOp, STAGE_BYTES, STAGES_MAX, SingleStream, Submission, gate, value, with_context,
};
use wakeline_sim::{SimConfig, SimDevice};
use wakeline_tensor::Tensor;

use crate::common::{Busy, CONFIG, poll_once};
use crate::{Bytes, Machines, busy};

const COPY: Nanos = Nanos::from_nanos(CONFIG.copy_ns);
const APART: SimConfig = SimConfig { peer_access: false, ..CONFIG };

/// How memory gets from one device to another.
const WAYS: [(&SimConfig, Link); 2] = [(&CONFIG, Link::Direct), (&APART, Link::Staged)];

fn pair(config: &SimConfig) -> Machines {
    Machines::with(2, config, &SingleStream)
}

#[test]
fn a_copy_waits_on_the_device_for_the_write_on_the_other() {
    for (config, link) in WAYS {
        let rig = pair(config);
        assert_eq!(rig.machine.link(0, 1).unwrap(), link);
        let copies = Arc::new(Mutex::new(None));
        let give = Arc::clone(&copies);
        let mut before = busy(5_000).on(rig.on(0));
        let written = Tensor::full(8, 4).map(move |tensor: Bytes| {
            *give.lock().unwrap() = Some(tensor.to_device());
            tensor
        });
        let start = rig.watcher.now();
        let mut written = submit(&rig, &mut before, written);
        let copy = copies.lock().unwrap().take().unwrap().then(|copy| copy.to_host());
        let blocks: Vec<_> = rig.devices.iter().map(|device| device.counts().blocks).collect();
        assert_eq!(rig.run(copy.on(rig.on(1))).unwrap(), [4; 8]);
        // The allocation and the fill there, one copy or two, and the read; the allocation here runs beside them.
        let copies = if link == Link::Direct { COPY } else { COPY + COPY };
        let took = rig.watcher.now().since(start);
        assert_eq!(took, Nanos::from_micros(5_000) + COPY + COPY + copies + COPY, "{link:?}");
        assert_eq!(blocks, rig.devices.iter().map(|device| device.counts().blocks).collect::<Vec<_>>());
        drop(rig.run(&mut written).unwrap());
        rig.run(before).unwrap();
        drop(written);
        rig.assert_clean();
    }
}

/// Submits both on the first device.
fn submit<O>(rig: &Machines, before: &mut DeviceFuture<Busy<()>>, op: O) -> DeviceFuture<O>
where
    O: DeviceOp<Device = SimDevice>,
{
    let mut future = op.on(rig.on(0));
    assert!(poll_once(before).is_pending() && poll_once(&mut future).is_pending());
    future
}

#[test]
fn a_write_waits_for_the_copy_that_another_device_makes_before_it() {
    for (config, link) in WAYS {
        let rig = pair(config);
        let tensor: Bytes = rig.run(Tensor::full(8, 1).on(rig.on(0))).unwrap();
        let twos: Bytes = rig.run(Tensor::full(8, 2).on(rig.on(0))).unwrap();
        let mut before = busy(5_000).on(rig.on(1));
        let mut copy = tensor.to_device().on(rig.on(1));
        assert!(poll_once(&mut before).is_pending() && poll_once(&mut copy).is_pending());
        let start = rig.watcher.now();
        let tensor = rig.run(twos.copy_to(tensor).on(rig.on(0))).unwrap();
        let took = rig.watcher.now().since(start);
        // By way of the host it has left its device by the time that the other one is at work on something else.
        let waits = if link == Link::Direct { Nanos::from_micros(5_000) } else { Nanos::ZERO };
        assert!(took >= waits + COPY && took <= waits + COPY + COPY + COPY, "{link:?}: {took}");
        let copy = rig.run(copy).unwrap();
        assert_eq!(rig.run(copy.to_host().on(rig.on(1))).unwrap(), [1; 8], "{link:?}");
        assert_eq!(rig.run(tensor.to_host().on(rig.on(0))).unwrap(), [2; 8]);
        rig.run(before).unwrap();
        drop((tensor, twos, copy));
        rig.assert_clean();
    }
}

#[test]
fn numbers_go_round_three_devices_whatever_their_count() {
    for (config, link) in WAYS {
        let rig = Machines::with(3, config, &SingleStream);
        rig.machine.link_all().unwrap();
        for len in [0, 1, 1_000, STAGE_BYTES + 3] {
            let numbers: Vec<u8> = (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let mut tensor: Bytes = rig.run(Tensor::from_host(numbers.clone()).on(rig.on(0))).unwrap();
            for device in [1, 2, 0] {
                tensor = rig.run(tensor.to_device().on(rig.on(device))).unwrap();
            }
            let target: Bytes = rig.run(Tensor::full(len, 9).on(rig.on(2))).unwrap();
            let target = rig.run(tensor.send_to(target).on(rig.on(2))).unwrap();
            assert!(rig.run(target.to_host().on(rig.on(2))).unwrap() == numbers, "{len} by {link:?}");
        }
        rig.assert_clean();
    }
}

#[test]
fn what_goes_by_way_of_the_host_needs_a_few_blocks_and_its_pieces_overlap() {
    const PIECES: usize = 5;
    let rig = pair(&APART);
    let tensor: Bytes = rig.run(Tensor::full(PIECES * STAGE_BYTES, 7).on(rig.on(0))).unwrap();
    let target: Bytes = rig.run(Tensor::uninit(PIECES * STAGE_BYTES).on(rig.on(1))).unwrap();
    let start = rig.watcher.now();
    let target = rig.run(tensor.send_to(target).on(rig.on(1))).unwrap();
    let took = rig.watcher.now().since(start);
    assert_eq!(took, Nanos::from_nanos(COPY.as_nanos() * (PIECES as u64 + 1)), "one after the other were 10");
    let pinned =
        rig.devices.iter().map(|device| wakeline_ops::port::Pools::pinned_pool(device).high_water_bytes);
    assert_eq!(pinned.sum::<u64>(), (STAGES_MAX * STAGE_BYTES) as u64);
    assert!(rig.run(target.to_host().on(rig.on(1))).unwrap().iter().all(|byte| *byte == 7));
    drop((tensor, target));
    rig.assert_clean();
}

#[test]
fn what_a_copy_keeps_lives_until_it_is_done_whatever_becomes_of_its_future() {
    for (config, _) in WAYS {
        let rig = pair(config);
        let tensor: Bytes = rig.run(Tensor::full(8, 1).on(rig.on(0))).unwrap();
        let mut before = busy(5_000).on(rig.on(1));
        let mut copy = tensor.to_device().on(rig.on(1));
        assert!(poll_once(&mut before).is_pending() && poll_once(&mut copy).is_pending());
        drop((copy, tensor));
        // Memory that is given out anew is filled while the copy is still to come: the devices would see that.
        let others: Vec<Bytes> =
            (0..4).map(|byte| rig.run(Tensor::full(8, byte).on(rig.on(0))).unwrap()).collect();
        rig.run(before).unwrap();
        drop(others);
        rig.assert_clean();
    }
}

#[test]
fn what_belongs_elsewhere_is_told_and_nothing_of_it_runs() {
    let rig = pair(&CONFIG);
    let tensor: Bytes = rig.run(Tensor::full([4, 2], 1).on(rig.on(0))).unwrap();
    let error = rig.run(tensor.to_host().on(rig.on(1))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ForeignMemory, "only a copy leaves its device");
    let view = tensor.select(1, 0).unwrap();
    assert_eq!(rig.run(view.to_device().on(rig.on(1))).unwrap_err().code(), ErrorCode::InvalidShape);
    let small: Bytes = rig.run(Tensor::full(3, 1).on(rig.on(1))).unwrap();
    assert_eq!(rig.run(tensor.send_to(small).on(rig.on(1))).unwrap_err().code(), ErrorCode::InvalidShape);
    let here: Bytes = rig.run(Tensor::full([4, 2], 1).on(rig.on(0))).unwrap();
    assert_eq!(
        rig.run(tensor.send_to(here).on(rig.on(1))).unwrap_err().code(),
        ErrorCode::ForeignMemory,
        "it runs where its target is"
    );
    let stream = rig.on(1).stream(Priority::Normal).unwrap();
    let target: Bytes = rig.run(Tensor::full([4, 2], 1).on(rig.on(1))).unwrap();
    let refused = tensor.send_to(target).map(drop).graph_on(&stream).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::CaptureRefused, "{refused}");
    assert!(refused.to_string().contains("a copy from another device"), "{refused}");
    let apart = pair(&CONFIG);
    let error = apart.run(tensor.to_device().on(apart.on(0))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ForeignMemory, "of another machine");
    // On its own device it is a copy as any.
    let copy = rig.run(tensor.to_device().on(rig.on(0))).unwrap();
    assert_eq!(rig.run(copy.to_host().on(rig.on(0))).unwrap(), [1; 8]);
    drop((tensor, view, copy));
    apart.assert_clean();
    rig.assert_clean();
}

/// Waiting for room behind a gate that is closed on another device would be for good.
#[test]
fn a_gate_of_one_device_in_front_of_another_is_known_there() {
    for (config, _) in WAYS {
        let rig = pair(config);
        let (handle, opened) = gate(Nanos::from_millis(50)).unwrap();
        let copies = Arc::new(Mutex::new(None));
        let give = Arc::clone(&copies);
        let held = opened.then(|()| Tensor::full(8, 1_u8)).map(move |tensor: Bytes| {
            *give.lock().unwrap() = Some(tensor.to_device());
            tensor
        });
        let mut held = held.on(rig.on(0));
        assert!(poll_once(&mut held).is_pending());
        let copy = copies.lock().unwrap().take().unwrap();
        let many = with_context(move |submission: &mut Submission<SimDevice>| {
            let copy = copy.execute(submission)?;
            for number in 0..10_000 {
                if let Err(error) = submission.room(1) {
                    return Ok(value((copy, number, Some(error.code()))));
                }
                submission.stream().raw().launch(Nanos::from_nanos(1))?;
            }
            Ok(value((copy, 10_000, None)))
        });
        let mut many = many.on(rig.on(1));
        assert!(poll_once(&mut many).is_pending());
        handle.open().unwrap();
        let (copy, enqueued, code) = rig.run(many).unwrap();
        assert_eq!(code, Some(ErrorCode::QueueFull), "{enqueued}");
        assert_eq!(rig.run(copy.to_host().on(rig.on(1))).unwrap(), [1; 8]);
        drop((rig.run(held).unwrap(), copy));
        rig.assert_clean();
    }
}

#[test]
fn a_copy_beyond_the_end_of_either_memory_is_told_before_anything_is_written() {
    const LEN: usize = STAGE_BYTES + 4;
    for (config, link) in WAYS {
        let rig = pair(config);
        let from: Bytes = rig.run(Tensor::full(LEN + 4, 7).on(rig.on(0))).unwrap();
        let to: Bytes = rig.run(Tensor::zeros(LEN).on(rig.on(1))).unwrap();
        for (start, target, len) in [
            (0, 0, LEN + 4),
            (8, 0, LEN),
            (0, 4, LEN),
            (0, usize::MAX, 1),
            (0, 0, usize::MAX),
            (usize::MAX, usize::MAX, usize::MAX),
        ] {
            let (source, to) = (Arc::clone(from.storage()), Arc::clone(to.storage()));
            let copy = with_context(move |submission: &mut Submission<SimDevice>| {
                submission.copy_across((&source, start), (&to, target), len)?;
                Ok(value(()))
            });
            let error = rig.run(copy.on(rig.on(1))).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidLimit, "{link:?} {start} {target} {len}: {error}");
        }
        let numbers = rig.run(to.to_host().on(rig.on(1))).unwrap();
        assert!(numbers.iter().all(|number| *number == 0), "{link:?}");
        drop((from, to));
        rig.assert_clean();
    }
}

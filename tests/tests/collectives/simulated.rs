//! What simulated devices alone can show: virtual time, the bits of a run, faults of a device, captures.

use libtest_mimic::Trial;
use wakeline_core::{Clock, ErrorCode, Instant};
use wakeline_ops::DeviceOp;
use wakeline_ops::port::{Priority, Reduce};
use wakeline_sim::COLLECTIVE_NS;
use wakeline_tensor::Tensor;
use wakeline_tests::ops_rig::poll_once;

use crate::ms;
use crate::rig::{HASTY, PATIENT, RanksRig, SimRanks};

pub(crate) fn trials() -> Vec<Trial> {
    type Run = fn();
    let all: [(&str, Run); 4] = [
        (
            "it_begins_when_the_last_has_come_and_takes_its_time",
            it_begins_when_the_last_has_come_and_takes_its_time,
        ),
        (
            "a_deadline_is_met_to_the_moment_and_the_others_streams_go_on",
            a_deadline_is_met_to_the_moment_and_the_others_streams_go_on,
        ),
        (
            "a_device_that_faults_ends_all_ranks_of_its_process_at_once",
            a_device_that_faults_ends_all_ranks_of_its_process_at_once,
        ),
        ("a_collective_is_no_part_of_a_graph", a_collective_is_no_part_of_a_graph),
    ];
    let trial = |(name, run): (&str, Run)| {
        Trial::test(format!("sim::simulated::{name}"), move || {
            run();
            Ok(())
        })
    };
    all.map(trial).into()
}

fn now(rig: &SimRanks) -> Instant {
    rig.devices()[0].time().now()
}

fn it_begins_when_the_last_has_come_and_takes_its_time() {
    let mut bits = Vec::new();
    for _ in 0..2 {
        let rig = SimRanks::new(3);
        let ranks = rig.ranks(PATIENT);
        let mut busy = rig.occupy(1, ms(30)).on(&rig.runtimes()[1]);
        assert!(poll_once(&mut busy).is_pending());
        let tensors = rig.tensors(|rank| vec![0.1_f32 * (rank as f32 + 1.0); 4]);
        let start = now(&rig);
        // The slow one comes by a stream that is busy for 30 ms more.
        let slow = rig.runtimes()[1].stream(Priority::Normal).unwrap();
        drop(slow);
        let each = ranks.together(|rank| {
            let length = if rank.number() == 2 { ms(30) } else { ms(1) };
            let tensor = tensors[rank.number()].dup();
            rig.occupy(rank.number(), length)
                .then(move |()| tensor)
                .then(move |tensor| rank.all_reduce(tensor, Reduce::Sum))
        });
        let sums = rig.run(each).unwrap();
        let took = now(&rig).since(start).as_nanos();
        let least = ms(30).as_nanos() + COLLECTIVE_NS;
        assert!((least..least + 200_000).contains(&took), "{took}");
        bits.push((took, sums.iter().enumerate().map(|(rank, sum)| rig.read(rank, sum)).collect::<Vec<_>>()));
        drop((sums, tensors, busy, ranks));
        rig.end();
    }
    assert_eq!(bits[0], bits[1], "the same run gives the same time and the same bits");
}

fn a_deadline_is_met_to_the_moment_and_the_others_streams_go_on() {
    let rig = SimRanks::new(2);
    let ranks = rig.ranks(HASTY);
    let rank = ranks.iter().next().unwrap();
    let stream = rig.runtimes()[0].stream(Priority::Normal).unwrap();
    let tensor = rig.run(Tensor::<f32, _>::zeros(4).on(&rig.runtimes()[0])).unwrap();
    let start = now(&rig);
    let behind = Tensor::<u8, _>::full(3, 9).then(|tensor| tensor.to_host());
    let mut alone = Box::new(rank.all_reduce(tensor, Reduce::Sum).on(&rig.runtimes()[0]));
    assert!(poll_once(&mut *alone).is_pending());
    drop(stream);
    let error = rig.run(alone).map(drop).unwrap_err();
    let took = now(&rig).since(start);
    assert_eq!(error.code(), ErrorCode::RankMissing);
    assert!(took >= HASTY.within && took < HASTY.within + ms(1), "{took}");
    assert_eq!(rig.run(behind.on(&rig.runtimes()[0])).unwrap(), [9; 3]);
    drop((rank, ranks));
    rig.end();
}

fn a_device_that_faults_ends_all_ranks_of_its_process_at_once() {
    let rig = SimRanks::new(2);
    let ranks = rig.ranks(PATIENT);
    let tensors = rig.tensors(|_| vec![1_u32; 4]);
    rig.devices()[1].inject_fault();
    let start = now(&rig);
    let error = rig.run(ranks.all_reduce(tensors, Reduce::Sum)).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Backend, "{error}");
    assert!(now(&rig).since(start) < ms(100));
    assert!(ranks.well().is_err());
}

fn a_collective_is_no_part_of_a_graph() {
    let rig = SimRanks::new(2);
    let ranks = rig.ranks(PATIENT);
    let rank = ranks.iter().next().unwrap();
    let tensor = rig.run(Tensor::<u32, _>::zeros(4).on(&rig.runtimes()[0])).unwrap();
    let stream = rig.runtimes()[0].stream(Priority::Normal).unwrap();
    let error = rank.all_reduce(tensor, Reduce::Sum).graph_on(&stream).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CaptureRefused, "{error}");
    ranks.well().unwrap();
    drop((rank, ranks, stream));
    rig.end();
}

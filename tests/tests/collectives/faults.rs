//! Ranks that do not come, or die: told in time, and nothing is left.

use std::time::{Duration, Instant as Wall};

use wakeline_core::{ErrorCode, Nanos};
use wakeline_ops::port::{Collectives, Reduce};
use wakeline_ops::{DeviceOp, Ranks};
use wakeline_tensor::Tensor;
use wakeline_tests::ops_rig::poll_once;

use crate::rig::{HASTY, HASTY_TO_JOIN, PATIENT, RanksRig};

/// By when a deadline of [`HASTY`] is told on a machine that does much else.
const LATE: Duration = Duration::from_secs(15);

pub(crate) fn a_rank_that_never_comes_is_told_by_the_deadline<R: RanksRig>(rig: &R) {
    let ranks = rig.ranks(HASTY);
    let rank = ranks.iter().next().unwrap();
    let tensor = || rig.run(Tensor::<f32, R::Device>::full(64, 1.0).on(&rig.runtimes()[0])).unwrap();
    let start = Wall::now();
    let alone = rank.all_reduce(tensor(), Reduce::Sum).on(&rig.runtimes()[0]);
    let error = rig.run(alone).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::RankMissing, "{error}");
    assert!(error.to_string().starts_with("all-reduce of rank 0 did not end within 100.000 ms"), "{error}");
    assert!(start.elapsed() < LATE);
    // From now on it refuses with that, for all of its ranks.
    for rank in ranks.iter() {
        let runtime = rank.runtime().unwrap().clone();
        let tensor = rig.run(Tensor::<u8, R::Device>::zeros(8).on(&runtime)).unwrap();
        let refused = rig.run(rank.broadcast(tensor, 0).on(&runtime)).map(drop).unwrap_err();
        assert_eq!(refused.to_string(), error.to_string());
    }
    assert_eq!(ranks.well().unwrap_err().to_string(), error.to_string());
    // The devices are well, and so is another communicator.
    drop(ranks);
    let again = rig.ranks(PATIENT);
    let sums = rig.run(again.all_reduce(rig.tensors(|_| vec![1_i32; 5]), Reduce::Sum)).unwrap();
    assert_eq!(rig.read(0, &sums[0]), vec![rig.world() as i32; 5]);
}

pub(crate) fn another_deadline_may_be_given_to_what_a_rank_does<R: RanksRig>(rig: &R) {
    let ranks = rig.ranks(PATIENT);
    let rank = ranks.iter().next().unwrap().within(Nanos::from_millis(20)).unwrap();
    let tensor = rig.run(Tensor::<f32, R::Device>::full(64, 1.0).on(&rig.runtimes()[0])).unwrap();
    let error = rig.run(rank.send(tensor, rig.world() - 1).on(&rig.runtimes()[0])).map(drop).unwrap_err();
    assert!(error.to_string().starts_with("send of rank 0 did not end within 20.000 ms"), "{error}");
    let none = rank.within(Nanos::from_nanos(0)).map(drop).unwrap_err();
    assert_eq!(none.code(), ErrorCode::InvalidLimit);
}

pub(crate) fn ranks_that_never_join_are_told_by_the_deadline<R: RanksRig>(rig: &R) {
    let id = R::Device::unique_id(rig.library()).unwrap();
    let start = Wall::now();
    let only = vec![(0, rig.runtimes()[0].clone())];
    let error = rig.run(Ranks::join(rig.library(), &id, 2, only, HASTY_TO_JOIN)).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::RankMissing, "{error}");
    assert!(error.to_string().starts_with("joining a communicator did not end within 100.000 ms"), "{error}");
    assert!(start.elapsed() < LATE);
    // One that nobody waits for any more gives up.
    let id = R::Device::unique_id(rig.library()).unwrap();
    let mut dropped = Ranks::join(rig.library(), &id, 2, vec![(1, rig.runtimes()[1].clone())], PATIENT);
    assert!(poll_once(&mut dropped).is_pending());
    drop(dropped);
    // And ranks that cannot be those of one communicator.
    let runtime = || rig.runtimes()[0].clone();
    for (ranks, says) in [
        (vec![(2, runtime())], "rank 2 is beyond the last of 2, which is 1"),
        (vec![(1, runtime()), (1, runtime())], "rank 1 is there twice"),
        (vec![], "a process has one rank at least"),
    ] {
        let error = rig.run(Ranks::join(rig.library(), &id, 2, ranks, PATIENT)).map(drop).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidCollective);
        assert!(error.to_string().contains(says), "{error}");
    }
}

pub(crate) fn ranks_join_by_an_id_in_any_order<R: RanksRig>(rig: &R) {
    let (id, world) = (R::Device::unique_id(rig.library()).unwrap(), rig.world());
    let mut joining: Vec<_> = (0..world)
        .rev()
        .map(|rank| {
            Ranks::join(rig.library(), &id, world, vec![(rank, rig.runtimes()[rank].clone())], PATIENT)
        })
        .collect();
    // All begin before any is there.
    joining.iter_mut().take(world - 1).for_each(|joining| assert!(poll_once(joining).is_pending()));
    let last = rig.run(joining.pop().unwrap()).unwrap();
    let mut all = vec![last];
    all.extend(joining.into_iter().rev().map(|joining| rig.run(joining).unwrap()));
    assert_eq!(all[world - 1].iter().next().unwrap().number(), world - 1);
    // Each by itself, as of processes of their own.
    let mut sums = Vec::new();
    for (rank, ranks) in all.iter().enumerate() {
        let tensor =
            rig.run(Tensor::<u64, R::Device>::full(3, rank as u64).on(&rig.runtimes()[rank])).unwrap();
        let mut sum = Box::new(ranks.all_reduce(vec![tensor], Reduce::Sum));
        let early = poll_once(&mut *sum);
        sums.push((sum, early));
    }
    for (rank, (sum, early)) in sums.into_iter().enumerate() {
        let sum = match early {
            std::task::Poll::Ready(sum) => sum,
            std::task::Poll::Pending => rig.run(sum),
        };
        let right = (world * (world - 1) / 2) as u64;
        assert_eq!(rig.read(rank, &sum.unwrap()[0]), vec![right; 3]);
    }
}

pub(crate) fn ranks_that_do_different_things_at_one_time_are_told<R: RanksRig>(rig: &R) {
    let ranks = rig.ranks(PATIENT);
    let different = ranks.together(|rank| {
        let count = 4 + rank.number();
        Tensor::<f32, R::Device>::zeros(count).then(move |tensor| rank.all_reduce(tensor, Reduce::Sum))
    });
    let error = rig.run(different).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidCollective, "{error}");
    assert!(error.to_string().contains("rank 1: AllReduce(Sum) of 5 F32"), "{error}");
    assert!(ranks.well().is_err());
    // And of numbers from one to another: told at once, not by the deadline.
    drop(ranks);
    let ranks = rig.ranks(PATIENT);
    let start = Wall::now();
    let ends = ranks.together(|rank| {
        let (own, is_first) = (rank.number(), rank.number() == 0);
        Tensor::<f32, R::Device>::zeros(4 + own).then(move |tensor| {
            let (mut sends, mut receives) = (Vec::new(), Vec::new());
            if is_first {
                sends.push((tensor, 1));
            } else {
                receives.push((tensor, 0));
            }
            rank.exchange(sends, receives)
        })
    });
    let error = rig.run(ends).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidCollective, "{error}");
    assert!(error.to_string().contains("rank 1: Receive(0) of 5 F32"), "{error}");
    assert!(start.elapsed() < LATE);
}

pub(crate) fn an_abort_ends_what_is_under_way_with_its_cause<R: RanksRig>(rig: &R) {
    let ranks = rig.ranks(PATIENT);
    let rank = ranks.iter().next().unwrap();
    let tensor = rig.run(Tensor::<f32, R::Device>::zeros(9).on(&rig.runtimes()[0])).unwrap();
    let mut alone = rank.all_reduce(tensor, Reduce::Sum).on(&rig.runtimes()[0]);
    assert!(poll_once(&mut alone).is_pending());
    let cause = wakeline_core::Error::new(ErrorCode::Cancelled, [&"(none)", &"(none)", &"a test"]);
    ranks.abort(&cause);
    ranks.abort(&wakeline_core::Error::new(ErrorCode::NoRuntime, []));
    assert_eq!(rig.run(alone).map(drop).unwrap_err().to_string(), cause.to_string());
    assert_eq!(ranks.well().unwrap_err().code(), ErrorCode::Cancelled, "the first counts");
}

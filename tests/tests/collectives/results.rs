//! What collectives compute, of every kind of number, and in which order with all else.

use std::sync::Arc;
use std::task::Poll;

use half::{bf16, f16};
use wakeline_core::ErrorCode;
use wakeline_ops::port::{Number, Reduce};
use wakeline_ops::{DeviceOp, Numbers, zip};
use wakeline_tensor::Tensor;
use wakeline_tests::ops_rig::poll_once;

use crate::reference::{REDUCES, Sample, assert_reduced, numbers, reduced};
use crate::rig::{PATIENT, RanksRig};

const COUNT: usize = 37;

fn all_reduce_of<T: Sample, R: RanksRig>(rig: &R, ranks: &wakeline_ops::Ranks<R::Device>) {
    for (seed, reduce) in REDUCES.into_iter().enumerate() {
        let each: Vec<Vec<T>> = (0..rig.world()).map(|rank| numbers(seed as u64, rank, COUNT)).collect();
        let sums = ranks.all_reduce(rig.tensors(|rank| each[rank].clone()), reduce);
        let sums = rig.run(sums).unwrap();
        for (rank, sum) in sums.iter().enumerate() {
            assert_reduced("all-reduce", reduce, &rig.read(rank, sum), &reduced(reduce, &each));
        }
    }
}

/// What a future that was polled once gives.
fn ended<R: RanksRig, F: Future + Unpin>(rig: &R, future: F, early: Poll<F::Output>) -> F::Output {
    match early {
        Poll::Ready(output) => output,
        Poll::Pending => rig.run(future),
    }
}

pub(crate) fn all_kinds_of_numbers_are_reduced_in_all_ways<R: RanksRig>(rig: &R) {
    let ranks = rig.ranks(PATIENT);
    all_reduce_of::<i8, R>(rig, &ranks);
    all_reduce_of::<u8, R>(rig, &ranks);
    all_reduce_of::<i32, R>(rig, &ranks);
    all_reduce_of::<u32, R>(rig, &ranks);
    all_reduce_of::<i64, R>(rig, &ranks);
    all_reduce_of::<u64, R>(rig, &ranks);
    all_reduce_of::<f16, R>(rig, &ranks);
    all_reduce_of::<bf16, R>(rig, &ranks);
    all_reduce_of::<f32, R>(rig, &ranks);
    all_reduce_of::<f64, R>(rig, &ranks);
}

pub(crate) fn each_rank_gets_what_it_is_to_get<R: RanksRig>(rig: &R) {
    let (ranks, world) = (rig.ranks(PATIENT), rig.world());
    let each: Vec<Vec<i32>> = (0..world).map(|rank| numbers(9, rank, COUNT)).collect();
    let own = || rig.tensors(|rank| each[rank].clone());
    let zeros = |count: usize| rig.tensors(move |_| vec![0_i32; count]);

    // All-reduce into other memory leaves what it reads.
    let mut pairs = own().into_iter().zip(zeros(COUNT));
    let both = ranks.together(|rank| {
        let (from, to) = pairs.next().unwrap();
        rank.all_reduce_into(from, to, Reduce::Sum)
    });
    for (rank, (from, to)) in rig.run(both).unwrap().iter().enumerate() {
        assert_eq!(rig.read(rank, from), each[rank]);
        assert_eq!(rig.read(rank, to), reduced(Reduce::Sum, &each));
    }
    // All-gather, and in place.
    let gathered = ranks.all_gather(own().into_iter().zip(zeros(COUNT * world)).collect());
    for (rank, (_, to)) in rig.run(gathered).unwrap().iter().enumerate() {
        assert_eq!(rig.read(rank, to), each.concat());
    }
    let placed = |rank: usize| {
        let mut all = vec![-1; COUNT * world];
        all[rank * COUNT..(rank + 1) * COUNT].copy_from_slice(&each[rank]);
        all
    };
    let mut own_places = rig.tensors(placed).into_iter();
    let gathered = ranks.together(|rank| rank.all_gather_in_place(own_places.next().unwrap()));
    for (rank, all) in rig.run(gathered).unwrap().iter().enumerate() {
        assert_eq!(rig.read(rank, all), each.concat());
    }
    // Reduce-scatter, and in place.
    let wide: Vec<Vec<i32>> = (0..world).map(|rank| numbers(11, rank, COUNT * world)).collect();
    let sums = reduced(Reduce::Sum, &wide);
    let part = |rank: usize| &sums[rank * COUNT..(rank + 1) * COUNT];
    let froms = rig.tensors(|rank| wide[rank].clone());
    let scattered = ranks.reduce_scatter(froms.into_iter().zip(zeros(COUNT)).collect(), Reduce::Sum);
    for (rank, (from, to)) in rig.run(scattered).unwrap().iter().enumerate() {
        assert_eq!((&*rig.read(rank, to), rig.read(rank, from)), (part(rank), wide[rank].clone()));
    }
    let mut wides = rig.tensors(|rank| wide[rank].clone()).into_iter();
    let scattered = ranks.together(|rank| rank.reduce_scatter_in_place(wides.next().unwrap(), Reduce::Sum));
    for (rank, all) in rig.run(scattered).unwrap().iter().enumerate() {
        assert_eq!(&rig.read(rank, all)[rank * COUNT..(rank + 1) * COUNT], part(rank));
    }
    // Broadcast and reduce, of the last rank.
    let root = world - 1;
    for (rank, all) in rig.run(ranks.broadcast(own(), root)).unwrap().iter().enumerate() {
        assert_eq!(rig.read(rank, all), each[root]);
    }
    let all = rig.run(ranks.reduce(own(), Reduce::Max, root)).unwrap();
    assert_eq!(rig.read(root, &all[root]), reduced(Reduce::Max, &each));
}

pub(crate) fn numbers_go_from_rank_to_rank_and_around<R: RanksRig>(rig: &R) {
    let (ranks, world) = (rig.ranks(PATIENT), rig.world());
    let own = || rig.tensors(|rank| vec![rank as u64; COUNT]);
    let mut rooms = own().into_iter();
    // From the first to the last.
    let both: Vec<_> = ranks.iter().collect();
    let (first, last) = (&both[0], &both[world - 1]);
    let sent = first.send(rooms.next().unwrap(), world - 1).on(first.runtime().unwrap());
    let got = last.receive(rooms.last().unwrap(), 0).on(last.runtime().unwrap());
    // Neither waits for the other's submission.
    let (mut sent, mut got) = (sent, got);
    let (early, soon) = (poll_once(&mut sent), poll_once(&mut got));
    let (got, sent) = (ended(rig, got, soon), ended(rig, sent, early));
    assert_eq!(rig.read(world - 1, &got.unwrap()), vec![0; COUNT]);
    drop(sent.unwrap());
    // Around a ring, all at a time.
    let mut rooms = own().into_iter().zip(own());
    let around = ranks.together(|rank| {
        let (own, room) = rooms.next().unwrap();
        let (next, before) = ((rank.number() + 1) % world, (rank.number() + world - 1) % world);
        rank.exchange(vec![(own, next)], vec![(room, before)])
    });
    for (rank, (_, got)) in rig.run(around).unwrap().iter().enumerate() {
        assert_eq!(rig.read(rank, &got[0]), vec![((rank + world - 1) % world) as u64; COUNT]);
    }
}

pub(crate) fn what_writes_before_and_reads_after_is_ordered_on_the_device<R: RanksRig>(rig: &R) {
    let (ranks, world) = (rig.ranks(PATIENT), rig.world());
    for turn in 0..4_u32 {
        let tensors = rig.tensors(|rank| vec![rank as u32 + turn; 1_000]);
        // The memory, by a name that tensors do not count: all of this is submitted before any of it is done.
        let memory = |tensor: &Tensor<u32, R::Device>| Numbers {
            storage: Arc::clone(tensor.storage()),
            offset_bytes: 0,
            count: 1_000,
            number: Number::U32,
        };
        let (mut busy, mut changed, mut read) = (Vec::new(), Vec::new(), Vec::new());
        let mut submit = |rank: usize, factor, addend| {
            let mut occupied = rig.occupy(rank, crate::ms(5)).on(&rig.runtimes()[rank]);
            let mut change = rig.affine(rank, &tensors[rank], factor, addend).on(&rig.runtimes()[rank]);
            let _ = (poll_once(&mut occupied), poll_once(&mut change));
            busy.push(occupied);
            changed.push(change);
        };
        (0..world).for_each(|rank| submit(rank, 3, 1));
        let mut sums = ranks.all_reduce(tensors.iter().map(memory).collect(), Reduce::Sum);
        let first = poll_once(&mut sums);
        (0..world).for_each(|rank| submit(rank, 2, 0));
        let mut again = ranks.all_reduce(tensors.iter().map(memory).collect(), Reduce::Sum);
        let second = poll_once(&mut again);
        for (rank, tensor) in tensors.iter().enumerate() {
            let mut numbers = tensor.to_host().on(&rig.runtimes()[rank]);
            let early = poll_once(&mut numbers);
            read.push((numbers, early));
        }
        let right: u32 = (0..world as u32).map(|rank| (rank + turn) * 3 + 1).sum();
        for (numbers, early) in read {
            assert_eq!(ended(rig, numbers, early).unwrap(), vec![right * 2 * world as u32; 1_000]);
        }
        drop((ended(rig, sums, first).unwrap(), ended(rig, again, second).unwrap()));
    }
}

pub(crate) fn it_composes_with_other_operations_of_its_device<R: RanksRig>(rig: &R) {
    let ranks = rig.ranks(PATIENT);
    let each = ranks.together(|rank| {
        let number = rank.number() as u32;
        let (sum, kept) = (rank.clone(), Tensor::full(8, number + 1));
        zip!(kept, Tensor::<u32, R::Device>::full(4, 7))
            .then(move |(tensor, other)| sum.all_reduce(tensor, Reduce::Sum).map(|tensor| (tensor, other)))
            .then(|(tensor, other)| zip!(tensor.to_host(), other.to_host()))
    });
    let world = rig.world() as u32;
    for (sum, other) in rig.run(each).unwrap() {
        assert_eq!((sum, other), (vec![world * (world + 1) / 2; 8], vec![7; 4]));
    }
}

pub(crate) fn what_cannot_be_done_is_told_and_leaves_the_communicator_well<R: RanksRig>(rig: &R) {
    let (ranks, world) = (rig.ranks(PATIENT), rig.world());
    let rank = ranks.iter().next().unwrap();
    let runtime = &rig.runtimes()[0];
    let tensor = || rig.run(Tensor::<f32, R::Device>::zeros(world + 1).on(runtime)).unwrap();
    let wrong = |error: wakeline_core::Error, says: &str| {
        assert_eq!(error.code(), ErrorCode::InvalidCollective, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    };
    let run = |op| rig.run(DeviceOp::on(op, runtime)).map(drop).unwrap_err();
    wrong(run(rank.broadcast(tensor(), world)), &format!("rank {world} is beyond the last of {world}"));
    wrong(run(rank.send(tensor(), 0)), "rank 0 is the own one");
    if world > 1 {
        wrong(run(rank.all_gather_in_place(tensor())), "are not so many for each of");
        let elsewhere = rank.all_reduce(tensor(), Reduce::Sum).on(&rig.runtimes()[1]);
        wrong(rig.run(elsewhere).map(drop).unwrap_err(), "run it on `rank.runtime()`");
    }
    let few = rank.all_gather(tensor(), tensor());
    if world > 1 {
        wrong(rig.run(few.on(runtime)).map(drop).unwrap_err(), "numbers are written");
    }
    // Others name it.
    let shared = tensor();
    let clone = shared.clone();
    let error = run(rank.all_reduce(shared, Reduce::Sum));
    assert_eq!(error.code(), ErrorCode::TensorShared);
    drop(clone);
    // More than can be counted, of the last rank: whose part would begin farthest in it.
    let (last, own) = (ranks.iter().last().unwrap(), &rig.runtimes()[world - 1]);
    let memory = rig.run(Tensor::<u32, R::Device>::zeros(4).on(own)).unwrap();
    for count in [usize::MAX / world * world, usize::MAX / 4 / world * world] {
        let much = |offset_bytes| Numbers {
            storage: Arc::clone(memory.storage()),
            offset_bytes,
            count,
            number: Number::U32,
        };
        let all = [
            last.all_gather_in_place(much(0)),
            last.reduce_scatter_in_place(much(4), Reduce::Sum),
            last.all_reduce(much(usize::MAX - 3), Reduce::Sum),
        ];
        for op in all {
            wrong(rig.run(op.on(own)).map(drop).unwrap_err(), "but the memory has 16");
        }
        let both = last.all_gather(much(0), much(0));
        assert!(rig.run(both.on(own)).is_err());
    }
    drop(memory);
    let none = ranks.all_reduce(Vec::<Tensor<f32, R::Device>>::new(), Reduce::Sum);
    wrong(rig.run(none).map(drop).unwrap_err(), "0 were handed in");
    // Of nothing each is done, and gives nothing.
    let nothing = || rig.tensors(|_| Vec::<f32>::new());
    drop(rig.run(ranks.all_reduce(nothing(), Reduce::Avg)).unwrap());
    drop(rig.run(ranks.broadcast(nothing(), world - 1)).unwrap());
    drop(rig.run(ranks.all_gather(nothing().into_iter().zip(nothing()).collect())).unwrap());
    // All of that was told before anybody could wait for it.
    ranks.well().unwrap();
    all_reduce_of::<u8, R>(rig, &ranks);
}

pub(crate) fn nothing_is_waited_for_or_lost_where_it_is_dropped_in_flight<R: RanksRig>(rig: &R) {
    let ranks = rig.ranks(PATIENT);
    for _ in 0..3 {
        let tensors = rig.tensors(|_| vec![1_u32; 4_096]);
        let mut before = Vec::new();
        for rank in 0..rig.world() {
            let mut busy = rig.occupy(rank, crate::ms(5)).on(&rig.runtimes()[rank]);
            let _ = poll_once(&mut busy);
            before.push(busy);
        }
        let mut sums = ranks.all_reduce(tensors, Reduce::Sum);
        let _ = poll_once(&mut sums);
        drop((sums, before));
    }
    // Behind them, and it ends; the last handle goes with all of it in flight.
    let tensors = rig.tensors(|rank| vec![rank as u32; 16]);
    let mut sums = ranks.all_reduce(tensors, Reduce::Max);
    let _ = poll_once(&mut sums);
    drop(ranks);
    let sums = rig.run(sums).unwrap();
    assert_eq!(rig.read(0, &sums[0]), vec![rig.world() as u32 - 1; 16]);
    drop(sums);
    rig.settle();
}

//! Combinators, and branches that run at a time: what comes behind what, what lives until when, and what becomes of a failure.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Busy, CONFIG, Rig, poll_once};
use wakeline_core::{Clock, Error, ErrorCode, Instant, Nanos};
use wakeline_ops::port::Priority;
use wakeline_ops::{
    Boxed, DeviceOp, IN_FLIGHT_MAX, Runtime, SingleStream, StreamPoolRoundRobin, Submission, all, empty,
    unzip, value, with_context, zip,
};
use wakeline_sim::{Faults, SimConfig, SimDevice};
use wakeline_tensor::Tensor;

type Bytes = Tensor<u8, SimDevice>;

const MS: Nanos = Nanos::from_millis(1);

fn busy(ms: u64) -> Busy<()> {
    Busy(Nanos::from_millis(ms), ())
}

/// How long it takes, in milliseconds.
fn takes<O: DeviceOp<Device = SimDevice>>(rig: &Rig, runtime: &Runtime<SimDevice>, op: O) -> u64 {
    let start = rig.watcher.now();
    rig.run(op.on(runtime)).unwrap();
    rig.watcher.now().since(start).as_nanos() / MS.as_nanos()
}

#[test]
fn branches_run_at_a_time_behind_what_is_in_front_and_in_front_of_what_is_behind() {
    let rig = Rig::new();
    let diamond = || busy(1).then(|()| zip!(busy(2), busy(3), busy(1))).then(|_| busy(1));
    assert_eq!(takes(&rig, &rig.runtime, diamond()), 1 + 3 + 1);
    assert_eq!(takes(&rig, &rig.runtime, diamond().in_one_stream()), 1 + 2 + 3 + 1 + 1);
    // Branches of branches are behind it too.
    let nested =
        || busy(1).then(|()| zip!(busy(1).then(|()| zip!(busy(1), busy(4))), busy(2))).then(|_| busy(1));
    assert_eq!(takes(&rig, &rig.runtime, nested()), 1 + 1 + 4 + 1);
    // A first branch that enqueues nothing, of one that is in another stream, hides nothing of those beside it.
    let hides = || zip!(busy(1), zip!(value::<SimDevice, _>(1), busy(4)));
    assert_eq!(takes(&rig, &rig.runtime, hides()), 4);
    let vector = || all((0..3).map(|_| busy(2)));
    assert_eq!(takes(&rig, &rig.runtime, vector()), 2);
    assert_eq!(takes(&rig, &rig.runtime, all((0..6).map(|_| busy(2)))), 4, "two in each of three streams");
    rig.assert_clean();
}

#[test]
fn where_one_stream_was_chosen_branches_stay_there() {
    let rig = Rig::new();
    let both = || zip!(busy(1), busy(2));
    assert_eq!(takes(&rig, &rig.runtime, both()), 2);
    assert_eq!(takes(&rig, &rig.runtime.scheduled(&SingleStream), both()), 3);
    assert_eq!(takes(&rig, &rig.runtime.with_policy(&SingleStream).unwrap(), both()), 3);
    let timed = |run: &dyn Fn()| {
        let start = rig.watcher.now();
        run();
        rig.watcher.now().since(start)
    };
    let scheduled = timed(&|| {
        rig.run(both().on(&rig.runtime).schedule(&SingleStream)).unwrap();
    });
    assert_eq!(scheduled, MS + MS + MS);
    let stream = rig.runtime.stream(Priority::Normal).unwrap();
    assert_eq!(
        timed(&|| {
            both().sync_on(&stream).unwrap();
        }),
        MS + MS + MS
    );
    assert_eq!(
        timed(&|| {
            both().on(&rig.runtime).sync().unwrap();
        }),
        MS + MS,
        "on the spot"
    );
    rig.assert_clean();
}

#[test]
fn values_and_branches_that_enqueue_nothing_cost_no_call() {
    let rig = Rig::new();
    let calls = rig.device.counts().calls;
    let (one, two, ()) = rig.run(zip!(value(1), 2_u8, empty()).on(&rig.runtime)).unwrap();
    let of_one = rig.device.counts().calls - calls;
    assert_eq!((one, two), (1, 2));
    rig.run(value(1).on(&rig.runtime)).unwrap();
    assert_eq!(rig.device.counts().calls - calls, 2 * of_one, "as many as a value alone");
    rig.assert_clean();
}

#[test]
fn what_branches_conflict_in_is_ordered_as_they_are_written() {
    let rig = Rig::new();
    for _ in 0..4 {
        let tensor: Bytes = rig.run(Tensor::full(8, 1).on(&rig.runtime)).unwrap();
        let tensor = Arc::new(tensor);
        let (read, again, target) = (tensor.to_host(), tensor.to_host(), Arc::clone(&tensor));
        let write = Tensor::full(8, 9).then(move |nines: Bytes| Copy { from: nines, to: target });
        let (before, (), after) = rig.run(zip!(read, write, again).on(&rig.runtime)).unwrap();
        assert_eq!((before, after), (vec![1; 8], vec![9; 8]));
    }
    rig.assert_clean();
}

/// A copy to what others have too.
struct Copy {
    from: Bytes,
    to: Arc<Bytes>,
}

impl DeviceOp for Copy {
    type Device = SimDevice;
    type Pending = ();
    type Output = ();

    fn execute(self, submission: &mut Submission<SimDevice>) -> Result<(), Error> {
        use wakeline_ops::port::Shape;
        use wakeline_tensor::{KernelArg, launch};
        let kernel = wakeline_sim::SimKernel::new(Nanos::from_micros(1), |args| {
            let from = args.bytes(0).to_vec();
            args.bytes_mut(1).copy_from_slice(&from);
        });
        let args = [KernelArg::read(&self.from), KernelArg::write(&*self.to)];
        let shape = Shape::new([1; 3], [1; 3]);
        // SAFETY: it reads the first and writes the second.
        #[allow(unsafe_code)]
        unsafe { launch(kernel, shape, args) }.execute(submission)
    }

    fn finish((): ()) -> Result<(), Error> {
        Ok(())
    }
}

wakeline_ops::device_op!([] Copy);

#[test]
fn what_a_branch_keeps_lives_until_all_are_done_whoever_gives_up() {
    let rig = Rig::new();
    let (short, long) = (Arc::new(()), Arc::new(()));
    let op = || zip!(Busy(MS, Arc::clone(&short)), Busy(MS + MS, Arc::clone(&long)));
    let mut dropped = op().on(&rig.runtime);
    assert!(poll_once(&mut dropped).is_pending());
    drop(dropped);
    let mut forgotten = op().on(&rig.runtime);
    assert!(poll_once(&mut forgotten).is_pending());
    std::mem::forget(forgotten);
    assert_eq!((Arc::strong_count(&short), Arc::strong_count(&long)), (3, 3));
    rig.settle();
    assert_eq!((Arc::strong_count(&short), Arc::strong_count(&long)), (1, 1));
    assert_eq!(rig.runtime.counts().landed, 2, "one flight each");
    rig.assert_clean();
}

/// Enqueues work that uses an owner, and then fails or panics.
struct HalfWay<T>(T, bool);

impl<T: Send + 'static> DeviceOp for HalfWay<T> {
    type Device = SimDevice;
    type Pending = ();
    type Output = ();

    fn execute(self, submission: &mut Submission<SimDevice>) -> Result<(), Error> {
        submission.retain(self.0);
        submission.stream().raw().launch(MS + MS)?;
        assert!(self.1, "half way");
        Err(Error::new(ErrorCode::Backend, [&"test", &"execute", &"half way"]))
    }

    fn finish((): ()) -> Result<(), Error> {
        Ok(())
    }
}

wakeline_ops::device_op!([T] HalfWay<T> where T: Send + 'static);

#[test]
fn a_branch_that_fails_or_panics_is_kept_to_its_end_with_those_before_it_and_none_behind_it_runs() {
    for fails in [true, false] {
        let rig = Rig::new();
        let (kept, never) = (Arc::new(()), Arc::new(()));
        let op = zip!(
            Busy(MS, Arc::clone(&kept)),
            HalfWay(Arc::clone(&kept), fails),
            Busy(MS, Arc::clone(&never))
        );
        let mut future = op.on(&rig.runtime);
        let polled = catch_unwind(AssertUnwindSafe(|| poll_once(&mut future)));
        assert_eq!(polled.is_ok(), fails);
        drop(future);
        assert_eq!((Arc::strong_count(&kept), Arc::strong_count(&never)), (3, 1));
        rig.settle();
        assert_eq!((Arc::strong_count(&kept), rig.watcher.now()), (1, Instant::ORIGIN + MS + MS));
        rig.assert_clean();
    }
}

#[test]
fn a_stream_that_cannot_be_joined_is_seen_to_its_end_by_itself() {
    // Room for two works in a stream: home has them, and cannot take the wait for the other branch.
    let config = SimConfig { queue_len_max: 2, ..CONFIG };
    let rig = Rig::with(&config, "flag:park_us=50,backstop_us=1000+trust");
    let owner = Arc::new(());
    let home = Busy(MS, Arc::clone(&owner)).then(|()| busy(1));
    let op = zip!(home, Busy(MS + MS + MS, Arc::clone(&owner)));
    assert_eq!(rig.run(op.on(&rig.runtime)).unwrap_err().code(), ErrorCode::Backend);
    rig.settle();
    let counts = rig.runtime.counts();
    // There is no room for the store in home either, so nobody can know when that is done; both had everything.
    assert_eq!((counts.begun, counts.landed, counts.leaked, counts.in_flight()), (2, 1, 1, 0), "{counts:?}");
    assert_eq!((Arc::strong_count(&owner), counts.owners_leaked), (3, 3));
    assert_eq!(rig.device.misuses(), []);
}

#[test]
fn branches_have_places_in_their_streams_and_stay_at_home_where_there_are_none() {
    let config = SimConfig { queue_len_max: 4 * IN_FLIGHT_MAX, ..CONFIG };
    let rig = Rig::with(&config, "flag:park_us=50,backstop_us=1000+trust");
    let two = rig.runtime.with_policy(&StreamPoolRoundRobin::new(2).unwrap()).unwrap();
    // Both streams are full but for four entries each, of which a zip takes three.
    let mut flying: Vec<_> = (0..2 * (IN_FLIGHT_MAX - 2)).map(|_| Busy(MS, ()).on(&two)).collect();
    for future in &mut flying {
        assert!(poll_once(future).is_pending());
    }
    let mut both = zip!(busy(1), busy(1)).on(&two);
    assert!(poll_once(&mut both).is_pending());
    let begun = rig.runtime.counts().begun;
    let mut waits = [busy(1).on(&two), busy(1).on(&two)];
    for future in &mut waits {
        assert!(poll_once(future).is_pending());
    }
    assert_eq!(rig.runtime.counts().begun, begun, "they wait for room");
    for future in waits {
        rig.run(future).unwrap();
    }
    drop((flying, both));
    rig.settle();
    // One stream is full: the branch that was to go there runs at home.
    let one = two.scheduled(&SingleStream);
    let mut flying: Vec<_> = (0..IN_FLIGHT_MAX).map(|_| Busy(MS, ()).on(&one)).collect();
    for future in &mut flying {
        assert!(poll_once(future).is_pending());
    }
    let start = rig.watcher.now();
    // The policy's turn says which of the two is home; at the full one it would wait.
    let second = two.scheduled(&Second);
    rig.run(zip!(busy(1), busy(1)).on(&second)).unwrap();
    assert_eq!(rig.watcher.now().since(start), MS + MS);
    drop(flying);
    rig.assert_clean();
}

/// The second stream for an operation, the first for its branches.
#[derive(Clone)]
struct Second;

impl wakeline_ops::SchedulingPolicy for Second {
    fn streams(&self) -> usize {
        2
    }
    fn next(&self) -> usize {
        1
    }
    fn choose(&self, loads: &wakeline_ops::Loads<'_>) -> usize {
        usize::from(loads.branches(1) == 0)
    }
}

#[test]
fn a_fault_in_branches_leaks_what_they_keep_and_gives_their_places_back() {
    let rig = Rig::new();
    let owner = Arc::new(());
    let mut both = zip!(Busy(MS, Arc::clone(&owner)), Busy(MS, Arc::clone(&owner))).on(&rig.runtime);
    assert!(poll_once(&mut both).is_pending());
    rig.device.inject_fault();
    let cause = rig.device.health().unwrap().to_string();
    assert_eq!(rig.run(both).unwrap_err().to_string(), cause);
    rig.settle();
    assert_eq!((Arc::strong_count(&owner), rig.runtime.counts().owners_leaked), (3, 2));
    for _ in 0..4 * IN_FLIGHT_MAX {
        // Each waits for room at most, and would for good were a place never given back.
        assert_eq!(rig.run(zip!(busy(1), busy(1)).on(&rig.runtime)).unwrap_err().to_string(), cause);
    }
}

#[test]
fn a_fault_at_each_call_of_branches_leaves_nothing_in_flight() {
    for call in 1..120 {
        let faults = Faults { fault_at_call: Some(call), ..Faults::none() };
        let config = SimConfig { faults, ..CONFIG };
        let Ok(rig) = Rig::try_with(&config, "flag:park_us=50,backstop_us=1000") else { continue };
        let make =
            |byte| Tensor::full(8, byte).then(|tensor: Bytes| zip!(tensor.to_host(), tensor.to_host()));
        for _ in 0..2 {
            drop(rig.run(zip!(make(1), make(2), busy(1)).on(&rig.runtime)));
        }
        rig.settle();
        let (counts, left) = (rig.runtime.counts(), rig.device.memory_use());
        assert_eq!((rig.device.misuses(), counts.in_flight()), (vec![], 0), "call {call}: {counts:?}");
        let accounted = usize::try_from(counts.owners_leaked + counts.frees_failed).unwrap();
        assert!(left.buffers + left.pinned <= accounted, "call {call}: {left:?} {counts:?}");
    }
}

#[test]
fn combinators_give_what_they_say() {
    let rig = Rig::new();
    let (seen, see) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let note = Arc::clone(&seen);
    let op = Tensor::full(3, 1_u8).inspect(move |tensor: &Bytes| {
        note.store(tensor.len(), Ordering::Relaxed);
    });
    let op = op.arc().unwrap_arc().then(|tensor| tensor.to_host());
    assert_eq!(seen.load(Ordering::Relaxed), 0, "lazy");
    assert_eq!(rig.run(op.on(&rig.runtime)).unwrap(), [1; 3]);
    assert_eq!(seen.load(Ordering::Relaxed), 3);
    let held = Arc::new(7);
    let error = rig.run(value(Arc::clone(&held)).unwrap_arc().on(&rig.runtime)).unwrap_err();
    assert_eq!((error.code(), error.args()), (ErrorCode::ArcShared, &["1".to_owned()][..]));
    let tensors: Vec<Boxed<SimDevice, Bytes>> =
        vec![Tensor::full(1, 4).boxed(), Tensor::from_host(vec![5]).boxed()];
    let reads = all(tensors.into_iter().map(|op| op.then(|tensor| tensor.to_host()).boxed_host()));
    assert_eq!(rig.run(reads.on(&rig.runtime)).unwrap(), [[4], [5]]);
    let first = zip!(Tensor::full(2, 8_u8), Tensor::full(2, 9_u8)).first().then(|tensor| tensor.to_host());
    let last = zip!(Tensor::full(2, 8_u8), Tensor::full(2, 9_u8)).last().then(|tensor| tensor.to_host());
    assert_eq!(rig.run(zip!(first, last).on(&rig.runtime)).unwrap(), (vec![8, 8], vec![9, 9]));
    assert_eq!(rig.run(all(Vec::<Busy<()>>::new()).first().on(&rig.runtime)).unwrap(), None);
    let count = Arc::clone(&see);
    let context = with_context(move |submission: &mut Submission<SimDevice>| {
        submission.retain(Arc::clone(&count));
        submission.stream().raw().launch(MS)?;
        Ok(value(Arc::strong_count(&count)))
    });
    let chained = context.and_then_with_context(|submission, count| {
        submission.device().pinned(8)?;
        Ok(value(count))
    });
    assert_eq!(rig.run(chained.on(&rig.runtime)).unwrap(), 3);
    assert_eq!(Arc::strong_count(&see), 1);
    rig.assert_clean();
}

#[test]
fn zips_of_2_to_12_keep_their_order() {
    let rig = Rig::new();
    let twelve = zip!(
        1_u8,
        2_u16,
        3_u32,
        4_u64,
        5_i8,
        6_i16,
        7_i32,
        8_i64,
        "nine",
        value(10_u8),
        true,
        Tensor::full(1, 12_u8)
    );
    let (first, .., tenth, truth, tensor) = rig.run(twelve.on(&rig.runtime)).unwrap();
    assert_eq!((first, tenth, truth, tensor.len()), (1, 10, true, 1));
    let (vector, tuple) =
        rig.run(zip!(vec![value(1), value(2)], zip!(3_u8, 4_u8, 5_u8)).on(&rig.runtime)).unwrap();
    assert_eq!((vector, tuple), (vec![1, 2], (3, 4, 5)));
    drop(tensor);
    rig.assert_clean();
}

#[test]
fn the_parts_of_a_tuple_are_had_in_any_order_and_the_whole_runs_once() {
    let rig = Rig::new();
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    let whole = zip!(Tensor::full(2, 1_u8), Tensor::full(2, 2_u8), busy(1)).inspect(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let (one, two, unused) = unzip!(whole);
    let later = rig.run(two.then(|two: Bytes| two.to_host()).on(&rig.runtime)).unwrap();
    let sooner = rig.run(one.then(|one: Bytes| one.to_host()).on(&rig.runtime)).unwrap();
    assert_eq!((sooner, later, ran.load(Ordering::Relaxed)), (vec![1, 1], vec![2, 2], 1));
    drop(unused);
    // A part that nobody runs goes with the last of them.
    let (one, two) = unzip!(zip!(Tensor::full(2, 1_u8), Tensor::full(2, 2_u8)));
    drop::<Bytes>(rig.run(one.on(&rig.runtime)).unwrap());
    rig.settle();
    assert_eq!(rig.device.memory_use().buffers, 1);
    drop(two);
    rig.assert_clean();
}

#[test]
fn join_all_has_as_many_in_flight_as_it_is_told_and_ends_with_the_first_error() {
    let rig = Rig::new();
    let most = Arc::new(AtomicUsize::new(0));
    let asked = AtomicUsize::new(0);
    let ops = (0..20_u64).map(|n| {
        asked.fetch_add(1, Ordering::Relaxed);
        let (runtime, most) = (rig.runtime.clone(), Arc::clone(&most));
        busy(1).map(move |()| {
            let now = usize::try_from(runtime.counts().in_flight()).unwrap();
            most.fetch_max(now, Ordering::Relaxed);
            n
        })
    });
    let mut all = rig.runtime.join_all(ops, 4);
    assert!(poll_once(&mut all).is_pending());
    assert_eq!(asked.load(Ordering::Relaxed), 4, "the others are not made yet");
    assert!(rig.run(&mut all).unwrap().into_iter().eq(0..20));
    assert_eq!(most.load(Ordering::Relaxed), 4, "with the one that is being submitted");
    assert_eq!(rig.run(all).unwrap_err().code(), ErrorCode::PolledAfterEnd);
    let owner = Arc::new(());
    let ops = (0..20).map(|n| {
        if n == 5 { HalfWay((), true).map(drop).boxed() } else { Busy(MS, Arc::clone(&owner)).boxed() }
    });
    let error = rig.run(rig.runtime.join_all(ops, 3)).unwrap_err();
    assert_eq!(error.args()[2], "half way");
    rig.settle();
    assert_eq!(Arc::strong_count(&owner), 1, "what was in flight has ended");
    let none = rig.run(rig.runtime.join_all(Vec::<Busy<()>>::new(), 0)).unwrap_err();
    assert_eq!(none.to_string(), "at_a_time is 0, but must be from 1 to 1024");
    rig.assert_clean();
}

#[test]
fn join_all_of_what_has_no_end_goes_on_until_an_error() {
    let rig = Rig::new();
    let ops = (0_usize..).map(|n| {
        with_context(
            move |_: &mut Submission<SimDevice>| {
                if n < 5 { Ok(value(n)) } else { Err(Error::new(ErrorCode::Timeout, [&n, &0, &0])) }
            },
        )
    });
    let error = rig.run(rig.runtime.join_all(ops, 2)).unwrap_err();
    assert_eq!((error.code(), &error.args()[0][..]), (ErrorCode::Timeout, "5"));
    rig.assert_clean();
}

//! The vendor's library: calls that fail, are slow, or are absent, and which thread makes them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant as Wall};

use libtest_mimic::Trial;
use wakeline_core::{Error, ErrorCode, Nanos};
use wakeline_cuda::{Cuda, Nccl};
use wakeline_fake_driver::{Act, Fake, Rule, Status, thread_id};
use wakeline_hip::{Hip, Rccl};
use wakeline_mapped::{CollectiveLibrary, CollectiveVendor, OpDevice};
use wakeline_ops::port::Reduce;
use wakeline_ops::{CollectiveConfig, DeviceOp, GIVE_UP_MS, Ranks};
use wakeline_std::on_a_thread;
use wakeline_tensor::Tensor;
use wakeline_tests::ops_rig::{poll_once, until};
use wakeline_tests::vendor::Vendor;

use crate::rig::{HASTY, HASTY_TO_JOIN, PATIENT, RanksRig, VendorRanks};

/// Calls that a communicator and an all-reduce of it make, where the library has those that do not block.
const CALLS: [&str; 6] = [
    "ncclGetUniqueId",
    "ncclCommInitRankConfig",
    "ncclGroupStart",
    "ncclGroupEnd",
    "ncclCommGetAsyncError",
    "ncclAllReduce",
];

fn sums<V: Vendor + CollectiveVendor>(rig: &VendorRanks<V>, ranks: &Ranks<OpDevice<V>>) -> Result<(), Error> {
    let each = rig.tensors(|rank| vec![rank as u32 + 1; 100]);
    let world = rig.world() as u32;
    for (rank, sum) in rig.run(ranks.all_reduce(each, Reduce::Sum))?.iter().enumerate() {
        assert_eq!(rig.read(rank, sum), vec![world * (world + 1) / 2; 100]);
    }
    Ok(())
}

pub(crate) fn a_rank_that_dies_is_told_long_before_the_deadline<V: Vendor + CollectiveVendor>(
    rig: &VendorRanks<V>,
) {
    let ranks = rig.ranks(PATIENT);
    sums(rig, &ranks).unwrap();
    rig.configure(|options| options.nccl_dead = [1].into());
    let start = Wall::now();
    let error = sums(rig, &ranks).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CommunicatorFailed, "{error}");
    assert!(error.to_string().contains("remote process exited"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(sums(rig, &ranks).unwrap_err().to_string(), error.to_string(), "the first cause");
    drop(ranks);
    rig.configure(|options| options.nccl_dead.clear());
    sums(rig, &rig.ranks(PATIENT)).unwrap();
}

pub(crate) fn each_call_that_fails_once_is_told_by_its_name<V: Vendor + CollectiveVendor>(
    rig: &VendorRanks<V>,
) {
    const INTERNAL: Status = Status(3);
    for call in CALLS {
        // In joining, in a collective; before the library has done anything, and after.
        for skip in [0, 2] {
            for act in [Act::Fail(INTERNAL), Act::FailAfter(INTERNAL)] {
                let fake = rig.stand_in();
                until("the one before has left", || fake.live().communicators == 0);
                let rule = fake.rule(Rule::new(call, act).skip(skip).times(1));
                let mut acted = false;
                let done = rig.run(Ranks::of(rig.library(), rig.runtimes(), PATIENT)).and_then(|ranks| {
                    let done = sums(rig, &ranks);
                    // Of what nobody waits for any more the communicator tells.
                    acted = fake.hits(rule) > 0;
                    if acted {
                        until("it has failed", || ranks.well().is_err());
                    }
                    done.and(ranks.well())
                });
                acted |= done.is_err();
                fake.clear_rules();
                match done {
                    Ok(()) => assert!(!acted, "{call}, {skip}: a failure that nobody was told"),
                    Err(error) => {
                        assert!(acted, "{call}, {skip}: {error}");
                        assert_eq!(error.code(), ErrorCode::CommunicatorFailed, "{call}: {error}");
                        assert!(error.to_string().contains(call), "{call}: {error}");
                        assert!(error.args().iter().any(|arg| arg.contains("(3)")), "{call}: {error}");
                    }
                }
                sums(rig, &rig.ranks(PATIENT)).unwrap();
            }
        }
    }
}

pub(crate) fn slow_calls_are_waited_for_and_none_is_made_by_who_submits<V: Vendor + CollectiveVendor>(
    rig: &VendorRanks<V>,
) {
    let fake = rig.stand_in();
    fake.configure(|options| options.nccl_lag_us = 3_000);
    let slow = fake.rule(Rule::new("ncclGroupEnd", Act::DelayUs(5_000)));
    let ranks = rig.ranks(PATIENT);
    sums(rig, &ranks).unwrap();
    sums(rig, &ranks).unwrap();
    assert!(fake.hits(slow) >= 3);
    drop(ranks);
    let mine = thread_id();
    let calls: Vec<_> = fake.log().into_iter().filter(|call| call.name.starts_with("nccl")).collect();
    assert!(calls.len() > 10);
    let of_mine: Vec<_> = calls.iter().filter(|call| call.thread == mine).map(|call| &call.name).collect();
    assert_eq!(of_mine, ["ncclGetVersion"], "loading it alone asks for its release");
}

pub(crate) fn ranks_of_one_device_are_told_before_the_library_is_asked<V: Vendor + CollectiveVendor>(
    rig: &VendorRanks<V>,
) {
    let runtimes = [0, 1, 0].map(|device| rig.runtimes()[device].clone());
    let error = rig.run(Ranks::of(rig.library(), &runtimes, PATIENT)).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidCollective, "{error}");
    assert!(error.to_string().contains("ranks 0 and 2 are of one device"), "{error}");
    assert_eq!(rig.stand_in().calls("ncclGroupStart"), 0);
}

pub(crate) fn ranks_are_handed_over_in_one_group<V: Vendor + CollectiveVendor>(rig: &VendorRanks<V>) {
    let ranks = rig.ranks(PATIENT);
    let fake = rig.stand_in();
    fake.clear_log();
    sums(rig, &ranks).unwrap();
    let count = |call| fake.calls(call);
    assert_eq!((count("ncclGroupStart"), count("ncclGroupEnd"), count("ncclAllReduce")), (1, 1, 3));
}

pub(crate) fn a_library_that_does_not_begin_is_told_as_that<V: Vendor + CollectiveVendor>(
    rig: &VendorRanks<V>,
) {
    let fake = rig.stand_in();
    let stuck = |error: &Error| {
        assert_eq!(error.code(), ErrorCode::LibraryStuck, "{error}");
        assert_eq!(error.args()[0], "all-reduce of rank 0");
        assert_eq!(error.args()[2..], [V::COLLECTIVES, V::LOADS_EARLY]);
    };
    // It says that it is at it, and stays there.
    let ranks = rig.ranks(HASTY);
    fake.configure(|options| options.nccl_lag_us = 3_600_000_000);
    stuck(&sums(rig, &ranks).unwrap_err());
    stuck(&ranks.well().unwrap_err());
    fake.configure(|options| options.nccl_lag_us = 0);
    // It does not come back from the call.
    let ranks = rig.ranks(HASTY);
    fake.rule(Rule::new("ncclGroupEnd", Act::Block));
    let mut sum = ranks.all_reduce(rig.tensors(|_| vec![1_u8; 4]), Reduce::Sum);
    assert!(poll_once(&mut sum).is_pending());
    until("it is blocked", || fake.blocked() == 1);
    until("that is told", || ranks.well().is_err());
    stuck(&ranks.well().unwrap_err());
    fake.clear_rules();
    fake.release();
    stuck(&rig.run(sum).map(drop).unwrap_err());
    // One that has begun, and whose other end never comes, is a missing rank still.
    let ranks = rig.ranks(HASTY);
    fake.configure(|options| options.nccl_dead = [0, 1].into());
    let missing = sums(rig, &ranks).unwrap_err();
    assert_eq!(missing.code(), ErrorCode::RankMissing, "{missing}");
    fake.configure(|options| options.nccl_dead.clear());
    sums(rig, &rig.ranks(PATIENT)).unwrap();
}

/// Those that need a stand-in of their own, or leave something behind.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    trials.extend(of::<Cuda>());
    trials.extend(of::<Hip>());
    trials.push(Trial::test("fake::library::an_abort_that_hangs_is_given_up", || {
        an_abort_that_hangs_is_given_up();
        Ok(())
    }));
    let name =
        "fake::library::a_failure_of_the_library_whose_abort_does_nothing_is_given_up_before_the_deadline";
    trials.push(Trial::test(name, || {
        a_failure_of_the_library_whose_abort_does_nothing_is_given_up_before_the_deadline();
        Ok(())
    }));
    trials
}

fn of<V: Vendor + CollectiveVendor>() -> Vec<Trial> {
    type Run = fn();
    let all: [(&str, Run); 3] = [
        ("a_library_that_is_absent_or_too_old_is_told", a_library_that_is_absent_or_too_old_is_told::<V>),
        (
            "a_library_without_calls_that_do_not_block_does",
            a_library_without_calls_that_do_not_block_does::<V>,
        ),
        (
            "a_rank_that_never_joins_an_old_library_is_told",
            a_rank_that_never_joins_an_old_library_is_told::<V>,
        ),
    ];
    let trial = |(name, run): (&str, Run)| {
        Trial::test(format!("{}::library::{name}", V::ON.0), move || {
            run();
            Ok(())
        })
    };
    all.map(trial).into()
}

/// A copy of the stand-in without this symbol, in a folder of its own; of one file there is one instance, whoever opens it.
fn without(symbol: &str) -> (Fake, PathBuf) {
    // The loader knows libraries by their names, too, also of files that are gone.
    static COPIES: AtomicU64 = AtomicU64::new(0);
    let whole = Fake::new().unwrap();
    let mut bytes = std::fs::read(whole.path()).unwrap();
    let name = symbol.as_bytes();
    let mut at = 0;
    let mut renamed = 0;
    while let Some(found) = bytes[at..].iter().position(|byte| *byte == name[0]) {
        at += found;
        if !bytes[at..].starts_with(name) {
            at += 1;
            continue;
        }
        // Not where another name begins so.
        if bytes.get(at + name.len()) == Some(&0) {
            bytes[at] = b'x';
            renamed += 1;
        }
        at += name.len();
    }
    assert!(renamed > 0, "{symbol}");
    let (process, copy) = (std::process::id(), COPIES.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(format!("wakeline-without-{symbol}-{process}-{copy}.so"));
    std::fs::write(&path, bytes).unwrap();
    (Fake::at(&path).unwrap(), path)
}

fn a_library_that_is_absent_or_too_old_is_told<V: Vendor + CollectiveVendor>() {
    let missing = CollectiveLibrary::<V>::load_from("no/such/library.so", on_a_thread).unwrap_err();
    assert_eq!(missing.code(), ErrorCode::CollectivesMissing);
    assert_eq!(missing.args()[..2], [V::NAME, "no/such/library.so"]);
    let other = CollectiveLibrary::<V>::load_from("libm.so.6", on_a_thread).unwrap_err();
    let says = format!("libm.so.6 has no `ncclGetVersion`, as every {} of 2.10 or later has", V::COLLECTIVES);
    assert_eq!(other.args()[2], says);
    let fake = Fake::new().unwrap();
    fake.configure(|options| options.nccl_version = 2_804);
    let old = CollectiveLibrary::<V>::load_from(fake.path(), on_a_thread).unwrap_err();
    assert!(
        old.args()[2].ends_with(&format!("is {} of version 2804, before 2.10 (21000)", V::COLLECTIVES)),
        "{old}"
    );
    let (fake, path) = without("ncclReduceScatter");
    let lacks = CollectiveLibrary::<V>::load_from(&path, on_a_thread).unwrap_err();
    assert!(lacks.args()[2].contains("has no `ncclReduceScatter`"), "{lacks}");
    drop(fake);
    std::fs::remove_file(path).unwrap();
    // By their own names, where there are none.
    for error in [Nccl::load(on_a_thread).err(), Rccl::load(on_a_thread).err()].into_iter().flatten() {
        assert!(["libnccl.so.2", "librccl.so.1"].contains(&&*error.args()[1]), "{error}");
    }
    // Where no thread can be had.
    let refuses = |_| Err(Error::new(ErrorCode::Backend, [&"std", &"spawn", &"none"]));
    let rig = VendorRanks::<V>::fake(2);
    let library = CollectiveLibrary::<V>::load_from(rig.stand_in().path(), refuses).unwrap();
    let error = rig.run(Ranks::of(&library, rig.runtimes(), PATIENT)).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "std: spawn failed: none");
    rig.end(false).unwrap();
}

fn a_library_without_calls_that_do_not_block_does<V: Vendor + CollectiveVendor>() {
    let (fake, path) = without("ncclCommInitRankConfig");
    let rig = VendorRanks::<V>::on_fake(3, fake);
    assert!(!rig.library().is_nonblocking());
    let ranks = rig.ranks(PATIENT);
    sums(&rig, &ranks).unwrap();
    // One that never comes to it, while the others have not been handed over.
    let rank = ranks.iter().next().unwrap().within(HASTY.within).unwrap();
    let tensor = rig.run(Tensor::<f32, OpDevice<V>>::zeros(8).on(&rig.runtimes()[0])).unwrap();
    let error = rig.run(rank.all_reduce(tensor, Reduce::Sum).on(&rig.runtimes()[0])).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::RankMissing, "{error}");
    drop((rank, ranks));
    let fake = rig.stand_in();
    until("it is aborted", || fake.live().communicators == 0);
    assert_eq!(fake.calls("ncclCommAbort"), 3);
    let ranks = rig.ranks(HASTY);
    // The library blocks in a call until it is aborted from elsewhere.
    rig.stand_in().rule(Rule::new("ncclGroupEnd", Act::Block));
    let mut stuck = ranks.all_reduce(rig.tensors(|_| vec![1_u8; 4]), Reduce::Sum);
    assert!(poll_once(&mut stuck).is_pending());
    until("it is blocked", || rig.stand_in().blocked() == 1);
    until("it is aborted by another thread", || fake.live().communicators == 0);
    assert_eq!(fake.calls("ncclCommAbort"), 6);
    rig.stand_in().clear_rules();
    rig.stand_in().release();
    assert_eq!(rig.run(stuck).map(drop).unwrap_err().code(), ErrorCode::LibraryStuck);
    drop(ranks);
    sums(&rig, &rig.ranks(PATIENT)).unwrap();
    // Calls of a communicator that another thread has aborted are the library's to refuse.
    rig.stand_in().forgive();
    rig.end(false).unwrap();
    std::fs::remove_file(path).unwrap();
}

fn a_rank_that_never_joins_an_old_library_is_told<V: Vendor + CollectiveVendor>() {
    let (fake, path) = without("ncclCommInitRankConfig");
    let rig = VendorRanks::<V>::on_fake(2, fake);
    let id = <OpDevice<V> as wakeline_ops::port::Collectives>::unique_id(rig.library()).unwrap();
    let only = vec![(0, rig.runtimes()[0].clone())];
    let error = rig.run(Ranks::join(rig.library(), &id, 2, only, HASTY_TO_JOIN)).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::RankMissing);
    // Its thread, and what that has, are gone for good.
    rig.end(true).unwrap();
    std::fs::remove_file(path).unwrap();
}

/// The library tells of a failure itself, long before the deadline, and its abort does nothing: what it is at is given up as soon as where the deadline tells of it.
fn a_failure_of_the_library_whose_abort_does_nothing_is_given_up_before_the_deadline() {
    let rig = VendorRanks::<Cuda>::fake(2);
    let ranks = rig.ranks(CollectiveConfig { within: Nanos::from_millis(3_600_000), ..PATIENT });
    rig.stand_in().rule(Rule::new("ncclCommAbort", Act::DropEffect));
    let mut tensors = rig.tensors(|_| vec![1_u32; 4]).into_iter();
    let mut sums = ranks.together(|rank| {
        let (busy, tensor) = (rig.occupy(rank.number(), Nanos::from_millis(500)), tensors.next().unwrap());
        busy.then(move |()| rank.all_reduce(tensor, Reduce::Sum))
    });
    assert!(poll_once(&mut sums).is_pending());
    until("both are enqueued", || rig.stand_in().calls("ncclAllReduce") == 2);
    let asked = rig.stand_in().calls("ncclCommGetAsyncError");
    until("and seen to be", || rig.stand_in().calls("ncclCommGetAsyncError") > asked + 8);
    rig.configure(|options| options.nccl_dead = [1].into());
    let start = Wall::now();
    let error = rig.run(sums).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CommunicatorFailed, "{error}");
    assert!(start.elapsed() < Duration::from_millis(10 * GIVE_UP_MS), "{:?}", start.elapsed());
    drop(ranks);
    rig.stand_in().forgive();
    rig.end(true).unwrap();
}

/// The library's abort never comes back, and what it is at never ends: told all the same, and what it uses is leaked.
fn an_abort_that_hangs_is_given_up() {
    let rig = VendorRanks::<Cuda>::fake(2);
    let config = CollectiveConfig { within: Nanos::from_millis(50), ..PATIENT };
    let ranks = rig.ranks(config);
    rig.configure(|options| options.nccl_dead = [0, 1].into());
    rig.stand_in().rule(Rule::new("ncclCommAbort", Act::Block));
    let start = Wall::now();
    let error =
        rig.run(ranks.all_reduce(rig.tensors(|_| vec![1_u32; 4]), Reduce::Sum)).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::RankMissing, "{error}");
    let took = start.elapsed();
    assert!(
        took > Duration::from_millis(GIVE_UP_MS) && took < Duration::from_millis(4 * GIVE_UP_MS),
        "{took:?}"
    );
    drop(ranks);
    rig.stand_in().forgive();
    rig.end(true).unwrap();
}

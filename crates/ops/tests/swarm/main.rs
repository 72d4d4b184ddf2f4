//! Random programs of all that composes, against all that a task can do and all that can go wrong.
//!
//! Futures are awaited, run on the spot, dropped, forgotten and left pending between any two polls; they have time-outs and tokens that
//! come and that do not; branches go to several streams; shared operations run once; gates are opened, dropped, forgotten and left; closures and wakers panic; the device loses stores, stores late, is slow to answer and faults at any moment or call.
//! Whatever happens: the device sees no misuse, a result that is given is the right one, nothing stays in flight, and memory that is not given
//! back is accounted for.
//!
//! `SEEDS=1000000 cargo test --release -p wakeline-ops --test swarm` runs more of them; `SEEDS=N-M` those from N to M.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]
#![allow(unsafe_code, reason = "it launches kernels")]

#[path = "../common/mod.rs"]
mod common;
mod compose;
mod graphs;
mod machine;
mod program;
mod trees;

use std::ops::Range;

use common::CONFIG;
use program::{LEN, Program};
use wakeline_core::ErrorCode;
use wakeline_ops::{DeviceOp, Runtime, SingleStream};
use wakeline_sim::{Faults, MemoryUse, SimDevice, VirtualTime, VirtualWatcher};
use wakeline_tensor::Tensor;

const SEEDS: u64 = 10_000;

/// Of programs whose tasks do not watch.
const PLAIN_SEEDS: u64 = 3_000;
const STEPS: u64 = 20;

/// How ends become known in a program.
#[derive(Clone, Copy)]
struct How {
    /// Whether tasks watch by themselves, and words may be stored in other ways.
    watches: bool,
    /// `None` stands for the runtime's own.
    plan: Option<&'static str>,
}

/// Under the driver's authority.
const STRICT: How = How { watches: false, plan: Some("flag:park_us=50,backstop_us=1000") };
const TRUSTING: How = How { watches: false, plan: Some("flag:park_us=50,backstop_us=1000+trust") };
const WATCHING: How = How { watches: true, plan: None };
const WATCHING_STRICT: How = How {
    watches: true,
    plan: Some(
        "flag:park_us=50,backstop_us=1000+predict:margin_us=20,min_sleep_us=40,max_sleep_us=100000,window=8",
    ),
};

/// Runs the program of a seed, and says whether the device was well at the end.
fn run(seed: u64, faults: &Faults, how: How) -> bool {
    let Some(mut program) = Program::new(seed, faults, how) else { return false };
    for _ in 0..STEPS {
        program.step();
    }
    program.ends_clean(seed, 1)
}

impl Program {
    /// Lets everything end, and looks at what is left, of which an owner that was leaked keeps so many buffers at most; whether the device was well.
    fn ends_clean(self, seed: u64, each: usize) -> bool {
        let Self { device, watcher, runtime, tensors, pending, tokens, shared, forgotten, .. } = self;
        drop((tensors, pending, tokens, shared));
        while watcher.pending() > 0 && watcher.turn() {}
        while watcher.turn() {}
        let (counts, left) = (runtime.counts(), device.memory_use());
        assert_eq!(device.misuses(), [], "seed {seed}");
        assert_eq!(counts.in_flight(), 0, "seed {seed}: {counts:?}");
        let leaked = usize::try_from(counts.owners_leaked + counts.frees_failed).unwrap();
        assert!(left.buffers + left.pinned <= leaked * each + forgotten, "seed {seed}: {left:?} {counts:?}");
        let well = device.health().is_none();
        if well && forgotten == 0 && counts.leaked == 0 {
            assert_eq!((left, device.graphs()), (MemoryUse::default(), 0), "seed {seed}: {counts:?}");
        }
        well
    }
}

fn seeds() -> Range<u64> {
    seeds_or(SEEDS)
}

/// Those that whoever runs it asks for, or so many.
fn seeds_or(count: u64) -> Range<u64> {
    let number = |text: &str| text.parse::<u64>().unwrap();
    // tidy: allow(env) how much a test does is said by whoever runs it
    match std::env::var("SEEDS") {
        Ok(text) => match text.split_once('-') {
            Some((from, to)) => number(from)..number(to),
            None => 0..number(&text),
        },
        Err(_) => 0..count,
    }
}

/// A swarm whose waits all end: without a deadline one for a point that is stuck never does.
fn swarm(seed: u64) -> Faults {
    Faults { stuck_ppm: 0, ..Faults::swarm(seed) }
}

/// Those of them that forge no word.
fn honest(seed: u64) -> Faults {
    let Faults { lost_store_ppm, late_store, fault_at, fault_at_call, slow_query, unsupported_ppm, .. } =
        swarm(seed);
    Faults {
        lost_store_ppm,
        late_store,
        fault_at,
        fault_at_call,
        slow_query,
        unsupported_ppm,
        ..Faults::none()
    }
}

/// Panics on purpose are not shown.
fn quietly(check: impl FnOnce()) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload().downcast_ref::<&str>().copied().unwrap_or_default();
        if !text.contains("on purpose") {
            hook(info);
        }
    }));
    check();
}

#[test]
fn programs_whose_tasks_watch_by_themselves() {
    quietly(|| {
        let all = seeds();
        let total = all.end - all.start;
        let mut well = 0;
        for seed in all {
            // By the word's authority three times in four.
            let strict = seed % 4 == 0;
            let faults = match seed % 8 {
                1 => Faults::none(),
                _ if strict => swarm(seed),
                _ => honest(seed),
            };
            let how = if strict { WATCHING_STRICT } else { WATCHING };
            well += u64::from(run(seed, &faults, how));
        }
        assert!(
            total < 1_000 || (total / 8..total).contains(&well),
            "both kinds of devices were there: {well}"
        );
    });
}

#[test]
fn a_fault_at_each_call_of_some_programs() {
    quietly(|| {
        for seed in 0..12 {
            for call in 1..120 {
                let faults = Faults { fault_at_call: Some(call), ..Faults::none() };
                run(seed, &faults, if seed % 4 == 0 { WATCHING_STRICT } else { WATCHING });
            }
        }
    });
}

#[test]
fn random_programs_under_the_drivers_authority_and_any_faults() {
    quietly(|| {
        let well = (0..PLAIN_SEEDS).filter(|&seed| run(seed, &swarm(seed), STRICT)).count();
        assert!(well > 800 && well < 2_900, "both kinds of devices were there: {well}");
    });
}

#[test]
fn random_programs_under_the_words_authority_and_faults_that_forge_no_word() {
    quietly(|| {
        for seed in 0..PLAIN_SEEDS {
            let Faults { lost_store_ppm, late_store, fault_at, fault_at_call, slow_query, .. } = swarm(seed);
            let faults =
                Faults { lost_store_ppm, late_store, fault_at, fault_at_call, slow_query, ..Faults::none() };
            run(seed, &faults, TRUSTING);
        }
    });
}

#[test]
fn a_fault_at_each_driver_call_of_a_program() {
    quietly(|| {
        let mut well = 0;
        for seed in 0..20 {
            for call in 1..150 {
                let faults = Faults { fault_at_call: Some(call), ..Faults::none() };
                well += u64::from(run(seed, &faults, STRICT));
            }
        }
        assert!(well < 20 * 149 / 2, "most programs make more calls than that: {well}");
    });
}

#[test]
fn what_is_refused_is_told_by_its_code() {
    let device = SimDevice::new(VirtualTime::new(), CONFIG).unwrap();
    let watcher = VirtualWatcher::new(&device);
    let runtime = Runtime::new(device, &SingleStream, watcher.clone()).unwrap();
    let mut future = Tensor::full(LEN, 1_u8).on(&runtime);
    watcher.run(&mut future).unwrap().unwrap();
    let again = watcher.run(future).unwrap();
    assert_eq!(again.unwrap_err().code(), ErrorCode::PolledAfterEnd);
}

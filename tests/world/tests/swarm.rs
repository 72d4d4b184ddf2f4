//! Random programs of one task, as many as fit into a test; `cargo xtask soak` runs more.
//!
//! `SEEDS=1000000 cargo test --release -p wakeline-world --test swarm` runs more of them here; `SEEDS=N-M` those from N to M.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::ops::Range;

use wakeline_core::ErrorCode;
use wakeline_ops::{DeviceOp, Runtime, SingleStream};
use wakeline_sim::{Faults, SimConfig, SimDevice, VirtualTime, VirtualWatcher};
use wakeline_tensor::Tensor;
use wakeline_world::caught::caught;
use wakeline_world::faults::{honest, swarm};
use wakeline_world::script::Script;
use wakeline_world::swarm::{self, Ended, How, STRICT, TRUSTING, WATCHING, WATCHING_STRICT};

const SEEDS: u64 = 1_500;

/// Of programs whose tasks do not watch.
const PLAIN_SEEDS: u64 = 1_000;

/// Of programs with graphs.
const GRAPH_SEEDS: u64 = 400;

/// Of programs whose operations are trees.
const TREE_SEEDS: u64 = 1_500;

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

/// Runs one, and fails with its seed and how to repeat it.
fn run(seed: u64, faults: &Faults, how: How) -> bool {
    let program = || Ok(swarm::run(seed, faults, how, &Script::all()).well);
    caught(program).unwrap_or_else(|broken| panic!("seed {seed}, {how:?}, {faults:?}: {broken}"))
}

/// The same with graphs.
fn run_with_graphs(seed: u64, faults: &Faults, how: How) -> Ended {
    let program = || Ok(swarm::run_with_graphs(seed, faults, how, &Script::all()));
    caught(program).unwrap_or_else(|broken| panic!("seed {seed}, {how:?}, {faults:?}: {broken}"))
}

/// Faults and ways of knowing of ends, of all kinds in turn.
fn any_way(seed: u64) -> (Faults, How) {
    let strict = seed.is_multiple_of(4);
    let faults = match seed % 8 {
        1 | 5 => Faults::none(),
        _ if strict => swarm(seed),
        _ => honest(seed),
    };
    let how = match (strict, seed.is_multiple_of(3)) {
        (true, true) => STRICT,
        (true, false) => WATCHING_STRICT,
        (false, true) => TRUSTING,
        (false, false) => WATCHING,
    };
    (faults, how)
}

#[test]
fn programs_whose_tasks_watch_by_themselves() {
    let all = seeds_or(SEEDS);
    let total = all.end - all.start;
    let mut well = 0;
    for seed in all {
        // By the word's authority three times in four.
        let strict = seed.is_multiple_of(4);
        let faults = match seed % 8 {
            1 => Faults::none(),
            _ if strict => swarm(seed),
            _ => honest(seed),
        };
        let how = if strict { WATCHING_STRICT } else { WATCHING };
        well += u64::from(run(seed, &faults, how));
    }
    assert!(total < 1_000 || (total / 8..total).contains(&well), "both kinds of devices were there: {well}");
}

#[test]
fn a_fault_at_each_call_of_some_programs() {
    for seed in 0..12 {
        for call in 1..120 {
            let faults = Faults { fault_at_call: Some(call), ..Faults::none() };
            run(seed, &faults, if seed % 4 == 0 { WATCHING_STRICT } else { WATCHING });
        }
    }
}

#[test]
fn random_programs_under_the_drivers_authority_and_any_faults() {
    let well = (0..PLAIN_SEEDS).filter(|&seed| run(seed, &swarm(seed), STRICT)).count();
    assert!(well > 260 && well < 970, "both kinds of devices were there: {well}");
}

#[test]
fn random_programs_under_the_words_authority_and_faults_that_forge_no_word() {
    for seed in 0..PLAIN_SEEDS {
        let Faults { lost_store_ppm, late_store, fault_at, fault_at_call, slow_query, .. } = swarm(seed);
        let faults =
            Faults { lost_store_ppm, late_store, fault_at, fault_at_call, slow_query, ..Faults::none() };
        run(seed, &faults, TRUSTING);
    }
}

#[test]
fn a_fault_at_each_driver_call_of_a_program() {
    let mut well = 0;
    for seed in 0..8 {
        for call in 1..150 {
            let faults = Faults { fault_at_call: Some(call), ..Faults::none() };
            well += u64::from(run(seed, &faults, STRICT));
        }
    }
    assert!(well < 8 * 149 / 2, "most programs make more calls than that: {well}");
}

#[test]
fn what_is_refused_is_told_by_its_code() {
    let device =
        SimDevice::new(VirtualTime::new(), SimConfig { copy_ns: 10_000, ..SimConfig::exact() }).unwrap();
    let watcher = VirtualWatcher::new(&device);
    let runtime = Runtime::new(device, &SingleStream, watcher.clone()).unwrap();
    let mut future = Tensor::full(16, 1_u8).on(&runtime);
    watcher.run(&mut future).unwrap().unwrap();
    let again = watcher.run(future).unwrap();
    assert_eq!(again.unwrap_err().code(), ErrorCode::PolledAfterEnd);
}

#[test]
fn programs_with_graphs_that_are_captured_while_others_wait_fault_and_are_dropped() {
    let all = seeds_or(GRAPH_SEEDS);
    let total = all.end - all.start;
    let (mut well, mut made) = (0, 0);
    for seed in all {
        let (faults, how) = any_way(seed);
        let Ended { well: ended_well, graphs: with_graphs } = run_with_graphs(seed, &faults, how);
        well += u64::from(ended_well);
        made += u64::from(with_graphs);
    }
    assert!(total < 100 || (total / 8..total).contains(&well), "both kinds of devices were there: {well}");
    assert!(total < 100 || made > total / 2, "most have graphs: {made}");
}

#[test]
fn a_fault_at_each_call_of_programs_with_graphs() {
    for seed in 0..4 {
        for call in 1..100 {
            let faults = Faults { fault_at_call: Some(call), ..Faults::none() };
            run_with_graphs(seed, &faults, if seed % 2 == 0 { STRICT } else { WATCHING });
        }
    }
}

/// Runs one whose operations are trees.
fn run_with_trees(seed: u64, faults: &Faults, how: How) -> (bool, bool) {
    let program = || Ok(swarm::run_with_trees(seed, faults, how, &Script::all()));
    caught(program).unwrap_or_else(|broken| panic!("seed {seed}, {how:?}, {faults:?}: {broken}"))
}

#[test]
fn trees_that_use_the_same_buffers_in_many_streams() {
    let all = seeds_or(TREE_SEEDS);
    let total = all.end - all.start;
    let (mut well, mut known) = (0, 0);
    for seed in all {
        let (faults, how) = any_way(seed);
        let (ended_well, ended_known) = run_with_trees(seed, &faults, how);
        well += u64::from(ended_well);
        known += u64::from(ended_known);
    }
    assert!(total < 100 || (total / 8..total).contains(&well), "both kinds of devices were there: {well}");
    assert!(total < 100 || known > total / 20, "some numbers are known to the end: {known}");
}

#[test]
fn a_fault_at_each_call_of_some_trees() {
    for seed in 0..6 {
        for call in 1..100 {
            let faults = Faults { fault_at_call: Some(call), ..Faults::none() };
            run_with_trees(seed, &faults, if seed % 2 == 0 { STRICT } else { WATCHING });
        }
    }
}

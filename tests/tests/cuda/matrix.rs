//! The fault matrix: every call of the driver that is made, as each of its failures, in each program that makes it.
//!
//! No row is written by hand. Each scripted program runs once on the stand-in, whose log says which calls it makes and how
//! often; then it runs again for each call, each time that matters, and each thing that the driver can do wrong. `judge.rs` says what
//! may come of it: an error that names the call, or a failure that was counted; no panic, no hang, no wait that ends before its work, no context or capture
//! mode of the caller's lost, nothing left but what is counted, and the first cause of a broken context for all who come later.
//!
//! | file | what |
//! |---|---|
//! | `program.rs` | the programs |
//! | `extras.rs` | what is one vendor's own |
//! | `hosts.rs` | one wait on each host |
//! | `row.rs` | one program with one thing that goes wrong |
//! | `judge.rs` | what may come of it |
//!
//! A part that has every call, every failure, every plan and every host in it is among the usual tests, of HIP a smaller one. All of it takes a quarter
//! of an hour on two idle processors for each vendor:
//! `cargo test -p wakeline-tests --test cuda -- --ignored every_row`.

mod extras;
mod hosts;
mod judge;
mod program;
mod row;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant as Wall;

use wakeline_fake_driver::{Act, Fake, Status, cuda_name};
use wakeline_mapped::CompletionPath;
use wakeline_mapped::error::Kind;
use wakeline_tests::driver_tests;
use wakeline_tests::rig::{FAKE_FAULT, Rig};

use self::extras::Extras;
use self::hosts::Host;
use self::program::{Made, Of, Program};
use self::row::{Row, When, Wrong};
use crate::waiting::PLANS;

driver_tests![
    FakeLeaving: a_part_of_the_fault_matrix;
    FakeLong: every_row_of_the_fault_matrix;
];

/// Of each kind of failure some: of contexts that break, of what a driver cannot do, of its end, of captures, and of calls.
const STATUSES: [i32; 13] = [700, 719, 214, 710, 801, 4, 900, 906, 1, 2, 201, 400, 999];

/// One of each kind: enough for the calls in the midst of a program.
const KINDS: [i32; 5] = [700, 801, 4, 900, 999];

/// Calls that a driver may carry out late, or not at all, and say that it has.
const LOSES: [&str; 3] = ["cuStreamWriteValue64", "cuLaunchHostFunc", "cuLaunchKernel"];

/// The calls that ask.
const ASKS: [&str; 3] = ["cuStreamQuery", "cuEventQuery", "cuStreamIsCapturing"];

/// How long a call that takes long takes.
const LONG_US: u64 = 20_000;

const SEED: u64 = 0x5eed;

/// After how many rows it says so.
const PROGRESS: usize = 10_000;

/// More problems are not told.
const PROBLEMS_MAX: usize = 40;

/// Every plan on every host, for each way in which its word is stored; and what else is done with a driver.
fn programs<D: Extras>() -> Vec<Program> {
    let mut programs = vec![Program::Load, Program::Foreign, Program::Health, Program::Module];
    programs.extend([Program::Memory, Program::Graph]);
    if D::HAS_TIMES {
        programs.extend([Program::Timed, Program::Steps]);
    }
    for made in [Made::Primary, Made::Created, Made::Strict, Made::Foreign] {
        for path in [CompletionPath::Word, CompletionPath::Callback, CompletionPath::Poll] {
            programs.push(Program::Context(made, path));
        }
    }
    for host in Host::ALL {
        for (plan, text) in PLANS.into_iter().enumerate() {
            for of in [Of::Word, Of::Callback, Of::Poll, Of::Kernel, Of::Timed] {
                // The word of a running kernel is for plans that watch it.
                let fits =
                    (of != Of::Kernel || text.starts_with("flag")) && (of != Of::Timed || D::HAS_TIMES);
                programs.extend(fits.then_some(Program::Wait(host, plan, of)));
            }
        }
    }
    programs
}

/// What may go wrong with a call that a program makes so often.
fn wrongs<D: Extras>(call: &str, calls: u64) -> Vec<Wrong> {
    let made = |act: Act, when: When| {
        let skips = when.skips(calls)?;
        Some(Wrong { call: call.to_owned(), when, skips, act })
    };
    let name = cuda_name(call).or(call.split("_v").next()).unwrap_or_default();
    let mut wrongs = Vec::new();
    for status in STATUSES {
        // That it cannot store, or not in a capture, says that it has not.
        let means_it =
            LOSES.contains(&name) && matches!(D::kind(status), Kind::NotSupported | Kind::Capturing);
        let each = |when: &When| matches!(when, When::First | When::Always) || KINDS.contains(&status);
        for when in When::ALL.into_iter().filter(each) {
            wrongs.extend(made(Act::Fail(Status(status)), when));
            wrongs.extend(made(Act::FailAfter(Status(status)), when).filter(|_| !means_it));
        }
    }
    for when in When::ALL.into_iter().filter(|when| when.is_once()) {
        wrongs.extend(made(Act::DelayUs(LONG_US), when));
        wrongs.extend(made(Act::Block, when).filter(|_| ASKS.contains(&name)));
    }
    for when in When::ALL {
        wrongs.extend(made(Act::DropEffect, when).filter(|_| LOSES.contains(&name)));
    }
    wrongs
}

fn stand_in<D: Extras>() -> Arc<Fake> {
    let fake = Fake::new().unwrap();
    fake.configure(|options| {
        options.fault_delay_us = u64::try_from(FAKE_FAULT.as_micros()).unwrap();
        D::prepare(options);
    });
    Arc::new(fake)
}

/// Runs all of these, on as many threads as the machine has processors, each with a stand-in of its own.
fn run_all<D: Extras, T: Sync, R: Send>(all: &[T], run: impl Fn(&mut Arc<Fake>, &T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                let mut fake = stand_in::<D>();
                while let Some((index, one)) = Some(next.fetch_add(1, Ordering::Relaxed))
                    .and_then(|index| Some((index, all.get(index)?)))
                {
                    if index > 0 && index.is_multiple_of(PROGRESS) {
                        eprintln!("fault matrix: {index} of {} rows", all.len());
                    }
                    let result = run(&mut fake, one);
                    results.lock().unwrap().push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap();
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Each program once, where nothing goes wrong; and all that can, in their order.
fn rows<D: Extras>() -> Vec<Row> {
    let programs = programs::<D>();
    let clean = run_all::<D, _, _>(&programs, |fake, program| row::run::<D>(fake, *program, None));
    let mut rows = Vec::new();
    for (program, outcome) in programs.into_iter().zip(clean) {
        let outcome = outcome.unwrap_or_else(|error| panic!("{program:?}: {error}"));
        assert!(outcome.problems.is_empty(), "{program:?}, nothing wrong: {:#?}", outcome.problems);
        for (call, calls) in &outcome.calls {
            rows.extend(wrongs::<D>(call, *calls).into_iter().map(|wrong| Row { program, wrong }));
        }
    }
    rows
}

/// Some of the rows: each call with each failure, each thing that can go wrong with it, and each program; then others by chance.
fn part_of<D: Extras>(rows: Vec<Row>) -> Vec<Row> {
    // By itself, each: how often a program asks is another number in each run, and some rows with it.
    let chance = |index: &usize| {
        let Row { program, wrong } = &rows[*index];
        let mut hasher = DefaultHasher::new();
        (SEED, format!("{program:?} {} {:?} {:?}", wrong.call, wrong.when, wrong.act)).hash(&mut hasher);
        hasher.finish()
    };
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_cached_key(chance);
    let mut seen = BTreeSet::new();
    let (mut part, mut rest) = (BTreeSet::new(), Vec::new());
    for index in order {
        let Row { program, wrong } = &rows[index];
        let new = [
            format!("{} {:?}", wrong.call, wrong.status()),
            format!("{} {:?}", wrong.call, wrong.when),
            format!("{} {:?}", wrong.call, core::mem::discriminant(&wrong.act)),
            format!("{program:?}"),
        ];
        // All are kept in mind, not the first new one alone.
        if new.into_iter().filter(|what| seen.insert(what.clone())).count() > 0 {
            part.insert(index);
        } else {
            rest.push(index);
        }
    }
    let more = D::PART.saturating_sub(part.len());
    part.extend(rest.into_iter().take(more));
    rows.into_iter().enumerate().filter(|(index, _)| part.contains(index)).map(|(_, row)| row).collect()
}

fn run<D: Extras>(rows: &[Row]) {
    let start = Wall::now();
    let outcomes = run_all::<D, _, _>(rows, |fake, row| {
        let outcome = row::run::<D>(fake, row.program, Some(row.wrong.clone()));
        match &outcome {
            Ok(outcome) if outcome.problems.is_empty() => {}
            Ok(outcome) => eprintln!("{row}: {:?}", outcome.problems),
            Err(error) => {
                eprintln!("{row}: {error}");
                // What hangs, or is left of a panic, stays behind with it.
                *fake = stand_in::<D>();
            }
        }
        outcome
    });
    let mut by_call: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut problems = Vec::new();
    for (row, outcome) in rows.iter().zip(outcomes) {
        let (run, not_reached) = by_call.entry(&row.wrong.call).or_default();
        *run += 1;
        match outcome {
            Ok(outcome) => {
                *not_reached += usize::from(outcome.hits == 0);
                let told = outcome.problems.into_iter().map(|problem| format!("{row}: {problem}"));
                problems.extend(told);
            }
            Err(error) => problems.push(format!("{row}: {error}")),
        }
    }
    println!("fault matrix: {} rows in {:.1} s", rows.len(), start.elapsed().as_secs_f32());
    for (call, (run, not_reached)) in by_call {
        println!("  {call:38} {run:6} rows, {not_reached:5} in which it was not called so often");
    }
    let count = problems.len();
    problems.truncate(PROBLEMS_MAX);
    assert!(count == 0, "{count} problems in {} rows, the first of them: {problems:#?}", rows.len());
}

fn a_part_of_the_fault_matrix<D: Extras>(_: &Rig<D>) {
    run::<D>(&part_of::<D>(rows::<D>()));
}

fn every_row_of_the_fault_matrix<D: Extras>(_: &Rig<D>) {
    run::<D>(&rows::<D>());
}

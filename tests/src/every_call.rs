//! A program on the stand-in, run again and again: each call of the driver that it makes fails once, in each way.
//!
//! No row is written by hand: the program runs once, and the stand-in's log says which calls it makes and how often. Whatever fails, the program ends with an
//! error or with the right result; nothing panics, and the driver is not misused.

#![allow(clippy::missing_panics_doc, clippy::panic, reason = "for tests")]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant as Wall;

use wakeline_core::Error;
use wakeline_fake_driver::{Act, Fake, Rule, Status};

/// Of each kind of failure some: of contexts that break, of what a driver cannot do, of its end, of captures, and of calls.
const STATUSES: [i32; 13] = [700, 719, 214, 710, 801, 4, 900, 906, 1, 2, 201, 400, 999];

/// One of each kind: enough for calls in the midst of a program.
const KINDS: [i32; 5] = [1, 2, 719, 801, 900];

/// Which of a call's turns fail in a part of the rows.
const PART: [u64; 3] = [0, 1, 3];

/// More problems are not told.
const PROBLEMS_MAX: usize = 20;

/// How many of the rows there are to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Each call's first turns, as one failure of each kind, before it has done anything.
    Part,
    /// Each turn of each call as one of each kind, its first, middle and last as all; before it has done what it does, and after.
    Every,
}

/// How a program ran.
#[derive(Debug)]
pub struct Ran {
    /// What it came to.
    pub result: Result<Vec<u32>, Error>,
    /// The calls that it made.
    pub calls: Vec<String>,
    /// How it misused the driver.
    pub violations: Vec<String>,
}

impl Ran {
    /// Runs a program on this stand-in, with what goes wrong in it.
    pub fn on(fake: &Fake, wrong: Option<Rule>, program: impl FnOnce() -> Result<Vec<u32>, Error>) -> Self {
        fake.clear_log();
        let rule = wrong.map(|rule| fake.rule(rule));
        // A panic is for who runs the rows to tell.
        let result = catch_unwind(AssertUnwindSafe(program));
        let calls = fake.log().into_iter().map(|call| call.name).collect();
        if rule.is_some() {
            fake.clear_rules();
        }
        let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Self { result, calls, violations: fake.violations() }
    }
}

/// Runs it with each failure of each of its calls. The first of the results is that where nothing fails; no other is right. How many rows there were.
pub fn each_call_fails(
    program: &str,
    extent: Extent,
    right: &[Vec<u32>],
    run: impl Fn(Option<Rule>) -> Ran,
) -> usize {
    let start = Wall::now();
    let clean = run(None);
    assert_eq!(clean.result.unwrap_or_else(|error| panic!("{program}, nothing wrong: {error}")), right[0]);
    let mut turns = BTreeMap::<String, u64>::new();
    for name in clean.calls {
        *turns.entry(name).or_default() += 1;
    }
    let rows: Vec<_> = turns.iter().flat_map(|(name, turns)| rows_of(name, *turns, extent)).collect();
    println!("{program}: {} rows of {} calls", rows.len(), turns.len());
    let mut problems = Vec::new();
    for (name, act, skip) in &rows {
        let rule = || Rule::new(name.clone(), *act).skip(*skip).times(1);
        let told = match catch_unwind(AssertUnwindSafe(|| run(Some(rule())))) {
            Err(_) => Some("a panic".to_owned()),
            Ok(Ran { violations, .. }) if !violations.is_empty() => Some(format!("misused: {violations:?}")),
            Ok(Ran { result: Ok(numbers), .. }) if !right.contains(&numbers) => Some(format!("{numbers:?}")),
            Ok(_) => None,
        };
        problems.extend(told.map(|told| format!("{name}, {act:?}, turn {skip}: {told}")));
    }
    let rows = rows.len();
    println!("{program}: {rows} rows in {:.1} s", start.elapsed().as_secs_f32());
    let count = problems.len();
    problems.truncate(PROBLEMS_MAX);
    assert!(count == 0, "{program}: {count} problems in {rows} rows, the first: {problems:#?}");
    rows
}

/// What may go wrong with a call that is made so often.
fn rows_of(name: &str, turns: u64, extent: Extent) -> Vec<(String, Act, u64)> {
    let mut rows = Vec::new();
    let mut add = |act: Act, skip: u64| rows.push((name.to_owned(), act, skip));
    match extent {
        Extent::Part => {
            for status in KINDS {
                for skip in PART.into_iter().filter(|skip| *skip < turns) {
                    add(Act::Fail(Status(status)), skip);
                }
            }
        }
        Extent::Every => {
            let marked = [0, turns / 2, turns - 1];
            for status in STATUSES {
                for skip in 0..turns {
                    if KINDS.contains(&status) || marked.contains(&skip) {
                        add(Act::Fail(Status(status)), skip);
                        add(Act::FailAfter(Status(status)), skip);
                    }
                }
            }
        }
    }
    rows
}

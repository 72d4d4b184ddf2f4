//! A failing program made smaller: parts are left out as long as it still fails.
//!
//! Halves first, then smaller and smaller pieces, down to single parts, over and over until none can go. The draws of a part do not depend on
//! which other parts are run, so what is left does what it did before; in which order may change, and then it may fail otherwise, which is taken as well.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::kinds::Kind;
use crate::script::{Part, Script};

/// How often it is run at most.
pub const RUNS_MAX: u32 = 3_000;

/// For how long at most.
pub const SECONDS_MAX: u64 = 30;

/// A program that fails, with few parts.
#[derive(Clone, Debug)]
pub struct Small {
    /// What promise was broken.
    pub broken: String,
    /// By which parts.
    pub parts: BTreeSet<Part>,
    /// What happened.
    pub lines: Vec<String>,
    /// How often it was run for that.
    pub runs: u32,
}

/// Makes the program of a seed smaller. `None` where it does not fail.
pub fn shrink(kind: Kind, seed: u64, only: Option<BTreeSet<Part>>) -> Option<Small> {
    smallest(
        |only| {
            let script = Script::traced(only);
            let broken = kind.run(seed, &script).err()?;
            Some((broken, script.ran(), script.lines()))
        },
        only,
    )
}

type Failed = (String, BTreeSet<Part>, Vec<String>);

fn smallest(
    fails: impl Fn(Option<BTreeSet<Part>>) -> Option<Failed>,
    only: Option<BTreeSet<Part>>,
) -> Option<Small> {
    let start = Instant::now();
    let mut runs = 1;
    let (broken, parts, lines) = fails(only)?;
    let mut small = Small { broken, parts, lines, runs };
    let mut piece = small.parts.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        let mut shrunk = false;
        while at < small.parts.len() {
            if runs >= RUNS_MAX || start.elapsed() > Duration::from_secs(SECONDS_MAX) {
                return Some(Small { runs, ..small });
            }
            let all = small.parts.iter().copied().enumerate();
            let others = all.filter(|(place, _)| !(at..at + piece).contains(place)).map(|(_, part)| part);
            runs += 1;
            if let Some((broken, parts, lines)) = fails(Some(others.collect())) {
                small = Small { broken, parts, lines, runs };
                shrunk = true;
            } else {
                at += piece;
            }
        }
        piece = match piece {
            1 if shrunk => 1,
            piece => piece / 2,
        };
    }
    Some(Small { runs, ..small })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_that_a_failure_needs_are_left_and_no_others() {
        let needed = BTreeSet::from([Part::Step(3, 1), Part::Step(7, 0), Part::Event(2)]);
        let all: BTreeSet<Part> =
            (0..10).flat_map(|n| [Part::Step(n, 0), Part::Step(n, 1), Part::Event(n)]).collect();
        let small = smallest(
            |only| {
                let ran = only.unwrap_or_else(|| all.clone());
                ran.is_superset(&needed).then(|| ("broken".to_owned(), ran, Vec::new()))
            },
            None,
        );
        let small = small.unwrap();
        assert_eq!(small.parts, needed);
        assert!(small.runs < 60, "{}", small.runs);
        assert!(smallest(|_| None, None).is_none());
    }
}

//! Which parts of a program are run, and what it did.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::str::FromStr;

/// How many lines of a trace are kept; the oldest go first.
pub const LINES_MAX: usize = 400;

/// One part of a program, which can be left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Part {
    /// A fault of a device is on.
    Fault(u32, u32),
    /// Something happens to all of it: a shut-down, a task that is aborted.
    Event(u32),
    /// A step of a task.
    Step(u32, u32),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(device, kind) => write!(f, "f{device}.{kind}"),
            Self::Event(number) => write!(f, "e{number}"),
            Self::Step(task, step) => write!(f, "t{task}.{step}"),
        }
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no part of a program: write f0.3, e2 or t1.7");
        let number = |text: &str| text.parse().map_err(|_| wrong());
        let two = |text: &str| {
            let (one, other) = text.split_once('.').ok_or_else(wrong)?;
            Ok::<_, String>((number(one)?, number(other)?))
        };
        if let Some(rest) = text.strip_prefix('e') {
            Ok(Self::Event(number(rest)?))
        } else if let Some(rest) = text.strip_prefix('f') {
            two(rest).map(|(device, kind)| Self::Fault(device, kind))
        } else if let Some(rest) = text.strip_prefix('t') {
            two(rest).map(|(task, step)| Self::Step(task, step))
        } else {
            Err(wrong())
        }
    }
}

/// What of a program is run, and what it did.
#[derive(Debug, Default)]
pub struct Script {
    /// `None` is all of it.
    only: Option<BTreeSet<Part>>,
    offered: RefCell<BTreeSet<Part>>,
    offers: Cell<bool>,
    trace: Option<RefCell<VecDeque<String>>>,
}

impl Script {
    /// All of it, without a trace: what a soak runs.
    pub fn all() -> Self {
        Self::default()
    }

    /// These parts alone, or all, with a trace, and with what there was to be run.
    pub fn traced(only: Option<BTreeSet<Part>>) -> Self {
        Self { only, offers: Cell::new(true), trace: Some(RefCell::default()), ..Self::default() }
    }

    /// Whether this part is run. A program asks before each, and draws the part's numbers from dice of its own.
    pub fn runs(&self, part: Part) -> bool {
        let runs = self.only.as_ref().is_none_or(|only| only.contains(&part));
        if runs && self.offers.get() {
            self.offered.borrow_mut().insert(part);
        }
        runs
    }

    /// Notes what happens, where somebody is going to read it.
    pub fn note(&self, line: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            let mut trace = trace.borrow_mut();
            if trace.len() == LINES_MAX {
                trace.pop_front();
            }
            trace.push_back(line());
        }
    }

    /// The parts that were run.
    pub fn ran(&self) -> BTreeSet<Part> {
        self.offered.borrow().clone()
    }

    /// What happened, as far as it was noted.
    pub fn lines(&self) -> Vec<String> {
        self.trace.as_ref().map(|trace| trace.borrow().iter().cloned().collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_reads_back_as_it_was_printed() {
        for part in [Part::Fault(1, 12), Part::Event(7), Part::Step(30, 0)] {
            assert_eq!(part.to_string().parse(), Ok(part));
        }
        for text in ["", "x1", "t1", "t1.", "e", "f1.x", "t1.2.3"] {
            assert!(text.parse::<Part>().unwrap_err().contains("write f0.3, e2 or t1.7"), "{text}");
        }
    }

    #[test]
    fn parts_that_are_left_out_are_not_run_and_lines_are_bounded() {
        let script = Script::traced(Some(BTreeSet::from([Part::Event(1)])));
        assert!(script.runs(Part::Event(1)) && !script.runs(Part::Event(2)));
        assert_eq!(script.ran(), BTreeSet::from([Part::Event(1)]));
        for line in 0..=LINES_MAX {
            script.note(|| line.to_string());
        }
        let lines = script.lines();
        assert_eq!((lines.len(), &*lines[0]), (LINES_MAX, "1"));
        Script::all().note(|| unreachable!("nobody reads it"));
    }
}

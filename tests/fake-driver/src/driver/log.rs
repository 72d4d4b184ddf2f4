//! The calls that were made, how many of each name, and what was wrong with them.

use std::collections::{BTreeMap, VecDeque};

use super::rules::is_named;
use crate::Status;
use crate::wire::Call;

/// More are not kept: the first say what went wrong.
const VIOLATIONS_MAX: usize = 1_000;

/// A call that ended: a [`Call`] as it is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) name: &'static str,
    pub(super) thread: u64,
    pub(super) context: Option<u64>,
    pub(super) stream: Option<u64>,
    pub(super) status: Status,
}

impl Ended {
    fn told(&self) -> Call {
        let Self { name, thread, context, stream, status } = *self;
        Call { name: name.to_owned(), thread, context, stream, status }
    }
}

#[derive(Debug, Default)]
pub(super) struct Log {
    calls: VecDeque<Ended>,
    counts: BTreeMap<&'static str, u64>,
    violations: Vec<String>,
}

impl Log {
    pub(super) fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    pub(super) fn ended(&mut self, call: Ended, len_max: usize) {
        self.calls.push_back(call);
        while self.calls.len() > len_max {
            self.calls.pop_front();
        }
    }

    pub(super) fn violation(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(what);
        }
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.calls.iter().map(Ended::told).collect()
    }

    pub(super) fn counted(&self, name: &str) -> u64 {
        self.counts.iter().filter(|(exported, _)| is_named(exported, name)).map(|(_, count)| count).sum()
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.violations.clone()
    }

    pub(super) fn forgive(&mut self) {
        self.violations.clear();
    }

    pub(super) fn clear(&mut self) {
        self.calls.clear();
        self.counts.clear();
    }
}

//! What comes after what: for each stream, which works of which other streams everything behind comes after.

use alloc::collections::BTreeMap;

use crate::table::Key;

/// One work of one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) stream: Key,
    /// The stream's number, which no other stream ever has.
    pub(crate) number: u64,
    /// How many works were enqueued with it.
    pub(crate) works: u64,
}

/// A vector clock: of each stream, by its number, how many works have come before.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Order(BTreeMap<u64, u64>);

impl Order {
    /// Everything in `other` has come before, too.
    pub(crate) fn join(&mut self, other: &Self) {
        for (&number, &works) in &other.0 {
            self.add(number, works);
        }
    }

    /// So many works of the stream with that number have come before.
    pub(crate) fn add(&mut self, number: u64, works: u64) {
        let entry = self.0.entry(number).or_default();
        *entry = works.max(*entry);
    }

    pub(crate) fn is_behind(&self, place: &Place) -> bool {
        self.0.get(&place.number).is_some_and(|&works| works >= place.works)
    }
}

//! Deadlines of registrations: a binary heap that knows where each stands, so that any can be taken out.

use alloc::vec::Vec;

use crate::time::Instant;

const NOWHERE: usize = usize::MAX;

/// Deadlines by the number of their owner, the earliest on top. No allocation once it has grown to its use.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: Vec<(Instant, usize)>,
    /// Where each owner's deadline stands in the heap.
    places: Vec<usize>,
}

impl Timers {
    /// The earliest deadline and its owner.
    pub(super) fn earliest(&self) -> Option<(Instant, usize)> {
        self.heap.first().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Adds the deadline of an owner that has none.
    pub(super) fn insert(&mut self, owner: usize, at: Instant) {
        if self.places.len() <= owner {
            self.places.resize(owner + 1, NOWHERE);
        }
        self.heap.push((at, owner));
        self.up(self.heap.len() - 1);
    }

    /// Takes an owner's deadline out; one that has none stays so.
    pub(super) fn remove(&mut self, owner: usize) {
        let Some(place) = self.places.get_mut(owner) else { return };
        let place = core::mem::replace(place, NOWHERE);
        if place == NOWHERE {
            return;
        }
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            self.down(place);
            self.up(place);
        }
    }

    fn set(&mut self, place: usize) {
        // A heap is never longer than its owners' numbers reach.
        self.places[self.heap[place].1] = place;
    }

    fn up(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent].0 <= self.heap[place].0 {
                break;
            }
            self.heap.swap(parent, place);
            self.set(place);
            place = parent;
        }
        self.set(place);
    }

    fn down(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            let right = left + 1;
            let mut least = place;
            for child in [left, right] {
                if child < self.heap.len() && self.heap[child].0 < self.heap[least].0 {
                    least = child;
                }
            }
            if least == place {
                break;
            }
            self.heap.swap(place, least);
            self.set(place);
            place = least;
        }
        self.set(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_sorted_map(steps in prop::collection::vec((0_usize..24, 0_u64..50, any::<bool>()), 1..200)) {
            let mut timers = Timers::default();
            let mut model = BTreeMap::new();
            for (owner, at, insert) in steps {
                let at = Instant::from_nanos(at);
                if insert && !model.contains_key(&owner) {
                    timers.insert(owner, at);
                    model.insert(owner, at);
                } else {
                    timers.remove(owner);
                    model.remove(&owner);
                }
                prop_assert_eq!(timers.len(), model.len());
                prop_assert_eq!(timers.earliest().map(|(at, _)| at), model.values().min().copied());
                if let Some((at, owner)) = timers.earliest() {
                    prop_assert_eq!(model.get(&owner), Some(&at));
                }
            }
        }
    }
}

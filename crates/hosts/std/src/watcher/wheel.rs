//! When flights have to be looked at next: a hierarchical timing wheel.
//!
//! Adding, moving and taking out are constant, whatever the number of flights; a heap would grow with it. Six levels of 64 slots,
//! the finest 16 us wide, span 13 days; what is due later waits in the coarsest level and is sorted in again when that has come.
//! Entries keep their exact times: a slot's width says when it is opened, not when its entries are due.

use wakeline_core::Instant;

/// A slot of the finest level is 2^14 ns = 16.4 us wide.
const TICK_BITS: u32 = 14;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 6;

/// No entry.
const NONE: u32 = u32::MAX;
/// The slot of an entry that is in none.
const NOWHERE: u16 = u16::MAX;

/// Times by the number of their owner, each owner at most once.
#[derive(Debug)]
pub(super) struct Wheel {
    /// The tick that has been reached; no entry stands before its slot.
    tick: u64,
    /// Which slots of a level have entries.
    occupied: [u64; LEVELS],
    slots: Box<[Slot]>,
    links: Vec<Link>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    first: u32,
    /// No entry of it is due earlier. Exact but for entries that were taken out.
    earliest: Instant,
}

const EMPTY: Slot = Slot { first: NONE, earliest: Instant::MAX };

#[derive(Clone, Copy, Debug)]
struct Link {
    at: Instant,
    slot: u16,
    before: u32,
    after: u32,
}

const UNLINKED: Link = Link { at: Instant::MAX, slot: NOWHERE, before: NONE, after: NONE };

fn tick_of(at: Instant) -> u64 {
    at.as_nanos() >> TICK_BITS
}

/// The slot of a level by the low bits of a tick.
#[expect(clippy::cast_possible_truncation, reason = "six bits are left")]
fn place(ticks: u64) -> usize {
    (ticks & (SLOTS as u64 - 1)) as usize
}

fn index(level: usize, tick: u64) -> usize {
    level * SLOTS + place(tick >> (SLOT_BITS as usize * level))
}

impl Wheel {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            tick: tick_of(now),
            occupied: [0; LEVELS],
            slots: vec![EMPTY; LEVELS * SLOTS].into(),
            links: Vec::new(),
            len: 0,
        }
    }

    /// How many owners have a time.
    #[cfg(all(test, not(loom)))]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Sets the time of `owner`, in place of the one it may have had. [`Instant::MAX`] is none.
    pub(super) fn set(&mut self, owner: u32, at: Instant) {
        self.remove(owner);
        if at == Instant::MAX {
            return;
        }
        if self.links.len() <= owner as usize {
            self.links.resize(owner as usize + 1, UNLINKED);
        }
        self.link(owner, at);
        self.len += 1;
    }

    /// Takes the time of `owner` out, if it has one.
    pub(super) fn remove(&mut self, owner: u32) {
        if self.links.get(owner as usize).is_some_and(|link| link.slot != NOWHERE) {
            self.unlink(owner);
            self.len -= 1;
        }
    }

    /// A moment before which nothing is due; exact unless entries were taken out. [`Instant::MAX`] where there are none.
    pub(super) fn earliest(&self) -> Instant {
        // Lower levels are due before higher ones, since they share more of the tick that has been reached.
        for level in 0..LEVELS {
            if self.occupied[level] != 0 {
                let place = self.occupied[level].trailing_zeros() as usize;
                return self.slots[level * SLOTS + place].earliest;
            }
        }
        Instant::MAX
    }

    /// Takes out an owner whose time has come, `None` when there is none left. Those of an earlier slot come first.
    pub(super) fn pop(&mut self, now: Instant) -> Option<u32> {
        let target = tick_of(now);
        loop {
            if self.len == 0 {
                self.tick = self.tick.max(target);
                return None;
            }
            if let Some(owner) = self.pop_from_here(now) {
                return Some(owner);
            }
            let Some((level, tick)) = self.next_slot() else {
                // All that there is stands in this slot. Later than it goes only what waits at the end of the coarsest level's
                // span, which has been reached.
                if target > self.tick {
                    let end = core::mem::replace(&mut self.tick, target);
                    self.open(0, end);
                }
                return None;
            };
            if tick > target {
                self.tick = self.tick.max(target);
                return None;
            }
            self.tick = tick;
            if level > 0 {
                self.open(level, tick);
            }
        }
    }

    /// From the slot of the tick that has been reached.
    fn pop_from_here(&mut self, now: Instant) -> Option<u32> {
        let slot = index(0, self.tick);
        if self.slots[slot].earliest > now {
            return None;
        }
        let mut earliest = Instant::MAX;
        let mut owner = self.slots[slot].first;
        while owner != NONE {
            let Link { at, after, .. } = self.links[owner as usize];
            if at <= now {
                self.unlink(owner);
                self.len -= 1;
                return Some(owner);
            }
            earliest = earliest.min(at);
            owner = after;
        }
        // What made it seem due was taken out.
        self.slots[slot].earliest = earliest;
        None
    }

    /// The next slot with entries after that of the tick that has been reached, and its first tick.
    fn next_slot(&self) -> Option<(usize, u64)> {
        for level in 0..LEVELS {
            let bits = SLOT_BITS as usize * level;
            let place = place(self.tick >> bits);
            // The finest level's own slot has been looked at; those of the others are open, so empty.
            let ahead = self.occupied[level] & (u64::MAX << place) & !(1 << place);
            if ahead != 0 {
                let place = u64::from(ahead.trailing_zeros());
                let round = self.tick >> bits >> SLOT_BITS << SLOT_BITS;
                return Some((level, (round | place) << bits));
            }
        }
        None
    }

    /// Sorts the entries of a coarser slot, whose first tick has come, into finer ones.
    fn open(&mut self, level: usize, tick: u64) {
        let slot = index(level, tick);
        let mut owner = self.slots[slot].first;
        self.slots[slot] = EMPTY;
        self.occupied[level] &= !(1 << (slot % SLOTS));
        while owner != NONE {
            let Link { at, after, .. } = self.links[owner as usize];
            self.link(owner, at);
            owner = after;
        }
    }

    fn link(&mut self, owner: u32, at: Instant) {
        // A time that has passed stands in the slot that is open.
        let span = 1 << (SLOT_BITS as usize * LEVELS);
        let tick = tick_of(at).clamp(self.tick, self.tick | (span - 1));
        let differs = (tick ^ self.tick) | 1;
        let level = ((u64::BITS - 1 - differs.leading_zeros()) / SLOT_BITS) as usize;
        let slot = index(level, tick);
        let Slot { first, earliest } = &mut self.slots[slot];
        let after = *first;
        *first = owner;
        *earliest = (*earliest).min(at);
        self.occupied[level] |= 1 << (slot % SLOTS);
        // Six levels of 64 slots.
        #[allow(clippy::cast_possible_truncation)]
        let slot = slot as u16;
        self.links[owner as usize] = Link { at, slot, before: NONE, after };
        if let Some(after) = self.links.get_mut(after as usize) {
            after.before = owner;
        }
    }

    fn unlink(&mut self, owner: u32) {
        let Link { slot, before, after, .. } = core::mem::replace(&mut self.links[owner as usize], UNLINKED);
        if let Some(after) = self.links.get_mut(after as usize) {
            after.before = before;
        }
        let slot = slot as usize;
        match self.links.get_mut(before as usize) {
            Some(before) => before.after = after,
            None => self.slots[slot].first = after,
        }
        if self.slots[slot].first == NONE {
            self.slots[slot] = EMPTY;
            self.occupied[slot / SLOTS] &= !(1 << (slot % SLOTS));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    /// Times of every magnitude, so that every level is used.
    fn any_ns() -> impl Strategy<Value = u64> {
        (0_u32..52, any::<u64>()).prop_map(|(bits, ns)| ns & ((1 << bits) - 1))
    }

    #[derive(Clone, Debug)]
    enum Step {
        Set(u32, u64),
        Remove(u32),
        Pass(u64),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0_u32..24, any_ns()).prop_map(|(owner, ns)| Step::Set(owner, ns)),
            1 => (0_u32..24).prop_map(Step::Remove),
            2 => any_ns().prop_map(Step::Pass),
        ]
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_sorted_map(start in any_ns(), steps in prop::collection::vec(any_step(), 1..200)) {
            let mut now = at(start);
            let mut wheel = Wheel::new(now);
            let mut model = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Set(owner, ns) => {
                        let time = at(now.as_nanos().saturating_add(ns).saturating_sub(1_000_000));
                        wheel.set(owner, time);
                        model.insert(owner, time);
                    }
                    Step::Remove(owner) => {
                        wheel.remove(owner);
                        model.remove(&owner);
                    }
                    Step::Pass(ns) => {
                        now = at(now.as_nanos().saturating_add(ns));
                        while let Some(owner) = wheel.pop(now) {
                            let due = model.remove(&owner);
                            prop_assert!(due.is_some_and(|due| due <= now), "{owner} at {due:?}, now {now:?}");
                        }
                        prop_assert!(model.values().all(|due| *due > now), "{:?}, now {:?}", model, now);
                    }
                }
                prop_assert_eq!(wheel.len(), model.len());
                let earliest = model.values().min().copied().unwrap_or(Instant::MAX);
                prop_assert!(wheel.earliest() <= earliest);
                prop_assert!(!model.is_empty() || wheel.earliest() == Instant::MAX);
            }
        }

        /// Whoever sleeps to what it says gets there in few sleeps, and is never sent back to where it is.
        #[test]
        fn sleeping_to_the_earliest_gets_on(times in prop::collection::vec(any_ns(), 1..20), removed in 0_usize..20) {
            let mut wheel = Wheel::new(at(0));
            for (owner, ns) in (0..).zip(&times) {
                wheel.set(owner, at(*ns));
            }
            wheel.remove(u32::try_from(removed).unwrap());
            let (mut now, mut sleeps) = (at(0), 0);
            while wheel.len() > 0 {
                now = now.max(wheel.earliest());
                sleeps += 1;
                while wheel.pop(now).is_some() {}
                prop_assert!(sleeps <= 2 * times.len() + LEVELS, "{} sleeps for {:?}", sleeps, times);
            }
        }
    }

    /// Every 13 days the coarsest level begins anew, be there entries or not.
    #[test]
    fn behind_the_end_of_its_span_entries_stand_in_slots_of_their_own_again() {
        let end = 1 << (TICK_BITS as usize + SLOT_BITS as usize * LEVELS);
        let mut wheel = Wheel::new(at(end - 40_000_000));
        for owner in 0..100 {
            wheel.set(owner, at(end + 1_000_000 * u64::from(owner)));
        }
        assert_eq!((wheel.pop(at(end - 1)), wheel.pop(at(end)), wheel.pop(at(end))), (None, Some(0), None));
        assert_eq!((wheel.len(), wheel.tick), (99, tick_of(at(end))));
        assert!(
            wheel.occupied.iter().map(|slots| slots.count_ones()).sum::<u32>() > 50,
            "{:?}",
            wheel.occupied
        );
        for owner in 1..100 {
            assert_eq!(wheel.pop(at(end + 1_000_000 * u64::from(owner))), Some(owner));
        }
    }

    #[test]
    fn an_entry_is_due_at_its_time_and_not_before() {
        let mut wheel = Wheel::new(at(0));
        for (owner, ns) in [(0, 5_000_000), (1, 20_000), (2, u64::MAX - 1), (3, u64::MAX)] {
            wheel.set(owner, at(ns));
        }
        assert_eq!((wheel.len(), wheel.earliest()), (3, at(20_000)));
        assert_eq!(wheel.pop(at(19_999)), None);
        assert_eq!((wheel.pop(at(20_000)), wheel.pop(at(20_000))), (Some(1), None));
        assert_eq!(wheel.earliest(), at(5_000_000));
        assert_eq!((wheel.pop(at(4_999_999)), wheel.pop(at(5_000_000))), (None, Some(0)));
        assert_eq!(wheel.pop(at(1 << 60)), None);
        assert_eq!(wheel.pop(Instant::MAX), Some(2));
        assert_eq!(wheel.len(), 0);
    }
}

//! How long operations take, as far as it is known: what a wait is predicted by.
//!
//! An operation is known by its type, which tells one place in a program from another wherever a closure is part of it, and by the number
//! that its user may give it. What is kept of each is how long it ran for, the queue before it taken off (see [`Lane`](crate::lane::Lane)):
//! a low value of the last ones, since a wait that is woken too early watches for a moment, and one that is woken too late is late.
//!
//! Failure modes, each of which costs time and nothing else:
//! - Kinds whose hashes share a place forget each other: the one that comes next is not predicted.
//! - A kind whose work takes now this long and now that long is predicted by the shorter. Give it a number
//!   ([`DeviceFuture::keyed`](crate::DeviceFuture::keyed)).
//! - Work that gets slower is predicted too short until [`ABOVE_MAX`] in a row have taken longer; work that gets faster is waited for too long
//!   a few times, each half as long as the one before in the end. (One that seems to have been fast may have begun long before its submitter was told so, having lost its processor in between.)
//! - Threads that learn at one moment may lose one of their samples: no value depends on another.

use core::any::TypeId;
use core::hash::{Hash, Hasher};
use core::sync::atomic::{AtomicU64, Ordering};

use wakeline_core::Nanos;

/// How many kinds of operations are known at a time; about 24 bytes each.
const PLACES: usize = 1 << u8::BITS;

/// After so many in a row that took longer than expected, the shortest of them is what is expected.
const ABOVE_MAX: u64 = 8;

/// What is longer or shorter by at most so much, and a sixteenth, is as expected.
const NEAR_NS: u64 = 4_000;

/// By so much, and by such a part of it, less is expected after an end that was slept through; by a half from the fifth in a row on. The first
/// says nothing of the work: it is the wake-up that was late, most likely.
const SOONER_NS: u64 = 2_000;
const SHRINKS: [u64; 4] = [u64::MAX, 128, 32, 8];

/// Which kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind(u64);

impl Kind {
    /// Operations of type `O` with this number of their user.
    #[inline]
    pub(crate) fn of<O: 'static>(key: u64) -> Self {
        let mut hash = Whole(0);
        TypeId::of::<O>().hash(&mut hash);
        // Odd, so that keys stay apart; never zero, which stands for no kind.
        Self((hash.0 ^ key.wrapping_mul(0x9E37_79B9_7F4A_7C15)) | 1)
    }

    fn place(self) -> u8 {
        // The high bits of a product depend on all bits of a number.
        self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()[0]
    }
}

/// Takes what is hashed as it is: a type's number is a hash already.
struct Whole(u64);

impl Hasher for Whole {
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 ^= number;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
}

#[derive(Debug, Default)]
struct Place {
    kind: AtomicU64,
    /// What is expected; zero where nothing is known.
    ns: AtomicU64,
    /// How many in a row took longer, and the shortest of them.
    above: AtomicU64,
    least: AtomicU64,
    /// What the last one took, where that was far less than expected; else zero.
    below: AtomicU64,
    /// How many in a row had ended before anybody looked.
    slept: AtomicU64,
}

/// How long the operations of a device take. Fixed memory; a look and a lesson are a few loads and stores.
#[derive(Debug)]
pub(crate) struct Known {
    places: Box<[Place; PLACES]>,
}

impl Known {
    pub(crate) fn new() -> Self {
        Self { places: Box::new(core::array::from_fn(|_| Place::default())) }
    }

    /// How long this kind takes, where it is known.
    #[inline]
    pub(crate) fn expect(&self, kind: Kind) -> Option<Nanos> {
        let place = &self.places[usize::from(kind.place())];
        let ns = place.ns.load(Ordering::Relaxed);
        (place.kind.load(Ordering::Relaxed) == kind.0 && ns > 0).then(|| Nanos::from_nanos(ns))
    }

    /// One of which `expected` was known when it was submitted has taken this long, give or take `about`; or less, where its end was only seen some time later.
    #[expect(
        clippy::inline_always,
        reason = "measured: it is called once, and a call costs more than it does"
    )]
    #[inline(always)]
    pub(crate) fn learn(&self, kind: Kind, took: Nanos, about: Nanos, exact: bool, expected: Option<Nanos>) {
        let place = &self.places[usize::from(kind.place())];
        let took = took.as_nanos().max(1);
        let (least, most) = (took.saturating_sub(about.as_nanos()), took.saturating_add(about.as_nanos()));
        let known = place.ns.load(Ordering::Relaxed);
        if place.kind.load(Ordering::Relaxed) != kind.0 || known == 0 {
            // Not expected of one kind what another took.
            place.ns.store(0, Ordering::Relaxed);
            place.kind.store(kind.0, Ordering::Release);
            place.above.store(0, Ordering::Relaxed);
            place.below.store(0, Ordering::Relaxed);
            place.slept.store(0, Ordering::Relaxed);
            return place.ns.store(took, Ordering::Release);
        }
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        if exact && took == known && read(&place.above) | read(&place.below) | read(&place.slept) == 0 {
            // As expected, as the last ones.
            return;
        }
        let near = known + known / 16 + NEAR_NS;
        if exact {
            place.slept.store(0, Ordering::Relaxed);
        }
        if exact && most < (known - known / 16).saturating_sub(NEAR_NS) {
            return Self::below(place, most);
        }
        let now = if !exact {
            if expected.map(Nanos::as_nanos) != Some(known) {
                // Many may have waited by what was known before: one of them has said so, or it was never so long.
                return;
            }
            // It had ended by the time somebody looked: nobody knows when. The more of them there are in a row, the longer ago it was.
            let row = place.slept.load(Ordering::Relaxed);
            place.slept.store(row + 1, Ordering::Relaxed);
            let part = SHRINKS.get(usize::try_from(row).unwrap_or(usize::MAX)).copied().unwrap_or(2);
            known.min(took).saturating_sub(known / part + SOONER_NS)
        } else if most <= known {
            known - (known - most) / 2
        } else if least <= known {
            // As far as anybody can tell.
            known
        } else if least <= near {
            known + (least - known) / 8
        } else {
            return Self::above(place, least);
        };
        place.above.store(0, Ordering::Relaxed);
        place.below.store(0, Ordering::Relaxed);
        place.ns.store(now.max(1), Ordering::Relaxed);
    }

    /// One was far shorter than anything that was to be expected.
    #[cold]
    fn below(place: &Place, took: u64) {
        let before = place.below.swap(took, Ordering::Relaxed);
        if before > 0 {
            place.ns.store(before.max(took), Ordering::Relaxed);
            place.below.store(0, Ordering::Relaxed);
            place.above.store(0, Ordering::Relaxed);
        }
    }

    /// One took longer than anything that was to be expected.
    #[cold]
    fn above(place: &Place, took: u64) {
        let above = place.above.load(Ordering::Relaxed) + 1;
        let least = if above == 1 { took } else { took.min(place.least.load(Ordering::Relaxed)) };
        place.least.store(least, Ordering::Relaxed);
        if above >= ABOVE_MAX {
            place.ns.store(least, Ordering::Relaxed);
            place.above.store(0, Ordering::Relaxed);
        } else {
            place.above.store(above, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const US: Nanos = Nanos::from_micros(1);

    fn us(us: u64) -> Nanos {
        Nanos::from_micros(us)
    }

    #[test]
    fn types_and_numbers_are_told_apart() {
        let kinds = [Kind::of::<u8>(0), Kind::of::<u8>(1), Kind::of::<u16>(0), Kind::of::<[u8; 3]>(0)];
        for (at, kind) in kinds.iter().enumerate() {
            assert_eq!(kinds.iter().position(|other| other == kind), Some(at));
        }
        let known = Known::new();
        let kind = Kind::of::<u8>(0);
        assert_eq!(known.expect(kind), None);
        known.learn(kind, us(100), Nanos::ZERO, true, known.expect(kind));
        assert_eq!(known.expect(kind), Some(us(100)));
        assert_eq!(known.expect(Kind::of::<u8>(1)), None);
    }

    /// One that was in front of a queue, or the first of a cold device: what is slept through for it is told late, each by less.
    #[test]
    fn one_long_one_makes_a_kind_slow_a_few_times_only() {
        let (known, kind) = (Known::new(), Kind::of::<u8>(0));
        known.learn(kind, us(1_000_000), Nanos::ZERO, true, known.expect(kind));
        let mut waited = Nanos::ZERO;
        for _ in 0..40 {
            let told = known.expect(kind).unwrap().max(us(100));
            waited = waited + told;
            known.learn(kind, told, Nanos::ZERO, told <= us(100), known.expect(kind));
        }
        assert!(known.expect(kind).unwrap() <= us(104), "{:?}", known.expect(kind));
        assert!(waited < us(6_000_000), "{waited}");
    }

    #[test]
    fn it_follows_a_low_value_and_one_that_is_much_longer_changes_nothing() {
        let (known, kind) = (Known::new(), Kind::of::<u8>(0));
        for round in 0..400 {
            let took = [100, 101, 99, 102, 103][round % 5] + if round % 40 == 7 { 5_000 } else { 0 };
            known.learn(kind, us(took), Nanos::ZERO, true, known.expect(kind));
        }
        let expected = known.expect(kind).unwrap();
        assert!((us(98)..=us(101)).contains(&expected), "{expected}");
    }

    #[test]
    fn a_step_up_is_followed_after_eight_and_a_step_down_within_a_few() {
        let (known, kind) = (Known::new(), Kind::of::<u8>(0));
        known.learn(kind, us(1_000), Nanos::ZERO, true, known.expect(kind));
        for _ in 1..ABOVE_MAX {
            known.learn(kind, us(10_000), Nanos::ZERO, true, known.expect(kind));
            assert_eq!(known.expect(kind), Some(us(1_000)));
        }
        known.learn(kind, us(10_005), Nanos::ZERO, true, known.expect(kind));
        assert_eq!(known.expect(kind), Some(us(10_000)));
        for _ in 0..10 {
            known.learn(kind, us(1_000), Nanos::ZERO, true, known.expect(kind));
        }
        assert!(known.expect(kind).unwrap() < us(1_010));
    }

    #[test]
    fn an_end_that_nobody_saw_makes_the_next_wait_shorter() {
        let (known, kind) = (Known::new(), Kind::of::<u8>(0));
        known.learn(kind, us(1_600), Nanos::ZERO, true, known.expect(kind));
        known.learn(kind, us(1_700), Nanos::ZERO, false, known.expect(kind));
        assert_eq!(known.expect(kind), Some(us(1_598)), "a little");
        known.learn(kind, us(1_700), Nanos::ZERO, false, known.expect(kind));
        assert_eq!(known.expect(kind), Some(Nanos::from_nanos(1_583_516)), "it is the second in a row");
        for _ in 0..200 {
            known.learn(kind, US, Nanos::ZERO, false, known.expect(kind));
        }
        assert!(known.expect(kind).unwrap() >= Nanos::from_nanos(1));
    }

    #[test]
    fn many_that_waited_by_one_expectation_change_it_once() {
        let (known, kind) = (Known::new(), Kind::of::<u8>(0));
        known.learn(kind, us(20_000), Nanos::ZERO, true, None);
        let mut before = us(20_000);
        for _ in 0..6 {
            let expected = known.expect(kind);
            for _ in 0..64 {
                known.learn(kind, us(20_400), Nanos::ZERO, false, expected);
            }
            let after = known.expect(kind).unwrap();
            assert!(after < before && after + after + us(5) >= before, "{before}, {after}");
            before = after;
        }
    }

    #[test]
    fn what_is_told_late_changes_what_it_cannot_have_been() {
        let (known, kind) = (Known::new(), Kind::of::<u8>(0));
        known.learn(kind, us(1_000), us(100), true, known.expect(kind));
        for took in [1_060, 940, 1_090] {
            known.learn(kind, us(took), us(100), true, known.expect(kind));
            assert_eq!(known.expect(kind), Some(us(1_000)));
        }
        known.learn(kind, us(850), us(100), true, known.expect(kind));
        assert_eq!(known.expect(kind), Some(us(975)));
        // Much shorter counts the second time.
        known.learn(kind, us(300), us(100), true, known.expect(kind));
        assert_eq!(known.expect(kind), Some(us(975)));
        known.learn(kind, us(500), us(100), true, known.expect(kind));
        assert_eq!(known.expect(kind), Some(us(600)));
    }
}

//! Who waits for a place in a stream, in turn, and for whom room is held.
//!
//! Who is woken keeps its turn: where there is no room after all, it waits where it was before. What asks for a few entries finds room with about any end.
//! What asks for many would not while others take what each end gives back. So room is *held* for the first that is refused more than [`LARGE_ENTRIES`]: others are
//! given no place until it has its own or leaves. What is in flight goes on, asks for more, and ends, by which there is room.
//!
//! A future may be forgotten while it waits. So a hold also is over by itself, and all are woken that wait,
//!
//! - after [`HOLD_ENDS`] ends: more than there can be in flight when it begins, so only where threads that wait on the spot, which are never refused, keep the stream busy;
//! - after [`HOLD_LOOKS`] looks of others while nothing is in flight. No end would wake those, so each wakes itself: so many polls in all, in which a task that
//!   was woken on another thread is expected to look.
//!
//! After that no room is held for [`HOLD_ENDS`] ends. Who forgets a large future costs others that once: only a poll has room held, and there is none any more. One that is
//! still polled but slow has to wait for as long as it would if no room were ever held.

use core::num::NonZeroU64;
use core::task::Waker;
use std::collections::VecDeque;

use smallvec::SmallVec;

/// How many of those who wait for a place are woken for one.
const WOKEN_PER_PLACE: usize = 2;

/// Room is held for what asks for more entries than this.
pub(super) const LARGE_ENTRIES: u32 = 16;

/// For how many ends room is held at most, and then not held.
pub(super) const HOLD_ENDS: u32 = 1_024;

/// For how many looks of others, while nothing is in flight, room is held at most.
pub(super) const HOLD_LOOKS: u32 = 1_024;

const _: () = assert!(HOLD_ENDS as usize > crate::stream::IN_FLIGHT_MAX, "all in flight may end meanwhile");

/// Those to be woken, once the lock is given back.
pub(super) type Woken = SmallVec<[Waker; WOKEN_PER_PLACE]>;

/// Who waits for a place, those first who have waited longest.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    wakers: VecDeque<(Turn, Waker)>,
    turns: u64,
    hold: Option<Hold>,
    /// How many ends are to come until room is held again.
    pause_ends: u32,
}

/// Where somebody stands among those who wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Turn(NonZeroU64);

/// For whom room is held, and for how long still.
#[derive(Debug)]
struct Hold {
    turn: Turn,
    entries: u32,
    ends: u32,
    looks: u32,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.wakers.is_empty()
    }

    pub(super) fn is_held(&self) -> bool {
        self.hold.is_some()
    }

    /// Whether no room is held for somebody else.
    pub(super) fn may_enter(&self, turn: Option<Turn>) -> bool {
        self.hold.as_ref().is_none_or(|hold| Some(hold.turn) == turn)
    }

    /// Has it woken when there may be room, in its turn, or the last; what it was woken by before, or is not needed.
    pub(super) fn wait(&mut self, turn: &mut Option<Turn>, waker: Waker) -> Option<Waker> {
        let its = *turn.get_or_insert_with(|| {
            self.turns += 1;
            Turn(NonZeroU64::MIN.saturating_add(self.turns))
        });
        match self.place(its) {
            Ok(place) => {
                let (_, before) = self.wakers.get_mut(place)?;
                if before.will_wake(&waker) { Some(waker) } else { Some(core::mem::replace(before, waker)) }
            }
            Err(place) => {
                self.wakers.insert(place, (its, waker));
                None
            }
        }
    }

    /// Holds room for who waits there and asks for so many entries, where that is large and no room is held.
    pub(super) fn hold_for(&mut self, turn: Option<Turn>, entries: u32) {
        if let Some(turn) = turn
            && entries > LARGE_ENTRIES
            && self.hold.is_none()
            && self.pause_ends == 0
        {
            self.hold = Some(Hold { turn, entries, ends: HOLD_ENDS, looks: HOLD_LOOKS });
        }
    }

    /// Who waits there does so no longer; its waker, where it was not woken, and whether room was held for it.
    pub(super) fn remove(&mut self, turn: Turn) -> (Option<Waker>, bool) {
        let was_held = self.hold.take_if(|hold| hold.turn == turn).is_some();
        let place = self.place(turn).ok();
        (place.and_then(|place| self.wakers.remove(place)).map(|(_, waker)| waker), was_held)
    }

    /// Somebody else looks while nothing is in flight; whether the hold is over by that.
    pub(super) fn look(&mut self) -> bool {
        let Some(hold) = &mut self.hold else { return false };
        hold.looks = hold.looks.saturating_sub(1);
        hold.looks == 0 && self.lapse()
    }

    fn lapse(&mut self) -> bool {
        self.pause_ends = HOLD_ENDS;
        self.hold.take().is_some()
    }

    /// Who is woken by an end: whom room is held for, where it `fits`; else those who have waited longest, [`WOKEN_PER_PLACE`] of them, since one may have
    /// been dropped. All where nothing is in flight any more, whose end would wake the next: one that is woken and never polled again must not keep the
    /// others waiting.
    pub(super) fn end(&mut self, nothing_in_flight: bool, fits: impl FnOnce(u32) -> bool) -> Woken {
        self.pause_ends = self.pause_ends.saturating_sub(1);
        let Some(hold) = &mut self.hold else {
            let count = if nothing_in_flight { self.wakers.len() } else { WOKEN_PER_PLACE };
            return self.drain(count);
        };
        hold.ends = hold.ends.saturating_sub(1);
        let (turn, entries, over) = (hold.turn, hold.entries, hold.ends == 0);
        if over && self.lapse() {
            return self.drain(usize::MAX);
        }
        let mut woken = Woken::new();
        if fits(entries)
            && let Ok(place) = self.place(turn)
        {
            woken.extend(self.wakers.remove(place).map(|(_, waker)| waker));
        }
        if nothing_in_flight {
            woken.extend(self.drain(usize::MAX));
        }
        woken
    }

    /// All, since a hold is over.
    pub(super) fn all(&mut self) -> Woken {
        self.drain(usize::MAX)
    }

    fn drain(&mut self, count: usize) -> Woken {
        let count = count.min(self.wakers.len());
        self.wakers.drain(..count).map(|(_, waker)| waker).collect()
    }

    fn place(&self, turn: Turn) -> Result<usize, usize> {
        self.wakers.binary_search_by_key(&turn, |(its, _)| *its)
    }
}

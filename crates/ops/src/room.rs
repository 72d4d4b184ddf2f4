//! Room for what a submission enqueues, in the queues of its streams.
//!
//! ```text
//!   admitted with what is known of it ──► enqueues, and counts ──enough──► its flight keeps the entries
//!                                           │        ▲
//!                                           │ more   │ (1) there is room
//!                                           ▼        │ (2) there is none, and all in front runs: waited for on the spot
//!                                         asks ──────┤
//!                                                    └ (3) there is none, and a gate may be closed in front: an error
//! ```
//!
//! A launch into a full queue blocks the thread in the driver until there is room, and with it whoever needs the driver's locks. So nothing is left to that: entries are counted
//! ahead, and where a submission by itself is larger than the queue its thread waits here, by the word, for what is in front of it. What is larger than was known, and meets a full
//! queue behind a closed gate, cannot be waited for: who opens the gate may need this very thread.

use core::sync::atomic::{AtomicU64, Ordering};

use wakeline_core::{Error, ErrorCode};

use crate::events::Place;
use crate::ladder::wait_for_armed;
use crate::lane::{FLIGHT, Lane, OTHERS};
use crate::port::Device;
use crate::stream::Stream;
use crate::submission::Submission;
use crate::sync::Lock;

/// How many entries a submission takes at a time, where it turns out to need more than was known.
const AHEAD: u32 = 16;

/// How many entries more than it has enqueued a flight may keep.
const SPARE: u32 = 2;

/// The gates of a device that are closed, as far as queues go: by numbers, in the order in which they were closed.
///
/// A stream knows the highest number that may be in front of what it is given next, its own or one of a stream that it waits for. That is all that is told apart: one that was
/// behind a gate is taken to be so for as long as an older one is closed elsewhere.
pub(crate) struct ClosedGates {
    /// The oldest, `u64::MAX` for none.
    oldest: AtomicU64,
    numbers: Lock<Numbers>,
}

#[derive(Default)]
struct Numbers {
    closed: Vec<u64>,
    last: u64,
}

impl ClosedGates {
    pub(crate) fn new() -> Self {
        Self { oldest: AtomicU64::new(u64::MAX), numbers: Lock::new(Numbers::default()) }
    }

    /// Another is about to be closed in this stream; its number.
    pub(crate) fn close(&self, lane: &Lane) -> u64 {
        let mut numbers = self.numbers.lock();
        numbers.last += 1;
        let number = numbers.last;
        numbers.closed.push(number);
        self.note(&numbers);
        lane.behind_gate(number);
        number
    }

    /// It is open.
    pub(crate) fn open(&self, number: u64) {
        let mut numbers = self.numbers.lock();
        numbers.closed.retain(|other| *other != number);
        self.note(&numbers);
    }

    fn note(&self, numbers: &Numbers) {
        // They are pushed in their order.
        self.oldest.store(numbers.closed.first().copied().unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Whether one may be closed in front of what is enqueued in this stream.
    pub(crate) fn may_hold(&self, lane: &Lane) -> bool {
        self.oldest.load(Ordering::SeqCst) <= lane.last_gate()
    }
}

/// What a submission had counted in a stream, while it enqueues in another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    entered: u32,
    budget: u32,
    open: Option<Place>,
}

impl<D: Device> Submission<D> {
    /// Sees to it that so many entries more fit in the queue of its stream: launches, copies, events that are recorded, waits. For whoever enqueues several
    /// by one [`stream`](Self::stream), each call of which counts as one.
    ///
    /// Where there is no room that is waited for on the spot, for as long as what is in front in the stream takes; see [`ENTRIES_MAX`](crate::ENTRIES_MAX). Costs a
    /// comparison where it was known before.
    ///
    /// ```
    /// use wakeline_core::Nanos;
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream, Submission, value, with_context};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
    /// let many = with_context(|submission: &mut Submission<SimDevice>| {
    ///     for _ in 0..2_000 {
    ///         submission.room(1)?;
    ///         submission.stream().raw().launch(Nanos::from_micros(1))?;
    ///     }
    ///     Ok(value(()))
    /// });
    /// many.on(&runtime).sync()?;
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`QueueFull`](ErrorCode::QueueFull) where there is no room, and a gate may be in front that is closed; what the device says.
    #[inline]
    pub fn room(&mut self, entries: u32) -> Result<(), Error> {
        if self.has_room(entries) { Ok(()) } else { self.make_room(entries) }
    }

    #[inline]
    pub(crate) fn has_room(&self, entries: u32) -> bool {
        self.entered.get().saturating_add(entries) <= self.budget
    }

    /// So many were enqueued.
    #[inline]
    pub(crate) fn enter(&self, entries: u32) {
        self.entered.set(self.entered.get().saturating_add(entries));
    }

    #[cold]
    fn make_room(&mut self, entries: u32) -> Result<(), Error> {
        let stream = self.stream.clone();
        let lane = &**stream.lane();
        let (_, most) = lane.entries();
        // Of what is larger, the rest is asked for as it comes.
        let entries = entries.min(most / 2);
        let missing = self.entered.get().saturating_add(entries).saturating_sub(self.budget);
        for more in [missing.max(AHEAD), missing] {
            if lane.take_more(more) {
                self.budget += more;
                self.has_in(lane, |has| *has += u64::from(more));
                return Ok(());
            }
        }
        self.wait_for_room(&stream, entries)
    }

    /// What it has of what is taken in this stream.
    fn has_in(&mut self, lane: &Lane, change: impl FnOnce(&mut u64)) {
        if let Some(has) = self.permit.as_mut().and_then(|permit| permit.taken_of(lane)) {
            change(has);
        }
    }

    /// Waits until all is done that is enqueued in its stream, and goes on with half of the queue, whatever others who see their ends later still have of it.
    fn wait_for_room(&mut self, stream: &Stream<D>, entries: u32) -> Result<(), Error> {
        let (core, lane) = (stream.core(), &**stream.lane());
        let (taken, most) = lane.entries();
        let full = || Error::new(ErrorCode::QueueFull, [&entries, &taken, &most]);
        if core.gates.may_hold(lane) {
            return Err(full());
        }
        // What is waited for here has landed then.
        self.close();
        let (point, arming) = core.arm(stream)?;
        // Only now: a gate that was closed in front of that is seen here, and one that is closed later is behind it.
        if core.gates.may_hold(lane) {
            return Err(full());
        }
        wait_for_armed(core, point, arming)?;
        let fresh = most / 2;
        lane.take_anyway(fresh);
        // Given back at last is what was had before; the place stays.
        let (fresh_taken, mut had) = (FLIGHT + u64::from(fresh), FLIGHT + u64::from(fresh));
        self.has_in(lane, |has| had = core::mem::replace(has, fresh_taken));
        lane.give(had - FLIGHT);
        if let Some(mark) = self.permit.as_mut().and_then(|permit| permit.mark_of(lane)) {
            lane.landed(*mark & !OTHERS);
        }
        self.entered.set(0);
        // One is for the store or the event behind all of it.
        self.budget = fresh.saturating_sub(1);
        Ok(())
    }

    /// Has its flight keep as many entries of its stream's queue as it has enqueued, and the one that is for what comes behind.
    #[inline]
    pub(crate) fn settle_entries(&mut self) {
        // Less by a few is not worth a change.
        if self.budget.wrapping_sub(self.entered.get()) > SPARE {
            self.settle_others();
        }
    }

    #[cold]
    fn settle_others(&mut self) {
        if self.records() {
            return;
        }
        let (entered, budget) = (self.entered.get(), self.budget);
        let (more, less) = (entered.saturating_sub(budget), budget.saturating_sub(entered));
        let stream = self.stream.clone();
        self.has_in(stream.lane(), |has| *has = *has + u64::from(more) - u64::from(less));
        self.budget = entered;
        if more > 0 {
            stream.lane().take_anyway(more);
        } else {
            stream.lane().give(less.into());
        }
    }

    /// Enqueues in this stream from now on, with what a branch has there.
    pub(crate) fn enter_branch(&mut self, stream: &Stream<D>) -> Account {
        let outer = Account { entered: self.entered.get(), budget: self.budget, open: self.open.take() };
        self.entered.set(0);
        self.budget = if self.records() { u32::MAX } else { 0 };
        if let Some(places) = self.permit.as_mut().and_then(|permit| permit.also().as_mut())
            && let Some(share) = places.share(stream.lane())
        {
            self.budget = core::mem::take(&mut share.spare);
        }
        self.stream = stream.clone();
        outer
    }

    /// Enqueues in `home` again.
    pub(crate) fn leave_branch(&mut self, home: &Stream<D>, outer: Account) {
        self.close();
        self.settle_entries();
        self.stream = home.clone();
        self.open = outer.open;
        self.entered.set(outer.entered);
        self.budget = outer.budget;
    }

    /// The place behind what it enqueues in its stream for others to come behind; open until [`close`](Self::close).
    #[inline]
    pub(crate) fn open(&mut self) -> Result<Place, Error> {
        if let Some(place) = self.open {
            return Ok(place);
        }
        let place = self.stream.open_place()?;
        self.open = Some(place);
        // The event.
        self.enter(1);
        Ok(place)
    }

    /// Closes the place that is open in its stream, if one is: before the point behind all of it is made, and before it goes on in another stream.
    #[inline]
    pub(crate) fn close(&mut self) {
        if let Some(place) = self.open.take() {
            // Where it cannot be recorded whoever waits for it is told.
            let (closed, _) = self.stream.close_place(place);
            self.note(closed.up_to);
        }
    }

    /// Closes it where nobody can know when what is enqueued is done, or nothing is.
    #[cold]
    pub(crate) fn abandon(&mut self) {
        if let Some(place) = self.open.take() {
            self.stream.end_place(place);
        }
    }

    /// The place behind all that is enqueued in its stream by now, recorded.
    pub(crate) fn record(&mut self) -> Result<Place, Error> {
        let place = self.open()?;
        // Before the event: who waits for it is behind that alone, and others go on in the stream.
        let in_front = self.stream.in_front_of(place);
        self.stream.enqueued(place);
        self.open = None;
        let (_, recorded) = self.stream.close_place(place);
        self.note(in_front);
        recorded.map(|()| place)
    }

    /// All places of its stream up to this number are in front of its flight.
    fn note(&mut self, number: u64) {
        if let Some(permit) = &mut self.permit
            && let Some(mark) = permit.mark_of(self.stream.lane())
        {
            *mark = number | *mark & OTHERS;
        }
    }

    /// The same in the stream of a branch; 0 where the flight is not behind what is there.
    pub(crate) fn note_in(&mut self, lane: &Lane, number: u64) {
        if let Some(mark) = self.permit.as_mut().and_then(|permit| permit.mark_of(lane)) {
            *mark = number | *mark & OTHERS;
        }
    }

    /// Has what is enqueued from now on wait for a place of another stream, unless that is known to have landed.
    pub(crate) fn wait_behind(&mut self, other: &Stream<D>, place: Place) -> Result<(), Error> {
        if let Some(recording) = &mut self.recording {
            return recording.wait_behind(&self.stream, other, place);
        }
        if self.stream.wait_behind(other, place)? {
            self.touched.set(true);
            self.enter(1);
        }
        Ok(())
    }
}

//! Watching words from the calling thread: in hardware or spinning for a bounded time, then by naps.

use core::cell::Cell;
use core::fmt;
use core::hint::spin_loop;

use wakeline_core::{CompletionLine, Error, ErrorCode, Idle, Instant, Nanos, Park, Wake, within};

use crate::idle::StdIdle;

/// How often a spin looks at one line between two looks at the clock. Eight looks take 0.2 to 0.4 us with
/// the `pause` in between, against 25 to 40 ns for the clock. With several lines a look takes as long as there are
/// words: it looks at the clock and the bell after each.
const LOOKS_PER_CLOCK: u32 = 8;

/// How long one park in hardware lasts at most, so that a ring of the bell is noticed: microseconds.
const HARDWARE_SLICE_US: u64 = 50;

/// How long a thread has to do something else at least for its next park to begin a new watch: microseconds.
const WATCH_GAP_US_LEAST: u32 = 50;

/// How a [`StdPark`] spends the time while it waits.
///
/// ```
/// use wakeline_std::ParkPolicy;
/// let policy = ParkPolicy::new(20, 100)?;
/// assert_eq!((policy.spin_us_max(), policy.nap_us()), (20, 100));
/// assert!(ParkPolicy::new(2_000_000, 100).is_err());
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ParkPolicy {
    spin_us_max: u32,
    nap_us: u32,
    hardware_us_max: u32,
}

impl ParkPolicy {
    /// The longest spin a policy may ask for, microseconds: longer ones are a pinned core.
    pub const SPIN_US_LIMIT: u32 = 10_000;
    /// The shortest nap, microseconds: on the machines measured, a shorter one takes as much CPU time as a
    /// spin.
    pub const NAP_US_LEAST: u32 = 5;
    /// The longest nap, microseconds: a longer one is a sleep.
    pub const NAP_US_LIMIT: u32 = 10_000;
    /// The longest time in hardware that a policy may ask for, microseconds.
    pub const HARDWARE_US_LIMIT: u32 = 1_000_000;

    /// Spin for at most `spin_us_max` microseconds a park, then look again after every `nap_us` microseconds
    /// asleep. A [`Watcher`](crate::Watcher)'s naps grow: to a 64th of how long it has been since it began to watch the last word, and a millisecond.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidLimit`] when `spin_us_max` is over [`SPIN_US_LIMIT`](Self::SPIN_US_LIMIT), or
    /// `nap_us` not from [`NAP_US_LEAST`](Self::NAP_US_LEAST) to [`NAP_US_LIMIT`](Self::NAP_US_LIMIT).
    pub fn new(spin_us_max: u32, nap_us: u32) -> Result<Self, Error> {
        let policy = Self::default();
        Ok(Self {
            spin_us_max: within("spin_us_max", spin_us_max, 0, Self::SPIN_US_LIMIT)?,
            nap_us: within("nap_us", nap_us, Self::NAP_US_LEAST, Self::NAP_US_LIMIT)?,
            ..policy
        })
    }

    /// The same policy, with at most `us` microseconds a park in hardware, where there is such a park.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidLimit`] when `us` is over [`HARDWARE_US_LIMIT`](Self::HARDWARE_US_LIMIT).
    pub fn with_hardware_us_max(self, us: u32) -> Result<Self, Error> {
        let hardware_us_max = within("hardware_us_max", us, 0, Self::HARDWARE_US_LIMIT)?;
        Ok(Self { hardware_us_max, ..self })
    }

    /// The same policy without any spin: for a process that may use only one processor.
    #[must_use]
    pub const fn without_spin(self) -> Self {
        Self { spin_us_max: 0, ..self }
    }

    /// How long a park spins at most before it naps, microseconds.
    pub const fn spin_us_max(self) -> u32 {
        self.spin_us_max
    }

    /// How long a nap lasts, microseconds; a park never naps beyond its `until`.
    pub const fn nap_us(self) -> u32 {
        self.nap_us
    }

    /// How long a park stays in hardware at most before it naps, microseconds.
    pub const fn hardware_us_max(self) -> u32 {
        self.hardware_us_max
    }
}

impl Default for ParkPolicy {
    /// Spins of at most 200 us, then naps of 50 us; at most 20 ms in hardware.
    ///
    /// - 200 us: what the oversleep of a 10 ms sleep stays under on most machines (p99 109 to 225 us on the
    ///   virtual host of an H200), so that a wait which slept to that margin before its predicted end is
    ///   still spinning at the end, at 4 % of a core for a step of 5 ms.
    /// - 50 us: a wait that outlives its prediction is seen 30 us late (p50) at 8 % of a core; naps of 10 us
    ///   would take 30 % to be 8 us late. These are with a timer slack of 1 ns: the default of 50 us doubles
    ///   a nap (see [`TimerSlack`](crate::TimerSlack)).
    /// - 20 ms: longer than every recorded step, so that a plain wait is spent in the hardware's low-power
    ///   state from start to end; the system counts that time as busy, hence the bound.
    fn default() -> Self {
        Self { spin_us_max: 200, nap_us: 50, hardware_us_max: 20_000 }
    }
}

impl fmt::Display for ParkPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spinning for at most {} us, then naps of {} us", self.spin_us_max, self.nap_us)
    }
}

/// The hardware park of a [`StdPark`] that was given none. Has no values.
#[derive(Clone, Copy, Debug)]
pub enum NoWordWait {}

impl Park for NoWordWait {
    fn park(&self, _: Option<&CompletionLine>, _: Instant, _: impl FnMut() -> bool) -> Wake {
        match *self {}
    }
}

/// An idle that a [`StdPark`] spins and naps beside: [`StdIdle`], or that of another host.
///
/// What it waits for besides, completions of I/O say, counts as a ring here.
pub trait ParkIdle: Idle {
    /// The time, on the time line of [`Idle::idle`].
    fn now(&self) -> Instant;

    /// Whether it rang since this last said so, or since the last sleep ended; answers the ring. MUST NOT sleep. Called
    /// every 0.5 us while a park spins, so it should cost little more than a load.
    fn take_ring(&self) -> bool;

    /// Sleeps until `until` (`None`: without bound) or a ring; says whether it rang, and answers the ring.
    ///
    /// MUST keep what [`Idle::idle`] keeps, and MUST NOT call a waker: a park runs no code of its caller's.
    fn sleep(&self, until: Option<Instant>) -> bool;
}

impl<I: ParkIdle + ?Sized> ParkIdle for &I {
    fn now(&self) -> Instant {
        (**self).now()
    }

    fn take_ring(&self) -> bool {
        (**self).take_ring()
    }

    fn sleep(&self, until: Option<Instant>) -> bool {
        (**self).sleep(until)
    }
}

/// Watches words from its thread, and ends early when the bell of its [`StdIdle`] (or other [`ParkIdle`]) rings.
///
/// ```text
///   park ─► ready? ─► one line and hardware ──► in hardware, at most `hardware_us_max` a watch ─┐
///             │  └──► otherwise ──────────────► spin, at most `spin_us_max` a watch ────────────┤
///             │                                                                                 ▼
///             └──────────────────────────────── `Reached` ◄── naps of `nap_us` until `until` or a ring
/// ```
///
/// So a long wait never pins a core, nor does one that is made of many parks: a *watch* is a run of parks
/// that do not reach their words, each begun less than `spin_us_max` (but 50 us at least) after the one
/// before; its time in user mode is bounded as one. A nap ends at once at a ring, a spin within 0.5 us (with
/// several lines after the look it is at), a park in hardware within 50 us.
///
/// `I` is a [`StdIdle`] of its own, a reference to the executor's, or another host's [`ParkIdle`]. A ring that ends a park is answered by
/// that: after [`Wake::Woke`] look at whatever the bell is for.
///
/// ```
/// use wakeline_core::{Clock, HostLine, Nanos, Park, Seq, Slot, Wake};
/// use wakeline_std::{ParkPolicy, StdClock, StdIdle, StdPark};
/// let clock = StdClock::new();
/// let park = StdPark::new(StdIdle::new(clock), ParkPolicy::default());
/// let line = HostLine::new();
/// let reached = || line.load(Slot::ALL[0]).reached(Seq::new(1));
/// let until = clock.now() + Nanos::from_micros(300);
/// assert_eq!(park.park(Some(&line), until, reached), Wake::Woke); // the time is up
/// line.store(Slot::ALL[0], Seq::new(1));
/// assert_eq!(park.park(Some(&line), until, reached), Wake::Reached);
/// ```
#[derive(Debug)]
pub struct StdPark<I = StdIdle, H = NoWordWait> {
    idle: I,
    policy: ParkPolicy,
    /// The park in hardware, or why there is none.
    word_wait: Result<H, Error>,
    watch: Cell<Watch>,
}

/// What the last parks had in common.
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    /// When the last of them ended.
    end: Instant,
    /// How long they spun or stayed in hardware together.
    spent: Nanos,
}

impl<I: ParkIdle> StdPark<I> {
    /// A park that spins and naps; rings of `idle` end it.
    pub fn new(idle: I, policy: ParkPolicy) -> Self {
        let word_wait = Err(fallback(&"no word wait was handed in", policy));
        Self { idle, policy, word_wait, watch: Cell::default() }
    }
}

impl<I: ParkIdle, H: Park> StdPark<I, H> {
    /// The same park with the outcome of a probe for a park in hardware: `WordWait::probe(..)` of
    /// `wakeline-wordwait`.
    ///
    /// An `Err` is kept as the reason that [`warning`](Self::warning) gives, and changes nothing else.
    pub fn with_word_wait<W: Park>(self, probed: Result<W, Error>) -> StdPark<I, W> {
        let Self { idle, policy, watch, .. } = self;
        let word_wait = probed.map_err(|error| match (error.code(), error.args()) {
            (ErrorCode::ParkFallback, [why, ..]) => fallback(why, policy),
            _ => fallback(&error, policy),
        });
        StdPark { idle, policy, word_wait, watch }
    }

    /// [`ErrorCode::ParkFallback`] with the reason where there is no park in hardware, for whoever reports
    /// warnings.
    pub fn warning(&self) -> Option<&Error> {
        self.word_wait.as_ref().err()
    }

    /// How it spends the time.
    pub fn policy(&self) -> ParkPolicy {
        self.policy
    }

    fn now(&self) -> Instant {
        self.idle.now()
    }

    /// How long this watch has been in user mode already.
    fn spent(&self, now: Instant) -> Nanos {
        let watch = self.watch.get();
        if now.since(watch.end) < Nanos::from_micros(self.policy.spin_us_max.max(WATCH_GAP_US_LEAST).into()) {
            watch.spent
        } else {
            Nanos::ZERO
        }
    }

    /// Looks and looks until `end`, at the clock and the bell after every `looks`: `None` when that has come.
    fn spin(&self, looks: u32, end: Instant, ready: &mut impl FnMut() -> bool) -> Option<Wake> {
        while self.now() < end {
            for _ in 0..looks {
                if ready() {
                    return Some(Wake::Reached);
                }
                spin_loop();
            }
            if self.idle.take_ring() {
                return Some(Wake::Woke);
            }
        }
        None
    }

    /// Parks in hardware until `end`, in slices that notice a ring: `None` when it has come.
    fn in_hardware(
        &self,
        word_wait: &H,
        line: &CompletionLine,
        end: Instant,
        ready: &mut impl FnMut() -> bool,
    ) -> Option<Wake> {
        loop {
            let now = self.now();
            if now >= end {
                return None;
            }
            let slice = end.min(now + Nanos::from_micros(HARDWARE_SLICE_US));
            if word_wait.park(Some(line), slice, &mut *ready) == Wake::Reached {
                return Some(Wake::Reached);
            }
            if self.idle.take_ring() {
                return Some(Wake::Woke);
            }
        }
    }

    /// Naps until `until`, looking in between.
    fn nap(&self, until: Instant, ready: &mut impl FnMut() -> bool) -> Wake {
        loop {
            if ready() {
                return Wake::Reached;
            }
            let now = self.now();
            if now >= until {
                return Wake::Woke;
            }
            let end = until.min(now + Nanos::from_micros(self.policy.nap_us.into()));
            if self.idle.sleep(Some(end)) {
                return if ready() { Wake::Reached } else { Wake::Woke };
            }
        }
    }
}

impl<I: ParkIdle, H: Park> Park for StdPark<I, H> {
    fn park(&self, line: Option<&CompletionLine>, until: Instant, mut ready: impl FnMut() -> bool) -> Wake {
        if ready() {
            self.watch.take();
            return Wake::Reached;
        }
        let start = self.now();
        let spent = self.spent(start);
        let bound = |us_max: u32| until.min(start + (Nanos::from_micros(us_max.into()) - spent));
        let watched = if let (Ok(word_wait), Some(line)) = (&self.word_wait, line) {
            self.in_hardware(word_wait, line, bound(self.policy.hardware_us_max), &mut ready)
        } else {
            // A hardware monitor covers one line: with several, look at all of them.
            let looks = if line.is_some() { LOOKS_PER_CLOCK } else { 1 };
            self.spin(looks, bound(self.policy.spin_us_max), &mut ready)
        };
        let spent = spent + self.now().since(start);
        let wake = watched.unwrap_or_else(|| self.nap(until, &mut ready));
        self.watch.set(match wake {
            Wake::Reached => Watch::default(),
            Wake::Woke => Watch { end: self.now(), spent },
        });
        wake
    }
}

fn fallback(why: &dyn fmt::Display, policy: ParkPolicy) -> Error {
    Error::new(ErrorCode::ParkFallback, [why, &policy])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    use wakeline_core::{Clock, HostLine};

    use crate::clock::StdClock;
    use crate::idle::StdIdle;

    #[test]
    fn a_policy_out_of_range_names_the_field_and_its_range() {
        for (result, args) in [
            (ParkPolicy::new(10_001, 50), ["spin_us_max", "10001", "0", "10000"]),
            (ParkPolicy::new(0, 4), ["nap_us", "4", "5", "10000"]),
            (ParkPolicy::new(0, 10_001), ["nap_us", "10001", "5", "10000"]),
            (
                ParkPolicy::default().with_hardware_us_max(1_000_001),
                ["hardware_us_max", "1000001", "0", "1000000"],
            ),
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidLimit);
            assert_eq!(error.args(), args);
        }
        let default = ParkPolicy::default();
        let same = ParkPolicy::new(default.spin_us_max(), default.nap_us()).unwrap();
        assert_eq!(same.with_hardware_us_max(default.hardware_us_max()).unwrap(), default);
    }

    /// Sees every park in hardware, and the words never.
    #[derive(Debug)]
    struct Hardware<'a>(&'a Cell<u32>);

    impl Park for Hardware<'_> {
        fn park(&self, line: Option<&CompletionLine>, until: Instant, _: impl FnMut() -> bool) -> Wake {
            assert!(line.is_some(), "a park in hardware needs a line");
            self.0.set(self.0.get() + 1);
            StdClock::new().sleep_until(until);
            Wake::Woke
        }
    }

    #[test]
    fn the_hardware_watches_one_line_in_slices_and_is_left_alone_with_several() {
        let clock = StdClock::new();
        let parks = Cell::new(0);
        let park = StdPark::new(StdIdle::new(clock), ParkPolicy::default());
        let park = park.with_word_wait(Ok(Hardware(&parks)));
        assert!(park.warning().is_none());
        let line = HostLine::new();
        let start = clock.now();
        assert_eq!(park.park(Some(&line), start + Nanos::from_millis(5), || false), Wake::Woke);
        // The slices are at least as long as asked for.
        assert!((1..=100).contains(&parks.get()), "{} slices", parks.get());
        assert_eq!(park.park(None, clock.now() + Nanos::from_micros(300), || false), Wake::Woke);
        let before = parks.get();
        assert_eq!(park.park(Some(&line), Instant::MAX, || true), Wake::Reached);
        assert_eq!(parks.get(), before, "it did not look first");
    }

    /// Each look at many words takes long: a spin that goes on looking is late.
    #[test]
    fn a_spin_at_several_lines_looks_at_the_clock_and_the_bell_after_each_look() {
        let clock = StdClock::new();
        let park = StdPark::new(StdIdle::new(clock), ParkPolicy::new(10_000, 50).unwrap());
        let until = clock.now() + Nanos::from_millis(5);
        let looks = Cell::new(0);
        let slow = || {
            looks.set(looks.get() + 1);
            if looks.get() > 1 {
                clock.sleep_until(until);
            }
            false
        };
        assert_eq!(park.park(None, until, slow), Wake::Woke);
        // Before it spins, as it spins, when the time is up.
        assert!(looks.get() <= 3, "{} looks", looks.get());
        let (looks, bell) = (Cell::new(0), park.idle.bell());
        let ringing = || {
            looks.set(looks.get() + 1);
            if looks.get() == 2 {
                bell.wake_by_ref();
            }
            false
        };
        assert_eq!(park.park(None, Instant::MAX, ringing), Wake::Woke);
        assert!(looks.get() <= 3, "{} looks after a ring", looks.get());
    }

    #[test]
    fn the_reason_of_a_probe_that_failed_reaches_the_warning() {
        let park = || StdPark::new(StdIdle::new(StdClock::new()), ParkPolicy::default());
        let text = |warning: Option<&Error>| warning.unwrap().to_string();
        assert_eq!(
            text(park().warning()),
            "no word wait in hardware (no word wait was handed in): \
             parking by spinning for at most 200 us, then naps of 50 us instead"
        );
        let probed = Err::<NoWordWait, _>(Error::new(ErrorCode::ParkFallback, [&"no WAITPKG", &"nothing"]));
        let park = park().with_word_wait(probed);
        assert_eq!(park.warning().unwrap().code(), ErrorCode::ParkFallback);
        assert!(
            text(park.warning()).starts_with("no word wait in hardware (no WAITPKG): parking by spinning")
        );
    }
}

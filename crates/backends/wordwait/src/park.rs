//! The loop around the instructions: everything that can be decided without them.

use wakeline_core::{Clock, CompletionLine, Instant, Nanos, Wake};

use crate::ticks::TickRate;

/// How long one hardware wait lasts at most, microseconds. Bounds how late a park is whose store the monitor
/// does not see, and one whose counter jumps, as it may when a virtual machine moves to another host.
pub const WAIT_US_MAX: u64 = 100;

/// The instructions. All of them come back for any reason or none.
pub(crate) trait Instructions {
    /// What the counter reads that [`wait`](Self::wait) is bounded by.
    fn ticks(&self) -> u64;

    /// Has the processor monitor the line for stores.
    fn arm(&self, line: &CompletionLine);

    /// Waits for a store to the monitored line, or until the counter has reached `until_ticks`. At once where
    /// a store came since the line was armed.
    fn wait(&self, until_ticks: u64);
}

/// Parks on `line` until `ready` says true or `until` has come.
///
/// No store is slept through: one before the line was armed is seen by the look after that, and a later one
/// ends the wait. Why a wait ended is never asked: `ready` and the clock alone decide.
pub(crate) fn on_line(
    instructions: &impl Instructions,
    rate: TickRate,
    clock: &impl Clock,
    line: &CompletionLine,
    until: Instant,
    mut ready: impl FnMut() -> bool,
) -> Wake {
    loop {
        if ready() {
            return Wake::Reached;
        }
        // The counter first: time that passes between the two makes the wait shorter, not longer.
        let ticks = instructions.ticks();
        let left = until.since(clock.now());
        if left == Nanos::ZERO {
            return Wake::Woke;
        }
        let length = left.min(Nanos::from_micros(WAIT_US_MAX));
        instructions.arm(line);
        if ready() {
            return Wake::Reached;
        }
        instructions.wait(ticks.saturating_add(rate.ticks(length)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use core::cell::{Cell, RefCell};
    use wakeline_core::{HostLine, ManualClock, Seq, Slot};

    /// How a wait of the fake ends.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum End {
        /// After so many nanoseconds for no reason, or because the system limits it.
        Early(u64),
        /// At its deadline.
        Deadline,
        /// The thread is preempted for so many nanoseconds past it.
        Late(u64),
        /// At a store after so many nanoseconds.
        Stored(u64),
        /// A store comes just before the line is armed: the monitor never sees it.
        StoredBeforeArming,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Call {
        Arm,
        Look,
        Wait(u64),
    }

    /// A processor of two ticks a nanosecond whose time passes in waits alone.
    struct Fake<'a> {
        clock: &'a ManualClock,
        line: &'a HostLine,
        ends: Vec<End>,
        waits: Cell<usize>,
        armed: Cell<bool>,
        calls: RefCell<Vec<Call>>,
    }

    const TICKS_PER_NS: u64 = 2;

    impl<'a> Fake<'a> {
        fn new(clock: &'a ManualClock, line: &'a HostLine, ends: &[End]) -> Self {
            let (waits, armed, calls) = (Cell::new(0), Cell::new(false), RefCell::default());
            Self { clock, line, ends: ends.to_vec(), waits, armed, calls }
        }

        /// The end of the next wait; the last goes on for good.
        fn end(&self) -> End {
            self.ends[self.waits.get().min(self.ends.len() - 1)]
        }

        fn store(&self) {
            self.line.store(Slot::ALL[2], Seq::new(1));
        }

        fn park(&self, until_ns: u64) -> Wake {
            let ready = || {
                self.calls.borrow_mut().push(Call::Look);
                self.line.load(Slot::ALL[2]).reached(Seq::new(1))
            };
            let rate = TickRate::new(Some(TICKS_PER_NS << 32)).unwrap();
            on_line(self, rate, self.clock, self.line, Instant::from_nanos(until_ns), ready)
        }

        fn now(&self) -> u64 {
            self.clock.now().as_nanos()
        }
    }

    impl Instructions for Fake<'_> {
        fn ticks(&self) -> u64 {
            self.now() * TICKS_PER_NS
        }

        fn arm(&self, line: &CompletionLine) {
            assert!(core::ptr::eq(line, core::ptr::from_ref(&**self.line)), "another line");
            self.calls.borrow_mut().push(Call::Arm);
            if self.end() == End::StoredBeforeArming {
                self.store();
            }
            self.armed.set(true);
        }

        fn wait(&self, until_ticks: u64) {
            self.calls.borrow_mut().push(Call::Wait(until_ticks));
            assert!(self.armed.replace(false), "nothing was armed");
            let deadline = until_ticks / TICKS_PER_NS;
            assert!(deadline <= self.now() + WAIT_US_MAX * 1_000, "an unbounded wait");
            let at = match self.end() {
                End::Early(ns) => deadline.min(self.now() + ns),
                End::Deadline => deadline,
                End::Late(ns) => deadline + ns,
                End::Stored(ns) => {
                    self.store();
                    self.now() + ns
                }
                End::StoredBeforeArming => panic!("it was slept through"),
            };
            self.waits.set(self.waits.get() + 1);
            self.clock.advance_to(Instant::from_nanos(at));
        }
    }

    /// A wake without a store was reported as done.
    #[test]
    fn case_50_spurious_wakes_and_the_limit_of_the_system_are_looked_at_again_until_the_deadline() {
        for end in [End::Early(1), End::Early(700), End::Early(40_000), End::Deadline] {
            let (clock, line) = (ManualClock::new(), HostLine::new());
            let fake = Fake::new(&clock, &line, &[end]);
            assert_eq!(fake.park(250_000), Wake::Woke, "{end:?}");
            assert_eq!(fake.now(), 250_000, "{end:?}");
            assert!(fake.waits.get() >= 3, "{end:?}");
        }
    }

    #[test]
    fn case_50_a_store_after_spurious_wakes_is_what_ends_the_park() {
        let (clock, line) = (ManualClock::new(), HostLine::new());
        let ends = [End::Early(10), End::Early(0), End::Deadline, End::Stored(5)];
        let fake = Fake::new(&clock, &line, &ends);
        assert_eq!(fake.park(u64::MAX), Wake::Reached);
        assert_eq!(fake.waits.get(), 4);
        assert_eq!(fake.now(), 10 + WAIT_US_MAX * 1_000 + 5);
    }

    #[test]
    fn the_line_is_armed_then_looked_at_and_only_then_waited_for() {
        let (clock, line) = (ManualClock::new(), HostLine::new());
        let fake = Fake::new(&clock, &line, &[End::Early(3), End::Stored(1)]);
        assert_eq!(fake.park(1_000), Wake::Reached);
        let wait = |ns: u64| Call::Wait(ns * TICKS_PER_NS);
        // The deadline is the same moment both times: it is absolute.
        let expected =
            [Call::Look, Call::Arm, Call::Look, wait(1_000), Call::Look, Call::Arm, Call::Look, wait(1_000)];
        let calls = fake.calls.borrow();
        assert_eq!(calls[..expected.len()], expected);
        assert_eq!(calls[expected.len()..], [Call::Look]);
    }

    #[test]
    fn a_store_between_the_look_and_the_arming_is_not_slept_through() {
        let (clock, line) = (ManualClock::new(), HostLine::new());
        let fake = Fake::new(&clock, &line, &[End::Early(1), End::StoredBeforeArming]);
        assert_eq!(fake.park(1_000), Wake::Reached);
        assert_eq!(fake.waits.get(), 1);
    }

    #[test]
    fn a_word_that_is_reached_or_a_time_that_is_up_needs_no_instruction() {
        let (clock, line) = (ManualClock::new(), HostLine::new());
        let fake = Fake::new(&clock, &line, &[End::Deadline]);
        clock.advance_to(Instant::from_nanos(10));
        for until in [0, 9, 10] {
            assert_eq!(fake.park(until), Wake::Woke);
        }
        fake.store();
        assert_eq!(fake.park(0), Wake::Reached);
        assert_eq!(*fake.calls.borrow(), [Call::Look; 4]);
    }

    #[test]
    fn a_park_ends_with_the_wait_that_passes_its_time_and_at_the_end_of_the_clock() {
        let (clock, line) = (ManualClock::new(), HostLine::new());
        let fake = Fake::new(&clock, &line, &[End::Late(7_000)]);
        assert_eq!(fake.park(50), Wake::Woke);
        assert_eq!(fake.waits.get(), 1);
        clock.advance_to(Instant::MAX);
        assert_eq!(on_line(&Saturated, rate(), &clock, &line, Instant::MAX, || false), Wake::Woke);
    }

    fn rate() -> TickRate {
        TickRate::new(Some(1 << 32)).unwrap()
    }

    /// A counter at its end: deadlines saturate, and nothing overflows.
    struct Saturated;

    impl Instructions for Saturated {
        fn ticks(&self) -> u64 {
            u64::MAX - 1
        }
        fn arm(&self, _line: &CompletionLine) {}
        fn wait(&self, until_ticks: u64) {
            assert_eq!(until_ticks, u64::MAX);
        }
    }

    #[test]
    fn a_counter_at_the_end_of_its_range_saturates() {
        let (clock, line, looks) = (ManualClock::new(), HostLine::new(), Cell::new(0));
        let third = || looks.replace(looks.get() + 1) == 2;
        assert_eq!(on_line(&Saturated, rate(), &clock, &line, Instant::MAX, third), Wake::Reached);
    }
}

//! How often the flights of one device context may ask its driver.
//!
//! A backstop query costs a microsecond or more; nine hundred flights that each ask once a millisecond would be a thread that does
//! nothing else. What one query says of a context's health holds for all of its flights, so together they ask at most
//! [`BACKSTOP_QUERIES_PER_MS_MAX`] times a millisecond, in turn. Queries that a wait cannot end without are not counted.

use wakeline_core::{ContextKey, Instant, Nanos};

/// How many backstop queries a millisecond the flights of one context make together: with that many flights or fewer each has its
/// own in time, beyond that they take turns. At 1.5 us a query it is at most 2.4 % of the thread.
pub const BACKSTOP_QUERIES_PER_MS_MAX: u32 = 16;

const MS: Nanos = Nanos::from_millis(1);
const INTERVAL: Nanos = Nanos::from_nanos(1_000_000 / BACKSTOP_QUERIES_PER_MS_MAX as u64);

/// The contexts of a shard's flights. Few: looked up from front to back.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    contexts: Vec<Context>,
}

#[derive(Debug)]
struct Context {
    key: ContextKey,
    flights: usize,
    /// When the next query would be due if all were made evenly.
    next: Instant,
    /// When all flights were last asked because one of them had failed.
    swept_at: Option<Instant>,
}

impl Contexts {
    /// Counts a flight of this context; the number stands for the context until as many have left.
    pub(super) fn enter(&mut self, key: ContextKey) -> usize {
        let known = self.contexts.iter().position(|context| context.key == key && context.flights > 0);
        let place = known.or_else(|| self.contexts.iter().position(|context| context.flights == 0));
        let place = place.unwrap_or(self.contexts.len());
        if known.is_none() {
            let fresh = Context { key, flights: 0, next: Instant::ORIGIN, swept_at: None };
            match self.contexts.get_mut(place) {
                Some(context) => *context = fresh,
                None => self.contexts.push(fresh),
            }
        }
        self.contexts[place].flights += 1;
        place
    }

    pub(super) fn leave(&mut self, place: usize) {
        self.contexts[place].flights -= 1;
    }

    /// How many flights have a context.
    #[cfg(all(test, not(loom)))]
    pub(super) fn flights(&self) -> usize {
        self.contexts.iter().map(|context| context.flights).sum()
    }

    /// When a backstop query of this context may be made: `now` unless too many have been. Each call is a turn taken.
    pub(super) fn turn(&mut self, place: usize, now: Instant) -> Instant {
        let context = &mut self.contexts[place];
        let even = context.next.max(now);
        context.next = even + INTERVAL;
        // A millisecond's worth may be made at once.
        if even.since(now) < MS { now } else { now + (even.since(now) - (MS - INTERVAL)) }
    }

    /// A turn that was taken and not waited for: those who come later need not wait for it either.
    pub(super) fn give_back(&mut self, place: usize) {
        let next = &mut self.contexts[place].next;
        *next = Instant::from_nanos(next.as_nanos().saturating_sub(INTERVAL.as_nanos()));
    }

    /// Whether a failure is to be taken as a sign for all flights of the context: once a millisecond.
    pub(super) fn sweep(&mut self, place: usize, now: Instant) -> bool {
        let swept_at = &mut self.contexts[place].swept_at;
        let due = swept_at.is_none_or(|at| now.since(at) >= MS);
        if due {
            *swept_at = Some(now);
        }
        due
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_context_asks_sixteen_times_a_millisecond_and_the_others_are_free() {
        let mut contexts = Contexts::default();
        let (busy, other) = (contexts.enter(ContextKey::new(1)), contexts.enter(ContextKey::new(2)));
        let start = Instant::from_nanos(7_000_000);
        let mut asked: Vec<Instant> = (0..100).map(|_| contexts.turn(busy, start)).collect();
        assert!(asked[..16].iter().all(|at| *at == start), "{asked:?}");
        assert!(asked[16] > start && asked.is_sorted());
        for window in 0..5 {
            let from = start + Nanos::from_millis(1 + window);
            let count = asked.iter().filter(|at| **at > from && **at <= from + MS).count();
            assert!(count <= 16, "{count} in millisecond {window}");
        }
        assert!(asked[99].since(start) <= Nanos::from_micros(84 * 63), "{:?}", asked.pop());
        assert_eq!(contexts.turn(other, start), start);
        let later = start + Nanos::from_millis(50);
        assert_eq!(contexts.turn(busy, later), later);
    }

    #[test]
    fn turns_that_are_given_back_delay_nobody() {
        let mut contexts = Contexts::default();
        let place = contexts.enter(ContextKey::new(1));
        let start = Instant::from_nanos(7_000_000);
        for _ in 0..100 {
            let waiting = (0..1_000).filter(|_| contexts.turn(place, start) > start).count();
            (0..waiting).for_each(|_| contexts.give_back(place));
        }
        assert!(contexts.turn(place, start).since(start) <= MS);
        contexts.give_back(place);
        assert!(contexts.turn(place, start + Nanos::from_millis(2)) == start + Nanos::from_millis(2));
    }

    #[test]
    fn places_of_contexts_without_flights_are_used_again() {
        let mut contexts = Contexts::default();
        let first = contexts.enter(ContextKey::new(1));
        assert_eq!(contexts.enter(ContextKey::new(1)), first);
        let second = contexts.enter(ContextKey::new(2));
        assert!(contexts.sweep(first, Instant::ORIGIN) && !contexts.sweep(first, Instant::ORIGIN));
        contexts.leave(first);
        contexts.leave(first);
        assert_eq!(contexts.enter(ContextKey::new(3)), first);
        assert_ne!(first, second);
        assert!(contexts.sweep(first, Instant::ORIGIN), "another context's sweep is not this one's");
    }
}

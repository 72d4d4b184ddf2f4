//! What is kept of a point for plans with `+adapt`.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::PointTable;
use crate::adapt::{GROWTH, Known, Oversleep, Sorted, Window};
use crate::plan::WaitPlan;
use crate::time::Nanos;

/// A late wait is a surprise where it had slept for so large a part of its time at once.
const SURPRISE_PART: u64 = 8;

#[derive(Clone, Debug)]
pub(super) struct Adaptive {
    pub(super) window: Window,
    /// How many of the last waits in a row were late.
    late: u8,
}

impl<K: Ord> PointTable<K> {
    /// What a wait of this point may decide by.
    #[inline(never)]
    pub(super) fn known(&mut self, key: &K, window: u16) -> Arc<Known> {
        if let Ok(place) = self.find(key) {
            self.use_at(place);
            if let Some(adaptive) = &self.points[place].adaptive
                && adaptive.window.window() == usize::from(window)
            {
                return Arc::clone(adaptive.window.known());
            }
        }
        Arc::clone(self.cold())
    }

    /// What is known before anything is.
    fn cold(&mut self) -> &Arc<Known> {
        self.cold.get_or_insert_with(|| {
            Arc::new(Known {
                residuals: Sorted::new(),
                floor: 0,
                growth: GROWTH,
                oversleep: Arc::new(Oversleep::new()),
            })
        })
    }

    /// Adds a residual of a wait that was not late.
    #[inline(never)]
    pub(super) fn adapt(&mut self, key: K, plan: &WaitPlan, residual: Nanos) {
        if let Some(adapt) = plan.adapt() {
            let adaptive = self.adaptive(key, adapt.window());
            adaptive.late = 0;
            adaptive.window.careful(false);
            adaptive.window.push(residual.as_nanos());
        }
    }

    /// Adds what is learned from a wait whose work was done when it woke from a sleep.
    #[inline(never)]
    pub(super) fn adapt_late(&mut self, key: K, plan: &WaitPlan, pending: Nanos, wake: Nanos) {
        if let Some(adapt) = plan.adapt() {
            let adaptive = self.adaptive(key, adapt.window());
            // It ended while the wait slept. The first in a row may have been just before the wake, or the timer was late; the more there
            // are, the more likely it is anywhere in between: then each halves what is left of it.
            let asleep = (wake - pending).as_nanos();
            let before = Nanos::from_nanos(asleep >> (3 - adaptive.late.min(2)));
            adaptive.late = adaptive.late.saturating_add(1);
            // What is late by little needs no care, and a gap among others is slept through in pieces.
            let long = asleep > wake.as_nanos() / SURPRISE_PART;
            let surprise = long && adaptive.window.surprises(pending.as_nanos(), wake.as_nanos());
            adaptive.window.careful(surprise);
            adaptive.window.push((wake - before).as_nanos());
        }
    }

    /// What is kept of the point, which is made where there is none, with a window of this length. Counts as a use.
    fn adaptive(&mut self, key: K, window: u16) -> &mut Adaptive {
        let place = self.find(&key).unwrap_or_else(|place| self.insert(place, key));
        self.use_at(place);
        let oversleep = Arc::clone(&self.cold().oversleep);
        let new = || Box::new(Adaptive { window: Window::new(window, &oversleep), late: 0 });
        let adaptive = self.points[place].adaptive.get_or_insert_with(new);
        if adaptive.window.window() != usize::from(window) {
            // Of another length: what fits in stays.
            let old = core::mem::replace(&mut adaptive.window, Window::new(window, &oversleep));
            for ns in old.in_order() {
                adaptive.window.push(ns);
            }
        }
        adaptive
    }
}

//! The part of the engine that knows of several devices: those that can wait for each other, and reach each other's memory.
//!
//! All of them have one state, one lock and one order of what happens. What each has for itself (its configuration, faults, words, counts and log) is in
//! the state's own fields while something is done to that device, and put away while another is at hand: so nothing else in the engine has to say which.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Reverse;

use wakeline_core::{Instant, Nanos};

use super::{Due, Fault, State, What};
use crate::config::SimConfig;
use crate::fault::Faults;
use crate::line::Lines;
use crate::log::{Counts, Log};
use crate::table::Key;

/// What a device has for itself, while another is at hand.
#[derive(Debug)]
pub(super) struct Part {
    config: SimConfig,
    faults: Faults,
    fault: Option<Fault>,
    lines: Lines,
    counts: Counts,
    log: Log,
}

impl State {
    /// Another device beside those that there are; its number.
    pub(crate) fn add_device(&mut self, config: &SimConfig) -> usize {
        let number = self.parts.len();
        self.parts.push(Some(Box::new(Part {
            config: *config,
            faults: config.faults,
            fault: None,
            lines: Lines::new(config.slots_max, config.first_word),
            counts: Counts::default(),
            log: Log::new(config.log_len_max),
        })));
        self.on(number, |state| state.set_faults(&config.faults));
        number
    }

    /// Has the device of this number at hand.
    #[inline]
    pub(crate) fn select(&mut self, number: usize) {
        if number != self.device {
            self.exchange(number);
        }
    }

    #[cold]
    fn exchange(&mut self, number: usize) {
        let Some(mut part) = self.parts.get_mut(number).and_then(Option::take) else { return };
        core::mem::swap(&mut self.config, &mut part.config);
        core::mem::swap(&mut self.faults, &mut part.faults);
        core::mem::swap(&mut self.fault, &mut part.fault);
        core::mem::swap(&mut self.lines, &mut part.lines);
        core::mem::swap(&mut self.counts, &mut part.counts);
        core::mem::swap(&mut self.log, &mut part.log);
        if let Some(place) = self.parts.get_mut(self.device) {
            *place = Some(part);
        }
        self.device = number;
        self.buffers.device = number;
    }

    /// Does something with that device at hand.
    pub(super) fn on<R>(&mut self, number: usize, f: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.device;
        self.select(number);
        let result = f(self);
        self.select(before);
        result
    }

    /// The device of a stream; the one at hand where it is gone.
    pub(super) fn device_of(&self, stream: Key) -> usize {
        self.streams.get(stream).map_or(self.device, |queue| queue.device)
    }

    /// The fault of that device.
    fn fault_of(&self, number: usize) -> Option<&Fault> {
        if number == self.device {
            return self.fault.as_ref();
        }
        self.parts.get(number)?.as_ref()?.fault.as_ref()
    }

    /// When the fault of a stream's device is known, where it has one.
    pub(super) fn stopped_at(&self, stream: Key) -> Option<Instant> {
        self.fault_of(self.device_of(stream)).map(|fault| fault.known_at)
    }

    /// Schedules that the work in front of a stream ends, of whichever device; of one that has faulted nothing ever does.
    pub(super) fn schedule_end(&mut self, at: Instant, stream: Key) {
        let device = self.device_of(stream);
        if self.fault_of(device).is_none() {
            self.push_due(at, What::WorkEnds(stream), device);
        }
    }

    pub(super) fn push_due(&mut self, at: Instant, what: What, device: usize) {
        // The end of time never comes.
        if at < Instant::MAX {
            self.due.push(Reverse(Due { at, order: self.scheduled, what, device }));
            self.scheduled += 1;
        }
    }

    /// Nothing of the device at hand happens any more. Streams of others that wait for it go on once the fault is known: what is behind them sees memory as it is then.
    pub(super) fn stop_streams(&mut self, known_at: Instant) {
        let own = self.device;
        self.due.retain(|Reverse(due)| due.device != own);
        let mut waiters = Vec::new();
        for queue in self.streams.values_mut().filter(|queue| queue.device == own) {
            waiters.extend(queue.take_waiters());
            queue.stop();
        }
        for waiter in waiters {
            self.schedule_end(known_at, waiter);
        }
        self.stop_runs();
    }

    /// Whether the device at hand and that one reach each other's memory without the host.
    pub(crate) fn reaches(&mut self, other: usize) -> bool {
        self.config.peer_access && self.on(other, |state| state.config.peer_access)
    }

    /// The same of the device of a buffer.
    pub(crate) fn is_reached(&mut self, buffer: Key) -> bool {
        let device = self.buffers.get(buffer).map_or(self.device, |buffer| buffer.device);
        self.reaches(device)
    }
}

/// How long after a fault it is known.
pub(super) const fn lag(faults: &Faults) -> Nanos {
    Nanos::from_nanos(faults.fault_lag_ns)
}

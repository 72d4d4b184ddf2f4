//! A shared event.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use wakeline_core::{Nanos, Turn};
use wakeline_metal::Bell;

use crate::faults::{Call, Wait};
use crate::{CALL_NS, FakeMetal, Live, Time, lock};

/// A bell that somebody keeps.
pub(crate) struct Kept<T: Time> {
    bell: Bell<FakeMetal<T>>,
    live: Arc<Live>,
}

impl<T: Time> Kept<T> {
    pub(crate) fn new(bell: Bell<FakeMetal<T>>, metal: &FakeMetal<T>) -> Self {
        metal.census().bells.fetch_add(1, Ordering::SeqCst);
        Self { bell, live: Arc::clone(metal.census()) }
    }

    /// Rings as often as `call` says.
    pub(crate) fn ring(self, call: Call) {
        match call {
            Call::Lost => {}
            Call::Twice => {
                self.bell.ring();
                self.bell.ring();
            }
            Call::Prompt | Call::Late(_) | Call::Early => self.bell.ring(),
        }
    }

    pub(crate) fn ring_early(&self, call: Call) {
        if call == Call::Early {
            self.bell.ring();
        }
    }
}

impl<T: Time> Drop for Kept<T> {
    fn drop(&mut self) {
        self.live.bells.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A shared event. Clones are the same.
pub struct FakeEvent<T: Time> {
    metal: FakeMetal<T>,
    state: Arc<Mutex<State<T>>>,
}

struct State<T: Time> {
    value: u64,
    /// The value that listeners were told of; behind `value` where they are late.
    told: u64,
    listeners: Vec<(u64, Kept<T>)>,
    /// How often a value came behind a higher one.
    went_back: usize,
    longest_wait_ms: u64,
}

impl<T: Time> Clone for FakeEvent<T> {
    fn clone(&self) -> Self {
        Self { metal: self.metal.clone(), state: Arc::clone(&self.state) }
    }
}

impl<T: Time> fmt::Debug for FakeEvent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeEvent").field("value", &self.value()).finish_non_exhaustive()
    }
}

impl<T: Time> FakeEvent<T> {
    pub(crate) fn new(metal: FakeMetal<T>) -> Self {
        let state = State { value: 0, told: 0, listeners: Vec::new(), went_back: 0, longest_wait_ms: 0 };
        Self { metal, state: Arc::new(Mutex::new(state)) }
    }

    /// The value signaled last.
    pub fn value(&self) -> u64 {
        lock(&self.state).value
    }

    /// How many listeners wait.
    pub fn listeners(&self) -> usize {
        lock(&self.state).listeners.len()
    }

    /// How often a value was signaled behind a higher one.
    pub fn went_back(&self) -> usize {
        lock(&self.state).went_back
    }

    /// The longest wait that it was asked for, milliseconds.
    pub fn longest_wait_ms(&self) -> u64 {
        lock(&self.state).longest_wait_ms
    }

    /// Signals a value, as any queue or the host may, and tells the listeners.
    pub fn signal(&self, value: u64) {
        self.raise(value);
        self.tell(value, Call::Prompt);
    }

    pub(crate) fn raise(&self, value: u64) {
        let mut state = lock(&self.state);
        state.went_back += usize::from(value < state.value);
        state.value = value;
    }

    /// Calls the listeners of values up to this.
    pub(crate) fn tell(&self, value: u64, call: Call) {
        let due = {
            let mut state = lock(&self.state);
            if call != Call::Lost {
                state.told = value;
            }
            let (due, rest) = state.listeners.drain(..).partition(|(at, _)| *at <= value);
            state.listeners = rest;
            due
        };
        let due: Vec<(u64, Kept<T>)> = due;
        for (_, kept) in due {
            kept.ring(call);
        }
    }

    pub(crate) fn listen(&self, value: u64, bell: Bell<FakeMetal<T>>) {
        let (kept, call) = (Kept::new(bell, &self.metal), self.metal.faults().listener);
        kept.ring_early(call);
        let mut state = lock(&self.state);
        if state.told < value {
            state.listeners.push((value, kept));
            return;
        }
        drop(state);
        kept.ring(call);
    }

    /// Blocks as Metal does: until the value is there, or for so many milliseconds, which it counts in nanoseconds.
    pub(crate) fn wait(&self, value: u64, timeout_ms: u64) -> bool {
        self.metal.spend(CALL_NS);
        {
            let mut state = lock(&self.state);
            state.longest_wait_ms = state.longest_wait_ms.max(timeout_ms);
        }
        match self.metal.faults().wait {
            Wait::Honest => {}
            Wait::GivesUp => return false,
            Wait::Lies => return true,
        }
        let end = self.metal.now() + Nanos::from_millis(timeout_ms);
        loop {
            let now = self.metal.now();
            let next = self.metal.device().turn(now).unwrap_or(end);
            if self.value() >= value || now >= end {
                return self.value() >= value;
            }
            self.metal.device().time().pass(next.min(end));
        }
    }
}

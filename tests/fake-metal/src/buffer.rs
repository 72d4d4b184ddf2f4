//! A command buffer.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use wakeline_core::{Instant, Nanos};
use wakeline_metal::{Bell, BufferError, BufferStatus};
use wakeline_sim::SimStream;

use crate::event::{FakeEvent, Kept};
use crate::faults::{Call, Faults, Kill};
use crate::{FakeMetal, Time, lock};

/// A command buffer. Clones are the same.
pub struct FakeBuffer<T: Time>(pub(crate) Arc<Inner<T>>);

pub(crate) struct Inner<T: Time> {
    metal: FakeMetal<T>,
    pub(crate) queue: SimStream<T>,
    state: Mutex<State<T>>,
    claimed: AtomicBool,
}

struct State<T: Time> {
    status: BufferStatus,
    error: Option<i64>,
    work: Nanos,
    signals: Vec<(FakeEvent<T>, u64)>,
    handlers: Vec<Kept<T>>,
    ended_at: Option<Instant>,
    asked: u64,
}

/// What comes behind a buffer's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Signal,
    Listeners,
    Status,
    Handlers,
}

impl<T: Time> Clone for FakeBuffer<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Time> fmt::Debug for FakeBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.0.state);
        f.debug_struct("FakeBuffer").field("status", &state.status).field("error", &state.error).finish()
    }
}

impl<T: Time> Drop for Inner<T> {
    fn drop(&mut self) {
        self.metal.census().buffers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<T: Time> FakeBuffer<T> {
    pub(crate) fn new(metal: FakeMetal<T>, queue: SimStream<T>) -> Self {
        metal.census().buffers.fetch_add(1, Ordering::SeqCst);
        let state = State {
            status: BufferStatus::NotEnqueued,
            error: None,
            work: Nanos::ZERO,
            signals: Vec::new(),
            handlers: Vec::new(),
            ended_at: None,
            asked: 0,
        };
        Self(Arc::new(Inner { metal, queue, state: Mutex::new(state), claimed: AtomicBool::new(false) }))
    }

    /// Encodes work that takes so long, after what it has.
    pub fn work(&self, length: Nanos) {
        let mut state = lock(&self.0.state);
        state.work = state.work + length;
    }

    /// Commits it, as who made a point of it and commits it himself does.
    pub fn commit(&self) {
        let (metal, queue) = (&self.0.metal, &self.0.queue);
        let length = {
            let mut state = lock(&self.0.state);
            assert!(
                matches!(state.status, BufferStatus::NotEnqueued | BufferStatus::Enqueued),
                "Metal ends the process: committed twice"
            );
            state.status = BufferStatus::Committed;
            state.work
        };
        if let Some(code) = metal.lost() {
            // Nothing comes behind work that is never begun: a late handler is called now.
            self.settle(Err(code));
            return self.call_handlers(metal.faults().handler);
        }
        let faults = metal.faults();
        let mut at = Nanos::ZERO;
        // A queue that is full refuses, which no test here comes near.
        let _ = queue.launch(length);
        for (when, step) in steps(&faults) {
            if when > at {
                let _ = queue.launch(when - at);
                at = when;
            }
            let buffer = self.clone();
            let _ = queue.call_host(move || buffer.step(step, &faults));
        }
    }

    /// Ends it now, whatever it does.
    pub fn kill(&self, code: i64) {
        self.end(Err(code), self.0.metal.faults().handler);
    }

    pub(crate) fn kill_if_committed(&self, code: i64) {
        let committed = lock(&self.0.state).status == BufferStatus::Committed;
        if committed {
            self.kill(code);
        }
    }

    /// When its work ended, once it has.
    pub fn ended_at(&self) -> Option<Instant> {
        lock(&self.0.state).ended_at
    }

    /// How often its status was asked for.
    pub fn asked_times(&self) -> u64 {
        lock(&self.0.state).asked
    }

    fn step(&self, step: Step, faults: &Faults) {
        let killed_at_signal = matches!(faults.kill, Some(Kill::BeforeSignal(_)));
        match (step, faults.kill) {
            (Step::Signal, Some(Kill::BeforeSignal(code))) => self.end(Err(code), faults.handler),
            (Step::Signal, kill) => {
                // What was killed meanwhile does not go on.
                let signals = {
                    let mut state = lock(&self.0.state);
                    if state.status != BufferStatus::Committed {
                        return;
                    }
                    state.ended_at = Some(self.0.metal.now());
                    state.signals.clone()
                };
                for (event, value) in &signals {
                    event.raise(*value);
                }
                if let Some(Kill::BehindSignal(code)) = kill {
                    self.end(Err(code), faults.handler);
                }
            }
            (Step::Listeners, _) if !killed_at_signal && self.ended_at().is_some() => {
                let signals = lock(&self.0.state).signals.clone();
                for (event, value) in &signals {
                    event.tell(*value, faults.listener);
                }
            }
            (Step::Listeners, _) => {}
            (Step::Status, Some(Kill::ValueAndError(code))) => self.settle(Err(code)),
            (Step::Status, _) => self.settle(Ok(())),
            (Step::Handlers, _) => self.call_handlers(faults.handler),
        }
    }

    /// Ends it, unless it has, and calls the handlers unless those are late.
    fn end(&self, end: Result<(), i64>, handler: Call) {
        self.settle(end);
        if !matches!(handler, Call::Late(_)) {
            self.call_handlers(handler);
        }
    }

    fn settle(&self, end: Result<(), i64>) {
        let mut state = lock(&self.0.state);
        if matches!(state.status, BufferStatus::Completed | BufferStatus::Error) {
            return;
        }
        (state.status, state.error) = match end {
            Ok(()) => (BufferStatus::Completed, None),
            Err(code) => (BufferStatus::Error, Some(code)),
        };
    }

    fn call_handlers(&self, call: Call) {
        let handlers = std::mem::take(&mut lock(&self.0.state).handlers);
        for kept in handlers {
            kept.ring(call);
        }
    }

    pub(crate) fn claim(&self) -> bool {
        !self.0.claimed.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn encode(&self, event: &FakeEvent<T>, value: u64) {
        let mut state = lock(&self.0.state);
        assert!(
            matches!(state.status, BufferStatus::NotEnqueued | BufferStatus::Enqueued),
            "Metal ends the process: encoded into a committed buffer"
        );
        state.signals.push((event.clone(), value));
    }

    pub(crate) fn handle(&self, bell: Bell<FakeMetal<T>>) {
        let kept = Kept::new(bell, &self.0.metal);
        kept.ring_early(self.0.metal.faults().handler);
        let mut state = lock(&self.0.state);
        assert!(
            state.status != BufferStatus::Committed,
            "Metal ends the process: a handler after the commit"
        );
        state.handlers.push(kept);
    }

    pub(crate) fn enqueue(&self) {
        let mut state = lock(&self.0.state);
        assert!(state.status == BufferStatus::NotEnqueued, "Metal ends the process: enqueued twice");
        state.status = BufferStatus::Enqueued;
    }

    pub(crate) fn asked(&self) -> BufferStatus {
        let mut state = lock(&self.0.state);
        state.asked += 1;
        state.status
    }

    pub(crate) fn error(&self) -> Option<BufferError> {
        lock(&self.0.state).error.map(|code| BufferError::new(code, "as the test has it"))
    }
}

/// What comes when behind the work, in the order of their times.
fn steps(faults: &Faults) -> [(Nanos, Step); 4] {
    let late = |call| if let Call::Late(by) = call { by } else { Nanos::ZERO };
    let mut steps = [
        (Nanos::ZERO, Step::Signal),
        (late(faults.listener), Step::Listeners),
        (faults.status_lag, Step::Status),
        (faults.status_lag + late(faults.handler), Step::Handlers),
    ];
    steps.sort_by_key(|(at, _)| *at);
    steps
}

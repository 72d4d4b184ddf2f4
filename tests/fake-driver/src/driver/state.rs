//! All that one instance knows, the lock around it, and how threads wait for something to happen in it.

use core::ffi::CStr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::process;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::capture::Capture;
use super::clock::{self, SPIN_NS};
use super::context::{Context, Halt};
use super::event::Event;
use super::graph::Graph;
use super::handle::{Handles, Kind};
use super::hosts::Hosted;
use super::log::Log;
use super::module::{Function, Module};
use super::nccl::Comms;
use super::nvrtc::Program;
use super::pages::Pages;
use super::rules::Rules;
use super::stream::Stream;
use crate::wire::{Live, Options};

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) options: Options,
    pub(super) rules: Rules,
    pub(super) log: Log,
    /// The clock, as it was read last.
    pub(super) now: u64,
    /// The exported name of the call that is worked on.
    pub(super) call: &'static str,
    pub(super) handles: Handles,
    pub(super) contexts: BTreeMap<u64, Context>,
    /// The primary contexts there are, by device.
    pub(super) primaries: BTreeMap<i32, u64>,
    pub(super) contexts_made: u64,
    /// A fault has ended the whole process's use of the driver.
    pub(super) halt: Option<Halt>,
    pub(super) streams: BTreeMap<u64, Stream>,
    /// The streams that have work.
    pub(super) busy: BTreeSet<u64>,
    pub(super) streams_made: u64,
    pub(super) events: BTreeMap<u64, Event>,
    pub(super) pages: Pages,
    /// What the default pools keep, by device.
    pub(super) release_thresholds: BTreeMap<i32, u64>,
    /// Which context was let reach which other, and of which devices the default pools which others.
    pub(super) reached: BTreeSet<(u64, u64)>,
    pub(super) shared_pools: BTreeSet<(i32, i32)>,
    pub(super) modules: BTreeMap<u64, Module>,
    pub(super) functions: BTreeMap<u64, Function>,
    /// Names of kernels that were told.
    pub(super) names: BTreeMap<String, &'static CStr>,
    /// What the run-time compiler has at hand.
    pub(super) programs: BTreeMap<u64, Program>,
    pub(super) programs_made: u64,
    /// It is used by HIP's names: a thread's context is its device.
    pub(super) is_hip: bool,
    /// Communicators of the library of collectives.
    pub(super) comms: Comms,
    /// The captures that go on, by their ids.
    pub(super) captures: BTreeMap<u64, Capture>,
    pub(super) captures_made: u64,
    pub(super) graphs: BTreeMap<u64, Graph>,
    /// Graphs that can be launched.
    pub(super) execs: BTreeMap<u64, Graph>,
    /// Streams and events that went with their context.
    pub(super) buried: BTreeSet<u64>,
    /// Host functions whose turn has come.
    pub(super) hosted: VecDeque<Hosted>,
    /// How many calls a rule blocks, and how often all were let go.
    pub(super) blocked: u64,
    pub(super) releases: u64,
    /// Whether something happened that others may wait for.
    pub(super) stirred: bool,
    /// Whether the library's threads run.
    pub(super) runs: bool,
    /// How many calls sleep until something happens.
    waiting: u64,
    /// Until when the engine sleeps; 0 while it does not.
    engine_due: u64,
}

/// The one instance of this copy of the library.
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    host_function: Condvar,
    /// Counts what `changed` tells, for those who spin.
    changes: AtomicU64,
    /// The process that called `cuInit`; 0 before. Outside of the lock, which a fork's child may find held for ever.
    process: AtomicU32,
}

static SHARED: LazyLock<Shared> = LazyLock::new(|| Shared {
    state: Mutex::default(),
    changed: Condvar::new(),
    host_function: Condvar::new(),
    changes: AtomicU64::new(0),
    process: AtomicU32::new(0),
});

pub(super) fn shared() -> &'static Shared {
    &SHARED
}

pub(super) type Guard = MutexGuard<'static, State>;

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in the library ends the process; the state is whole wherever else it is seen.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that this process has called `cuInit`.
    pub(super) fn initialize(&self) {
        self.process.store(process::id(), Ordering::Relaxed);
    }

    pub(super) fn uninitialize(&self) {
        self.process.store(0, Ordering::Relaxed);
    }

    pub(super) fn is_initialized(&self) -> bool {
        self.process.load(Ordering::Relaxed) != 0
    }

    /// Whether this is the child of a process that called `cuInit`.
    pub(super) fn is_forked(&self) -> bool {
        ![0, process::id()].contains(&self.process.load(Ordering::Relaxed))
    }

    /// Reads the clock and lets everything happen that should have by now.
    pub(super) fn advance(&self, state: &mut State) {
        state.now = clock::now();
        state.advance();
        self.tell(state);
    }

    /// Wakes whoever has to know, if something happened. The engine has to where it would sleep too long.
    pub(super) fn tell(&self, state: &mut State) {
        if !core::mem::take(&mut state.stirred) {
            return;
        }
        self.changes.fetch_add(1, Ordering::Relaxed);
        if state.waiting > 0 || state.blocked > 0 || state.next_due() < state.engine_due {
            self.changed.notify_all();
        }
        if !state.hosted.is_empty() {
            self.host_function.notify_one();
        }
    }

    /// Waits for a call, without the lock, until something happens or is due, `until` at the latest.
    pub(super) fn wait(&'static self, mut state: Guard, until: u64) -> Guard {
        state.waiting += 1;
        let due = state.next_due().min(until);
        let mut state = self.wait_until(state, due);
        state.waiting -= 1;
        state
    }

    /// The same for the engine, which is woken only where something is due before.
    pub(super) fn wait_for_due(&'static self, mut state: Guard) -> Guard {
        let due = state.next_due();
        state.engine_due = due;
        let mut state = self.wait_until(state, due);
        state.engine_due = 0;
        state
    }

    fn wait_until(&'static self, state: Guard, due: u64) -> Guard {
        let left = due.saturating_sub(clock::now());
        if left <= SPIN_NS {
            let seen = self.changes.load(Ordering::Relaxed);
            drop(state);
            clock::spin(due, || self.changes.load(Ordering::Relaxed) != seen);
            return self.lock();
        }
        if due == u64::MAX {
            return self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let nap = Duration::from_nanos(left - SPIN_NS);
        self.changed.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until the turn of a host function may have come.
    pub(super) fn wait_for_host_function(&'static self, state: Guard) -> Guard {
        self.host_function.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a test lets blocked calls go.
    pub(super) fn wait_for_release(&'static self, mut state: Guard) -> Guard {
        let releases = state.releases;
        state.blocked += 1;
        while state.releases == releases {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.blocked -= 1;
        state
    }
}

impl State {
    /// Notes what no program may do, with the call that did it.
    pub(super) fn violation(&mut self, what: &str) {
        let text = format!("{}: {what}", self.call);
        self.log.violation(text);
    }

    /// Forgets all but the options, the handles that were given out, and who waits.
    pub(super) fn reset(&mut self) {
        let contexts: Vec<u64> = self.contexts.keys().copied().collect();
        for context in contexts {
            self.end_context(context);
        }
        self.primaries.clear();
        self.shared_pools.clear();
        // Those whose first stream was destroyed before are of no context any more.
        self.captures.clear();
        self.programs.clear();
        self.buried.clear();
        self.rules.clear();
        self.releases += 1;
        self.log = Log::default();
        self.stirred = true;
    }

    pub(super) fn live(&self) -> Live {
        let queued: usize = self.streams.values().map(|stream| stream.queue.len()).sum();
        Live {
            primary_retains: self.contexts.values().map(|context| context.retains).sum(),
            // HIP's primary contexts are there whoever retains them.
            contexts: count(
                self.contexts.values().filter(|context| context.retains > 0 || !context.is_primary).count(),
            ),
            streams: count(self.streams.values().filter(|stream| stream.is_counted()).count()),
            events: count(self.events.len()),
            modules: count(self.modules.len()),
            programs: count(self.programs.len()),
            communicators: count(self.comms.len()),
            graphs: count(self.graphs.len()),
            graph_execs: count(self.execs.len()),
            queued: count(queued),
            ..self.pages.live()
        }
    }

    /// What a handle that names nothing stands for: a violation, and the words for it.
    pub(super) fn unknown(&mut self, kind: Kind, handle: u64) -> crate::Status {
        let noun = format!("{kind:?}").to_lowercase();
        if self.buried.contains(&handle) {
            self.violation(&format!("{noun} {handle:#x} went with its context"));
            return crate::Status::CONTEXT_IS_DESTROYED;
        }
        let was = if self.handles.gave(kind, handle) { "was destroyed" } else { "never was one" };
        self.violation(&format!("{noun} {handle:#x} {was}"));
        match kind {
            Kind::Context if was == "was destroyed" => crate::Status::CONTEXT_IS_DESTROYED,
            Kind::Context => crate::Status::INVALID_CONTEXT,
            _ => crate::Status::INVALID_HANDLE,
        }
    }
}

fn count(len: usize) -> u64 {
    len as u64
}

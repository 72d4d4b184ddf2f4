//! Watching a word: what parks here, and how late it sees a store of another thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde::Serialize;
use wakeline::{Clock, CompletionLine, Error, HostLine, Instant, Nanos, Park, Seq, Slot, Wake};
use wakeline_benches::{Apart, Quantiles, Tail};
use wakeline_std::{ParkPolicy, StdClock, StdIdle, StdPark, TimerSlack, TscRate};
use wakeline_wordwait::{Features, WordWait};

/// How many stores are measured, and what they may take together.
const STORES: u64 = 500;
const STORES_QUICK: u64 = 100;
const BUDGET: Nanos = Nanos::from_millis(400);
const BUDGET_QUICK: Nanos = Nanos::from_millis(120);

/// How long after the park began the store comes, microseconds: within the spin of the default policy, and for naps at
/// any part of one.
const DELAY_US: u64 = 60;
const DELAY_NAPS_US: u64 = 150;
const DELAY_SPREAD_US: u64 = 100;

/// The storing thread sleeps until this long before its store, then spins.
const APPROACH: Nanos = Nanos::from_micros(50);

/// The park.
#[derive(Debug, Serialize)]
pub(crate) struct WordPark {
    /// What the processor and the system show, whether or not it can be used.
    pub(crate) hardware_features: Vec<String>,
    /// The instruction that parks; `None` where none can.
    pub(crate) hardware_kind: Option<String>,
    /// Why none can.
    pub(crate) hardware_why_not: Option<String>,
    /// What parks, by the default policy.
    pub(crate) in_use: String,
    /// Whether both threads had a processor of their own.
    pub(crate) threads_apart: bool,
    /// From a store to the sight of it, while the park spins or is in hardware.
    pub(crate) store_to_wake_in_use: Option<Quantiles>,
    /// The same during its naps, with the least timer slack; `None` where that cannot be set.
    pub(crate) store_to_wake_nap_slack_1_ns: Option<Quantiles>,
    /// The same with the slack that the thread was given.
    pub(crate) store_to_wake_nap_slack_as_given: Option<Quantiles>,
}

impl WordPark {
    /// Probes, then measures for a second, a quarter when `quick`.
    pub(crate) fn measure(quick: bool) -> Result<Self, Error> {
        let clock = StdClock::new();
        let policy = ParkPolicy::default();
        let rate = || TscRate::measure(clock, TscRate::LENGTH).map(TscRate::ticks_per_2_32_ns);
        let probed = WordWait::probe(clock, rate);
        let hardware_kind = probed.as_ref().ok().map(|word_wait| word_wait.kind().to_string());
        let park = StdPark::new(StdIdle::new(clock), policy).with_word_wait(probed);
        let (hardware_why_not, in_use) = match (park.warning(), &hardware_kind) {
            (Some(warning), _) => match warning.args() {
                [why, instead, ..] => (Some(why.clone()), instead.clone()),
                _ => (Some(warning.to_string()), policy.to_string()),
            },
            (None, Some(kind)) => {
                let us = policy.hardware_us_max();
                (None, format!("`{kind}` for at most {us} us, then naps of {} us", policy.nap_us()))
            }
            (None, None) => (None, policy.to_string()),
        };
        let (in_use_latency, threads_apart) = store_to_wake(&park, clock, DELAY_US, quick);
        let naps = ParkPolicy::new(0, policy.nap_us())?;
        let naps = StdPark::new(StdIdle::new(clock), naps);
        let nap = || store_to_wake(&naps, clock, DELAY_NAPS_US, quick).0;
        let as_given = nap();
        let least = TimerSlack::set(TimerSlack::LEAST).ok().and_then(|_slack| nap());
        Ok(Self {
            hardware_features: Features::detected()
                .iter_names()
                .map(|(name, _)| name.to_lowercase())
                .collect(),
            hardware_kind,
            hardware_why_not,
            in_use,
            threads_apart,
            store_to_wake_in_use: in_use_latency,
            store_to_wake_nap_slack_1_ns: least,
            store_to_wake_nap_slack_as_given: as_given,
        })
    }
}

/// What the two threads share, apart from the line.
#[derive(Default)]
struct Shared {
    /// The store that the waiting thread is about to park for.
    wanted: AtomicU64,
    /// When the last store was made.
    stored_at_ns: AtomicU64,
    stop: AtomicBool,
}

/// Parks this thread for stores that another makes: how late they are seen, `None` where none was in time, and whether
/// the two had processors of their own.
fn store_to_wake(park: &impl Park, clock: StdClock, delay_us: u64, quick: bool) -> (Option<Quantiles>, bool) {
    let (stores, budget) = if quick { (STORES_QUICK, BUDGET_QUICK) } else { (STORES, BUDGET) };
    let (line, shared) = (HostLine::new(), Shared::default());
    let slot = Slot::ALL[0];
    thread::scope(|scope| {
        let (_storing, apart) = Apart::from(|| {
            scope.spawn(|| {
                // A store that is late changes nothing: it is timed when it is made.
                let _slack = TimerSlack::set(TimerSlack::LEAST);
                for seq in 1..=stores {
                    if !wanted(&shared, seq) {
                        break;
                    }
                    let at = clock.now() + Nanos::from_micros(delay_us + seq * 37 % DELAY_SPREAD_US);
                    clock.sleep_until(at - APPROACH);
                    while clock.now() < at {
                        std::hint::spin_loop();
                    }
                    shared.stored_at_ns.store(clock.now().as_nanos(), Ordering::Relaxed);
                    line.store(slot, Seq::new(seq));
                }
            })
        });
        let end = clock.now() + budget;
        let mut tail = Tail::new();
        for seq in 1..=stores {
            shared.wanted.store(seq, Ordering::Release);
            if !reached(park, &line, end, || line.load(slot).reached(Seq::new(seq)), clock) {
                break;
            }
            let seen = clock.now();
            let since = Instant::from_nanos(shared.stored_at_ns.load(Ordering::Relaxed));
            tail.record(seen.since(since).as_nanos());
        }
        shared.stop.store(true, Ordering::Release);
        let quantiles = tail.quantiles();
        ((quantiles.count > 0).then_some(quantiles), apart.is_some())
    })
}

/// Waits until the store `seq` is asked for; `false` when the measurement is over.
fn wanted(shared: &Shared, seq: u64) -> bool {
    while shared.wanted.load(Ordering::Acquire) < seq {
        if shared.stop.load(Ordering::Acquire) {
            return false;
        }
        thread::yield_now();
    }
    true
}

fn reached(
    park: &impl Park,
    line: &CompletionLine,
    end: Instant,
    ready: impl Fn() -> bool,
    clock: StdClock,
) -> bool {
    loop {
        if park.park(Some(line), end, &ready) == Wake::Reached {
            return true;
        }
        if clock.now() >= end {
            return false;
        }
    }
}

//! Suites `cycles` and `flights`: words that are registered, stored by the caller, and told of to wakers that do nothing.

use core::pin::Pin;
use core::task::{Context, Waker};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant as Wall};

use serde::Serialize;
use wakeline::{HostLine, Instant, MemoryDescriptor, Seq, Slot};
use wakeline_benches::{Quantiles, Tail, Usage};
use wakeline_std::{Watcher, WatcherHandle, WordWait};

use crate::args::Suite;
use crate::output::{Failure, Output, real};

/// How many threads register, in `cycles`.
const THREADS: [usize; 2] = [1, 2];

/// How many other flights are armed, in `flights`.
const ARMED: [usize; 4] = [1, 64, 1_024, 65_536];

/// How many words a thread registers before it stores them.
const BATCH: usize = 64;

/// How many stores are timed, one by one; fewer where they take longer than a case may.
const STORES: usize = 2_000;

/// How long after a registration its word is stored, microseconds: the watcher has taken it in by then.
const SETTLES_US: u64 = 20;

/// What a record has beside what all have.
#[derive(Debug, Serialize)]
struct Detail {
    threads: usize,
    /// How many other flights were armed meanwhile.
    armed: usize,
    cycles: u64,
    cycles_per_s: f64,
    /// How long one registration took, on average.
    registration_ns: f64,
    /// From a store to its task, which asks all the time; `None` in `cycles`.
    stored_to_ready: Option<Quantiles>,
}

const HEAD: &str = "                      cycles,   a registration,   stored to ready, ns
                   million/s               ns        p50        p99";

impl Detail {
    fn row(&self, case: &str) -> String {
        let stored = self.stored_to_ready.map_or_else(String::new, |Quantiles { p50_ns, p99_ns, .. }| {
            format!(" {p50_ns:>10} {p99_ns:>10}")
        });
        let row = format!("  {case:<14} {:>11.3} {:>16.1}", self.cycles_per_s / 1e6, self.registration_ns);
        row + &stored
    }
}

/// From one and from two threads.
pub(crate) fn cycles(output: &mut Output<impl Write>, length: Duration) -> Result<(), Failure> {
    output.line(&format!("cycles: {} s each\n{HEAD}", length.as_secs()))?;
    for threads in THREADS {
        let watcher = Watcher::new()?;
        let before = Usage::now();
        let detail = rate(&watcher, threads, length);
        let used = Usage::now().since(before);
        watcher.close(Watcher::CLOSE)?;
        let case = if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
        let row = detail.row(&case);
        output.case((Suite::Cycles, &case), used, detail, &row)?;
    }
    Ok(())
}

/// Beside flights that are armed and do not end.
pub(crate) fn flights(output: &mut Output<impl Write>, length: Duration) -> Result<(), Failure> {
    output.line(&format!("flights: {} s each, 1 thread\n{HEAD}", length.as_secs()))?;
    for armed in ARMED {
        let watcher = Watcher::new()?;
        let handle = watcher.handle();
        let lines = lines(armed);
        let waits: Vec<_> =
            (0..armed).map(|n| registered(&handle, &lines[n / SLOTS], n, Seq::new(1))).collect();
        let before = Usage::now();
        let detail = rate(&watcher, 1, length);
        let used = Usage::now().since(before);
        let detail = Detail { armed, stored_to_ready: Some(stored_to_ready(&handle, length)), ..detail };
        drop(waits);
        watcher.close(Watcher::CLOSE)?;
        let case = format!("{armed} armed");
        let row = detail.row(&case);
        output.case((Suite::Flights, &case), used, detail, &row)?;
    }
    Ok(())
}

type Line = Arc<HostLine>;

const SLOTS: usize = Slot::ALL.len();

/// Lines with room for so many words.
fn lines(words: usize) -> Vec<Line> {
    (0..words.div_ceil(SLOTS)).map(|_| Line::default()).collect()
}

/// A wait for the `n`th word, which is on `line`, once it has been polled for the first time.
fn registered(handle: &WatcherHandle, line: &Line, n: usize, seq: Seq) -> WordWait<Line> {
    let word = MemoryDescriptor::new(Arc::clone(line), Slot::ALL[n % SLOTS], seq);
    let mut wait = handle.word(word, Instant::MAX);
    // Its word is not stored yet.
    let _ = Pin::new(&mut wait).poll(&mut Context::from_waker(Waker::noop()));
    wait
}

/// Asks until it is ready.
fn await_spinning(mut wait: WordWait<Line>) {
    let mut context = Context::from_waker(Waker::noop());
    while Pin::new(&mut wait).poll(&mut context).is_pending() {
        core::hint::spin_loop();
    }
}

/// What the threads that register share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// How long registering took, all threads together.
    registering_ns: AtomicU64,
}

/// Has so many threads register for about `length`.
fn rate(watcher: &Watcher, threads: usize, length: Duration) -> Detail {
    let shared = Arc::new(Shared::default());
    let start = Wall::now();
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (handle, shared) = (watcher.handle(), Arc::clone(&shared));
            std::thread::spawn(move || register(&handle, &shared))
        })
        .collect();
    std::thread::sleep(length);
    shared.stop.store(true, Ordering::Relaxed);
    let join = |worker: std::thread::JoinHandle<u64>| {
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    };
    let cycles: u64 = workers.into_iter().map(join).sum();
    Detail {
        threads,
        armed: 0,
        cycles,
        cycles_per_s: real(cycles) / start.elapsed().as_secs_f64(),
        registration_ns: real(shared.registering_ns.load(Ordering::Relaxed)) / real(cycles.max(1)),
        stored_to_ready: None,
    }
}

/// Registers, stores and awaits words in batches until told to stop; counts them, and the time that registering took.
fn register(handle: &WatcherHandle, shared: &Shared) -> u64 {
    let lines = lines(BATCH);
    let (mut seq, mut done, mut waits) = (Seq::ZERO, 0, Vec::with_capacity(BATCH));
    while !shared.stop.load(Ordering::Relaxed) {
        seq = seq.next();
        let start = Wall::now();
        waits.extend((0..BATCH).map(|n| registered(handle, &lines[n / SLOTS], n, seq)));
        shared.registering_ns.fetch_add(nanos(start.elapsed()), Ordering::Relaxed);
        for line in &lines {
            for slot in Slot::ALL {
                line.store(slot, seq);
            }
        }
        // In order, so that what is polled again and again is one of them only.
        waits.drain(..).for_each(await_spinning);
        done += BATCH as u64;
    }
    done
}

/// From the store of a word to the outcome of its wait, which is polled all the time: the watcher's look. For at most about `length`.
fn stored_to_ready(handle: &WatcherHandle, length: Duration) -> Quantiles {
    let begin = Wall::now();
    let line = Line::default();
    let (mut seq, mut took) = (Seq::ZERO, Tail::new());
    for _ in 0..STORES {
        seq = seq.next();
        let wait = registered(handle, &line, 0, seq);
        let settle = Wall::now();
        while settle.elapsed() < Duration::from_micros(SETTLES_US) {
            core::hint::spin_loop();
        }
        let start = Wall::now();
        line.store(Slot::ALL[0], seq);
        await_spinning(wait);
        took.record(nanos(start.elapsed()));
        if begin.elapsed() > length {
            break;
        }
    }
    took.quantiles()
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

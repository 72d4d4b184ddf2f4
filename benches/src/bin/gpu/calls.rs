//! Suite `calls`: what the driver calls that a wait is made of take, one by one.
//!
//! Each call is timed by itself, less what reading the clock takes. The calls take turns, so that each finds what the others left in the caches.

use std::io::Write;

use serde::Serialize;
use wakeline_benches::gpu::Failure;
use wakeline_benches::{Quantiles, Tail};
use wakeline_core::{Clock, CompletionPort, Error, ErrorCode, Nanos, Status};
use wakeline_cuda::kernels::Kernels;
use wakeline_cuda::{Calls, synchronize};
use wakeline_std::StdClock;

use crate::args::Budget;
use crate::bench::Bench;
use crate::output::Output;

/// How long a stream is kept busy at a time.
const BUSY: Nanos = Nanos::from_millis(20);

/// How often each call is made while it is: in a small part of that time, and with few stores in the queue behind it.
const TURNS_BUSY: u32 = 50;

/// What a stretch of calls takes, roughly, microseconds.
const STRETCH_US: u64 = 22_000;

/// How often a stream is looked at until it has nothing left.
const LOOKS_MAX: u32 = 50_000_000;

/// How long after a word the status is sure to agree.
const SETTLES: Nanos = Nanos::from_micros(60);

/// What a record has beside what all have.
#[derive(Debug, Serialize)]
struct Detail {
    call: &'static str,
    /// What the stream was doing.
    stream: &'static str,
    took: Quantiles,
    /// What reading the clock takes, which was taken off.
    clock_ns: u64,
}

/// What each call took.
struct Takes {
    clock: StdClock,
    clock_ns: u64,
    calls: Vec<(&'static str, &'static str, Tail)>,
}

impl Takes {
    fn new(clock: StdClock) -> Self {
        let mut tail = Tail::new();
        for _ in 0..1_000 {
            let start = clock.now();
            tail.record(clock.now().since(start).as_nanos());
        }
        Self { clock, clock_ns: tail.quantiles().p50_ns, calls: Vec::new() }
    }

    /// Times one call, made while the stream is as `stream` says.
    fn time<T>(&mut self, call: &'static str, stream: &'static str, run: impl FnOnce() -> T) -> T {
        let start = self.clock.now();
        let result = run();
        let took = self.clock.now().since(start).as_nanos().saturating_sub(self.clock_ns);
        let known = self.calls.iter_mut().find(|(name, state, _)| (*name, *state) == (call, stream));
        if let Some((.., tail)) = known {
            tail.record(took);
        } else {
            let mut tail = Tail::new();
            tail.record(took);
            self.calls.push((call, stream, tail));
        }
        result
    }
}

pub(crate) fn calls(output: &mut Output<impl Write>, bench: &Bench, budget: &Budget) -> Result<(), Failure> {
    let kernels = Kernels::load(&bench.context)?;
    let calls = Calls::new(&bench.context, bench.stream())?;
    let mut takes = Takes::new(bench.clock);
    // The first calls are slow, and not counted.
    stretch(bench, &calls, &kernels, &mut takes)?;
    takes.calls.clear();
    for _ in 0..budget.rounds(100, STRETCH_US) {
        stretch(bench, &calls, &kernels, &mut takes)?;
    }
    output.line("calls: ns, less the clock's own\n  call                         stream           p50      p90      p99   number")?;
    let clock_ns = takes.clock_ns;
    for (call, stream, tail) in takes.calls {
        let took = tail.quantiles();
        let row = format!(
            "  {call:<28} {stream:<12} {:>7} {:>8} {:>8} {:>8}",
            took.p50_ns, took.p90_ns, took.p99_ns, took.count
        );
        output.other("calls", &format!("{call}, {stream}"), Detail { call, stream, took, clock_ns }, &row)?;
    }
    Ok(())
}

/// All calls, on a stream that is busy, one that is done since a moment ago, and one that has long been idle.
fn stretch(bench: &Bench, calls: &Calls<'_>, kernels: &Kernels, takes: &mut Takes) -> Result<(), Error> {
    let stream = bench.stream();
    idle(calls)?;
    takes.time("kernel launch", "idle", || kernels.occupy(stream, BUSY))?;
    calls.record()?;
    for _ in 0..TURNS_BUSY {
        context_calls(bench, calls, takes, "busy")?;
        takes.time("cuStreamQuery", "busy", || calls.query_stream())?;
        takes.time("cuEventQuery", "busy", || calls.query_event())?;
        let mut port = takes.time("port()", "busy", || stream.port())?;
        let status = takes.time("query()", "busy", || port.query())?;
        takes.time("arm()", "busy", || port.arm())?;
        takes.time("drop of a port", "busy", || drop(port));
        if status == Status::Done {
            // This thread was held up: the kernel that keeps it busy has ended.
            break;
        }
    }
    idle(calls)?;
    done(bench, calls, takes)?;
    for _ in 0..TURNS_BUSY {
        context_calls(bench, calls, takes, "idle")?;
        takes.time("cuStreamQuery", "idle", || calls.query_stream())?;
        takes.time("cuEventQuery", "idle", || calls.query_event())?;
        takes.time("cuStreamSynchronize", "idle", || synchronize(stream))?;
        let mut port = takes.time("port()", "idle", || stream.port())?;
        takes.time("query()", "idle", || port.query())?;
        takes.time("arm()", "idle", || port.arm())?;
        takes.time("health()", "idle", || bench.context.health())?;
        idle(calls)?;
    }
    Ok(())
}

/// What is called whatever the stream does.
fn context_calls(
    bench: &Bench,
    calls: &Calls<'_>,
    takes: &mut Takes,
    stream: &'static str,
) -> Result<(), Error> {
    takes.time("cuCtxGetCurrent", stream, || calls.current())?;
    takes.time("cuThreadExchangeCaptureMode", stream, || calls.exchange_capture_mode())?;
    takes.time("cuStreamIsCapturing", stream, || calls.capturing())?;
    takes.time("bind()", stream, || bench.context.bind().map(drop))?;
    takes.time("cuEventRecord", stream, || calls.record())?;
    Ok(())
}

/// The first question after the end of work, and the second.
fn done(bench: &Bench, calls: &Calls<'_>, takes: &mut Takes) -> Result<(), Error> {
    for stream_first in [true, false] {
        bench.steps.launch(Nanos::from_micros(20), false)?;
        calls.record()?;
        let seen = bench.spin(&bench.armed()?);
        while bench.clock.now().since(seen) < SETTLES {
            core::hint::spin_loop();
        }
        for state in ["first after", "again"] {
            if stream_first {
                takes.time("cuStreamQuery", state, || calls.query_stream())?;
            } else {
                takes.time("cuEventQuery", state, || calls.query_event())?;
            }
        }
    }
    Ok(())
}

/// Waits until the stream has nothing left.
fn idle(calls: &Calls<'_>) -> Result<(), Error> {
    for _ in 0..LOOKS_MAX {
        if calls.query_stream()? == Status::Done {
            return Ok(());
        }
    }
    Err(Error::new(ErrorCode::Backend, [&"gpu", &"waiting for an idle stream", &"it stays busy"]))
}

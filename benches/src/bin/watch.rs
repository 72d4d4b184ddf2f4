//! What a watcher costs: `watch [--seconds S] [--suite NAME].. [--json FILE]`.
//!
//! | suite | measures |
//! |---|---|
//! | `cycles` | registrations, completions and wakes a second through one shard, from one and from two threads; words stored by the caller, wakers that do nothing |
//! | `flights` | the same with 1, 64, 1,024 and 65,536 other flights armed: what registering costs, what a look at all words takes |
//! | `burn` | CPU of the watcher's threads: nothing in flight; 64 flights of 20 ms at once, spread out, and spread out with 500 us of lateness allowed |
//!
//! A simulated device plays the device of `burn` in real time, with a thread of its own that is not counted.

use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant as Wall};

use serde::Serialize;
use wakeline::sim::{RealTime, SimConfig, SimDevice};
use wakeline::{Clock, CompletionLine, Error, Instant, MemoryDescriptor, Nanos, Seq, Slot, Timer, WaitPlan};
use wakeline_benches::{Environment, JsonLines};
use wakeline_std::{DeviceThread, ParkPolicy, Points, StdClock, Watcher, WatcherConfig, WatcherHandle};

type Line = Arc<CompletionLine>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("watch: {message}");
            ExitCode::from(2)
        }
    }
}

/// One figure.
#[derive(Debug, Serialize)]
struct Figure {
    bench: &'static str,
    suite: &'static str,
    case: String,
    what: &'static str,
    value: f64,
    unit: &'static str,
    environment: Environment,
}

struct Output {
    json: Option<JsonLines<std::fs::File>>,
    environment: Environment,
}

impl Output {
    fn figure(
        &mut self,
        suite: &'static str,
        case: impl Into<String>,
        what: &'static str,
        value: f64,
        unit: &'static str,
    ) -> Result<(), String> {
        let (case, environment) = (case.into(), self.environment.clone());
        println!("{suite:8} {case:32} {what:28} {value:>14.3} {unit}");
        let figure = Figure { bench: "watch", suite, case, what, value, unit, environment };
        match &mut self.json {
            Some(json) => json.write(&figure).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }
}

const SUITES: [&str; 3] = ["cycles", "flights", "burn"];

fn run() -> Result<(), String> {
    let (mut seconds, mut suites, mut json) = (3_u64, Vec::new(), None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--seconds" => seconds = value()?.parse().map_err(|error| format!("--seconds: {error}"))?,
            "--suite" => suites.push(value()?),
            "--json" => {
                let path = value()?;
                let file = std::fs::File::create(&path).map_err(|error| format!("{path}: {error}"))?;
                json = Some(JsonLines::new(file));
            }
            _ => return Err(format!("unknown argument `{arg}`: --seconds S, --suite NAME, --json FILE")),
        }
    }
    if let Some(unknown) = suites.iter().find(|suite| !SUITES.contains(&suite.as_str())) {
        return Err(format!("no suite `{unknown}`: there are {}", SUITES.join(", ")));
    }
    let wanted = |suite: &str| suites.is_empty() || suites.iter().any(|name| name == suite);
    let mut output = Output { json, environment: Environment::of_this_thread(0) };
    let length = Duration::from_secs(seconds);
    if wanted("cycles") {
        cycles(&mut output, length).map_err(|error| error.clone())?;
    }
    if wanted("flights") {
        flights(&mut output, length)?;
    }
    if wanted("burn") {
        burn(&mut output, length)?;
    }
    Ok(())
}

/// How many words a thread registers before it stores them.
const BATCH: usize = 64;

/// Registers, stores and awaits words in batches until told to stop; counts them, and the time that registering took.
fn register(handle: &WatcherHandle, stop: &AtomicBool, registering: &AtomicU64) -> u64 {
    let lines: Vec<Line> = (0..BATCH / 8).map(|_| Arc::new(CompletionLine::new())).collect();
    let (mut seq, mut done, mut waits) = (Seq::ZERO, 0, Vec::with_capacity(BATCH));
    let mut context = Context::from_waker(Waker::noop());
    while !stop.load(Ordering::Relaxed) {
        seq = seq.next();
        let start = Wall::now();
        waits.extend((0..BATCH).map(|n| {
            let word = MemoryDescriptor::new(Arc::clone(&lines[n / 8]), Slot::ALL[n % 8], seq);
            let mut wait = handle.word(word, Instant::MAX);
            let _ = Pin::new(&mut wait).poll(&mut context);
            wait
        }));
        let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        registering.fetch_add(took, Ordering::Relaxed);
        for line in &lines {
            Slot::ALL.iter().for_each(|slot| line.store(*slot, seq));
        }
        // In order, so that what is polled again and again is one of them only.
        for mut wait in waits.drain(..) {
            while Pin::new(&mut wait).poll(&mut context).is_pending() {
                core::hint::spin_loop();
            }
        }
        done += BATCH as u64;
    }
    done
}

fn watcher() -> Result<Watcher, String> {
    Watcher::with(WatcherConfig::default()).map_err(|error| error.to_string())
}

/// Cycles a second of so many threads, and how long registering one took, in nanoseconds.
fn rate(watcher: &Watcher, threads: usize, length: Duration) -> (f64, f64) {
    let (stop, registering) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let start = Wall::now();
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (handle, stop, registering) = (watcher.handle(), Arc::clone(&stop), Arc::clone(&registering));
            std::thread::spawn(move || register(&handle, &stop, &registering))
        })
        .collect();
    std::thread::sleep(length);
    stop.store(true, Ordering::Relaxed);
    let done: u64 = workers.into_iter().map(|worker| worker.join().unwrap_or(0)).sum();
    let each = registering.load(Ordering::Relaxed) as f64 / done.max(1) as f64;
    (done as f64 / start.elapsed().as_secs_f64(), each)
}

fn cycles(output: &mut Output, length: Duration) -> Result<(), String> {
    for threads in [1, 2] {
        let watcher = watcher()?;
        let (rate, each) = rate(&watcher, threads, length);
        let case = format!("{threads} thread(s)");
        output.figure("cycles", &case, "register-complete-wake", rate / 1e6, "million/s")?;
        output.figure("cycles", &case, "a registration", each, "ns")?;
        close(watcher)?;
    }
    Ok(())
}

fn close(watcher: Watcher) -> Result<(), String> {
    watcher.close(Watcher::CLOSE).map_err(|error| error.to_string())
}

fn flights(output: &mut Output, length: Duration) -> Result<(), String> {
    for count in [1_usize, 64, 1_024, 65_536] {
        let watcher = watcher()?;
        let handle = watcher.handle();
        let lines: Vec<Line> = (0..count.div_ceil(8)).map(|_| Arc::new(CompletionLine::new())).collect();
        let mut context = Context::from_waker(Waker::noop());
        let mut waits = Vec::new();
        for n in 0..count {
            let word = MemoryDescriptor::new(Arc::clone(&lines[n / 8]), Slot::ALL[n % 8], Seq::new(1));
            let mut wait = handle.word(word, Instant::MAX);
            let _ = Pin::new(&mut wait).poll(&mut context);
            waits.push(wait);
        }
        let (rate, each) = rate(&watcher, 1, length);
        let case = format!("{count} armed, 1 thread");
        output.figure("flights", &case, "register-complete-wake", rate / 1e6, "million/s")?;
        output.figure("flights", &case, "a registration", each, "ns")?;
        output.figure("flights", &case, "a word stored to its task ready", one_wake(&handle), "ns p50")?;
        drop(waits);
        close(watcher)?;
    }
    Ok(())
}

/// From the store of a word to the outcome of its wait, which is polled all the time: the watcher's look, median.
fn one_wake(handle: &WatcherHandle) -> f64 {
    let line: Line = Arc::new(CompletionLine::new());
    let mut context = Context::from_waker(Waker::noop());
    let (mut seq, mut took) = (Seq::ZERO, Vec::new());
    for _ in 0..2_000 {
        seq = seq.next();
        let word = MemoryDescriptor::new(Arc::clone(&line), Slot::ALL[0], seq);
        let mut wait = handle.word(word, Instant::MAX);
        let _ = Pin::new(&mut wait).poll(&mut context);
        // The registration has been taken in by then.
        let settle = Wall::now();
        while settle.elapsed() < Duration::from_micros(20) {
            core::hint::spin_loop();
        }
        let start = Wall::now();
        line.store(Slot::ALL[0], seq);
        while Pin::new(&mut wait).poll(&mut context).is_pending() {
            core::hint::spin_loop();
        }
        took.push(start.elapsed().as_nanos());
    }
    took.sort_unstable();
    took[took.len() / 2] as f64
}

/// CPU time in nanoseconds and voluntary switches of the watcher's threads.
fn threads() -> (u64, u64) {
    let (mut cpu, mut switches) = (0, 0);
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        if !WATCHER_THREADS.iter().any(|name| read("comm").starts_with(name)) {
            continue;
        }
        let first = |text: &str| text.split_whitespace().next().and_then(|text| text.parse().ok());
        cpu += first(&read("schedstat")).unwrap_or(0);
        let status = read("status");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        switches += line.and_then(first).unwrap_or(0);
    }
    (cpu, switches)
}

/// The threads of a watcher. (Linux cuts names after 15 characters.)
const WATCHER_THREADS: [&str; 3] = ["wakeline-watch", "wakeline-overse", "wakeline-help"];

const FLIGHTS: u32 = 64;
const FLIGHT: Nanos = Nanos::from_millis(20);

fn burn(output: &mut Output, length: Duration) -> Result<(), String> {
    let length = length.max(Duration::from_secs(2));
    let idle = watcher()?;
    std::thread::sleep(Duration::from_millis(300));
    let before = threads();
    std::thread::sleep(length);
    let after = threads();
    output.figure("burn", "nothing in flight", "wake-ups", (after.1 - before.1) as f64, "")?;
    output.figure("burn", "nothing in flight", "CPU", share(after.0 - before.0, length), "% of a core")?;
    close(idle)?;
    let text = |margin| {
        format!(
            "flag:park_us=50,backstop_us=20000+predict:margin_us={margin},min_sleep_us=100,max_sleep_us=30000,window=8"
        )
    };
    let naps = |nap_us| ParkPolicy::new(0, nap_us).map_err(|error| error.to_string());
    let spins = ParkPolicy::new(300, 50).map_err(|error| error.to_string())?;
    for (case, stagger, late, park, plan) in [
        ("64 x 20 ms at once, spins", false, 0, spins, text(150)),
        ("the same, trusted", false, 0, spins, format!("{}+trust", text(150))),
        ("64 x 20 ms at once, naps", false, 0, naps(200)?, text(200)),
        ("64 x 20 ms spread, spins", true, 0, spins, text(60)),
        ("64 x 20 ms spread, naps", true, 0, naps(150)?, text(150)),
        ("the same, trusted", true, 0, naps(150)?, format!("{}+trust", text(150))),
        ("64 x 20 ms spread, late_us=500", true, 500, spins, text(60)),
        ("the same, trusted", true, 500, spins, format!("{}+trust", text(60))),
    ] {
        burn_case(output, length, case, stagger, late, park, &plan)
            .map_err(|error| format!("{plan}: {error}"))?;
    }
    Ok(())
}

fn share(cpu_ns: u64, length: Duration) -> f64 {
    100.0 * cpu_ns as f64 / length.as_nanos() as f64
}

fn burn_case(
    output: &mut Output,
    length: Duration,
    case: &str,
    stagger: bool,
    late: u64,
    park: ParkPolicy,
    plan: &str,
) -> Result<(), String> {
    let plan: WaitPlan = plan.parse().map_err(|error: Error| error.to_string())?;
    let failed = |error: Error| error.to_string();
    let clock = StdClock::new();
    let sleep = |length: Nanos| std::thread::sleep(Duration::from_nanos(length.as_nanos()));
    let device =
        SimDevice::new(RealTime::new(clock, sleep as fn(Nanos)), SimConfig::default()).map_err(failed)?;
    let thread = DeviceThread::spawn(clock, device.clone()).map_err(failed)?;
    let watcher = Watcher::with(WatcherConfig::default().early_wake(false).park(park)).map_err(failed)?;
    let (stop, late_ns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let points = Points::new(FLIGHTS as usize).map_err(failed)?;
    let start = clock.now() + Nanos::from_millis(50);
    let worker = {
        let (handle, stop, device, late_ns, points) =
            (watcher.handle(), Arc::clone(&stop), device.clone(), Arc::clone(&late_ns), points.clone());
        // One thread runs all tasks.
        std::thread::spawn(move || -> Result<(), Error> {
            let idle = wakeline_std::StdIdle::new(clock);
            let mut loops: Vec<Pin<Box<dyn Future<Output = Result<(), Error>>>>> = Vec::new();
            if stagger {
                for n in 0..FLIGHTS {
                    let (stream, point) = (device.stream()?, points.point(&format!("{n}"))?);
                    let begin =
                        start + Nanos::from_nanos(FLIGHT.as_nanos() * u64::from(n) / u64::from(FLIGHTS));
                    let (handle, stop, late_ns) = (handle.clone(), Arc::clone(&stop), Arc::clone(&late_ns));
                    // Each begins at its own time, and from then on as soon as the one before has ended.
                    loops.push(Box::pin(async move {
                        handle.sleep_until(begin).await;
                        while !stop.load(Ordering::Relaxed) {
                            let end = clock.now() + FLIGHT;
                            stream.launch_until(end)?;
                            handle.wait(stream.point(), &plan, &point).late_us(late).await?;
                            late_ns.fetch_add(clock.now().since(end).as_nanos(), Ordering::Relaxed);
                        }
                        Ok(())
                    }));
                }
            } else {
                let streams = (0..FLIGHTS).map(|_| device.stream()).collect::<Result<Vec<_>, _>>()?;
                let named =
                    (0..FLIGHTS).map(|n| points.point(&format!("{n}"))).collect::<Result<Vec<_>, _>>()?;
                // All end at the same time, and begin when all have ended.
                loops.push(Box::pin(async move {
                    while !stop.load(Ordering::Relaxed) {
                        let end = clock.now() + FLIGHT;
                        let mut waits: Vec<Option<_>> = Vec::new();
                        for (stream, point) in streams.iter().zip(&named) {
                            stream.launch_until(end)?;
                            waits.push(Some(handle.wait(stream.point(), &plan, point)));
                        }
                        core::future::poll_fn(|context| {
                            for wait in &mut waits {
                                let ended = wait.as_mut().map(|wait| Pin::new(wait).poll(context));
                                match ended {
                                    Some(Poll::Ready(Err(error))) => return Poll::Ready(Err(error)),
                                    Some(Poll::Ready(Ok(_))) => {
                                        let late = clock.now().since(end).as_nanos();
                                        late_ns.fetch_add(late, Ordering::Relaxed);
                                        *wait = None;
                                    }
                                    Some(Poll::Pending) | None => {}
                                }
                            }
                            if waits.iter().all(Option::is_none) {
                                Poll::Ready(Ok(()))
                            } else {
                                Poll::Pending
                            }
                        })
                        .await?;
                    }
                    Ok(())
                }));
            }
            let all = core::future::poll_fn(|context| {
                let mut ended = Ok(());
                loops.retain_mut(|one| match one.as_mut().poll(context) {
                    Poll::Ready(result) => {
                        if result.is_err() {
                            ended = result;
                        }
                        false
                    }
                    Poll::Pending => true,
                });
                if loops.is_empty() || ended.is_err() { Poll::Ready(ended.clone()) } else { Poll::Pending }
            });
            idle.block_on(all)
        })
    };
    std::thread::sleep(Duration::from_millis(600));
    let (before, stats) = (threads(), watcher.stats());
    let wall = Wall::now();
    std::thread::sleep(length);
    let after = threads();
    let (took, stats_after) = (wall.elapsed(), watcher.stats());
    stop.store(true, Ordering::Relaxed);
    worker.join().map_err(|_| "the tasks' thread panicked".to_owned())?.map_err(failed)?;
    let cpu = after.0 - before.0;
    let per_s = |after: u64, before: u64| (after - before) as f64 / took.as_secs_f64();
    output.figure("burn", case, "CPU of the watcher", share(cpu, took), "% of a core")?;
    output.figure("burn", case, "wake-ups", per_s(after.1, before.1), "/s")?;
    output.figure("burn", case, "flights", per_s(stats_after.ends, stats.ends), "/s")?;
    output.figure("burn", case, "queries", per_s(stats_after.queries, stats.queries), "/s")?;
    let (waits, overslept) = points
        .snapshot()
        .points
        .iter()
        .fold((0, 0), |(waits, late), point| (waits + point.counts.waits(), late + point.counts.late));
    let waits = waits.max(1) as f64;
    output.figure("burn", case, "waits that slept too long", 100.0 * overslept as f64 / waits, "%")?;
    let late = late_ns.load(Ordering::Relaxed) as f64 / waits / 1e3;
    output.figure("burn", case, "told late by, mean", late, "us")?;
    close(watcher)?;
    thread.stop().map_err(failed)?;
    Ok(())
}

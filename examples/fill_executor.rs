//! One thread awaits three streams of GPU work and tokenises texts meanwhile: no GPU needed.
//!
//! ```text
//! cargo run --release --example fill_executor
//! ```
//!
//! Each stream's task launches a step, awaits it as if it were I/O, and launches the next. Texts come in every few milliseconds
//! and are tokenised a line at a time. What is ready runs first, and between any two lines the completions are looked at; only
//! where nothing is ready the thread sleeps, until shortly before the end that is predicted for a step. In the end all of its
//! time is accounted for.

#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use wakeline::sim::{RealTime, SimConfig, SimDevice, SimStream};
use wakeline::{Clock, Error, Executor, HostLine, Instant, Nanos, PointTable, Reactor};
use wakeline::{RunStats, Timer, Wait, WaitPlan, drive_at};
use wakeline_examples::tokens::{TEXT, Tokenizer};
use wakeline_measure::{Apart, Tail};
use wakeline_std::{DeviceThread, ParkPolicy, StdClock, StdIdle, StdPark, TimerSlack};

/// How long it goes on.
const RUN: Nanos = Nanos::from_millis(2_000);
/// The streams, and about how long a step of each takes: microseconds.
const STREAMS: [(&str, u64); 3] = [("decode", 5_000), ("prefill", 2_300), ("sampling", 900)];
/// How often texts come in, and how many at a time.
const TEXTS_EVERY: Nanos = Nanos::from_millis(3);
const TEXTS: usize = 32;
/// Sleep until 150 us before the predicted end, then watch the completion word.
const PLAN: &str =
    "flag:park_us=50,backstop_us=1000+predict:margin_us=150,min_sleep_us=200,max_sleep_us=20000,window=8";

type Stream = SimStream<RealTime<StdClock, fn(Nanos)>>;

/// What a task does.
enum Role {
    /// Launches and awaits step after step of this stream.
    Stream(usize, Stream),
    /// Tokenises texts as they come in.
    Tokenizer,
}

/// What the tasks share. All run on one thread, so cells do.
struct Shared {
    reactor: Reactor<StdClock, Arc<HostLine>>,
    plan: WaitPlan,
    end: Instant,
    /// How long the steps of each stream took lately.
    durations: RefCell<PointTable<usize>>,
    /// By how much the end of each stream's steps was seen late.
    late: [RefCell<Tail>; STREAMS.len()],
    tokens: Cell<u64>,
    worked: Cell<Nanos>,
}

impl Shared {
    async fn task(&self, role: Role) -> Result<(), Error> {
        match role {
            Role::Stream(number, stream) => self.stream(number, &stream).await,
            Role::Tokenizer => self.tokenize().await,
        }
    }

    async fn stream(&self, number: usize, stream: &Stream) -> Result<(), Error> {
        let mut steps = 0;
        while self.reactor.now() < self.end {
            // Real steps vary; these by up to 140 us.
            stream.launch(Nanos::from_micros(STREAMS[number].1 + steps % 8 * 20))?;
            let mut point = stream.point();
            let witness = point.witness();
            drive_at(&self.durations, number, Wait::new(&self.plan), &mut point, &self.reactor, None).await?;
            let seen = self.reactor.now();
            if let Some(ended) = witness.truth().ended_at {
                self.late[number].borrow_mut().record(seen.since(ended).as_nanos());
            }
            steps += 1;
        }
        Ok(())
    }

    async fn tokenize(&self) -> Result<(), Error> {
        let tokenizer = Tokenizer::of(TEXT);
        let mut comes_in = self.reactor.now();
        while self.reactor.now() < self.end {
            self.reactor.sleep_until(comes_in).await;
            comes_in = comes_in + TEXTS_EVERY;
            for line in std::iter::repeat_n(TEXT, TEXTS).flat_map(str::lines) {
                let start = self.reactor.now();
                self.tokens.set(self.tokens.get() + tokenizer.count(line));
                self.worked.set(self.worked.get() + self.reactor.now().since(start));
                self.reactor.yield_now().await;
            }
        }
        Ok(())
    }
}

fn run() -> Result<String, Error> {
    // Timers of this thread end as exactly as the machine can, where it lets us say so.
    let _slack = TimerSlack::set(TimerSlack::LEAST);
    let clock = StdClock::new();
    let sleep = |length: Nanos| std::thread::sleep(Duration::from_nanos(length.as_nanos()));
    let device = SimDevice::new(RealTime::new(clock, sleep as fn(Nanos)), SimConfig::default())?;
    let streams = STREAMS.map(|_| device.stream());
    // The device is simulated by a thread, which shall not take the processor of this one.
    let (device, _apart) = Apart::from(|| DeviceThread::spawn(clock, device));

    let start = clock.now();
    let shared = Shared {
        reactor: Reactor::new(clock),
        plan: PLAN.parse()?,
        end: start + RUN,
        durations: RefCell::new(PointTable::new(STREAMS.len())?),
        late: STREAMS.map(|_| RefCell::default()),
        tokens: Cell::default(),
        worked: Cell::new(Nanos::ZERO),
    };
    let idle = StdIdle::new(clock);
    let park = StdPark::new(&idle, ParkPolicy::default());
    let mut executor = Executor::new(&shared.reactor, &idle, &park, STREAMS.len() + 1)?;
    for (number, stream) in streams.into_iter().enumerate() {
        executor.spawn(shared.task(Role::Stream(number, stream?)))?;
    }
    executor.spawn(shared.task(Role::Tokenizer))?;
    let mut failed = Ok(());
    let stats = executor.run(|_, end| failed = failed.clone().and(end))?;
    failed?;
    let took = clock.now().since(start);
    drop(executor);
    device?.stop()?;
    Ok(report(&shared, &stats, took))
}

#[allow(clippy::cast_precision_loss, reason = "shares of two seconds, for people to read")]
fn report(shared: &Shared, stats: &RunStats, took: Nanos) -> String {
    let share = |ns: u64| format!("{:5.1} %", 100.0 * ns as f64 / took.as_nanos().max(1) as f64);
    let us = |ns: u64| format!("{:8.1}", ns as f64 / 1e3);
    let every = TEXTS_EVERY.as_micros() / 1_000;
    let mut lines =
        vec![format!("One thread: {} streams, and {TEXTS} texts every {every} ms\n", STREAMS.len())];
    lines.push("stream     steps    seen late by, us: p50      p99      max".to_owned());
    for ((name, _), late) in STREAMS.iter().zip(&shared.late) {
        let late = late.borrow().quantiles();
        let [p50, p99, max] = [late.p50_ns, late.p99_ns, late.max_ns].map(us);
        lines.push(format!("{name:9}{:7}             {p50} {p99} {max}", late.count));
    }
    let worked = shared.worked.get().as_nanos();
    let polled = took.as_nanos().saturating_sub(worked + stats.idle_ns);
    let (tokens, polls) = (shared.tokens.get(), stats.polls);
    lines.push(format!("\nthe thread's {} ms", took.as_micros() / 1_000));
    lines.push(format!("  work     {}   {tokens} tokens counted while the device ran", share(worked)));
    lines.push(format!("  asleep   {}   until shortly before a predicted end", share(stats.slept_ns)));
    lines.push(format!("  parked   {}   on completion words: a spin, then naps", share(stats.parked_ns)));
    lines.push(format!("  polling  {}   {polls} polls, launches and looks at words included", share(polled)));
    lines.join("\n") + "\n"
}

fn main() -> ExitCode {
    match run() {
        Ok(text) => {
            // Whoever closes the output has seen enough.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "fill_executor: {error}");
            ExitCode::FAILURE
        }
    }
}

//! What the server counts, as text for Prometheus and as JSON for its page.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use serde::Serialize;
use wakeline::{Error, Nanos};
use wakeline_std::Metric;
use wakeline_std::usage::process_cpu_time;

use crate::cpu;
use crate::device::Watch;
use crate::error::Refusal;
use crate::histogram::{Histogram, Quantiles, Recent};

/// Of times, microseconds.
const TIMES_US: &[u64] = &[
    250, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000, 8_000, 10_000, 15_000, 20_000, 25_000, 30_000,
    50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
];
/// Of requests in a batch.
const ROWS: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024];
const US_PER_S: f64 = 1e6;

/// How requests end: with a result, or as the code of a [`Refusal`].
const OUTCOMES: [&str; 7] = ["ok", "bad_body", "slow_body", "full", "late", "device", "lost"];

/// All that is counted.
#[derive(Debug)]
pub struct Metrics {
    started: Instant,
    outcomes: [AtomicU64; OUTCOMES.len()],
    latency: Histogram,
    step: Histogram,
    rows: Histogram,
    recent_latency: Recent,
    recent_step: Recent,
    in_flight: AtomicU32,
    fault: OnceLock<Error>,
}

/// What does not change, for people.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// What computes.
    pub device: String,
    /// How the end of a batch is waited for.
    pub plan: String,
    /// See the arguments of the same names.
    pub batch_max: u32,
    /// See the arguments of the same names.
    pub window_us: u64,
    /// See the arguments of the same names.
    pub queue_max: u32,
    /// See the arguments of the same names.
    pub in_flight_max: u32,
}

/// What the page shows: counts since the start, and the quantiles of the last seconds.
#[derive(Debug, Serialize)]
pub(crate) struct Stats<'a> {
    about: &'a About,
    fault: Option<String>,
    uptime_s: f64,
    answered: u64,
    refused: u64,
    batches: u64,
    rows: u64,
    queued: usize,
    in_flight: u32,
    latency_us: Quantiles,
    step_us: Quantiles,
    /// Seconds.
    cpu_process: Option<f64>,
    cpu_watcher: Option<f64>,
    cpu_tasks: f64,
}

impl Metrics {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            outcomes: [const { AtomicU64::new(0) }; OUTCOMES.len()],
            latency: Histogram::new(TIMES_US),
            step: Histogram::new(TIMES_US),
            rows: Histogram::new(ROWS),
            recent_latency: Recent::default(),
            recent_step: Recent::default(),
            in_flight: AtomicU32::new(0),
            fault: OnceLock::new(),
        }
    }

    /// A request has ended that arrived then.
    pub fn ended<T>(&self, arrived: Instant, outcome: &Result<T, Refusal>) {
        let name = outcome.as_ref().map_or_else(|refusal| refusal.code().1, |_| "ok");
        if let Some(place) = OUTCOMES.iter().position(|outcome| *outcome == name) {
            self.outcomes[place].fetch_add(1, Ordering::Relaxed);
        }
        if outcome.is_ok() {
            let (now, us) = since(arrived);
            self.latency.observe(us);
            self.recent_latency.observe(now, us);
        }
    }

    /// A batch of so many requests goes to the device.
    pub fn batch_begins(&self, rows: u32) {
        self.rows.observe(rows.into());
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// One that began then is done. The first failure is remembered: what failed once is not trusted again.
    pub fn batch_ends<T>(&self, begun: Instant, outcome: &Result<T, Error>) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        match outcome {
            Ok(_) => {
                let (now, us) = since(begun);
                self.step.observe(us);
                self.recent_step.observe(now, us);
            }
            Err(error) => _ = self.fault.set(error.clone()),
        }
    }

    /// Why the server is not well.
    pub fn fault(&self) -> Option<&Error> {
        self.fault.get()
    }

    /// As JSON.
    pub(crate) fn stats<'a>(&self, about: &'a About, watch: &Watch, queued: usize) -> Stats<'a> {
        let (now, count) = (Instant::now(), |outcome: &AtomicU64| outcome.load(Ordering::Relaxed));
        Stats {
            about,
            fault: self.fault().map(Error::to_string),
            uptime_s: self.started.elapsed().as_secs_f64(),
            answered: count(&self.outcomes[0]),
            refused: self.outcomes[1..].iter().map(count).sum(),
            batches: self.rows.count(),
            rows: self.rows.sum(),
            queued,
            in_flight: self.in_flight.load(Ordering::Relaxed),
            latency_us: self.recent_latency.quantiles(now),
            step_us: self.recent_step.quantiles(now),
            cpu_process: process_cpu_time().map(seconds),
            cpu_watcher: cpu::of_watcher().map(seconds),
            cpu_tasks: seconds(watch.meter.waited()),
        }
    }

    /// As Prometheus reads it: the server's own, and what wakeline counts.
    pub(crate) fn prometheus(&self, about: &About, watch: &Watch, queued: usize) -> String {
        let mut text = String::new();
        one(&mut text, "http_serve_info", "gauge", "What computes, and how it is waited for.", "");
        let (device, plan) = (escaped(&about.device), escaped(&about.plan));
        let _ = writeln!(text, "http_serve_info{{device=\"{device}\",plan=\"{plan}\"}} 1");
        one(&mut text, "http_serve_requests_total", "counter", "Requests that ended, by how.", "");
        for (name, count) in OUTCOMES.iter().zip(&self.outcomes) {
            let count = count.load(Ordering::Relaxed);
            let _ = writeln!(text, "http_serve_requests_total{{outcome=\"{name}\"}} {count}");
        }
        let latency = "From the arrival of a request to its result.";
        self.latency.write(&mut text, "http_serve_latency_seconds", latency, US_PER_S);
        let step = "From the submission of a batch to its results on the host.";
        self.step.write(&mut text, "http_serve_step_seconds", step, US_PER_S);
        self.rows.write(&mut text, "http_serve_batch_rows", "Requests in a batch.", 1.0);
        one(&mut text, "http_serve_queued", "gauge", "Requests that wait for a batch.", &queued.to_string());
        let in_flight = self.in_flight.load(Ordering::Relaxed).to_string();
        one(&mut text, "http_serve_in_flight", "gauge", "Batches in flight.", &in_flight);
        let healthy = u8::from(self.fault().is_none()).to_string();
        one(&mut text, "http_serve_healthy", "gauge", "Whether no batch has failed.", &healthy);
        let waiting = "http_serve_waiting_cpu_seconds_total";
        one(&mut text, waiting, "counter", "CPU time spent on knowing when batches are done, by whom.", "");
        let by = [("watcher", cpu::of_watcher()), ("tasks", Some(watch.meter.waited()))];
        for (by, spent) in by.into_iter().filter_map(|(by, spent)| Some((by, spent?))) {
            let _ = writeln!(text, "{waiting}{{by=\"{by}\"}} {}", seconds(spent));
        }
        if let Some(spent) = process_cpu_time() {
            let help = "CPU time of all threads, user and system.";
            one(&mut text, "process_cpu_seconds_total", "counter", help, &seconds(spent).to_string());
        }
        let mut waits = watch.points.snapshot();
        let counters = watch.tokio.handle().stats().list().into_iter();
        waits.metrics.extend(counters.map(|(name, help, value)| Metric::counter(name, help, value)));
        text + &waits.prometheus()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// The head of a family, and its value where it has one alone.
fn one(text: &mut String, name: &str, kind: &str, help: &str, value: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    if !value.is_empty() {
        let _ = writeln!(text, "{name} {value}");
    }
}

/// As the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

/// Now, and how many microseconds it is after that.
fn since(begun: Instant) -> (Instant, u64) {
    let now = Instant::now();
    (now, u64::try_from((now - begun).as_micros()).unwrap_or(u64::MAX))
}

fn seconds(time: Nanos) -> f64 {
    std::time::Duration::from_nanos(time.as_nanos()).as_secs_f64()
}

//! Runs that nobody made: several suites, many arms, long names, gaps. Numbers are drawn from a seed and look like those
//! of a GPU machine.

use std::collections::BTreeMap;

use wakeline_benches::ab::report::RunFile;
use wakeline_benches::ab::schema::{
    Better, Cell, Check, End, Line, Metric, Order, Run, Span, Timeline, VERSION,
};
use wakeline_benches::{Environment, Interval, Quantiles};

pub(crate) const PREDICT: &str = "flag:park_us=50,backstop_us=1000+predict:margin_us=50,min_sleep_us=100,max_sleep_us=20000,window=16+trust";
pub(crate) const SPIN: &str = "spin on the word";

/// Name, family, added latency in us, CPU as a share of the wait.
const ARMS: [(&str, &str, f64, f64); 10] = [
    (SPIN, "raw", 2.3, 1.0),
    ("spin on the stream's status", "raw", 3.0, 1.0),
    ("cuStreamSynchronize, spin", "raw", 3.2, 1.0),
    ("cuStreamSynchronize, blocking sync", "raw", 85.0, 0.02),
    ("block", "wakeline", 29.0, 0.08),
    ("poll", "wakeline", 3.4, 0.99),
    ("flag:park_us=50,backstop_us=1000", "wakeline", 2.6, 0.97),
    (PREDICT, "wakeline", 2.5, 0.06),
    ("await, current_thread", "cuda-async 0.5.0", 57.0, 1.04),
    ("event + synchronize", "cudarc 0.19.1", 34.0, 0.05),
];

/// Draws from a seed.
struct Draw(u64);

impl Draw {
    /// From 0 to 1.
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 40).unwrap()) / f64::from(1 << 24)
    }

    /// About 1, with a long tail to the right.
    fn late(&mut self) -> f64 {
        let normal: f64 = (0..6).map(|_| self.uniform()).sum::<f64>() - 3.0;
        let tail = if self.uniform() < 0.02 { 3.0 + 6.0 * self.uniform() } else { 1.0 };
        (normal * 0.12).exp() * tail
    }
}

pub(crate) fn environment() -> Environment {
    Environment {
        cpu: "INTEL(R) XEON(R) PLATINUM 8581C CPU @ 2.10GHz".to_owned(),
        cpus: 16,
        os: "linux".to_owned(),
        kernel: "6.18.0".to_owned(),
        arch: "x86_64".to_owned(),
        release: true,
        timer_slack_ns: Some(50_000),
        began_unix_s: 1_795_000_000,
        ..Environment::of_this_thread(7)
    }
}

fn check(name: &str, good: bool, found: &str) -> Check {
    Check { name: name.to_owned(), good, found: found.to_owned() }
}

/// A run without cells.
pub(crate) fn empty(name: &str) -> RunFile {
    let run = Run {
        schema: VERSION,
        command: ["bench", "--device", "cuda", "--out", "results"].map(str::to_owned).to_vec(),
        quick: false,
        device: "cuda".to_owned(),
        suites: ["wake", "burn", "serve", "fan-in", "graphs"].map(str::to_owned).to_vec(),
        environment: environment(),
        order: Order::Balanced,
        checks: vec![
            check("release build", true, "optimised, without debug assertions"),
            check("quiet machine", true, "others took 0.4 % of a core"),
            check("clock source", true, "tsc"),
        ],
    };
    let checks = vec![
        check("clocks steady", true, "within 0.3 % from start to end"),
        check("quiet to the end", false, "others took 23 % of a core for 40 s while `serve` ran"),
    ];
    let end = Some(End { took_s: 212.4, cells: None, timelines: None, checks });
    RunFile { name: name.to_owned(), run, cells: Vec::new(), timelines: Vec::new(), end, last_line: 2 }
}

/// A metric by rounds, with its ratio to those of the base arm.
pub(crate) fn metric(unit: &str, better: Better, rounds: &[f64], base: &[f64]) -> Metric {
    let ratios: Vec<f64> = rounds.iter().zip(base).map(|(value, base)| value / base).collect();
    Metric {
        unit: unit.to_owned(),
        better,
        value: Interval::of(rounds).unwrap(),
        ratio: Interval::of(&ratios),
        by_round: rounds.to_vec(),
    }
}

pub(crate) fn cell(suite: &str, case: &str, arm: &str, family: &str, rounds: usize) -> Cell {
    Cell {
        suite: suite.to_owned(),
        case: case.to_owned(),
        arm: arm.to_owned(),
        family: family.to_owned(),
        plan: None,
        base: SPIN.to_owned(),
        rounds,
        metrics: BTreeMap::new(),
        latency: None,
        cdf: Vec::new(),
        notes: Vec::new(),
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "small and positive"
)]
fn latencies(cell: &mut Cell, us: f64, draw: &mut Draw) {
    let mut times: Vec<u64> = (0..2_000).map(|_| (us * 1_000.0 * draw.late()) as u64).collect();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    cell.latency = Some(Quantiles {
        count: times.len() as u64,
        p50_ns: at(0.5),
        p90_ns: at(0.9),
        p99_ns: at(0.99),
        max_ns: at(1.0),
    });
    cell.cdf = (0..64).map(|index| f64::from(index) / 63.0).map(|share| (at(share), share)).collect();
}

/// A run with everything in it. `factor` slows down the predicting arm's CPU; `seed` draws the noise.
pub(crate) fn full(name: &str, seed: u64, factor: f64) -> RunFile {
    let mut file = empty(name);
    let mut draw = Draw(seed);
    let rounds = 7;
    for (case, us) in [("20 us", 20.0), ("200 us", 200.0), ("1 ms", 1_000.0), ("10 ms", 10_000.0)] {
        let drift: Vec<f64> = (0..rounds).map(|_| 1.0 + 0.05 * draw.uniform()).collect();
        let mut bases = BTreeMap::new();
        for (arm, family, late_us, share) in ARMS {
            let mut cell = cell("wake", case, arm, family, rounds);
            cell.plan = (family == "wakeline")
                .then(|| arm.replace("margin_us=50", &format!("margin_us={}", 40.0 + us / 1_000.0)));
            let slower = if arm == PREDICT { factor } else { 1.0 };
            let late_us = late_us * (1.0 + us / 9_000.0);
            latencies(&mut cell, late_us, &mut draw);
            for (metric_name, unit, better, mean) in [
                ("latency", "ns", Better::Less, late_us * 1e3),
                ("cpu", "ns", Better::Less, us * share * 1e3 * slower),
                ("energy", "J", Better::Less, us * 1e-6 * (90.0 + 12.0 * share)),
            ] {
                let values: Vec<f64> =
                    drift.iter().map(|drift| mean * drift * (1.0 + 0.02 * draw.uniform())).collect();
                let base = bases.entry(metric_name).or_insert_with(|| values.clone());
                // Energy cannot be read around a peer's own threads.
                if metric_name != "energy" || family != "cuda-async 0.5.0" {
                    cell.metrics.insert(metric_name.to_owned(), metric(unit, better, &values, base));
                }
            }
            if arm.starts_with("event") && case == "20 us" {
                cell.latency = None;
                cell.cdf.clear();
                cell.notes.push("the event's time could not be read: no latencies".to_owned());
            }
            file.cells.push(cell);
        }
    }
    serve(&mut file, &mut draw, rounds);
    gaps(&mut file);
    file.timelines = timelines();
    file
}

fn serve(file: &mut RunFile, draw: &mut Draw, rounds: usize) {
    for (case, rows) in [
        ("batch 4, closed loop", 4.0),
        ("batch 64, closed loop", 64.0),
        ("batches by Poisson arrivals of 120 a second, bands, CPU work beside it", 24.0),
    ] {
        let mut bases: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (arm, family, late_us, share) in ARMS.into_iter().filter(|arm| arm.1 != "cudarc 0.19.1") {
            let mut cell = cell("serve", case, arm, family, rounds);
            for (metric_name, unit, better, mean) in [
                ("throughput", "1/s", Better::More, rows * 1e6 / (5_300.0 + late_us)),
                ("cpu", "ns", Better::Less, 5.3e6 * share / rows),
                ("process_cpu", "ns", Better::Less, 5.3e6 * (share + 0.1) / rows),
            ] {
                let values: Vec<f64> = (0..rounds).map(|_| mean * (1.0 + 0.004 * draw.uniform())).collect();
                let base = bases.entry(metric_name).or_insert_with(|| values.clone());
                cell.metrics.insert(metric_name.to_owned(), metric(unit, better, &values, base));
            }
            file.cells.push(cell);
        }
    }
}

/// What real files have too: one round, one point, no rounds, nothing measured, zero, an interval beyond zero.
fn gaps(file: &mut RunFile) {
    let mut base = cell("burn", "nothing in flight", SPIN, "raw", 1);
    base.metrics.insert("cpu".into(), metric("ns", Better::Less, &[1e9], &[1e9]));
    base.cdf = vec![(2_300, 1.0)];
    let mut idle = cell("burn", "nothing in flight", "watcher, 1 thread", "wakeline", 1);
    idle.metrics.insert("cpu".into(), metric("ns", Better::Less, &[0.0], &[1e9]));
    idle.latency = Some(Quantiles { count: 1, p50_ns: 2_600, p90_ns: 2_600, p99_ns: 2_600, max_ns: 2_600 });
    let mut nothing = cell("burn", "nothing in flight", "none", "raw", 0);
    nothing.notes.push("not run: the driver has no such call".to_owned());
    file.cells.extend([base, idle, nothing]);
    let mut base = cell("burn", "64 flights of 20 ms", SPIN, "raw", 3);
    base.metrics.insert("cpu".into(), metric("ns", Better::Less, &[5.0, 6.0, 5.5], &[5.0, 6.0, 5.5]));
    let mut wide = cell("burn", "64 flights of 20 ms", "watcher, 4 threads", "wakeline", 3);
    wide.metrics.insert("cpu".into(), metric("ns", Better::Less, &[0.1, 3.0, 0.9], &[5.0, 6.0, 5.5]));
    let mut zero = cell("burn", "64 flights of 20 ms", "watcher, 1 thread", "wakeline", 3);
    zero.metrics.insert("latency".into(), metric("ns", Better::Less, &[4.0, 4.5, 4.2], &[5.0, 6.0, 5.5]));
    zero.metrics.insert("cpu".into(), metric("ns", Better::Less, &[0.0; 3], &[5.0, 6.0, 5.5]));
    file.cells.extend([base, wide, zero]);
    let mut base = cell("fan-in", "4,096 streams", SPIN, "raw", 2);
    base.metrics.insert("instructions".into(), metric("", Better::Less, &[4_100.0; 2], &[4_100.0; 2]));
    let mut scan = cell("fan-in", "4,096 streams", "watcher, 1 thread", "wakeline", 2);
    scan.metrics.insert("instructions".into(), metric("", Better::Less, &[512.0; 2], &[4_100.0; 2]));
    file.cells.extend([base, scan]);
}

fn timelines() -> Vec<Timeline> {
    let span = |what: &str, from_ns, to_ns| Span { what: what.to_owned(), from_ns, to_ns };
    let wait = |arm: &str, spans| Timeline {
        suite: "wake".to_owned(),
        case: "1 ms".to_owned(),
        arm: arm.to_owned(),
        spans,
    };
    vec![
        wait(
            PREDICT,
            vec![
                span("launch", 0, 6_100),
                span("sleep", 7_000, 952_000),
                span("other work while the wait sleeps, of the same thread", 20_000, 900_000),
                span("watch", 956_000, 1_002_400),
                span("stored", 1_000_100, 1_000_100),
                span("query", 1_002_400, 1_003_800),
                span("woken", 1_004_000, 1_004_000),
            ],
        ),
        wait(
            SPIN,
            vec![
                span("launch", 0, 6_100),
                span("watch", 6_400, 1_002_300),
                span("stored", 1_000_100, 1_000_100),
                span("woken", 1_002_300, 1_002_300),
            ],
        ),
        wait("poll", vec![span("query", 6_400, 6_400)]),
        wait("block", Vec::new()),
    ]
}

/// The file's text as it is written: its last line counts the others.
pub(crate) fn text(file: &RunFile) -> String {
    let first = Line::Run(file.run.clone());
    let cells = file.cells.iter().cloned().map(Line::Cell);
    let timelines = file.timelines.iter().cloned().map(Line::Timeline);
    let counts = (Some(file.cells.len()), Some(file.timelines.len()));
    let end = file.end.clone().map(|end| Line::End(End { cells: counts.0, timelines: counts.1, ..end }));
    let lines = std::iter::once(first).chain(cells).chain(timelines).chain(end);
    lines.map(|line| serde_json::to_string(&line).unwrap() + "\n").collect()
}

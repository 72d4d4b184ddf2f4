//! What the records say of a way of waiting for 5 ms.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::SPIN;
use crate::workspace::root;

/// How many of a record's runs are taken: the last ones, as the tables of `guide/costs.md` do.
const RUNS: usize = 2;

/// A record, and how its lines are read.
#[derive(Clone, Copy)]
pub(super) enum Record {
    /// The program `gpu`, its suite `wake`.
    GpuWake,
    /// The same, its suite `hosts`.
    GpuHosts,
    /// The A/B runs, their suite `wake`.
    Bench,
    /// The same, their suite `ops`.
    BenchOps,
    /// The program `ops`.
    Ops,
}

/// What is drawn of a way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    /// The CPU time while waiting, by that of the wait.
    pub(super) cpu: f64,
    /// By how much later than by a spin of the same run the end was known, the median.
    pub(super) added_us: f64,
}

impl Record {
    fn file(self) -> &'static str {
        match self {
            Self::GpuWake => "benches/results/gpu-wake-h200.jsonl",
            Self::GpuHosts => "benches/results/gpu-hosts-h200.jsonl",
            Self::Bench => "benches/results/bench-h200.jsonl",
            Self::BenchOps => "benches/results/ops-h200.jsonl",
            Self::Ops => "benches/results/ops-await-h200.jsonl",
        }
    }

    /// Whether a line is of work of 5 ms.
    fn is_case(self, line: &Value) -> bool {
        match self {
            Self::GpuWake => line["case"] == "wake 5000 us",
            Self::GpuHosts => line["case"] == "hosts 5000 us",
            Self::Bench => line["kind"] == "cell" && line["suite"] == "wake" && line["case"] == "5000 us",
            Self::BenchOps => line["kind"] == "cell" && line["suite"] == "ops" && line["case"] == "5000 us",
            Self::Ops => line["case"] == "await" && line["length_us"] == 5_000,
        }
    }

    /// The figure of this arm: the mean of the last runs.
    pub(super) fn figure(self, arm: &str) -> Result<Figure> {
        let file = self.file();
        let text = fs::read_to_string(root().join(file)).with_context(|| file.to_owned())?;
        let lines: Vec<Value> = text
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()
            .with_context(|| file.to_owned())?;
        let of = |arm: &str| -> Vec<&Value> {
            lines.iter().filter(|line| self.is_case(line) && line["arm"] == arm).collect()
        };
        let (spins, runs) = (of(SPIN), of(arm));
        ensure!(!runs.is_empty(), "{file} has no line of `{arm}` for 5 ms");
        ensure!(!spins.is_empty(), "{file} has no line of `{SPIN}` for 5 ms");
        let read = |line: &&Value| self.read(line, spins[spins.len() - 1]);
        let figures: Vec<Figure> = runs
            .iter()
            .rev()
            .take(RUNS)
            .map(read)
            .collect::<Option<_>>()
            .with_context(|| format!("{file}, `{arm}`: a field is missing"))?;
        let mean = |get: fn(&Figure) -> f64| figures.iter().map(get).sum::<f64>() / count(figures.len());
        Ok(Figure { cpu: mean(|figure| figure.cpu), added_us: mean(|figure| figure.added_us) })
    }

    fn read(self, line: &Value, spin: &Value) -> Option<Figure> {
        let us = |ns: f64| ns / 1_000.0;
        match self {
            Self::GpuWake | Self::GpuHosts => Some(Figure {
                cpu: line["cpu_ratio"]["mean"].as_f64()?,
                added_us: us(line["added"]["p50_ns"].as_f64()?),
            }),
            Self::Bench | Self::BenchOps => {
                let cpu = line["metrics"]["process_cpu"]["ratio"]["mean"].as_f64()?;
                let p50 = |line: &Value| line["latency"]["p50_ns"].as_f64();
                Some(Figure { cpu, added_us: us(p50(line)? - p50(spin)?) })
            }
            Self::Ops => Some(Figure {
                cpu: line["cpu_share"].as_f64()?,
                added_us: us(line["added_p50_ns"].as_f64()?),
            }),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a handful")]
fn count(of: usize) -> f64 {
    of as f64
}

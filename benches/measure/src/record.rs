//! Records: one line of JSON for each case and arm, and what it was measured on.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use std::io::{self, BufRead, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use wakeline_core::Nanos;
use wakeline_std::TimerSlack;

use crate::stats::Interval;
use crate::usage::Usage;

/// What one arm did in one case. `T` is what only this benchmark knows; its fields stand beside the others.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record<T> {
    /// Which benchmark it is.
    pub bench: String,
    /// Which of its inputs.
    pub case: String,
    /// Which way of doing it.
    pub arm: String,
    /// Which arm the ratio is to.
    pub base: String,
    /// How many rounds were run.
    pub rounds: usize,
    /// What this arm cost by what `base` did, paired by round (`decode_loop`: all rounds together, since their work differs); `None` where costs cannot be read.
    pub cost_ratio: Option<Interval>,
    /// What all rounds of this arm used.
    pub usage: Usage,
    /// What only this benchmark knows.
    #[serde(flatten)]
    pub detail: T,
    /// Where it ran.
    pub environment: Environment,
}

/// What a measurement was made on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Environment {
    /// The processor's name.
    pub cpu: String,
    /// How many logical processors this process may use.
    pub cpus: usize,
    /// The operating system.
    pub os: String,
    /// The kernel's release.
    pub kernel: String,
    /// The architecture that the program was built for.
    pub arch: String,
    /// Whether it was built with optimisation and without debug assertions.
    pub release: bool,
    /// The version of the benchmarks.
    pub version: String,
    /// The timer slack of the measuring thread, `None` where the system knows none.
    pub timer_slack_ns: Option<u64>,
    /// What random draws came from.
    pub seed: u64,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// What the system reads the time from, where it tells.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clock_source: Option<String>,
    /// The commit that the program was built from, where whoever built it says so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub commit: Option<String>,
    /// The GPU's driver and what it speaks, where one was used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub driver: Option<String>,
    /// The GPU's name, where one was used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gpu: Option<String>,
}

/// What stands where the system does not tell.
const UNKNOWN: &str = "unknown";

impl Environment {
    /// This machine, process and thread, now.
    pub fn of_this_thread(seed: u64) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            cpu: cpu().unwrap_or_else(|| UNKNOWN.to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, Into::into),
            os: std::env::consts::OS.to_owned(),
            kernel: kernel().unwrap_or_else(|| UNKNOWN.to_owned()),
            arch: std::env::consts::ARCH.to_owned(),
            release: !cfg!(debug_assertions),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            timer_slack_ns: TimerSlack::of_this_thread().map(Nanos::as_nanos),
            seed,
            began_unix_s: since_1970.map_or(0, |length| length.as_secs()),
            clock_source: clock_source(),
            commit: None,
            driver: None,
            gpu: None,
        }
    }
}

/// Linux names it in a file that other systems do not have.
fn cpu() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The clock that Linux measures time by, by the name it has in `/sys`; none where that cannot be read.
pub fn clock_source() -> Option<String> {
    let text =
        std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource").ok()?;
    Some(text.trim().to_owned())
}

fn kernel() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    Some(text.trim().to_owned())
}

/// Writes values as JSON lines: one object a line, each line whole once [`write`](Self::write) returns.
#[derive(Debug)]
pub struct JsonLines<W> {
    to: W,
}

impl<W: Write> JsonLines<W> {
    /// Writes to `to`, which need not be buffered.
    pub const fn new(to: W) -> Self {
        Self { to }
    }

    /// Writes one value as a line, in one write.
    ///
    /// # Errors
    ///
    /// The writer's; [`io::ErrorKind::InvalidData`] for a value that is no JSON.
    pub fn write(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.to.write_all(&line)?;
        self.to.flush()
    }
}

/// Reads what [`JsonLines`] wrote. Empty lines are passed over.
///
/// # Errors
///
/// The reader's; [`io::ErrorKind::InvalidData`] with the number of the line for one that is no `T`.
pub fn read_json_lines<T: DeserializeOwned>(from: impl BufRead) -> io::Result<Vec<T>> {
    let mut values = Vec::new();
    for (index, line) in from.lines().enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let value = serde_json::from_str(&line).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, alloc::format!("line {}: {error}", index + 1))
        })?;
        values.push(value);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Quantiles, Tail};

    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    struct Detail {
        waits: u64,
        latency: Quantiles,
        filled: Option<f64>,
    }

    fn record(arm: &str) -> Record<Detail> {
        let mut tail = Tail::new();
        for ns in [1, 5, 70] {
            tail.record(ns);
        }
        Record {
            bench: "test".to_owned(),
            case: "a \"case\"\nof two lines".to_owned(),
            arm: arm.to_owned(),
            base: "poll".to_owned(),
            rounds: 3,
            cost_ratio: Interval::of(&[0.1, 0.2, 0.4]),
            usage: Usage { thread_cpu_ns: u64::MAX, ..Usage::default() },
            detail: Detail { waits: 3, latency: tail.quantiles(), filled: None },
            environment: Environment::of_this_thread(7),
        }
    }

    #[test]
    fn records_come_back_as_they_were() {
        let records = [record("flag"), record("block")];
        let mut bytes = Vec::new();
        let mut lines = JsonLines::new(&mut bytes);
        for record in &records {
            lines.write(record).unwrap();
        }
        assert_eq!(bytes.split_inclusive(|byte| *byte == b'\n').count(), 2, "one line a record");
        assert_eq!(read_json_lines::<Record<Detail>>(&bytes[..]).unwrap(), records);
    }

    #[test]
    fn a_records_own_fields_stand_beside_the_others() {
        let value = serde_json::to_value(record("flag")).unwrap();
        assert_eq!(value["waits"], 3);
        assert_eq!(value["latency"]["max_ns"], 70);
        assert_eq!(value["environment"]["seed"], 7);
    }

    #[test]
    fn a_bad_line_is_named() {
        let text = "1\n\n2\nthree\n";
        let error = read_json_lines::<u32>(text.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().starts_with("line 4: "), "{error}");
    }

    #[test]
    fn the_environment_is_told() {
        let environment = Environment::of_this_thread(0);
        assert!(environment.cpus >= 1 && environment.began_unix_s > 1_600_000_000, "{environment:?}");
        if environment.os == "linux" {
            assert_ne!(environment.kernel, UNKNOWN);
        }
    }
}

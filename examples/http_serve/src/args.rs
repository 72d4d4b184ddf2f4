//! What the server is told when it starts.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Parser, ValueEnum, value_parser};
use wakeline::ops::PLAN;
use wakeline::{Error, Nanos, Settings, WaitPlan};

/// The most requests of a batch.
pub const BATCH_MAX: u32 = 1_024;
/// The longest time that a batch may be kept open, microseconds.
const WINDOW_US_MAX: u64 = 1_000_000;
/// The most requests that may be waiting.
const QUEUE_MAX: u32 = 1 << 16;
/// The most batches that may be in flight.
const IN_FLIGHT_MAX: u32 = 16;
/// The longest that a batch may be made to take, microseconds.
const STEP_US_MAX: u64 = 60_000_000;
/// The longest of the limits, milliseconds.
const LIMIT_MS_MAX: u64 = 600_000;

/// Serves a small model over HTTP: batches requests to a device, and shows live what that takes
#[derive(Clone, Debug, Parser)]
pub struct Args {
    /// Where it listens; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// What computes the batches
    #[arg(long, value_enum, default_value_t = On::Sim)]
    pub device: On,
    /// The most requests of a batch
    #[arg(long, default_value_t = 64, value_parser = value_parser!(u32).range(1..=i64::from(BATCH_MAX)))]
    pub batch_max: u32,
    /// How long a batch is kept open for more requests, from the arrival of its first one on
    #[arg(long, default_value_t = 1_000, value_parser = value_parser!(u64).range(..=WINDOW_US_MAX))]
    pub window_us: u64,
    /// How many requests may wait for a batch; one more is answered with 503
    #[arg(long, default_value_t = 1_024, value_parser = value_parser!(u32).range(1..=i64::from(QUEUE_MAX)))]
    pub queue_max: u32,
    /// How many batches may be in flight
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(1..=i64::from(IN_FLIGHT_MAX)))]
    pub in_flight: u32,
    /// How long the device takes for a batch, where it is not a real one
    #[arg(long, default_value_t = 5_000, value_parser = value_parser!(u64).range(..=STEP_US_MAX))]
    pub step_us: u64,
    /// How long a request may take; then it is answered with 504
    #[arg(long, default_value_t = 1_000, value_parser = value_parser!(u64).range(1..=LIMIT_MS_MAX))]
    pub deadline_ms: u64,
    /// How long a batch may take before the device counts as hung
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(1..=LIMIT_MS_MAX))]
    pub hung_ms: u64,
    /// How long what is in flight may take to end after SIGTERM or ctrl-c
    #[arg(long, default_value_t = 5_000, value_parser = value_parser!(u64).range(1..=LIMIT_MS_MAX))]
    pub grace_ms: u64,
    /// How many threads serve HTTP
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u32).range(1..=256))]
    pub workers: u32,
    /// How the end of a batch is waited for; without it by `WAKELINE_PLAN`, and without that by wakeline's own
    #[arg(long)]
    pub plan: Option<WaitPlan>,
}

/// What computes the batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum On {
    /// The simulated device, for which a batch takes `--step-us`
    Sim,
    /// The first NVIDIA GPU
    Cuda,
    /// No device: a thread sleeps for as long. What the plainest way of waiting gets, to compare with
    Sleep,
}

impl Args {
    /// How long the device takes for a batch, where it is not a real one.
    pub const fn step(&self) -> Nanos {
        Nanos::from_micros(self.step_us)
    }

    /// How long a batch is kept open.
    pub const fn window(&self) -> Nanos {
        Nanos::from_micros(self.window_us)
    }

    /// When the device counts as hung.
    pub const fn hung(&self) -> Nanos {
        Nanos::from_millis(self.hung_ms)
    }

    /// How the end of a batch is waited for.
    ///
    /// # Errors
    ///
    /// The environment cannot be read.
    pub fn plan(&self) -> Result<WaitPlan, Error> {
        match (self.plan, Settings::from_env()?.bands) {
            (Some(plan), _) => Ok(plan),
            (None, Some(bands)) => Ok(*bands.choose(1)),
            (None, None) => PLAN.parse(),
        }
    }

    /// How long a request may take.
    pub const fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }

    /// How long the end may take.
    pub const fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_have_defaults_and_bounds_and_a_plan_says_what_is_wrong_with_it() {
        let args = Args::try_parse_from(["http_serve"]).unwrap();
        assert_eq!((args.device, args.batch_max, args.step_us), (On::Sim, 64, 5_000));
        for (words, says) in [
            ("--batch-max 0", "1..=1024"),
            ("--listen nowhere", "invalid socket address"),
            ("--device tpu", "sim, cuda, sleep"),
            ("--plan flag:pak_us=50,backstop_us=1000", "did you mean `park_us`"),
        ] {
            let error = Args::try_parse_from(["http_serve"].into_iter().chain(words.split(' ')));
            let error = error.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}

//! `cargo xtask picture`: the picture that README shows, drawn from the records, so that no figure of it is anybody's to write.
//!
//! A test holds the committed picture against what would be drawn.

mod draw;
mod record;

use std::fs;

use anyhow::{Context, Result};

use self::record::{Figure, Record};
use crate::workspace::root;

/// Where it is.
const PATH: &str = "guide/h200-5ms.svg";

/// The way that the others are compared with, in all records.
const SPIN: &str = "spin";

/// A way of waiting, and which line of which record is of it.
struct Way {
    name: &'static str,
    ours: bool,
    record: Record,
    arm: &'static str,
}

impl Way {
    const fn of(name: &'static str, record: Record, arm: &'static str) -> Self {
        Self { name, ours: false, record, arm }
    }

    const fn ours(name: &'static str, record: Record, arm: &'static str) -> Self {
        Self { name, ours: true, record, arm }
    }
}

/// From top to bottom.
const WAYS: &[Way] = &[
    Way::of("a spin on the word", Record::GpuWake, SPIN),
    Way::of("cuStreamSynchronize, spinning", Record::GpuWake, "synchronize"),
    Way::of("cuStreamSynchronize, blocking", Record::Bench, "sync-block"),
    Way::of("cuda-async 0.5.0: .await on tokio", Record::BenchOps, "cuda-async-await"),
    Way::ours("wakeline: a thread, +predict", Record::GpuWake, "predict-100-trusted"),
    Way::ours("wakeline: TokioLocal", Record::GpuHosts, "tokio-local"),
    Way::ours("wakeline: .await of an operation", Record::Ops, "await@current_thread"),
];

/// Draws it.
///
/// # Errors
/// A record lacks a line or cannot be read, or the picture cannot be written.
pub(crate) fn run() -> Result<()> {
    fs::write(root().join(PATH), drawn()?).with_context(|| PATH.to_owned())?;
    println!("{PATH}: drawn from benches/results");
    Ok(())
}

fn drawn() -> Result<String> {
    let figures: Vec<Figure> = WAYS.iter().map(|way| way.record.figure(way.arm)).collect::<Result<_>>()?;
    Ok(draw::svg(WAYS, &figures))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_picture_is_of_the_records() {
        let committed = fs::read_to_string(root().join(PATH)).expect(PATH);
        assert!(committed == drawn().expect("records"), "draw it again: cargo xtask picture");
    }

    #[test]
    fn a_way_without_a_line_names_its_record() {
        let error = Record::Ops.figure("none").expect_err("there is none").to_string();
        assert!(error.contains("ops-await-h200.jsonl") && error.contains("none"), "{error}");
    }
}

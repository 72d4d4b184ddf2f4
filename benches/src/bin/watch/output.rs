//! Where the figures go: a row each for people, a record each as a JSON line.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use wakeline::Error;
use wakeline_benches::{Environment, JsonLines, Record, Usage};

use crate::args::Suite;

/// Why the program ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was found out cannot be written.
    Output(io::Error),
    /// The watcher or the device failed.
    Wakeline(Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Wakeline(error)
    }
}

/// Both places.
pub(crate) struct Output<W> {
    rows: W,
    json: Option<JsonLines<File>>,
    environment: Environment,
}

impl<W: Write> Output<W> {
    /// Rows go to `rows`, records into a new file at `json`.
    pub(crate) fn new(mut rows: W, json: Option<&Path>) -> io::Result<Self> {
        let json = json.map(|path| File::create(path).map(JsonLines::new)).transpose()?;
        let environment = Environment::of_this_thread(0);
        let Environment { cpu, cpus, os, kernel, release, .. } = &environment;
        writeln!(rows, "{cpu}, {cpus} CPUs, {os} {kernel}")?;
        if !release {
            writeln!(rows, "built without optimisation: the figures are no measure of a release build")?;
        }
        Ok(Self { rows, json, environment })
    }

    /// A line that is no record.
    pub(crate) fn line(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.rows, "{line}")
    }

    /// What one case of a suite gave; `row` is how it is shown.
    pub(crate) fn case<T: Serialize>(
        &mut self,
        (suite, case): (Suite, &str),
        usage: Usage,
        detail: T,
        row: &str,
    ) -> io::Result<()> {
        self.line(row)?;
        let Some(json) = &mut self.json else {
            return Ok(());
        };
        // No arms take turns here: each case is its own base, without a ratio.
        json.write(&Record {
            bench: "watch".to_owned(),
            case: suite.name().to_owned(),
            arm: case.to_owned(),
            base: case.to_owned(),
            rounds: 1,
            cost_ratio: None,
            usage,
            detail,
            environment: self.environment.clone(),
        })
    }
}

/// A count or nanoseconds, for quotients.
#[expect(clippy::cast_precision_loss, reason = "an f64 is exact to 2^53: 104 days of nanoseconds")]
pub(crate) fn real(value: u64) -> f64 {
    value as f64
}

//! Where verdicts go: a line each for people, a record each as a JSON line.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant as Wall;

use serde::Serialize;
use wakeline_benches::gpu::{Failure, Gpu};
use wakeline_benches::{Environment, JsonLines, Record, Usage};

use crate::args::Check;

/// Something that was checked.
#[derive(Debug)]
pub(crate) struct Verdict<T> {
    pub(crate) check: Check,
    /// Which part of it.
    pub(crate) name: String,
    /// How often it was tried.
    pub(crate) count: u64,
    /// Why it does not hold; `None` where it does.
    pub(crate) broken: Option<String>,
    pub(crate) detail: T,
}

/// What a record has beside what all have.
#[derive(Debug, Serialize)]
struct Told<'a, T> {
    gpu: &'a str,
    holds: bool,
    broken: Option<String>,
    count: u64,
    took_ms: u64,
    #[serde(flatten)]
    detail: T,
}

/// Both places.
pub(crate) struct Output<W> {
    rows: W,
    json: Option<JsonLines<File>>,
    gpu: String,
    environment: Environment,
    /// When the last thing was told.
    since: Wall,
    usage: Usage,
    checked: usize,
    broken: usize,
}

impl<W: Write> Output<W> {
    /// Lines go to `rows`, records into a new file at `json`.
    pub(crate) fn new(
        mut rows: W,
        json: Option<&Path>,
        gpu: &Gpu,
        environment: Environment,
    ) -> io::Result<Self> {
        let json = json.map(|path| File::create(path).map(JsonLines::new)).transpose()?;
        let gpu = gpu.name().to_owned();
        writeln!(rows, "{gpu}")?;
        let (since, usage) = (Wall::now(), Usage::now());
        Ok(Self { rows, json, gpu, environment, since, usage, checked: 0, broken: 0 })
    }

    /// Tells of one thing. The time since the one before is what it took.
    pub(crate) fn tell<T: Serialize>(&mut self, verdict: Verdict<T>) -> io::Result<()> {
        let Verdict { check, name, count, broken, detail } = verdict;
        let took_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let told = match &broken {
            None => "holds".to_owned(),
            Some(why) => format!("DOES NOT HOLD: {why}"),
        };
        let facts = serde_json::to_string(&detail)?;
        writeln!(self.rows, "{:<7} {name}: {told}, {count} in {took_ms} ms {facts}", check.name())?;
        self.checked += 1;
        self.broken += usize::from(broken.is_some());
        let now = Usage::now();
        let record = Record {
            bench: "gpu_checks".to_owned(),
            case: check.name().to_owned(),
            arm: name.clone(),
            base: name,
            rounds: 1,
            cost_ratio: None,
            usage: now.since(self.usage),
            detail: Told { gpu: &self.gpu, holds: broken.is_none(), broken, count, took_ms, detail },
            environment: self.environment.clone(),
        };
        (self.since, self.usage) = (Wall::now(), now);
        self.json.as_mut().map_or(Ok(()), |json| json.write(&record))
    }

    /// The last line, and the failure that something does not hold.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        let Self { checked, broken, .. } = self;
        if broken > 0 {
            return Err(Failure::Broken(format!("{broken} of {checked} things do not hold")));
        }
        writeln!(self.rows, "all {checked} hold")?;
        Ok(())
    }
}

//! What ran when, in which stream, and a drawing of it.
//!
//! An operation in a [`Span`] tells its begin and its end by functions of the host, before and behind it in its stream: some 20 us each on a GPU, which a program that is
//! not drawn does without.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use wakeline::Error;
use wakeline::ops::port::Device;
use wakeline::ops::{DeviceOp, Submission, device_op};

/// The row of the host; streams have the numbers from 1 on.
const HOST: u64 = 0;

const WIDTH: f64 = 1_100.0;
const LEFT: f64 = 80.0;
const ROW: f64 = 36.0;
const COLOURS: [(&str, &str); 5] = [
    ("load", "#4e79a7"),
    ("copy", "#76b7b2"),
    ("scale", "#f28e2b"),
    ("store", "#59a14f"),
    ("write", "#9c755f"),
];

/// Clones draw into the same.
#[derive(Clone)]
pub(crate) struct Timeline {
    start: Instant,
    ran: Arc<Mutex<Vec<Ran>>>,
}

#[derive(Clone, Copy)]
struct Ran {
    name: &'static str,
    number: u32,
    row: u64,
    from: Duration,
    to: Duration,
}

impl Ran {
    fn length_ms(&self) -> f64 {
        self.to.saturating_sub(self.from).as_secs_f64() * 1e3
    }
}

impl Timeline {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), ran: Arc::default() }
    }

    /// The same operation, which is drawn.
    pub(crate) fn span<O: DeviceOp>(&self, name: &'static str, number: u32, op: O) -> Span<O> {
        Span { timeline: self.clone(), name, number, op }
    }

    /// What the host does.
    pub(crate) fn on_host<R>(&self, name: &'static str, number: u32, work: impl FnOnce() -> R) -> R {
        let from = self.start.elapsed();
        let done = work();
        self.add(Ran { name, number, row: HOST, from, to: self.start.elapsed() });
        done
    }

    fn add(&self, ran: Ran) {
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).push(ran);
    }

    fn all(&self) -> Vec<Ran> {
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How much of the device's work ran at a time, in words.
    pub(crate) fn overlap(&self) -> String {
        let all: Vec<_> = self.all().into_iter().filter(|ran| ran.row != HOST).collect();
        let (first, last) = (all.iter().map(|ran| ran.from).min(), all.iter().map(|ran| ran.to).max());
        let took = last.unwrap_or_default().saturating_sub(first.unwrap_or_default()).as_secs_f64() * 1e3;
        let worked: f64 = all.iter().map(Ran::length_ms).sum();
        let mut rows: Vec<_> = all.iter().map(|ran| ran.row).collect();
        rows.sort_unstable();
        rows.dedup();
        let at_a_time = worked / took.max(1e-6);
        format!("{worked:.1} ms of work in {took:.1} ms: {at_a_time:.2} at a time, in {} streams", rows.len())
    }

    /// The drawing: a row for the host and one for each stream, time from left to right.
    pub(crate) fn svg(&self) -> String {
        let all = self.all();
        let mut rows: BTreeMap<u64, u32> = all.iter().map(|ran| (ran.row, 0)).collect();
        for (place, row) in (0..).zip(rows.values_mut()) {
            *row = place;
        }
        let count = rows.values().last().map_or(0.0, |last| f64::from(*last) + 1.0);
        let end = all.iter().map(|ran| ran.to).max().unwrap_or_default().as_secs_f64().max(1e-6);
        let x = |at: Duration| LEFT + at.as_secs_f64() / end * (WIDTH - LEFT - 10.0);
        let height = ROW * (count + 1.5);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        for (row, place) in &rows {
            let y = ROW * (f64::from(*place) + 0.6);
            let label = if *row == HOST { "host".to_owned() } else { format!("stream {place}") };
            // Writing to a string does not fail.
            let _ = writeln!(svg, "<text x=\"8\" y=\"{y:.1}\">{label}</text>");
        }
        for ran in &all {
            let Ran { name, number, .. } = ran;
            let (from, to) = (x(ran.from), x(ran.to));
            let (width, y) = ((to - from).max(0.5), ROW * (f64::from(rows[&ran.row]) + 0.15));
            let colour = COLOURS.iter().find(|(of, _)| of == name).map_or("#888888", |(_, colour)| *colour);
            let ms = ran.length_ms();
            let _ = writeln!(
                svg,
                "<rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" rx=\"2\" fill=\"{colour}\">\
                 <title>{name} of batch {number}: {ms:.2} ms</title></rect>",
                ROW * 0.7
            );
            if width > 14.0 {
                let (middle, base) = (from + width / 2.0, y + ROW * 0.45);
                let _ = writeln!(
                    svg,
                    "<text x=\"{middle:.1}\" y=\"{base:.1}\" fill=\"white\" text-anchor=\"middle\">{number}</text>"
                );
            }
        }
        let (mut at, y) = (LEFT, ROW * (count + 0.8));
        for (name, colour) in COLOURS {
            let _ = writeln!(svg, "<text x=\"{at}\" y=\"{y:.1}\" fill=\"{colour}\">{name}</text>");
            at += 60.0;
        }
        let ms = end * 1e3;
        let right = WIDTH - 10.0;
        let _ =
            writeln!(svg, "<text x=\"{right}\" y=\"{y:.1}\" text-anchor=\"end\">{ms:.1} ms</text>\n</svg>");
        svg
    }
}

/// An operation that is drawn.
pub(crate) struct Span<O> {
    timeline: Timeline,
    name: &'static str,
    number: u32,
    op: O,
}

impl<O: DeviceOp> DeviceOp for Span<O> {
    type Device = O::Device;
    type Pending = O::Pending;
    type Output = <O as DeviceOp>::Output;

    fn execute(self, submission: &mut Submission<O::Device>) -> Result<O::Pending, Error> {
        let Self { timeline, name, number, op } = self;
        let stream = submission.stream().clone();
        let begun = Arc::new(Mutex::new(None));
        let set = Arc::clone(&begun);
        stream.device().call_host(stream.raw(), move || {
            *set.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        })?;
        let pending = op.execute(submission)?;
        let row = stream.id() + 1;
        stream.device().call_host(stream.raw(), move || {
            let begun = begun.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(timeline.start);
            let (from, to) = (begun.duration_since(timeline.start), timeline.start.elapsed());
            timeline.add(Ran { name, number, row, from, to });
        })?;
        Ok(pending)
    }

    fn finish(pending: O::Pending) -> Result<<O as DeviceOp>::Output, Error> {
        O::finish(pending)
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.op.poll_ready(context)
    }
}

device_op!([O] Span<O> where O: DeviceOp);

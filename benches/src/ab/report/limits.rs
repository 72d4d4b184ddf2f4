//! What a line of a run may hold: no more than is shown within a moment, and no number that nobody can have measured.
//!
//! A file may come from anywhere. Whatever takes these limits is shown, compared and judged in time that is known; all else is an error that
//! names the line, the field, what it holds and what it may.

use super::read::ReadFault;
use crate::Interval;
use crate::ab::schema::{Cell, End, Line, Metric, Run, Timeline};

/// The largest file, in bytes: a long run has some megabytes.
pub(super) const BYTES_MAX: u64 = 64 << 20;

/// The most cells and timelines of a run, which are at most some 1,500 and 50 with all arms of all cases.
pub(super) const CELLS_MAX: usize = 2_048;
pub(super) const TIMELINES_MAX: usize = 512;

/// The most metrics with different names in a run; there are twelve.
pub(super) const METRICS_MAX: usize = 32;

/// The most suites that a run lists, and its checks.
const SUITES_MAX: usize = 64;
const CHECKS_MAX: usize = 256;

/// The most rounds of a cell, points of its curve, and spans of a timeline: of the latter two, programs write 64.
const ROUNDS_MAX: usize = 1_000_000;
const CURVE_MAX: usize = 128;
const SPANS_MAX: usize = 128;

/// The longest name, in bytes: a plan with bands takes some hundred.
const NAME_BYTES_MAX: usize = 4_096;

/// How far from zero a number may be: nanoseconds of a thousand years are 3e19. The half width of an interval may be any: of two rounds that differ
/// it is that of logarithms.
const VALUE_MAX: f64 = 1e30;

/// A run's length in seconds.
const TOOK_S_MAX: f64 = 1e9;

/// Whether the line keeps within them.
pub(super) fn check(line: &Line) -> Result<(), ReadFault> {
    match line {
        Line::Run(run) => check_run(run),
        Line::Cell(cell) => check_cell(cell),
        Line::Timeline(timeline) => check_timeline(timeline),
        Line::End(end) => check_end(end),
    }
}

/// Something that is too large.
pub(super) fn too_many(field: &str, found: usize, most: usize) -> ReadFault {
    out_of(field, found.to_string(), format!("at most {most}"))
}

fn out_of(field: &str, found: String, allowed: String) -> ReadFault {
    ReadFault::Limit { field: field.to_owned(), found, allowed }
}

fn count(field: &str, found: usize, most: usize) -> Result<(), ReadFault> {
    if found <= most { Ok(()) } else { Err(too_many(field, found, most)) }
}

fn name(field: &str, text: &str) -> Result<(), ReadFault> {
    if text.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    Err(out_of(field, format!("{} bytes", text.len()), format!("at most {NAME_BYTES_MAX}")))
}

fn number(field: &str, value: f64, (least, most): (f64, f64)) -> Result<(), ReadFault> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(out_of(field, format!("{value:e}"), format!("{least:e} to {most:e}")))
}

fn check_run(run: &Run) -> Result<(), ReadFault> {
    count("suites", run.suites.len(), SUITES_MAX)?;
    count("checks", run.checks.len(), CHECKS_MAX)?;
    run.suites.iter().try_for_each(|suite| name("suites", suite))
}

fn check_end(end: &End) -> Result<(), ReadFault> {
    count("checks", end.checks.len(), CHECKS_MAX)?;
    number("took_s", end.took_s, (0.0, TOOK_S_MAX))
}

fn check_timeline(timeline: &Timeline) -> Result<(), ReadFault> {
    for (field, text) in [("suite", &timeline.suite), ("case", &timeline.case), ("arm", &timeline.arm)] {
        name(field, text)?;
    }
    count("spans", timeline.spans.len(), SPANS_MAX)?;
    timeline.spans.iter().try_for_each(|span| name("spans", &span.what))
}

fn check_cell(cell: &Cell) -> Result<(), ReadFault> {
    let names = [
        ("suite", &cell.suite),
        ("case", &cell.case),
        ("arm", &cell.arm),
        ("family", &cell.family),
        ("base", &cell.base),
    ];
    names
        .into_iter()
        .chain(cell.plan.as_ref().map(|plan| ("plan", plan)))
        .try_for_each(|(field, text)| name(field, text))?;
    count("rounds", cell.rounds, ROUNDS_MAX)?;
    count("metrics", cell.metrics.len(), METRICS_MAX)?;
    cell.metrics.iter().try_for_each(|(called, metric)| check_metric(called, metric, cell.rounds))?;
    count("cdf", cell.cdf.len(), CURVE_MAX)?;
    cell.cdf.iter().try_for_each(|(_, share)| number("cdf", *share, (0.0, 1.0)))?;
    let falls = cell.cdf.windows(2).find(|pair| pair[1].0 < pair[0].0 || pair[1].1 < pair[0].1);
    match falls {
        None => Ok(()),
        Some(pair) => {
            Err(out_of("cdf", format!("{:?} behind {:?}", pair[1], pair[0]), "both rising".to_owned()))
        }
    }
}

fn check_metric(called: &str, metric: &Metric, rounds: usize) -> Result<(), ReadFault> {
    name("metrics", called)?;
    let of = |field: &str| format!("metrics.{called}.{field}");
    name(&of("unit"), &metric.unit)?;
    check_interval(&of("value"), metric.value, rounds)?;
    metric.ratio.map_or(Ok(()), |ratio| check_interval(&of("ratio"), ratio, rounds))?;
    let found = metric.by_round.len();
    if found > 0 && found != metric.value.n {
        return Err(out_of(
            &of("by_round"),
            format!("{found} values"),
            format!("{}, as many as its `value` is of", metric.value.n),
        ));
    }
    metric.by_round.iter().try_for_each(|value| number(&of("by_round"), *value, (-VALUE_MAX, VALUE_MAX)))
}

fn check_interval(field: &str, interval: Interval, rounds: usize) -> Result<(), ReadFault> {
    number(&format!("{field}.mean"), interval.mean, (-VALUE_MAX, VALUE_MAX))?;
    interval
        .half_width
        .map_or(Ok(()), |half| number(&format!("{field}.half_width"), half, (0.0, f64::MAX)))?;
    if (1..=rounds).contains(&interval.n) {
        return Ok(());
    }
    Err(out_of(
        &format!("{field}.n"),
        interval.n.to_string(),
        format!("1 to {rounds}, the rounds of its cell"),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A cell with this at a pointer in it.
    fn cell(pointer: &str, value: Value) -> Line {
        let interval = json!({"mean": 2.0, "half_width": 0.5, "n": 3});
        let mut cell = json!({
            "kind": "cell", "suite": "wake", "case": "1 ms", "arm": "flag", "family": "wakeline", "plan": "flag", "base": "spin",
            "rounds": 3, "cdf": [[1, 0.5], [2, 1.0]],
            "metrics": {"cpu": {
                "unit": "ns", "better": "less", "value": interval, "ratio": interval, "by_round": [1.0, 2.0, 3.0],
            }},
        });
        *cell.pointer_mut(pointer).unwrap() = value;
        serde_json::from_value(cell).unwrap()
    }

    #[test]
    fn what_no_run_has_is_told_with_its_field_and_what_it_may_be() {
        assert!(check(&cell("/rounds", json!(3))).is_ok());
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        let many = vec![json!([1, 0.5]); CURVE_MAX + 1];
        for (pointer, value, says) in [
            ("/rounds", json!(100_000_000), "`rounds`: 100000000, where a run has at most 1000000"),
            ("/arm", json!(long), "`arm`: 4097 bytes, where a run has at most 4096"),
            ("/plan", json!(long), "`plan`: 4097 bytes"),
            ("/cdf", json!(many), "`cdf`: 129, where a run has at most 128"),
            ("/cdf/0/1", json!(1e308), "`cdf`: 1e308, where a run has 0e0 to 1e0"),
            ("/cdf/0/0", json!(3), "`cdf`: (2, 1.0) behind (3, 0.5), where a run has both rising"),
            (
                "/metrics/cpu/value/mean",
                json!(-1e308),
                "`metrics.cpu.value.mean`: -1e308, where a run has -1e30 to 1e30",
            ),
            (
                "/metrics/cpu/ratio/half_width",
                json!(-0.5),
                "`metrics.cpu.ratio.half_width`: -5e-1, where a run has 0e0",
            ),
            (
                "/metrics/cpu/ratio/n",
                json!(100_000_000),
                "`metrics.cpu.ratio.n`: 100000000, where a run has 1 to 3, the rounds",
            ),
            ("/metrics/cpu/value/n", json!(0), "`metrics.cpu.value.n`: 0, where"),
            ("/metrics/cpu/value/n", json!(2), "`metrics.cpu.by_round`: 3 values, where a run has 2"),
            ("/metrics/cpu/by_round/1", json!(1e31), "`metrics.cpu.by_round`: 1e31, where"),
        ] {
            let message = check(&cell(pointer, value)).unwrap_err().to_string();
            assert!(message.starts_with(says), "{message}");
        }
    }
}

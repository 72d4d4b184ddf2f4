//! A suite: its pictures, each with what it is, then its numbers.

use std::fmt::{self, Write};

use super::forest::{self, Forest, Row, Style};
use super::html::{Out, Text};
use super::marks::{self, Arms};
use super::{cdf, scatter, tables, timeline};
use crate::Interval;
use crate::ab::report::digits::{self, MISSING};
use crate::ab::report::names;
use crate::ab::report::read::RunFile;
use crate::ab::schema::{Better, Cell, Timeline};

/// Everything of one suite; `id` is what links lead to.
pub(super) fn suite(out: &mut Out, arms: &Arms<'_>, file: &RunFile, suite: &str, id: &str) -> fmt::Result {
    write!(out, "<section id=\"{id}\"><h2>{}</h2>", Text(suite))?;
    if let Some(sentence) = names::sentence(suite) {
        write!(out, "<p>{sentence}</p>")?;
    }
    let cells: Vec<&Cell> = file.cells_of(suite).collect();
    if cells.is_empty() {
        return out.write_str("<p class=\"aside\">Nothing was recorded.</p></section>");
    }
    marks::legend(out, arms, &cells)?;
    let cases = file.cases_of(suite);
    if suite == "serve" {
        values(out, arms, &cases, &cells)?;
    }
    if cells.iter().any(|cell| !cell.cdf.is_empty()) {
        begin(
            out,
            "How late",
            "For each case, the share of waits that were at most so late. Further left is better.",
            "plots",
        )?;
        for (case, cells) in &cases {
            cdf::cdf(out, arms, case, cells)?;
        }
        out.write_str("</div>")?;
    }
    let mut points = Out::default();
    for (case, cells) in &cases {
        scatter::scatter(&mut points, arms, case, cells)?;
    }
    if !points.into_text().is_empty() {
        begin(
            out,
            "CPU against latency",
            "Lower and further left is better. The grey line is the front: the arms on it are beaten by no other in both.",
            "plots",
        )?;
        for (case, cells) in &cases {
            scatter::scatter(out, arms, case, cells)?;
        }
        out.write_str("</div>")?;
    }
    ratios(out, arms, suite, &cases, &cells)?;
    let waits: Vec<&Timeline> = file.timelines.iter().filter(|wait| wait.suite == suite).collect();
    if waits.iter().any(|wait| !wait.spans.is_empty()) {
        begin(out, "One wait", "From its launch to the code behind it.", "plots")?;
        for wait in waits {
            timeline::timeline(out, arms, wait)?;
        }
        out.write_str("</div>")?;
    }
    tables::suite(out, arms, file, suite, &cells)?;
    out.write_str("</section>")
}

/// A heading, a sentence, and the beginning of what holds the pictures.
fn begin(out: &mut Out, heading: &str, sentence: &str, class: &str) -> fmt::Result {
    write!(out, "<h3>{heading}</h3><p class=\"aside\">{sentence}</p><div class=\"{class}\">")
}

/// The most metrics whose ratios are drawn: a row of pictures on a wide screen. The table has all of them.
const DRAWN_MAX: usize = 3;

type Cases<'a> = [(&'a str, Vec<&'a Cell>)];

/// The ratios of every metric that has any.
fn ratios(out: &mut Out, arms: &Arms<'_>, suite: &str, cases: &Cases<'_>, cells: &[&Cell]) -> fmt::Result {
    let mut forests: Vec<Forest<'_>> =
        names::metrics_of(suite, cells.iter().flat_map(|cell| cell.metrics.keys()))
            .iter()
            .map(|metric| {
                let groups = cases.iter().map(|(case, cells)| {
                    let others = cells.iter().filter(|cell| cell.arm != cell.base);
                    let rows = others.map(|cell| ratio_row(arms, cell, metric)).collect();
                    (group(case, cells), rows)
                });
                Forest {
                    title: names::metric_words(metric),
                    numbers: "ratio",
                    better: better(cells, metric),
                    style: Style::Ratios,
                    groups: groups.filter(|(_, rows): &(String, Vec<Row>)| !rows.is_empty()).collect(),
                }
            })
            .filter(has_values)
            .collect();
    if forests.is_empty() {
        return Ok(());
    }
    let more =
        if forests.len() > DRAWN_MAX { " The numbers below have those of the other metrics." } else { "" };
    forests.truncate(DRAWN_MAX);
    let sentence = format!(
        "Each arm by the base arm of the same round, with the 99\u{a0}% interval; the line is at 1. An interval across the line shows no difference.{more}"
    );
    begin(out, "Ratios to the base", &sentence, "forests")?;
    for forest in &forests {
        forest::forest(out, forest)?;
    }
    out.write_str("</div>")
}

/// Throughput and what an operation costs, as bars.
fn values(out: &mut Out, arms: &Arms<'_>, cases: &Cases<'_>, cells: &[&Cell]) -> fmt::Result {
    let forests: Vec<Forest<'_>> =
        [("throughput", "Throughput"), ("cpu", "CPU per token"), ("energy", "Energy per token")]
            .into_iter()
            .map(|(metric, title)| {
                let unit = cells.iter().find_map(|cell| Some(cell.metrics.get(metric)?.unit.clone()));
                let groups = cases.iter().map(|(case, cells)| {
                    let rows = cells.iter().map(|cell| value_row(arms, cell, metric)).collect();
                    ((*case).to_owned(), rows)
                });
                Forest {
                    title: title.to_owned(),
                    numbers: "mean",
                    better: better(cells, metric),
                    style: Style::Bars { unit: unit.unwrap_or_default() },
                    groups: groups.collect(),
                }
            })
            .filter(has_values)
            .collect();
    if forests.is_empty() {
        return Ok(());
    }
    begin(
        out,
        "Throughput and cost",
        "The mean of the rounds with its 99\u{a0}% interval. Each case has a scale of its own.",
        "forests",
    )?;
    for forest in &forests {
        forest::forest(out, forest)?;
    }
    out.write_str("</div>")
}

fn has_values(forest: &Forest<'_>) -> bool {
    forest.groups.iter().flat_map(|(_, rows)| rows).any(|row| row.value.is_some())
}

fn better(cells: &[&Cell], metric: &str) -> Option<Better> {
    cells.iter().find_map(|cell| cell.metrics.get(metric)).map(|metric| metric.better)
}

/// The case, and what its ratios are to.
fn group(case: &str, cells: &[&Cell]) -> String {
    match cells.first() {
        Some(first) if cells.iter().all(|cell| cell.base == first.base) => {
            format!("{case} \u{b7} base: {}", first.base)
        }
        _ => case.to_owned(),
    }
}

fn ratio_row(arms: &Arms<'_>, cell: &Cell, metric: &str) -> Row {
    row(arms, cell, cell.metrics.get(metric).and_then(|metric| metric.ratio), "")
}

fn value_row(arms: &Arms<'_>, cell: &Cell, metric: &str) -> Row {
    let metric = cell.metrics.get(metric);
    row(arms, cell, metric.map(|metric| metric.value), metric.map_or("", |metric| &metric.unit))
}

fn row(arms: &Arms<'_>, cell: &Cell, value: Option<Interval>, unit: &str) -> Row {
    let (shown, spread) =
        value.map_or_else(|| (MISSING.to_owned(), None), |value| digits::interval_apart(value, unit));
    let single = value.is_some_and(|value| value.half_width.is_none());
    Row {
        name: cell.arm.clone(),
        mark: arms.mark(&cell.arm),
        value: value.map(|value| (value.mean, value.half_width)),
        shown,
        spread,
        remark: single.then(|| ("muted", "one round".to_owned())),
    }
}

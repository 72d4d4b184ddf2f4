//! The numbers: everything that the pictures show, and what they do not.

use std::fmt::{self, Write};

use super::html::{Name, Out, Text};
use super::marks::Arms;
use crate::ab::report::digits::{self, MISSING};
use crate::ab::report::names;
use crate::ab::report::read::{RunFile, distinct};
use crate::ab::schema::{Cell, Metric};

/// The table of a suite.
pub(super) fn suite(
    out: &mut Out,
    arms: &Arms<'_>,
    file: &RunFile,
    suite: &str,
    cells: &[&Cell],
) -> fmt::Result {
    let metrics = names::metrics_of(suite, cells.iter().flat_map(|cell| cell.metrics.keys()));
    let latencies = cells.iter().any(|cell| cell.latency.is_some());
    let title = format!("The numbers of {suite}");
    write!(
        out,
        "<h3>Numbers</h3><div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\"><table class=\"numbers\"><caption>{0}</caption><thead><tr><th scope=\"col\">arm</th><th scope=\"col\" class=\"num\">rounds</th>",
        Text(&title)
    )?;
    if latencies {
        for name in ["p50", "p90", "p99", "max"] {
            write!(out, "<th scope=\"col\" class=\"num\">latency {name}</th>")?;
        }
    }
    for name in &metrics {
        write!(
            out,
            "<th scope=\"col\" class=\"num\">{} <small>and its ratio</small></th>",
            Text(names::short_words(name))
        )?;
    }
    out.write_str("</tr></thead>")?;
    for (case, cells) in file.cases_of(suite) {
        let columns = 2 + if latencies { 4 } else { 0 } + metrics.len();
        write!(
            out,
            "<tbody><tr><th class=\"group\" colspan=\"{columns}\" scope=\"rowgroup\"><span>{}</span></th></tr>",
            Text(case)
        )?;
        for cell in cells {
            row(out, arms, cell, &metrics, latencies)?;
        }
        out.write_str("</tbody>")?;
    }
    out.write_str("</table></div>")?;
    notes(out, cells)?;
    plans(out, cells)
}

/// What the names of arms stand for: each plan with the arm, and the cases where not all have the same.
fn plans(out: &mut Out, cells: &[&Cell]) -> fmt::Result {
    let named: Vec<(&str, &str, &str)> = cells
        .iter()
        .filter_map(|cell| Some((cell.arm.as_str(), cell.case.as_str(), cell.plan.as_deref()?)))
        .filter(|(arm, _, plan)| arm != plan)
        .collect();
    if named.is_empty() {
        return Ok(());
    }
    out.write_str("<h3>Plans</h3><table class=\"pairs\"><tbody>")?;
    for arm in distinct(named.iter().map(|(arm, ..)| *arm)) {
        let of_arm = || named.iter().filter(|(other, ..)| *other == arm);
        let plans = distinct(of_arm().map(|(.., plan)| *plan));
        for plan in &plans {
            write!(out, "<tr><th scope=\"row\">{}</th><td>{}", Name(arm), Name(plan))?;
            if plans.len() > 1 {
                let cases: Vec<&str> =
                    of_arm().filter(|(.., other)| other == plan).map(|(_, case, _)| *case).collect();
                write!(out, " <small>{}</small>", Text(cases.join("; ")))?;
            }
            out.write_str("</td></tr>")?;
        }
    }
    out.write_str("</tbody></table>")
}

fn row(out: &mut Out, arms: &Arms<'_>, cell: &Cell, metrics: &[&str], latencies: bool) -> fmt::Result {
    out.write_str("<tr><th scope=\"row\"><span class=\"arm\">")?;
    arms.mark(&cell.arm).small_swatch(out)?;
    let base = if cell.arm == cell.base { ", the base" } else { "" };
    write!(out, "<span>{} <small>{}{base}</small></span></span></th>", Name(&cell.arm), Text(&cell.family))?;
    write!(out, "<td class=\"num\">{}</td>", cell.rounds)?;
    if latencies {
        let latency = cell.latency.filter(|latency| latency.count > 0);
        for of in [
            latency.map(|latency| latency.p50_ns),
            latency.map(|latency| latency.p90_ns),
            latency.map(|latency| latency.p99_ns),
            latency.map(|latency| latency.max_ns),
        ] {
            number(out, of.map(digits::ns), None)?;
        }
    }
    for name in metrics {
        let metric = cell.metrics.get(*name);
        let shown = metric.map(|metric| digits::interval(metric.value, &metric.unit));
        number(out, shown, metric.and_then(|metric| ratio(cell, metric)))?;
    }
    out.write_str("</tr>")
}

fn ratio(cell: &Cell, metric: &Metric) -> Option<String> {
    metric.ratio.filter(|_| cell.arm != cell.base).map(|ratio| format!("\u{d7} {}", digits::ratio(ratio)))
}

fn number(out: &mut Out, shown: Option<String>, below: Option<String>) -> fmt::Result {
    match shown {
        Some(shown) => write!(out, "<td class=\"num\">{}", Text(shown))?,
        None => write!(out, "<td class=\"num muted\" title=\"not measured\">{MISSING}")?,
    }
    if let Some(below) = below {
        write!(out, "<br/><small>{}</small>", Text(below))?;
    }
    out.write_str("</td>")
}

fn notes(out: &mut Out, cells: &[&Cell]) -> fmt::Result {
    let notes: Vec<(&Cell, &String)> =
        cells.iter().flat_map(|cell| cell.notes.iter().map(move |note| (*cell, note))).collect();
    if notes.is_empty() {
        return Ok(());
    }
    out.write_str("<ul class=\"notes\">")?;
    for (cell, note) in notes {
        write!(out, "<li>{}, {}: {}</li>", Text(&cell.case), Text(&cell.arm), Text(note))?;
    }
    out.write_str("</ul>")
}

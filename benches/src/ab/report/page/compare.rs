//! What changed between two runs, as a section of the page.

use std::fmt::{self, Write};

use super::forest::{self, Forest, Row, Style};
use super::html::{Name, Out, Text};
use super::marks::Arms;
use crate::Interval;
use crate::ab::report::compare::{Comparison, Row as CompareRow, Verdict};
use crate::ab::report::digits;
use crate::ab::report::names;
use crate::ab::report::read::distinct;

/// The section; `arms` are those of the later run.
pub(super) fn comparison(out: &mut Out, arms: &Arms<'_>, comparison: &Comparison, id: &str) -> fmt::Result {
    write!(
        out,
        "<section id=\"{id}\"><h2>What changed</h2><p>From <code>{}</code> to <code>{}</code>: {}.</p>",
        Text(&comparison.before),
        Text(&comparison.after),
        Text(comparison.summary())
    )?;

    if !comparison.notes.is_empty() {
        out.write_str("<ul class=\"notes\">")?;
        for note in &comparison.notes {
            write!(out, "<li>{}</li>", Text(note))?;
        }
        out.write_str("</ul>")?;
    }
    changes(out, comparison)?;
    if comparison.rows.is_empty() {
        return out.write_str("<p class=\"aside\">No arm is in both.</p></section>");
    }
    out.write_str(
        "<h3>All of them</h3><p class=\"aside\">How much each ratio to the base changed, in percent of the earlier ratio, with Welch\u{2019}s 99\u{a0}% interval of the difference; the line is at 0. Only ratios are compared: each is to an arm of the same run.</p><div class=\"forests\">",
    )?;
    for suite in distinct(comparison.rows.iter().map(|row| row.suite.as_str())) {
        let of_suite: Vec<&CompareRow> = comparison.rows.iter().filter(|row| row.suite == suite).collect();
        for metric in names::metrics_of(suite, of_suite.iter().map(|row| &row.metric)) {
            let of_metric: Vec<&CompareRow> =
                of_suite.iter().copied().filter(|row| row.metric == metric).collect();
            let cases = distinct(of_metric.iter().map(|row| row.case.as_str()));
            let groups = cases.into_iter().map(|case| {
                let rows = of_metric.iter().filter(|row| row.case == case);
                (case.to_owned(), rows.map(|row| self::row(arms, row)).collect())
            });
            let forest = Forest {
                title: format!("{suite}: {}", names::metric_words(metric)),
                numbers: "change",
                better: of_metric.first().map(|row| row.better),
                style: Style::Changes,
                groups: groups.collect(),
            };
            forest::forest(out, &forest)?;
        }
    }
    out.write_str("</div></section>")
}

/// What differs, the worse first: one line each.
fn changes(out: &mut Out, comparison: &Comparison) -> fmt::Result {
    for (verdict, class) in [(Verdict::Worse, "worse"), (Verdict::Better, "better")] {
        let rows: Vec<&CompareRow> = comparison.rows.iter().filter(|row| row.verdict == verdict).collect();
        if rows.is_empty() {
            continue;
        }
        write!(
            out,
            "<h3 class=\"{class}\">{}</h3><ul class=\"notes\">",
            if class == "worse" { "Worse" } else { "Better" }
        )?;
        for row in rows {
            write!(out, "<li>{}, {}, {}: ", Text(&row.suite), Text(&row.case), Name(&row.arm))?;
            let (change, half) = change(row);
            let half = half.unwrap_or_default();
            let what = names::metric_words(&row.metric);
            write!(
                out,
                "{} <strong>{change}</strong> {half} <small>{}</small></li>",
                Text(what),
                from_to(row)
            )?;
        }
        out.write_str("</ul>")?;
    }
    Ok(())
}

/// The difference by the earlier ratio.
fn share(row: &CompareRow) -> Option<(f64, f64)> {
    let (difference, before) = (row.difference?, row.before?.mean);
    (before > 0.0).then(|| (difference.mean / before, difference.half_width / before))
}

/// The change in digits, and its half width: in percent, or as a difference where there is nothing to take percents of.
fn change(row: &CompareRow) -> (String, Option<String>) {
    let apart = |(mean, half)| {
        let (mean, half) = digits::difference_apart(mean, half);
        (mean, Some(half))
    };
    match (share(row), row.difference) {
        (Some((mean, half)), _) => {
            let (mean, half) = apart((mean * 100.0, half * 100.0));
            (mean + " %", half)
        }
        (None, Some(difference)) => apart((difference.mean, difference.half_width)),
        (None, None) => (digits::MISSING.to_owned(), None),
    }
}

/// Both ratios: `0.0601 → 0.0899`.
fn from_to(row: &CompareRow) -> String {
    let shown = |ratio: Option<Interval>| {
        ratio.map_or_else(|| digits::MISSING.to_owned(), |ratio| digits::significant(ratio.mean))
    };
    format!("{} \u{2192} {}", shown(row.before), shown(row.after))
}

fn row(arms: &Arms<'_>, row: &CompareRow) -> Row {
    let (class, verdict) = match &row.verdict {
        Verdict::Better => ("better", "better".to_owned()),
        Verdict::Worse => ("worse", "worse".to_owned()),
        Verdict::NoDifference => ("muted", String::new()),
        Verdict::NotComparable(_) => ("muted", row.verdict.to_string()),
    };
    let (shown, spread) = change(row);
    Row {
        name: row.arm.clone(),
        mark: arms.mark(&row.arm),
        value: share(row).map(|(mean, half)| (mean, Some(half))),
        shown,
        spread,
        remark: (!verdict.is_empty()).then_some((class, verdict)),
    }
}

//! A run as text: a table for each case, for a terminal.

use core::fmt::Write as _;

use super::schema::{Cell, Check, Line, Metric};
use crate::stats::Interval;

/// A column: its head, and which metric in which unit.
struct Column {
    head: &'static str,
    metric: &'static str,
    /// What a shown unit is of the metric's.
    scale: f64,
    digits: usize,
}

/// The columns of a suite behind the latencies.
const COLUMNS: &[Column] = &[
    Column { head: "cpu, us", metric: "cpu", scale: 1e3, digits: 2 },
    Column { head: "process, us", metric: "process_cpu", scale: 1e3, digits: 2 },
    Column { head: "switches", metric: "switches", scale: 1.0, digits: 2 },
    Column { head: "energy, mJ", metric: "energy", scale: 1e-3, digits: 3 },
    Column { head: "per s", metric: "throughput", scale: 1.0, digits: 0 },
    Column { head: "request, ms", metric: "request_latency", scale: 1e6, digits: 2 },
];

/// The metrics whose ratios are shown, in their order; of each case at most two.
const RATIOS: &[(&str, &str)] = &[("throughput", "per s"), ("latency_p50", "p50"), ("cpu", "cpu")];

/// How wide a column is at least.
const WIDTH: usize = 8;

/// All cases of a run, with the checks that were not as they should be; of an earlier run too, beside its ratios.
pub fn table(lines: &[Line], earlier: &[Line]) -> String {
    let mut text = String::new();
    let cells: Vec<&Cell> = cells(lines).collect();
    let mut rest = &cells[..];
    while let Some(first) = rest.first() {
        let same = |cell: &&&Cell| cell.suite == first.suite && cell.case == first.case;
        let (case, others) = rest.split_at(rest.iter().take_while(same).count());
        let _ = writeln!(text, "{}", case_table(case, earlier));
        rest = others;
    }
    let bad: Vec<_> = checks(lines).filter(|(_, check)| !check.good).collect();
    if bad.is_empty() {
        text.push_str("checks     all as they should be\n");
    }
    for (when, Check { name, found, .. }) in bad {
        let _ = writeln!(text, "warning    {name} ({when}): {found}");
    }
    text
}

fn cells(lines: &[Line]) -> impl Iterator<Item = &Cell> {
    lines.iter().filter_map(|line| match line {
        Line::Cell(cell) => Some(cell),
        _ => None,
    })
}

/// When each was made, and what was found.
fn checks(lines: &[Line]) -> impl Iterator<Item = (&'static str, &Check)> {
    lines.iter().flat_map(|line| {
        let (when, checks) = match line {
            Line::Run(run) => ("before", &run.checks[..]),
            Line::End(end) => ("after", &end.checks[..]),
            _ => ("", &[][..]),
        };
        checks.iter().map(move |check| (when, check))
    })
}

fn case_table(case: &[&Cell], earlier: &[Line]) -> String {
    let has = |metric: &str| case.iter().any(|cell| cell.metrics.contains_key(metric));
    let columns: Vec<&Column> = COLUMNS.iter().filter(|column| has(column.metric)).collect();
    let latency = case.iter().any(|cell| cell.latency.is_some());
    let ratios: Vec<_> = RATIOS.iter().filter(|(metric, _)| has(metric)).take(2).collect();
    let before = |cell: &Cell| cells(earlier).find(|old| same_cell(old, cell));
    let compared = case.iter().any(|cell| before(cell).is_some());

    let mut head = vec!["arm".to_owned()];
    if latency {
        head.extend(["p50, us", "p99, us", "max, us"].map(str::to_owned));
    }
    head.extend(columns.iter().map(|column| column.head.to_owned()));
    head.extend(ratios.iter().map(|(_, name)| format!("{name} by base")));
    if compared {
        head.extend(ratios.iter().map(|(_, name)| format!("{name} before")));
    }
    let mut rows = vec![head];
    for cell in case {
        let mut row = vec![cell.arm.clone()];
        if latency {
            let us = |ns: fn(&crate::Quantiles) -> u64| {
                cell.latency.as_ref().map_or("-".to_owned(), |latency| number(real(ns(latency)) / 1e3, 1))
            };
            row.extend([us(|l| l.p50_ns), us(|l| l.p99_ns), us(|l| l.max_ns)]);
        }
        row.extend(columns.iter().map(|column| {
            let value = cell.metrics.get(column.metric);
            value.map_or("-".to_owned(), |metric| number(metric.value.mean / column.scale, column.digits))
        }));
        row.extend(ratios.iter().map(|(metric, _)| ratio(cell.metrics.get(*metric))));
        if compared {
            row.extend(
                ratios.iter().map(|(metric, _)| ratio(before(cell).and_then(|old| old.metrics.get(*metric)))),
            );
        }
        rows.push(row);
    }
    let Some(first) = case.first() else { return String::new() };
    let title = format!("{}: {}   ({} rounds, base {})", first.suite, first.case, first.rounds, first.base);
    aligned(&title, &rows)
}

/// Whether both are of one arm in one case.
fn same_cell(one: &Cell, other: &Cell) -> bool {
    (&one.suite, &one.case, &one.arm) == (&other.suite, &other.case, &other.arm)
}

/// The ratio with what it may be off by.
fn ratio(metric: Option<&Metric>) -> String {
    match metric.and_then(|metric| metric.ratio) {
        Some(Interval { mean, half_width: Some(half), .. }) => format!("{mean:.3} ±{half:.3}"),
        Some(Interval { mean, .. }) => format!("{mean:.3}"),
        None => "-".to_owned(),
    }
}

fn number(value: f64, digits: usize) -> String {
    format!("{value:.digits$}")
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn real(value: u64) -> f64 {
    value as f64
}

/// Columns as wide as what is in them: the first to the left, the others to the right.
fn aligned(title: &str, rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(if column == 0 { 0 } else { WIDTH })
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = format!("{title}\n");
    for row in rows {
        let mut line = String::from("  ");
        for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ =
                if index == 0 { write!(line, "{cell:<width$}") } else { write!(line, "  {cell:>width$}") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ab::rounds::{ArmLabel, Label, Rounds, Turn, quantity};
    use crate::ab::schema::End;

    /// A run of two arms, the second of which costs `share` of the first.
    fn run(share: f64) -> Vec<Line> {
        let mut rounds = Rounds::new(2);
        for _ in 0..3 {
            rounds
                .round(|arm| {
                    let mut turn = Turn::new();
                    turn.set(quantity::CPU, Some(if arm == 0 { 5e6 } else { 5e6 * share }));
                    turn.late(vec![2_300, 2_400, 2_500]);
                    Ok::<_, ()>(turn)
                })
                .unwrap();
        }
        let arms = ["spin", "flag+predict"].map(|arm| ArmLabel {
            arm: arm.to_owned(),
            family: "raw".to_owned(),
            plan: None,
        });
        let label = Label { suite: "wake", case: "5000 us".to_owned() };
        let mut lines: Vec<_> = (0..2).map(|arm| Line::Cell(rounds.cell(&label, &arms, (arm, 0)))).collect();
        let check = |name: &str, good| Check { name: name.to_owned(), good, found: "so much".to_owned() };
        lines.push(Line::End(End { took_s: 1.0, checks: vec![check("load", false), check("speed", true)] }));
        lines
    }

    #[test]
    fn a_table_has_a_row_an_arm_and_what_is_not_as_it_should_be() {
        let text = table(&run(0.03), &[]);
        let expected = "\
wake: 5000 us   (3 rounds, base spin)
  arm            p50, us   p99, us   max, us   cpu, us    p50 by base   cpu by base
  spin               2.4       2.5       2.5   5000.00   1.000 ±0.000  1.000 ±0.000
  flag+predict       2.4       2.5       2.5    150.00   1.000 ±0.000  0.030 ±0.000

warning    load (after): so much
";
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&text), words(expected), "{text}");
        // Columns end at one place.
        let ends: Vec<_> = text.lines().skip(1).take(3).map(|line| line.chars().count()).collect();
        assert_eq!(ends, [ends[0]; 3], "{text}");
    }

    #[test]
    fn an_earlier_run_is_shown_beside() {
        let text = table(&run(0.03), &run(0.05));
        assert!(text.contains("cpu before") && text.contains("0.050 ±0.000"), "{text}");
    }
}

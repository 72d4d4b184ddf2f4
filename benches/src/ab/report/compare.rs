//! What changed from one run to another.
//!
//! Times are not compared: the machine of today is not that of yesterday. Within each run every arm is paired with the
//! base arm by round; what is compared are these ratios, by Welch's interval, since two runs share no rounds.

use std::collections::HashMap;
use std::fmt;

use super::digits;
use super::read::RunFile;
use super::table::Grid;
use super::welch::Difference;
use crate::Interval;
use crate::ab::schema::{Better, Cell, Metric, Order};
use crate::plain;

/// The fewest rounds with which a run is compared: of two, Student's interval says next to nothing.
pub const ROUNDS_MIN: usize = 3;

/// One run held against an earlier one.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// The file of the earlier run.
    pub before: String,
    /// The file of the later run.
    pub after: String,
    /// The line at which the earlier run was cut off, where it was.
    pub before_cut_off: Option<usize>,
    /// What else differs between them, for whoever reads the rows.
    pub notes: Vec<String>,
    /// Each suite, case, arm and metric that both have and one has a ratio of, in the order of the later run. Without
    /// the base arms, whose ratios are 1.
    pub rows: Vec<Row>,
}

/// One metric of one arm in one case, in both runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// See [`Cell::suite`].
    pub suite: String,
    /// See [`Cell::case`].
    pub case: String,
    /// See [`Cell::arm`].
    pub arm: String,
    /// Its name.
    pub metric: String,
    /// Which way it is better.
    pub better: Better,
    /// The ratio to the base arm in the earlier run.
    pub before: Option<Interval>,
    /// The ratio to the base arm in the later run.
    pub after: Option<Interval>,
    /// The later ratio less the earlier one, where both have an interval; shown even where it does not count.
    pub difference: Option<Difference>,
    /// What to think of it.
    pub verdict: Verdict,
}

/// What to think of a difference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The later run is better, and the whole interval of the difference says so.
    Better,
    /// The later run is worse, and the whole interval of the difference says so.
    Worse,
    /// The interval of the difference holds zero: there may be none, or one too small to be seen.
    NoDifference,
    /// The two say nothing about each other.
    NotComparable(Why),
}

/// Why two measurements say nothing about each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// They were made on different machines.
    OtherMachine {
        /// What differs: `CPU`, `device`, ..
        what: &'static str,
        /// In the earlier run.
        before: String,
        /// In the later run.
        after: String,
    },
    /// Their ratios are to different arms.
    OtherBase {
        /// In the earlier run.
        before: String,
        /// In the later run.
        after: String,
    },
    /// One of them has fewer than [`ROUNDS_MIN`] paired rounds.
    TooFewRounds {
        /// The fewer of both.
        rounds: usize,
    },
    /// One of them has no ratio: the metric cannot be read there, or was zero in the base arm.
    NoRatio,
    /// The metric is in another unit, or better the other way.
    OtherMeaning,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Better => f.write_str("better"),
            Self::Worse => f.write_str("worse"),
            Self::NoDifference => f.write_str("no difference seen"),
            Self::NotComparable(why) => write!(f, "not comparable: {why}"),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherMachine { what, before, after } => write!(f, "other {what}, {before} and {after}"),
            Self::OtherBase { before, after } => write!(f, "other base, {before} and {after}"),
            Self::TooFewRounds { rounds } => {
                write!(f, "too few rounds, {rounds} of at least {ROUNDS_MIN}")
            }
            Self::NoRatio => f.write_str("no ratio in one of them"),
            Self::OtherMeaning => f.write_str("the metric has another unit or sense"),
        }
    }
}

impl Comparison {
    /// Holds `after` against `before`.
    pub fn of(before: &RunFile, after: &RunFile) -> Self {
        let machine = other_machine(before, after);
        let cells = [before, after].map(Cells::of);
        let mut rows = Vec::new();
        for cell in after.cells.iter().filter(|cell| cell.arm != cell.base) {
            let Some(earlier) = cells[0].like(cell) else { continue };
            for (name, metric) in &cell.metrics {
                let Some(metric_before) = earlier.metrics.get(name) else { continue };
                // Without a ratio in either there is nothing to compare: a base arm that never switches, say.
                if metric_before.ratio.is_some() || metric.ratio.is_some() {
                    let sides = [(earlier, metric_before), (cell, metric)];
                    rows.push(row(name, sides, machine.as_ref()));
                }
            }
        }
        Self {
            before: before.name.clone(),
            after: after.name.clone(),
            before_cut_off: before.end.is_none().then_some(before.last_line),
            notes: notes(before, after, &cells),
            rows,
        }
    }

    /// How many rows can be expected to show a difference by chance alone: one in a hundred of those compared.
    pub fn by_chance(&self) -> f64 {
        let compared = self.rows.iter().filter(|row| !matches!(row.verdict, Verdict::NotComparable(_)));
        compared.map(|_| 1.0 - crate::CONFIDENCE).sum()
    }

    /// How many rows have this verdict.
    pub fn count(&self, verdict: impl Fn(&Verdict) -> bool) -> usize {
        self.rows.iter().filter(|row| verdict(&row.verdict)).count()
    }

    /// What it comes to, in one sentence.
    pub fn summary(&self) -> String {
        let better = self.count(|verdict| *verdict == Verdict::Better);
        let worse = self.count(|verdict| *verdict == Verdict::Worse);
        let none = self.count(|verdict| *verdict == Verdict::NoDifference);
        let not = self.rows.len() - better - worse - none;
        format!(
            "{better} better, {worse} worse, {none} without a difference seen, {not} not comparable; by chance alone about {:.1} would differ",
            self.by_chance()
        )
    }

    /// As a table for a terminal.
    pub fn table(&self) -> String {
        let words = ["case", "arm", "metric", "verdict", "ratio before", "ratio after", "difference"];
        let mut grid = Grid::new(4, words.map(str::to_owned).to_vec());
        for row in &self.rows {
            let interval = |interval: Option<Interval>| {
                interval.map_or_else(|| digits::MISSING.to_owned(), digits::ratio)
            };
            grid.row(vec![
                format!("{}/{}", row.suite, row.case),
                row.arm.clone(),
                row.metric.clone(),
                row.verdict.to_string(),
                interval(row.before),
                interval(row.after),
                row.shown_difference(),
            ]);
        }
        let notes: Vec<String> = self.notes.iter().map(|note| format!("  note: {}\n", plain(note))).collect();
        let (before, after) = (plain(&self.before), plain(&self.after));
        let nothing =
            if self.rows.is_empty() { "  no arm of a case is in both: nothing is compared\n" } else { "" };
        format!("from {before} to {after}\n{}\n{grid}{nothing}\n  {}\n", notes.concat(), self.summary())
    }
}

/// The cells of a file by their suite, case and arm.
struct Cells<'a>(HashMap<[&'a str; 3], &'a Cell>);

impl<'a> Cells<'a> {
    fn of(file: &'a RunFile) -> Self {
        Self(file.cells.iter().map(|cell| (place(cell), cell)).collect())
    }

    /// The one at the place of this one.
    fn like(&self, cell: &Cell) -> Option<&'a Cell> {
        self.0.get(&place(cell)).copied()
    }
}

fn place(cell: &Cell) -> [&str; 3] {
    [&cell.suite, &cell.case, &cell.arm]
}

impl Row {
    /// The difference with its interval, as text.
    pub(crate) fn shown_difference(&self) -> String {
        let shown = |difference: Difference| digits::difference(difference.mean, difference.half_width);
        self.difference.map_or_else(|| digits::MISSING.to_owned(), shown)
    }
}

fn row(name: &str, sides: [(&Cell, &Metric); 2], machine: Option<&Why>) -> Row {
    let [(earlier, metric_before), (cell, metric)] = sides;
    let (before, after) = (metric_before.ratio, metric.ratio);
    let difference = before.zip(after).and_then(|(before, after)| Difference::between(before, after));
    let verdict = match (machine, before.zip(after), difference) {
        (Some(why), ..) => Verdict::NotComparable(why.clone()),
        _ if earlier.base != cell.base => {
            Verdict::NotComparable(Why::OtherBase { before: earlier.base.clone(), after: cell.base.clone() })
        }
        _ if metric_before.unit != metric.unit || metric_before.better != metric.better => {
            Verdict::NotComparable(Why::OtherMeaning)
        }
        (_, None, _) => Verdict::NotComparable(Why::NoRatio),
        (_, Some((before, after)), difference) => {
            let rounds = before.n.min(after.n);
            match difference.filter(|_| rounds >= ROUNDS_MIN) {
                None => Verdict::NotComparable(Why::TooFewRounds { rounds }),
                Some(difference) => judged(difference, metric.better),
            }
        }
    };
    Row {
        suite: cell.suite.clone(),
        case: cell.case.clone(),
        arm: cell.arm.clone(),
        metric: name.to_owned(),
        better: metric.better,
        before,
        after,
        difference,
        verdict,
    }
}

fn judged(difference: Difference, better: Better) -> Verdict {
    let (low, high) = difference.ends();
    match better {
        Better::Less if high < 0.0 => Verdict::Better,
        Better::More if low > 0.0 => Verdict::Better,
        Better::Less if low > 0.0 => Verdict::Worse,
        Better::More if high < 0.0 => Verdict::Worse,
        Better::Less | Better::More => Verdict::NoDifference,
    }
}

/// What makes the machines, or what ran on them, different ones.
fn other_machine(before: &RunFile, after: &RunFile) -> Option<Why> {
    let of = |file: &RunFile| {
        let environment = &file.run.environment;
        [
            ("device", file.run.device.clone()),
            ("GPU", told(file, "gpu")),
            ("CPU", environment.cpu.clone()),
            ("number of CPUs", environment.cpus.to_string()),
            ("system", environment.os.clone()),
            ("architecture", environment.arch.clone()),
            ("build", if environment.release { "release" } else { "debug" }.to_owned()),
        ]
    };
    let differs = of(before).into_iter().zip(of(after)).find(|((_, before), (_, after))| before != after);
    differs.map(|((what, before), (_, after))| Why::OtherMachine { what, before, after })
}

/// What a file says of its environment by this name, if anything: not every version of the environment has every field.
fn told(file: &RunFile, name: &str) -> String {
    let environment = serde_json::to_value(&file.run.environment);
    let field = environment.ok().and_then(|environment| Some(environment.get(name)?.as_str()?.to_owned()));
    field.unwrap_or_else(|| "unknown".to_owned())
}

/// In a word.
const fn order(order: Order) -> &'static str {
    match order {
        Order::Rotated => "rotated",
        Order::Balanced => "balanced",
    }
}

/// What differs, but does not make the two different machines.
fn notes(before: &RunFile, after: &RunFile, cells: &[Cells<'_>; 2]) -> Vec<String> {
    let slack = |slack: Option<u64>| slack.map_or_else(|| "unknown".to_owned(), digits::ns);
    let of = |file: &RunFile| {
        let environment = &file.run.environment;
        [
            ("kernel", environment.kernel.clone()),
            ("driver", told(file, "driver")),
            ("clock source", told(file, "clock_source")),
            ("version", environment.version.clone()),
            ("commit", told(file, "commit")),
            ("timer slack", slack(environment.timer_slack_ns)),
            ("seed", environment.seed.to_string()),
            ("order of turns", order(file.run.order).to_owned()),
            ("length", if file.run.quick { "quick" } else { "full" }.to_owned()),
        ]
    };
    let pairs = of(before).into_iter().zip(of(after));
    let differing = pairs.filter(|((_, before), (_, after))| before != after);
    let mut notes: Vec<String> = differing
        .map(|((what, before), (_, after))| format!("other {what}: {before}, then {after}"))
        .collect();
    for file in [before, after] {
        if file.end.is_none() {
            notes.push(format!("{} was cut off at line {}", file.name, file.last_line));
        }
        let last = file.end.iter().flat_map(|end| &end.checks);
        for check in file.run.checks.iter().chain(last).filter(|check| !check.good) {
            notes.push(format!("{}: {}: {}", file.name, check.name, check.found));
        }
    }
    let replanned = after.cells.iter().filter(|cell| {
        let earlier = cells[0].like(cell);
        earlier.is_some_and(|earlier| earlier.plan != cell.plan)
    });
    let count = replanned.count();
    if count > 0 {
        notes.push(format!("{} had another plan of the same name", digits::counted(count, "cell")));
    }
    let missing = before.cells.iter().filter(|cell| cells[1].like(cell).is_none());
    let added = after.cells.iter().filter(|cell| cells[0].like(cell).is_none());
    for (count, file) in [(missing.count(), before), (added.count(), after)] {
        if count > 0 {
            notes.push(format!("in {} only: {}", file.name, digits::counted(count, "cell")));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_the_whole_interval_and_knows_which_way_is_better() {
        let difference = |mean, half_width| Difference { mean, half_width, degrees: 8.0 };
        for (mean, half, less, more) in [
            (-0.2, 0.1, Verdict::Better, Verdict::Worse),
            (0.2, 0.1, Verdict::Worse, Verdict::Better),
            (0.2, 0.2, Verdict::NoDifference, Verdict::NoDifference),
            (0.0, 0.0, Verdict::NoDifference, Verdict::NoDifference),
        ] {
            assert_eq!(judged(difference(mean, half), Better::Less), less, "{mean} {half}");
            assert_eq!(judged(difference(mean, half), Better::More), more, "{mean} {half}");
        }
    }
}

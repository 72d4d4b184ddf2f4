//! `--fail-if`: a condition on a ratio or a count, under which a run has failed.
//!
//! The grammar and its reasons stand at [`Condition`].

mod parse;

use std::fmt;

use super::compare::{Comparison, ROUNDS_MIN, Row};
use super::digits;
use super::read::RunFile;
use crate::Interval;
use crate::ab::schema::Cell;

pub use parse::ParseError;

/// A condition under which a run has failed.
///
/// ```text
/// condition = quantity "(" place ")" "." metric op bound
/// quantity  = "ratio"     the metric by that of the base arm, paired by round
///           / "change"    that ratio in this run less that in the first of the files (with --compare)
///           / "count"     the metric itself, of those that are counted, not timed: instructions
/// place     = part "/" part "/" part          suite, case and arm
/// part      = 1*char / DQUOTE *char DQUOTE    `*` outside of quotes stands for anything, also for nothing
/// metric    = 1*( ALPHA / DIGIT / "_" )
/// op        = ">" / ">=" / "<" / "<="
/// bound     = [ "+" / "-" ] 1*DIGIT [ "." 1*DIGIT ]
/// ```
///
/// Blanks around a part, an operator or a bound do not count. A part with `/`, `(`, `)`, `*` or a quote in it is written in
/// quotes, where `\` stands before a quote or a `\`.
///
/// **The safe side.** A condition holds only where all of the 99 % interval fulfils it: `ratio(..) > 1.05` holds where
/// the interval's low end is above 1.05. So what chance can explain fails no run; what is not that sure is said to be
/// "not shown". A condition that nothing in the file can be held against is an error, never a pass; so is one on a file that was cut off, whatever is left
/// of it: what the condition is about may be in what is missing.
///
/// **No times.** A bound on nanoseconds fails on another machine, or on the same one on another day, for no fault of the
/// code. A ratio to an arm that took turns within the same run does not.
///
/// ```
/// use wakeline_benches::ab::report::{Condition, Quantity, Test};
/// let condition: Condition = "ratio(wake/200 us/flag*).cpu > 0.1".parse()?;
/// assert_eq!((condition.quantity(), condition.test()), (Quantity::Ratio, Test::Above));
///
/// let error = "ratio(wake/200 us).cpu > 0.1".parse::<Condition>().unwrap_err();
/// assert_eq!(error.column(), 18);
/// # Ok::<(), wakeline_benches::ab::report::ParseError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    text: String,
    quantity: Quantity,
    place: [Pattern; 3],
    metric: String,
    test: Test,
    bound: f64,
}

/// What is held against the bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quantity {
    /// The metric by that of the base arm, paired by round.
    Ratio,
    /// That ratio less the one in the first of the files.
    Change,
    /// The metric itself, of those that are counted.
    Count,
}

/// How it is held against the bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Test {
    /// `>`
    Above,
    /// `>=`
    AtLeast,
    /// `<`
    Below,
    /// `<=`
    AtMost,
}

impl Test {
    fn of(self, value: f64, bound: f64) -> bool {
        match self {
            Self::Above => value > bound,
            Self::AtLeast => value >= bound,
            Self::Below => value < bound,
            Self::AtMost => value <= bound,
        }
    }
}

/// A part of a place: pieces of text with anything between them.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Pattern {
    pieces: Vec<String>,
}

impl Pattern {
    fn matches(&self, text: &str) -> bool {
        let Some((first, rest)) = self.pieces.split_first() else { return false };
        let Some((last, middle)) = rest.split_last() else { return text == first };
        let Some(mut left) = text.strip_prefix(first.as_str()) else { return false };
        for piece in middle {
            // The earliest place leaves the most to the pieces behind it.
            let Some(at) = left.find(piece.as_str()) else { return false };
            left = &left[at + piece.len()..];
        }
        left.ends_with(last.as_str())
    }
}

/// A condition held against one cell.
#[derive(Clone, PartialEq, Debug)]
pub struct Judged {
    /// Suite, case and arm, with `/` between them.
    pub place: String,
    /// The mean.
    pub mean: f64,
    /// The ends of its interval.
    pub ends: (f64, f64),
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of holding a condition against a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All of the interval fulfils it.
    Holds,
    /// A part of the interval does: nothing is shown.
    NotShown,
    /// Nothing of the interval does.
    HoldsNot,
}

/// Why a condition cannot be held against a run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unjudged {
    /// No cell is at its place.
    #[error("no suite, case and arm of {file} match; it has: {}", .places.join("; "))]
    NoPlace {
        /// The run's file.
        file: String,
        /// Some of the places that there are.
        places: Vec<String>,
    },
    /// No cell at its place has what is asked for.
    #[error("nothing in {file} can be held against it: {}", .why.join("; "))]
    Nothing {
        /// The run's file.
        file: String,
        /// Each cell at its place, and why not.
        why: Vec<String>,
    },
    /// Some of it can, and some cannot.
    #[error("not all of {file} can be held against it: {}", .why.join("; "))]
    Partly {
        /// The run's file.
        file: String,
        /// What cannot, and why not.
        why: Vec<String>,
    },
    /// It asks for a change, and there is only one run.
    #[error("`change` is from the first file to the others: give two at least, with --compare")]
    NoComparison,
}

/// How many places an error lists.
const PLACES_MAX: usize = 8;

impl Condition {
    /// What is held against the bound.
    pub const fn quantity(&self) -> Quantity {
        self.quantity
    }

    /// How it is held against the bound.
    pub const fn test(&self) -> Test {
        self.test
    }

    /// Holds it against every cell at its place: what came of each, and what else is to be judged and cannot be, with the reason. A guard passes only
    /// where there is nothing of the latter. The base arm counts only where nothing else would: its ratio is 1.
    ///
    /// # Errors
    ///
    /// [`Unjudged`]: no cell can be held against it, and a guard that guards nothing does not pass.
    pub fn judge(
        &self,
        file: &RunFile,
        comparison: Option<&Comparison>,
    ) -> Result<(Vec<Judged>, Vec<String>), Unjudged> {
        if self.quantity == Quantity::Change && comparison.is_none() {
            return Err(Unjudged::NoComparison);
        }
        let [suite, case, arm] = &self.place;
        let here =
            |cell: &&Cell| suite.matches(&cell.suite) && case.matches(&cell.case) && arm.matches(&cell.arm);
        let (mut judged, mut why) = (Vec::new(), self.missing(file, comparison));
        let mut left = why.clone();
        let rows = comparison.iter().flat_map(|comparison| &comparison.rows);
        let rows: Vec<&Row> = rows.filter(|row| row.metric == self.metric).collect();
        for cell in file.cells.iter().filter(here) {
            match self.ends(cell, &rows).and_then(finite) {
                Ok((mean, ends)) => {
                    let outcome = self.outcome(ends);
                    judged.push(Judged { place: place(cell), mean, ends, outcome });
                }
                Err(reason) => {
                    let reason = format!("{}: {reason}", place(cell));
                    // A pattern that fits the base as well does not mean it.
                    if cell.arm != cell.base {
                        left.push(reason.clone());
                    }
                    why.push(reason);
                }
            }
        }
        let name = || file.name.clone();
        match (judged.is_empty(), why.is_empty()) {
            (false, _) => Ok((judged, left)),
            (true, false) => Err(Unjudged::Nothing { file: name(), why }),
            (true, true) => {
                let places = file.cells.iter().map(place).take(PLACES_MAX).collect();
                Err(Unjudged::NoPlace { file: name(), places })
            }
        }
    }

    /// What is known to be missing in the files that it is about, and where: what was cut off, and of a file that does not count its lines a suite that its first line
    /// promises. (Of one that does, none of the chosen arms were for it.)
    fn missing(&self, file: &RunFile, comparison: Option<&Comparison>) -> Vec<String> {
        let before = comparison.filter(|_| self.quantity == Quantity::Change);
        let before = before.and_then(|comparison| Some((&comparison.before, comparison.before_cut_off?)));
        let before = before.map(|(name, line)| format!("{name}, line {line}"));
        let this = file.end.is_none().then(|| format!("line {}", file.last_line));
        let told =
            |place| format!("{place}: the run was cut off here, and what comes after cannot be judged");
        let [suite, ..] = &self.place;
        let promised = file.run.suites.iter().filter(|_| file.is_counted() == Some(false));
        let empty = promised.filter(|name| suite.matches(name) && file.cells_of(name).next().is_none());
        let empty = empty.map(|name| format!("line 1 says that `{name}` was run, and no cell of it is here"));
        before.into_iter().chain(this).map(told).chain(empty).collect()
    }

    fn outcome(&self, (low, high): (f64, f64)) -> Outcome {
        match (self.test.of(low, self.bound), self.test.of(high, self.bound)) {
            (true, true) => Outcome::Holds,
            (false, false) => Outcome::HoldsNot,
            (true, false) | (false, true) => Outcome::NotShown,
        }
    }

    /// The mean and the ends of what is asked for, or why the cell does not have it.
    fn ends(&self, cell: &Cell, rows: &[&Row]) -> Result<(f64, (f64, f64)), String> {
        let Some(metric) = cell.metrics.get(&self.metric) else {
            let has: Vec<&str> = cell.metrics.keys().map(String::as_str).collect();
            return Err(format!("no `{}`; it has {}", self.metric, has.join(", ")));
        };
        let around =
            |interval: Interval, half: f64| (interval.mean, (interval.mean - half, interval.mean + half));
        match self.quantity {
            // The same program counts the same: one round is enough.
            Quantity::Count => Ok(around(metric.value, metric.value.half_width.unwrap_or(0.0))),
            _ if cell.arm == cell.base => Err("it is the base arm, whose ratio is 1".to_owned()),
            Quantity::Ratio => {
                let ratio = metric.ratio.ok_or("it has no ratio to the base arm")?;
                let half = ratio.half_width.filter(|_| ratio.n >= ROUNDS_MIN);
                let few = || format!("{} rounds, of at least {ROUNDS_MIN}", ratio.n);
                Ok(around(ratio, half.ok_or_else(few)?))
            }
            Quantity::Change => {
                let same =
                    |row: &&&Row| (&row.suite, &row.case, &row.arm) == (&cell.suite, &cell.case, &cell.arm);
                let row = rows.iter().find(same).ok_or("the first file has no such cell")?;
                match (&row.verdict, row.difference) {
                    (super::Verdict::NotComparable(why), _) => Err(format!("not comparable: {why}")),
                    (_, Some(difference)) => Ok((difference.mean, difference.ends())),
                    (_, None) => Err("no difference".to_owned()),
                }
            }
        }
    }
}

/// The same where its ends are numbers: whatever is compared with what is none is false, and would pass.
fn finite((mean, (low, high)): (f64, (f64, f64))) -> Result<(f64, (f64, f64)), String> {
    if low.is_finite() && high.is_finite() {
        return Ok((mean, (low, high)));
    }
    Err("the ends of its interval are no numbers".to_owned())
}

fn place(cell: &Cell) -> String {
    format!("{}/{}/{}", cell.suite, cell.case, cell.arm)
}

impl fmt::Display for Condition {
    /// As it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = self.ends;
        let [mean, low, high] = [self.mean, low, high].map(digits::significant);
        let outcome = match self.outcome {
            Outcome::Holds => "holds: all of the interval fulfils it",
            Outcome::NotShown => "not shown: only a part of the interval fulfils it",
            Outcome::HoldsNot => "does not hold",
        };
        write!(f, "{}: {mean}, 99 % interval {low} to {high}: {outcome}", self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome::{Holds, HoldsNot, NotShown};
    use super::*;

    fn pattern(pieces: &[&str]) -> Pattern {
        Pattern { pieces: pieces.iter().map(|piece| (*piece).to_owned()).collect() }
    }

    #[test]
    fn a_star_stands_for_anything() {
        for (pieces, matching, others) in [
            (&["flag"][..], &["flag"][..], &["flags", "", "a flag"][..]),
            (&["flag", ""], &["flag", "flags"], &["fla", "a flag"]),
            (&["", ""], &["", "x"], &[]),
            (&["a", "b", "b"], &["abb", "a-b-b", "abbb"], &["ab", "a-b", "bb"]),
            (&["ab", "ba"], &["abba", "abxba"], &["aba"]),
        ] {
            let pattern = pattern(pieces);
            assert!(matching.iter().all(|text| pattern.matches(text)), "{pieces:?}");
            assert!(!others.iter().any(|text| pattern.matches(text)), "{pieces:?}");
        }
    }

    #[test]
    fn a_condition_holds_where_all_of_the_interval_fulfils_it() {
        let outcome = |text: &str, ends| text.parse::<Condition>().unwrap().outcome(ends);
        for (test, below, across, above) in [
            (">", HoldsNot, NotShown, Holds),
            (">=", HoldsNot, NotShown, Holds),
            ("<", Holds, NotShown, HoldsNot),
            ("<=", Holds, NotShown, HoldsNot),
        ] {
            let text = format!("ratio(a/b/c).cpu {test} 1.0");
            let ends = [(0.8, 0.9), (0.9, 1.1), (1.1, 1.2)];
            assert_eq!(ends.map(|ends| outcome(&text, ends)), [below, across, above], "{text}");
        }
        assert_eq!(outcome("ratio(a/b/c).cpu > 1", (1.0, 1.0)), HoldsNot);
        assert_eq!(outcome("ratio(a/b/c).cpu >= 1", (1.0, 1.0)), Holds);
    }
}

//! What the gates took, against their budgets.

use std::fmt;
use std::time::Duration;

use super::step::Group;
use crate::missing::Outcome;

/// One gate that ran to its end.
#[derive(Debug)]
pub(crate) struct Took {
    pub(crate) name: &'static str,
    pub(crate) group: Group,
    pub(crate) time: Duration,
    pub(crate) outcome: Outcome,
}

impl Took {
    pub(crate) fn done(name: &'static str, group: Group, time: Duration) -> Self {
        Self { name, group, time, outcome: Outcome::Done }
    }
}

/// All gates that ran to their end.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) took: Vec<Took>,
}

impl Report {
    fn total(&self, group: Option<Group>) -> Duration {
        self.took
            .iter()
            .filter(|took| group.is_none_or(|group| took.group == group))
            .map(|took| took.time)
            .sum()
    }

    /// The groups that took longer than their budget, each as a sentence.
    pub(crate) fn overruns(&self) -> Vec<String> {
        let over = |group: &&Group| self.total(Some(**group)) > group.budget();
        Group::ALL
            .iter()
            .filter(over)
            .map(|group| {
                let took = self.total(Some(*group)).as_secs();
                format!("{group} took {took} s of {} s", group.budget().as_secs())
            })
            .collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{:<24} {:>9}  budget of", "gate", "seconds")?;
        for Took { name, group, time, outcome } in &self.took {
            let skipped = if *outcome == Outcome::Done { "" } else { "  (skipped)" };
            writeln!(f, "{name:<24} {:>9.1}  {group}{skipped}", time.as_secs_f64())?;
        }
        let budget: Duration = Group::ALL.iter().map(|group| group.budget()).sum();
        writeln!(f, "{:<24} {:>9.1}  of {} s", "total", self.total(None).as_secs_f64(), budget.as_secs())?;
        let skips = self.took.iter().filter_map(|took| match &took.outcome {
            Outcome::Skipped(why) => Some((took.name, why)),
            Outcome::Done => None,
        });
        let skipped = skips.clone().count();
        for (name, why) in skips {
            writeln!(f, "skipped: {name}: {why}")?;
        }
        if skipped > 0 {
            writeln!(f, "skipped gates: {skipped}")?;
        }
        self.overruns().iter().try_for_each(|over| writeln!(f, "warning: over the budget: {over}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_of_groups_and_skips_are_counted() {
        let minutes = |n: u64| Duration::from_secs(n * 60);
        let mut report = Report::default();
        report.took.push(Took::done("tests", Group::Tests, minutes(7)));
        assert!(report.overruns().is_empty());
        report.took.push(Took::done("instructions", Group::Tests, minutes(4)));
        assert_eq!(report.overruns(), ["tests took 660 s of 600 s"]);
        let outcome = Outcome::Skipped("no sources".to_owned());
        report.took.push(Took { outcome, ..Took::done("targets", Group::Targets, minutes(0)) });
        let text = report.to_string();
        assert!(text.contains("skipped: targets: no sources\nskipped gates: 1\n"), "{text}");
        assert!(text.contains("warning: over the budget: tests took 660 s of 600 s\n"), "{text}");
    }
}

//! What the program is asked for.

use std::path::PathBuf;

use wakeline_benches::gpu::Words;

/// What `--help` shows.
pub(crate) const USAGE: &str =
    "usage: gpu [--suite NAME].. [--seconds N] [--quick] [--driver FILE] [--json FILE]
  --suite NAME   wake, hosts, calls or after; may be given several times (default: all)
  --seconds N    measure each suite for about so long (default: 60 in wake, 30 in hosts, 5 in calls, 20 in after)
  --quick        a few waits of each kind: to see that all of it runs
  --driver FILE  load this library in place of the system's driver
  --json FILE    write a record for each case and arm, as JSON lines
Without a GPU it says so and ends with code 3.";

/// The longest that a suite may be asked to take: a day.
const SECONDS_MAX: u64 = 86_400;

/// What is measured together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Suite {
    Wake,
    Hosts,
    Calls,
    After,
}

impl Suite {
    /// All, in the order in which they are run.
    pub(crate) const ALL: [Self; 4] = [Self::Wake, Self::Hosts, Self::Calls, Self::After];

    /// What it is called in arguments.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Wake => "wake",
            Self::Hosts => "hosts",
            Self::Calls => "calls",
            Self::After => "after",
        }
    }

    const fn seconds(self) -> u64 {
        match self {
            Self::Wake => 60,
            Self::Hosts => 30,
            Self::Calls => 5,
            Self::After => 20,
        }
    }
}

/// How much a suite may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Budget {
    pub(crate) seconds: u64,
    /// As little as shows that it runs, however long that takes.
    pub(crate) quick: bool,
}

impl Budget {
    /// The fewest rounds that tell anything.
    const ROUNDS_LEAST: u64 = 3;

    /// How many rounds there are, of `round_us` each, in `percent` of the time.
    pub(crate) fn rounds(&self, percent: u64, round_us: u64) -> u64 {
        if self.quick {
            return Self::ROUNDS_LEAST;
        }
        (self.seconds * 10_000 * percent / round_us.max(1)).max(Self::ROUNDS_LEAST)
    }

    /// How many waits an arm does in a round.
    pub(crate) const fn waits(&self) -> u32 {
        if self.quick { 2 } else { 5 }
    }
}

/// The command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Args {
    seconds: Option<u64>,
    quick: bool,
    suites: Vec<Suite>,
    pub(crate) driver: Option<PathBuf>,
    pub(crate) json: Option<PathBuf>,
    pub(crate) help: bool,
}

impl Args {
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut args, mut words) = (Self::default(), Words::new(words));
        while let Some(word) = words.argument() {
            match word.as_str() {
                "--suite" => args.suites.push(words.one_of(&Suite::ALL, Suite::name)?),
                "--seconds" => args.seconds = Some(words.number(&(1..=SECONDS_MAX))?),
                "--quick" => args.quick = true,
                "--driver" => args.driver = Some(words.value()?.into()),
                "--json" => args.json = Some(words.value()?.into()),
                "--help" | "-h" => args.help = true,
                _ => return Err(words.unknown()),
            }
        }
        Ok(args)
    }

    /// The suites to run, each once, in their own order.
    pub(crate) fn suites(&self) -> impl Iterator<Item = Suite> + '_ {
        Suite::ALL.into_iter().filter(|suite| self.suites.is_empty() || self.suites.contains(suite))
    }

    pub(crate) fn budget(&self, suite: Suite) -> Budget {
        Budget { seconds: self.seconds.unwrap_or(suite.seconds()), quick: self.quick }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Args, String> {
        Args::parse(words.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_are_read_and_others_are_refused() {
        assert_eq!(parse(""), Ok(Args::default()));
        let all = Args {
            seconds: Some(3),
            quick: true,
            suites: vec![Suite::Calls],
            driver: Some("libcuda.so.1".into()),
            json: Some("a.jsonl".into()),
            help: true,
        };
        let line = "--seconds 3 --suite calls --quick --driver libcuda.so.1 --json a.jsonl -h";
        assert_eq!(parse(line), Ok(all));
        for (words, says) in [
            ("--second 3", "unknown argument `--second`"),
            ("--seconds 0", "`--seconds 0` is not from 1"),
            ("--suite burn", "`--suite burn` is none of wake, hosts, calls"),
            ("--driver", "`--driver` wants a value"),
        ] {
            let message = parse(words).unwrap_err();
            assert!(message.starts_with(says) && !message.contains('\n'), "{words}: {message}");
        }
    }

    #[test]
    fn a_budget_is_spent_on_rounds_and_never_on_fewer_than_tell_anything() {
        let budget = parse("--seconds 10").unwrap().budget(Suite::Wake);
        assert_eq!(budget.rounds(50, 1_000), 5_000);
        assert_eq!(budget.rounds(1, 1_000_000), 3);
        let quick = parse("--quick").unwrap().budget(Suite::Hosts);
        assert_eq!((quick.seconds, quick.rounds(100, 1), quick.waits()), (30, 3, 2));
    }

    #[test]
    fn the_usage_names_every_suite() {
        assert!(Suite::ALL.iter().all(|suite| USAGE.contains(suite.name())));
        assert!(parse("").unwrap().suites().eq(Suite::ALL));
    }
}

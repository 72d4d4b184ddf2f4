//! What the program is asked for.

use std::path::PathBuf;
use std::time::Duration;

/// What `--help` shows.
pub(crate) const USAGE: &str = "usage: watch [--seconds N] [--suite NAME].. [--json FILE]
  --seconds N   measure each case for so long (default: 10 in burn, 3 in the others)
  --suite NAME  cycles, flights or burn; may be given several times (default: all)
  --json FILE   write a record for each case, as JSON lines";

/// The longest that a case may be asked to take: a day.
const SECONDS_MAX: u64 = 86_400;

/// What is measured together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Suite {
    Cycles,
    Flights,
    Burn,
}

impl Suite {
    /// All, in the order in which they are run.
    pub(crate) const ALL: [Self; 3] = [Self::Cycles, Self::Flights, Self::Burn];

    /// What it is called in arguments and records.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::Flights => "flights",
            Self::Burn => "burn",
        }
    }

    /// How long a case of it takes where nothing is asked for.
    const fn seconds(self) -> u64 {
        match self {
            Self::Cycles | Self::Flights => 3,
            Self::Burn => 10,
        }
    }
}

/// The command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Args {
    seconds: Option<u64>,
    /// In the order given; none stands for all.
    suites: Vec<Suite>,
    pub(crate) json: Option<PathBuf>,
    pub(crate) help: bool,
}

impl Args {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self::default();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("`{word}` wants a value; see --help"));
            match word.as_str() {
                "--seconds" => {
                    let text = value()?;
                    let seconds = text.parse().ok().filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
                    let wrong = || format!("`--seconds {text}` is not from 1 to {SECONDS_MAX}; see --help");
                    args.seconds = Some(seconds.ok_or_else(wrong)?);
                }
                "--suite" => {
                    let name = value()?;
                    let suite = Suite::ALL.into_iter().find(|suite| suite.name() == name);
                    let wrong = || format!("`--suite {name}` is none of cycles, flights, burn; see --help");
                    args.suites.push(suite.ok_or_else(wrong)?);
                }
                "--json" => args.json = Some(value()?.into()),
                "--help" | "-h" => args.help = true,
                _ => return Err(format!("unknown argument `{word}`; see --help")),
            }
        }
        Ok(args)
    }

    /// The suites to run, each once, in their own order.
    pub(crate) fn suites(&self) -> impl Iterator<Item = Suite> + '_ {
        Suite::ALL.into_iter().filter(|suite| self.suites.is_empty() || self.suites.contains(suite))
    }

    /// How long each case of `suite` is measured.
    pub(crate) fn length(&self, suite: Suite) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(suite.seconds()))
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
            suites: vec![Suite::Burn, Suite::Cycles],
            json: Some("a.jsonl".into()),
            help: true,
        };
        assert_eq!(parse("--seconds 3 --suite burn --json a.jsonl --suite cycles -h"), Ok(all));
        for (words, says) in [
            ("--second 3", "unknown argument `--second`"),
            ("--seconds 0", "`--seconds 0` is not from 1"),
            ("--seconds", "`--seconds` wants a value"),
            ("--suite burns", "`--suite burns` is none of"),
            ("--json", "`--json` wants a value"),
        ] {
            let message = parse(words).unwrap_err();
            assert!(message.starts_with(says) && !message.contains('\n'), "{words}: {message}");
        }
    }

    #[test]
    fn suites_are_all_or_those_asked_for_and_have_their_own_length() {
        let suites = |words: &str| parse(words).unwrap().suites().collect::<Vec<_>>();
        assert_eq!(suites(""), Suite::ALL);
        assert_eq!(suites("--suite burn --suite cycles --suite burn"), [Suite::Cycles, Suite::Burn]);
        let seconds = |words: &str| Suite::ALL.map(|suite| parse(words).unwrap().length(suite).as_secs());
        assert_eq!(seconds(""), [3, 3, 10]);
        assert_eq!(seconds("--seconds 1"), [1, 1, 1]);
    }

    #[test]
    fn the_usage_names_every_suite() {
        assert!(Suite::ALL.iter().all(|suite| USAGE.contains(suite.name())));
    }
}

//! What a run is asked for.

use std::path::PathBuf;

use super::session::Extent;
use super::suites::{Case, Suite, cases, share_out};
use crate::gpu::Words;

/// What `--help` shows.
pub const USAGE: &str = "usage: cargo xtask bench [NAME..] [options], bench list, bench selftest, or bench report FILE..
  NAME             run the cases with this in `suite/case`: wake, `serve/batch 16`; see `list` (default: all)
  list             show suites, cases and arms
  selftest         compare arms that are the same, and one that is 5 % slower: whether the method tells which
  report FILE..    show earlier runs, compare them, or guard them; see report --help
  --quick          fewer cases and less of each: under 3 minutes in all
  --device KIND    auto, sim or cuda: what the work runs on (default: auto, a GPU where there is one)
  --arms A,B,..    plans, hosts, and names of the raw, the operations' and the peers' ways; see `list` (default: some of each)
  --out DIR        write DIR/run.jsonl and DIR/report.html (default: out/bench)
  --baseline FILE  compare with an earlier run: what changed, by the ratios to the base
  --seed N         what loads are drawn from (default: 0)
  --rounds N       run so many rounds a case, however long they take
  --seconds N      measure each suite for about so long
  --driver FILE    load this library in place of the system's CUDA driver
  --nvml FILE      load this library in place of the system's NVIDIA management library
  --peers          with arms of other libraries, on a GPU; only behind `cargo xtask bench`: see benches/peers/README.md
  --commit HASH    what the program was built from, for the record
Without a GPU `--device cuda` says so and ends with code 3; a library that is named and cannot be used is an error.";

/// Where records go if nothing is said.
const OUT: &str = "out/bench";

/// The longest that a suite may be asked to take, a day; and the most rounds.
const SECONDS_MAX: u64 = 86_400;
const ROUNDS_MAX: usize = 100_000;

/// What work runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// A GPU where there is one.
    #[default]
    Auto,
    /// A simulated device.
    Sim,
    /// A GPU.
    Cuda,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Auto, Self::Sim, Self::Cuda];

    const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Sim => "sim",
            Self::Cuda => "cuda",
        }
    }
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Task {
    /// Measure.
    #[default]
    Run,
    /// Show what there is.
    List,
    /// Test the method.
    SelfTest,
    /// Show the usage.
    Help,
}

/// The command line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Args {
    /// What is to be done.
    pub task: Task,
    /// The words as they were given, without those about the build.
    pub words: Vec<String>,
    /// The cases to run have one of these in their path; none stands for all.
    names: Vec<String>,
    /// Fewer cases, and less of each.
    pub quick: bool,
    /// What work runs on.
    pub device: Kind,
    /// The arms.
    pub arms: Option<String>,
    /// Where records go.
    out: Option<PathBuf>,
    /// An earlier run.
    pub baseline: Option<PathBuf>,
    /// What loads are drawn from.
    pub seed: u64,
    /// How many rounds a case has.
    pub rounds: Option<usize>,
    /// How long a suite takes.
    pub seconds: Option<u64>,
    /// The CUDA driver's library.
    pub driver: Option<PathBuf>,
    /// The management library.
    pub nvml: Option<PathBuf>,
    /// The commit that the program is of.
    pub commit: Option<String>,
}

impl Args {
    /// Reads the words behind the program's name.
    ///
    /// # Errors
    ///
    /// What is wrong with them, in one line.
    pub fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let given: Vec<String> = words.collect();
        let (mut args, mut words) = (Self::default(), Words::new(given.iter().cloned()));
        let mut seen = Vec::new();
        while let Some(word) = words.argument() {
            words.once(&mut seen)?;
            match word.as_str() {
                "list" => args.task = Task::List,
                "selftest" => args.task = Task::SelfTest,
                "--quick" => args.quick = true,
                "--device" => args.device = words.one_of(&Kind::ALL, Kind::name)?,
                "--arms" => args.arms = Some(words.value()?),
                "--out" => args.out = Some(words.value()?.into()),
                "--baseline" => args.baseline = Some(words.value()?.into()),
                "--seed" => args.seed = words.number(&(0..=u64::MAX))?,
                "--rounds" => args.rounds = Some(words.number(&(1..=ROUNDS_MAX))?),
                "--seconds" => args.seconds = Some(words.number(&(1..=SECONDS_MAX))?),
                "--driver" => args.driver = Some(words.value()?.into()),
                "--nvml" => args.nvml = Some(words.value()?.into()),
                "--commit" => args.commit = Some(words.value()?),
                "--help" | "-h" => args.task = Task::Help,
                name if !name.starts_with('-') => args.names.push(name.to_owned()),
                _ => return Err(words.unknown()),
            }
        }
        args.words = without_commit(given);
        if args.names.iter().any(|name| name.trim().is_empty()) {
            return Err("an empty name is in the name of every case: name some, or none for all; see `list`"
                .to_owned());
        }
        if args.out.as_ref().is_some_and(|out| out.as_os_str().is_empty()) {
            return Err("`--out` wants a folder, and is empty".to_owned());
        }
        for (option, library) in [("--driver", &args.driver), ("--nvml", &args.nvml)] {
            if library.is_some() && args.device == Kind::Sim {
                return Err(format!(
                    "`{option}` is of a GPU, and `--device sim` loads no library: leave one of them out"
                ));
            }
        }
        // A name that fits nothing is told before anything is opened.
        args.cases().map(|_| args)
    }

    /// The cases that are to be run.
    ///
    /// # Errors
    ///
    /// A name that fits none.
    pub fn cases(&self) -> Result<Vec<Case>, String> {
        let all = cases(self.quick);
        let fits =
            |case: &Case, name: &String| case.suite.name() == name || case.path().contains(name.as_str());
        if let Some(name) = self.names.iter().find(|name| !all.iter().any(|case| fits(case, name))) {
            let suites: Vec<_> = Suite::ALL.iter().map(|suite| suite.name()).collect();
            return Err(format!(
                "`{name}` is in the name of no case; there are the suites {}; see `list`",
                suites.join(", ")
            ));
        }
        let wanted = |case: &Case| self.names.is_empty() || self.names.iter().any(|name| fits(case, name));
        let mut chosen: Vec<Case> = all.into_iter().filter(wanted).collect();
        // Else each takes as long as in a whole run.
        if self.seconds.is_some() {
            share_out(&mut chosen);
        }
        Ok(chosen)
    }

    /// Where records go.
    pub fn out(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| OUT.into())
    }

    /// How much is to be run.
    pub const fn extent(&self) -> Extent {
        Extent { quick: self.quick, seed: self.seed, rounds: self.rounds, seconds: self.seconds }
    }
}

/// The command as a person would repeat it.
fn without_commit(given: Vec<String>) -> Vec<String> {
    let mut words = Vec::with_capacity(given.len());
    let mut given = given.into_iter();
    while let Some(word) = given.next() {
        if word == "--commit" {
            let _ = given.next();
        } else {
            words.push(word);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Args, String> {
        Args::parse(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn arguments_are_read() {
        let line = "wake --quick --device cuda --arms spin,flag --out o --baseline b.jsonl --seed 7 --rounds 2 \
            --seconds 3 --driver d --nvml n --commit c0ffee";
        let args = parse(&line.split_whitespace().collect::<Vec<_>>()).unwrap();
        let expected = Args {
            task: Task::Run,
            words: line.split(" --commit").next().unwrap().split_whitespace().map(str::to_owned).collect(),
            names: vec!["wake".to_owned()],
            quick: true,
            device: Kind::Cuda,
            arms: Some("spin,flag".to_owned()),
            out: Some("o".into()),
            baseline: Some("b.jsonl".into()),
            seed: 7,
            rounds: Some(2),
            seconds: Some(3),
            driver: Some("d".into()),
            nvml: Some("n".into()),
            commit: Some("c0ffee".to_owned()),
        };
        assert_eq!(args, expected);
        assert_eq!(parse(&["list"]).unwrap().task, Task::List);
        assert_eq!(parse(&["selftest"]).unwrap().task, Task::SelfTest);
        assert_eq!(parse(&["-h"]).unwrap().task, Task::Help);
        assert_eq!(parse(&[]).unwrap().out(), PathBuf::from(OUT));
    }

    #[test]
    fn others_are_refused_in_one_line() {
        for (words, says) in [
            (&["--quik"][..], "unknown argument `--quik`"),
            (&["--device", "hip"], "`--device hip` is none of auto, sim, cuda"),
            (&["--rounds", "0"], "`--rounds 0` is not from 1"),
            (&["--seconds", "x"], "`--seconds x` is not from 1"),
            (&["--out"], "`--out` wants a value"),
            (&["wak"], ""),
            (&["wake", ""], "an empty name is in the name of every case"),
            (&["--arms", "spin", "--arms", "flag"], "`--arms` is there twice: give it once"),
            (&["--out", ""], "`--out` wants a folder, and is empty"),
            (&["--device", "sim", "--driver", "d"], "`--driver` is of a GPU"),
            (&["--device", "sim", "--nvml", "n"], "`--nvml` is of a GPU"),
            (&["burns"], "`burns` is in the name of no case; there are the suites wake, burn, serve, fan-in"),
        ] {
            match parse(words) {
                // A part of a name is one.
                Ok(args) => assert!(says.is_empty() && !args.cases().unwrap().is_empty(), "{words:?}"),
                Err(message) => {
                    assert!(
                        !says.is_empty() && message.starts_with(says) && !message.contains('\n'),
                        "{message}"
                    );
                }
            }
        }
    }

    #[test]
    fn names_choose_cases_by_a_part_of_their_path() {
        let paths = |words: &[&str]| {
            let cases = parse(words).unwrap().cases().unwrap();
            cases.iter().map(Case::path).collect::<Vec<_>>()
        };
        assert_eq!(paths(&["wake/1000"]), ["wake/1000 us"]);
        assert!(paths(&["serve"]).iter().all(|path| path.starts_with("serve/")));
        assert!(paths(&["burn", "fan-in/1 "]).contains(&"fan-in/1 flight".to_owned()));
        assert!(paths(&[]).len() > paths(&["--quick"]).len());
    }
}

//! What the program is asked for.

use std::path::PathBuf;
use std::time::Duration;

use wakeline_benches::gpu::{Host, PLANS, Words};
use wakeline_core::Nanos;
use wakeline_cuda::kernels::Fault;

use crate::exits::Leaving;
use crate::meets::Row;

/// What `--help` shows.
pub(crate) const USAGE: &str = "usage: gpu_checks [--check NAME].. [--quick | --full] [counts] [--slack-ms N] [--driver FILE] [--json FILE]
  --check NAME   order, waits, churn, exits, behind, faults or soak; may be given several times (default: all but soak)
  --quick        the least that shows that all of it runs
  --full         100,000 copies of each size, 1,000,000 waits, 100,000 turns of churn, 100 exits
counts, where they are to be others than these:
  --copies N     copies of 4 KiB, and as many of 4 MiB (2,000)
  --waits N      waits under all plans together (20,000)
  --churn N      turns of making, using and dropping (2,000)
  --exits N      processes that end with waits in flight (14)
  --behind-ms N  how long the work behind a point takes (1,000)
  --minutes M    how long the soak takes (9); parts of one are fine
  --seed S       what the soak draws from (1)
  --fault NAME   trap, illegal-address or assert; may be given several times (default: all)
  --slack-ms N   how much later than allowed counts as in time: what the machine's scheduler may take (1)
  --driver FILE  load this library in place of the system's driver
  --json FILE    write a record for each thing that was checked, as JSON lines
  --leave NAME   only end with waits in flight, as `exits` has it done by a process of its own
  --meet ROW     only meet a fault, as `faults` has it done by a process of its own
  --ruin FAULT   only break a context in which everything waits, as `soak` has it done by a process of its own
Without a GPU it says so and ends with code 3.";

/// The highest count that may be asked for.
const COUNT_MAX: u64 = 1_000_000_000;

/// The longest work behind a point: less than kernels may take at most.
const BEHIND_MS_MAX: u64 = 30_000;

const SLACK_MS_MAX: u64 = 60_000;

/// The shortest and the longest soak, minutes.
const MINUTES: core::ops::RangeInclusive<f64> = 0.01..=1_440.0;

/// What is checked together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Check {
    Order,
    Waits,
    Churn,
    Exits,
    Behind,
    Faults,
    Soak,
}

impl Check {
    /// All, in the order in which they are run; the last only where it is asked for.
    pub(crate) const ALL: [Self; 7] =
        [Self::Order, Self::Waits, Self::Churn, Self::Behind, Self::Exits, Self::Faults, Self::Soak];

    /// What it is called in arguments and records.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Waits => "waits",
            Self::Churn => "churn",
            Self::Exits => "exits",
            Self::Behind => "behind",
            Self::Faults => "faults",
            Self::Soak => "soak",
        }
    }
}

/// How often things are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    pub(crate) copies: u64,
    pub(crate) waits: u64,
    pub(crate) churn: u64,
    pub(crate) exits: u64,
    behind_ms: u64,
}

impl Counts {
    const SMALL: Self = Self { copies: 2_000, waits: 20_000, churn: 2_000, exits: 14, behind_ms: 1_000 };
    const QUICK: Self = Self { copies: 16, waits: 400, churn: 96, exits: 7, behind_ms: 300 };
    const FULL: Self =
        Self { copies: 100_000, waits: 1_000_000, churn: 100_000, exits: 100, behind_ms: 1_000 };

    pub(crate) const fn behind(&self) -> Nanos {
        Nanos::from_millis(self.behind_ms)
    }
}

/// The command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Args {
    checks: Vec<Check>,
    pub(crate) counts: Counts,
    quick: bool,
    faults: Vec<Fault>,
    slack_ms: u64,
    /// How long the soak takes.
    pub(crate) soak: Duration,
    pub(crate) seed: u64,
    pub(crate) driver: Option<PathBuf>,
    pub(crate) json: Option<PathBuf>,
    pub(crate) leaving: Option<Leaving>,
    pub(crate) meeting: Option<Row>,
    pub(crate) ruining: Option<Fault>,
    pub(crate) help: bool,
}

impl Args {
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let words: Vec<String> = words.collect();
        // Wherever they stand, counts of one's own hold.
        let has = |name: &str| words.iter().any(|word| word == name);
        let (quick, full) = (has("--quick"), has("--full"));
        if quick && full {
            return Err("`--quick` and `--full` are two different things; see --help".to_owned());
        }
        let counts = match (quick, full) {
            (true, _) => Counts::QUICK,
            (_, true) => Counts::FULL,
            _ => Counts::SMALL,
        };
        let mut args = Self {
            checks: Vec::new(),
            counts,
            quick,
            faults: Vec::new(),
            slack_ms: 1,
            soak: Duration::from_secs(9 * 60),
            seed: 1,
            driver: None,
            json: None,
            leaving: None,
            meeting: None,
            ruining: None,
            help: false,
        };
        args.read(Words::new(words.into_iter()))?;
        Ok(args)
    }

    fn read(&mut self, mut words: Words<impl Iterator<Item = String>>) -> Result<(), String> {
        let counts = &mut self.counts;
        while let Some(word) = words.argument() {
            match word.as_str() {
                "--quick" | "--full" => {}
                "--check" => self.checks.push(words.one_of(&Check::ALL, Check::name)?),
                "--copies" => counts.copies = words.number(&(1..=COUNT_MAX))?,
                "--waits" => counts.waits = words.number(&(1..=COUNT_MAX))?,
                "--churn" => counts.churn = words.number(&(1..=COUNT_MAX))?,
                "--exits" => counts.exits = words.number(&(1..=COUNT_MAX))?,
                "--behind-ms" => counts.behind_ms = words.number(&(50..=BEHIND_MS_MAX))?,
                "--fault" => self.faults.push(words.one_of(&Fault::ALL, fault_name)?),
                "--slack-ms" => self.slack_ms = words.number(&(0..=SLACK_MS_MAX))?,
                "--minutes" => self.soak = Duration::from_secs_f64(60.0 * words.number(&MINUTES)?),
                "--seed" => self.seed = words.number(&(0..=u64::MAX))?,
                "--driver" => self.driver = Some(words.value()?.into()),
                "--json" => self.json = Some(words.value()?.into()),
                "--leave" => self.leaving = Some(words.one_of(&Leaving::ALL, Leaving::name)?),
                "--meet" => self.meeting = Some(words.value()?.parse()?),
                "--ruin" => self.ruining = Some(words.one_of(&Fault::ALL, fault_name)?),
                "--help" | "-h" => self.help = true,
                _ => return Err(words.unknown()),
            }
        }
        Ok(())
    }

    /// What to check, each once, in its own order.
    pub(crate) fn checks(&self) -> impl Iterator<Item = Check> + '_ {
        let asked = |check: &Check| self.checks.contains(check);
        Check::ALL
            .into_iter()
            .filter(move |check| asked(check) || (self.checks.is_empty() && *check != Check::Soak))
    }

    /// What the scheduler may add to a time that is checked.
    pub(crate) const fn slack(&self) -> Nanos {
        Nanos::from_millis(self.slack_ms)
    }

    /// Which faults meet which waits: each with each, or each once where that is enough. A host's plans wait at once.
    pub(crate) fn faults(&self) -> Vec<Row> {
        let faults: Vec<_> = Fault::ALL
            .into_iter()
            .filter(|fault| self.faults.is_empty() || self.faults.contains(fault))
            .collect();
        let hosts = Host::here();
        if self.quick {
            let rows = faults.into_iter().cycle().zip(hosts.into_iter().cycle()).zip(PLANS);
            return rows.map(|((fault, host), plan)| Row { fault, host, plans: vec![plan] }).collect();
        }
        let mut rows = Vec::new();
        for fault in faults {
            for host in &hosts {
                rows.push(Row { fault, host: *host, plans: PLANS.to_vec() });
            }
        }
        rows
    }
}

/// What a fault is called in arguments and records.
pub(crate) const fn fault_name(fault: Fault) -> &'static str {
    match fault {
        Fault::Trap => "trap",
        Fault::IllegalAddress => "illegal-address",
        Fault::Assert => "assert",
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
        let args = parse("--check waits --waits 7 --quick --slack-ms 50 --driver a --json b -h").unwrap();
        assert!(args.checks().eq([Check::Waits]) && args.help);
        assert_eq!(args.counts, Counts { waits: 7, ..Counts::QUICK });
        assert_eq!(args.slack(), Nanos::from_millis(50));
        assert_eq!((args.driver, args.json), (Some("a".into()), Some("b".into())));
        assert_eq!(parse("--copies 3 --full").unwrap().counts, Counts { copies: 3, ..Counts::FULL });
        assert_eq!(parse("").unwrap().counts, Counts::SMALL);
        assert!(parse("").unwrap().checks().all(|check| check != Check::Soak), "it takes minutes");
        let soak = parse("--check soak --minutes 0.5 --seed 7").unwrap();
        assert_eq!((soak.soak, soak.seed), (Duration::from_secs(30), 7));
        for (words, says) in [
            ("--check wait", "`--check wait` is none of order, waits, churn"),
            ("--waits 0", "`--waits 0` is not from 1"),
            ("--exits", "`--exits` wants a value"),
            ("--quick --full", "`--quick` and `--full` are two"),
            ("--minutes 0", "`--minutes 0` is not from 0.01 to 1440"),
            ("--ruin bug", "`--ruin bug` is none of trap"),
            ("--fault bug", "`--fault bug` is none of trap, illegal-address, assert"),
            ("--meet trap/inline", "`trap/inline` is no fault, host"),
            ("waits", "unknown argument `waits`"),
        ] {
            let message = parse(words).unwrap_err();
            assert!(message.starts_with(says) && !message.contains('\n'), "{words}: {message}");
        }
    }

    #[test]
    fn faults_meet_every_plan_on_every_host_and_quickly_each_of_them_once() {
        let hosts = Host::here().len();
        let all = parse("").unwrap().faults();
        assert_eq!(all.len(), 3 * hosts);
        assert!(all.iter().all(|row| row.plans == PLANS));
        assert_eq!(parse("--fault trap").unwrap().faults().len(), hosts);
        let quick = parse("--quick").unwrap().faults();
        assert_eq!(quick.len(), PLANS.len());
        for fault in Fault::ALL {
            assert!(quick.iter().any(|row| row.fault == fault));
        }
        assert!(Host::here().iter().all(|host| quick.iter().any(|row| row.host == *host)));
    }

    #[test]
    fn the_usage_names_every_check_and_fault() {
        assert!(Check::ALL.iter().all(|check| USAGE.contains(check.name())));
        assert!(Fault::ALL.iter().all(|fault| USAGE.contains(fault_name(*fault))));
    }
}

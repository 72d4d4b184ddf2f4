//! The arms: ways of waiting by their names, and choosing some of them.

use core::fmt;
use core::str::FromStr;

use wakeline_core::{Adapt, Nanos, Predict, WaitBands, WaitPlan};
use wakeline_std::{Oversleep, StdClock};

use super::device::RAW;
use super::rounds::ArmLabel;
use crate::ops;

/// Of how many waits a plan predicts the next: a wait that woke late is taken for half as long, and as many waits after it wake far too early.
pub const WINDOW: u16 = 2;

/// The numbers of the plans that are made here: the longest park, how often the driver is asked besides, the shortest and the longest sleep.
const PARK_US: u64 = 50;
const BACKSTOP_US: u64 = 1_000;
const MIN_SLEEP_US: u64 = 50;
const MAX_SLEEP_US: u64 = 1_000_000;

/// How late a plan that adapts may be, in hundredths of the wait, its guard, of how many waits it knows, and its shortest sleep.
const LATE_PCT: u8 = 1;
const GUARD_US: u64 = 5;
const ADAPT_WINDOW: u16 = 256;
const ADAPT_MIN_SLEEP_US: u64 = 10;

/// The margin is rounded up to this, and kept within the next two: how late a machine wakes changes from second to second.
const MARGIN_STEP_US: u64 = 10;
const MARGIN_US_LEAST: u64 = 40;
const MARGIN_US_MAX: u64 = 200;

/// Over the lateness that was measured: for the spread of the work itself, and for what a sleep between other work is later by than those measured in a row.
const MARGIN_US_SPREAD: u64 = 50;

/// How long the sleeps are whose lateness the margin covers, and how many are measured: half a second.
const OVERSLEEP_LENGTH: Nanos = Nanos::from_millis(5);
const OVERSLEEP_SAMPLES: u32 = 100;

/// Who runs a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host {
    /// The thread that waits.
    Inline,
    /// A watcher's thread; the one that waits sleeps.
    Watcher,
    /// The thread of a tokio runtime.
    TokioLocal,
    /// A thread for each wait.
    Threads,
}

impl Host {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Inline, Self::Watcher, Self::TokioLocal, Self::Threads];

    /// What it is called behind the `@` of an arm.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Watcher => "watcher",
            Self::TokioLocal => "tokio-local",
            Self::Threads => "threads",
        }
    }
}

/// How an arm waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Way {
    /// By looking at the word all the time.
    Spin,
    /// By asking the driver all the time.
    StatusSpin,
    /// By a way that is the device's driver's or a peer's: which of them.
    Raw(usize),
    /// By plans.
    Plan(WaitBands, Host),
    /// It runs device operations to their ends, for the suite `ops` alone.
    Operation(Operation),
}

/// How an arm of the suite `ops` runs operations. Its bare spin on the word is [`Way::Spin`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// As the program `ops` does: one at a time, or by many tasks.
    Awaits(ops::Arm),
    /// One thread keeps many in flight, and scans their words.
    Scans,
    /// Many tasks await work that may be told late.
    AwaitsLate,
}

/// By how much, for [`Operation::AwaitsLate`].
pub const LATE_US: u32 = 500;

impl Operation {
    /// All of them.
    fn all() -> impl Iterator<Item = Self> {
        let awaits = ops::Arm::ALL.into_iter().filter(|arm| *arm != ops::Arm::Spin && !arm.is_bound());
        awaits.map(Self::Awaits).chain([Self::Scans, Self::AwaitsLate])
    }

    fn name(self) -> String {
        match self {
            Self::Awaits(arm) => arm.name().to_owned(),
            Self::Scans => "scan".to_owned(),
            Self::AwaitsLate => format!("{},late_us={LATE_US}", ops::Arm::Multi.name()),
        }
    }

    const fn family(self) -> &'static str {
        match self {
            Self::Awaits(_) | Self::AwaitsLate => "wakeline",
            Self::Scans => RAW,
        }
    }
}

/// A way of waiting with its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arm {
    /// Its name: `flag+predict@watcher`.
    pub name: String,
    /// Whose way it is: `raw`, `wakeline`, or a peer's name with its version.
    pub family: String,
    /// How it waits.
    pub way: Way,
    /// Whether it is run where nothing is asked for.
    pub default: bool,
}

impl Arm {
    /// As cells tell of it.
    pub fn label(&self) -> ArmLabel {
        let plan = match &self.way {
            Way::Plan(bands, _) => Some(bands.to_string()),
            _ => None,
        };
        ArmLabel { arm: self.name.clone(), family: self.family.clone(), plan }
    }

    /// Who runs it.
    pub const fn host(&self) -> Host {
        match &self.way {
            Way::Plan(_, host) => *host,
            _ => Host::Inline,
        }
    }

    /// Whether it waits for what others launched, so that it is for all suites but `ops`.
    pub const fn waits(&self) -> bool {
        !matches!(self.way, Way::Operation(_))
    }
}

/// A name that is no arm's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownArm {
    name: String,
    /// What is wrong with it, where it begins as a plan does.
    fault: Option<String>,
    known: Vec<String>,
}

impl fmt::Display for UnknownArm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(fault) = &self.fault {
            return write!(f, "`--arms {}`: {fault}", self.name);
        }
        let hosts: Vec<_> = Host::ALL.iter().map(|host| host.name()).collect();
        write!(
            f,
            "`--arms {}` names no arm; there are {}; all of a family: raw, wakeline; all of a host: {}; or a plan and a host, as in `flag:park_us=50,backstop_us=1000@watcher`",
            self.name,
            listed(&self.known),
            hosts.join(", ")
        )
    }
}

impl core::error::Error for UnknownArm {}

/// Names in one line: those with a comma in them in quotes.
fn listed(names: &[String]) -> String {
    let quoted = |name: &String| if name.contains(',') { format!("`{name}`") } else { name.clone() };
    names.iter().map(quoted).collect::<Vec<_>>().join(", ")
}

/// What covers this machine's lateness, from a measurement of half a second on this thread.
///
/// # Errors
///
/// None, with the constants that are here; as [`Oversleep::measure`].
pub fn margin(clock: StdClock) -> Result<Nanos, wakeline_core::Error> {
    let oversleep = Oversleep::measure(clock, OVERSLEEP_LENGTH, OVERSLEEP_SAMPLES)?.quantile(0.97);
    let us = (oversleep.as_nanos().div_ceil(1_000) + MARGIN_US_SPREAD).next_multiple_of(MARGIN_STEP_US);
    Ok(Nanos::from_micros(us.clamp(MARGIN_US_LEAST, MARGIN_US_MAX)))
}

/// All arms of a device that have a name.
#[derive(Clone, Debug)]
pub struct Catalogue {
    arms: Vec<Arm>,
}

impl Catalogue {
    /// Those of plans with this margin on every host, the ways that need nothing, the device's own by name and family, and those of operations.
    ///
    /// # Errors
    ///
    /// The margin is longer than a plan's may be.
    pub fn new(
        margin: Nanos,
        raw: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, wakeline_core::Error> {
        let named = |name: &str, family: &str, way| Arm {
            name: name.to_owned(),
            family: family.to_owned(),
            way,
            default: true,
        };
        let mut arms = vec![named("spin", RAW, Way::Spin), named("status-spin", RAW, Way::StatusSpin)];
        let own = raw.into_iter().enumerate();
        arms.extend(own.map(|(index, (name, family))| named(&name, &family, Way::Raw(index))));
        for (plan, bands, inline, other) in plans(margin)? {
            for host in Host::ALL {
                let name =
                    if host == Host::Inline { plan.to_owned() } else { format!("{plan}@{}", host.name()) };
                let default = match host {
                    Host::Inline => inline,
                    Host::Watcher | Host::TokioLocal => other,
                    Host::Threads => plan == "block",
                };
                let way = Way::Plan(bands.clone(), host);
                arms.push(Arm { default, ..named(&name, "wakeline", way) });
            }
        }
        let operations = Operation::all();
        arms.extend(operations.map(|way| named(&way.name(), way.family(), Way::Operation(way))));
        Ok(Self { arms })
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.arms.iter().map(|arm| arm.name.as_str())
    }

    /// All arms.
    pub fn arms(&self) -> &[Arm] {
        &self.arms
    }

    /// Those that this list names, each once, in the order of the catalogue and plans behind it; without a list those that are run by default.
    ///
    /// # Errors
    ///
    /// [`UnknownArm`], for the first that is none.
    pub fn choose(&self, list: Option<&str>) -> Result<Vec<Arm>, UnknownArm> {
        let Some(list) = list else {
            return Ok(self.arms.iter().filter(|arm| arm.default).cloned().collect());
        };
        let mut wanted = vec![false; self.arms.len()];
        let mut others: Vec<Arm> = Vec::new();
        for name in self.split(list) {
            let mut found = false;
            for (arm, wanted) in self.arms.iter().zip(&mut wanted) {
                let of_group = arm.default
                    && (arm.family == name
                        || (arm.host().name() == name && matches!(arm.way, Way::Plan(..))));
                if arm.name == name || of_group {
                    (*wanted, found) = (true, true);
                }
            }
            if !found {
                let arm = self.planned(&name)?;
                if !others.contains(&arm) {
                    others.push(arm);
                }
            }
        }
        let known = self.arms.iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(arm, _)| arm.clone());
        Ok(known.chain(others).collect())
    }

    /// The names of a list. Commas within the name of an arm, or of a plan, are not between names: behind those of a plan a field follows, as in
    /// `,window=8`.
    fn split(&self, list: &str) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let mut left = Some(list);
        while let Some(list) = left {
            let list = list.trim_start();
            // The longest name that is there as a whole.
            let whole = |name: &&str| {
                let behind = list.strip_prefix(*name).map(str::trim_start);
                behind.is_some_and(|behind| behind.is_empty() || behind.starts_with(','))
            };
            let known = self.names().filter(whole).max_by_key(|name| name.len());
            let part = known.unwrap_or_else(|| list.split(',').next().unwrap_or(list));
            left = list[part.len()..].trim_start().strip_prefix(',');
            match names.last_mut() {
                Some(plan) if known.is_none() && is_field(part) && plan.contains(':') => {
                    plan.push(',');
                    plan.push_str(part);
                }
                _ => names.push(part.trim_end().to_owned()),
            }
        }
        names
    }

    /// A plan in full, with a host behind it or without.
    fn planned(&self, name: &str) -> Result<Arm, UnknownArm> {
        let unknown = |fault| UnknownArm {
            name: name.to_owned(),
            fault,
            known: self.names().map(str::to_owned).collect(),
        };
        let (text, host) = match name.split_once('@') {
            None => (name, Host::Inline),
            Some((text, host)) => {
                let found = Host::ALL.into_iter().find(|known| known.name() == host);
                (text, found.ok_or_else(|| unknown(None))?)
            }
        };
        // Only what has fields is meant as a plan: `flagg` is a name that is wrong.
        let bands = WaitBands::from_str(text)
            .map_err(|error| unknown(text.contains(':').then(|| error.to_string())))?;
        Ok(Arm {
            name: name.to_owned(),
            family: "wakeline".to_owned(),
            way: Way::Plan(bands, host),
            default: true,
        })
    }
}

/// The plans that have names, and whether they are run by default on the waiting thread and on other hosts.
fn plans(margin: Nanos) -> Result<[(&'static str, WaitBands, bool, bool); 11], wakeline_core::Error> {
    let flag = WaitPlan::flag(PARK_US, BACKSTOP_US)?;
    let predict = Predict::new(margin.as_micros(), MIN_SLEEP_US, MAX_SLEEP_US, WINDOW)?;
    let (poll, predicted) = (WaitPlan::poll(), flag.with_predict(predict)?);
    let adapt = Adapt::new(LATE_PCT, GUARD_US, ADAPT_MIN_SLEEP_US, MAX_SLEEP_US, ADAPT_WINDOW)?;
    let adapted = flag.with_adapt(adapt)?;
    // A few rows are a short step, which is not worth a sleep.
    let bands = WaitBands::from(flag).with_band(BANDS_ROWS, predicted)?;
    Ok([
        ("block", WaitPlan::block().into(), true, false),
        ("poll", poll.into(), false, false),
        ("flag", flag.into(), true, false),
        ("flag+trust", flag.trusted()?.into(), false, false),
        ("poll+predict", poll.with_predict(predict)?.into(), false, false),
        ("flag+predict", predicted.into(), true, true),
        ("flag+predict+trust", predicted.trusted()?.into(), true, true),
        ("flag+predict+warm+trust", predicted.warming()?.trusted()?.into(), true, false),
        ("flag+adapt", adapted.into(), true, true),
        ("flag+adapt+trust", adapted.trusted()?.into(), false, false),
        ("bands", bands, false, false),
    ])
}

/// From how many rows on the bands sleep.
const BANDS_ROWS: u64 = 4;

/// Whether this is a field of a plan: `window=8`.
fn is_field(part: &str) -> bool {
    part.split_once('=')
        .is_some_and(|(field, _)| field.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue() -> Catalogue {
        let raw = [("sync-spin", "raw"), ("events", "cudarc 0.19")];
        let raw = raw.map(|(name, family)| (name.to_owned(), family.to_owned()));
        Catalogue::new(Nanos::from_micros(70), raw).unwrap()
    }

    fn chosen(list: &str) -> Result<Vec<String>, UnknownArm> {
        let arms = catalogue().choose(Some(list))?;
        Ok(arms.into_iter().map(|arm| arm.name).collect())
    }

    #[test]
    fn every_arm_has_a_name_of_its_own_by_which_it_is_found() {
        let catalogue = catalogue();
        let names: Vec<_> = catalogue.names().collect();
        for arm in catalogue.arms() {
            assert_eq!(names.iter().filter(|name| **name == arm.name).count(), 1, "{}", arm.name);
            assert_eq!(chosen(&arm.name).unwrap(), core::slice::from_ref(&arm.name));
        }
        assert!(catalogue.choose(None).unwrap().len() < catalogue.arms().len());
    }

    #[test]
    fn arms_are_chosen_by_name_by_family_by_host_and_by_plan() {
        assert_eq!(chosen("flag,spin,flag").unwrap(), ["spin", "flag"]);
        assert_eq!(chosen("raw").unwrap(), ["spin", "status-spin", "sync-spin", "scan"]);
        assert_eq!(chosen("cudarc 0.19").unwrap(), ["events"]);
        assert_eq!(
            chosen("watcher").unwrap(),
            ["flag+predict@watcher", "flag+predict+trust@watcher", "flag+adapt@watcher"]
        );
        assert_eq!(chosen("threads,watcher").unwrap()[0], "block@threads");
        let plan = "flag:park_us=9,backstop_us=90+predict:margin_us=1,min_sleep_us=2,max_sleep_us=3,window=4@tokio-local";
        let list = format!("spin,{plan},block");
        assert_eq!(chosen(&list).unwrap(), ["spin", "block", plan]);
        let arms = catalogue().choose(Some(plan)).unwrap();
        assert_eq!(arms[0].host(), Host::TokioLocal);
        assert_eq!(format!("{}@tokio-local", arms[0].label().plan.unwrap()), plan);
    }

    /// Some have commas and blanks in them, and some begin as others do.
    #[test]
    fn arms_of_operations_are_chosen_by_their_names_as_they_are() {
        let list = "await@current_thread, await@multi_thread(4),late_us=500 ,scan,await@current_thread, without +warm";
        let expected = [
            "await@current_thread",
            "await@current_thread, without +warm",
            "scan",
            "await@multi_thread(4),late_us=500",
        ];
        assert_eq!(chosen(list).unwrap(), expected);
        assert_eq!(chosen("await@current_thread,spin_us=0").unwrap(), ["await@current_thread,spin_us=0"]);
        let message = chosen("await@current_thread,spin_us=7").unwrap_err().to_string();
        assert!(message.starts_with("`--arms spin_us=7` names no arm"), "{message}");
        assert!(message.contains("sync_on, scan, `await@multi_thread(4),late_us=500`;"), "{message}");
        let arms = catalogue().choose(None).unwrap();
        assert_eq!(arms.iter().filter(|arm| !arm.waits()).count(), 7);
        assert!(catalogue().choose(Some("watcher,flag")).unwrap().iter().all(Arm::waits));
    }

    #[test]
    fn an_unknown_arm_is_told_with_those_that_there_are() {
        for name in ["flagg", "spin@nowhere", "", "poll,x"] {
            let message = chosen(name).unwrap_err().to_string();
            assert!(message.contains("names no arm; there are spin, status-spin, sync-spin"), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
        let message = chosen("flag:pak_us=50,backstop_us=1000").unwrap_err().to_string();
        assert!(message.contains("did you mean `park_us`"), "{message}");
    }

    #[test]
    fn plans_have_the_margin_that_was_asked_for() {
        let arms = catalogue().choose(Some("flag+predict,bands")).unwrap();
        for arm in arms {
            assert!(arm.label().plan.unwrap().contains("+predict:margin_us=70,"), "{arm:?}");
        }
    }
}

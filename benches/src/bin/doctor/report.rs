//! All that is found out, as one value. Its fields are the keys of the JSON form, with their units in their names.

use serde::Serialize;
use wakeline::{Error, ErrorCode, ExecutorKind, HostCaps, Settings, Strictness, resolve};
use wakeline_uring::Probe;

use crate::cuda::Driver;
use crate::gpu::Gpu;
use crate::hip::Hip;
use crate::machine::Machine;
use crate::metal::Metal;
use crate::next;
use crate::park::WordPark;
use crate::ring::Ring;
use crate::timers::Timers;

/// The report. `None` is "unknown" throughout.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) version: &'static str,
    /// Whether it was built with optimisation: figures of another build are not worth much.
    pub(crate) release: bool,
    pub(crate) quick: bool,
    pub(crate) machine: Machine,
    pub(crate) park: WordPark,
    pub(crate) timers: Timers,
    pub(crate) io_uring: Ring,
    pub(crate) executors: Vec<Executor>,
    pub(crate) gpu: Gpu,
    pub(crate) cuda: Driver,
    pub(crate) hip: Hip,
    pub(crate) metal: Metal,
    pub(crate) settings: Environment,
    /// What to do next, the most useful first.
    pub(crate) next: Vec<String>,
}

/// What is granted where this executor is asked for.
#[derive(Debug, Serialize)]
pub(crate) struct Executor {
    pub(crate) requested: String,
    pub(crate) granted: String,
    pub(crate) warnings: Vec<Coded>,
}

/// A coded error or warning.
#[derive(Debug, Serialize)]
pub(crate) struct Coded {
    pub(crate) code: String,
    pub(crate) text: String,
}

/// What the environment asks of wakeline.
#[derive(Debug, Serialize)]
pub(crate) struct Environment {
    /// The variables there are.
    pub(crate) names: Vec<&'static str>,
    /// What holds, by variable: the environment's or the default. `None` where it cannot be read.
    pub(crate) values: Option<Vec<Setting>>,
    /// Why it cannot be read.
    pub(crate) error: Option<String>,
}

/// One setting.
#[derive(Debug, Serialize)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    /// Whether it is what an empty environment gives.
    pub(crate) is_default: bool,
}

impl Report {
    /// Looks and measures: some seconds, under 2 when `quick`.
    ///
    /// # Errors
    /// None is known: the limits that the measurements check are kept here.
    pub(crate) fn gather(quick: bool) -> Result<Self, Error> {
        let timers = Timers::measure(quick)?;
        let park = WordPark::measure(quick)?;
        let probe = Probe::run();
        let io_uring = Ring::from(&probe);
        let mut caps = probe.caps();
        caps.set(HostCaps::WORD_WAIT, park.hardware_kind.is_some());
        let mut report = Self {
            version: env!("CARGO_PKG_VERSION"),
            release: !cfg!(debug_assertions),
            quick,
            machine: Machine::ask(),
            park,
            timers,
            io_uring,
            executors: executors(caps)?,
            gpu: Gpu::find(),
            cuda: Driver::ask(!quick),
            hip: Hip::ask(!quick),
            metal: Metal::ask(),
            settings: environment(Settings::from_env()),
            next: Vec::new(),
        };
        report.next = next::steps(&report);
        Ok(report)
    }
}

fn executors(caps: HostCaps) -> Result<Vec<Executor>, Error> {
    let ask = |requested| {
        let declared = resolve(requested, Strictness::Fallback, &caps)?;
        Ok(Executor {
            requested: requested.to_string(),
            granted: declared.granted().to_string(),
            warnings: declared.warnings().iter().map(Coded::from).collect(),
        })
    };
    ExecutorKind::ALL.into_iter().map(ask).collect()
}

impl From<&Error> for Coded {
    fn from(error: &Error) -> Self {
        Self { code: error.code().to_string(), text: error.to_string() }
    }
}

impl Coded {
    /// Whether it says no more than that parks are no hardware ones.
    pub(crate) fn is_park_fallback(&self) -> bool {
        self.code == ErrorCode::ParkFallback.to_string()
    }
}

fn environment(read: Result<Settings, Error>) -> Environment {
    let (values, error) = match read {
        Ok(settings) => {
            let (ours, default) = (values(&settings), values(&Settings::default()));
            let pairs = Settings::NAMES.into_iter().zip(ours.into_iter().zip(default));
            let setting = |(name, (value, default))| Setting { name, is_default: value == default, value };
            (Some(pairs.map(setting).collect()), None)
        }
        Err(error) => (None, Some(error.to_string())),
    };
    Environment { names: Settings::NAMES.to_vec(), values, error }
}

/// In the order of [`Settings::NAMES`].
fn values(settings: &Settings) -> [String; Settings::NAMES.len()] {
    let switch = |on| if on { "on" } else { "off" }.to_owned();
    [
        settings.executor.to_string(),
        switch(settings.strictness == Strictness::Strict),
        settings.bands.as_ref().map_or_else(|| "the binary's own choice".to_owned(), ToString::to_string),
        switch(settings.warnings),
        settings.nvrtc.as_ref().map_or_else(|| "looked for".to_owned(), |path| path.display().to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_by_the_names_of_their_settings() {
        let vars = [
            ("WAKELINE_EXECUTOR", "gpu-reactor"),
            ("WAKELINE_STRICT", "on"),
            ("WAKELINE_PLAN", "poll"),
            ("WAKELINE_WARNINGS", "off"),
            ("WAKELINE_NVRTC", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")),
        ];
        let read = environment(Settings::from_vars(vars)).values.unwrap();
        let shown: Vec<(&str, &str)> = read.iter().map(|s| (s.name, s.value.as_str())).collect();
        assert_eq!(shown, vars);
        assert!(read.iter().all(|setting| !setting.is_default));
        let none: [(&str, &str); 0] = [];
        assert!(environment(Settings::from_vars(none)).values.unwrap().iter().all(|s| s.is_default));
    }

    #[test]
    fn a_setting_that_cannot_be_read_is_the_error() {
        let environment = environment(Settings::from_vars([("WAKELINE_PLAN", "pol")]));
        assert!(environment.values.is_none());
        assert!(environment.error.unwrap().contains("WAKELINE_PLAN"));
    }

    #[test]
    fn each_executor_is_granted_or_says_what_runs() {
        let all = executors(HostCaps::NAP_PARK).unwrap();
        assert_eq!(all.len(), ExecutorKind::ALL.len());
        for executor in all {
            let falls = executor.requested != executor.granted;
            let told = executor.warnings.iter().any(|warning| !warning.is_park_fallback());
            assert_eq!(falls, told, "{executor:?}");
        }
    }
}

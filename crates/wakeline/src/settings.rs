//! Settings from the environment: the one place that reads `WAKELINE_*`. What else is looked at is the compiler's, in `compiler.rs`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use wakeline_core::{
    Error, ExecutorKind, Strictness, WaitBands, invalid_setting, parse_switch, parse_value, unknown_setting,
};

/// How the names of all settings start. A variable that starts so and is none of them is an error.
const PREFIX: &str = "WAKELINE_";
const EXECUTOR: &str = "WAKELINE_EXECUTOR";
const STRICT: &str = "WAKELINE_STRICT";
const PLAN: &str = "WAKELINE_PLAN";
const WARNINGS: &str = "WAKELINE_WARNINGS";
const NVRTC: &str = "WAKELINE_NVRTC";

/// What a binary may leave to whoever runs it. A plain value: read it once, hand it on.
///
/// | variable | may be | unset |
/// |---|---|---|
/// | `WAKELINE_EXECUTOR` | `naive`, `gpu-reactor` or `io-uring` | `naive` |
/// | `WAKELINE_STRICT` | a switch: on refuses an executor that cannot run as asked, off lets a lower one run, with a warning | off |
/// | `WAKELINE_PLAN` | a plan, or plans by batch rows, as [`WaitBands`] reads them | the binary's own choice |
/// | `WAKELINE_WARNINGS` | a switch: whether coded warnings are shown | on |
/// | `WAKELINE_NVRTC` | the path of NVRTC's library, the run-time compiler of CUDA C | looked for by its names |
///
/// A switch is `0`, `off`, `false` or `no`, or `1`, `on`, `true` or `yes`, in upper or lower case. Nothing is
/// guessed: a value that cannot be read is an error, also an empty one, and so is any other variable whose name
/// starts with `WAKELINE_`, for a misspelt setting must not be ignored.
///
/// ```
/// use wakeline::{ErrorCode, ExecutorKind, Settings};
/// let settings = Settings::from_vars([("WAKELINE_EXECUTOR", "gpu-reactor"), ("HOME", "/root")])?;
/// assert_eq!(settings.executor, ExecutorKind::GpuReactor);
/// assert!(settings.warnings);
///
/// let error = Settings::from_vars([("WAKELINE_EXECUTER", "naive")]).unwrap_err();
/// assert_eq!(error.code(), ErrorCode::InvalidSetting);
/// assert!(error.to_string().contains("did you mean `WAKELINE_EXECUTOR`?"));
/// # Ok::<(), wakeline::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// `WAKELINE_EXECUTOR`: which executor is asked for.
    pub executor: ExecutorKind,
    /// `WAKELINE_STRICT`: whether another may run in its place.
    pub strictness: Strictness,
    /// `WAKELINE_PLAN`: how to wait, `None` where the binary is to choose.
    pub bands: Option<WaitBands>,
    /// `WAKELINE_WARNINGS`: whether coded warnings are to be shown.
    pub warnings: bool,
    /// `WAKELINE_NVRTC`: the run-time compiler's library, `None` where it is to be looked for.
    pub nvrtc: Option<PathBuf>,
}

impl Default for Settings {
    /// The settings of an empty environment.
    fn default() -> Self {
        Self {
            executor: ExecutorKind::default(),
            strictness: Strictness::default(),
            bands: None,
            warnings: true,
            nvrtc: None,
        }
    }
}

impl Settings {
    /// The names of all settings there are.
    pub const NAMES: [&str; 5] = [EXECUTOR, STRICT, PLAN, WARNINGS, NVRTC];

    /// Reads this process's environment as it is now. For a binary's start; nothing else of wakeline looks at it, but `wakeline::compiler` for folders: `XDG_CACHE_HOME`, `HOME`,
    /// `LOCALAPPDATA`, `CUDA_HOME`, `CUDA_PATH` and `VIRTUAL_ENV`.
    ///
    /// # Errors
    ///
    /// As [`Settings::from_vars`].
    pub fn from_env() -> Result<Self, Error> {
        Self::from_vars(std::env::vars_os())
    }

    /// Reads names and values, wherever they come from. Of a name that comes twice, the first counts.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidSetting`](crate::ErrorCode::InvalidSetting) with the variable, its value, what is wrong and
    /// what would be right: a value that cannot be read or is no UTF-8, a `WAKELINE_*` variable that is no setting.
    /// Of several, the first by name.
    pub fn from_vars<N, V>(vars: impl IntoIterator<Item = (N, V)>) -> Result<Self, Error>
    where
        N: AsRef<OsStr>,
        V: Into<OsString>,
    {
        let mut ours: Vec<(String, OsString)> = Vec::new();
        for (name, value) in vars {
            let name = name.as_ref().to_string_lossy();
            if name.starts_with(PREFIX) {
                ours.push((name.into_owned(), value.into()));
            }
        }
        ours.sort_by(|(a, _), (b, _)| a.cmp(b));
        ours.dedup_by(|(later, _), (first, _)| later == first);
        let mut settings = Self::default();
        for (name, value) in &ours {
            let lossy = value.to_string_lossy();
            let value = value.to_str().ok_or_else(|| invalid_setting(name, &lossy, "not valid UTF-8"))?;
            settings.set(name, value)?;
        }
        Ok(settings)
    }

    /// Sets the setting of this name.
    fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        match name {
            EXECUTOR => self.executor = parse_value(name, value)?,
            STRICT if parse_switch(name, value)? => self.strictness = Strictness::Strict,
            STRICT => self.strictness = Strictness::Fallback,
            PLAN => self.bands = Some(parse_value(name, value)?),
            WARNINGS => self.warnings = parse_switch(name, value)?,
            NVRTC if PathBuf::from(value).is_file() => self.nvrtc = Some(value.into()),
            NVRTC => {
                let right = "there is no such file; set it to the path of the library, or unset it to have it looked for";
                return Err(invalid_setting(name, value, right));
            }
            _ => return Err(unknown_setting(name, value, &Self::NAMES)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wakeline_core::{ErrorCode, WaitPlan};

    #[test]
    fn an_empty_environment_gives_the_defaults() {
        let none: [(&str, &str); 0] = [];
        let settings = Settings::from_vars(none).unwrap();
        assert_eq!(settings, Settings::default());
        assert_eq!(settings.executor, ExecutorKind::Naive);
        assert_eq!(settings.strictness, Strictness::Fallback);
        assert_eq!(settings.bands, None);
        assert!(settings.warnings);
    }

    #[test]
    fn every_setting_is_read() {
        let settings = Settings::from_vars([
            ("PATH", "/bin"),
            ("WAKELINE_EXECUTOR", "io-uring"),
            ("WAKELINE_STRICT", "on"),
            ("WAKELINE_PLAN", "poll;rows>=32:block"),
            ("WAKELINE_WARNINGS", "no"),
            ("WAKELINE_NVRTC", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")),
        ])
        .unwrap();
        let bands = WaitBands::from(WaitPlan::poll()).with_band(32, WaitPlan::block()).unwrap();
        assert_eq!(
            settings,
            Settings {
                executor: ExecutorKind::IoUring,
                strictness: Strictness::Strict,
                bands: Some(bands),
                warnings: false,
                nvrtc: Some(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").into()),
            }
        );
    }

    /// Anything but the value that was documented to be off read as on.
    #[test]
    fn case_70_each_value_is_as_documented_or_an_error_that_names_it() {
        for name in Settings::NAMES {
            for value in ["", " ", "junk", "-1", "2", "99999999999999999999999", "poll ", "naive\n"] {
                let error = Settings::from_vars([(name, value)]).unwrap_err();
                assert_eq!(error.code(), ErrorCode::InvalidSetting, "{error}");
                assert_eq!(error.args()[0], name);
                assert_eq!(error.args()[1], value.replace('\n', "␊"));
            }
        }
        for (value, on) in
            [("0", false), ("false", false), ("off", false), ("NO", false), ("1", true), ("Yes", true)]
        {
            assert_eq!(Settings::from_vars([(WARNINGS, value)]).unwrap().warnings, on, "{value}");
            let strict = Settings::from_vars([(STRICT, value)]).unwrap().strictness == Strictness::Strict;
            assert_eq!(strict, on, "{value}");
        }
    }

    /// A switch that was set to `0` was taken for set.
    #[test]
    fn case_71_warnings_set_to_0_are_off_and_strict_set_to_0_is_not_strict() {
        assert!(!Settings::from_vars([(WARNINGS, "0")]).unwrap().warnings);
        assert_eq!(Settings::from_vars([(STRICT, "0")]).unwrap().strictness, Strictness::Fallback);
    }

    #[test]
    fn a_misspelt_setting_is_refused_with_the_right_name() {
        for (name, meant) in [
            ("WAKELINE_PLANS", Some("WAKELINE_PLAN")),
            ("WAKELINE_EXEC", Some("WAKELINE_EXECUTOR")),
            ("WAKELINE_plan", Some("WAKELINE_PLAN")),
            ("WAKELINE_WARNING", Some("WAKELINE_WARNINGS")),
            ("WAKELINE_FOO", None),
            ("WAKELINE_", None),
        ] {
            let error = Settings::from_vars([(name, "1")]).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidSetting);
            assert_eq!(error.args()[..2], [name, "1"]);
            let suggestion = meant.map_or(String::new(), |meant| format!(": did you mean `{meant}`?"));
            let start = format!("there is no such setting{suggestion}");
            assert!(error.args()[2].starts_with(&start), "{error}");
            assert_eq!(error.args()[2].contains("did you mean"), meant.is_some(), "{error}");
            assert!(error.args()[2].contains("`WAKELINE_PLAN`, `WAKELINE_WARNINGS` or"), "{error}");
        }
    }

    #[test]
    fn the_plan_keeps_its_column() {
        let error = Settings::from_vars([(PLAN, "poll;rows>=8:pol")]).unwrap_err();
        assert!(error.args()[2].starts_with("column 14: unknown plan `pol`"), "{error}");
    }

    #[test]
    fn of_several_faults_the_first_by_name_is_told_and_of_several_values_the_first_counts() {
        for vars in [[(WARNINGS, "x"), (PLAN, "x")], [(PLAN, "x"), (WARNINGS, "x")]] {
            assert_eq!(Settings::from_vars(vars).unwrap_err().args()[0], PLAN);
        }
        let settings = Settings::from_vars([(WARNINGS, "0"), (WARNINGS, "1")]).unwrap();
        assert!(!settings.warnings);
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_utf_8_is_refused_if_it_is_ours() {
        use std::os::unix::ffi::OsStrExt;
        let bytes = |bytes| OsStr::from_bytes(bytes).to_owned();
        let error = Settings::from_vars([(PLAN, bytes(b"poll\xFF"))]).unwrap_err();
        assert_eq!(error.args(), [PLAN, "poll\u{FFFD}", "not valid UTF-8"]);
        let error = Settings::from_vars([(bytes(b"WAKELINE_PL\xFFN"), "poll")]).unwrap_err();
        assert!(error.args()[2].contains("did you mean `WAKELINE_PLAN`?"), "{error}");
        let others = [(bytes(b"OTHER\xFF"), bytes(b"\xFF")), (bytes(b"HOME"), bytes(b"\xFF"))];
        assert_eq!(Settings::from_vars(others).unwrap(), Settings::default());
    }
}

//! What is read, and what holds of any input.

use std::ffi::OsString;
use std::fmt::Display;
use std::str::FromStr;

use wakeline::Settings;
use wakeline_core::{Error, ErrorCode, WaitBands, WaitPlan, parse_number, parse_switch};
use wakeline_measure::trace::{
    LINE_BYTES_MAX, NAME_CHARS_MAX, ROWS_MAX, Row, STEP_NS_MAX, TraceReader, TraceWriter,
};

/// The range that numbers are read in.
const NUMBERS: (u64, u64) = (3, 4_000_000_000);

/// What an input came to: what the reader said, or which promise is broken.
pub type Verdict = Result<String, String>;

/// Something that reads text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The text of a plan.
    Plan,
    /// Plans by batch rows.
    Bands,
    /// The value of a switch and of a number.
    Setting,
    /// Names and values of an environment, one a line.
    Settings,
    /// A recorded trace.
    Trace,
}

impl Target {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Plan, Self::Bands, Self::Setting, Self::Settings, Self::Trace];

    /// Its name, and that of its folder of inputs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Bands => "bands",
            Self::Setting => "setting",
            Self::Settings => "settings",
            Self::Trace => "trace",
        }
    }

    /// Words of its format.
    pub const fn words(self) -> &'static [&'static str] {
        match self {
            Self::Plan | Self::Bands => &[
                "block",
                "poll",
                "flag",
                ":",
                ",",
                "+",
                "=",
                "park_us=",
                "backstop_us=",
                "+predict:",
                "+adapt:",
                "+trust",
                "+warm",
                "margin_us=",
                "min_sleep_us=",
                "max_sleep_us=",
                "window=",
                "late_pct=",
                "guard_us=",
                "rows>=",
                "rows",
                ">=",
                ";",
                ";rows>=32:",
                " ",
                "\t",
                "-",
            ],
            Self::Setting => {
                &["0", "1", "on", "off", "true", "false", "yes", "no", "ON", "Off", "_", "+", "-", " ", "0x"]
            }
            Self::Settings => &[
                "WAKELINE_",
                "WAKELINE_EXECUTOR=",
                "WAKELINE_STRICT=",
                "WAKELINE_PLAN=",
                "WAKELINE_WARNINGS=",
                "WAKELINE_NVRTC=",
                "naive",
                "gpu-reactor",
                "io-uring",
                "on",
                "off",
                "poll",
                "block",
                "\n",
                "=",
            ],
            Self::Trace => &[
                "workload,point,rows,step,enqueue_ns,residual_ns,gpu_ns\n",
                ",",
                "\n",
                "\r\n",
                "decode",
                "sample",
                "\"",
                "'",
                " ",
                "\t",
                "60000000000",
                "60000000001",
                "-1",
                "1e9",
            ],
        }
    }

    /// Reads an input, and looks whether what is promised of it holds.
    ///
    /// # Errors
    ///
    /// What does not hold.
    pub fn check(self, input: &[u8]) -> Verdict {
        let lossy = || String::from_utf8_lossy(input).into_owned();
        match self {
            Self::Plan => round_trip::<WaitPlan>(&lossy()),
            Self::Bands => round_trip::<WaitBands>(&lossy()),
            Self::Setting => setting(&lossy()),
            Self::Settings => settings(input),
            Self::Trace => trace(input),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|target| target.name() == text)
            .ok_or_else(|| format!("`{text}` is no target: write one of {all}"))
    }
}

fn said(error: &Error) -> Verdict {
    let text = error.to_string();
    if text.trim().is_empty() {
        return Err("an error says nothing".to_owned());
    }
    Ok(text)
}

/// What is read prints as text that reads as the same.
fn round_trip<T>(text: &str) -> Verdict
where
    T: FromStr<Err = Error> + Display + PartialEq,
{
    match text.parse::<T>() {
        Ok(read) => {
            let printed = read.to_string();
            match printed.parse::<T>() {
                Ok(again) if again == read && again.to_string() == printed => Ok(printed),
                Ok(again) => Err(format!("`{text}` prints as `{printed}`, which reads as `{again}`")),
                Err(error) => Err(format!("`{text}` prints as `{printed}`, which is refused: {error}")),
            }
        }
        Err(error) => said(&error),
    }
}

fn setting(text: &str) -> Verdict {
    let words = ["0", "off", "false", "no", "1", "on", "true", "yes"];
    let switch = parse_switch("NAME", text);
    let word = words.iter().position(|word| word.eq_ignore_ascii_case(text));
    if switch.as_ref().ok().copied() != word.map(|word| word >= 4) {
        return Err(format!("`{text}` was read as the switch {switch:?}"));
    }
    let (min, max) = NUMBERS;
    let number = parse_number("NAME", text, min, max);
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let wanted = text.parse::<u64>().ok().filter(|number| digits && (min..=max).contains(number));
    if number.as_ref().ok().copied() != wanted {
        return Err(format!("`{text}` was read as the number {number:?}"));
    }
    let mut told = String::new();
    for error in [switch.err(), number.err()].into_iter().flatten() {
        if error.code() != ErrorCode::InvalidSetting || !error.to_string().contains("NAME") {
            return Err(format!("`{text}` is refused without its name: {error}"));
        }
        told += &said(&error)?;
    }
    Ok(told)
}

/// Lines of `NAME=VALUE`, not UTF-8 all of them.
fn settings(input: &[u8]) -> Verdict {
    let lines = input.split(|byte| *byte == b'\n');
    let vars: Vec<(String, OsString)> = lines
        .map(|line| {
            let mut parts = line.splitn(2, |byte| *byte == b'=');
            let name = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
            (name, os_string(parts.next().unwrap_or_default()))
        })
        .collect();
    let ours = |name: &str| name.starts_with("WAKELINE_");
    match Settings::from_vars(vars.clone()) {
        Ok(settings) => match vars.iter().find(|(name, _)| ours(name) && !Settings::NAMES.contains(&&**name))
        {
            Some((name, _)) => Err(format!("`{name}` is no setting, and was ignored")),
            None => Ok(format!("{settings:?}")),
        },
        Err(error) if !vars.iter().any(|(name, _)| ours(name)) => {
            Err(format!("there is no setting, and it was refused: {error}"))
        }
        Err(error) => said(&error),
    }
}

#[cfg(unix)]
fn os_string(bytes: &[u8]) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes.to_vec())
}

#[cfg(not(unix))]
fn os_string(bytes: &[u8]) -> OsString {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// Each row that is read is within its limits, and all of them read as they were when they are written.
fn trace(input: &[u8]) -> Verdict {
    let mut written = Vec::new();
    let mut rows = 0_u64;
    let said = {
        let mut writer = TraceWriter::new(&mut written).map_err(|error| error.to_string())?;
        let mut reader = match TraceReader::new("input", input) {
            Ok(reader) => reader,
            Err(error) => return Ok(error.to_string()),
        };
        loop {
            match reader.next_row() {
                Ok(Some(row)) => {
                    within_limits(&row)?;
                    writer.row(&row).map_err(|error| error.to_string())?;
                    rows += 1;
                }
                Ok(None) => break "read to its end".to_owned(),
                Err(error) => break error.to_string(),
            }
        }
    };
    if rows == 0 {
        // A trace without steps is refused.
        return Ok(said);
    }
    let mut again = TraceReader::new("written", &*written).map_err(|error| error.to_string())?;
    let mut rewritten = Vec::new();
    {
        let mut writer = TraceWriter::new(&mut rewritten).map_err(|error| error.to_string())?;
        while let Some(row) =
            again.next_row().map_err(|error| format!("what was written is refused: {error}"))?
        {
            writer.row(&row).map_err(|error| error.to_string())?;
            rows = rows.saturating_sub(1);
        }
    }
    if rows > 0 || rewritten != written {
        return Err("what was written reads as something else".to_owned());
    }
    Ok(said)
}

fn within_limits(row: &Row<'_>) -> Result<(), String> {
    let names = [row.workload, row.point];
    let good = names.iter().all(|name| (1..=NAME_CHARS_MAX).contains(&name.chars().count()))
        && row.rows <= ROWS_MAX
        && [row.enqueue_ns, row.residual_ns, row.gpu_ns].iter().all(|ns| *ns <= STEP_NS_MAX)
        && row.workload.len() + row.point.len() <= LINE_BYTES_MAX;
    if good { Ok(()) } else { Err(format!("a row is out of its limits: {row:?}")) }
}

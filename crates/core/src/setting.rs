//! Reading settings that come as text, strictly.
//!
//! Nothing here reads an environment: the value is handed in with the name it goes by. What cannot be read is an
//! [`ErrorCode::InvalidSetting`] that names the setting, its value, what is wrong and what would be right; never a
//! default. An unset setting is the caller's to default; one that is set to nothing is not unset.

use alloc::borrow::ToOwned;
use alloc::format;
use core::fmt;
use core::str::FromStr;

use crate::error::{Error, ErrorCode};
use crate::lex::{NumberFault, OneOf, Shown, closest, did_you_mean, number};

const OFF: [&str; 4] = ["0", "off", "false", "no"];
const ON: [&str; 4] = ["1", "on", "true", "yes"];
/// What is said first of an empty value.
const UNSET: &str = "set to nothing; unset it for the default: ";

/// Reads a switch: `0`, `off`, `false` or `no`, or `1`, `on`, `true` or `yes`, in upper or lower case.
///
/// ```
/// use wakeline_core::parse_switch;
/// assert_eq!(parse_switch("APP_WARNINGS", "0")?, false);
/// assert_eq!(parse_switch("APP_WARNINGS", "On")?, true);
/// let error = parse_switch("APP_WARNINGS", "2").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "invalid setting APP_WARNINGS=`2`: a switch is `0`, `off`, `false` or `no`; or `1`, `on`, `true` or `yes`"
/// );
/// # Ok::<(), wakeline_core::Error>(())
/// ```
///
/// # Errors
///
/// [`ErrorCode::InvalidSetting`] for anything else: nothing at all, another number, white space around the word.
pub fn parse_switch(name: &str, value: &str) -> Result<bool, Error> {
    let is = |word: &&str| word.eq_ignore_ascii_case(value);
    if OFF.iter().any(is) {
        return Ok(false);
    }
    if ON.iter().any(is) {
        return Ok(true);
    }
    let help = format!("a switch is {}; or {}", OneOf(&OFF), OneOf(&ON));
    let message = match closest(value, &["false", "true", "yes", "off"]) {
        _ if value.is_empty() => format!("{UNSET}{help}"),
        Some(word) => format!("did you mean `{word}`? {help}"),
        None => help,
    };
    Err(invalid_setting(name, value, message))
}

/// Reads a whole number from `min` to `max`: digits only.
///
/// ```
/// use wakeline_core::parse_number;
/// assert_eq!(parse_number("APP_THREADS", "8", 1, 64)?, 8);
/// let error = parse_number("APP_THREADS", "-1", 1, 64).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "invalid setting APP_THREADS=`-1`: not a whole number: write digits only, from 1 to 64"
/// );
/// # Ok::<(), wakeline_core::Error>(())
/// ```
///
/// # Errors
///
/// [`ErrorCode::InvalidSetting`] for anything else: nothing at all, a sign, white space, `0x10`, `1e3`, a number out
/// of range or too large for 64 bits.
pub fn parse_number(name: &str, value: &str, min: u64, max: u64) -> Result<u64, Error> {
    number(value, min, max).map_err(|fault| {
        let fault = match fault {
            NumberFault::Empty => format!("{UNSET}write digits only,"),
            NumberFault::NotDigits(_) => "not a whole number: write digits only,".to_owned(),
            NumberFault::OutOfRange => "out of range:".to_owned(),
        };
        invalid_setting(name, value, format!("{fault} from {min} to {max}"))
    })
}

/// Reads whatever is written as text and refused with a column: a plan, bands, the name of an executor.
///
/// ```
/// use wakeline_core::{WaitPlan, parse_value};
/// assert_eq!(parse_value::<WaitPlan>("APP_PLAN", "poll")?, WaitPlan::poll());
/// let error = parse_value::<WaitPlan>("APP_PLAN", "pol").unwrap_err();
/// assert!(error.to_string().starts_with("invalid setting APP_PLAN=`pol`: column 1: unknown plan `pol`: did you mean"));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
///
/// # Errors
///
/// [`ErrorCode::InvalidSetting`] with the fault and its column, and the value's own error as its source.
pub fn parse_value<T: FromStr<Err = Error>>(name: &str, value: &str) -> Result<T, Error> {
    value.parse().map_err(|error: Error| {
        let message = match (error.code(), error.args()) {
            (ErrorCode::InvalidPlan | ErrorCode::InvalidExecutor, [_, column, message]) => {
                let unset = if value.is_empty() { UNSET } else { "" };
                format!("{unset}column {column}: {message}")
            }
            _ => format!("{error}"),
        };
        invalid_setting(name, value, message).with_source(error)
    })
}

/// Takes a limit from `least` to `most`, both included.
///
/// ```
/// use wakeline_core::within;
/// assert_eq!(within("shards", 2, 1, 64)?, 2);
/// assert_eq!(within("shards", 65, 1, 64).unwrap_err().args(), ["shards", "65", "1", "64"]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
///
/// # Errors
///
/// [`ErrorCode::InvalidLimit`], which names the limit and its range.
pub fn within<V: Copy + fmt::Display + PartialOrd>(
    name: &str,
    value: V,
    least: V,
    most: V,
) -> Result<V, Error> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(Error::new(ErrorCode::InvalidLimit, [&name, &value, &least, &most]))
}

/// The error of a setting whose value is wrong for a reason of the caller's. The value is shown cut after 200
/// characters.
pub fn invalid_setting(name: &str, value: &str, message: impl fmt::Display) -> Error {
    Error::new(ErrorCode::InvalidSetting, [&Shown::word(name), &Shown::text(value), &message])
}

/// The error of a setting that does not exist: names the one that may have been meant, and all there are.
///
/// ```
/// use wakeline_core::unknown_setting;
/// assert_eq!(
///     unknown_setting("APP_PLANN", "poll", &["APP_PLAN", "APP_THREADS"]).to_string(),
///     "invalid setting APP_PLANN=`poll`: there is no such setting: did you mean `APP_PLAN`? \
///      A setting is `APP_PLAN` or `APP_THREADS`"
/// );
/// ```
pub fn unknown_setting(name: &str, value: &str, known: &[&str]) -> Error {
    let help = format!("A setting is {}", OneOf(known));
    invalid_setting(name, value, did_you_mean("there is no such setting", name, known, help))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::ExecutorKind;
    use crate::plan::WaitBands;
    use alloc::string::{String, ToString};
    use proptest::prelude::*;

    /// Anything but the value that was documented to be off read as on.
    #[test]
    fn case_70_each_spelling_of_a_switch_is_as_documented_or_an_error() {
        for (value, read) in [
            ("0", false),
            ("off", false),
            ("false", false),
            ("no", false),
            ("FALSE", false),
            ("1", true),
            ("on", true),
            ("true", true),
            ("yes", true),
            ("True", true),
        ] {
            assert_eq!(parse_switch("X", value).unwrap(), read, "{value}");
        }
        for (value, piece) in [
            ("", "set to nothing; unset it for the default"),
            (" ", "a switch is"),
            ("2", "a switch is"),
            ("00", "a switch is"),
            ("-1", "a switch is"),
            ("99999999999999999999999", "a switch is"),
            ("junk", "a switch is"),
            ("flase", "did you mean `false`?"),
            ("on ", "a switch is"),
            ("\0", "a switch is"),
        ] {
            let error = parse_switch("X", value).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidSetting);
            assert_eq!(error.args()[0], "X");
            assert_eq!(error.args()[1], Shown::text(value).to_string());
            assert!(error.args()[2].contains(piece), "{error}");
            assert!(
                error.args()[2].contains("`0`, `off`, `false` or `no`; or `1`, `on`, `true` or `yes`"),
                "{error}"
            );
        }
    }

    #[test]
    fn case_70_each_spelling_of_a_number_is_as_documented_or_an_error() {
        for (value, read) in [("1", 1), ("64", 64), ("007", 7)] {
            assert_eq!(parse_number("X", value, 1, 64).unwrap(), read, "{value}");
        }
        assert_eq!(parse_number("X", &u64::MAX.to_string(), 0, u64::MAX).unwrap(), u64::MAX);
        for (value, piece) in [
            ("", "set to nothing; unset it for the default: write digits only, from 1 to 64"),
            ("0", "out of range: from 1 to 64"),
            ("65", "out of range: from 1 to 64"),
            ("18446744073709551617", "out of range: from 1 to 64"),
            ("99999999999999999999999", "out of range: from 1 to 64"),
            ("-1", "not a whole number: write digits only, from 1 to 64"),
            ("+5", "not a whole number"),
            ("0x10", "not a whole number"),
            ("1e1", "not a whole number"),
            ("1_0", "not a whole number"),
            (" 5", "not a whole number"),
            ("5 ", "not a whole number"),
            ("off", "not a whole number"),
            ("true", "not a whole number"),
            ("junk", "not a whole number"),
        ] {
            let error = parse_number("X", value, 1, 64).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidSetting);
            assert_eq!(error.args()[..2], ["X", value]);
            assert!(error.args()[2].contains(piece), "{error}");
        }
    }

    /// A switch that was set to `0` was taken for set.
    #[test]
    fn case_71_a_switch_set_to_0_is_off() {
        assert!(!parse_switch("X", "0").unwrap());
        assert!(parse_switch("X", "1").unwrap());
    }

    #[test]
    fn a_text_value_keeps_its_fault_its_column_and_its_cause() {
        let error = parse_value::<WaitBands>("X", "poll;rows>=8:pol").unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidSetting);
        assert_eq!(error.args()[..2], ["X", "poll;rows>=8:pol"]);
        assert!(
            error.args()[2].starts_with("column 14: unknown plan `pol`: did you mean `poll`?"),
            "{error}"
        );
        assert!(core::error::Error::source(&error).is_some());
        let error = parse_value::<ExecutorKind>("X", "").unwrap_err();
        assert!(error.args()[2].starts_with("set to nothing; unset it for the default: column 1"), "{error}");
    }

    #[test]
    fn a_name_and_a_value_of_any_length_make_a_short_error() {
        let long = "x".repeat(10_000);
        for error in [
            unknown_setting(&long, &long, &["APP_PLAN"]),
            parse_switch(&long, &long).unwrap_err(),
            parse_number(&long, &long, 0, 1).unwrap_err(),
            parse_value::<WaitBands>(&long, &long).unwrap_err(),
        ] {
            assert!(error.to_string().chars().count() < 600, "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(value: String, min: u64, max: u64) {
            if let Ok(on) = parse_switch("X", &value) {
                let words = if on { ON } else { OFF };
                prop_assert!(words.contains(&&*value.to_ascii_lowercase()));
            }
            if let Ok(number) = parse_number("X", &value, min, max) {
                prop_assert!(min <= number && number <= max);
            }
            let _ = parse_value::<WaitBands>("X", &value);
        }

        #[test]
        fn a_number_in_range_is_read(bounds: [u64; 3]) {
            let mut bounds = bounds;
            bounds.sort_unstable();
            let [min, number, max] = bounds;
            prop_assert_eq!(parse_number("X", &number.to_string(), min, max).unwrap(), number);
        }
    }
}

//! Reading conditions: one pass from left to right, ending at the first fault, which is shown with a caret.

use std::fmt;
use std::str::FromStr;

use super::{Condition, Pattern, Quantity, Test};
use crate::ab::report::names::COUNTS;
use crate::plain;

/// How a condition is written, for messages.
const EXAMPLE: &str = "`ratio(wake/200 us/flag*).cpu > 0.1`";

/// Why times are refused.
const NO_TIMES: &str = "an absolute value differs from machine to machine and from day to day, whatever the code does; \
                        ask for `ratio(..)`, which is to an arm of the same run, or for `count(..).instructions`";

/// Names that stand for something measured, which people try.
const ABSOLUTE: [&str; 13] = [
    "mean",
    "value",
    "time",
    "median",
    "p50",
    "p90",
    "p99",
    "max",
    "latency",
    "cpu",
    "energy",
    "throughput",
    "abs",
];

/// The longest condition, in characters.
const CHARS_MAX: usize = 1_000;

/// A condition that cannot be read: where, why, and what would be right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    text: String,
    column: usize,
    message: String,
}

impl ParseError {
    /// The column of the fault, in characters from 1.
    pub const fn column(&self) -> usize {
        self.column
    }

    /// What is wrong, and what would be right.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ParseError {
    /// Three lines: the message, the condition, and a caret below its fault.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, column, message } = self;
        writeln!(f, "invalid condition, column {column}: {message}")?;
        writeln!(f, "  {}", plain(text))?;
        // What stands before the fault may be shown wider than it is.
        let before: String = text.chars().take(column - 1).collect();
        write!(f, "  {:>1$}", '^', plain(&before).chars().count() + 1)
    }
}

impl std::error::Error for ParseError {}

/// Where a fault is, in bytes, and what it is.
struct Fault(usize, String);

impl FromStr for Condition {
    type Err = ParseError;

    /// Reads a condition by the grammar at [`Condition`].
    ///
    /// # Errors
    ///
    /// [`ParseError`]: the column of the first fault, what is wrong and what would be right.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut cursor = Cursor { text, rest: text };
        let result = match text.char_indices().nth(CHARS_MAX) {
            Some((at, _)) => Err(Fault(at, format!("the condition is longer than {CHARS_MAX} characters"))),
            None => condition(&mut cursor),
        };
        result.map_err(|Fault(at, message)| ParseError {
            text: text.chars().take(CHARS_MAX).collect(),
            column: 1 + text.char_indices().take_while(|(start, _)| *start < at).count(),
            message,
        })
    }
}

/// How far the text is read.
struct Cursor<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn at(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, token: &str) -> bool {
        let after = self.rest.strip_prefix(token);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    /// Takes what is of these characters.
    fn while_of(&mut self, of: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !of(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn word(&mut self) -> &'a str {
        self.while_of(|c| c.is_ascii_alphanumeric() || c == '_')
    }

    /// What comes next, as a message shows it.
    fn next(&self) -> String {
        self.rest
            .chars()
            .next()
            .map_or_else(|| "the end".to_owned(), |c| format!("`{}`", plain(&c.to_string())))
    }
}

fn condition(cursor: &mut Cursor<'_>) -> Result<Condition, Fault> {
    cursor.skip_blanks();
    let quantity = quantity(cursor)?;
    if !cursor.take("(") {
        let message = format!("`(` and a place are missing here, as in {EXAMPLE}");
        return Err(Fault(cursor.at(), message));
    }
    let place = place(cursor)?;
    cursor.skip_blanks();
    let metric = metric(cursor, quantity)?;
    cursor.skip_blanks();
    let operator = operator(cursor)?;
    cursor.skip_blanks();
    let bound = bound(cursor)?;
    cursor.skip_blanks();
    if !cursor.rest.is_empty() {
        let unit = cursor.rest.starts_with(|c: char| c.is_alphabetic() || c == '%');
        let message = match (unit, quantity) {
            (true, Quantity::Count) => "a count is a plain number: write it without a unit".to_owned(),
            (true, _) => format!(
                "a ratio is a plain number and has no unit: a bound of 5 % more is written `> 1.05`; {NO_TIMES}"
            ),
            (false, _) => {
                format!("{} is not expected here: a condition ends with its bound", cursor.next())
            }
        };
        return Err(Fault(cursor.at(), message));
    }
    let text = cursor.text.trim().to_owned();
    Ok(Condition { text, quantity, place, metric: metric.to_owned(), test: operator, bound })
}

fn quantity(cursor: &mut Cursor<'_>) -> Result<Quantity, Fault> {
    let at = cursor.at();
    match cursor.word() {
        "ratio" => Ok(Quantity::Ratio),
        "change" => Ok(Quantity::Change),
        "count" => Ok(Quantity::Count),
        "" => Err(Fault(
            at,
            format!("`ratio`, `change` or `count` is missing here: a condition is written {EXAMPLE}"),
        )),
        word if ABSOLUTE.contains(&word) => Err(Fault(at, format!("`{word}` is refused: {NO_TIMES}"))),
        word => Err(Fault(
            at,
            format!("unknown quantity `{word}`: it is `ratio`, `change` or `count`, as in {EXAMPLE}"),
        )),
    }
}

/// `part "/" part "/" part ")"`
fn place(cursor: &mut Cursor<'_>) -> Result<[Pattern; 3], Fault> {
    let suite = part(cursor, "suite", '/')?;
    let case = part(cursor, "case", '/')?;
    let arm = part(cursor, "arm", ')')?;
    Ok([suite, case, arm])
}

/// A part of a place and the character behind it.
fn part(cursor: &mut Cursor<'_>, what: &str, end: char) -> Result<Pattern, Fault> {
    cursor.skip_blanks();
    let at = cursor.at();
    let pattern = if cursor.rest.starts_with('"') {
        let pattern = Pattern { pieces: vec![quoted(cursor)?] };
        cursor.skip_blanks();
        pattern
    } else {
        let plain = cursor.while_of(|c| !"/()\"".contains(c)).trim();
        Pattern { pieces: plain.split('*').map(str::to_owned).collect() }
    };
    if pattern.pieces == [""] {
        let message = format!("the {what} is missing here: a place is written `suite/case/arm`, `*` for any");
        return Err(Fault(at, message));
    }
    if cursor.take(end.encode_utf8(&mut [0; 4])) {
        return Ok(pattern);
    }
    let message = match (cursor.rest.chars().next(), end) {
        (Some(')') | None, '/') => {
            format!("`/` and what follows the {what} are missing here: a place is written `suite/case/arm`")
        }
        (None, _) => format!("`)` is missing here: {what}s end with it, as in {EXAMPLE}"),
        _ => format!(
            "{} is not expected here: the {what} ends with `{end}`; a name with `/`, `(`, `)` or a quote in it is written in quotes",
            cursor.next()
        ),
    };
    Err(Fault(cursor.at(), message))
}

fn quoted(cursor: &mut Cursor<'_>) -> Result<String, Fault> {
    let start = cursor.at();
    let mut text = String::new();
    let mut chars = cursor.rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                cursor.rest = &cursor.rest[at + 1..];
                return Ok(text);
            }
            '\\' => {
                let escaped = chars.next().map(|(_, escaped)| escaped).filter(|c| ['"', '\\'].contains(c));
                let message = "`\\` in quotes stands before a quote or another `\\`: write `\\\\`";
                text.push(escaped.ok_or_else(|| Fault(start + at, message.to_owned()))?);
            }
            c => text.push(c),
        }
    }
    Err(Fault(start, "the quote that begins here does not end".to_owned()))
}

fn metric<'a>(cursor: &mut Cursor<'a>, quantity: Quantity) -> Result<&'a str, Fault> {
    if !cursor.take(".") {
        let message = format!("`.` and a metric are missing here, as in {EXAMPLE}");
        return Err(Fault(cursor.at(), message));
    }
    let at = cursor.at();
    let metric = cursor.word();
    if metric.is_empty() {
        let message = "the name of a metric is missing here: `latency`, `cpu`, `throughput`, ..";
        return Err(Fault(at, message.to_owned()));
    }
    if quantity == Quantity::Count && !COUNTS.contains(&metric) {
        let counts = COUNTS.join("`, `");
        return Err(Fault(
            at,
            format!("`{metric}` is measured, not counted, and `count` is of `{counts}`: {NO_TIMES}"),
        ));
    }
    Ok(metric)
}

fn operator(cursor: &mut Cursor<'_>) -> Result<Test, Fault> {
    let at = cursor.at();
    match cursor.while_of(|c| "<>=!".contains(c)) {
        ">" => Ok(Test::Above),
        ">=" => Ok(Test::AtLeast),
        "<" => Ok(Test::Below),
        "<=" => Ok(Test::AtMost),
        "" => Err(Fault(at, format!("`>`, `>=`, `<` or `<=` is missing here, as in {EXAMPLE}"))),
        "=" | "==" | "!=" => {
            let message = "an interval is never equal to a number: use `>`, `>=`, `<` or `<=`";
            Err(Fault(at, message.to_owned()))
        }
        _ => Err(Fault(at, "this is none of `>`, `>=`, `<`, `<=`".to_owned())),
    }
}

fn bound(cursor: &mut Cursor<'_>) -> Result<f64, Fault> {
    let at = cursor.at();
    let text = cursor.while_of(|c| c.is_ascii_digit() || "+-._".contains(c));
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let parts: Vec<&str> = digits.split('.').collect();
    let is_number = parts.len() <= 2
        && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    match text.parse::<f64>() {
        Ok(bound) if is_number && bound.is_finite() => Ok(bound),
        _ if text.is_empty() => {
            Err(Fault(at, format!("the bound is missing here: a number, as in {EXAMPLE}")))
        }
        _ => Err(Fault(at, format!("`{text}` is no number: write digits with at most one point, as `1.05`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Condition, ParseError> {
        text.parse()
    }

    #[test]
    fn conditions_are_read() {
        let condition = parse(" ratio( wake / 200 us / flag* ).cpu>0.1 ").unwrap();
        assert_eq!(condition.to_string(), "ratio( wake / 200 us / flag* ).cpu>0.1");
        assert_eq!((condition.test, condition.metric.as_str()), (Test::Above, "cpu"));
        assert_eq!(condition.place.clone().map(|part| part.pieces.join("*")), ["wake", "200 us", "flag*"]);
        assert!((condition.bound - 0.1).abs() < 1e-12);
        let condition = parse(r#"change(fan-in/"1/2 \"load\"*"/a: b, c).process_cpu <= -0.05"#).unwrap();
        assert_eq!((condition.quantity, condition.test), (Quantity::Change, Test::AtMost));
        assert_eq!(condition.place[1].pieces, ["1/2 \"load\"*"]);
        assert!((condition.bound + 0.05).abs() < 1e-12);
        assert_eq!(parse("count(ops/*/*).instructions >= 500").unwrap().quantity, Quantity::Count);
    }

    #[test]
    fn each_fault_has_its_column_and_says_what_would_be_right() {
        for (text, column, says) in [
            ("", 1, "`ratio`, `change` or `count` is missing"),
            ("rate(a/b/c).cpu > 1", 1, "unknown quantity `rate`: it is `ratio`"),
            ("  p99(a/b/c) > 1", 3, "`p99` is refused: an absolute value differs"),
            ("latency(a/b/c) > 1", 1, "`latency` is refused: an absolute value differs"),
            ("ratio", 6, "`(` and a place are missing"),
            ("ratio(wake/200 us).cpu > 1", 18, "`/` and what follows the case are missing"),
            ("ratio(wake", 11, "`/` and what follows the suite are missing"),
            ("ratio(/b/c).cpu > 1", 7, "the suite is missing"),
            ("ratio(a/b/).cpu > 1", 11, "the arm is missing"),
            ("ratio(a/b/c/d).cpu > 1", 12, "`/` is not expected here: the arm ends with `)`"),
            ("ratio(a/b/c", 12, "`)` is missing"),
            ("ratio(a/\"b/c).cpu > 1", 9, "the quote that begins here does not end"),
            ("ratio(a/\"b\\n\"/c).cpu > 1", 11, "`\\` in quotes stands before"),
            ("ratio(a/b/c) > 1", 14, "`.` and a metric are missing"),
            ("ratio(a/b/c). > 1", 14, "the name of a metric is missing"),
            ("count(a/b/c).cpu > 1", 14, "`cpu` is measured, not counted"),
            ("ratio(a/b/c).cpu 1", 18, "`>`, `>=`, `<` or `<=` is missing"),
            ("ratio(a/b/c).cpu == 1", 18, "an interval is never equal"),
            ("ratio(a/b/c).cpu => 1", 18, "this is none of"),
            ("ratio(a/b/c).cpu > ", 20, "the bound is missing"),
            ("ratio(a/b/c).cpu > 1.2.3", 20, "`1.2.3` is no number"),
            ("ratio(a/b/c).cpu > --1", 20, "`--1` is no number"),
            ("ratio(a/b/c).cpu > 5us", 21, "a ratio is a plain number and has no unit"),
            ("ratio(a/b/c).cpu > 5 %", 22, "a ratio is a plain number and has no unit"),
            ("count(a/b/c).instructions > 5k", 30, "a count is a plain number"),
            ("ratio(a/b/c).cpu > 1, ratio", 21, "`,` is not expected here"),
            ("ratio(\u{e4}/\u{f6}).cpu > 1", 10, "`/` and what follows the case are missing"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.column(), column, "{error}");
            assert!(error.message().starts_with(says), "{error}");
        }
    }

    #[test]
    fn the_caret_stands_below_the_fault() {
        for text in ["ratio(\u{e4}\t/b/c).cpu == 1", "ratio(\x1b[31m/\u{202e}b\n/c).cpu == 1"] {
            let shown = parse(text).unwrap_err().to_string();
            let lines: Vec<&str> = shown.lines().collect();
            assert_eq!(lines.len(), 3, "{shown}");
            let at = lines[1].chars().position(|c| c == '=').unwrap();
            assert_eq!(lines[2].chars().position(|c| c == '^'), Some(at), "{shown}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_with_a_column_in_it(text in "\\PC{0,40}|ratio\\(.{0,20}") {
            if let Err(error) = parse(&text) {
                prop_assert!((1..=text.chars().count() + 1).contains(&error.column()), "{}", error);
            }
        }

        #[test]
        fn what_is_in_quotes_is_taken_as_it_is(name in "\\PC{1,20}") {
            let escaped = name.replace('\\', "\\\\").replace('"', "\\\"");
            let condition = parse(&format!("ratio(\"{escaped}\"/b/c).cpu > 1")).unwrap();
            prop_assert_eq!(&condition.place[0].pieces, &[name]);
        }
    }
}

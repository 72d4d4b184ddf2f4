//! What the readers of text share: where a fault is, how foreign text is shown, which name was meant.
//!
//! Nothing here is on a wait path: it allocates, and its work is bounded by the length of the text.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};

use crate::error::{Error, ErrorCode};

/// How many characters of a foreign text an error shows.
pub(crate) const TEXT_CHARS_MAX: usize = 200;
/// How many characters of a foreign word a message shows, and the longest word that a name is suggested for.
pub(crate) const WORD_CHARS_MAX: usize = 40;
/// The shortest word that counts as the beginning of a name.
const PREFIX_CHARS_MIN: usize = 3;

/// What is wrong with a text, and where.
#[derive(Debug)]
pub(crate) struct Fault {
    /// In bytes from the start of the text.
    at: usize,
    message: String,
}

impl Fault {
    pub(crate) fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }

    /// The error of this code about `text`: the text as shown, the column in characters from 1, the message.
    pub(crate) fn into_error(self, code: ErrorCode, text: &str) -> Error {
        let column = 1 + text.char_indices().take_while(|(at, _)| *at < self.at).count();
        Error::new(code, [&Shown::text(text), &column, &self.message])
    }
}

/// Why a number cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NumberFault {
    /// There is nothing.
    Empty,
    /// The character that begins this many bytes in is no digit.
    NotDigits(usize),
    /// Too small or too large.
    OutOfRange,
}

/// Reads digits and nothing else, no sign and no white space, as a number from `min` to `max`.
pub(crate) fn number(text: &str, min: u64, max: u64) -> Result<u64, NumberFault> {
    if text.is_empty() {
        return Err(NumberFault::Empty);
    }
    if let Some(at) = text.find(|c: char| !c.is_ascii_digit()) {
        return Err(NumberFault::NotDigits(at));
    }
    // All that can still go wrong is an overflow.
    text.parse().ok().filter(|value| (min..=max).contains(value)).ok_or(NumberFault::OutOfRange)
}

/// Foreign text as an error shows it: cut where it is long, and saying so, with a visible sign for every control and
/// every invisible format or separator character, one for one, so that columns stay true and no terminal obeys it.
#[derive(Debug)]
pub(crate) struct Shown<'a> {
    text: &'a str,
    chars_max: usize,
}

impl<'a> Shown<'a> {
    /// A whole text, cut after [`TEXT_CHARS_MAX`].
    pub(crate) const fn text(text: &'a str) -> Self {
        Self { text, chars_max: TEXT_CHARS_MAX }
    }

    /// A word of it, cut after [`WORD_CHARS_MAX`].
    pub(crate) const fn word(text: &'a str) -> Self {
        Self { text, chars_max: WORD_CHARS_MAX }
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.text.chars().take(self.chars_max) {
            f.write_char(match c {
                '\0'..='\x1F' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{FFFD}'),
                '\x7F' => '\u{2421}',
                c if c.is_control() || is_invisible(c) => '\u{FFFD}',
                c => c,
            })?;
        }
        match self.text.chars().count() {
            chars if chars > self.chars_max => write!(f, "... ({chars} characters)"),
            _ => Ok(()),
        }
    }
}

/// Whether it is a format character or a separator of lines that shows nothing itself but changes how the text around
/// it is shown: its direction, its lines, its joints. As of Unicode 16; the format characters that do show, such as
/// the signs around Arabic numbers, are not among them.
const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{AD}'
            | '\u{61C}'
            | '\u{180E}'
            | '\u{200B}'..='\u{200F}'
            | '\u{2028}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}'
            | '\u{FEFF}'
            | '\u{FFF9}'..='\u{FFFB}'
            | '\u{13430}'..='\u{1343F}'
            | '\u{1BCA0}'..='\u{1BCA3}'
            | '\u{1D173}'..='\u{1D17A}'
            | '\u{E0000}'..='\u{E007F}'
    )
}

/// A list of names as a sentence has it: "`a`, `b` or `c`".
#[derive(Debug)]
pub(crate) struct OneOf<'a>(pub(crate) &'a [&'a str]);

impl fmt::Display for OneOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            let before = match index {
                0 => "",
                _ if index + 1 == self.0.len() => " or ",
                _ => ", ",
            };
            write!(f, "{before}`{name}`")?;
        }
        Ok(())
    }
}

/// "`fault`: did you mean `name`? `help`" where one of `names` is near to `word`, else "`fault`. `help`".
pub(crate) fn did_you_mean(
    fault: impl fmt::Display,
    word: &str,
    names: &[&str],
    help: impl fmt::Display,
) -> String {
    match closest(word, names) {
        Some(name) => format!("{fault}: did you mean `{name}`? {help}"),
        None => format!("{fault}. {help}"),
    }
}

/// Which of `names` was meant by `word`: the only one that it is the beginning of, or the nearest by number of
/// typing errors, as long as these are at most a third of what differs at all.
pub(crate) fn closest<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(WORD_CHARS_MAX + 1).map(|c| c.to_ascii_lowercase()).collect();
    if word.len() > WORD_CHARS_MAX {
        return None;
    }
    let mut nearest: Option<(usize, &str)> = None;
    let mut begun: Option<&str> = None;
    let mut begun_count = 0;
    for &name in names {
        let letters: Vec<char> = name.chars().map(|c| c.to_ascii_lowercase()).collect();
        let same = word.iter().zip(&letters).take_while(|(a, b)| a == b).count();
        let limit = ((word.len().max(letters.len()) - same) / 3).max(1);
        let errors = typing_errors(&word[same..], &letters[same..]);
        if errors <= limit && errors < word.len() && nearest.is_none_or(|(least, _)| errors < least) {
            nearest = Some((errors, name));
        }
        if same == word.len() && same >= PREFIX_CHARS_MIN {
            begun = Some(name);
            begun_count += 1;
        }
    }
    begun.filter(|_| begun_count == 1).or(nearest.map(|(_, name)| name))
}

/// How many characters were left out, put in, mistaken or swapped with the next (the optimal string alignment
/// distance).
fn typing_errors(a: &[char], b: &[char]) -> usize {
    let mut last: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(i + 1);
        for (j, &y) in b.iter().enumerate() {
            let mut errors = (row[j] + usize::from(x != y)).min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && x == b[j - 1] && y == a[i - 1] {
                errors = errors.min(last[j - 1] + 1);
            }
            next.push(errors);
        }
        last = row;
        row = next;
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn a_near_name_is_suggested_and_a_far_one_is_not() {
        let names = ["park_us", "backstop_us", "min_sleep_us", "max_sleep_us"];
        for (word, meant) in [
            ("pak_us", Some("park_us")),
            ("prak_us", Some("park_us")),
            ("PARK_US", Some("park_us")),
            ("park", Some("park_us")),
            ("max", Some("max_sleep_us")),
            ("maxslep_us", Some("max_sleep_us")),
            ("backstop-us", Some("backstop_us")),
            ("m", None),
            ("", None),
            ("window", None),
        ] {
            assert_eq!(closest(word, &names), meant, "{word}");
        }
        let names = ["APP_PLAN", "APP_STRICT"];
        assert_eq!(closest("APP_", &names), None, "the beginning of both");
        assert_eq!(closest("APP_FOO", &names), None, "what all share is no likeness");
        assert_eq!(closest("APP_STRIKT", &names), Some("APP_STRICT"));
        assert_eq!(closest(&"APP_PLAN".repeat(1_000), &names), None);
    }

    #[test]
    fn shown_text_is_cut_and_harmless() {
        assert_eq!(Shown::text("a\tb\x1B\x7F\u{85}é").to_string(), "a␉b␛␡\u{FFFD}é");
        let exact = "é".repeat(TEXT_CHARS_MAX);
        assert_eq!(Shown::text(&exact).to_string(), exact);
        let long = Shown::text(&(exact.clone() + "x")).to_string();
        assert_eq!(long, exact + "... (201 characters)");
    }

    #[test]
    fn shown_text_neither_turns_nor_breaks_nor_hides() {
        let ranges = [
            '\u{AD}'..='\u{AD}',
            '\u{61C}'..='\u{61C}',
            '\u{200B}'..='\u{200F}',
            '\u{2028}'..='\u{202E}',
            '\u{2060}'..='\u{206F}',
            '\u{FEFF}'..='\u{FEFF}',
            '\u{E0001}'..='\u{E007F}',
        ];
        for c in ranges.into_iter().flatten() {
            let text = format!("a{c}b");
            assert_eq!(Shown::text(&text).to_string(), "a\u{FFFD}b", "{c:?}");
            let error = Fault::new(1 + c.len_utf8(), "x").into_error(ErrorCode::InvalidPlan, &text);
            assert_eq!(error.args(), ["a\u{FFFD}b", "3", "x"]);
        }
        let harmless = "é \u{A0}ل漢e\u{301}\u{2010}\u{2027}\u{202F}\u{2070}🙂";
        assert_eq!(Shown::text(harmless).to_string(), harmless);
    }

    #[test]
    fn a_column_counts_characters() {
        for (at, column) in [(0, "1"), (2, "2"), (3, "3"), (99, "4")] {
            let error = Fault::new(at, "x").into_error(ErrorCode::InvalidPlan, "éab");
            assert_eq!(error.args(), ["éab", column, "x"]);
        }
    }

    proptest! {
        #[test]
        fn typing_errors_are_a_distance(a in "[a-c_]{0,8}", b in "[a-c_]{0,8}") {
            let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
            let errors = typing_errors(&a, &b);
            prop_assert_eq!(errors, typing_errors(&b, &a));
            prop_assert_eq!(errors == 0, a == b);
            prop_assert!(errors >= a.len().abs_diff(b.len()) && errors <= a.len().max(b.len()));
        }
    }
}

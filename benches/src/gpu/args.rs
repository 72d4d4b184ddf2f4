//! Arguments, one by one, with messages that name the argument, the value and what it may be.

use core::fmt::Display;
use core::ops::RangeInclusive;
use core::str::FromStr;
use std::ffi::OsString;

/// The words of a command line.
#[derive(Debug)]
pub struct Words<I> {
    words: I,
    /// The argument that was read last.
    last: String,
}

impl<I: Iterator<Item = String>> Words<I> {
    /// The words behind the program's name.
    pub const fn new(words: I) -> Self {
        Self { words, last: String::new() }
    }

    /// The next argument.
    pub fn argument(&mut self) -> Option<String> {
        let word = self.words.next()?;
        self.last.clone_from(&word);
        Some(word)
    }

    /// The value of the argument that was read last.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn value(&mut self) -> Result<String, String> {
        self.words.next().ok_or_else(|| format!("`{}` wants a value; see --help", self.last))
    }

    /// Its value as a number within bounds.
    ///
    /// # Errors
    ///
    /// There is none, or it is no such number.
    pub fn number<T>(&mut self, within: &RangeInclusive<T>) -> Result<T, String>
    where
        T: FromStr + PartialOrd + Display,
    {
        let text = self.value()?;
        let number = text.parse().ok().filter(|number| within.contains(number));
        number.ok_or_else(|| {
            let (least, most) = (within.start(), within.end());
            format!("`{} {text}` is not from {least} to {most}; see --help", self.last)
        })
    }

    /// Its value as one of these, by its name.
    ///
    /// # Errors
    ///
    /// There is none, or it is none of them.
    pub fn one_of<T: Copy>(&mut self, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T, String> {
        let text = self.value()?;
        let found = all.iter().copied().find(|one| name(*one) == text);
        found.ok_or_else(|| {
            let names: Vec<_> = all.iter().map(|one| name(*one)).collect();
            format!("`{} {text}` is none of {}; see --help", self.last, names.join(", "))
        })
    }

    /// What to say of an option that may be given once and was given again, of those that were `seen`.
    ///
    /// # Errors
    ///
    /// It was: which of the two values is meant cannot be known.
    pub fn once(&self, seen: &mut Vec<String>) -> Result<(), String> {
        if !self.last.starts_with('-') {
            return Ok(());
        }
        if seen.contains(&self.last) {
            return Err(format!("`{}` is there twice: give it once", self.last));
        }
        seen.push(self.last.clone());
        Ok(())
    }

    /// What to say of an argument that is not known.
    pub fn unknown(&self) -> String {
        format!("unknown argument `{}`; see --help", self.last)
    }
}

/// The words of a command line as text.
///
/// # Errors
///
/// The first that is no UTF-8: taken for what it looks like, it would name another file.
pub fn texts(words: impl Iterator<Item = OsString>) -> Result<Vec<String>, String> {
    let text = |word: OsString| {
        word.into_string().map_err(|word| format!("`{}` is no UTF-8: give it another name", word.display()))
    };
    words.map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Words<impl Iterator<Item = String>> {
        Words::new(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn values_are_read_within_their_bounds() {
        let mut words = words("--a 3 --b two --c x");
        assert_eq!(words.argument().as_deref(), Some("--a"));
        assert_eq!(words.number(&(1..=3)), Ok(3));
        words.argument();
        assert_eq!(words.one_of(&["one", "two"], |name| name), Ok("two"));
        words.argument();
        assert_eq!(words.value().as_deref(), Ok("x"));
        assert_eq!(words.argument(), None);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_value_and_what_would_be_right() {
        let number = |text| {
            let mut words = words(text);
            words.argument();
            words.number(&(1..=9_u32)).unwrap_err()
        };
        assert_eq!(number("--n 10"), "`--n 10` is not from 1 to 9; see --help");
        assert_eq!(number("--n x"), "`--n x` is not from 1 to 9; see --help");
        assert_eq!(number("--n"), "`--n` wants a value; see --help");
        let mut words = words("--s three");
        words.argument();
        let message = words.one_of(&["one", "two"], |name| name).unwrap_err();
        assert_eq!(message, "`--s three` is none of one, two; see --help");
        assert_eq!(words.unknown(), "unknown argument `--s`; see --help");
    }
}

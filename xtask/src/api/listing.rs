//! One listing: its lines, each with what happened to it since the last release.
//!
//! ```text
//! # The public items of wakeline-core ..
//! # Since: 0.1.0
//! - pub fn wakeline_core::gone()       was there at the last release
//! + pub fn wakeline_core::new()        was not
//!   pub fn wakeline_core::as_ever()
//! ```

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail};

/// What the line that names the last release begins with.
const SINCE: &str = "# Since: ";

/// The public items of a package, and those of its last release.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Listing {
    /// The version of the last release.
    since: String,
    /// What was public then.
    then: BTreeSet<String>,
    /// What is public now, in the order of the sources' paths.
    now: Vec<String>,
}

impl Listing {
    /// What a release has: nothing came or went since.
    pub(crate) fn first(version: &str, items: &[String]) -> Self {
        Self { since: version.to_owned(), then: items.iter().cloned().collect(), now: items.to_vec() }
    }

    /// # Errors
    /// A line that is none of a listing's.
    pub(crate) fn read(text: &str) -> Result<Self> {
        let since = text.lines().find_map(|line| line.strip_prefix(SINCE));
        let since = since.with_context(|| format!("no line begins with `{SINCE}`"))?.to_owned();
        let (mut then, mut now) = (BTreeSet::new(), Vec::new());
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
            match line.split_at_checked(2) {
                Some(("- ", item)) => _ = then.insert(item.to_owned()),
                Some(("+ ", item)) => now.push(item.to_owned()),
                Some(("  ", item)) => {
                    then.insert(item.to_owned());
                    now.push(item.to_owned());
                }
                _ => bail!("line {}: `{line}` begins with none of `- `, `+ ` and two blanks", at + 1),
            }
        }
        Ok(Self { since, then, now })
    }

    /// With other items, and the same last release.
    pub(crate) fn with(&self, items: &[String]) -> Self {
        Self { since: self.since.clone(), then: self.then.clone(), now: items.to_vec() }
    }

    /// What is public in `later` and not here.
    pub(crate) fn comes<'l>(&self, later: &'l Self) -> Vec<&'l str> {
        let here = self.public();
        later.now.iter().map(String::as_str).filter(|item| !here.contains(item)).collect()
    }

    /// What is public here and not in `later`.
    pub(crate) fn goes(&self, later: &Self) -> Vec<&str> {
        later.comes(self)
    }

    /// What the last release had, and what is not there any more.
    pub(crate) fn gone(&self) -> impl Iterator<Item = &str> {
        let now = self.public();
        self.then.iter().map(String::as_str).filter(move |item| !now.contains(item))
    }

    fn public(&self) -> BTreeSet<&str> {
        self.now.iter().map(String::as_str).collect()
    }

    /// As it is written: what went first, since that is what breaks.
    pub(crate) fn text(&self, package: &str) -> String {
        let mut text = format!(
            "# The public items of {package}, all features, on x86-64 Linux: two blanks before what the last release had, too,\n\
             # `+` before what came since, `-` before what went. Written by `cargo xtask api --write`.\n{SINCE}{}\n",
            self.since
        );
        self.gone().for_each(|item| _ = writeln!(text, "- {item}"));
        for item in &self.now {
            let _ = writeln!(text, "{} {item}", if self.then.contains(item) { ' ' } else { '+' });
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(of: &[&str]) -> Vec<String> {
        of.iter().map(|item| (*item).to_owned()).collect()
    }

    #[test]
    fn what_came_and_went_since_the_release_is_marked_until_the_next() {
        let first = Listing::first("0.1.0", &items(&["pub fn a()", "pub fn b()"]));
        let second = first.with(&items(&["pub fn a()", "pub fn c()"]));
        assert_eq!(first.goes(&second), ["pub fn b()"]);
        assert_eq!(first.comes(&second), ["pub fn c()"]);
        let text = second.text("p");
        assert!(text.ends_with("# Since: 0.1.0\n- pub fn b()\n  pub fn a()\n+ pub fn c()\n"), "{text}");
        let read = Listing::read(&text).unwrap();
        assert_eq!(read, second);
        // What came since the release and goes before the next breaks nobody; what is brought back is not gone.
        let third = read.with(&items(&["pub fn a()", "pub fn b()"]));
        assert_eq!((read.goes(&third), third.gone().count()), (vec!["pub fn c()"], 0));
        assert_eq!(read.gone().collect::<Vec<_>>(), ["pub fn b()"]);
    }

    #[test]
    fn foreign_lines_are_refused() {
        let error = Listing::read("# Since: 0.1.0\n  pub fn a()\n* pub fn b()\n").unwrap_err().to_string();
        assert!(error.starts_with("line 3: `* pub fn b()`"), "{error}");
        assert!(Listing::read("  pub fn a()\n").is_err());
    }
}

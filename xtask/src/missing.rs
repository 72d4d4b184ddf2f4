//! What a machine lacks: an error that says what to install, or a counted line `skipped:` where that is allowed.

use std::fmt;

use anyhow::Result;

/// Something that a step needs and this machine has not.
#[derive(Debug)]
pub(crate) struct Missing {
    /// What is not there, and what is left unchecked without it.
    pub(crate) what: String,
    /// What to do about it.
    pub(crate) install: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, install } = self;
        write!(f, "{what}; to have it: {install} (or `--allow-missing` to go on without)")
    }
}

impl std::error::Error for Missing {}

/// How a step came out that did not fail.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All of it was done.
    Done,
    /// It was left out, because of what the text says.
    Skipped(String),
}

/// Turns an error that is a [`Missing`] into a skip where `allow_missing`; every other error stays one.
pub(crate) fn settle(result: Result<()>, allow_missing: bool) -> Result<Outcome> {
    match result {
        Ok(()) => Ok(Outcome::Done),
        Err(error) => match error.downcast_ref::<Missing>() {
            Some(missing) if allow_missing => {
                println!("skipped: {}", missing.what);
                Ok(Outcome::Skipped(missing.what.clone()))
            }
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacking() -> Result<()> {
        Err(Missing { what: "no x".to_owned(), install: "get x".to_owned() }.into())
    }

    #[test]
    fn a_missing_thing_is_an_error_that_says_what_to_install() {
        let error = settle(lacking(), false).unwrap_err().to_string();
        assert!(error.contains("no x; to have it: get x"), "{error}");
    }

    #[test]
    fn only_missing_things_are_skipped() {
        assert_eq!(settle(lacking(), true).unwrap(), Outcome::Skipped("no x".to_owned()));
        assert!(settle(Err(anyhow::anyhow!("broken")), true).is_err());
        assert_eq!(settle(Ok(()), true).unwrap(), Outcome::Done);
    }
}

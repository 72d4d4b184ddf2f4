//! Reading plans: one pass from left to right, ending at the first fault.
//!
//! Every fault names what is wrong and what would be right. Work is bounded by the length of the text.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::num::NonZeroU16;

use super::{
    Adapt, Ahead, BACKSTOP_US_MAX, LATE_PCT_MAX, MARGIN_US_MAX, Mode, PARK_US_MAX, Predict, SLEEP_US_MAX,
    Stored, WINDOW_MAX, WaitPlan,
};
use crate::error::{Error, ErrorCode};
use crate::lex::{Fault, NumberFault, Shown, did_you_mean, number};

const MODES: [&str; 3] = ["block", "poll", "flag"];
const MODES_HELP: &str = "A plan is `block`, `poll` or `flag:park_us=50,backstop_us=1000`";
const SUFFIXES: [&str; 4] = ["predict", "adapt", "warm", "trust"];
const SUFFIXES_HELP: &str = "A suffix is `+predict:..`, `+adapt:..`, `+warm` or `+trust`";

/// A part of a plan that has fields.
struct Part<const N: usize> {
    example: &'static str,
    names: [&'static str; N],
    /// The smallest and the largest value of each.
    ranges: [(u64, u64); N],
}

const FLAG: Part<2> = Part {
    example: "flag:park_us=50,backstop_us=1000",
    names: ["park_us", "backstop_us"],
    ranges: [(1, PARK_US_MAX), (1, BACKSTOP_US_MAX)],
};

const PREDICT: Part<4> = Part {
    example: "+predict:margin_us=50,min_sleep_us=100,max_sleep_us=20000,window=16",
    names: ["margin_us", "min_sleep_us", "max_sleep_us", "window"],
    ranges: [(0, MARGIN_US_MAX), (1, SLEEP_US_MAX), (1, SLEEP_US_MAX), (1, WINDOW_MAX as u64)],
};

const ADAPT: Part<5> = Part {
    example: "+adapt:late_pct=1,guard_us=5,min_sleep_us=20,max_sleep_us=20000,window=64",
    names: ["late_pct", "guard_us", "min_sleep_us", "max_sleep_us", "window"],
    ranges: [
        (1, LATE_PCT_MAX as u64),
        (0, MARGIN_US_MAX),
        (1, SLEEP_US_MAX),
        (1, SLEEP_US_MAX),
        (1, WINDOW_MAX as u64),
    ],
};

impl<const N: usize> Part<N> {
    /// As it is called in messages: `flag` or `+predict`.
    fn name(&self) -> &'static str {
        self.example.split(':').next().unwrap_or_default()
    }

    fn help(&self) -> String {
        format!("`{}` is written `{}`", self.name(), self.example)
    }
}

/// The value of a field, and where it stands.
#[derive(Clone, Copy, Default)]
struct Value {
    at: usize,
    number: u64,
}

impl Value {
    /// In microseconds. The ranges of all times fit.
    fn us(self) -> u32 {
        u32::try_from(self.number).unwrap_or(u32::MAX)
    }
}

/// How far the text is read.
pub(super) struct Cursor<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    /// In bytes from the start of the text.
    pub(super) fn at(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    /// Takes `token` if it comes next.
    pub(super) fn take(&mut self, token: &str) -> bool {
        let after = self.rest.strip_prefix(token);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    /// Takes everything before the next of these characters: where it starts and what it is.
    fn until(&mut self, ends: &[char]) -> (usize, &'a str) {
        let at = self.at();
        let (word, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        self.rest = rest;
        (at, word)
    }

    fn name(&mut self) -> (usize, &'a str) {
        self.until(&[':', '=', ',', '+', ';'])
    }

    /// Takes a number that ends before one of these characters. `label` is what comes before it.
    pub(super) fn number(
        &mut self,
        label: impl fmt::Display,
        (min, max): (u64, u64),
        ends: &[char],
    ) -> Result<u64, Fault> {
        let (at, text) = self.until(ends);
        number(text, min, max).map_err(|fault| {
            let written = format!("`{label}{}`", Shown::word(text));
            match fault {
                NumberFault::Empty => Fault::new(
                    at,
                    format!("{written} lacks its number: write digits only, from {min} to {max}"),
                ),
                NumberFault::NotDigits(inside) => Fault::new(
                    at + inside,
                    format!("{written} is not a whole number: write digits only, from {min} to {max}"),
                ),
                NumberFault::OutOfRange => {
                    Fault::new(at, format!("{written} is out of range: from {min} to {max}"))
                }
            }
        })
    }
}

/// Reads the whole of `text` by `rule`.
pub(super) fn read<T>(
    text: &str,
    rule: impl FnOnce(&mut Cursor<'_>) -> Result<T, Fault>,
) -> Result<T, Error> {
    let mut cursor = Cursor { text, rest: text };
    let fault = match text.find(char::is_whitespace) {
        Some(at) => Fault::new(at, "white space is not allowed in a plan: remove it"),
        None => match rule(&mut cursor) {
            Ok(value) if cursor.rest.is_empty() => return Ok(value),
            Ok(_) => left_over(&cursor),
            Err(fault) => fault,
        },
    };
    Err(fault.into_error(ErrorCode::InvalidPlan, text))
}

fn left_over(cursor: &Cursor<'_>) -> Fault {
    let message = if cursor.rest.starts_with(';') {
        "`;` starts a band, and this is one plan: read bands as `WaitBands`".to_string()
    } else {
        let found: String = cursor.rest.chars().take(1).collect();
        format!(
            "`{}` is not expected here: a plan ends here or goes on with `+`. {SUFFIXES_HELP}",
            Shown::word(&found)
        )
    };
    Fault::new(cursor.at(), message)
}

/// `plan = "block" / "poll" [ ahead [ "+warm" ] ] / flag [ ahead [ "+warm" ] ] [ "+trust" ]`
pub(super) fn plan(cursor: &mut Cursor<'_>) -> Result<WaitPlan, Fault> {
    let (at, name) = cursor.name();
    let mut plan = match name {
        "block" => bare(cursor, name, WaitPlan::block())?,
        "poll" => bare(cursor, name, WaitPlan::poll())?,
        "flag" => flag(cursor)?,
        "" => return Err(Fault::new(at, format!("a plan is missing here. {MODES_HELP}"))),
        _ => return Err(unknown(at, "plan", name, &MODES, MODES_HELP)),
    };
    loop {
        let at = cursor.at();
        if !cursor.take("+") {
            return Ok(plan);
        }
        suffix(cursor, at, &mut plan)?;
    }
}

/// What follows a `+`, which stands at `at`.
fn suffix(cursor: &mut Cursor<'_>, at: usize, plan: &mut WaitPlan) -> Result<(), Fault> {
    let refuse = |message: &str| Err(Fault::new(at, message));
    let (name_at, name) = cursor.name();
    match (name, plan.mode()) {
        ("predict", Mode::Block) => {
            refuse("`block` takes no `+predict`: it sleeps in the driver; use `poll` or `flag` with it")
        }
        ("adapt", Mode::Block) => {
            refuse("`block` takes no `+adapt`: it sleeps in the driver; use `poll` or `flag` with it")
        }
        ("predict", _) if plan.predict().is_some() => refuse("`+predict` stands here twice: write it once"),
        ("adapt", _) if plan.adapt().is_some() => refuse("`+adapt` stands here twice: write it once"),
        ("predict" | "adapt", _) if plan.ahead != Ahead::Nothing => {
            refuse("`+predict` and `+adapt` are two ways to do the same: write one of them")
        }
        ("predict", _) if plan.trust => refuse("`+predict` goes before `+trust`: swap them"),
        ("adapt", _) if plan.trust => refuse("`+adapt` goes before `+trust`: swap them"),
        ("predict", _) => {
            plan.ahead = predict(cursor)?.into();
            Ok(())
        }
        ("adapt", _) => {
            plan.ahead = adapt(cursor)?.into();
            Ok(())
        }
        ("warm", _) if plan.warm => refuse("`+warm` stands here twice: write it once"),
        ("warm", _) if plan.trust => refuse("`+warm` goes before `+trust`: swap them"),
        ("warm", _) if plan.ahead == Ahead::Nothing => {
            refuse("`+warm` needs a plan that sleeps: write it behind `+predict:..` or `+adapt:..`")
        }
        ("warm", _) => {
            plan.warm = true;
            bare(cursor, "+warm", ())
        }
        ("trust", Mode::Block | Mode::Poll) => {
            refuse("only `flag` takes `+trust`: the others watch no word that could be trusted")
        }
        ("trust", _) if plan.trust => refuse("`+trust` stands here twice: write it once"),
        ("trust", _) => {
            plan.trust = true;
            bare(cursor, "+trust", ())
        }
        ("", _) => Err(Fault::new(name_at, format!("a suffix is missing after `+`. {SUFFIXES_HELP}"))),
        _ => Err(unknown(name_at, "suffix", name, &SUFFIXES, SUFFIXES_HELP)),
    }
}

/// `value`, unless fields follow.
fn bare<T>(cursor: &Cursor<'_>, name: &str, value: T) -> Result<T, Fault> {
    if cursor.rest.starts_with(':') {
        return Err(Fault::new(
            cursor.at(),
            format!("`{name}` takes no fields: remove `:` and what follows it"),
        ));
    }
    Ok(value)
}

fn flag(cursor: &mut Cursor<'_>) -> Result<WaitPlan, Fault> {
    let [park, backstop] = fields(cursor, &FLAG)?;
    if backstop.number < park.number {
        let (park, low) = (park.number, backstop.number);
        let message = format!(
            "`backstop_us={low}` is below `park_us={park}`: the driver is asked between parks, so from {park} to {BACKSTOP_US_MAX}"
        );
        return Err(Fault::new(backstop.at, message));
    }
    Ok(WaitPlan::plain(Stored::Flag { park_us: park.us(), backstop_us: backstop.us() }))
}

fn predict(cursor: &mut Cursor<'_>) -> Result<Predict, Fault> {
    sleeps(fields(cursor, &PREDICT)?)
}

fn adapt(cursor: &mut Cursor<'_>) -> Result<Adapt, Fault> {
    let [late_pct, guard, min_sleep, max_sleep, window] = fields(cursor, &ADAPT)?;
    Ok(Adapt {
        // In range as the part says, so it is not cut.
        late_pct: u8::try_from(late_pct.number).unwrap_or(LATE_PCT_MAX),
        fields: sleeps([guard, min_sleep, max_sleep, window])?,
    })
}

/// What both have.
fn sleeps([margin, min_sleep, max_sleep, window]: [Value; 4]) -> Result<Predict, Fault> {
    if min_sleep.number > max_sleep.number {
        let (high, max) = (min_sleep.number, max_sleep.number);
        let message = format!(
            "`min_sleep_us={high}` is above `max_sleep_us={max}`: no sleep could be both; swap them, or lower it to at most {max}"
        );
        return Err(Fault::new(min_sleep.at, message));
    }
    Ok(Predict {
        margin_us: margin.us(),
        min_sleep_us: min_sleep.us(),
        max_sleep_us: max_sleep.us(),
        // In range as the part says, so it is neither cut nor zero.
        window: u16::try_from(window.number).ok().and_then(NonZeroU16::new).unwrap_or(NonZeroU16::MAX),
    })
}

/// A prediction as its constructor writes it.
pub(super) fn lone_predict(cursor: &mut Cursor<'_>) -> Result<Predict, Fault> {
    cursor.name();
    predict(cursor)
}

/// An adaptation as its constructor writes it.
pub(super) fn lone_adapt(cursor: &mut Cursor<'_>) -> Result<Adapt, Fault> {
    cursor.name();
    adapt(cursor)
}

/// `":" name "=" number *( "," name "=" number )`: each field of the part once, in any order.
fn fields<const N: usize>(cursor: &mut Cursor<'_>, part: &Part<N>) -> Result<[Value; N], Fault> {
    let start = cursor.at();
    if !cursor.take(":") {
        return Err(Fault::new(start, format!("`{}` lacks its fields: {}", part.name(), part.help())));
    }
    let mut found = [None; N];
    loop {
        let (at, name) = cursor.name();
        if name.is_empty() {
            return Err(Fault::new(at, format!("the name of a field is missing here: {}", part.help())));
        }
        let Some(index) = part.names.iter().position(|known| *known == name) else {
            return Err(unknown(at, "field", name, &part.names, part.help()));
        };
        if found[index].is_some() {
            return Err(Fault::new(at, format!("`{name}` stands here twice: write it once")));
        }
        if !cursor.take("=") {
            let (min, max) = part.ranges[index];
            let message =
                format!("`{name}` lacks its value: write `{name}=` and digits, from {min} to {max}");
            return Err(Fault::new(cursor.at(), message));
        }
        let value_at = cursor.at();
        let number = cursor.number(format_args!("{name}="), part.ranges[index], &[',', '+', ';'])?;
        found[index] = Some(Value { at: value_at, number });
        if !cursor.take(",") {
            break;
        }
    }
    let mut values = [Value::default(); N];
    for ((value, found), name) in values.iter_mut().zip(found).zip(part.names) {
        *value = found.ok_or_else(|| {
            Fault::new(cursor.at(), format!("`{name}` is missing, and nothing is defaulted: {}", part.help()))
        })?;
    }
    Ok(values)
}

fn unknown(at: usize, what: &str, name: &str, names: &[&str], help: impl fmt::Display) -> Fault {
    let fault = format!("unknown {what} `{}`", Shown::word(name));
    Fault::new(at, did_you_mean(fault, name, names, help))
}

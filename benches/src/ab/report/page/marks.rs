//! How arms are told apart: by colour, by dash and by marker, so that any one of them is enough.

use std::collections::HashMap;
use std::fmt::{self, Write};

use super::html::{Name, Out, Px, Text};
use crate::ab::schema::Cell;

/// How many colours, dashes and markers there are; the style sheet has the colours.
const STYLES: usize = 8;

const DASHES: [&str; STYLES] = ["", "7 3", "2 3", "9 3 2 3", "4 2", "13 4", "1 3 6 3", "6 2 2 2 2 2"];

/// Around the origin, about 8 units wide.
const MARKERS: [&str; STYLES] = [
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z",
    "M-3.5-3.5h7v7h-7Z",
    "M0-4.6 4.4 3.4h-8.8Z",
    "M0-4.8 4.8 0 0 4.8-4.8 0Z",
    "M0 4.6 4.4-3.4h-8.8Z",
    "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3Z",
    "M-4.5-4.5h9L-4.5 4.5h9Z",
    "M0-4.8 4.6-1.5 2.8 3.9h-5.6L-4.6-1.5Z",
];

/// The arms of a run, each with its style wherever it is shown.
#[derive(Debug)]
pub(super) struct Arms<'a> {
    /// The number of each.
    numbers: HashMap<&'a str, usize>,
}

impl<'a> Arms<'a> {
    pub(super) fn new(names: Vec<&'a str>) -> Self {
        let mut numbers = HashMap::new();
        for name in names {
            let number = numbers.len();
            numbers.entry(name).or_insert(number);
        }
        Self { numbers }
    }

    pub(super) fn mark(&self, arm: &str) -> Mark {
        Mark(self.numbers.get(arm).copied().unwrap_or(0))
    }
}

/// The style of an arm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark(usize);

impl Mark {
    /// A class of the style sheet, which sets the colour.
    pub(super) fn class(self) -> String {
        format!("c{}", self.0 % STYLES)
    }

    /// From the ninth arm on, a colour comes with another dash than before.
    fn dash(self) -> &'static str {
        DASHES[(self.0 + self.0 / STYLES) % STYLES]
    }

    /// A line through these points.
    pub(super) fn line(self, out: &mut Out, points: &[(f64, f64)]) -> fmt::Result {
        write!(out, "<path class=\"line {}\"", self.class())?;
        if !self.dash().is_empty() {
            write!(out, " stroke-dasharray=\"{}\"", self.dash())?;
        }
        out.write_str(" d=\"")?;
        for (index, (x, y)) in points.iter().enumerate() {
            write!(out, "{}{} {}", if index == 0 { "M" } else { "L" }, Px(*x), Px(*y))?;
        }
        out.write_str("\"/>")
    }

    /// Its marker at a point; `title` is shown to whoever points at it.
    pub(super) fn marker(self, out: &mut Out, at: (f64, f64), title: &str) -> fmt::Result {
        self.begin_marker(out, at, "")?;
        if title.is_empty() {
            out.write_str("/>")
        } else {
            write!(out, "><title>{}</title></path>", Text(title))
        }
    }

    /// Its marker at a point, three quarters as large, for where whiskers are short.
    pub(super) fn small_marker(self, out: &mut Out, at: (f64, f64)) -> fmt::Result {
        self.begin_marker(out, at, " scale(0.75)")?;
        out.write_str("/>")
    }

    fn begin_marker(self, out: &mut Out, (x, y): (f64, f64), scale: &str) -> fmt::Result {
        let hollow = if self.0 / STYLES % 2 == 1 { " hollow" } else { "" };
        write!(
            out,
            "<path class=\"mark {}{hollow}\" transform=\"translate({} {}){scale}\" d=\"{}\"",
            self.class(),
            Px(x),
            Px(y),
            MARKERS[self.0 % STYLES]
        )
    }

    /// A piece of its line with its marker, to stand beside its name.
    pub(super) fn swatch(self, out: &mut Out) -> fmt::Result {
        out.write_str("<svg class=\"swatch\" viewBox=\"0 0 34 12\" aria-hidden=\"true\">")?;
        self.line(out, &[(0.0, 6.0), (34.0, 6.0)])?;
        self.marker(out, (17.0, 6.0), "")?;
        out.write_str("</svg>")
    }

    /// Only its marker, to stand beside its name.
    pub(super) fn small_swatch(self, out: &mut Out) -> fmt::Result {
        out.write_str("<svg class=\"dot\" viewBox=\"0 0 12 12\" aria-hidden=\"true\">")?;
        self.marker(out, (6.0, 6.0), "")?;
        out.write_str("</svg>")
    }
}

/// The arms of these cells, each once, with their styles.
pub(super) fn legend(out: &mut Out, arms: &Arms<'_>, cells: &[&Cell]) -> fmt::Result {
    out.write_str("<ul class=\"legend\">")?;
    for (index, cell) in cells.iter().enumerate() {
        if cells[..index].iter().any(|before| before.arm == cell.arm) {
            continue;
        }
        out.write_str("<li>")?;
        arms.mark(&cell.arm).swatch(out)?;
        let base = if cell.arm == cell.base { ", the base" } else { "" };
        write!(out, "<span>{} <small>{}{base}</small></span></li>", Name(&cell.arm), Text(&cell.family))?;
    }
    out.write_str("</ul>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_arms_look_different() {
        let look = |index: usize| (Mark(index).class(), Mark(index).dash(), index / STYLES);
        for a in 0..16 {
            assert!((0..a).all(|b| look(a) != look(b)), "{a}");
            // Told apart by the dash alone among those of one colour.
            assert!((0..a).all(|b| a % STYLES != b % STYLES || Mark(a).dash() != Mark(b).dash()), "{a}");
        }
    }

    #[test]
    fn an_unknown_arm_still_has_a_style() {
        assert_eq!(Arms::new(vec!["a", "b"]).mark("b"), Mark(1));
        assert_eq!(Arms::new(Vec::new()).mark("x"), Mark(0));
    }
}

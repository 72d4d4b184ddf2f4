//! The frame of a picture with two axes: grid, labels with units, titles.

use std::fmt::{self, Write};

use super::axis::Scale;
use super::html::{Out, Px, Text};

/// A picture's size. On a phone it is shown about this wide, so that its labels are as large as they are written.
pub(super) const SIZE: (f64, f64) = (360.0, 236.0);

/// Where the lines are: from the left to the right, and from the bottom to the top.
pub(super) const X_PX: (f64, f64) = (56.0, 338.0);
pub(super) const Y_PX: (f64, f64) = (190.0, 26.0);

/// One axis: what it shows, and how a value of it is written.
pub(super) struct Axis<'a> {
    pub(super) scale: Scale,
    pub(super) title: &'a str,
    pub(super) label: &'a dyn Fn(f64) -> String,
}

/// Draws both axes with their grid.
pub(super) fn axes(out: &mut Out, x: &Axis<'_>, y: &Axis<'_>) -> fmt::Result {
    let (left, right) = X_PX;
    let (bottom, top) = Y_PX;
    out.write_str("<g class=\"grid\">")?;
    for (at, _) in x.scale.labels(x.label) {
        write!(out, "<path d=\"M{0} {1}V{2}\"/>", Px(at), Px(bottom), Px(top))?;
    }
    for tick in y.scale.ticks() {
        write!(out, "<path d=\"M{} {}H{}\"/>", Px(left), Px(y.scale.at(tick)), Px(right))?;
    }
    write!(out, "</g><path class=\"axis\" d=\"M{} {}V{}H{}\"/>", Px(left), Px(top), Px(bottom), Px(right))?;
    for (at, label) in x.scale.labels(x.label) {
        write!(
            out,
            "<text class=\"mid\" x=\"{}\" y=\"{}\">{}</text>",
            Px(at),
            Px(bottom + 15.0),
            Text(label)
        )?;
    }
    for tick in y.scale.ticks() {
        let label = (y.label)(tick);
        write!(
            out,
            "<text class=\"end\" x=\"{}\" y=\"{}\">{}</text>",
            Px(left - 6.0),
            Px(y.scale.at(tick) + 3.8),
            Text(label)
        )?;
    }
    write!(out, "<text class=\"title\" x=\"4\" y=\"12\">{}</text>", Text(y.title))?;
    write!(
        out,
        "<text class=\"title end\" x=\"{}\" y=\"{}\">{}</text>",
        Px(right),
        Px(bottom + 36.0),
        Text(x.title)
    )
}

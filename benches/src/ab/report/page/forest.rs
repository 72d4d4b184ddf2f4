//! Values with their intervals, one below the other on a common scale: a table that is its own picture.
//!
//! Names are text of the table, so that they break where they are long; only dots, whiskers and bars are drawn.

use std::fmt::{self, Write};

use super::axis::{self, Scale};
use super::html::{Name, Out, Px, Text};
use super::marks::Mark;
use crate::ab::report::digits;
use crate::ab::schema::Better;

/// The size of a row's picture, and where its scale lies in it.
const WIDTH: f64 = 112.0;
const HEIGHT: f64 = 20.0;
const PX: (f64, f64) = (9.0, 103.0);

/// The room at the ends of a linear scale, as a share of it.
const ROOM: f64 = 0.06;

/// How far the lines of a row reach beyond its picture, which the table cuts off: so they go through rows of any height.
const REACH: u32 = 300;

/// The scale is logarithmic from this ratio of its ends on.
const LOG_FROM: f64 = 4.0;

/// What is shown below one heading.
pub(super) struct Forest<'a> {
    /// What the values are.
    pub(super) title: String,
    /// The heading of the numbers.
    pub(super) numbers: &'a str,
    /// Which way is better; nothing is said where the rows differ.
    pub(super) better: Option<Better>,
    pub(super) style: Style,
    /// Rows, by the headings that group them.
    pub(super) groups: Vec<(String, Vec<Row>)>,
}

/// How values are drawn.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Style {
    /// Dots with whiskers, and a line at 1. All groups share a scale.
    Ratios,
    /// Dots with whiskers, in shares of 1, and a line at 0. All groups share a scale.
    Changes,
    /// Bars from zero with whiskers, in this unit of the schema. Each group has a scale of its own.
    Bars {
        /// See [`crate::ab::schema::Metric::unit`].
        unit: String,
    },
}

impl Style {
    const fn reference(&self) -> f64 {
        match self {
            Self::Ratios => 1.0,
            Self::Changes | Self::Bars { .. } => 0.0,
        }
    }

    fn tick(&self, value: f64) -> String {
        match self {
            Self::Ratios => digits::tick(value, ""),
            Self::Changes => digits::percent_tick(value),
            Self::Bars { unit } => digits::tick(value, unit),
        }
    }
}

/// One value.
pub(super) struct Row {
    /// Foreign text.
    pub(super) name: String,
    pub(super) mark: Mark,
    /// The mean, and the half width of its interval where it has one; `None` where it was not measured.
    pub(super) value: Option<(f64, Option<f64>)>,
    /// The value in digits.
    pub(super) shown: String,
    /// The half width of its interval in digits, which stands below it.
    pub(super) spread: Option<String>,
    /// What else to say below it, with the class to say it in.
    pub(super) remark: Option<(&'static str, String)>,
}

/// Draws it. Nothing where no row has a value.
pub(super) fn forest(out: &mut Out, forest: &Forest<'_>) -> fmt::Result {
    let all = || forest.groups.iter().flat_map(|(_, rows)| rows);
    let Some(common) = scale(&forest.style, all()) else { return Ok(()) };
    let better = match forest.better {
        Some(Better::Less) => "lower is better",
        Some(Better::More) => "higher is better",
        None => "",
    };
    write!(
        out,
        "<figure class=\"forest\"><figcaption>{} <small>{better}</small></figcaption>",
        Text(&forest.title)
    )?;
    if matches!(forest.style, Style::Bars { .. }) {
        for (heading, rows) in &forest.groups {
            let own = scale(&forest.style, rows.iter());
            head(out, forest, heading, own.as_ref().unwrap_or(&common))?;
            body(out, forest, own.as_ref().unwrap_or(&common), rows)?;
            out.write_str("</table>")?;
        }
        return out.write_str("</figure>");
    }
    head(out, forest, "arm", &common)?;
    for (heading, rows) in &forest.groups {
        write!(
            out,
            "<tbody><tr><th class=\"group\" colspan=\"3\" scope=\"rowgroup\">{}</th></tr></tbody>",
            Text(heading)
        )?;
        body(out, forest, &common, rows)?;
    }
    out.write_str("</table></figure>")
}

/// The beginning of a table: its heading, the labels of its scale, what the numbers are.
fn head(out: &mut Out, forest: &Forest<'_>, heading: &str, scale: &Scale) -> fmt::Result {
    write!(
        out,
        "<table><thead><tr><th scope=\"col\">{}</th><th scope=\"col\" class=\"drawn\">",
        Text(heading)
    )?;
    labels(out, &forest.style, scale)?;
    write!(out, "</th><th scope=\"col\" class=\"num\">{}</th></tr></thead>", Text(forest.numbers))
}

fn body(out: &mut Out, forest: &Forest<'_>, scale: &Scale, rows: &[Row]) -> fmt::Result {
    out.write_str("<tbody>")?;
    rows.iter().try_for_each(|row| self::row(out, &forest.style, scale, row))?;
    out.write_str("</tbody>")
}

/// One that holds all of these rows; `None` without a value.
fn scale<'a>(style: &Style, rows: impl Iterator<Item = &'a Row>) -> Option<Scale> {
    let values: Vec<(f64, Option<f64>)> =
        rows.filter_map(|row| row.value).filter(|(mean, _)| mean.is_finite()).collect();
    if values.is_empty() {
        return None;
    }
    let reference = style.reference();
    let (lowest, highest) = axis::ends(values.iter().map(|(mean, _)| *mean).chain([reference]))?;
    let around = values.iter().flat_map(|(mean, half)| {
        let half = half.filter(|half| half.is_finite()).unwrap_or(0.0);
        [mean - half, mean + half]
    });
    let is_ratio = *style == Style::Ratios;
    if is_ratio && lowest > 0.0 && highest / lowest >= LOG_FROM {
        // An interval that reaches far below, or below zero, does not stretch the scale: its whisker ends with an arrow.
        let near = around.filter(|end| *end >= lowest / 2.0);
        return Scale::log(near.chain([lowest, highest]), PX);
    }
    let (low, high) = axis::ends(around.chain([lowest, highest]))?;
    // A little room, so that no dot stands on the edge. No ratio and no bar goes below zero.
    let room = if high > low { (high - low) * ROOM } else { high.abs().max(1.0) * ROOM };
    let from = match style {
        Style::Ratios => (low - room).max(0.0_f64.min(lowest)),
        Style::Bars { .. } => 0.0_f64.min(lowest),
        Style::Changes => low - room,
    };
    Some(Scale::linear((from, high + room), PX, 4.0))
}

/// The labels above the rows.
fn labels(out: &mut Out, style: &Style, scale: &Scale) -> fmt::Result {
    write!(
        out,
        "<svg class=\"row\" viewBox=\"0 0 {} {}\" aria-hidden=\"true\"><g class=\"grid\">",
        Px(WIDTH),
        Px(HEIGHT)
    )?;
    let labels = scale.labels(|tick| style.tick(tick));
    for (at, _) in &labels {
        write!(out, "<path d=\"M{} {}v5\"/>", Px(*at), Px(HEIGHT - 5.0))?;
    }
    out.write_str("</g>")?;
    for (at, label) in labels {
        // A label that would leave the picture is moved into it.
        let half = axis::width_px(&label) / 2.0;
        let at = at.clamp(half.min(WIDTH / 2.0), (WIDTH - half).max(WIDTH / 2.0));
        write!(out, "<text class=\"mid\" x=\"{}\" y=\"12\">{}</text>", Px(at), Text(label))?;
    }
    out.write_str("</svg>")
}

fn row(out: &mut Out, style: &Style, scale: &Scale, row: &Row) -> fmt::Result {
    out.write_str("<tr><th scope=\"row\"><span class=\"arm\">")?;
    row.mark.small_swatch(out)?;
    write!(
        out,
        "<span class=\"clamped\" title=\"{}\">{}</span></span></th><td class=\"drawn\">",
        Text(&row.name),
        Name(&row.name)
    )?;
    write!(
        out,
        "<svg class=\"row\" viewBox=\"0 0 {} {}\" aria-hidden=\"true\"><g class=\"grid\">",
        Px(WIDTH),
        Px(HEIGHT)
    )?;
    for tick in scale.ticks() {
        write!(out, "<path d=\"M{} -{REACH}V{REACH}\"/>", Px(scale.at(tick)))?;
    }
    out.write_str("</g>")?;

    write!(out, "<path class=\"reference\" d=\"M{} -{REACH}V{REACH}\"/>", Px(scale.at(style.reference())))?;
    if let Some((mean, half)) = row.value.filter(|(mean, _)| mean.is_finite()) {
        value(out, style, scale, row.mark, (mean, half))?;
    }
    write!(out, "</svg></td><td class=\"num\">{}", Text(&row.shown))?;
    if let Some(spread) = &row.spread {
        write!(out, " <small>{}</small>", Text(spread))?;
    }
    if let Some((class, remark)) = &row.remark {
        write!(out, " <small class=\"{class}\">{}</small>", Text(remark))?;
    }
    out.write_str("</td></tr>")
}

fn value(
    out: &mut Out,
    style: &Style,
    scale: &Scale,
    mark: Mark,
    (mean, half): (f64, Option<f64>),
) -> fmt::Result {
    let middle = HEIGHT / 2.0;
    let bars = matches!(style, Style::Bars { .. });
    if bars {
        let (from, to) = (scale.at(0.0).min(scale.at(mean)), scale.at(0.0).max(scale.at(mean)));
        write!(
            out,
            "<rect class=\"bar {}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"10\"/>",
            mark.class(),
            Px(from),
            Px(middle - 5.0),
            Px(to - from)
        )?;
    }
    if let Some(half) = half.filter(|half| half.is_finite()) {
        let class = if bars { "whisker".to_owned() } else { format!("whisker {}", mark.class()) };
        let (low, high) = (mean - half, mean + half);
        write!(
            out,
            "<path class=\"{class}\" d=\"M{} {2}H{}",
            Px(scale.at(low)),
            Px(scale.at(high)),
            Px(middle)
        )?;
        for (end, outwards) in [(low, -1.0), (high, 1.0)] {
            let at = scale.at(end);
            if scale.holds(end) {
                write!(out, "M{} {}v6", Px(at), Px(middle - 3.0))?;
            } else {
                // It goes on beyond the scale.
                let (tip, back) = (at + 5.0 * outwards, at + outwards);
                write!(
                    out,
                    "M{0} {1}H{2}M{3} {4}L{2} {1}L{3} {5}",
                    Px(at),
                    Px(middle),
                    Px(tip),
                    Px(back),
                    Px(middle - 3.5),
                    Px(middle + 3.5)
                )?;
            }
        }
        out.write_str("\"/>")?;
    }
    if bars { Ok(()) } else { mark.small_marker(out, (scale.at(mean), middle)) }
}

//! How late: for each case, the share of waits that took at most so long, a line an arm.

use std::fmt::{self, Write};

use super::axis::Scale;
use super::html::{Out, Text};
use super::marks::Arms;
use super::plot::{self, Axis, SIZE, X_PX, Y_PX};
use crate::ab::report::digits;
use crate::ab::schema::Cell;

/// The picture of one case. Nothing where no arm has a curve.
pub(super) fn cdf(out: &mut Out, arms: &Arms<'_>, case: &str, cells: &[&Cell]) -> fmt::Result {
    let curves: Vec<(&Cell, Vec<(f64, f64)>)> =
        cells.iter().filter(|cell| !cell.cdf.is_empty()).map(|cell| (*cell, points(cell))).collect();
    let times = curves.iter().flat_map(|(_, points)| points).map(|(ns, _)| *ns);
    let Some(x) = Scale::log(times, X_PX) else {
        return Ok(());
    };
    write!(out, "<figure><figcaption>{}</figcaption>", Text(case))?;
    let names: Vec<&str> = curves.iter().map(|(cell, _)| cell.arm.as_str()).collect();
    out.begin_svg(
        SIZE,
        &format!("How late the waits of {case} were"),
        &format!(
            "The share of waits over the added latency, on a logarithmic axis, a line for each of: {}. The quantiles are in the table below.",
            names.join("; ")
        ),
    )?;
    let y = Scale::linear((0.0, 1.0), Y_PX, 4.0);
    let tick = |ns| digits::tick(ns, "ns");
    let x = Axis { scale: x, title: "added latency, at most", label: &tick };
    let y = Axis { scale: y, title: "share of waits", label: &digits::percent_tick };
    plot::axes(out, &x, &y)?;
    let placed: Vec<(&Cell, Vec<(f64, f64)>)> = curves
        .iter()
        .map(|(cell, points)| {
            (*cell, points.iter().map(|(ns, share)| (x.scale.at(*ns), y.scale.at(*share))).collect())
        })
        .collect();
    for (cell, points) in &placed {
        if points.len() > 1 {
            arms.mark(&cell.arm).line(out, points)?;
        }
    }
    // The markers stand at different heights, so that one does not hide another where curves are close.
    for (share, (cell, points)) in heights(placed.len()).zip(&placed) {
        if let Some(point) = at_height(points, y.scale.at(share)) {
            arms.mark(&cell.arm).marker(out, point, &cell.arm)?;
        }
    }
    out.write_str("</svg>")?;
    missing(out, cells)?;
    out.write_str("</figure>")
}

/// Times that are zero by the clock's resolution stand at the first step of the axis.
#[allow(clippy::cast_precision_loss, reason = "a picture")]
fn points(cell: &Cell) -> Vec<(f64, f64)> {
    cell.cdf.iter().map(|(ns, share)| ((*ns as f64).max(1.0), share.clamp(0.0, 1.0))).collect()
}

fn missing(out: &mut Out, cells: &[&Cell]) -> fmt::Result {
    let missing: Vec<&str> =
        cells.iter().filter(|cell| cell.cdf.is_empty()).map(|cell| cell.arm.as_str()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    write!(out, "<p class=\"aside\">No latencies were recorded of {}.</p>", Text(missing.join("; ")))
}

/// From a quarter to three quarters.
fn heights(count: usize) -> impl Iterator<Item = f64> {
    #[allow(clippy::cast_precision_loss, reason = "few arms")]
    let step = 0.5 / count.saturating_sub(1).max(1) as f64;
    std::iter::successors(Some(if count > 1 { 0.25 } else { 0.5 }), move |last| Some(last + step)).take(count)
}

/// Where a line that goes up in the picture is at this height; at its nearer end where it never is.
fn at_height(points: &[(f64, f64)], height: f64) -> Option<(f64, f64)> {
    let crossing = points.windows(2).find(|pair| pair[0].1 >= height && pair[1].1 <= height);
    if let Some([(x0, y0), (x1, y1)]) = crossing.map(|pair| [pair[0], pair[1]]) {
        let share = if y0 > y1 { (y0 - height) / (y0 - y1) } else { 0.0 };
        return Some((x0 + share * (x1 - x0), height));
    }
    let (first, last) = (points.first()?, points.last()?);
    Some(if first.1 < height { *first } else { *last })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_lie_on_their_lines() {
        let line = [(0.0, 100.0), (10.0, 50.0), (20.0, 0.0)];
        assert_eq!(at_height(&line, 75.0), Some((5.0, 75.0)));
        assert_eq!(at_height(&line, 0.0), Some((20.0, 0.0)));
        assert_eq!(at_height(&[(3.0, 40.0)], 75.0), Some((3.0, 40.0)));
        assert_eq!(at_height(&[(3.0, 40.0), (4.0, 30.0)], 10.0), Some((4.0, 30.0)));
        assert_eq!(at_height(&[], 75.0), None);
        // A step of the curve: the same time, a higher share.
        assert_eq!(at_height(&[(3.0, 90.0), (3.0, 10.0)], 50.0), Some((3.0, 50.0)));
    }

    #[test]
    fn markers_are_spread_over_the_middle() {
        let heights: Vec<f64> = heights(3).collect();
        assert!((heights[0] - 0.25).abs() < 1e-9 && (heights[2] - 0.75).abs() < 1e-9, "{heights:?}");
        assert_eq!(super::heights(1).collect::<Vec<_>>(), [0.5]);
        assert_eq!(super::heights(0).count(), 0);
    }
}

//! What a wait costs against how late it is: a point an arm, and the front of those that no other beats in both.

use std::fmt::{self, Write};

use super::axis::Scale;
use super::html::{Out, Px, Text};
use super::marks::Arms;
use super::plot::{self, Axis, SIZE, X_PX, Y_PX};
use crate::ab::report::digits;
use crate::ab::schema::Cell;

/// The picture of one case. Nothing where no arm has both.
pub(super) fn scatter(out: &mut Out, arms: &Arms<'_>, case: &str, cells: &[&Cell]) -> fmt::Result {
    let all: Vec<(&Cell, Option<f64>, Option<f64>)> =
        cells.iter().map(|cell| (*cell, latency(cell), cpu(cell))).collect();
    let drawn: Vec<(&Cell, (f64, f64))> = all
        .iter()
        .filter_map(|(cell, x, y)| Some((*cell, (*x)?, (*y)?)))
        .filter(|(_, x, y)| *x > 0.0 && *y > 0.0)
        .map(|(cell, x, y)| (cell, (x, y)))
        .collect();
    let x = Scale::log(drawn.iter().map(|(_, (x, _))| *x), X_PX);
    let y = Scale::log(drawn.iter().map(|(_, (_, y))| *y), Y_PX);
    let (Some(x), Some(y)) = (x, y) else { return Ok(()) };
    let points: Vec<(f64, f64)> = drawn.iter().map(|(_, point)| *point).collect();
    let front = pareto(&points);
    write!(out, "<figure><figcaption>{}</figcaption>", Text(case))?;
    let on_front: Vec<&str> = front.iter().map(|index| drawn[*index].0.arm.as_str()).collect();
    out.begin_svg(
        SIZE,
        &format!("CPU time against added latency in {case}"),
        &format!(
            "A point for each arm on logarithmic axes; lower and further left is better. On the front, beaten by no other arm in both: {}. The numbers are in the table below.",
            on_front.join("; ")
        ),
    )?;
    let tick = |ns| digits::tick(ns, "ns");
    let x = Axis { scale: x, title: "added latency, median", label: &tick };
    let y = Axis { scale: y, title: "CPU time for an operation", label: &tick };
    plot::axes(out, &x, &y)?;
    let at = |(latency, cpu): (f64, f64)| (x.scale.at(latency), y.scale.at(cpu));
    front_line(out, &front.iter().map(|index| at(points[*index])).collect::<Vec<_>>())?;
    for (cell, point) in &drawn {
        let (latency, cpu) = *point;
        let title = format!(
            "{}: {}, {} of CPU",
            cell.arm,
            digits::quantity(latency, "ns"),
            digits::quantity(cpu, "ns")
        );
        arms.mark(&cell.arm).marker(out, at(*point), &title)?;
    }
    out.write_str("</svg>")?;
    let left_out: Vec<String> = all.iter().filter_map(|(cell, x, y)| left_out(cell, *x, *y)).collect();
    if !left_out.is_empty() {
        write!(out, "<p class=\"aside\">Not drawn: {}.</p>", Text(left_out.join("; ")))?;
    }
    out.write_str("</figure>")
}

/// The median, or the mean where only that is known.
#[allow(clippy::cast_precision_loss, reason = "a picture")]
fn latency(cell: &Cell) -> Option<f64> {
    let median = cell.latency.filter(|latency| latency.count > 0).map(|latency| latency.p50_ns as f64);
    median.or_else(|| cell.metrics.get("latency").map(|metric| metric.value.mean))
}

fn cpu(cell: &Cell) -> Option<f64> {
    let metric = cell.metrics.get("cpu").or_else(|| cell.metrics.get("process_cpu"));
    metric.map(|metric| metric.value.mean)
}

/// Why an arm has no point.
fn left_out(cell: &Cell, latency: Option<f64>, cpu: Option<f64>) -> Option<String> {
    let why = match (latency, cpu) {
        (None, None) => "neither is known",
        (None, _) => "its latency is not known",
        (_, None) => "its CPU time is not known",
        (Some(latency), _) if latency <= 0.0 => "no latency above zero, which this axis cannot show",
        (_, Some(cpu)) if cpu <= 0.0 => "no CPU time above zero, which this axis cannot show",
        _ => return None,
    };
    Some(format!("{} ({why})", cell.arm))
}

/// The points that no other is below or left of without being worse in the other way, from left to right.
fn pareto(points: &[(f64, f64)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    let by = |a: &usize, b: &usize| {
        let ((ax, ay), (bx, by)) = (points[*a], points[*b]);
        ax.total_cmp(&bx).then(ay.total_cmp(&by))
    };
    order.sort_by(by);
    let mut lowest = f64::INFINITY;
    order.retain(|index| {
        let on_front = points[*index].1 < lowest;
        lowest = lowest.min(points[*index].1);
        on_front
    });
    order
}

/// Steps: between two of its points the front goes right before it goes down.
fn front_line(out: &mut Out, front: &[(f64, f64)]) -> fmt::Result {
    let Some(((x, y), rest)) = front.split_first() else { return Ok(()) };
    write!(out, "<path class=\"front\" d=\"M{} {}V{}", Px(*x), Px(Y_PX.1), Px(*y))?;
    for (x, y) in rest {
        write!(out, "H{}V{}", Px(*x), Px(*y))?;
    }
    write!(out, "H{}\"/>", Px(X_PX.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_is_what_no_other_beats() {
        let points = [(1.0, 9.0), (2.0, 5.0), (3.0, 6.0), (4.0, 1.0), (9.0, 1.0), (1.0, 10.0)];
        assert_eq!(pareto(&points), [0, 1, 3]);
        assert_eq!(pareto(&[]), [] as [usize; 0]);
        assert_eq!(pareto(&[(1.0, 1.0), (1.0, 1.0)]).len(), 1);
    }
}

//! One wait, from its launch to the code behind it: what happened when, a lane for each kind of thing.

use std::fmt::{self, Write};

use super::axis::Scale;
use super::html::{Name, Out, Px, Text};
use super::marks::Arms;
use super::plot::{SIZE, X_PX};
use crate::ab::report::digits;
use crate::ab::report::read::distinct;
use crate::ab::schema::{Span, Timeline};

/// The height of a lane: its name, and its stretches below it.
const LANE_PX: f64 = 27.0;

/// Where the scale lies: lanes have their names above them, so it may begin further left than an axis with labels does.
const PX: (f64, f64) = (10.0, X_PX.1);

/// The end of a wait is shown a second time, larger, where this share of the whole holds several things.
const END_SHARE: f64 = 0.1;

/// The longest name of a lane that is drawn; the table has all of it.
const NAME_CHARS_MAX: usize = 36;

/// The picture and the table of one wait.
pub(super) fn timeline(out: &mut Out, arms: &Arms<'_>, wait: &Timeline) -> fmt::Result {
    let Some(end) = wait.spans.iter().map(|span| span.from_ns.max(span.to_ns)).max() else { return Ok(()) };
    out.write_str("<figure class=\"wait\"><figcaption class=\"arm\">")?;
    arms.mark(&wait.arm).small_swatch(out)?;
    write!(out, "<span>{} <small>{}</small></span></figcaption>", Name(&wait.arm), Text(&wait.case))?;
    lanes(out, arms, wait, 0, end)?;
    if let Some(from) = last_part(&wait.spans, end) {
        write!(out, "<p class=\"aside\">Its last {}:</p>", digits::ns(end - from))?;
        lanes(out, arms, wait, from, end)?;
    }
    table(out, &wait.spans, end)?;
    out.write_str("</figure>")
}

/// The stretch from `from` to `to`, in nanoseconds after the launch.
#[allow(clippy::cast_precision_loss, reason = "a picture")]
fn lanes(out: &mut Out, arms: &Arms<'_>, wait: &Timeline, from: u64, to: u64) -> fmt::Result {
    let inside = |span: &&Span| span.to_ns.max(span.from_ns) >= from && span.from_ns <= to;
    let spans: Vec<&Span> = wait.spans.iter().filter(inside).collect();
    let names = distinct(spans.iter().map(|span| span.what.as_str()));
    let scale = Scale::linear((from as f64, (to as f64).max(from as f64 + 1.0)), PX, 5.0);
    #[allow(clippy::cast_precision_loss, reason = "few lanes")]
    let bottom = 8.0 + LANE_PX * names.len() as f64;
    out.begin_svg(
        (SIZE.0, bottom + 36.0),
        &format!("One wait of {} in {}", wait.arm, wait.case),
        &format!(
            "What happened from {} to {} after the launch, a lane each: {}. The times are in the table below, which opens.",
            digits::ns(from),
            digits::ns(to),
            names.join("; ")
        ),
    )?;
    out.write_str("<g class=\"grid\">")?;
    let labels = scale.labels(|tick| digits::tick(tick, "ns"));
    for (at, _) in &labels {
        write!(out, "<path d=\"M{} 4V{}\"/>", Px(*at), Px(bottom))?;
    }
    write!(out, "</g><path class=\"axis\" d=\"M{} {}H{}\"/>", Px(PX.0), Px(bottom), Px(PX.1))?;
    let class = arms.mark(&wait.arm).class();
    let mut top = 6.0;
    for name in names {
        let of_lane: Vec<&&Span> = spans.iter().filter(|span| span.what == name).collect();
        let shown = shortened(name);
        write!(out, "<text class=\"lane\" x=\"{}\" y=\"{}\">{}", Px(PX.0 + 2.0), Px(top + 9.0), Text(shown))?;
        write!(out, "<tspan class=\"muted\"> {}</tspan></text>", Text(length(&of_lane, to)))?;
        for span in of_lane {
            let (start, end) = (scale.at(span.from_ns as f64), scale.at(span.to_ns as f64));
            if span.from_ns == span.to_ns {
                write!(
                    out,
                    "<path class=\"moment {class}\" d=\"M{} {}l4 5-4 5-4-5Z\"/>",
                    Px(start),
                    Px(top + 12.5)
                )?;
            } else {
                let width = (end - start).max(1.5);
                write!(
                    out,
                    "<rect class=\"bar {class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"8\"/>",
                    Px(start.min(PX.1 - width)),
                    Px(top + 13.5),
                    Px(width)
                )?;
            }
        }
        top += LANE_PX;
    }
    for (at, label) in labels {
        let half = super::axis::width_px(&label) / 2.0;
        let at = at.clamp(half, SIZE.0 - half);
        write!(
            out,
            "<text class=\"mid\" x=\"{}\" y=\"{}\">{}</text>",
            Px(at),
            Px(bottom + 14.0),
            Text(label)
        )?;
    }
    write!(
        out,
        "<text class=\"title end\" x=\"{}\" y=\"{}\">time after the launch</text></svg>",
        Px(PX.1),
        Px(bottom + 31.0)
    )
}

/// How long what is in a lane took, or when it was.
fn length(spans: &[&&Span], end: u64) -> String {
    match spans {
        [span] if span.from_ns == span.to_ns => format!("at {}", digits::moment(span.from_ns, end)),
        [span] => digits::ns(span.to_ns.saturating_sub(span.from_ns)),
        _ => {
            let lengths = spans.iter().map(|span| span.to_ns.saturating_sub(span.from_ns));
            let total = lengths.fold(0, u64::saturating_add);
            let took = if total == 0 { String::new() } else { format!(", {} together", digits::ns(total)) };
            format!("{} times{took}", spans.len())
        }
    }
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME_CHARS_MAX {
        return name.to_owned();
    }
    name.chars().take(NAME_CHARS_MAX - 1).chain(['\u{2026}']).collect()
}

/// Where the last part begins that is worth a picture of its own: the earliest moment within the last tenth at which
/// something begins or ends and which is not the last, and a little before it.
fn last_part(spans: &[Span], end: u64) -> Option<u64> {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of it"
    )]
    let earliest = end - (end as f64 * END_SHARE) as u64;
    let mut moments: Vec<u64> =
        spans.iter().flat_map(|span| [span.from_ns, span.to_ns]).filter(|at| *at >= earliest).collect();
    moments.sort_unstable();
    moments.dedup();
    let first = moments.first().copied().filter(|_| moments.len() >= 2)?;
    // A little of what was before.
    Some(first.saturating_sub((end - first) / 4))
}

fn table(out: &mut Out, spans: &[Span], end: u64) -> fmt::Result {
    out.write_str(
        "<details><summary>The times</summary><table class=\"spans\"><thead><tr><th scope=\"col\">what</th><th scope=\"col\" class=\"num\">from</th><th scope=\"col\" class=\"num\">to</th><th scope=\"col\" class=\"num\">length</th></tr></thead><tbody>",
    )?;
    for span in spans {
        let [from, to] = [span.from_ns, span.to_ns].map(|at| digits::moment(at, end));
        let length = match span.to_ns.saturating_sub(span.from_ns) {
            0 => "a moment".to_owned(),
            length => digits::moment(length, end),
        };
        write!(out, "<tr><th scope=\"row\">{}</th>", Name(&span.what))?;
        write!(
            out,
            "<td class=\"num\">{from}</td><td class=\"num\">{to}</td><td class=\"num\">{length}</td></tr>"
        )?;
    }
    out.write_str("</tbody></table></details>")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(what: &str, from_ns: u64, to_ns: u64) -> Span {
        Span { what: what.to_owned(), from_ns, to_ns }
    }

    #[test]
    fn the_end_is_shown_again_where_much_happens_in_it() {
        let spans = [
            span("sleep", 0, 950),
            span("watch", 950, 990),
            span("stored", 980, 980),
            span("woken", 1_000, 1_000),
        ];
        assert_eq!(last_part(&spans, 1_000), Some(938));
        assert_eq!(last_part(&spans[2..], 1_000), Some(975));
        assert_eq!(last_part(&spans[..1], 950), None);
        assert_eq!(last_part(&[span("spin", 0, 1_000)], 1_000), None);
        assert_eq!(last_part(&[], 0), None);
    }

    #[test]
    fn a_lane_says_how_long_or_when() {
        let (a, b, c) = (span("query", 5, 1_005), span("query", 2_000, 2_500), span("stored", 7, 7));
        assert_eq!(length(&[&&a], 5_000), "1.00 us");
        assert_eq!(length(&[&&a, &&b], 5_000), "2 times, 1.50 us together");
        assert_eq!(length(&[&&c], 5_000), "at 7 ns");
        assert_eq!(length(&[&&c, &&c], 5_000), "2 times");
        let all = span("sleep", 0, u64::MAX);
        assert!(length(&[&&all, &&all], u64::MAX).starts_with("2 times, "), "no sum is too large");
        assert_eq!(shortened(&"x".repeat(99)).chars().count(), NAME_CHARS_MAX);
    }
}

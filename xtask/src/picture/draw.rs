//! The drawing: for each way a name, a bar of CPU and a bar of time. Readable on a phone, in light and in dark.

use std::fmt::Write as _;

use super::Way;
use super::record::Figure;

/// Lengths are in units of the drawing, which is this wide: a little more than a phone is, so that its text stays legible there.
const WIDTH: f64 = 480.0;
const TOP: f64 = 84.0;
const ROW: f64 = 46.0;
const BAR: f64 = 14.0;
/// From where bars of CPU go, and how long one of a whole core is.
const CPU_AT: f64 = 16.0;
const CORE: f64 = 150.0;
/// Where the spin is, among bars of time, how long a microsecond is, and what is longer than this is cut.
const SPIN_AT: f64 = 276.0;
const MICROSECOND: f64 = 5.4;
const LONGEST_US: f64 = 25.0;

const STYLE: &str = "\
.page{fill:#fff;stroke:#d0d7de}text{fill:#1f2328;font:14px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}\
.title{font-size:16px;font-weight:600}.head,.foot{fill:#59636e;font-size:12.5px}.value{font-size:13px;font-variant-numeric:tabular-nums}\
.theirs{fill:#8c959f}.ours{fill:#0a6bd6}.axis{stroke:#8c959f;stroke-width:1}.cut{stroke:#fff;stroke-width:3}\
@media (prefers-color-scheme:dark){.page{fill:#0d1117;stroke:#3d444d}text{fill:#f0f6fc}.head,.foot{fill:#9198a1}\
.theirs{fill:#6e7681}.ours{fill:#4d9fff}.axis{stroke:#6e7681}.cut{stroke:#0d1117}}";

/// What is said below.
const FOOT: &str = "Each against the spin of its own run. Records: benches/results";

pub(super) fn svg(ways: &[Way], figures: &[Figure]) -> String {
    let rows = ways.iter().zip(figures);
    let bottom = rows.clone().fold(TOP, |y, _| y + ROW);
    let height = bottom + 30.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n\
         <title>Awaiting a kernel of 5 ms on an NVIDIA H200</title>\n<desc>"
    );
    for (way, figure) in rows.clone() {
        let _ = write!(out, "{}: {} of a core, {}. ", way.name, cpu(figure), late(figure));
    }
    let _ = write!(
        out,
        "</desc>\n<style>{STYLE}</style>\n\
         <rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"6\"/>\n\
         <text class=\"title\" x=\"{CPU_AT}\" y=\"30\">Awaiting a kernel of 5 ms on an NVIDIA H200</text>\n\
         <text class=\"head\" x=\"{CPU_AT}\" y=\"54\">CPU of a core</text>\n\
         <text class=\"head\" x=\"{}\" y=\"54\">known later than by a spin, p50</text>\n",
        WIDTH - 1.0,
        height - 1.0,
        SPIN_AT - 40.0,
    );
    let mut y = TOP;
    for (way, figure) in rows {
        row(&mut out, y, way, figure);
        y += ROW;
    }
    let _ =
        write!(out, "<text class=\"foot\" x=\"{CPU_AT}\" y=\"{}\">{FOOT}</text>\n</svg>\n", bottom + 14.0);
    out
}

fn row(out: &mut String, y: f64, way: &Way, figure: &Figure) {
    let class = if way.ours { "ours" } else { "theirs" };
    let (bar, text) = (y + 6.0, y + 17.5);
    let length = figure.cpu.min(1.0) * CORE;
    let _ = write!(
        out,
        "<text x=\"{CPU_AT}\" y=\"{y}\">{}</text>\n\
         <rect class=\"{class}\" x=\"{CPU_AT}\" y=\"{bar}\" width=\"{length:.1}\" height=\"{BAR}\"/>\n\
         <text class=\"value\" x=\"{:.1}\" y=\"{text}\">{}</text>\n",
        way.name,
        CPU_AT + length + 6.0,
        cpu(figure),
    );
    let shown = figure.added_us.min(LONGEST_US) * MICROSECOND;
    let (from, to) = (SPIN_AT + shown.min(0.0), SPIN_AT + shown.max(0.0));
    let _ = writeln!(
        out,
        "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{bar}\" width=\"{:.1}\" height=\"{BAR}\"/>",
        to - from
    );
    if figure.added_us > LONGEST_US {
        let at = to - 24.0;
        let _ = writeln!(out, "<path class=\"cut\" d=\"M{at:.1} {}l6 -18\"/>", bar + BAR + 2.0);
    }
    let _ = write!(
        out,
        "<path class=\"axis\" d=\"M{SPIN_AT} {}v{}\"/>\n<text class=\"value\" x=\"{:.1}\" y=\"{text}\">{}</text>\n",
        bar - 3.0,
        BAR + 6.0,
        to + 6.0,
        late(figure)
    );
}

fn cpu(figure: &Figure) -> String {
    format!("{:.0} %", figure.cpu * 100.0)
}

fn late(figure: &Figure) -> String {
    match figure.added_us {
        0.0 => "0".to_owned(),
        us if us.abs() < 10.0 => format!("{us:+.1} us"),
        us => format!("{us:+.0} us"),
    }
}

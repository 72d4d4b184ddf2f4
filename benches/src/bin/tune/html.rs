//! A page that needs nothing else: a plot of CPU against latency for each point, and its plans.

use std::fmt::Write;

use wakeline_benches::tune::{Advice, Tried};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 260.0;
const EDGE: f64 = 44.0;

const HEAD: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>wakeline tune</title><style>
body{font:14px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;margin:.5rem 0 2rem}td,th{padding:.15rem .7rem;text-align:right}td:last-child,th:last-child{text-align:left}
tr.taken{background:#e7f3e7;font-weight:600}code{font-size:12px}svg text{font-size:11px;fill:#444}
</style></head><body>\n";

/// The page.
pub(crate) fn page(advice: &[Advice], trace: &str) -> String {
    let mut page = String::from(HEAD);
    // Writing to a string does not fail.
    let _ = body(&mut page, advice, trace);
    page + "</body></html>\n"
}

fn body(page: &mut String, advice: &[Advice], trace: &str) -> std::fmt::Result {
    writeln!(page, "<h1>Plans for {}</h1>", escaped(trace))?;
    writeln!(
        page,
        "<p>Each dot is a plan: CPU time as a part of a spin's, against the mean latency that its sleeps add. "
    )?;
    writeln!(page, "Filled dots are not beaten in both by another; the green one is advised.</p>")?;
    for one in advice {
        writeln!(page, "<h2>{} / {}</h2>", escaped(&one.workload), escaped(&one.point))?;
        let (mean, saves) = (one.residual_ns / 1e3, 100.0 * one.saves);
        writeln!(
            page,
            "<p>{} waits, mean residual {mean:.1} us. Take <code>{}</code>: ",
            one.waits,
            escaped(&one.advised.plan)
        )?;
        write!(page, "it saves {saves:.1} % of a spin's CPU.")?;
        if let Some(least) = one.least_cpu {
            write!(
                page,
                " No way of waiting that knows only their distribution is as close below {least:.4}."
            )?;
        }
        writeln!(page, "</p>")?;
        plot(page, one)?;
        rows(page, one)?;
    }
    Ok(())
}

fn plot(page: &mut String, advice: &Advice) -> std::fmt::Result {
    let most = advice.tried.iter().map(|tried| tried.cost.added_ns).fold(1_000.0, f64::max);
    // By the root, so that what is near to nothing is told apart.
    let place = |tried: &Tried| {
        let x = EDGE + tried.cost.cpu.clamp(0.0, 1.1) / 1.1 * (WIDTH - 2.0 * EDGE);
        let y = HEIGHT - EDGE - (tried.cost.added_ns.max(0.0) / most).sqrt() * (HEIGHT - 2.0 * EDGE);
        (x, y)
    };
    let (right, bottom) = (WIDTH - EDGE, HEIGHT - EDGE);
    writeln!(
        page,
        "<svg width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" aria-label=\"CPU against latency\">"
    )?;
    writeln!(page, "<path d=\"M{EDGE} {EDGE}V{bottom}H{right}\" fill=\"none\" stroke=\"#888\"/>")?;
    for tenths in [0.0, 2.5, 5.0, 7.5, 10.0] {
        let x = EDGE + tenths / 11.0 * (WIDTH - 2.0 * EDGE);
        writeln!(
            page,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 16.0,
            tenths / 10.0
        )?;
    }
    writeln!(page, "<text x=\"{right}\" y=\"{}\" text-anchor=\"end\">CPU of a spin</text>", bottom + 32.0)?;
    writeln!(page, "<text x=\"4\" y=\"{}\">{:.1} us added (root scale)</text>", EDGE - 12.0, most / 1e3)?;
    for tried in &advice.tried {
        let (x, y) = place(tried);
        let colour = if *tried == advice.advised { "#2a7d2a" } else { "#3366aa" };
        let fill = if tried.on_front || *tried == advice.advised { colour } else { "none" };
        writeln!(
            page,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{fill}\" stroke=\"{colour}\"><title>{}</title></circle>",
            escaped(&tried.plan)
        )?;
    }
    writeln!(page, "</svg>")
}

fn rows(page: &mut String, advice: &Advice) -> std::fmt::Result {
    writeln!(page, "<table><tr><th>CPU of a spin<th>added us<th>p99 us<th>late %<th>sleeps<th>plan</tr>")?;
    for tried in &advice.tried {
        let (cost, class) = (tried.cost, if *tried == advice.advised { " class=\"taken\"" } else { "" });
        writeln!(
            page,
            "<tr{class}><td>{:.4}<td>{:.3}<td>{:.2}<td>{:.2}<td>{:.1}<td><code>{}</code></tr>",
            cost.cpu,
            cost.added_ns / 1e3,
            cost.added_p99_ns / 1e3,
            100.0 * cost.late,
            cost.sleeps,
            escaped(&tried.plan)
        )?;
    }
    writeln!(page, "</table>")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use wakeline_benches::tune::{HostModel, Series, Step, Trace, advise, candidates};
    use wakeline_core::Nanos;

    #[test]
    fn the_page_stands_alone_and_shows_foreign_names_as_text() {
        let step = |us| Step { key: (0, 0), residual: Nanos::from_micros(us) };
        let series =
            Series { points: vec!["<b>".into()], steps: (0..50).map(|us| step(2_000 + us)).collect() };
        let trace = Trace { workloads: [("a&b".to_owned(), series)].into() };
        let advice = advise(&trace, &candidates(), &HostModel::h200(), false).unwrap();
        let page = page(&advice, "my \"trace\".csv");
        assert!(page.contains("<h2>a&amp;b / &lt;b&gt;</h2>") && page.contains("my &quot;trace&quot;.csv"));
        assert_eq!(page.matches("<circle").count(), candidates().len());
        assert_eq!(page.matches("class=\"taken\"").count(), 1);
        assert!(!page.contains("http") && !page.contains("<script"), "it fetches nothing");
    }
}

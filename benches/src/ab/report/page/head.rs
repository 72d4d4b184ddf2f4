//! What a run is: its title, the checks (good ones short, bad ones loud), where and how it was made.

use std::fmt::{self, Write};

use serde_json::Value;

use super::html::{Out, Text};
use crate::ab::report::digits;
use crate::ab::report::read::{RunFile, distinct};
use crate::ab::schema::{Check, Order};

/// The title of a run as plain text.
pub(super) fn title(file: &RunFile) -> String {
    format!("wakeline A/B run: {} on {}", file.run.device, file.run.environment.cpu)
}

/// The heading and the checks.
pub(super) fn head(out: &mut Out, file: &RunFile) -> fmt::Result {
    let environment = &file.run.environment;
    write!(
        out,
        "<header><p class=\"kicker\">wakeline A/B run</p><h1>{} <span>on {}</span></h1><p class=\"facts\">{}",
        Text(&file.run.device),
        Text(&environment.cpu),
        digits::date(environment.began_unix_s)
    )?;
    write!(out, " \u{b7} {} run", if file.run.quick { "quick" } else { "full" })?;
    if let Some(end) = &file.end {
        write!(out, " of {}", digits::quantity(end.took_s * 1e9, "ns"))?;
    }
    write!(
        out,
        " \u{b7} {} \u{b7} <code>{}</code></p>",
        digits::counted(environment.cpus, "CPU"),
        Text(&file.name)
    )?;
    checks(out, file)?;
    out.write_str("</header>")
}

fn checks(out: &mut Out, file: &RunFile) -> fmt::Result {
    let all = checks_of(file);
    let (good, bad): (Vec<_>, Vec<_>) = all.iter().copied().partition(|(_, check)| check.good);
    if file.end.is_none() {
        loud(
            out,
            "This run was cut off",
            &format!(
                "its file ends at line {} and has no last one, so cells may be missing, and nobody looked whether the clocks had moved",
                file.last_line
            ),
        )?;
    }
    if !file.run.environment.release {
        loud(out, "This is a debug build", "its times say little about a release build")?;
    }
    for (when, check) in bad {
        loud(out, &format!("{}, {when}", check.name), &check.found)?;
    }
    if all.is_empty() {
        return loud(out, "Nothing was checked", "the file does not say whether the machine was quiet");
    }
    let good = distinct(good.into_iter().map(|(_, check)| check.name.as_str()));
    if good.is_empty() {
        return Ok(());
    }
    out.write_str("<ul class=\"good\">")?;
    for name in good {
        write!(out, "<li>{}</li>", Text(name))?;
    }
    out.write_str("</ul>")
}

/// Every check with when it was made.
fn checks_of(file: &RunFile) -> Vec<(&'static str, &Check)> {
    let first = file.run.checks.iter().map(|check| ("before the first cell", check));
    let last = file.end.iter().flat_map(|end| &end.checks).map(|check| ("after the last cell", check));
    first.chain(last).collect()
}

fn loud(out: &mut Out, what: &str, found: &str) -> fmt::Result {
    write!(out, "<p class=\"bad\" role=\"note\"><strong>{}</strong> {}</p>", Text(what), Text(found))
}

/// Where, with what and how it was made: every field that the file has.
pub(super) fn environment(out: &mut Out, file: &RunFile, id: &str) -> fmt::Result {
    write!(out, "<section id=\"{id}\"><h2>Machine and run</h2><table class=\"pairs\"><tbody>")?;
    let mut pairs: Vec<(String, String)> = vec![
        ("file".to_owned(), file.name.clone()),
        ("command".to_owned(), file.run.command.join(" ")),
        ("schema".to_owned(), file.run.schema.to_string()),
    ];
    // By name, so that a field that the environment gets one day is shown without anybody thinking of it here.
    if let Ok(Value::Object(fields)) = serde_json::to_value(&file.run) {
        const SHOWN: [&str; 6] = ["command", "schema", "checks", "suites", "environment", "order"];
        let of_run = fields.iter().filter(|(name, _)| !SHOWN.contains(&name.as_str()));
        pairs.extend(of_run.map(|(name, value)| (name.clone(), shown(name, value))));
        if let Some(Value::Object(environment)) = fields.get("environment") {
            pairs.extend(environment.iter().map(|(name, value)| (name.clone(), shown(name, value))));
        }
    }
    for (name, value) in pairs {
        let name = name.replace('_', " ");
        write!(out, "<tr><th scope=\"row\">{}</th><td>{}</td></tr>", Text(name), Text(value))?;
    }
    out.write_str("</tbody></table>")?;
    let checks = checks_of(file);
    if !checks.is_empty() {
        out.write_str("<h3>Checks</h3><table class=\"pairs\"><tbody>")?;
        for (when, check) in checks {
            let class = if check.good { "muted" } else { "worse" };
            let verdict = if check.good { "as it should be" } else { "not as it should be" };
            write!(
                out,
                "<tr><th scope=\"row\">{}</th><td>{} <small class=\"{class}\">{verdict}, {when}</small></td></tr>",
                Text(&check.name),
                Text(&check.found)
            )?;
        }
        out.write_str("</tbody></table>")?;
    }
    out.write_str("</section>")
}

fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::Null => digits::MISSING.to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Number(number) => match number.as_u64() {
            Some(unix_s) if name.ends_with("_unix_s") => digits::date(unix_s),
            Some(ns) if name.ends_with("_ns") => digits::ns(ns),
            _ => number.to_string(),
        },
        Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// How to read them, and what they rest on.
pub(super) fn method(out: &mut Out, files: &[RunFile]) -> fmt::Result {
    out.write_str("<section id=\"method\"><h2>How it was measured</h2><ul>")?;
    let orders = files.iter().map(|file| match file.run.order {
        Order::Rotated => ROTATED,
        Order::Balanced => BALANCED,
    });
    for sentence in distinct(orders).into_iter().chain(METHOD) {
        write!(out, "<li>{}</li>", Text(sentence))?;
    }
    out.write_str("</ul></section>")
}

const BALANCED: &str = "The arms take turns within one run: every round runs each arm on the same input, so what drifts slowly hits all of them alike; and in orders in which each arm comes behind each other one equally often (Williams\u{2019} squares, drawn from the run\u{2019}s seed), so what one leaves behind hits all others alike.";

const ROTATED: &str = "The arms took turns within one run: every round ran each arm on the same input and began with another one, so what drifts slowly hits all of them alike; but each came behind the same other one in every round, and what that one leaves behind may be in its ratios.";

const METHOD: [&str; 5] = [
    "A ratio divides what two arms took in the same round, and nothing else. Its mean has a 99\u{a0}% interval by Student\u{2019}s t distribution: of a hundred such intervals, one does not hold the true mean.",
    "Quantiles are of all waits of all rounds, within 0.1 %. The added latency is from the true end of the work to the code behind the wait.",
    "CPU time is read from the clocks of the threads or of the process, before and after; energy from the vendor\u{2019}s library or from the processor\u{2019}s counters.",
    "What a machine cannot tell is missing, a dash, and never zero.",
    "Times of different machines, or of one machine on different days, are not compared: only ratios are.",
];

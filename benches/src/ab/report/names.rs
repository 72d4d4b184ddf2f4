//! What is known of suites and metrics by name: what to call them, which ones to put in front. Any other is shown too.

use super::read::distinct;

/// A suite as a heading has it, for the ones that have a sentence.
pub(crate) fn sentence(suite: &str) -> Option<&'static str> {
    Some(match suite {
        "wake" => "How long after the true end of the work the code behind the wait runs.",
        "burn" => "What waiting costs: CPU time and energy while nothing else is to be done.",
        "serve" => "A decode server under load: tokens for a second, and what a token costs the host.",
        "fan-in" => "Many waits at once.",
        "ops" => "What submitting and awaiting cost, without the work.",
        "graphs" => "Graphs of work over streams.",
        _ => return None,
    })
}

/// A metric in words.
pub(crate) fn metric_words(metric: &str) -> String {
    match metric {
        "latency" => "Added latency".to_owned(),
        "latency_p50" => "Median latency".to_owned(),
        "cpu" => "CPU time of the waiting threads".to_owned(),
        "process_cpu" => "CPU time of the process".to_owned(),
        "switches" => "Context switches".to_owned(),
        other => {
            let words = other.replace('_', " ");
            let mut chars = words.chars();
            chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
        }
    }
}

/// A metric as the heading of a column.
pub(crate) fn short_words(metric: &str) -> String {
    match metric {
        "latency" => "latency mean".to_owned(),
        "latency_p50" => "latency p50, mean of rounds".to_owned(),
        "cpu" => "CPU".to_owned(),
        "process_cpu" => "process CPU".to_owned(),
        other => other.replace('_', " "),
    }
}

/// Metrics whose ratios are not times and that need no interval: the same program counts the same.
pub const COUNTS: [&str; 1] = ["instructions"];

/// These metrics, each once, in the order to show them: those that matter most to the suite first.
pub(crate) fn metrics_of<'a>(suite: &str, names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let first: &[&str] = match suite {
        "burn" => &["cpu", "energy", "latency_p50", "latency", "process_cpu"],
        "serve" => {
            &["throughput", "cpu", "energy", "request_latency", "latency_p50", "latency", "process_cpu"]
        }
        _ => &["latency_p50", "cpu", "energy", "latency", "process_cpu", "throughput"],
    };
    let mut metrics = distinct(names.map(String::as_str));
    metrics.sort_by_key(|name| (first.iter().position(|known| known == name).unwrap_or(first.len()), *name));
    metrics
}

//! Text for Prometheus, written by hand.
//!
//! The libraries at hand do not fit what is a snapshot already: `prometheus-client` writes the younger `OpenMetrics` text, which ends
//! differently and names families differently, wants to own each counter in a registry, and brings a lock and a derive macro along;
//! `prometheus` writes this format, but out of its own messages. What is needed is a loop for each family and three escapes.

use alloc::string::String;
use core::fmt::{Display, Write as _};

use super::snapshot::{Counts, MetricKind, PointSnapshot, Snapshot, Spread, WAIT_BOUNDS_NS};

/// A family's name and help, and where its numbers are.
type Count = (&'static str, &'static str, fn(&Counts) -> u64);

/// The text of a snapshot.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let mut text = Text(String::new());
    text.family("waits_total", "counter", "Waits by how they ended.");
    for point in &snapshot.points {
        for (end, count) in point.counts.ends() {
            text.sample("waits_total", Some(point), &[("end", end)], count);
        }
    }
    let counts: [Count; 3] = [
        ("sleeps_total", "Predicted sleeps of waits that ended well.", |counts| counts.sleeps),
        ("parks_total", "Parks on the word, of waits that ended well.", |counts| counts.parks),
        ("queries_total", "Status queries of waits that ended well.", |counts| counts.queries),
    ];
    for (name, help, count) in counts {
        text.family(name, "counter", help);
        for point in &snapshot.points {
            text.sample(name, Some(point), &[], count(&point.counts));
        }
    }
    text.family("wait_seconds", "histogram", "How long the waits took that ended well.");
    for point in &snapshot.points {
        text.histogram(
            ["wait_seconds_bucket", "wait_seconds_sum", "wait_seconds_count"],
            point,
            &point.waited,
        );
    }
    text.family("overshoot_seconds", "histogram", "How far past their moment predicted sleeps ended.");
    let names = ["overshoot_seconds_bucket", "overshoot_seconds_sum", "overshoot_seconds_count"];
    for point in &snapshot.points {
        text.histogram(names, point, &point.overshoot);
    }
    for metric in &snapshot.metrics {
        match metric.kind {
            MetricKind::Counter => {
                let name = [metric.name, "_total"].concat();
                text.family(&name, "counter", metric.help);
                text.sample(&name, None, &[], metric.value);
            }
            MetricKind::Gauge => {
                text.family(metric.name, "gauge", metric.help);
                text.sample(metric.name, None, &[], metric.value);
            }
        }
    }
    text.0
}

/// Writing to a string does not fail, so results of `write!` are passed over.
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        let _ = write!(self.0, "# HELP wakeline_{name} {help}\n# TYPE wakeline_{name} {kind}\n");
    }

    fn sample(
        &mut self,
        name: &str,
        point: Option<&PointSnapshot>,
        labels: &[(&str, &str)],
        value: impl Display,
    ) {
        let _ = write!(self.0, "wakeline_{name}");
        let point = point.map(|point| ("point", point.name.as_str()));
        let mut before = '{';
        for (label, text) in point.iter().chain(labels) {
            let text = text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            let _ = write!(self.0, "{before}{label}=\"{text}\"");
            before = ',';
        }
        self.0.push_str(if before == ',' { "}" } else { "" });
        let _ = writeln!(self.0, " {value}");
    }

    fn histogram(&mut self, [bucket, sum, count]: [&str; 3], point: &PointSnapshot, spread: &Spread) {
        for (bound, within) in WAIT_BOUNDS_NS.into_iter().zip(spread.within) {
            self.sample(bucket, Some(point), &[("le", &seconds(bound))], within);
        }
        self.sample(bucket, Some(point), &[("le", "+Inf")], spread.count);
        self.sample(sum, Some(point), &[], seconds(spread.sum_ns));
        self.sample(count, Some(point), &[], spread.count);
    }
}

/// Seconds to the nanosecond, without a fraction of zeros.
fn seconds(ns: u64) -> String {
    let text = alloc::format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').into()
}

#[cfg(test)]
mod tests {
    use super::super::{Metric, Point};
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    type Labels = Vec<(String, String)>;

    /// Reads the text as the format says, independently of how it was written: samples by name and labels, types by family.
    /// Panics where the text is none.
    fn read(text: &str) -> (BTreeMap<(String, Labels), String>, BTreeMap<String, String>) {
        let (mut samples, mut types) = (BTreeMap::new(), BTreeMap::new());
        assert!(text.ends_with('\n'));
        for line in text.strip_suffix('\n').unwrap().split('\n') {
            if let Some(family) = line.strip_prefix("# TYPE ") {
                let (name, kind) = family.split_once(' ').unwrap();
                assert!(types.insert(name.into(), kind.into()).is_none(), "{name} has two types");
                continue;
            }
            if line.starts_with("# HELP ") {
                continue;
            }
            let mut chars = line.chars().peekable();
            let mut word = |end: &str| {
                let mut word = String::new();
                while let Some(c) = chars.next_if(|c| !end.contains(*c)) {
                    word.push(c);
                }
                (word, chars.next())
            };
            let (name, mut after) = word("{ ");
            let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            assert!(is_name(&name), "{line}");
            let mut labels = Vec::new();
            while after == Some('{') || after == Some(',') {
                let (label, equals) = word("=");
                assert!(is_name(&label) && equals == Some('=') && word("\"") == (String::new(), Some('"')));
                let mut value = String::new();
                loop {
                    let (piece, end) = word("\\\"");
                    value.push_str(&piece);
                    if end == Some('"') {
                        break;
                    }
                    // The escaped character, read as a word of one by ending at any of the three.
                    let (none, escaped) = word("\\\"n");
                    assert_eq!(none, "", "{line}");
                    value.push(if escaped == Some('n') { '\n' } else { escaped.unwrap() });
                }
                labels.push((label, value));
                (_, after) = word(",}");
            }
            let (value, end) = if after == Some('}') {
                assert_eq!(word(" "), (String::new(), Some(' ')));
                word("")
            } else {
                word("")
            };
            assert!(end.is_none() && value.parse::<f64>().is_ok(), "{line}");
            assert!(samples.insert((name, labels), value).is_none(), "twice: {line}");
        }
        (samples, types)
    }

    fn label(label: &str, value: &str) -> (String, String) {
        (label.into(), value.into())
    }

    #[test]
    fn the_text_is_the_golden_one() {
        let mut spread = Spread { count: 3, sum_ns: 12_000_300_000, ..Spread::default() };
        spread.add(300_000, 2);
        spread.add(11_700_000_000, 1);
        let mut counts = Counts::default();
        (counts.parked, counts.late, counts.abandoned, counts.queries) = (2, 1, 4, 7);
        let point =
            PointSnapshot { name: "a \"b\"\\\n".into(), counts, waited: spread, ..Default::default() };
        let metrics = alloc::vec![
            Metric::counter("watcher_completions", "Waits that\nended \\ well.", 5),
            Metric::gauge("watcher_flights", "Waits now.", 1),
        ];
        let text = Snapshot { points: alloc::vec![point], metrics }.prometheus();
        assert_eq!(text, include_str!("golden.prom"));
    }

    #[test]
    fn seconds_are_exact() {
        for (ns, text) in [
            (0, "0"),
            (1, "0.000000001"),
            (2_500, "0.0000025"),
            (1_000_000_000, "1"),
            (10_000_000_000, "10"),
            (u64::MAX, "18446744073.709551615"),
        ] {
            assert_eq!(seconds(ns), text);
        }
    }

    #[test]
    fn equal_snapshots_give_equal_text_and_none_but_headers_where_there_is_no_point() {
        let point = Point::new("x").snapshot();
        let snapshot = Snapshot { points: alloc::vec![point], ..Snapshot::default() };
        assert_eq!(snapshot.prometheus(), snapshot.clone().prometheus());
        assert!(Snapshot::default().prometheus().lines().all(|line| line.starts_with("# ")));
    }

    proptest! {
        /// Whatever a point is called, its name and numbers are read back.
        #[test]
        fn any_name_reads_back_with_its_numbers(
            names in prop::collection::btree_set(
                prop_oneof![any::<String>(), r#"[\\"\n{},= n]{0,12}"#], 1..4),
            count in any::<u64>(),
            ns in 0_u64..20_000_000_000,
        ) {
            let mut snapshot = Snapshot::default();
            for name in &names {
                let mut point = PointSnapshot { name: name.clone(), ..PointSnapshot::default() };
                (point.counts.late, point.counts.parks) = (count, count / 2);
                (point.waited.count, point.waited.sum_ns) = (1, ns);
                point.waited.add(ns, 1);
                snapshot.points.push(point);
            }
            snapshot.metrics.push(Metric::counter("odd", "", count));
            let (samples, types) = read(&snapshot.prometheus());
            // Every sample is of a family with a type.
            for (name, _) in samples.keys() {
                let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
                prop_assert!(types.contains_key(name) || types[family.unwrap()] == "histogram", "{}", name);
            }
            let per_point = 10 + 3 + 2 * (WAIT_BOUNDS_NS.len() + 3);
            prop_assert_eq!(samples.len(), names.len() * per_point + 1);
            let at = |name: &str, labels: Labels| samples.get(&(name.into(), labels)).unwrap().as_str();
            prop_assert_eq!(at("wakeline_odd_total", Vec::new()), count.to_string());
            for name in &names {
                let point = || label("point", name);
                prop_assert_eq!(at("wakeline_waits_total", alloc::vec![point(), label("end", "late")]), count.to_string());
                prop_assert_eq!(at("wakeline_parks_total", alloc::vec![point()]), (count / 2).to_string());
                prop_assert_eq!(at("wakeline_wait_seconds_sum", alloc::vec![point()]), seconds(ns));
                let mut last = 0;
                for bound in WAIT_BOUNDS_NS {
                    let le = label("le", &seconds(bound));
                    let within: u64 = at("wakeline_wait_seconds_bucket", alloc::vec![point(), le]).parse().unwrap();
                    prop_assert_eq!(within, u64::from(ns <= bound));
                    prop_assert!(within >= last);
                    last = within;
                }
                let all = alloc::vec![point(), label("le", "+Inf")];
                prop_assert_eq!(at("wakeline_wait_seconds_bucket", all), "1");
            }
        }
    }
}

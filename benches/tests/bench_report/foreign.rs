//! Files that nobody's run wrote: whatever is in a line, it is refused with the line's number, or shown within a moment on a sound page.

use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use wakeline_benches::ab::report::{Comparison, Condition, ReadError, RunFile, page, table};

use crate::page::sound;
use crate::synthetic;

/// How long one file may take. A release build is done within a second: this is one without optimisation, on a machine that does other things as well.
const SHOWN_WITHIN: Duration = Duration::from_secs(60);

/// Reads it, and makes all that is made of a file, but on a thread of its own: what does not come to its end fails the test.
fn shown(text: String) -> Result<String, ReadError> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = tell.send(show(&text));
    });
    told.recv_timeout(SHOWN_WITHIN)
        .unwrap_or_else(|error| panic!("it panics, or is not shown in time: {error}"))
}

fn show(text: &str) -> Result<String, ReadError> {
    let file = RunFile::read("foreign.jsonl", text)?;
    let plain = RunFile::read("plain.jsonl", &self::text(&small())).unwrap();
    let comparisons =
        [(&plain, &file), (&file, &plain), (&file, &file)].map(|(one, other)| Comparison::of(one, other));
    for condition in ["ratio(*/*/*).cpu > 1", "change(*/*/*).cpu > 0.1", "count(*/*/*).instructions > 5"] {
        let condition: Condition = condition.parse().unwrap();
        // Whatever comes of it.
        let _ = condition.judge(&file, Some(&comparisons[0]));
    }
    let mut all = table(&file);
    all.extend(comparisons.iter().map(Comparison::table));
    assert!(all.chars().all(|c| c == '\n' || !c.is_control()), "{all:?}");
    let page = page(&[plain, file], &comparisons);
    sound(&page);
    Ok(all + &page)
}

/// A run of every kind of line, and little of each.
fn small() -> Vec<Value> {
    static SMALL: OnceLock<Vec<Value>> = OnceLock::new();
    let make = || {
        let mut file = synthetic::full("small.jsonl", 1, 1.0);
        let suites: Vec<String> = file.suites().into_iter().map(str::to_owned).collect();
        let cells = suites.iter().flat_map(|suite| file.cells_of(suite).take(2).cloned().collect::<Vec<_>>());
        file.cells = cells.collect();
        for cell in &mut file.cells {
            cell.cdf.truncate(4);
            cell.metrics.retain(|name, _| ["cpu", "latency", "instructions"].contains(&name.as_str()));
            for metric in cell.metrics.values_mut() {
                metric.by_round.clear();
            }
        }
        file.timelines.truncate(1);
        let text = synthetic::text(&file);
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    SMALL.get_or_init(make).clone()
}

fn text(lines: &[Value]) -> String {
    lines.iter().map(|line| line.to_string() + "\n").collect()
}

/// Every place in a line where a value stands, as pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| {
                places(value, &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), found);
            });
        }
        Value::Array(values) => {
            values
                .iter()
                .enumerate()
                .for_each(|(index, value)| places(value, &format!("{at}/{index}"), found));
        }
        _ => {}
    }
    found.push(at.to_owned());
}

/// What may stand in place of anything.
fn any_value() -> impl Strategy<Value = Value> {
    let numbers = [
        5e-324,
        -5e-324,
        1e-320,
        2.3e-308,
        1e-300,
        1e-31,
        1e-30,
        1e30,
        -1e30,
        1.1e30,
        1e300,
        1e308,
        -1e308,
        f64::MAX,
        f64::MIN,
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1e8,
        1e15,
        1e16,
        4.5e15,
        9_007_199_254_740_993.0,
    ];
    prop_oneof![
        prop::sample::select(numbers.to_vec()).prop_map(|number| json!(number)),
        any::<f64>().prop_map(|number| json!(number)),
        any::<u64>().prop_map(|number| json!(number)),
        any::<i64>().prop_map(|number| json!(number)),
        prop::sample::select(vec![0_u64, 1, 2, 3, 40, 100_000_000, 1 << 53, u64::MAX])
            .prop_map(|number| json!(number)),
        prop::sample::select(vec![
            "NaN",
            "inf",
            "-inf",
            "",
            "spin",
            "\u{1b}[2J",
            "*",
            "a/b",
            "<script>",
            "]]>",
            "\u{202e}"
        ])
        .prop_map(|text| json!(text)),
        any::<String>().prop_map(|text| json!(text)),
        Just(json!(null)),
        Just(json!(true)),
        Just(json!([])),
        Just(json!({})),
        Just(json!([[1, 1.0]])),
        Just(json!([[u64::MAX, 0.0], [u64::MAX, 1.0]])),
        Just(json!({"mean": 5e-324, "half_width": 1e30, "n": 1})),
        Just(json!({"mean": 1e30, "half_width": null, "n": 3})),
        Just(json!({"mean": 1e-30, "half_width": 5e-324, "n": 2})),
    ]
}

/// Numbers that take the same way on every machine: what once hung, or made a page without an end.
#[test]
fn numbers_at_the_ends_of_what_there_is_are_shown_or_refused() {
    for mean in [5e-324, 1e-320, 1e-300, 1e-30, 1e30, 1e31, 1e308, f64::MAX] {
        for n in [1_u64, 2, 3, 40, 100_000_000, u64::MAX] {
            let mut lines = small();
            for cell in lines.iter_mut().filter(|line| line["kind"] == "cell") {
                cell["rounds"] = json!(n);
                cell["cdf"] = json!([[1, 0.5], [u64::MAX, 1.0]]);
                cell["latency"] = json!({"count": u64::MAX, "p50_ns": u64::MAX, "p90_ns": 0, "p99_ns": u64::MAX, "max_ns": 1});
                for metric in cell["metrics"].as_object_mut().unwrap().values_mut() {
                    let half = if n == 1 { json!(null) } else { json!(mean) };
                    metric["value"] = json!({"mean": mean, "half_width": half, "n": n});
                    metric["ratio"] = metric["value"].clone();
                }
            }
            let result = shown(text(&lines));
            if mean > 1e30 || n > 1_000_000 {
                let message = result.unwrap_err().to_string();
                assert!(message.starts_with("foreign.jsonl, line 2: `"), "{mean:e} {n}: {message}");
            } else {
                let shown = result.unwrap_or_else(|error| panic!("{mean:e} {n}: {error}"));
                assert!(shown.len() < 2_000_000, "{mean:e} {n}: {} bytes", shown.len());
            }
        }
    }
    for (from, to) in [
        ("\"rounds\":", "\"rounds\":-"),
        ("\"count\":", "\"count\":-"),
        ("\"mean\":", "\"mean\":NaN,\"x\":"),
        ("\"mean\":", "\"mean\":1e999,\"x\":"),
    ] {
        let text = text(&small()).replacen(from, to, 1);
        let message = shown(text).unwrap_err().to_string();
        assert!(message.starts_with("foreign.jsonl, line 2: it is no "), "{from} {to}: {message}");
    }
}

/// As much as a file may hold at all.
#[test]
fn the_largest_run_is_shown_in_time_and_a_larger_one_is_refused() {
    let lines = small();
    let cell = lines.iter().find(|line| line["kind"] == "cell").unwrap();
    let crowd = |count: usize| {
        let cells = (0..count).map(|number| {
            let mut cell = cell.clone();
            cell["arm"] = json!(format!("arm {}", number % 64));
            cell["case"] = json!(format!("case {}", number / 64));
            cell
        });
        let mut end = lines.last().unwrap().clone();
        (end["cells"], end["timelines"]) = (json!(count), json!(0));
        text(&[&lines[..1], &cells.collect::<Vec<_>>(), &[end]].concat())
    };
    RunFile::read("large.jsonl", &crowd(2_048)).unwrap();
    let message = RunFile::read("larger.jsonl", &crowd(2_049)).unwrap_err().to_string();
    assert!(
        message.starts_with("larger.jsonl, line 2050: `cells`: 2049, where a run has at most 2048"),
        "{message}"
    );
    shown(crowd(512)).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

    #[test]
    fn whatever_stands_in_a_line_is_shown_or_refused_with_its_number(
        changes in prop::collection::vec((any::<Index>(), any::<Index>(), any_value()), 1..6),
    ) {
        let mut lines = small();
        for (line, place, value) in changes {
            let line = { let at = line.index(lines.len()); &mut lines[at] };
            let mut found = Vec::new();
            places(line, "", &mut found);
            *line.pointer_mut(&found[place.index(found.len())]).unwrap() = value;
        }
        if let Err(error) = shown(text(&lines)) {
            prop_assert!(error.line.is_some_and(|line| (1..=lines.len()).contains(&line)), "{}", error);
        }
    }

    #[test]
    fn any_lines_in_any_order_are_shown_or_refused(
        order in prop::collection::vec(any::<Index>(), 0..40), cut in any::<Index>(),
    ) {
        let lines = small();
        // The first line more often than not, since nothing is read without it.
        let mixed: Vec<Value> = std::iter::once(lines[0].clone()).chain(order.iter().map(|index| index.get(&lines).clone())).collect();
        let mut text = text(&mixed);
        let cut = (0..=text.len()).rev().filter(|at| text.is_char_boundary(*at)).nth(cut.index(40)).unwrap_or(0);
        text.truncate(cut);
        if let Err(error) = shown(text) {
            prop_assert!(error.line.is_some(), "{}", error);
        }
    }
}

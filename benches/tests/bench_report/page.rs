//! The page: well-formed, self-contained, complete, whatever is in a file.

use std::collections::BTreeSet;

use proptest::prelude::*;
use roxmltree::{Document, Node, ParsingOptions};
use wakeline_benches::ab::report::{Comparison, RunFile, page};

use crate::synthetic::{self, PREDICT, SPIN};

fn parse(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("{error}: {page}"))
}

/// All text of an element and below.
fn text(node: Node<'_, '_>) -> String {
    node.descendants().filter_map(|node| if node.is_text() { node.text() } else { None }).collect()
}

fn elements<'a, 'i>(document: &'a Document<'i>, name: &'a str) -> impl Iterator<Item = Node<'a, 'i>> {
    document.descendants().filter(move |node| node.has_tag_name(name))
}

/// What must hold of any page.
pub(crate) fn sound(page: &str) {
    let document = parse(page);
    let mut ids = BTreeSet::new();
    for node in document.descendants().filter(Node::is_element) {
        let name = node.tag_name().name();
        assert!(!["script", "link", "img", "iframe", "object", "image", "use"].contains(&name), "{name}");
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            assert!(!name.starts_with("on") && !["src", "style"].contains(&name), "{name}");
            assert!(name != "href" || value.starts_with('#'), "{value}");
            for number in ["NaN", "inf"] {
                let drawn = ["d", "x", "y", "width", "height", "transform", "viewBox"].contains(&name);
                assert!(!drawn || !value.contains(number), "{name}={value}");
            }
        }
        if let Some(id) = node.attribute("id") {
            assert!(ids.insert(id.to_owned()), "the id {id} is there twice");
        }
    }
    for link in elements(&document, "a") {
        assert!(ids.contains(&link.attribute("href").unwrap()[1..]), "{link:?} leads nowhere");
    }
    for picture in elements(&document, "svg") {
        let hidden = picture.attribute("aria-hidden") == Some("true");
        let named = picture.attribute("aria-labelledby").is_some_and(|names| {
            names.split(' ').all(|name| ids.contains(name))
                && text(picture.first_element_child().unwrap()).len() > 5
        });
        assert!(hidden || (picture.attribute("role") == Some("img") && named), "{picture:?}");
    }
    for row in elements(&document, "table") {
        let columns = |row: Node<'_, '_>| -> usize {
            let cells = row.children().filter(Node::is_element);
            cells.map(|cell| cell.attribute("colspan").map_or(1, |n| n.parse().unwrap())).sum()
        };
        let rows: Vec<usize> =
            row.descendants().filter(|node| node.has_tag_name("tr")).map(columns).collect();
        assert!(rows.windows(2).all(|pair| pair[0] == pair[1]), "rows of a table differ: {rows:?}");
    }
    assert!(!page.contains("url(") && !page.contains("@import"));
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn the_page_has_everything() {
    let file = synthetic::full("run.jsonl", 1, 1.0);
    let page = page(&[file], &[]);
    sound(&page);
    if let Some(folder) = option_env!("CARGO_TARGET_TMPDIR") {
        std::fs::write(std::path::Path::new(folder).join("report-full.html"), &page).unwrap();
    }
    let document = parse(&page);
    let shown = text(document.root());
    for what in [
        "quiet to the end",
        "INTEL(R) XEON(R) PLATINUM 8581C",
        "run.jsonl",
        PREDICT,
        "cuda-async 0.5.0",
        "How late",
        "CPU against latency",
        "Ratios to the base",
        "Throughput and cost",
        "One wait",
        "Numbers",
        "Machine and run",
        "How it was measured",
        "not run: the driver has no such call",
        "Nothing was recorded",
        "timer slack",
        "2026-11-18",
        "No latencies were recorded of event + synchronize",
        "Its last",
        "bench --device cuda --out results",
        "one round",
        "Plans",
        "margin_us=41,",
    ] {
        assert!(shown.contains(what), "{what} is missing");
    }
    let pictures = elements(&document, "svg").filter(|svg| svg.attribute("class") == Some("plot")).count();
    // Curves: four cases of wake, one of burn. Points: four of wake; two of burn have no arm with both. Waits: two with
    // its end twice, one of one moment, one of none.
    assert_eq!(pictures, 5 + 4 + 5, "pictures");
}

#[test]
fn what_is_missing_is_a_dash_and_not_zero() {
    let page = page(&[synthetic::full("run.jsonl", 1, 1.0)], &[]);
    let document = parse(&page);
    let rows: Vec<Node<'_, '_>> = elements(&document, "tr")
        .filter(|row| row.children().any(|cell| cell.has_tag_name("th") && text(cell).starts_with("none")))
        .collect();
    assert!(!rows.is_empty());
    for row in rows {
        let cells: Vec<String> = row.children().filter(|cell| cell.has_tag_name("td")).map(text).collect();
        // The rounds, which were none, are a number.
        assert!(cells.iter().skip(1).all(|cell| cell == "\u{2013}"), "{cells:?}");
    }
}

/// The labels of every axis, as they are in the picture: none may lie on another.
#[test]
fn labels_do_not_overlap() {
    let page = page(&[synthetic::full("run.jsonl", 1, 1.0)], &[]);
    let document = parse(&page);
    for picture in elements(&document, "svg") {
        let mut boxes: Vec<(f64, f64, f64, String)> = Vec::new();
        let view: Vec<f64> =
            picture.attribute("viewBox").unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
        for label in picture.descendants().filter(|node| node.has_tag_name("text")) {
            let at = |name: &str| label.attribute(name).unwrap().parse::<f64>().unwrap();
            let words = text(label);
            let width = 6.9 * f64::from(u32::try_from(words.chars().count()).unwrap());
            let class = label.attribute("class").unwrap_or("");
            let left = match class.rsplit(' ').next() {
                Some("mid") => at("x") - width / 2.0,
                Some("end") => at("x") - width,
                _ => at("x"),
            };
            let (right, y) = (left + width, at("y"));
            assert!(
                left >= -2.0 && right <= view[2] + 2.0 && y <= view[3] + 1.0,
                "{words} leaves the picture"
            );
            for (other_left, other_right, other_y, other) in &boxes {
                let apart = right <= *other_left || left >= *other_right || (y - other_y).abs() >= 9.0;
                assert!(apart, "{words} lies on {other}");
            }
            boxes.push((left, right, y, words));
        }
    }
}

#[test]
fn a_comparison_is_a_section_of_the_page() {
    let (before, after) = (synthetic::full("before.jsonl", 1, 1.0), synthetic::full("after.jsonl", 2, 1.5));
    let comparison = Comparison::of(&before, &after);
    let page = page(&[before, after], &[comparison]);
    sound(&page);
    if let Some(folder) = option_env!("CARGO_TARGET_TMPDIR") {
        std::fs::write(std::path::Path::new(folder).join("report-compared.html"), &page).unwrap();
    }
    let shown = text(parse(&page).root());
    assert!(shown.contains("What changed") && shown.contains("worse"), "{shown}");
}

#[test]
fn runs_with_next_to_nothing_have_a_page_too() {
    sound(&page(&[], &[]));
    sound(&page(&[synthetic::empty("empty.jsonl")], &[]));
    let mut cut = synthetic::empty("cut.jsonl");
    (cut.end, cut.run.checks, cut.run.environment.release) = (None, Vec::new(), false);
    let page = page(&[cut], &[]);
    sound(&page);
    for what in ["This run was cut off", "This is a debug build", "Nothing was checked"] {
        assert!(page.contains(what), "{what}");
    }
}

/// A run with this name wherever a file may have one.
fn hostile(name: &str) -> RunFile {
    let named = || name.to_owned();
    let mut file = synthetic::full("run.jsonl", 1, 1.0);
    (file.name, file.run.device, file.run.environment.cpu) = (named(), named(), named());
    file.run.command = vec![name.to_owned()];
    file.run.suites = vec![name.to_owned()];
    file.run.checks[0].name = named();
    file.run.checks[0].found = named();
    for (index, cell) in file.cells.iter_mut().enumerate() {
        if cell.arm == PREDICT {
            cell.arm = named();
        }
        cell.family = named();
        cell.base = if cell.base == SPIN { SPIN.to_owned() } else { name.to_owned() };
        cell.notes.push(name.to_owned());
        if index % 3 == 0 {
            cell.case = format!("{name}{index}");
        }
        if let Some(metric) = cell.metrics.remove("energy") {
            cell.metrics.insert(name.to_owned(), metric);
        }
    }
    for timeline in &mut file.timelines {
        timeline.case = named();
        timeline.spans.iter_mut().for_each(|span| span.what = named());
    }
    file
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn no_name_gets_out_of_its_place(name in "[<>&\"'/=a-z \\PC\\x00-\\x1f]{0,30}|</style><script>x</script>|\\]\\]>|<!--|&lt;") {
        let file = hostile(&name);
        let comparison = Comparison::of(&file, &file);
        let plain = synthetic::full("run.jsonl", 1, 1.0);
        let page = page(&[file, plain], &[comparison]);
        sound(&page);
    }

    #[test]
    fn numbers_of_any_size_are_drawn(mean in prop::num::f64::ANY, half in prop::option::of(prop::num::f64::ANY), ns: u64) {
        let mut file = synthetic::full("run.jsonl", 1, 1.0);
        for cell in file.cells.iter_mut().step_by(2) {
            cell.cdf = vec![(ns, mean), (ns.saturating_add(5), 1.0)];
            for metric in cell.metrics.values_mut() {
                (metric.value.mean, metric.value.half_width) = (mean, half);
                metric.ratio = Some(metric.value);
            }
        }
        file.timelines[0].spans[0].to_ns = ns;
        sound(&page(&[file], &[]));
    }
}

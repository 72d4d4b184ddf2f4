//! The blocks and statements of a Rust file: where each begins and ends, what it is in, and which are tests.

use std::ops::Range;

use super::source::{Line, find_words, has_word, is_word};

/// Something that ends with `;` or has a block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// Its code before the block or the `;`, attributes included.
    pub(crate) head: String,
    /// Its first line, from 0.
    pub(crate) first: usize,
    /// Its last line.
    pub(crate) last: usize,
    /// The index of the item whose block it is in.
    pub(crate) parent: Option<usize>,
    /// Whether it has a block.
    pub(crate) has_block: bool,
}

#[derive(Default)]
struct Frame {
    owner: Option<usize>,
    head: String,
    first: Option<usize>,
    brackets: usize,
}

impl Frame {
    fn take(&mut self, line: usize, has_block: bool) -> Item {
        let first = self.first.take().unwrap_or(line);
        Item { head: std::mem::take(&mut self.head), first, last: line, parent: self.owner, has_block }
    }

    fn push(&mut self, c: char, line: usize) {
        if !c.is_whitespace() {
            self.first.get_or_insert(line);
        }
        self.head.push(c);
    }
}

/// The items of a file, in the order of their blocks' or statements' ends of heads.
pub(crate) fn items(lines: &[Line]) -> Vec<Item> {
    let mut items = Vec::new();
    let mut outer: Vec<Frame> = Vec::new();
    let mut frame = Frame::default();
    for (number, line) in lines.iter().enumerate() {
        for c in line.code.chars().chain(['\n']) {
            match c {
                '{' => {
                    items.push(frame.take(number, true));
                    let inner = Frame { owner: Some(items.len() - 1), ..Frame::default() };
                    outer.push(std::mem::replace(&mut frame, inner));
                }
                '}' => {
                    if let Some(owner) = frame.owner {
                        items[owner].last = number;
                    }
                    frame = outer.pop().unwrap_or_default();
                }
                ';' if frame.brackets == 0 => items.push(frame.take(number, false)),
                _ => {
                    match c {
                        '(' | '[' => frame.brackets += 1,
                        ')' | ']' => frame.brackets = frame.brackets.saturating_sub(1),
                        _ => {}
                    }
                    frame.push(c, number);
                }
            }
        }
    }
    items
}

impl Item {
    /// What stands in its attributes' brackets, inner ones included.
    pub(crate) fn attributes(&self) -> Vec<&str> {
        self.attribute_ranges().into_iter().map(|range| &self.head[range]).collect()
    }

    /// Its head without the attributes.
    pub(crate) fn bare_head(&self) -> &str {
        let start = self.attribute_ranges().last().map_or(0, |range| range.end + 1);
        self.head[start..].trim()
    }

    fn attribute_ranges(&self) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for (at, _) in self.head.match_indices('#') {
            let inside = self.head[at + 1..].strip_prefix('!').unwrap_or(&self.head[at + 1..]);
            let Some(inside) = inside.strip_prefix('[') else { continue };
            let start = self.head.len() - inside.len();
            let mut depth = 1_usize;
            let end = inside.find(|c| {
                match c {
                    '[' => depth += 1,
                    ']' => depth -= 1,
                    _ => {}
                }
                depth == 0
            });
            found.extend(end.map(|length| start..start + length));
        }
        found
    }

    /// Whether it is built for tests only, or is one.
    pub(crate) fn is_test_only(&self) -> bool {
        self.is_test_fn() || self.attributes().iter().any(|attribute| is_cfg_test(attribute))
    }

    /// Whether the test harness runs it.
    pub(crate) fn is_test_fn(&self) -> bool {
        let path = |attribute: &str| attribute.split(['(', '=']).next().unwrap_or("").trim().to_owned();
        let is_test = |path: &str| matches!(path.rsplit("::").next(), Some("test" | "rstest" | "test_case"));
        let attributes = self.attributes();
        self.has_block
            && (attributes.iter().any(|attribute| is_test(&path(attribute))) || self.is_driver_test())
    }

    /// Whether it is one of the tests that `driver_tests!`, `device_tests!` or `machine_tests!` lists: the compiler warns of one that they do not list.
    fn is_driver_test(&self) -> bool {
        let words = self.bare_head().split_whitespace().collect::<Vec<_>>().join(" ");
        let head = words.replace("( ", "(").replace(", )", ")");
        let takes = [
            "(rig: &Rig)",
            "<D: Extras>(_: &Rig<D>)",
            "<D: Vendor>(rig: &Rig<D>)",
            "<D: Vendor>(rig: &VendorRig<D>)",
            "(rig: &Rig<Cuda>)",
            "(rig: &Rig<Hip>)",
            "(rig: &CudaRig)",
            "(rig: &HipRig)",
            "<R: OpsRig>(rig: &R)",
            "<R: GraphRig>(rig: &R)",
            "<R: RanksRig>(rig: &R)",
            "<V: Vendor + CollectiveVendor>(rig: &VendorRanks<V>)",
            "<R: MachineRig>(rig: &R)",
            "<D: Several>(rig: &VendorMachine<D>)",
            "<D: Several>(_: &VendorMachine<D>)",
        ];
        ["fn ", "pub(crate) fn "].iter().any(|begin| head.starts_with(begin))
            && takes.iter().any(|end| head.ends_with(end))
    }

    /// The function's name, if it is one.
    pub(crate) fn fn_name(&self) -> Option<&str> {
        let head = self.bare_head();
        let after = head[find_words(head, "fn").next()? + 2..].trim_start();
        let end = after.find(|c| !is_word(c)).unwrap_or(after.len());
        (end > 0).then(|| &after[..end])
    }

    /// The name of `mod name;`.
    pub(crate) fn outer_module(&self) -> Option<&str> {
        let (before, name) = self.bare_head().rsplit_once(char::is_whitespace)?;
        (!self.has_block && has_word(before, "mod")).then_some(name)
    }
}

/// Whether `cfg(..)` holds in tests only. `any(test, ..)` counts: it is written for tests.
pub(crate) fn is_cfg_test(attribute: &str) -> bool {
    attribute.starts_with("cfg(") && has_word(attribute, "test") && !attribute.contains("not(test")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source::lex;

    #[test]
    fn blocks_have_heads_ends_and_parents() {
        let all = items(&lex(
            "impl A for B {\n    fn f(x: [u8; 3]) {\n        g(|| { h(); });\n    }\n}\nuse c;\n",
        ));
        assert_eq!((all[0].head.as_str(), all[0].first, all[0].last), ("impl A for B ", 0, 4));
        assert_eq!((all[1].fn_name(), all[1].parent, all[1].last), (Some("f"), Some(0), 3));
        let last = all.last().unwrap();
        assert_eq!((last.head.trim(), last.parent, last.has_block), ("use c", None, false));
    }

    #[test]
    fn tests_are_known_by_their_attributes() {
        let all = items(&lex(
            "#[cfg(test)]\nmod tests {\n    #[tokio::test(flavor = \"x\")]\n    async fn one() {}\n    fn two() {}\n}\n\
             #[cfg(not(test))]\nmod real {}\n#[cfg(all(test, loom))]\nmod loom_tests;\n",
        ));
        assert!(all[0].is_test_only() && !all[0].is_test_fn());
        assert!(all[1].is_test_fn() && all[1].fn_name() == Some("one"));
        assert!(!all[2].is_test_fn() && all[2].fn_name() == Some("two"));
        assert!(!all[3].is_test_only());
        assert!(all[4].is_test_only());
        assert_eq!(all[4].outer_module(), Some("loom_tests"));
    }

    #[test]
    fn tests_on_a_driver_are_known_by_what_they_take() {
        let all =
            items(&lex("fn one(rig: &Rig<Hip>) { x }\nfn two(rig: &Rig<Hip>) -> u8 { 1 }\nfn three() {}\n"));
        assert_eq!(all.iter().map(Item::is_test_fn).collect::<Vec<_>>(), [true, false, false]);
        let all = items(&lex(
            "fn one<R: OpsRig>(rig: &R) { x }\nfn two<D: Vendor>(\n    rig: &Rig<D>,\n) { x }\nfn three<R>(rig: &R) { x }\n",
        ));
        assert_eq!(all.iter().map(Item::is_test_fn).collect::<Vec<_>>(), [true, true, false]);
    }

    #[test]
    fn tests_in_proptest_macros_are_found() {
        let all = items(&lex(
            "proptest! {\n    #![proptest_config(C)]\n    #[test]\n    fn p(x in any::<[u8; 4]>()) { y }\n}\n",
        ));
        assert_eq!((all[1].is_test_fn(), all[1].fn_name()), (true, Some("p")));
    }
}

//! What the fake reads of a module's text: the names of its entries and the sizes of their parameters.

use std::collections::BTreeMap;

/// The entries of a text in PTX, each with the bytes of its parameters.
pub(super) fn entries(text: &str) -> BTreeMap<String, Vec<usize>> {
    let text = without_comments(text);
    let mut entries = BTreeMap::new();
    // `.visible .entry name ( .param .u64 a, .param .align 8 .b8 b[16] ) {`
    for after in text.split(".entry").skip(1) {
        let Some(after) = after.strip_prefix(char::is_whitespace) else { continue };
        let after = after.trim_start();
        let end = after.find(|c: char| !is_name(c)).unwrap_or(after.len());
        let (name, rest) = after.split_at(end);
        if name.is_empty() {
            continue;
        }
        let list = rest.trim_start().strip_prefix('(').and_then(|rest| rest.split(')').next());
        let parameters = list.unwrap_or("").split(',').filter_map(parameter).collect();
        entries.insert(name.to_owned(), parameters);
    }
    entries
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_$%".contains(c)
}

/// The bytes of `.param .u64 a`.
fn parameter(text: &str) -> Option<usize> {
    let mut words = text.split_whitespace();
    if words.next()? != ".param" {
        return None;
    }
    let bytes = text.split_whitespace().find_map(type_bytes)?;
    let len = text.split_once('[').and_then(|(_, rest)| rest.split(']').next()?.trim().parse().ok());
    Some(bytes * len.unwrap_or(1_usize))
}

/// The bytes of a `.u64`, `.f32`, `.b8` ..
fn type_bytes(word: &str) -> Option<usize> {
    let bits = word.strip_prefix('.')?.strip_prefix(['u', 's', 'b', 'f'])?;
    bits.parse().ok().map(|bits: usize| bits / 8)
}

fn without_comments(text: &str) -> String {
    let mut left = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("//").into_iter().chain(rest.find("/*")).min() {
        left.push_str(&rest[..at]);
        let end = if rest[at..].starts_with("//") { "\n" } else { "*/" };
        // The end of a line is kept: it parts words.
        left.push('\n');
        rest = rest[at + 2..].split_once(end).map_or("", |(_, after)| after);
    }
    left + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_their_parameters_are_found() {
        let text = "// .entry not_this(\n.version 8.0\n.visible .entry occupy(\n .param .u64 occupy_0 // ns\n)\n{ ret; }\n\
            .entry bare { ret; } /* .entry nor_this() */ .entry two(.param .align 8 .b8 a[16], .param .f32 b) {}\n\
            .func (.reg .u32 r) helper() {}";
        let found = entries(text);
        let expected = [("bare", vec![]), ("occupy", vec![8]), ("two", vec![16, 4])];
        assert_eq!(found, expected.map(|(name, bytes)| (name.to_owned(), bytes)).into());
        assert!(entries("no kernel").is_empty());
    }
}

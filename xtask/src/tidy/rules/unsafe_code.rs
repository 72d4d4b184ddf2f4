//! Unsafe code: only where `ARCHITECTURE.md` says, and never without the reason why it is right.
//!
//! The list is a fenced block headed `<!-- tidy: unsafe -->`, a file or a `folder/*` (all below it) a line.

use super::ARCHITECTURE;
use crate::tidy::finding::{Finding, Rule};
use crate::tidy::items::Item;
use crate::tidy::markdown;
use crate::tidy::project::{Project, Source};
use crate::tidy::source::{find_words, has_word};

pub(crate) fn check(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    let text = project.files.get(ARCHITECTURE).map_or("", String::as_str);
    let places = markdown::marked_block(text, "unsafe").unwrap_or_else(|| {
        let right = "head a fenced block of files and folders with `<!-- tidy: unsafe -->`";
        let wrong = "the list of places with unsafe code is missing";
        findings.push(Finding::file(ARCHITECTURE, Rule::UnsafePlace, wrong, right));
        Vec::new()
    });
    for (line, place) in &places {
        if !project.files.keys().any(|path| is_in(place, path)) {
            let wrong = format!("`{place}` does not exist");
            findings.push(Finding::at(
                ARCHITECTURE,
                *line,
                Rule::UnsafePlace,
                wrong,
                "name a file, or `folder/*`",
            ));
        }
    }
    for (path, source) in &project.sources {
        let allowed = places.iter().any(|(_, place)| is_in(place, path));
        for (number, line) in source.numbered_lines() {
            for at in find_words(&line.code, "unsafe") {
                let next = source.lines.get(number).map_or("", |next| &next.code);
                let kind = Kind::of(&format!("{} {next}", &line.code[at + "unsafe".len()..]));
                if !allowed && kind != Kind::Type {
                    let right = format!("keep it to the places listed in {ARCHITECTURE}");
                    findings.push(Finding::at(path, number, Rule::UnsafePlace, "unsafe code", right));
                }
                if kind == Kind::NeedsReason && !has_reason(source, number) {
                    let right = "say above it, in a comment `// SAFETY: ..`, why it is right here";
                    findings.push(Finding::at(
                        path,
                        number,
                        Rule::UnsafeComment,
                        "unsafe without a reason",
                        right,
                    ));
                }
            }
        }
        findings.extend(source.items.iter().filter_map(|item| contract(path, source, item)));
    }
    findings
}

fn is_in(place: &str, path: &str) -> bool {
    place.strip_suffix('*').map_or(place == path, |folder| path.starts_with(folder))
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// A block, an implementation, foreign declarations, an attribute: a promise is kept here.
    NeedsReason,
    /// A function or a trait: a promise is asked for here.
    Declaration,
    /// The type of a function.
    Type,
}

impl Kind {
    /// What follows the word `unsafe`.
    fn of(after: &str) -> Self {
        let after = after.trim_start();
        let names_fn = |text: &str| {
            let name = text.trim_start().strip_prefix("fn").map(str::trim_start);
            name.is_some_and(|name| name.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '$'))
        };
        match after.strip_prefix("extern") {
            Some(rest) if rest.trim_start_matches(['"', ' ']).starts_with('{') => Self::NeedsReason,
            Some(rest) if names_fn(rest.trim_start_matches(['"', ' '])) => Self::Declaration,
            Some(_) => Self::Type,
            None if after.starts_with("fn") && !names_fn(after) => Self::Type,
            None if after.starts_with("fn") || after.starts_with("trait") => Self::Declaration,
            None => Self::NeedsReason,
        }
    }
}

/// Whether a comment with `SAFETY:` stands in the line (numbered from 1) or right above its statement.
fn has_reason(source: &Source, number: usize) -> bool {
    let says = |index: usize| source.lines[index].comment.contains("SAFETY:");
    if says(number - 1) {
        return true;
    }
    for index in (0..number - 1).rev() {
        let line = &source.lines[index];
        let code = line.code.trim_end();
        let ends_statement = code.ends_with([';', '{', '}', ',']);
        if !line.is_comment_only() && !line.is_attribute() && (ends_statement || code.trim().is_empty()) {
            return false;
        }
        if says(index) {
            return true;
        }
    }
    false
}

/// An unsafe function or trait needs its contract in its docs; a trait may have one for all of its functions, and an implementation
/// of a trait's function has the trait's.
fn contract(path: &str, source: &Source, item: &Item) -> Option<Finding> {
    let head = item.bare_head().split('(').next().unwrap_or("");
    let declares = has_word(head, "unsafe") && (item.fn_name().is_some() || has_word(head, "trait"));
    let parent = item.parent.map(|parent| &source.items[parent]);
    let has = |words: &[&str]| {
        parent.is_some_and(|parent| words.iter().all(|word| has_word(parent.bare_head(), word)))
    };
    let covered = has(&["unsafe", "trait"]) && parent.is_some_and(|parent| has_contract(source, parent));
    if !declares || has(&["impl", "for"]) || covered || has_contract(source, item) {
        return None;
    }
    let right = "say in its docs, under `# Safety`, what its caller must make sure of";
    Some(Finding::at(path, item.first + 1, Rule::UnsafeComment, "unsafe without a contract", right))
}

/// Whether its docs have a section on safety.
fn has_contract(source: &Source, item: &Item) -> bool {
    let above = source.lines[..item.first]
        .iter()
        .rev()
        .take_while(|line| line.is_comment_only() || line.is_attribute());
    let inside = source.lines[item.first..=item.last]
        .iter()
        .take_while(|line| line.is_comment_only() || line.is_attribute());
    above.chain(inside).any(|line| line.comment.contains("# Safety"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "<!-- tidy: unsafe -->\n```text\ncrates/backends/*\n```\n";

    fn said(path: &str, text: &str) -> Vec<String> {
        let project =
            Project::planted(&[(ARCHITECTURE, LISTED), ("crates/backends/a.rs", "//! x\n"), (path, text)]);
        check(&project)
            .iter()
            .map(|finding| format!("{}:{}", finding.rule, finding.line.unwrap_or(0)))
            .collect()
    }

    #[test]
    fn unsafe_code_stays_in_its_places() {
        let text = "// SAFETY: a\nunsafe { f() }\n";
        assert_eq!(said("crates/hosts/std/src/a.rs", text), ["unsafe-place:2"]);
        assert!(said("crates/backends/cuda/src/a.rs", text).is_empty());
        assert!(
            said("crates/hosts/std/src/a.rs", "#![deny(unsafe_code)] // unsafe { }\ntype F = unsafe fn();\n")
                .is_empty()
        );
    }

    #[test]
    fn every_promise_has_its_reason() {
        let path = "crates/backends/cuda/src/a.rs";
        assert_eq!(said(path, "let a = unsafe { f() };\n"), ["unsafe-comment:1"]);
        assert_eq!(said(path, "unsafe impl Send for A {}\n"), ["unsafe-comment:1"]);
        assert_eq!(said(path, "unsafe extern \"C\" {\n}\n"), ["unsafe-comment:1"]);
        assert_eq!(said(path, "// SAFETY: a\nunsafe { f() };\nunsafe { g() };\n"), ["unsafe-comment:3"]);
        assert_eq!(said(path, "// SAFETY: a\n\nunsafe { f() };\n"), ["unsafe-comment:3"]);
        let fine = "// SAFETY: a, and\n// so on\n#[inline]\nlet x =\n    unsafe { f() };\n/* SAFETY: b */ unsafe { g() };\n";
        assert!(said(path, fine).is_empty(), "{:?}", said(path, fine));
    }

    #[test]
    fn every_unsafe_fn_has_its_contract() {
        let path = "crates/backends/cuda/src/a.rs";
        assert_eq!(said(path, "/// Does.\npub unsafe fn f() {}\n"), ["unsafe-comment:2"]);
        assert_eq!(said(path, "/// Does.\nunsafe trait A {}\n"), ["unsafe-comment:2"]);
        let bare = "/// Does.\ntrait A {\n    unsafe fn f();\n}\n";
        assert_eq!(said(path, bare), ["unsafe-comment:3"]);
        assert!(
            said(path, "/// # Safety\n/// For all.\nunsafe trait A {\n    unsafe fn f();\n}\n").is_empty()
        );
        assert!(
            said(path, "/// Does.\n///\n/// # Safety\n/// Be careful.\n#[inline]\npub unsafe fn f() {}\n")
                .is_empty()
        );
        let implemented = "// SAFETY: a\nunsafe impl GlobalAlloc for A {\n    unsafe fn alloc(&self) {}\n}\n";
        assert!(said(path, implemented).is_empty());
    }

    #[test]
    fn the_list_must_be_there_and_must_be_right() {
        assert_eq!(check(&Project::default()).len(), 1);
        let listed = "<!-- tidy: unsafe -->\n```text\ncrates/gone.rs\n```\n";
        let found = check(&Project::planted(&[(ARCHITECTURE, listed)]));
        assert_eq!(
            found[0].to_string(),
            "ARCHITECTURE.md:3: unsafe-place: `crates/gone.rs` does not exist; name a file, or `folder/*`"
        );
    }
}

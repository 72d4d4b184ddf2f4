//! Where headers are looked for, and which of them a source can reach.
//!
//! The compiler reads headers by itself. What it made is kept by what they hold, so they are found here as well: every file that could be included is, whatever
//! conditions it is behind. That may be more than the compiler reads, never less; where that cannot be said, nothing is kept.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// The most headers that are followed, as many names that are in no folder, and the most bytes of them.
const FILES_MAX: usize = 10_000;
const BYTES_MAX: usize = 64 << 20;

/// How far behind an `include` its name is looked for, so that a long line is not looked through again for each of them.
const NAME_BYTES_MAX: usize = 1 << 10;

/// What separates words in a line. Not its end.
const SPACES: [char; 4] = [' ', '\t', '\x0b', '\x0c'];

/// How a directive can begin beside by `#`: behind a comment, as a digraph, as a trigraph.
const ODD_STARTS: [&str; 3] = ["*/", "%:", "??="];

/// Where to look for the toolkit's headers (`cuda_fp16.h`, `hip/hip_fp16.h` and others), behind the folders of the options: in the places added here in their order,
/// then beside the compiler's library, then where the vendor puts its toolkit (`/usr/local/cuda`, `/opt/rocm`). A folder that is not there is none.
///
/// ```
/// use wakeline_mapped::compile::HeaderPlaces;
/// let places = HeaderPlaces::new().toolkit("/opt/cuda-12.8").python("/opt/venv/lib/python3.12/site-packages");
/// println!("{places:?}");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "places are looked in by a compiler that is told of them"]
pub struct HeaderPlaces {
    places: Vec<Place>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    Folder(PathBuf),
    Python(PathBuf),
}

impl HeaderPlaces {
    /// No place but those that are always looked in.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a folder of headers.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.places.push(Place::Folder(folder.into()));
        self
    }

    /// Adds the headers of a toolkit: what `CUDA_HOME`, `CUDA_PATH` or `ROCM_PATH` is set to.
    pub fn toolkit(mut self, root: impl AsRef<Path>) -> Self {
        self.places.push(Place::Folder(root.as_ref().join("include")));
        self
    }

    /// Adds those of Python's packages: all of `nvidia/*/include` below a `site-packages`.
    pub fn python(mut self, site_packages: impl Into<PathBuf>) -> Self {
        self.places.push(Place::Python(site_packages.into()));
        self
    }

    /// All folders that are looked in for a compiler in this file, in their order; those that are not there as well.
    pub(super) fn folders(&self, compiler: &Path, toolkit: &str) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        for place in &self.places {
            match place {
                Place::Folder(folder) => folders.push(folder.clone()),
                Place::Python(packages) => folders.extend(in_packages(&packages.join("nvidia"))),
            }
        }
        // `toolkit/lib64/libnvrtc.so`, or `nvidia/cuda_nvrtc/lib/libnvrtc.so.12` of a Python package.
        if let Some(root) = compiler.parent().and_then(Path::parent).filter(|root| root.parent().is_some()) {
            folders.push(root.join("include"));
            if let Some(packages) = root.parent().filter(|folder| folder.ends_with("nvidia")) {
                folders.extend(in_packages(packages));
            }
        }
        if !toolkit.is_empty() {
            folders.push(Path::new(toolkit).join("include"));
        }
        let mut seen = HashSet::new();
        folders.retain(|folder| seen.insert(folder.clone()));
        folders
    }
}

/// The `include` of each package, in the order of their names.
fn in_packages(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = match fs::read_dir(folder) {
        Ok(entries) => {
            entries.flatten().map(|entry| entry.path().join("include")).filter(|path| path.is_dir()).collect()
        }
        Err(_) => Vec::new(),
    };
    found.sort();
    // So that an empty list still says where was looked.
    if found.is_empty() {
        found.push(folder.join("*").join("include"));
    }
    found
}

/// What a source can reach.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Reached {
    /// The files, and what is in them, in the order in which they were found.
    pub(super) files: Vec<(PathBuf, [u8; 32])>,
    /// Names that are in no folder: a file that comes there later is another source.
    pub(super) absent: BTreeSet<String>,
    /// Whether that is all: each name can be read, and there are no more than are followed.
    pub(super) all: bool,
}

/// Whether a source includes anything.
pub(super) fn includes_any(source: &str) -> bool {
    joined(source).contains("include")
}

/// Follows all that `source` includes, through the texts and the folders in their order; no further where it cannot be all.
pub(super) fn reached(source: &str, texts: &[(String, String)], folders: &[PathBuf]) -> Reached {
    let mut reached = Reached::default();
    let mut seen: HashSet<PathBuf> = HashSet::new();
    let mut bytes = 0;
    let mut open: Vec<(String, Option<PathBuf>)> = vec![(source.to_owned(), None)];
    open.extend(texts.iter().map(|(_, text)| (text.clone(), None)));
    while let Some((text, folder)) = open.pop() {
        let text = joined(&text);
        let mut names = HashSet::new();
        for include in includes(&text) {
            let Include::Of { name, quoted } = include else { return reached };
            if !names.insert((name, quoted)) || texts.iter().any(|(text, _)| *text == name) {
                continue;
            }
            let beside = folder.iter().filter(|_| quoted);
            let path = beside.chain(folders).map(|folder| folder.join(name)).find(|path| path.is_file());
            let Some(path) = path else {
                reached.absent.insert(name.to_owned());
                if reached.absent.len() > FILES_MAX {
                    return reached;
                }
                continue;
            };
            if !seen.insert(path.clone()) {
                continue;
            }
            let Ok(content) = fs::read(&path) else { return reached };
            bytes += content.len();
            if reached.files.len() >= FILES_MAX || bytes > BYTES_MAX {
                return reached;
            }
            let folder = path.parent().map(Path::to_owned);
            reached.files.push((path, Sha256::digest(&content).into()));
            open.push((String::from_utf8_lossy(&content).into_owned(), folder));
        }
    }
    reached.all = true;
    reached
}

#[derive(PartialEq, Eq, Debug)]
enum Include<'t> {
    /// A name, in quotes or in angle brackets.
    Of { name: &'t str, quoted: bool },
    /// One whose file is not known: a macro makes its name, or it is the next file of the name, or it is written in another way than all do.
    Made,
}

/// A text with the lines as one that go on in the next one.
fn joined(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for goes_on in ["\\\n", "\\\r\n", "??/\n", "??/\r\n"] {
        if text.contains(goes_on) {
            text = Cow::Owned(text.replace(goes_on, ""));
        }
    }
    text
}

/// What a text of joined lines includes, or asks for by `__has_include`, also in comments and behind conditions.
fn includes(text: &str) -> impl Iterator<Item = Include<'_>> {
    // One pass over the whole text: there are megabytes of headers.
    text.match_indices("include").filter_map(move |(at, word)| {
        let before = text.get(..at).unwrap_or_default().trim_end_matches(SPACES);
        include(before, text.get(at + word.len()..).unwrap_or_default())
    })
}

/// What the word `include` between these two includes.
fn include<'t>(before: &str, after: &'t str) -> Option<Include<'t>> {
    let asked = before.ends_with("__has_");
    if ODD_STARTS.iter().any(|start| before.ends_with(start)) {
        return Some(Include::Made);
    }
    if !asked && !before.ends_with('#') {
        return None;
    }
    // Cut between characters.
    let near = (0..4).find_map(|less| after.get(..NAME_BYTES_MAX - less)).unwrap_or(after);
    let (next, name) = near.strip_prefix("_next").map_or((false, near), |name| (true, name));
    let mut name = name.trim_start_matches(SPACES);
    if asked {
        match name.strip_prefix('(') {
            Some(inside) => name = inside.trim_start_matches(SPACES),
            // A comment, or nothing but spaces as far as was looked.
            None if name.starts_with('/') || (name.is_empty() && near.len() < after.len()) => {
                return Some(Include::Made);
            }
            // `defined(__has_include)` asks for none.
            None => return None,
        }
    }
    // Where it finds its file depends on the folder of the file that it is in.
    if next {
        return Some(Include::Made);
    }
    let between = |open: char, close: char| {
        let (name, _) = name.strip_prefix(open)?.split_once(close)?;
        (!name.contains('\n')).then_some(name)
    };
    Some(match (between('"', '"'), between('<', '>')) {
        (Some(name), _) => Include::Of { name, quoted: true },
        (None, Some(name)) => Include::Of { name, quoted: false },
        (None, None) => Include::Made,
    })
}

/// The name of the header that a log says cannot be opened.
pub(super) fn missing_in(log: &str) -> Option<&str> {
    let (_, after) = log.split_once("open source file \"")?;
    after.split_once('"').map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, quoted: bool) -> Include<'_> {
        Include::Of { name, quoted }
    }

    fn found(text: &str) -> Vec<String> {
        includes(&joined(text)).map(|include| format!("{include:?}")).collect()
    }

    #[test]
    fn every_way_to_include_is_found() {
        let text = "#include <a.h>\n  #  include \"b.h\" // it\n/* x */ #include <c.h>\n#inc\\\nlude <d.h>\n#\x0c \x0binclude\x0b<e.h>\n\
            #if defined(__has_include) && __has_include(<f.h>)\n#include MADE\n#ifdef __has_include\nint include = 1; // no include <g.h>\n\
            #inc??/\nlude <h.h>\n";
        let wanted = [
            of("a.h", false),
            of("b.h", true),
            of("c.h", false),
            of("d.h", false),
            of("e.h", false),
            of("f.h", false),
            Include::Made,
            of("h.h", false),
        ];
        assert_eq!(found(text), wanted.map(|include| format!("{include:?}")));
        assert!(found("#pragma once\nint x;").is_empty());
        assert!(includes_any("#inc\\\nlude <a.h>") && !includes_any("#pragma once"));
    }

    #[test]
    fn an_include_whose_file_cannot_be_told_is_one_all_the_same() {
        let far = " ".repeat(2 * NAME_BYTES_MAX);
        for text in [
            "# /* it */ include <a.h>",
            "#/**/include <a.h>",
            "# /* two\nlines */include <a.h>",
            "%:include <a.h>",
            "%: \x0cinclude <a.h>",
            "??=include <a.h>",
            "#include_next <a.h>",
            "#if __has_include_next(<a.h>)",
            "#include /* it */ <a.h>",
            "#if __has_include /* it */ (<a.h>)",
            "#if __has_include(/* it */ <a.h>)",
            "#include <a.h\n>",
            &format!("#include{far}<a.h>"),
            &format!("#if __has_include{far}(<a.h>)"),
            &format!("#include <{}.h>", "ü".repeat(NAME_BYTES_MAX)),
        ] {
            assert_eq!(found(text), ["Made"], "{text}");
            assert!(!reached(text, &[], &[]).all, "{text}");
        }
    }

    #[test]
    fn the_next_file_of_a_name_is_not_taken_for_the_first() {
        let root = crate::compile::tests::folder("next");
        let (first, second) = (root.join("first"), root.join("second"));
        for folder in [&first, &second] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(first.join("a.h"), "#include_next <a.h>\n").unwrap();
        fs::write(second.join("a.h"), "int x;\n").unwrap();
        assert!(!reached("#include <a.h>\n", &[], &[first, second.clone()]).all);
        assert!(reached("#include <a.h>\n", &[], &[second]).all);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_line_of_megabytes_is_looked_through_once() {
        const BYTES: usize = 2 << 20;
        // It takes a fraction of a second in a build without optimization, and half a minute where the line is looked through for each `include`.
        let took_max = std::time::Duration::from_secs(5);
        for part in [
            "#include ",
            "#include <",
            "#include <x.h> ",
            "__has_include(",
            "__has_include ",
            " include",
            "include\\\n",
            " ",
        ] {
            let text = format!("#{}include", part.repeat(BYTES / part.len()));
            let begun = std::time::Instant::now();
            let _ = reached(&text, &[], &[]);
            let took = begun.elapsed();
            assert!(took < took_max, "{part:?}: {took:?}");
        }
    }

    #[test]
    fn names_that_are_nowhere_are_not_followed_without_end() {
        let lines: Vec<String> = (0..=FILES_MAX).map(|number| format!("#include <x{number}.h>")).collect();
        assert!(!reached(&lines.join("\n"), &[], &[]).all);
        assert!(reached(&lines[1..].join("\n"), &[], &[]).all);
    }

    #[test]
    fn headers_are_followed_through_folders_and_beside_themselves() {
        let root = crate::compile::tests::folder("headers");
        let (first, second) = (root.join("first"), root.join("second"));
        for folder in [&first, &second, &second.join("in")] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(second.join("a.h"), "#include \"in/b.h\"\n").unwrap();
        fs::write(second.join("in/b.h"), "#include \"c.h\"\n#include <gone.h>\n").unwrap();
        fs::write(second.join("in/c.h"), "#include \"b.h\"\n").unwrap();
        let source = "#include <a.h>\n#include \"text.h\"\n";
        let texts = [("text.h".to_owned(), "int x;".to_owned())];
        let folders = [first.clone(), second.clone()];
        let found = reached(source, &texts, &folders);
        let names: Vec<_> =
            found.files.iter().map(|(path, _)| path.strip_prefix(&root).unwrap().to_owned()).collect();
        assert_eq!(names, ["second/a.h", "second/in/b.h", "second/in/c.h"].map(PathBuf::from));
        assert_eq!((found.absent, found.all), (BTreeSet::from(["gone.h".to_owned()]), true));
        // One that comes earlier is another.
        fs::write(first.join("a.h"), "#include WHAT\n").unwrap();
        let found = reached(source, &texts, &folders);
        assert_eq!((found.files.len(), found.all), (1, false));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn places_are_looked_in_by_their_order_and_once() {
        let places = HeaderPlaces::new().toolkit("/opt/cuda").folder("/opt/headers").toolkit("/opt/cuda");
        let folders = places.folders(Path::new("/opt/cuda/lib64/libnvrtc.so.12"), "/usr/local/cuda");
        let wanted = ["/opt/cuda/include", "/opt/headers", "/usr/local/cuda/include"].map(PathBuf::from);
        assert_eq!(folders, if cfg!(windows) { &wanted[..2] } else { &wanted[..] });
        let wheel = HeaderPlaces::new()
            .folders(Path::new("/no/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"), "/usr/local/cuda");
        assert!(wheel.contains(&PathBuf::from("/no/nvidia/*/include")), "{wheel:?}");
        // Of a library that was found by its name alone nothing is beside.
        assert!(HeaderPlaces::new().folders(Path::new("libnvrtc.so.12"), "/usr/local/cuda").len() <= 1);
    }

    #[test]
    fn a_log_tells_which_header_is_missing() {
        let log = "k.cu(1): catastrophic error: could not open source file \"cuda_fp16.h\" (no directories in search list)\n";
        assert_eq!(missing_in(log), Some("cuda_fp16.h"));
        assert_eq!(missing_in("k.cu(1): error: expected a \";\""), None);
    }
}

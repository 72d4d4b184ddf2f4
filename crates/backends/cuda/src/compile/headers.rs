//! Where headers are looked for, and which of them a source can reach.
//!
//! The compiler reads headers by itself. What it made is kept by what they hold, so they are found here as well: every file that could be included is, whatever
//! conditions it is behind. That may be more than the compiler reads, never less; where that cannot be said, nothing is kept.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// The most headers that are followed, and the most bytes of them.
const FILES_MAX: usize = 10_000;
const BYTES_MAX: usize = 64 << 20;

/// Where a toolkit is that nobody has named.
const TOOLKIT: &str = if cfg!(windows) { "" } else { "/usr/local/cuda" };

/// Where to look for the toolkit's headers (`cuda_fp16.h` and others), behind the folders of the options: in the places added here in their order, then beside the
/// compiler's library, then in `/usr/local/cuda`. A folder that is not there is none.
///
/// ```
/// use wakeline_cuda::HeaderPlaces;
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

    /// Adds the headers of a toolkit: what `CUDA_HOME` or `CUDA_PATH` is set to.
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
    pub(super) fn folders(&self, compiler: &Path) -> Vec<PathBuf> {
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
        if !TOOLKIT.is_empty() {
            folders.push(Path::new(TOOLKIT).join("include"));
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
#[derive(Default)]
pub(super) struct Reached {
    /// The files, and what is in them, in the order in which they were found.
    pub(super) files: Vec<(PathBuf, [u8; 32])>,
    /// Names that are in no folder: a file that comes there later is another source.
    pub(super) absent: Vec<String>,
    /// Whether that is all: no name is made by a macro, and there are no more than are followed.
    pub(super) all: bool,
}

/// Whether a source includes anything.
pub(super) fn includes_any(source: &str) -> bool {
    source.contains("include")
}

/// Follows all that `source` includes, through the texts and the folders in their order.
pub(super) fn reached(source: &str, texts: &[(String, String)], folders: &[PathBuf]) -> Reached {
    let mut reached = Reached { all: true, ..Reached::default() };
    let mut seen: HashSet<PathBuf> = HashSet::new();
    let mut bytes = 0;
    let mut open: Vec<(String, Option<PathBuf>)> = vec![(source.to_owned(), None)];
    open.extend(texts.iter().map(|(_, text)| (text.clone(), None)));
    while let Some((text, folder)) = open.pop() {
        for include in includes(&text) {
            let Include::Of { name, quoted } = include else {
                reached.all = false;
                continue;
            };
            if texts.iter().any(|(text, _)| *text == name) {
                continue;
            }
            let beside = folder.iter().filter(|_| quoted);
            let path = beside.chain(folders).map(|folder| folder.join(&name)).find(|path| path.is_file());
            let Some(path) = path else {
                if !reached.absent.contains(&name) {
                    reached.absent.push(name);
                }
                continue;
            };
            if !seen.insert(path.clone()) {
                continue;
            }
            let Ok(content) = fs::read(&path) else {
                reached.all = false;
                continue;
            };
            bytes += content.len();
            if reached.files.len() >= FILES_MAX || bytes > BYTES_MAX {
                reached.all = false;
                return reached;
            }
            let folder = path.parent().map(Path::to_owned);
            reached.files.push((path, Sha256::digest(&content).into()));
            open.push((String::from_utf8_lossy(&content).into_owned(), folder));
        }
    }
    reached
}

#[derive(PartialEq, Eq, Debug)]
enum Include {
    /// A name, in quotes or in angle brackets.
    Of { name: String, quoted: bool },
    /// One that a macro makes.
    Made,
}

/// What a text includes, or asks for by `__has_include`, also in comments and behind conditions.
fn includes(text: &str) -> Vec<Include> {
    // Lines that go on in the next one.
    let mut text = Cow::Borrowed(text);
    for goes_on in ["\\\n", "\\\r\n"] {
        if text.contains(goes_on) {
            text = Cow::Owned(text.replace(goes_on, ""));
        }
    }
    let mut found = Vec::new();
    // One pass over the whole text: there are megabytes of headers.
    for (at, word) in text.match_indices("include") {
        let before = text.get(..at).unwrap_or_default().trim_end_matches([' ', '\t']);
        let asked = before.ends_with("__has_");
        if !asked && !before.ends_with('#') {
            continue;
        }
        let after = text.get(at + word.len()..).unwrap_or_default();
        let mut after = after.split('\n').next().unwrap_or_default();
        after = after.strip_prefix("_next").unwrap_or(after).trim_start();
        if asked {
            // `defined(__has_include)` asks for none.
            let Some(inside) = after.strip_prefix('(') else { continue };
            after = inside.trim_start();
        }
        let name = |open: char, close: char| Some(after.strip_prefix(open)?.split_once(close)?.0.to_owned());
        found.push(match (name('"', '"'), name('<', '>')) {
            (Some(name), _) => Include::Of { name, quoted: true },
            (None, Some(name)) => Include::Of { name, quoted: false },
            (None, None) => Include::Made,
        });
    }
    found
}

/// The name of the header that a log says cannot be opened.
pub(super) fn missing_in(log: &str) -> Option<&str> {
    let (_, after) = log.split_once("open source file \"")?;
    after.split_once('"').map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, quoted: bool) -> Include {
        Include::Of { name: name.to_owned(), quoted }
    }

    #[test]
    fn every_way_to_include_is_found() {
        let text = "#include <a.h>\n  #  include \"b.h\" // it\n/* x */ #include <c.h>\n#inc\\\nlude <d.h>\n#include_next <e.h>\n\
            #if defined(__has_include) && __has_include(<f.h>)\n#include MADE\nint include = 1; // no include <g.h>\n";
        assert_eq!(
            includes(text),
            [
                of("a.h", false),
                of("b.h", true),
                of("c.h", false),
                of("d.h", false),
                of("e.h", false),
                of("f.h", false),
                Include::Made,
            ]
        );
        assert!(includes("#pragma once\nint x;").is_empty());
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
        assert_eq!((found.absent, found.all), (vec!["gone.h".to_owned()], true));
        // One that comes earlier is another.
        fs::write(first.join("a.h"), "#include WHAT\n").unwrap();
        let found = reached(source, &texts, &folders);
        assert_eq!((found.files.len(), found.all), (1, false));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn places_are_looked_in_by_their_order_and_once() {
        let places = HeaderPlaces::new().toolkit("/opt/cuda").folder("/opt/headers").toolkit("/opt/cuda");
        let folders = places.folders(Path::new("/opt/cuda/lib64/libnvrtc.so.12"));
        let wanted = ["/opt/cuda/include", "/opt/headers", "/usr/local/cuda/include"].map(PathBuf::from);
        assert_eq!(folders, if cfg!(windows) { &wanted[..2] } else { &wanted[..] });
        let wheel = HeaderPlaces::new().folders(Path::new("/no/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"));
        assert!(wheel.contains(&PathBuf::from("/no/nvidia/*/include")), "{wheel:?}");
        // Of a library that was found by its name alone nothing is beside.
        assert!(HeaderPlaces::new().folders(Path::new("libnvrtc.so.12")).len() <= 1);
    }

    #[test]
    fn a_log_tells_which_header_is_missing() {
        let log = "k.cu(1): catastrophic error: could not open source file \"cuda_fp16.h\" (no directories in search list)\n";
        assert_eq!(missing_in(log), Some("cuda_fp16.h"));
        assert_eq!(missing_in("k.cu(1): error: expected a \";\""), None);
    }
}

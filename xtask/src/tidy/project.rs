//! What tidy looks at: the files of the workspace and what cargo knows of its packages.
//!
//! All rules work on this value, so that their tests can plant a violation in a project made of a few lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::items::{self, Item};
use super::source::{self, Line};
use crate::workspace::{self, Package, Workspace};

/// Folders that hold nothing of ours.
const SKIPPED_FOLDERS: &[&str] = &["target", "out", "node_modules"];

/// Hidden folders that do.
const HIDDEN_FOLDERS: &[&str] = &[".ci", ".cargo", ".github"];

/// The extensions of the files whose text is read; of the others it is known that they are there.
const TEXTS: &[&str] = &["rs", "md", "toml", "sh", "txt", "yml", "yaml"];

/// The folder of records, whose lines of JSON are read as well.
const RECORDS: &str = "benches/results/";

/// The files that are read without an extension.
const TEXT_FILES: &[&str] = &[".ci/run"];

/// A workspace as tidy sees it. Paths are relative to its root, with `/` between their parts.
#[derive(Debug, Default)]
pub(crate) struct Project {
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) sources: BTreeMap<String, Source>,
    pub(crate) packages: Vec<Package>,
}

/// A Rust file, taken apart.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) lines: Vec<Line>,
    pub(crate) items: Vec<Item>,
    /// For each line, whether it is built for tests only.
    pub(crate) test_lines: Vec<bool>,
}

impl Project {
    /// The workspace this program belongs to.
    pub(crate) fn load() -> Result<Self> {
        let mut files = BTreeMap::new();
        read_folder(workspace::root(), "", &mut files)?;
        let mut project = Self::of(files);
        project.packages = Workspace::load()?.packages;
        Ok(project)
    }

    /// A project of these files.
    pub(crate) fn of(files: BTreeMap<String, String>) -> Self {
        let rust = files.iter().filter(|(path, _)| has_extension(path, "rs"));
        let mut sources: BTreeMap<String, Source> =
            rust.map(|(path, text)| (path.clone(), Source::of(path, text))).collect();
        let modules: BTreeSet<String> =
            sources.iter().flat_map(|(path, source)| source.test_modules(path)).collect();
        for (path, source) in &mut sources {
            let stem = path.strip_suffix(".rs").unwrap_or(path);
            if modules.iter().any(|module| stem == module || path.starts_with(&format!("{module}/"))) {
                source.test_lines.fill(true);
            }
        }
        Self { files, sources, packages: Vec::new() }
    }

    /// A project of planted files, for the tests of the rules.
    #[cfg(test)]
    pub(crate) fn planted(files: &[(&str, &str)]) -> Self {
        Self::of(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    /// The Rust files below any of `folders`.
    pub(crate) fn sources_in<'p>(
        &'p self,
        folders: &'p [&str],
    ) -> impl Iterator<Item = (&'p str, &'p Source)> {
        let inside = move |path: &str| folders.iter().any(|folder| path.starts_with(folder));
        self.sources
            .iter()
            .filter(move |(path, _)| inside(path))
            .map(|(path, source)| (path.as_str(), source))
    }
}

impl Source {
    fn of(path: &str, text: &str) -> Self {
        let lines = source::lex(text);
        let items = items::items(&lines);
        let all = path.split('/').any(|part| part == "tests" || part == "benches" || part == "tests.rs");
        let mut test_lines = vec![all; lines.len()];
        for item in items.iter().filter(|item| item.is_test_only()) {
            test_lines[item.first..=item.last].fill(true);
        }
        Self { lines, items, test_lines }
    }

    /// The lines with their numbers from 1, without those for tests.
    pub(crate) fn shipped_lines(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.numbered_lines().filter(|(number, _)| !self.test_lines[number - 1])
    }

    /// The lines with their numbers from 1.
    pub(crate) fn numbered_lines(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// The paths, less `.rs`, of the modules that this file has for tests only, in files of their own.
    fn test_modules(&self, path: &str) -> Vec<String> {
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
        let inside = match file {
            "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
            _ => path.trim_end_matches(".rs").to_owned(),
        };
        let test_only = self.items.iter().filter(|item| item.is_test_only());
        test_only.filter_map(|item| Some(format!("{inside}/{}", item.outer_module()?))).collect()
    }
}

/// Whether the file's name ends in `.extension`.
pub(crate) fn has_extension(path: &str, extension: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, its)| its == extension)
}

/// Whether the file is a record of measurements: lines that a program wrote.
pub(crate) fn is_record(path: &str) -> bool {
    path.starts_with(RECORDS) && has_extension(path, "jsonl")
}

fn read_folder(folder: &Path, name: &str, files: &mut BTreeMap<String, String>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let file_name = entry.file_name().to_string_lossy().into_owned();
        let path = if name.is_empty() { file_name.clone() } else { format!("{name}/{file_name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let hidden = file_name.starts_with('.') && !HIDDEN_FOLDERS.contains(&file_name.as_str());
            if !hidden && !SKIPPED_FOLDERS.contains(&file_name.as_str()) {
                read_folder(&entry.path(), &path, files)?;
            }
        } else if kind.is_file() {
            let extension = file_name.rsplit_once('.').map_or("", |(_, extension)| extension);
            let is_text =
                TEXTS.contains(&extension) || TEXT_FILES.contains(&path.as_str()) || is_record(&path);
            let read = || fs::read_to_string(entry.path()).with_context(|| format!("cannot read {path}"));
            let text = if is_text { read()? } else { String::new() };
            files.insert(path, text);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_code_is_told_from_what_is_shipped() {
        let project = Project::planted(&[
            (
                "crates/a/src/lib.rs",
                "fn f() {}\n#[cfg(test)]\nmod checks;\n#[cfg(test)]\nmod tests {\n}\nfn g() {}\n",
            ),
            ("crates/a/src/checks.rs", "fn c() {}\n"),
            ("crates/a/src/checks/deep.rs", "fn d() {}\n"),
            ("crates/a/tests/e.rs", "fn e() {}\n"),
        ]);
        let shipped =
            |path: &str| -> Vec<usize> { project.sources[path].shipped_lines().map(|(n, _)| n).collect() };
        assert_eq!(shipped("crates/a/src/lib.rs"), [1, 7]);
        for path in ["crates/a/src/checks.rs", "crates/a/src/checks/deep.rs", "crates/a/tests/e.rs"] {
            assert!(shipped(path).is_empty(), "{path}");
        }
    }

    #[test]
    fn our_own_files_are_seen() {
        let project = Project::load().unwrap();
        assert!(project.sources.contains_key("xtask/src/tidy/project.rs"));
        assert!(project.packages.iter().any(|package| package.name == "xtask"));
        let records: Vec<_> = project.files.iter().filter(|(path, _)| is_record(path)).collect();
        assert!(!records.is_empty() && records.iter().all(|(_, text)| !text.is_empty()));
        assert!(!project.files.keys().any(|path| path.starts_with(".git/") || path.starts_with("target/")));
    }
}

//! The packages as they would be published: that each can be packed, says what it is, and has all that it needs within itself.
//!
//! What a package includes by a path out of its folder builds here, and nowhere else.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::cmd::Cmd;

/// What every package has, besides its sources.
const FILES: &[&str] = &["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md", "src/lib.rs"];

/// What brings another file into a source, up to that file's name.
const INCLUDES: &[&str] = &["include_str!(\"", "include_bytes!(\"", "include!(\""];

/// How to pack.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Build each of them from what was packed, too: minutes
    #[arg(long)]
    verify: bool,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// What a registry shows of a package.
#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    /// Where it may be published: nowhere, where this is empty.
    publish: Option<Vec<String>>,
    description: Option<String>,
    license: Option<String>,
    repository: Option<String>,
    rust_version: Option<String>,
    categories: Vec<String>,
    keywords: Vec<String>,
}

/// Packs all, in the order of their dependencies, and looks at what was packed.
///
/// # Errors
/// One cannot be packed, or lacks something.
pub(crate) fn run(args: &Args) -> Result<()> {
    let metadata = Cmd::cargo().words("metadata --no-deps --format-version 1 --offline").read()?;
    let Metadata { packages } =
        serde_json::from_str(&metadata).context("cannot read what `cargo metadata` printed")?;
    let (published, others): (Vec<_>, Vec<_>) =
        packages.iter().partition(|package| package.publish.as_ref().is_none_or(|to| !to.is_empty()));
    let mut pack = Cmd::cargo().words("package --workspace --offline --locked --allow-dirty");
    for package in &others {
        pack = pack.arg("--exclude").arg(&package.name);
    }
    if !args.verify {
        pack = pack.arg("--no-verify");
    }
    pack.run()?;
    let mut wrong = Vec::new();
    for package in &published {
        let list =
            Cmd::cargo().words("package --list --offline --allow-dirty -p").arg(&package.name).read()?;
        let folder = package.manifest_path.parent().context("a manifest is in a folder")?;
        let files: BTreeSet<&str> = list.lines().collect();
        let faults = package.unsaid().chain(lacks(&files)).chain(strays(folder, &files)?);
        wrong.extend(faults.map(|fault| format!("{}: {fault}", package.name)));
    }
    ensure!(wrong.is_empty(), "{} fault(s) of packages:\n{}", wrong.len(), wrong.join("\n"));
    println!("{} packages can be published", published.len());
    Ok(())
}

impl Package {
    /// What its manifest does not say.
    fn unsaid(&self) -> impl Iterator<Item = String> {
        let said = [
            ("description", self.description.is_some()),
            ("license", self.license.is_some()),
            ("repository", self.repository.is_some()),
            ("rust-version", self.rust_version.is_some()),
            ("categories", !self.categories.is_empty()),
            ("keywords", !self.keywords.is_empty()),
        ];
        said.into_iter().filter(|(_, said)| !said).map(|(field, _)| format!("its manifest has no `{field}`"))
    }
}

/// Which files it lacks.
fn lacks<'f>(files: &'f BTreeSet<&str>) -> impl Iterator<Item = String> + use<'f> {
    FILES.iter().filter(|file| !files.contains(**file)).map(|file| format!("`{file}` is not packed"))
}

/// What its sources include that is not in it.
fn strays(folder: &Path, files: &BTreeSet<&str>) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let is_source = |file: &&&str| {
        file.starts_with("src/") && Path::new(**file).extension().is_some_and(|its| its == "rs")
    };
    for file in files.iter().filter(is_source) {
        let text =
            fs::read_to_string(folder.join(file)).with_context(|| format!("{}: {file}", folder.display()))?;
        let strays =
            included(&text).filter(|name| !resolved(file, name).is_some_and(|path| files.contains(&*path)));
        found.extend(strays.map(|name| format!("{file} includes `{name}`, which is not packed")));
    }
    Ok(found)
}

/// The names of the files that a source includes.
fn included(text: &str) -> impl Iterator<Item = &str> {
    let after = |include: &&'static str| text.split(*include).skip(1);
    INCLUDES.iter().flat_map(after).filter_map(|rest| rest.split('"').next())
}

/// The path of what a source includes, from the package's folder; `None` out of it.
fn resolved(from: &str, name: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in name.split('/') {
        match part {
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_included_from_outside_is_found() {
        let text = "#[doc = include_str!(\"../docs/a.md\")]\nconst B: &[u8] = include_bytes!(\"b.bin\");\n";
        assert_eq!(included(text).collect::<Vec<_>>(), ["../docs/a.md", "b.bin"]);
        assert_eq!(resolved("src/x/mod.rs", "../a.md").as_deref(), Some("src/a.md"));
        assert_eq!(resolved("src/lib.rs", "../../README.md"), None);
    }

    #[test]
    fn missing_files_and_fields_are_told() {
        let files = BTreeSet::from(["Cargo.toml", "README.md", "src/lib.rs", "LICENSE-MIT"]);
        assert_eq!(lacks(&files).collect::<Vec<_>>(), ["`LICENSE-APACHE` is not packed"]);
        let manifest = r#"{"packages":[{"name":"a","manifest_path":"a","publish":null,"description":"x","license":null,
            "repository":"x","rust_version":"1.88","categories":["x"],"keywords":[]}]}"#;
        let Metadata { packages } = serde_json::from_str(manifest).expect("metadata");
        let unsaid: Vec<_> = packages.iter().flat_map(Package::unsaid).collect();
        assert_eq!(unsaid, ["its manifest has no `license`", "its manifest has no `keywords`"]);
    }
}

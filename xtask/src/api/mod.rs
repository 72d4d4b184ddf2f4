//! `cargo xtask api`: the public items of every published package, one a line, held against `api/<package>.txt`.
//!
//! A listing says which of its lines came and went since the last release, so what breaks is decided by it and by nobody's
//! memory: a line of the last release that is gone. Such a line asks for one in the changelog under `### Breaking`.

mod changelog;
mod listing;
mod paths;
mod rustdoc;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

pub(crate) use self::rustdoc::{AS_RUSTDOC, as_rustdoc};

use self::listing::Listing;
use crate::workspace;

/// Where the listings are.
const FOLDER: &str = "api";

/// What to do with the listings.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Write the listings as the sources are now
    #[arg(long)]
    write: bool,
    /// At a release: write them, and hold what comes later against them
    #[arg(long, conflicts_with = "write")]
    release: bool,
}

/// Lists the public items, and compares or writes.
///
/// # Errors
/// They differ from the listings; something of the last release is gone and the changelog does not say so; or the items cannot be
/// listed, which is a [`Missing`](crate::missing::Missing) where the toolchain writes another format.
pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = workspace::root().join(FOLDER);
    let mut differences = String::new();
    let mut gone = Vec::new();
    let (mut added, mut removed) = (0, 0);
    let packages = rustdoc::published()?;
    let listed = rustdoc::list(&packages)?;
    for (package, items) in packages.iter().zip(listed) {
        let path = folder.join(format!("{}.txt", package.name));
        let old = match fs::read_to_string(&path) {
            Ok(text) => Listing::read(&text).with_context(|| path.display().to_string())?,
            Err(_) if args.write || args.release => Listing::first(&package.version, &items),
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("{}; to write it: cargo xtask api --write", path.display()));
            }
        };
        let new = if args.release { Listing::first(&package.version, &items) } else { old.with(&items) };
        if args.write || args.release {
            write(&path, &new.text(&package.name))?;
        } else {
            let (plus, minus) = (old.comes(&new), old.goes(&new));
            if plus.len() + minus.len() > 0 {
                let _ = writeln!(differences, "{FOLDER}/{}.txt", package.name);
                differences.extend(minus.iter().map(|line| format!("- {line}\n")));
                differences.extend(plus.iter().map(|line| format!("+ {line}\n")));
            }
            added += plus.len();
            removed += minus.len();
        }
        gone.extend(new.gone().map(str::to_owned));
    }
    strays(&folder, &packages)?;
    if !differences.is_empty() {
        let breaking = if removed == 0 {
            "Nothing went: it is additive. Say what came under `### Added` of CHANGELOG.md"
        } else {
            "What went or changed breaks whoever used it, if the last release had it: name each under `### Breaking` of CHANGELOG.md, in backticks"
        };
        bail!(
            "{removed} public item(s) went and {added} came since the listings were written:\n{differences}{breaking}; \
             then `cargo xtask api --write`, and commit what it wrote"
        );
    }
    let changelog = fs::read_to_string(workspace::root().join("CHANGELOG.md")).context("CHANGELOG.md")?;
    let unsaid = changelog::unsaid(&changelog, &gone);
    ensure!(
        unsaid.is_empty(),
        "{} public item(s) of the last release are gone, and CHANGELOG.md does not say so:\n- {}\nwrite a line under `### Breaking` \
         of `[Unreleased]` that names each in backticks, and what to write instead; or bring the item back",
        unsaid.len(),
        unsaid.join("\n- ")
    );
    println!(
        "{} packages have the public items that are listed; {} of the last release's are gone",
        packages.len(),
        gone.len()
    );
    Ok(())
}

fn write(path: &PathBuf, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// Listings of packages that are none of ours, or not any more.
fn strays(folder: &PathBuf, packages: &[rustdoc::Package]) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let known = packages.iter().any(|package| name.strip_suffix(".txt") == Some(&package.name));
        ensure!(known, "{FOLDER}/{name} is of no package that is published: remove it");
    }
    Ok(())
}

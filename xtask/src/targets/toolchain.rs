//! The toolchain that builds for a target, with the target's libraries or with their sources.
//!
//! Without the component `rust-src` a toolchain cannot build its libraries, and cargo looks for their sources inside
//! the toolchain only. A toolchain that rustup manages is not touched; beside it, in the cache, goes a copy (of hard
//! links, where the file system allows) that has the sources of the same release in it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use super::{cache, debian};
use crate::cmd::Cmd;
use crate::missing::Missing;

/// Where a toolchain keeps the sources of its libraries.
const SOURCES: &str = "lib/rustlib/src/rust";

/// The machines that there are tools for.
const HOST: &str = "x86_64-unknown-linux-gnu";

/// What `cargo run` and rustup tell us of the toolchain that runs us, and what must not reach another one.
const FOREIGN_ENVS: &[&str] = &["CARGO", "LD_LIBRARY_PATH", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"];

/// A toolchain as it lies on disk.
#[derive(Clone, Debug)]
pub(crate) struct Toolchain {
    sysroot: PathBuf,
    /// `1.95.0`, `1.97.0-nightly`.
    release: String,
    /// Short, of the compiler's source.
    commit: String,
}

/// Whether the toolchain that runs us has the libraries of `target`.
pub(crate) fn has_libraries(target: &str) -> Result<bool> {
    let folder = Cmd::new("rustc").words("--print target-libdir --target").arg(target).read()?;
    let Ok(entries) = fs::read_dir(folder.trim()) else {
        return Ok(false);
    };
    Ok(entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("libcore-")))
}

/// A toolchain that has the sources of its libraries: one as installed, else a copy that gets Debian's.
///
/// # Errors
/// There is none and none can be made: a [`Missing`] that says how to get the libraries of `targets`.
pub(crate) fn with_sources(targets: &[&str]) -> Result<Toolchain> {
    let installed = installed()?;
    let cache = cache::folder()?;
    let copies = installed.iter().map(|toolchain| toolchain.copy_in(&cache));
    let mut all = installed.iter().cloned().chain(copies);
    if let Some(ready) = all.find(Toolchain::has_sources) {
        return Ok(ready);
    }
    println!("  the libraries of {} are not installed: getting their sources", targets.join(" and "));
    make_copy(&installed, &cache).map_err(|error| {
        Missing {
            what: format!("the libraries of {} are missing: {error:#}", targets.join(" and ")),
            install: format!(
                "rustup target add {}; or, where rustup cannot fetch, a Debian with its archive keyring (apt-get \
                 install debian-archive-keyring) whose newer suites carry the sources of an installed rustc or nightly",
                targets.join(" ")
            ),
        }
        .into()
    })
}

/// The toolchain that runs us, and the nightly if there is one.
fn installed() -> Result<Vec<Toolchain>> {
    let ours = Cmd::new("rustc").words("--print sysroot").read()?;
    let mut all = vec![Toolchain::at(Path::new(ours.trim()))?];
    let nightly = Cmd::new("rustup").words("run nightly rustc --print sysroot").without_env(FOREIGN_ENVS);
    if let Ok((sysroot, _)) = nightly.read_quietly() {
        all.push(Toolchain::at(Path::new(sysroot.trim()))?);
    }
    Ok(all)
}

fn make_copy(installed: &[Toolchain], cache: &Path) -> Result<Toolchain> {
    let movable = |toolchain: &&Toolchain| toolchain.sysroot.join("lib/rustlib/components").exists();
    let movable: Vec<&Toolchain> = installed.iter().filter(movable).collect();
    anyhow::ensure!(!movable.is_empty(), "no toolchain of rustup's is installed, so none can be copied");

    let unfinished = cache::Unfinished::new(cache)?;
    let archive = debian::Archive::open(unfinished.path(), debian::RUST_SUITES)?;
    let offered = archive.versions()?;
    let fitting = movable.iter().find_map(|t| Some((*t, debian::fitting(&offered, &t.release)?)));
    let (toolchain, version) = fitting.ok_or_else(|| {
        let releases: Vec<&str> = movable.iter().map(|t| t.release.as_str()).collect();
        anyhow!(
            "installed is rustc {}, Debian has the sources of {}",
            releases.join(" and "),
            offered.join(", ")
        )
    })?;

    println!("  building with a copy of {} and Debian's rust-src {version}", toolchain.sysroot.display());
    let copy = unfinished.path().join("toolchain");
    toolchain.copy_to(&copy)?;
    archive.extract_libraries(version, &copy.join(SOURCES))?;

    let done = toolchain.copy_in(cache);
    unfinished.finish("toolchain", &done.sysroot)?;
    anyhow::ensure!(
        done.has_sources(),
        "{} has no sources in it; remove that folder",
        done.sysroot.display()
    );
    Ok(done)
}

impl Toolchain {
    fn at(sysroot: &Path) -> Result<Self> {
        let rustc = Cmd::new(sysroot.join("bin/rustc")).arg("-vV").without_env(FOREIGN_ENVS);
        let (said, _) = rustc.read_quietly()?;
        let (release, commit) =
            parse_version(&said).with_context(|| format!("cannot read what `{rustc}` printed: {said}"))?;
        Ok(Self { sysroot: sysroot.to_owned(), release, commit })
    }

    /// Its cargo with its compiler. A stable compiler is let use `-Zbuild-std`, which is all that is asked of it.
    pub(crate) fn cargo(&self) -> Cmd {
        let cargo = Cmd::new(self.sysroot.join("bin/cargo"))
            .without_env(FOREIGN_ENVS)
            .env("RUSTC", self.sysroot.join("bin/rustc"));
        if self.release.contains("nightly") { cargo } else { cargo.env("RUSTC_BOOTSTRAP", "1") }
    }

    /// The linker that comes with it, for any target; it is told which by `-flavor`.
    pub(crate) fn linker(&self) -> PathBuf {
        self.sysroot.join("lib/rustlib").join(HOST).join("bin/rust-lld")
    }

    fn has_sources(&self) -> bool {
        self.sysroot.join(SOURCES).join("library/core/src/lib.rs").exists()
    }

    /// The copy of it that the cache has or will have.
    fn copy_in(&self, cache: &Path) -> Self {
        let Self { release, commit, .. } = self;
        let sysroot = cache.join(format!("toolchain-{release}-{commit}"));
        Self { sysroot, release: release.clone(), commit: commit.clone() }
    }

    fn copy_to(&self, folder: &Path) -> Result<()> {
        // Hard links cost nothing, but not every file system and not every user may have them.
        for how in ["-al", "-a"] {
            fs::create_dir(folder)?;
            let from = ["bin", "lib"].map(|part| self.sysroot.join(part));
            if Cmd::new("cp").arg(how).args(from).arg(folder).works() {
                return Ok(());
            }
            fs::remove_dir_all(folder)?;
        }
        Err(anyhow!("cannot copy {} to {}", self.sysroot.display(), folder.display()))
    }
}

/// The release and the short commit in what `rustc -vV` prints.
fn parse_version(said: &str) -> Option<(String, String)> {
    let value = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    Some((value("release")?.to_owned(), value("commit-hash")?.chars().take(9).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let said = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\n\
                    commit-hash: 59807616e1fa2540724bfbac14d7976d7e4a3860\nrelease: 1.95.0\nLLVM version: 22.1.2\n";
        assert_eq!(parse_version(said), Some(("1.95.0".to_owned(), "59807616e".to_owned())));
        assert_eq!(parse_version("rustc 1.95.0"), None);
    }

    #[test]
    fn our_own_toolchain_has_its_own_libraries() {
        let version =
            Toolchain::at(Path::new(Cmd::new("rustc").words("--print sysroot").read().unwrap().trim()));
        assert!(version.unwrap().release.starts_with("1."));
        assert!(has_libraries("x86_64-unknown-linux-gnu").is_ok());
        assert!(!has_libraries("avr-none").unwrap());
    }
}

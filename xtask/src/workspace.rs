//! What cargo knows of the workspace: its root, its packages, their targets and dependencies.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::cmd::Cmd;

/// The folder that holds the workspace's `Cargo.toml`.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// The part of `cargo metadata` that is looked at.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
    pub(crate) target_directory: PathBuf,
}

/// A package of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

/// A dependency as written in a manifest.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `dev`, `build`, or nothing for a normal one.
    pub(crate) kind: Option<String>,
    /// The folder, where it is one of ours.
    pub(crate) path: Option<PathBuf>,
}

/// Something cargo builds of a package.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

impl Workspace {
    /// Asks cargo; needs no network.
    pub(crate) fn load() -> Result<Self> {
        let text = Cmd::cargo().words("metadata --no-deps --format-version 1 --offline").read()?;
        serde_json::from_str(&text).context("cannot read what `cargo metadata` printed")
    }

    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    /// Makes sure that `package` has a binary `bin`, which lives in `source`.
    pub(crate) fn require_bin(&self, package: &str, bin: &str, source: &str) -> Result<()> {
        let found = self.package(package).is_some_and(|p| p.has_target("bin", bin));
        anyhow::ensure!(found, "package `{package}` has no binary `{bin}`; it belongs into {source}");
        Ok(())
    }

    /// Where a release build puts the binary `bin`.
    pub(crate) fn release_bin(&self, bin: &str) -> PathBuf {
        self.target_directory.join("release").join(format!("{bin}{}", std::env::consts::EXE_SUFFIX))
    }
}

impl Package {
    pub(crate) fn has_target(&self, kind: &str, name: &str) -> bool {
        self.targets.iter().any(|target| target.name == name && target.kind.iter().any(|k| k == kind))
    }

    /// The package's folder, relative to the workspace's root, with `/` between its parts.
    pub(crate) fn folder(&self) -> String {
        folder(self.manifest_path.parent().unwrap_or(&self.manifest_path))
    }
}

impl Dependency {
    /// The folder of a dependency on one of our own packages, relative to the workspace's root.
    pub(crate) fn folder(&self) -> Option<String> {
        self.path.as_deref().map(folder)
    }
}

fn folder(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

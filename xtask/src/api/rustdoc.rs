//! Where the items come from: rustdoc's own account of a package, as JSON.
//!
//! That is an unstable option, so rustdoc alone is told that it may (`RUSTC_BOOTSTRAP`), by way of ourselves: where cargo is told, build
//! scripts notice, and half of what was built for the other gates is built again.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use public_api::Builder;
use serde::Deserialize;

use super::paths;
use crate::cmd::Cmd;
use crate::missing::Missing;

/// Set where cargo starts us as its rustdoc.
pub(crate) const AS_RUSTDOC: &str = "WAKELINE_XTASK_AS_RUSTDOC";

/// The version of the JSON that `public-api` reads. Each has its version of that, for a few releases of Rust.
const FORMAT: u32 = 57;

/// What nobody plans by: auto traits and markers that follow from the fields (`Send`, `Sync` and `Unpin` are listed), and the one method
/// of `Debug` and `Display`, which the line of the `impl` implies.
const LEFT_OUT: &[&str] = &[
    "core::marker::Freeze",
    "core::marker::StructuralPartialEq",
    "core::marker::UnsafeUnpin",
    "core::panic::unwind_safe::",
    "::fmt(&self, &mut core::fmt::Formatter<'_>) -> core::fmt::Result",
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    target_directory: PathBuf,
}

/// A package as cargo knows it.
#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    publish: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Header {
    format_version: u32,
}

fn metadata() -> Result<Metadata> {
    let text = Cmd::cargo().words("metadata --no-deps --format-version 1 --offline").read()?;
    serde_json::from_str(&text).context("cannot read what `cargo metadata` printed")
}

/// The packages that are published.
pub(crate) fn published() -> Result<Vec<Package>> {
    let mut packages = metadata()?.packages;
    packages.retain(|package| package.publish.as_ref().is_none_or(|to| !to.is_empty()));
    Ok(packages)
}

/// The public items of each, one a line.
///
/// # Errors
/// The docs do not build; or this toolchain writes another format, which is a [`Missing`].
pub(crate) fn list(packages: &[Package]) -> Result<Vec<Vec<String>>> {
    // As the gate `docs` has it, whose dependencies are built by then: other packages would ask for other features of them.
    Cmd::cargo()
        .env("RUSTDOC", env::current_exe().context("our own file")?)
        .env(AS_RUSTDOC, env::var_os("RUSTDOC").unwrap_or_else(|| "rustdoc".into()))
        .env("RUSTDOCFLAGS", "-Z unstable-options --output-format json --cap-lints allow")
        .words("doc --quiet --workspace --lib --all-features --no-deps --locked")
        .run()?;
    let folder = metadata()?.target_directory.join("doc");
    let json = |package: &Package| folder.join(format!("{}.json", package.name.replace('-', "_")));
    let listed: Vec<Vec<String>> =
        packages.iter().map(|package| items(&json(package))).collect::<Result<_>>()?;
    let is_defined = |line: &&String| line.contains("pub ") && !line.contains("pub use ");
    let public: BTreeSet<String> = listed
        .iter()
        .flatten()
        .filter(is_defined)
        .filter_map(|line| paths::of(line))
        .map(str::to_owned)
        .collect();
    let publicly = |lines: Vec<String>| lines.iter().map(|line| paths::publicly(line, &public)).collect();
    Ok(listed.into_iter().map(publicly).collect())
}

fn items(path: &Path) -> Result<Vec<String>> {
    let text = fs::read(path).with_context(|| path.display().to_string())?;
    let Header { format_version } =
        serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
    if format_version != FORMAT {
        return Err(Missing {
            what: format!(
                "the public items were not compared: this rustdoc writes JSON of format {format_version}, and {FORMAT} is read"
            ),
            install: "use Rust 1.95, or take the version of `public-api` in xtask/Cargo.toml that reads it".to_owned(),
        }
        .into());
    }
    let api = Builder::from_rustdoc_json(path).omit_blanket_impls(true).build();
    let api = api.with_context(|| path.display().to_string())?;
    let mut lines: Vec<String> = api.items().map(ToString::to_string).collect();
    lines.retain(|line| !LEFT_OUT.iter().any(|left_out| line.contains(left_out)));
    Ok(lines)
}

/// Runs the rustdoc that is named, allowed unstable options, with our own arguments.
pub(crate) fn as_rustdoc(rustdoc: &OsString) -> Result<ExitCode> {
    let mut command = Command::new(rustdoc);
    command.args(env::args_os().skip(1)).env("RUSTC_BOOTSTRAP", "1").env_remove(AS_RUSTDOC);
    let status = command.status().context("cannot start rustdoc")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

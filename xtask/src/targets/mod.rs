//! The core for targets without an operating system: built for each of them, with what the machine has.
//!
//! Where `rustup target add` put a target's libraries they are used. Where it did not and cannot, the libraries are
//! built from their sources (`-Zbuild-std`), out of a copy of an installed toolchain: see [`toolchain`].

mod cache;
mod debian;
mod toolchain;

use anyhow::Result;

use crate::cmd::Cmd;
use crate::workspace::Workspace;

/// What is built for: a 32-bit target whose `std` is a stub, and one that has `core` and `alloc` only.
const TARGETS: &[&str] = &["wasm32-unknown-unknown", "wasm32v1-none"];

/// The packages that need no operating system.
const PACKAGES: &[&str] = &["wakeline-core"];

/// Builds all packages for all targets.
///
/// # Errors
/// One does not build, or the target's libraries cannot be had: then a [`Missing`](crate::missing::Missing).
pub(crate) fn run() -> Result<()> {
    let target_dir = Workspace::load()?.target_directory.join("targets");
    let mut from_source = None;
    for target in TARGETS {
        let build = if toolchain::has_libraries(target)? {
            Cmd::cargo().words("build --locked --target").arg(target)
        } else {
            let toolchain = match &from_source {
                Some(found) => found,
                None => from_source.insert(toolchain::with_sources(TARGETS)?),
            };
            toolchain.cargo().words("build --locked -Zbuild-std=core,alloc --target").arg(target)
        };
        let packages = PACKAGES.iter().flat_map(|package| ["-p", package]);
        build.args(packages).arg("--target-dir").arg(&target_dir).run()?;
    }
    Ok(())
}

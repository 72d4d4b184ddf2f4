//! The packages beside the workspace: those that show wakeline together with another library, which nobody else should have to build.
//!
//! Each has a lock and a folder of build output of its own, and chooses what the other library wants to be chosen.

use std::path::PathBuf;

use anyhow::Result;

use crate::cmd::Cmd;
use crate::workspace::Workspace;

/// Each by its folder.
pub(crate) const PACKAGES: &[&str] = &["examples/cudarc_interop", "examples/http_serve", "benches/peers"];

/// Where they are built: apart from the workspace, whose stand-in library has the same name.
///
/// # Errors
/// Cargo does not say where the workspace is built.
pub(crate) fn target_dir() -> Result<PathBuf> {
    Ok(Workspace::load()?.target_directory.join("interop"))
}

/// Formats, lints and tests them. Their tests run the examples themselves: on the driver's stand-in, and to the message that there
/// is no GPU where there is none.
///
/// # Errors
/// The first of it that fails.
pub(crate) fn run() -> Result<()> {
    let built = target_dir()?;
    for package in PACKAGES {
        let cargo = |words: &str| {
            Cmd::cargo().words(words).arg("--manifest-path").arg(format!("{package}/Cargo.toml"))
        };
        let building = |words: &str| cargo(words).arg("--locked").arg("--target-dir").arg(&built);
        cargo("fmt --check").run()?;
        building("clippy --all-targets").words("-- -D warnings").run()?;
        building("test").run()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn the_packages_are_there_and_no_members_of_the_workspace() {
        let members = Workspace::load().unwrap().packages;
        for package in PACKAGES {
            assert!(workspace::root().join(package).join("Cargo.lock").is_file(), "{package}");
            assert!(members.iter().all(|member| member.folder() != *package), "{package}");
        }
    }
}

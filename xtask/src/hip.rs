//! HIP without a device: AMD's own library and headers, out of Debian's archive, against what the backend believes of them.
//!
//! The tests are the backend's own (`crates/backends/hip/src/headers.rs`), ignored elsewhere: each function that is named is in the library, but those that are bridged;
//! each prototype and number is the header's, by a C compiler; and the library says by a typed error that there is no device.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::cmd::Cmd;
use crate::missing::Missing;

/// What Debian has it in: 19 MB, with what it needs.
const PACKAGES: &[&str] = &["libamdhip64-5", "libamdhip64-dev"];

/// A header of theirs, and where the library is.
const HEADER: &str = "/usr/include/hip/hip_runtime_api.h";

/// How many tests there are.
const TESTS: usize = 3;

/// Runs the tests.
///
/// # Errors
/// A [`Missing`] where library, headers or a C compiler are not there; or a test fails.
pub(crate) fn run() -> Result<()> {
    let lacks = if !Path::new(HEADER).is_file() {
        Some(format!("no HIP ({HEADER})"))
    } else if !Cmd::new("cc").arg("--version").works() {
        Some("no C compiler (cc)".to_owned())
    } else {
        None
    };
    if let Some(lacks) = lacks {
        return Err(Missing {
            what: format!("{lacks}: its symbols and prototypes are not checked against AMD's own"),
            install: format!("apt-get install gcc {}", PACKAGES.join(" ")),
        }
        .into());
    }
    // As the workspace's tests are built: nothing is built again for it.
    let mut held = 0;
    Cmd::cargo()
        .words("test --workspace --lib --locked --quiet -- --format pretty --ignored headers::real_")
        .run_reading(|line| {
            held += usize::from(line.starts_with("test headers::real_") && line.ends_with(" ok"));
        })?;
    ensure!(held == TESTS, "{held} tests of {TESTS} were run: are they named `headers::real_..`?");
    Ok(())
}

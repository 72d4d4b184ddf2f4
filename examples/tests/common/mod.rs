//! Running a built example.
//!
//! Cargo tells integration tests where binaries are (`CARGO_BIN_EXE_..`), but not where examples are. They lie in `examples/`
//! beside the `deps/` of the test's own executable: `target/<profile>/examples/<name>`. `cargo test` builds the examples of a
//! package before it runs the package's tests; `cargo test --test <one>` does not, and runs what was built last.

#![allow(clippy::expect_used, reason = "helpers of tests, which fail by panics")]

use std::env;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A command that runs the example of this name.
pub(crate) fn example(name: &str) -> Command {
    let test = env::current_exe().expect("the test knows its own file");
    let profile = test.ancestors().nth(2).expect("it lies in target/<profile>/deps");
    let example = profile.join("examples").join(format!("{name}{}", env::consts::EXE_SUFFIX));
    assert!(example.is_file(), "{} is not built: cargo build --example {name}", example.display());
    Command::new(example)
}

/// What a program left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    /// `None` where it was killed.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("programs write UTF-8");
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// Runs it to its end.
pub(crate) fn run(command: &mut Command) -> Ran {
    command.output().expect("it starts").into()
}

/// A file for this test alone, where Cargo keeps those of integration tests.
#[allow(dead_code, reason = "not every test needs one")]
pub(crate) fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()))
}

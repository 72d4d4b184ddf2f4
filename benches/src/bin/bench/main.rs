//! A/B runs: ways of waiting beside each other, round by round, on a simulated device or a GPU. `cargo xtask bench` builds and runs it.
//!
//! All of it is in [`wakeline_benches::ab`], so that a program with arms of other libraries runs the same suites.
//!
//! ```console
//! $ cargo xtask bench --quick
//! ```

#![forbid(unsafe_code)]

use std::process::ExitCode;

use wakeline_benches::ab::run::{self, NoPeers};

fn main() -> ExitCode {
    run::main("bench", std::env::args_os().skip(1), &NoPeers)
}

//! Shows earlier A/B runs, compares and guards them: [`wakeline_benches::ab::report`] as a program.
//!
//! ```console
//! $ cargo run --release -p wakeline-benches --bin bench_report -- run.jsonl --out report.html
//! ```

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    wakeline_benches::ab::report::main_report(std::env::args_os().skip(1))
}

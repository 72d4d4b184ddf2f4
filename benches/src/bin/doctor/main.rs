//! What this machine can do for a wait: `cargo xtask doctor [--json] [--quick]`.
//!
//! It tells what is there, what stands in for what is not, how exact timers are, and what to do next. It changes
//! nothing: settings of threads are set back. NVIDIA's driver and AMD's library are loaded where there are some, and the store of a word tried out on each device
//! (not with `--quick`).
//!
//! | file | what |
//! |---|---|
//! | `report.rs` | all that is found out, as one value; its JSON form |
//! | `machine.rs` | processor, system, clock |
//! | `park.rs` | watching a word: in hardware or not, and how late |
//! | `timers.rs` | how late sleeps end, and the margin that follows |
//! | `ring.rs` | `io_uring` |
//! | `gpu.rs` | libraries and devices, found by their files alone |
//! | `cuda.rs` | what NVIDIA's driver says, and whether a store lands |
//! | `hip.rs` | what AMD's library says, and whether a store lands |
//! | `metal.rs` | whether Metal gives what its points need |
//! | `parse.rs` | reading what systems and tools print |
//! | `next.rs` | what to do next |
//! | `text.rs` | the report for people |
//!
//! What a system does not tell is `unknown`, `null` in JSON; it is never shown as 0. Exit codes: 0, and 2 for wrong
//! arguments or a setting that cannot be read.

#![forbid(unsafe_code)]

mod ask;
mod cuda;
mod gpu;
mod hip;
mod machine;
mod metal;
mod next;
mod park;
mod parse;
mod report;
mod ring;
mod text;
mod timers;

use std::io::{self, Write};
use std::process::ExitCode;

use report::Report;

const USAGE: &str = "\
usage: doctor [--json] [--quick]
  --json   one JSON object; a value that the system does not tell is null
  --quick  fewer samples, and no store tried on a GPU: at most 2 s in place of 10";

/// What it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Args {
    json: bool,
    quick: bool,
    help: bool,
}

impl Args {
    fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut args = Self::default();
        for word in words {
            match word.as_str() {
                "--json" => args.json = true,
                "--quick" => args.quick = true,
                "--help" | "-h" => args.help = true,
                _ => return Err(format!("unknown argument `{word}`\n{USAGE}")),
            }
        }
        Ok(args)
    }
}

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()))
    {
        Ok(args) => args,
        Err(message) => return fail(&message),
    };
    if args.help {
        return finish(&format!("{USAGE}\n"), ExitCode::SUCCESS);
    }
    let report = match Report::gather(args.quick) {
        Ok(report) => report,
        Err(error) => return fail(&error.to_string()),
    };
    let shown = if args.json {
        match serde_json::to_string(&report) {
            Ok(json) => format!("{json}\n"),
            Err(error) => return fail(&error.to_string()),
        }
    } else {
        text::page(&report)
    };
    match &report.settings.error {
        None => finish(&shown, ExitCode::SUCCESS),
        Some(error) => {
            let code = finish(&shown, ExitCode::from(2));
            eprintln!("doctor: {error}");
            code
        }
    }
}

/// Prints in one go. A reader that is gone needs no panic.
fn finish(shown: &str, code: ExitCode) -> ExitCode {
    match io::stdout().write_all(shown.as_bytes()) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("doctor: {message}");
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_and_others_are_refused() {
        let parse = |words: &str| Args::parse(words.split_whitespace().map(str::to_owned));
        assert_eq!(parse(""), Ok(Args::default()));
        assert_eq!(parse("--quick --json"), Ok(Args { json: true, quick: true, help: false }));
        assert!(parse("--jsn").unwrap_err().starts_with("unknown argument `--jsn`\nusage:"));
    }
}

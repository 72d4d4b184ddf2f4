//! The development tasks of wakeline: `cargo xtask <task>`.
//!
//! They only start programs and read files. None of wakeline's own crates is built into this one, so the gates work
//! while what they guard does not.

mod api;
mod bench;
mod bundle;
mod ci;
mod cmd;
mod deps;
mod doctor;
mod fuzz;
mod hip;
mod instructions;
mod interop;
mod licences;
mod loom;
mod missing;
mod mutants;
mod package;
mod parks;
mod picture;
mod sanitize;
mod soak;
mod targets;
mod tidy;
mod tune;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The development tasks of wakeline
#[derive(Debug, Parser)]
#[command(name = "xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// All gates, one after the other, up to the first that fails
    Ci(ci::Args),
    /// Check what can be checked of the architecture's invariants
    Tidy,
    /// Check the direct dependencies of the core, and licences and sources of all
    Deps,
    /// Run the tests under loom
    Loom,
    /// Build, check or run for every target that is named, with what the machine has or can fetch
    Targets(targets::Args),
    /// Execute the parks of x86-64 on two emulated processors, and write down what they did
    Parks(AllowMissing),
    /// Hold the HIP backend's table of functions against AMD's own library and headers
    Hip(AllowMissing),
    /// Pack what would be published, and look at what was packed
    Package(package::Args),
    /// Hold the public items of what is published against `api/`, or write them there
    Api(api::Args),
    /// Draw the picture of the README from the records
    Picture,
    /// Run many seeded simulated programs, and judge each by the truth
    Soak(soak::Args),
    /// Run suites under the address sanitizer and its leak check, and under the thread sanitizer
    Sanitize(sanitize::Args),
    /// Read many hostile inputs by whatever reads text
    Fuzz(fuzz::Args),
    /// Count the instructions of the hot paths and hold them against their limits
    Instructions(AllowMissing),
    /// Fill a folder with executables for a GPU machine without Rust: tests, examples, benches and a script that runs them
    Bundle(bundle::Args),
    /// Compare ways of waiting, round by round, on a simulated device or a GPU: `bench --help`
    #[command(disable_help_flag = true)]
    Bench(bench::Args),
    /// Tell what this machine can do for a wait, and what to do about the rest
    Doctor(doctor::Args),
    /// Replay a recorded trace through plans, and tell which to take at each point
    Tune(tune::Args),
}

#[derive(Debug, clap::Args)]
struct AllowMissing {
    /// Go on, with a line `skipped:`, where the machine lacks what the task needs
    #[arg(long)]
    allow_missing: bool,
}

fn main() -> ExitCode {
    let result = match std::env::var_os(api::AS_RUSTDOC) {
        Some(rustdoc) => api::as_rustdoc(&rustdoc),
        None => run(Cli::parse().task),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    match task {
        Task::Ci(args) => ci::run(&args),
        Task::Bundle(args) => bundle::run(&args),
        Task::Tidy => tidy::run(),
        Task::Deps => deps::run(),
        Task::Loom => loom::run(),
        Task::Targets(args) => targets::run(&args),
        Task::Parks(args) => missing::settle(parks::run(), args.allow_missing).map(drop),
        Task::Hip(args) => missing::settle(hip::run(), args.allow_missing).map(drop),
        Task::Package(args) => package::run(&args),
        Task::Api(args) => api::run(&args),
        Task::Picture => picture::run(),
        Task::Soak(args) => soak::run(&args),
        Task::Sanitize(args) => missing::settle(sanitize::run(&args), args.allow_missing).map(drop),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Instructions(args) => missing::settle(instructions::run(), args.allow_missing).map(drop),
        Task::Bench(args) => return bench::run(&args),
        Task::Doctor(args) => return doctor::run(args),
        Task::Tune(args) => return tune::run(args),
    }
    .map(|()| ExitCode::SUCCESS)
}

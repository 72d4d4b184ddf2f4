//! What a watcher costs: how fast it takes waits in and ends them, and what its threads burn.
//!
//! | file | suite | measures |
//! |---|---|---|
//! | `cycles.rs` | `cycles` | words registered, stored and told of a second, through one shard, from one and from two threads |
//! | `cycles.rs` | `flights` | the same from one thread with 1 to 65,536 other flights armed; how long from a store to its task |
//! | `burn.rs` | `burn` | CPU and wake-ups of the watcher's threads: nothing in flight; 64 flights of 20 ms at once, spread out, and spread out with lateness allowed |
//!
//! `tasks.rs` holds the tasks of `burn`, `args.rs` and `output.rs` are what
//! goes in and comes out. The device of `burn` is simulated in real time, by a thread of its own that is not counted.
//!
//! ```console
//! $ cargo run --release -p wakeline-benches --bin watch -- --suite burn --json watch.jsonl
//! ```

#![forbid(unsafe_code)]

mod args;
mod burn;
mod cycles;
mod output;
mod tasks;

use std::io::{self, Write as _};
use std::process::ExitCode;

use args::{Args, Suite, USAGE};
use output::{Failure, Output};

fn main() -> ExitCode {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let args = match Args::parse(words) {
        Ok(args) => args,
        Err(message) => return fail(&message, 2),
    };
    let result =
        if args.help { writeln!(io::stdout(), "{USAGE}").map_err(Failure::from) } else { run(&args) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Who read it has seen enough.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Failure::Output(error)) => fail(&format!("the results cannot be written: {error}"), 1),
        Err(Failure::Wakeline(error)) => fail(&error.to_string(), 1),
    }
}

fn fail(message: &str, code: u8) -> ExitCode {
    // Where even that cannot be written, the exit code tells.
    let _ = writeln!(io::stderr(), "watch: {message}");
    ExitCode::from(code)
}

fn run(args: &Args) -> Result<(), Failure> {
    let mut output = Output::new(io::stdout().lock(), args.json.as_deref())?;
    for suite in args.suites() {
        let length = args.length(suite);
        match suite {
            Suite::Cycles => cycles::cycles(&mut output, length)?,
            Suite::Flights => cycles::flights(&mut output, length)?,
            Suite::Burn => burn::burn(&mut output, length)?,
        }
    }
    Ok(())
}

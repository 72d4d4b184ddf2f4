//! Reads many hostile inputs by one reader; `cargo xtask fuzz` calls it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use wakeline_fuzz::run::{self, Broken};
use wakeline_fuzz::targets::Target;

/// Read many hostile inputs, and look whether what is promised of each holds.
#[derive(Parser)]
#[command(name = "fuzz")]
struct Args {
    /// What reads them: plan, bands, setting, settings or trace; all, where it is not said.
    #[arg(long)]
    target: Option<Target>,
    /// How many inputs each.
    #[arg(long, default_value_t = 1_000_000)]
    runs: u64,
    /// What they are drawn from.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The folder of inputs that it begins with, in place of the committed one.
    #[arg(long)]
    corpus: Option<PathBuf>,
    /// Write what each came to as a line of JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut code = ExitCode::SUCCESS;
    for target in Target::ALL.into_iter().filter(|target| args.target.is_none_or(|only| only == *target)) {
        let folder = args.corpus.clone().unwrap_or_else(|| run::corpus(target));
        let corpus = match run::begin(&folder) {
            Ok(corpus) => corpus,
            Err(error) => {
                println!("{}: cannot be read: {error}", folder.display());
                return ExitCode::FAILURE;
            }
        };
        let (start, name, inputs) = (Instant::now(), target.name(), corpus.len());
        let outcome = run::run(target, corpus, args.runs, args.seed);
        let (runs, told, ms) = (outcome.runs, outcome.told, start.elapsed().as_millis());
        if args.json {
            let broken = u8::from(outcome.broken.is_some());
            println!(
                "{{\"bench\":\"fuzz\",\"case\":\"{name}\",\"seed\":{},\"corpus\":{inputs},\"runs\":{runs},\"told\":{told},\"ms\":{ms},\"broken\":{broken}}}",
                args.seed
            );
        } else {
            println!("{name:<8}: {runs} inputs, {told} different things told, {} s", ms / 1_000);
        }
        if let Some(Broken { input, what }) = outcome.broken {
            println!(
                "{name}: {what}\nof the input {:?}\n  as bytes {input:?}",
                String::from_utf8_lossy(&input)
            );
            println!("again with: cargo xtask fuzz --target {name} --runs {runs} --seed {}", args.seed);
            code = ExitCode::FAILURE;
        }
    }
    code
}

//! Which plan a program is to wait by, from a recorded trace: `cargo xtask tune TRACE [--rows N] [--json] [--html FILE] [--bound]`.
//!
//! It replays the trace through plans, without a GPU, and tells for each point what they cost and which to take. Exit codes: 0; 2 for wrong
//! arguments, a trace that cannot be read, or a plan that cannot.
//!
//! | file | what |
//! |---|---|
//! | `text.rs` | the table |
//! | `html.rs` | a page with plots |

#![forbid(unsafe_code)]

mod html;
mod text;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use wakeline_benches::trace::TraceReader;
use wakeline_benches::tune::{HostModel, Keying, Trace, advise, candidates};

const USAGE: &str = "\
usage: tune TRACE [--plan TEXT].. [--rows N] [--json] [--html FILE] [--bound]
  TRACE        a CSV file like examples/data/h200-a.csv
  --plan TEXT  try this plan beside those that are tried anyway; may be given several times
  --rows N     learn by the point and a bucket of N batch rows, not by the point alone
  --json       JSON on standard output in place of the table
  --html FILE  write a page with plots as well
  --bound      tell the least CPU of any way of waiting that knows how residuals are spread, but not their
               order, too: takes seconds a point";

/// What it was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Args {
    trace: PathBuf,
    plans: Vec<String>,
    rows: Option<u64>,
    json: bool,
    html: Option<PathBuf>,
    bound: bool,
    help: bool,
}

impl Args {
    fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut args = Self::default();
        let mut words = words.into_iter();
        let mut trace = None;
        while let Some(word) = words.next() {
            // A file's name need not be text.
            let shown = word.to_string_lossy();
            let mut value = || words.next().ok_or_else(|| format!("`{shown}` lacks its value"));
            let text = |value: OsString| value.to_string_lossy().into_owned();
            match &*shown {
                "--plan" => args.plans.push(text(value()?)),
                "--rows" => {
                    let text = text(value()?);
                    let rows = text.parse().ok().filter(|rows| *rows > 0);
                    args.rows = Some(rows.ok_or_else(|| format!("`--rows {text}` is no number from 1 on"))?);
                }
                "--json" => args.json = true,
                "--html" => args.html = Some(value()?.into()),
                "--bound" => args.bound = true,
                "--help" | "-h" => args.help = true,
                _ if shown.starts_with('-') => return Err(format!("unknown argument `{shown}`")),
                _ if trace.is_some() => return Err(format!("`{shown}` is a second trace: give one")),
                _ => trace = Some(PathBuf::from(word)),
            }
        }
        match trace {
            Some(trace) => args.trace = trace,
            None if args.help => {}
            None => return Err("the trace is missing".to_owned()),
        }
        Ok(args)
    }
}

fn main() -> ExitCode {
    let done = Args::parse(std::env::args_os().skip(1))
        .map_err(|wrong| format!("{wrong}\n{USAGE}"))
        .and_then(|args| {
            if args.help {
                return print(USAGE);
            }
            run(&args)
        });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    let keying = args.rows.map_or(Keying::Point, Keying::Rows);
    let host = HostModel::h200();
    let reader = TraceReader::open(&args.trace).map_err(|error| error.to_string())?;
    let trace = Trace::read(reader, keying).map_err(|error| error.to_string())?;
    let plans = [candidates(), args.plans.clone()].concat();
    let advice = advise(&trace, &plans, &host, args.bound).map_err(|error| error.to_string())?;
    if let Some(path) = &args.html {
        write(path, &html::page(&advice, &args.trace.display().to_string()))?;
    }
    if args.json {
        return print(&serde_json::to_string_pretty(&advice).map_err(|error| error.to_string())?);
    }
    print(text::table(&advice).trim_end())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: cannot be written: {error}", path.display()))
}

/// A reader that has gone is no error of ours.
fn print(text: &str) -> Result<(), String> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Args, String> {
        Args::parse(words.iter().map(OsString::from))
    }

    #[test]
    fn arguments_are_read_or_refused() {
        let args =
            parse(&["a.csv", "--rows", "64", "--json", "--html", "x.html", "--plan", "poll", "--bound"])
                .unwrap();
        assert_eq!((args.trace, args.rows, args.json, args.bound), ("a.csv".into(), Some(64), true, true));
        assert_eq!((args.html, args.plans), (Some("x.html".into()), vec!["poll".to_owned()]));
        for (words, wrong) in [
            (&[][..], "the trace is missing"),
            (&["a", "b"], "`b` is a second trace"),
            (&["a", "--rows", "0"], "no number from 1"),
            (&["a", "--rows"], "lacks its value"),
            (&["a", "--fast"], "unknown argument `--fast`"),
        ] {
            assert!(parse(words).unwrap_err().contains(wrong), "{words:?}");
        }
        assert!(parse(&["-h"]).unwrap().help);
    }

    /// Such a name ended the program by a panic.
    #[cfg(unix)]
    #[test]
    fn a_file_name_that_is_no_text_is_one() {
        use std::os::unix::ffi::OsStringExt;
        let name = OsString::from_vec(b"\xFF.csv".to_vec());
        let words = [name.clone(), "--html".into(), name.clone()];
        let args = Args::parse(words).unwrap();
        assert_eq!((args.trace, args.html), (name.clone().into(), Some(name.into())));
        let plan = OsString::from_vec(b"poll\xFF".to_vec());
        let args = Args::parse(["a.csv".into(), "--plan".into(), plan]).unwrap();
        assert_eq!(args.plans, ["poll\u{FFFD}"], "which is no plan");
    }
}

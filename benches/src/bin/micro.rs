//! The hot path, a case a run, for counting instructions: `micro CASE N` runs the case N times, `micro --list` names them, each with what of it is
//! counted: `less CASE`, which is part of it, `only FUNCTION`, or all but the loop.
//!
//! `cargo xtask instructions` runs each under callgrind with two N and holds the difference against `limits.toml`. Times
//! mean nothing here.

use std::process::ExitCode;

use wakeline_benches::micro::{CASES, COUNTED, Counted};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--list"] => {
            for (name, _) in CASES {
                match COUNTED.iter().find(|(case, _)| *case == name) {
                    Some((_, Counted::Less(case))) => println!("{name} less {case}"),
                    Some((_, Counted::Only(function))) => println!("{name} only {function}"),
                    None => println!("{name}"),
                }
            }
            ExitCode::SUCCESS
        }
        [name, n] => {
            let case = CASES.iter().find(|(case, _)| *case == name).map(|(_, case)| case);
            match (case, n.parse()) {
                (Some(case), Ok(n)) => match case(n) {
                    Ok(()) => ExitCode::SUCCESS,
                    Err(error) => fail(&error.to_string()),
                },
                (None, _) => fail(&format!("no case `{name}`; `micro --list` names them")),
                (_, Err(error)) => fail(&format!("`{n}` is no number of runs: {error}")),
            }
        }
        _ => fail("usage: micro --list | micro CASE N"),
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("micro: {message}");
    ExitCode::from(2)
}

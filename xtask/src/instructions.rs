//! Instruction counts as a guard on the hot paths: repeatable on any machine, where times are not.
//!
//! The binary `micro` of `wakeline-benches` runs one case: `micro CASE N` runs it N times, `micro --list` prints the
//! cases, one a line, each with what of it is counted: `less CASE`, which is part of it, or `only FUNCTION`. Each is run twice under callgrind, with different N; the difference over the difference of the
//! Ns is what one run of the case costs, start-up left out. The cost of its part is taken off; where nothing is said of a case, that of `empty`, the
//! loop by itself. The limits are in `benches/limits.toml`, a line a case: `descriptor_check = 10`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail, ensure};

use crate::cmd::Cmd;
use crate::missing::Missing;
use crate::workspace::{self, Workspace};

/// Where the limits are.
const LIMITS: &str = "benches/limits.toml";

/// The case that is the loop by itself; it has no limit.
const EMPTY: &str = "empty";

/// How often a case is run the first and the second time. Both are past every cold start.
const RUNS: [u64; 2] = [1_000, 51_000];

/// How much a count may be over its limit, in hundredths of an instruction: start-up is not quite the same twice.
const NOISE_HUNDREDTHS: u64 = 5;

/// Counts all cases and holds them against their limits.
///
/// # Errors
/// A case is over its limit, the cases and the limits differ, or valgrind is missing.
pub(crate) fn run() -> Result<()> {
    require_valgrind()?;
    let workspace = Workspace::load()?;
    workspace.require_bin("wakeline-benches", "micro", "benches/src/bin/micro.rs")?;
    let text = fs::read_to_string(workspace::root().join(LIMITS))
        .with_context(|| format!("cannot read {LIMITS}"))?;
    let limits: BTreeMap<String, u64> =
        toml::from_str(&text).with_context(|| format!("cannot read {LIMITS}"))?;
    Cmd::cargo().words("build --release --locked -p wakeline-benches --bin micro").run()?;

    let micro = workspace.release_bin("micro");
    let (listed, _) = Cmd::new(&micro).arg("--list").read_quietly()?;
    let cases: BTreeMap<&str, Counted<'_>> = listed.lines().filter_map(case_of).collect();
    check_names(&cases.keys().copied().collect(), &limits)?;

    let count = |(case, counted): (&&str, &Counted<'_>)| -> Result<u64> {
        let command = |runs: u64| callgrind(*counted).arg(&micro).arg(case).arg(runs.to_string());
        let [first, second] = RUNS.map(|runs| collected(&command(runs)));
        Ok(hundredths(first?, second?))
    };
    let counts =
        cases.iter().map(|case| Ok((*case.0, count(case)?))).collect::<Result<BTreeMap<&str, u64>>>()?;
    let mut over = Vec::new();
    println!("  {:<32} {:>12} {:>7}", "instructions of", "one", "limit");
    for (case, limit) in &limits {
        let of = |case: &str| counts.get(case).copied().unwrap_or(0);
        let less = match cases.get(case.as_str()) {
            Some(Counted::Less(part)) => of(part),
            _ => 0,
        };
        let cost = of(case).saturating_sub(less);
        println!("  {case:<32} {:>9}.{:02} {limit:>7}", cost / 100, cost % 100);
        if cost > limit * 100 + NOISE_HUNDREDTHS {
            over.push(case.as_str());
        }
    }
    ensure!(
        over.is_empty(),
        "over the limit: {}; make it cheaper, or raise the limit in {LIMITS} and say why; to repeat: cargo xtask instructions",
        over.join(", ")
    );
    Ok(())
}

fn require_valgrind() -> Result<()> {
    if Cmd::new("valgrind").arg("--version").works() {
        return Ok(());
    }
    let what = "valgrind is not installed, so no instructions are counted".to_owned();
    Err(Missing { what, install: "apt-get install valgrind".to_owned() }.into())
}

/// Every case needs a limit and every limit a case.
fn check_names(cases: &BTreeSet<&str>, limits: &BTreeMap<String, u64>) -> Result<()> {
    ensure!(!cases.is_empty(), "`micro --list` printed no case");
    if let Some(case) = cases.iter().find(|case| **case != EMPTY && !limits.contains_key(**case)) {
        bail!("case `{case}` has no limit; add `{case} = NUMBER` to {LIMITS}");
    }
    if let Some(case) = limits.keys().find(|case| !cases.contains(case.as_str()) || *case == EMPTY) {
        bail!(
            "{LIMITS} limits `{case}`, which `micro --list` does not print or which has no limit; remove it"
        );
    }
    Ok(())
}

/// What of a case is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counted<'l> {
    /// All but another case.
    Less(&'l str),
    /// One function and what it calls.
    Only(&'l str),
}

/// A line of the list.
fn case_of(line: &str) -> Option<(&str, Counted<'_>)> {
    let mut words = line.split_whitespace();
    let case = words.next()?;
    let counted = match (words.next(), words.next()) {
        (Some("only"), Some(function)) => Counted::Only(function),
        (Some("less"), Some(part)) => Counted::Less(part),
        // Of the loop by itself nothing is taken off.
        _ => Counted::Less(if case == EMPTY { "" } else { EMPTY }),
    };
    Some((case, counted))
}

fn callgrind(counted: Counted<'_>) -> Cmd {
    let all = Cmd::new("valgrind").words("--tool=callgrind --callgrind-out-file=/dev/null");
    match counted {
        Counted::Only(function) => all.arg(format!("--toggle-collect={function}")),
        Counted::Less(_) => all,
    }
}

/// How many instructions the command took, as callgrind says.
fn collected(command: &Cmd) -> Result<u64> {
    let (_, said) = command.read_quietly()?;
    parse_collected(&said).with_context(|| format!("callgrind printed no count; to repeat: {command}"))
}

/// The number in `==123== Collected : 309437`.
fn parse_collected(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}

/// The cost of one run of the case, in hundredths of an instruction.
fn hundredths(first: u64, second: u64) -> u64 {
    second.saturating_sub(first) * 100 / (RUNS[1] - RUNS[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_and_start_up_is_left_out() {
        assert_eq!(parse_collected("==7== Events    : Ir\n==7== Collected : 309437\n"), Some(309_437));
        assert_eq!(parse_collected("valgrind: no"), None);
        assert_eq!(case_of("a"), Some(("a", Counted::Less(EMPTY))));
        assert_eq!(case_of("a less b"), Some(("a", Counted::Less("b"))));
        assert_eq!(case_of("a only *::b*"), Some(("a", Counted::Only("*::b*"))));
        assert_eq!(case_of(" "), None);
        assert_eq!(hundredths(300_000 + 1_000 * 12, 300_000 + 51_000 * 12), 1_200);
    }

    #[test]
    fn cases_and_limits_must_agree() {
        let limits = BTreeMap::from([("a".to_owned(), 1)]);
        assert!(check_names(&BTreeSet::from(["a", EMPTY]), &limits).is_ok());
        let error = check_names(&BTreeSet::from(["a", "b"]), &limits).unwrap_err().to_string();
        assert!(error.contains("add `b = NUMBER`"), "{error}");
        let error = check_names(&BTreeSet::from([EMPTY]), &limits).unwrap_err().to_string();
        assert!(error.contains("limits `a`"), "{error}");
    }
}

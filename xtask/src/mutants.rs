//! Known mistakes, put back one at a time in a copy of the sources, to see that each is caught: `cargo xtask soak --mutants`.
//!
//! The rules are in `tests/mutants.toml`. All are built in one target folder beside the copy, so that each costs the crates that it changes.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::json;

use crate::cmd::Cmd;
use crate::workspace::{Workspace, root};

/// Where they are written down, and what became of them.
const RULES: &str = "tests/mutants.toml";
const RECORD: &str = "benches/results/mutants.jsonl";

/// As many seeds are run for one at most.
const SEEDS: u64 = 20_000;

/// A suite that is not through by then has caught nothing. (One that hangs says so itself, well before.)
const LIMIT_S: u64 = 1_200;

/// How often it is looked whether one has ended.
const LOOK_MS: u64 = 50;

/// Those of a week: two that are caught in different ways.
const SAMPLE: [&str; 2] = ["an-old-waker-is-kept", "a-strict-wait-believes-the-word"];

#[derive(Debug, Deserialize)]
struct Rules {
    mutant: Vec<Mutant>,
}

/// One mistake.
#[derive(Debug, Deserialize)]
struct Mutant {
    name: String,
    /// Which invariant or case it breaks.
    breaks: String,
    file: String,
    find: String,
    replace: String,
    caught_by: String,
}

/// What became of one.
#[derive(Debug)]
struct Caught {
    /// Seeds up to the one that failed, or tests up to there.
    took: u64,
    said: String,
}

fn rules() -> Result<Vec<Mutant>> {
    let text = fs::read_to_string(root().join(RULES)).context(RULES)?;
    Ok(toml::from_str::<Rules>(&text).context(RULES)?.mutant)
}

impl Mutant {
    /// The file with the mistake in it.
    ///
    /// # Errors
    /// The text is not there exactly once.
    fn apply(&self, text: &str) -> Result<String> {
        let times = text.matches(&self.find).count();
        ensure!(
            times == 1,
            "{RULES}: `{}` applies no more: its text is {times} times in {}; write the rule anew",
            self.name,
            self.file
        );
        Ok(text.replacen(&self.find, &self.replace, 1))
    }
}

/// Puts back all of them, those whose name contains `only`, or the sample where that is `sample`.
///
/// # Errors
/// One is not caught, does not build, or applies no more.
pub(crate) fn run(only: Option<&str>) -> Result<()> {
    let all = rules()?;
    let chosen: Vec<_> = all
        .iter()
        .filter(|mutant| match only {
            None => true,
            Some("sample") => SAMPLE.contains(&&*mutant.name),
            Some(only) => mutant.name.contains(only),
        })
        .collect();
    ensure!(!chosen.is_empty(), "no mutant's name contains `{}`", only.unwrap_or_default());
    let home = Workspace::load()?.target_directory.join("mutants");
    let tree = home.join("tree");
    copy_sources(&tree)?;
    let mut missed = Vec::new();
    for (number, mutant) in chosen.iter().enumerate() {
        println!("==> {} of {}: {} ({})", number + 1, chosen.len(), mutant.name, mutant.breaks);
        let file = tree.join(&mutant.file);
        let text = fs::read_to_string(&file).with_context(|| mutant.file.clone())?;
        fs::write(&file, mutant.apply(&text)?)?;
        let began = Instant::now();
        let caught = catch(&tree, &home, mutant);
        fs::write(&file, &text)?;
        let caught = caught.with_context(|| mutant.name.clone())?;
        let seconds = began.elapsed().as_secs();
        if let Some(Caught { took, said }) = &caught {
            println!("<== caught by {} after {took}, {seconds} s: {said}", mutant.caught_by);
        } else {
            println!("<== NOT caught by {}", mutant.caught_by);
            missed.push(mutant.name.clone());
        }
        record(mutant, caught.as_ref(), seconds)?;
    }
    ensure!(missed.is_empty(), "not caught: {}", missed.join(", "));
    println!("{} mistakes put back, each caught; {RECORD}", chosen.len());
    Ok(())
}

/// What git tracks, and what it would: files that are the same stay as they are, so that they are not built again.
fn copy_sources(tree: &Path) -> Result<()> {
    let list = Cmd::new("git").words("ls-files --cached --others --exclude-standard").read()?;
    for name in list.lines() {
        let from = root().join(name);
        if !from.is_file() {
            continue;
        }
        let (bytes, to) = (fs::read(&from).with_context(|| name.to_owned())?, tree.join(name));
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&to, bytes)?;
    }
    Ok(())
}

/// Runs what should catch it. `None` where that did not.
fn catch(tree: &Path, home: &Path, mutant: &Mutant) -> Result<Option<Caught>> {
    let cargo = |words: &str| {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(program);
        // Its messages are read; and no debug information, which takes as long to write as the code.
        command.args(words.split_whitespace()).current_dir(tree).env("CARGO_TARGET_DIR", home.join("built"));
        command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "1");
        command
    };
    let build = |words: &str| -> Result<()> {
        let output = cargo(words).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            bail!("it does not build:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    };
    match mutant.caught_by.split_once(' ').unwrap_or((&mutant.caught_by, "")) {
        ("worlds", kind) => {
            build("build -q --offline --locked -p wakeline-world --bin worlds")?;
            let program = home.join("built/debug").join(format!("worlds{}", std::env::consts::EXE_SUFFIX));
            let mut worlds = Command::new(program);
            worlds.args(["--kind", kind, "--threads", "1", "--quick", "--seeds", &SEEDS.to_string()]);
            worlds.current_dir(tree);
            let output = within(worlds)?;
            Ok(output.filter(|output| !output.status.success()).map(|output| seeds_of(&output, kind)))
        }
        ("test", args) => {
            build(&format!("test -q --offline --locked --no-run {args}"))?;
            let output = within(cargo(&format!("test --offline --locked --no-fail-fast {args}")))?;
            Ok(output.filter(|output| !output.status.success()).map(|output| tests_of(&output)))
        }
        ("loom", package) => {
            let words = format!("test --release --offline --locked -p {package} --lib");
            let models = |words: &str| {
                let mut command = cargo(words);
                command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", home.join("loom"));
                command
            };
            let compiled = models(&format!("{words} --no-run")).stdin(Stdio::null()).output()?;
            ensure!(
                compiled.status.success(),
                "it does not build:\n{}",
                String::from_utf8_lossy(&compiled.stderr)
            );
            let output = within(models(&format!("{words} loom")))?;
            Ok(output.filter(|output| !output.status.success()).map(|output| tests_of(&output)))
        }
        ("tidy", _) => {
            build("build -q --offline --locked -p xtask")?;
            let output = within(cargo("run -q --offline --locked -p xtask -- tidy"))?;
            Ok(output
                .filter(|output| !output.status.success())
                .map(|output| Caught { took: 1, said: first(&output, "error") }))
        }
        _ => bail!("{RULES}: nobody knows how `{}` is caught by `{}`", mutant.name, mutant.caught_by),
    }
}

/// Its output; `None` of one that was not through in time.
fn within(mut command: Command) -> Result<Option<Output>> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // Read by threads, so that it never waits for us.
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let read = |from: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut from) = from {
                let _ = from.read_to_end(&mut bytes);
            }
            bytes
        })
    };
    let out = read(out.map(|out| Box::new(out) as _));
    let err = read(err.map(|err| Box::new(err) as _));
    let end = Instant::now() + Duration::from_secs(LIMIT_S);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(LOOK_MS));
    };
    let (stdout, stderr) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    Ok(Some(Output { status, stdout, stderr }))
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The first line that has this in it, shortened.
fn first(output: &Output, what: &str) -> String {
    let text = text(output);
    let line = text.lines().find(|line| line.contains(what)).or_else(|| text.lines().next());
    line.unwrap_or("nothing").chars().take(300).collect()
}

/// `whole, seed 17: what was broken`.
fn seeds_of(output: &Output, kind: &str) -> Caught {
    let said = first(output, &format!("{kind}, seed "));
    let seed = said.split("seed ").nth(1).and_then(|rest| rest.split(':').next()?.parse::<u64>().ok());
    Caught { took: seed.map_or(0, |seed| seed + 1), said }
}

/// How many tests failed; said by the first.
fn tests_of(output: &Output) -> Caught {
    let text = text(output);
    let failed = text.lines().filter(|line| line.starts_with("test ") && line.ends_with("FAILED"));
    let said = failed.clone().next().map_or_else(|| first(output, "panicked"), str::to_owned);
    Caught { took: failed.count() as u64, said }
}

/// A line of the record; that of an earlier run of the same is replaced.
fn record(mutant: &Mutant, caught: Option<&Caught>, seconds: u64) -> Result<()> {
    let path: PathBuf = root().join(RECORD);
    let line = json!({
        "bench": "mutants",
        "case": mutant.name,
        "breaks": mutant.breaks,
        "file": mutant.file,
        "caught_by": mutant.caught_by,
        "caught": caught.is_some(),
        "took": caught.map(|caught| caught.took),
        "said": caught.map(|caught| &caught.said),
        "seconds": seconds,
    });
    let before = fs::read_to_string(&path).unwrap_or_default();
    let same = |line: &&str| {
        serde_json::from_str::<serde_json::Value>(line).is_ok_and(|value| value["case"] == *mutant.name)
    };
    let mut file = fs::File::create(&path)?;
    for line in before.lines().filter(|line| !same(line)) {
        writeln!(file, "{line}")?;
    }
    writeln!(file, "{line}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_applies_and_has_a_name_of_its_own() {
        let mut names = std::collections::BTreeSet::new();
        for mutant in rules().unwrap() {
            let text = fs::read_to_string(root().join(&mutant.file)).unwrap();
            let changed = mutant.apply(&text).unwrap();
            assert_ne!(changed, text, "{} changes nothing", mutant.name);
            assert!(names.insert(mutant.name.clone()), "two are called {}", mutant.name);
        }
        assert!(names.len() >= 25, "{}", names.len());
        assert!(SAMPLE.iter().all(|name| names.contains(*name)), "the sample is of those there are");
    }

    #[test]
    fn a_rule_that_applies_no_more_says_so() {
        let mutant = Mutant {
            name: "m".to_owned(),
            breaks: "I1".to_owned(),
            file: "a.rs".to_owned(),
            find: "x".to_owned(),
            replace: "y".to_owned(),
            caught_by: "tidy".to_owned(),
        };
        assert_eq!(mutant.apply("axb").unwrap(), "ayb");
        for text in ["", "xx"] {
            assert!(mutant.apply(text).unwrap_err().to_string().contains("applies no more"));
        }
    }
}

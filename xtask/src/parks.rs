//! The parks of x86-64, executed: the machines that run CI hide their instructions, an emulator has them.
//!
//! The program `tests/bare` is built without an operating system, linked into the image of a disk and booted by Bochs on two processors, once as a model that
//! has `umwait` and once as one that has `mwaitx`. What it prints goes to `benches/results/parks-bochs.jsonl`. The emulator counts instructions: its ticks tell
//! what happens and in which order, and nothing of how fast.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::cmd::Cmd;
use crate::targets::Builder;
use crate::targets::kits::BOCHS;
use crate::workspace;

const TARGET: &str = "x86_64-unknown-none";

/// The processors that are played, and what each has.
const MODELS: [(&str, &str, &str); 2] = [("arrow_lake", "umwait", "mwaitx"), ("ryzen", "mwaitx", "umwait")];

/// What each model has to tell of the instruction that it has.
const CASES: [&str; 11] = [
    "armed, ended by the deadline",
    "unarmed, comes back at once",
    "armed, its deadline has passed",
    "woken by a store",
    "woken by a store at the end of the line",
    "stored before the wait",
    "park ended by its deadline",
    "park whose time is up",
    "park ended by a store",
    "park ended by a store at the end of the line",
    "park on a word that is there",
];

/// How long one run may take: some seconds.
const RUN_S_MAX: u64 = 90;

/// The disk: cylinders, heads, sectors of 512 bytes.
const DISK: [u64; 3] = [20, 16, 63];

const RESULTS: &str = "benches/results/parks-bochs.jsonl";

/// Builds it, runs it on each model, and writes the results down.
///
/// # Errors
/// It does not build; a case is absent or did not come out as it should; the emulator cannot be had: a [`Missing`](crate::missing::Missing).
pub(crate) fn run() -> Result<()> {
    let bochs = BOCHS.folder()?;
    let builder = Builder::new(true)?;
    let folder = builder.folder(TARGET).join("parks");
    fs::create_dir_all(&folder)?;
    let image = image(&builder, &folder)?;
    let mut lines = String::new();
    let mut wrong = Vec::new();
    for (model, has, hidden) in MODELS {
        println!("--> {model}: {has}");
        let said = boot(&bochs, &folder, &image, model)?;
        let log = fs::read_to_string(folder.join(format!("{model}.log"))).unwrap_or_default();
        let emulator = named(&log).unwrap_or("Bochs");
        let told = read(&said).with_context(|| format!("{model} said: {said}"))?;
        wrong.extend(judge(&told, has, hidden).into_iter().map(|what| format!("{model}: {what}")));
        for mut case in told {
            println!("  {case}");
            case["model"] = json!(model);
            case["emulator"] = json!(emulator);
            writeln!(lines, "{case}")?;
        }
    }
    ensure!(wrong.is_empty(), "parks did not do what they should: {}", wrong.join("; "));
    fs::write(workspace::root().join(RESULTS), lines)?;
    println!("  written: {RESULTS}");
    Ok(())
}

/// The disk's image.
fn image(builder: &Builder, folder: &Path) -> Result<PathBuf> {
    let build = builder.cargo_with_sources("rustc", TARGET, "core,alloc")?;
    build
        .env("CARGO_TARGET_X86_64_UNKNOWN_NONE_RUSTFLAGS", "-Crelocation-model=static -Ccodegen-units=1")
        .words("-p wakeline-bare --release --lib --crate-type staticlib")
        .run()?;
    let archive = builder.folder(TARGET).join("release/libwakeline_bare.a");
    let image = folder.join("disk.img");
    Cmd::new(builder.linker()?)
        .words("-flavor gnu --oformat=binary --gc-sections --undefined=bare_boot --undefined=bare_entry")
        .words("--script tests/bare/image.ld -o")
        .arg(&image)
        .arg(archive)
        .run()?;
    let disk = fs::OpenOptions::new().write(true).open(&image)?;
    disk.set_len(DISK.iter().product::<u64>() * 512)?;
    Ok(image)
}

/// Boots it; what came over the serial line.
fn boot(bochs: &Path, folder: &Path, image: &Path, model: &str) -> Result<String> {
    let [cylinders, heads, sectors] = DISK;
    let share = bochs.join("usr/share/bochs");
    let serial = folder.join(format!("{model}.out"));
    let _ = fs::remove_file(&serial);
    let _ = fs::remove_file(format!("{}.lock", image.display()));
    let settings = format!(
        "cpu: model={model}, count=2, ips=50000000, reset_on_triple_fault=0\n\
         memory: guest=64, host=64\n\
         romimage: file={share}/BIOS-bochs-latest\n\
         vgaromimage: file={share}/VGABIOS-lgpl-latest\n\
         ata0-master: type=disk, path=\"{image}\", mode=flat, cylinders={cylinders}, heads={heads}, spt={sectors}\n\
         boot: disk\n\
         display_library: rfb, options=\"timeout=0\"\n\
         com1: enabled=1, mode=file, dev={serial}\n\
         log: {log}\n\
         clock: sync=none\n\
         panic: action=fatal\n",
        share = share.display(),
        image = image.display(),
        serial = serial.display(),
        log = folder.join(format!("{model}.log")).display(),
    );
    let file = folder.join(format!("{model}.rc"));
    fs::write(&file, settings)?;
    // It ends with 1 whatever happened: what it printed tells.
    let ended = BOCHS
        .program("bochs-bin")?
        .words("-q -f")
        .arg(&file)
        .env("LTDL_LIBRARY_PATH", bochs.join("usr/lib/x86_64-linux-gnu/bochs/plugins"))
        .env("BXSHARE", &share)
        .run_quietly_within(Duration::from_secs(RUN_S_MAX));
    let said = fs::read_to_string(&serial).unwrap_or_default();
    if !said.lines().any(|line| line == "DONE") {
        let log = fs::read_to_string(folder.join(format!("{model}.log"))).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(5).collect();
        bail!(
            "{model} did not come to its end ({ended:?}): it said {said:?}; the emulator's log ends with {last:#?}"
        );
    }
    Ok(said)
}

/// The emulator's name and version, from the head of its log.
fn named(log: &str) -> Option<&str> {
    let (_, name) = log.lines().next()?.split_once("] ")?;
    name.starts_with("Bochs").then_some(name.trim())
}

/// The cases that it told.
fn read(said: &str) -> Result<Vec<Value>> {
    let cases = said.lines().take_while(|line| *line != "DONE");
    cases.map(|line| serde_json::from_str(line).with_context(|| format!("`{line}` is no JSON"))).collect()
}

/// What is wrong with them.
fn judge(told: &[Value], has: &str, hidden: &str) -> Vec<String> {
    let mut wrong: Vec<String> = told
        .iter()
        .filter(|case| case["ok"] != true)
        .map(|case| format!("not as it should: {case}"))
        .collect();
    let is_told =
        |kind: &str, name: &str| told.iter().any(|case| case["kind"] == kind && case["case"] == name);
    let expected =
        CASES.iter().map(|name| (has, *name)).chain([(hidden, "hidden"), ("none", "second processor")]);
    wrong.extend(
        expected
            .filter(|(kind, name)| !is_told(kind, name))
            .map(|(kind, name)| format!("{kind}: `{name}` is absent")),
    );
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_that_is_absent_or_not_as_it_should_be_is_told() {
        let line = |kind: &str, case: &str, ok| json!({"kind": kind, "case": case, "ok": ok}).to_string();
        let mut all: Vec<String> = CASES.iter().map(|case| line("umwait", case, true)).collect();
        all.extend([
            line("mwaitx", "hidden", true),
            line("none", "second processor", true),
            "DONE".to_owned(),
        ]);
        let told = read(&all.join("\n")).unwrap();
        assert_eq!(judge(&told, "umwait", "mwaitx"), Vec::<String>::new());
        assert_eq!(judge(&told[1..], "umwait", "mwaitx").len(), 1);
        let failed = read(&line("umwait", CASES[0], false)).unwrap();
        assert!(judge(&failed, "umwait", "mwaitx")[0].starts_with("not as it should"));
        assert!(read("panicked: at x").is_err());
        assert_eq!(
            named("00000000000i[      ] Bochs x86 Emulator 3.0\nmore"),
            Some("Bochs x86 Emulator 3.0")
        );
        assert_eq!(named(""), None);
    }
}

//! The instructions are in the built code, in the functions that only a probed capability calls, and nowhere
//! else.
//!
//! This machine may have none of them, so they are looked at instead of executed.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use core::hint::black_box;
use std::process::Command;

use wakeline_core::{HostLine, Instant, Park, Wake};
use wakeline_std::StdClock;
use wakeline_wordwait::WordWait;

/// What each function of the processor's file holds, as objdump and as the processor's manual write it.
const INSTRUCTIONS: [(&str, &[u8]); 4] = [
    ("umonitor", &[0xF3, 0x0F, 0xAE]), // and a register
    ("umwait", &[0xF2, 0x0F, 0xAE]),   // and a register
    ("monitorx", &[0x0F, 0x01, 0xFA]),
    ("mwaitx", &[0x0F, 0x01, 0xFB]),
];

/// Keeps the whole way from the probe to the instructions in this program: an optimizer knows none of the
/// outcomes.
fn park_if_there_is_one() -> Option<Wake> {
    let park = WordWait::probe(StdClock::new(), || black_box(None)).ok()?;
    Some(park.park(Some(&HostLine::new()), Instant::ORIGIN, || black_box(false)))
}

#[test]
fn case_44_the_instructions_are_behind_the_probe_and_nowhere_else() {
    // Without a rate there is no capability, so nothing is executed even where the processor could.
    assert_eq!(park_if_there_is_one(), None);
    // tidy: allow(env) the path of this very program, which is disassembled
    let program = std::env::current_exe().unwrap();
    let output = Command::new("objdump")
        .args(["--disassemble", "--demangle", "--no-show-raw-insn", "--section=.text"])
        .arg(&program)
        .output();
    match output {
        Ok(output) if output.status.success() => {
            check_functions(&String::from_utf8_lossy(&output.stdout));
        }
        // The bytes are weaker evidence: they may be part of something else, and belong to no function.
        _ => {
            println!("objdump is not here: looking for the bytes");
            let bytes = std::fs::read(&program).unwrap();
            for (name, encoding) in INSTRUCTIONS {
                assert!(bytes.windows(encoding.len()).any(|found| found == encoding), "no {name} was built");
            }
        }
    }
}

fn check_functions(disassembly: &str) {
    let mut function = "";
    let mut found = [0; INSTRUCTIONS.len()];
    for line in disassembly.lines() {
        if let Some(name) = line.strip_suffix(">:").and_then(|line| line.split_once('<')) {
            function = name.1;
            continue;
        }
        // `  address:<tab>mnemonic operands`
        let mnemonic = line.split('\t').nth(1).and_then(|text| text.split_whitespace().next()).unwrap_or("");
        let Some(index) = INSTRUCTIONS.iter().position(|(name, _)| *name == mnemonic) else {
            assert!(!["tpause", "mwait", "monitor"].contains(&mnemonic), "{mnemonic} in {function}");
            continue;
        };
        found[index] += 1;
        let own = format!("wakeline_wordwait::arch::x86_64::{mnemonic}");
        assert!(function.starts_with(&own), "{mnemonic} is in {function}");
    }
    println!("{INSTRUCTIONS:x?}: found {found:?} times");
    assert!(found.iter().all(|found| *found == 1), "not each instruction is there once: {found:?}");
}

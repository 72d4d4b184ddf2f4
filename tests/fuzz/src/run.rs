//! Many inputs.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::mutate::Mutator;
use crate::targets::Target;

/// As many inputs that were told something new are kept.
pub const KEPT_MAX: usize = 8_192;

/// As many different things that were said are remembered.
pub const TOLD_MAX: usize = 1 << 16;

/// An input of which a promise does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// The input.
    pub input: Vec<u8>,
    /// Which.
    pub what: String,
}

/// What many inputs came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Inputs that were read.
    pub runs: u64,
    /// Different things that the reader said, numbers and shown text left out.
    pub told: usize,
    /// The first input of which a promise does not hold.
    pub broken: Option<Broken>,
}

/// The folder of a target's inputs.
pub fn corpus(target: Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name())
}

/// The inputs that it begins with, in the order of their names.
///
/// # Errors
///
/// The folder cannot be read.
pub fn begin(folder: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut paths: Vec<_> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
    paths.sort();
    paths.into_iter().map(fs::read).collect()
}

/// What is new of what was said: a hash of its words, without numbers and without what is shown of the input.
fn gist(said: &str) -> u64 {
    // What is in front shows the input.
    let said = said.split_once("column ").map_or(said, |(_, said)| said);
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    let mut shown = false;
    for byte in said.bytes() {
        shown ^= byte == b'`';
        if !shown && !byte.is_ascii_digit() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
    hash
}

/// Reads so many inputs, made from these and a seed.
pub fn run(target: Target, corpus: Vec<Vec<u8>>, runs: u64, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut told = BTreeSet::new();
    let mut kept = corpus;
    if kept.is_empty() {
        kept.push(Vec::new());
    }
    let mut mutator = Mutator::new(seed);
    let first = kept.len() as u64;
    let mut input = Vec::new();
    while outcome.runs < runs {
        input.clear();
        // Those that are committed first, as they are.
        if outcome.runs < first {
            input.extend_from_slice(&kept[usize::try_from(outcome.runs).unwrap_or(0)]);
        } else {
            let (one, other) = (mutator.below(kept.len()), mutator.below(kept.len()));
            input.extend_from_slice(&kept[one]);
            mutator.change(target, &mut input, &kept[other]);
        }
        outcome.runs += 1;
        let checked = catch_unwind(AssertUnwindSafe(|| target.check(&input)));
        match checked {
            Ok(Ok(said)) => {
                if told.len() < TOLD_MAX && told.insert(gist(&said)) && kept.len() < KEPT_MAX {
                    kept.push(input.clone());
                }
            }
            Ok(Err(what)) => {
                outcome.broken = Some(Broken { input, what });
                break;
            }
            Err(_) => {
                outcome.broken = Some(Broken { input, what: "a panic".to_owned() });
                break;
            }
        }
    }
    outcome.told = told.len();
    outcome
}

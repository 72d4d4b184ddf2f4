//! Streams of cudarc awaited on the driver's stand-in, and on a GPU where there is one.
//!
//! cudarc finds the driver by its name, so this program runs itself once more, told to look for libraries in a folder where the stand-in has
//! that name. The tests on a GPU run in the first process; where there is none they are counted as ignored, and say so.

#![allow(clippy::unwrap_used, reason = "for tests")]

mod cases;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs, process};

use libtest_mimic::{Arguments, Trial};
use wakeline::cuda::Cuda;
use wakeline_fake_driver::{Fake, Live};

use cases::{CASES, Case, Rig};

/// The first argument of the second process; the second one is the stand-in's file.
const ON_STAND_IN: &str = "--on-stand-in";
/// Where Linux's loader is told to look first.
const LIBRARIES: &str = "LD_LIBRARY_PATH";

fn main() -> ExitCode {
    let mut arguments: Vec<String> = env::args().collect();
    if arguments.get(1).is_some_and(|first| first == ON_STAND_IN) {
        let file = arguments.drain(1..=2).next_back().unwrap_or_default();
        return on_stand_in(arguments, Path::new(&file));
    }
    let on_gpu = on_gpu(arguments);
    let folder = Folder::new();
    let status = Command::new(env::current_exe().unwrap())
        .args([ON_STAND_IN.as_ref(), folder.file().as_os_str()])
        .args(env::args_os().skip(1))
        .env(LIBRARIES, &folder.0)
        .status()
        .unwrap();
    if status.success() && on_gpu { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One at a time: they look at what is left in the stand-in.
fn arguments(from: Vec<String>) -> Arguments {
    Arguments { test_threads: Some(1), ..Arguments::from_iter(from) }
}

fn on_stand_in(from: Vec<String>, file: &Path) -> ExitCode {
    let trial = |case: &Case| {
        let (run, file) = (case.run, file.to_owned());
        Trial::test(format!("stand-in::{}", case.name), move || {
            let fake = Fake::at(file)?;
            fake.configure(|options| options.fault_delay_us = 3_000);
            fake.clear_log();
            run(&Rig { cuda: Cuda::load()? });
            let violations = fake.violations();
            if !violations.is_empty() {
                return Err(format!("the driver was misused: {violations:#?}").into());
            }
            if fake.live() != Live::default() {
                return Err(format!("left behind: {:?}", fake.live()).into());
            }
            Ok(())
        })
    };
    let mut trials: Vec<_> = CASES.iter().map(trial).collect();
    trials.push(Trial::test("stand-in::the_example_runs", move || the_example_runs(true)));
    libtest_mimic::run(&arguments(from), trials).exit_code()
}

fn on_gpu(from: Vec<String>) -> bool {
    let no_gpu = Cuda::load().err();
    let trial = |case: &Case| {
        let run = case.run;
        let trial = Trial::test(format!("gpu::{}", case.name), move || {
            run(&Rig { cuda: Cuda::load()? });
            Ok(())
        });
        trial.with_ignored_flag(no_gpu.is_some())
    };
    let mut trials: Vec<_> = CASES.iter().map(trial).collect();
    if let Some(error) = &no_gpu {
        eprintln!("skipped: no CUDA device: {} tests are ignored ({error})", trials.len());
    }
    let gpu = no_gpu.is_none();
    let name = if gpu { "gpu::the_example_runs" } else { "the_example_says_that_there_is_no_gpu" };
    trials.push(Trial::test(name, move || the_example_runs(gpu)));
    !libtest_mimic::run(&arguments(from), trials).has_failed()
}

/// It awaits its kernels; without a GPU it says so, and ends with code 3.
fn the_example_runs(gpu: bool) -> Result<(), libtest_mimic::Failed> {
    // In a bundle for other machines it lies beside this program, else where cargo has built it.
    let beside = env::current_exe()?.with_file_name("cudarc_interop");
    let example = if beside.is_file() { beside } else { env!("CARGO_BIN_EXE_cudarc_interop").into() };
    let output = Command::new(example).output()?;
    let (said, told) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    let right = if gpu {
        output.status.success() && said.contains("\n5: ") && said.matches(" awaited, ").count() == 5
    } else {
        output.status.code() == Some(3) && told.starts_with("cudarc_interop: no CUDA device: ")
    };
    if right { Ok(()) } else { Err(format!("{}: {said}{told}", output.status).into()) }
}

/// A folder in which the stand-in has the driver's names; gone with this value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = Self(env::temp_dir().join(format!("cudarc-interop-{}", process::id())));
        fs::create_dir_all(&folder.0).unwrap();
        fs::copy(Fake::new().unwrap().path(), folder.file()).unwrap();
        // As an installed driver has it: two names for one file.
        std::os::unix::fs::symlink(folder.file(), folder.0.join("libcuda.so")).unwrap();
        folder
    }

    fn file(&self) -> PathBuf {
        self.0.join("libcuda.so.1")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind is nobody's failure.
        let _ = fs::remove_dir_all(&self.0);
    }
}

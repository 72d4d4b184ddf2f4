//! The program on the driver's stand-in, which other libraries find by the driver's name in a folder that the program is told to look in.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs, process};

use wakeline_benches::ab::schema::Line;
use wakeline_benches::read_json_lines;
use wakeline_fake_driver::Fake;

/// Where Linux's loader is told to look first.
const LIBRARIES: &str = "LD_LIBRARY_PATH";

/// A folder in which the stand-in has the driver's names; gone with this value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = Self(env::temp_dir().join(format!("bench-peers-{name}-{}", process::id())));
        fs::create_dir_all(&folder.0).unwrap();
        folder
    }

    fn with_driver(name: &str) -> Self {
        let folder = Self::new(name);
        let file = folder.0.join("libcuda.so.1");
        fs::copy(Fake::new().unwrap().path(), &file).unwrap();
        // As an installed driver has it: two names for one file.
        std::os::unix::fs::symlink(file, folder.0.join("libcuda.so")).unwrap();
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind is nobody's failure.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn peers(libraries: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench_peers")).env(LIBRARIES, libraries).args(args).output().unwrap()
}

#[test]
fn the_same_suites_run_with_arms_of_other_libraries() {
    let folder = Folder::with_driver("run");
    let out = folder.0.join("out");
    let args = ["wake/100 us", "burn", "serve/batch 4", "--quick", "--device", "cuda", "--rounds", "2"];
    let output = peers(&folder.0, &[&args[..], &["--out", out.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{output:?}");
    let lines: Vec<Line> = read_json_lines(fs::read(out.join("run.jsonl")).unwrap().as_slice()).unwrap();
    let mut arms = vec!["cudarc-sync", "cudarc-event", "cudarc-event-block"];
    if cfg!(feature = "cuda-async") {
        arms.extend(["cuda-async-sync", "cuda-async-await", "cuda-async-await-workers"]);
    }
    for suite in ["wake", "burn", "serve"] {
        for arm in arms.iter().chain(&["sync-spin", "flag+predict", "flag+predict@watcher"]) {
            let of_it = lines.iter().filter(|line| match line {
                Line::Cell(cell) => cell.suite == suite && cell.arm == *arm && cell.rounds == 2,
                _ => false,
            });
            assert_eq!(of_it.count(), 1, "{suite}, {arm}");
        }
    }
    let family = |arm: &str| {
        lines.iter().find_map(|line| match line {
            Line::Cell(cell) if cell.arm == arm => Some(cell.family.clone()),
            _ => None,
        })
    };
    assert_eq!(family("cudarc-sync").as_deref(), Some("cudarc 0.19"));
    assert_eq!(family("flag+predict").as_deref(), Some("wakeline"));
}

#[test]
fn another_library_than_theirs_is_refused_and_none_is_told() {
    let (folder, empty) = (Folder::with_driver("other"), Folder::new("empty"));
    let other = Fake::new().unwrap();
    let output = peers(&folder.0, &["list", "--device", "cuda", "--driver", other.path().to_str().unwrap()]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), message.lines().count()), (Some(1), 1), "{message}");
    let library = empty.0.join("libcuda.so.1");
    let output = peers(&empty.0, &["list", "--device", "cuda", "--driver", library.to_str().unwrap()]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    // Found first, it hides the system's driver, where there is one.
    fs::write(&library, "this is no library").unwrap();
    let output = peers(&empty.0, &["list", "--device", "cuda"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{message}");
}

//! aarch64 Linux: linked by the linker that comes with Rust against Debian's C library, and run in qemu's emulator of programs.
//!
//! There a `wfe` does not sleep, no program is told of `wfet`, and memory is ordered as the machine's own: what runs well is the logic, and what the
//! emulator decodes. Where the parks stand is read off their disassembly.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Builder;
use super::kits::{GLIBC_AARCH64, QEMU_USER};
use crate::cmd::Cmd;

/// What is built of Rust's libraries.
const LIBRARIES: &str = "std,panic_unwind,test";

/// Whose tests of the library run. Those of vendors' backends load the stand-in for their driver as a library of its own, which is a test of x86-64.
const PACKAGES: [&str; 9] = [
    "wakeline-core",
    "wakeline-fake-driver",
    "wakeline-metal",
    "wakeline-ops",
    "wakeline-sim",
    "wakeline-std",
    "wakeline-tokio",
    "wakeline-uring",
    "wakeline-wordwait",
];

/// What is not checked: this program, which runs where programs are built.
const CHECKED_NOT: &str = "xtask";

/// How far what is run for long is optimized: without, an emulator takes minutes for property tests, and tests that judge time fail.
const OPT_LEVEL: &str = "1";

/// Builds the tests and runs them.
pub(super) fn run(builder: &Builder, triple: &'static str) -> Result<()> {
    let libc = GLIBC_AARCH64.folder()?;
    let qemu = QEMU_USER.folder()?.join("usr/bin/qemu-aarch64");
    let root = libc.join("usr/aarch64-linux-gnu");
    let runner = format!("{} -cpu max -L {}", qemu.display(), root.display());
    // The same for all, so that Rust's libraries are built once.
    let cargo = |command: &str| -> Result<Cmd> {
        let cargo = builder
            .cargo_with_sources(command, triple, LIBRARIES)?
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS", rustflags(&libc))
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", &runner);
        Ok(if builder.full { cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", OPT_LEVEL) } else { cargo })
    };
    // The parks first: the least of all that can fail.
    cargo("test")?.words("-p wakeline-wordwait --lib --tests").run()?;
    if !builder.full {
        return Ok(());
    }
    cargo("test")?.words("--lib").args(PACKAGES.iter().flat_map(|package| ["-p", package])).run()?;
    cargo("check")?.words("--workspace --lib --bins").args(["--exclude", CHECKED_NOT]).run()
}

/// Flags by which Rust's own linker makes a program of glibc's: what a C compiler would hand it.
fn rustflags(libc: &Path) -> String {
    let of_libc = libc.join("usr/aarch64-linux-gnu/lib");
    let of_gcc = libc.join("usr/lib/gcc-cross/aarch64-linux-gnu/12");
    let before = |what: PathBuf| format!("-Zpre-link-arg={}", what.display());
    let behind = |what: PathBuf| format!("-Clink-arg={}", what.display());
    let flags = [
        "-Clinker=rust-lld".to_owned(),
        "-Clinker-flavor=ld.lld".to_owned(),
        format!("-Zpre-link-arg=--sysroot={}", libc.display()),
        "-Zpre-link-arg=--dynamic-linker=/lib/ld-linux-aarch64.so.1".to_owned(),
        before(of_libc.join("Scrt1.o")),
        before(of_libc.join("crti.o")),
        before(of_gcc.join("crtbeginS.o")),
        format!("-Clink-arg=-L{}", of_libc.display()),
        format!("-Clink-arg=-L{}", of_gcc.display()),
        behind(of_gcc.join("crtendS.o")),
        behind(of_libc.join("crtn.o")),
    ];
    flags.join(" ")
}

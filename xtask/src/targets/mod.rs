//! Every target that wakeline names, built, checked or run with what the machine has or can fetch.
//!
//! | target | what is done |
//! |---|---|
//! | `wasm32-unknown-unknown`, `wasm32v1-none` | the core built; waits over a scripted port run in node |
//! | `aarch64-apple-darwin` | checked: core, the std and tokio hosts, Metal |
//! | `x86_64-pc-windows-gnu` | checked: core, the std and tokio hosts, CUDA |
//! | `aarch64-unknown-linux-gnu` | the tests of word waits run in an emulator, their parks found in the built program; not in `ci`: libraries and programs checked, and the tests of the core, the hosts, Metal, the simulated device, operations and the stand-in for a driver run |
//!
//! Where `rustup target add` put a target's libraries they are used. Where it did not and cannot, the libraries are
//! built from their sources (`-Zbuild-std`), out of a copy of an installed toolchain: see [`toolchain`]. What else a target needs comes out of Debian's
//! archive into the cache, once: see [`kits`].

mod aarch64;
mod cache;
mod debian;
pub(crate) mod kits;
pub(crate) mod toolchain;
mod wasm;

use std::cell::OnceCell;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};

use self::toolchain::Toolchain;
use crate::cmd::Cmd;
use crate::missing::{self, Outcome};
use crate::workspace::Workspace;

/// Which targets, and how.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Only these; all without
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// What `ci` does: of aarch64 Linux the word waits alone
    #[arg(long)]
    ci: bool,
    /// Go on, with a line `skipped:`, where the machine lacks what a target needs
    #[arg(long)]
    allow_missing: bool,
}

/// One target.
#[derive(Debug)]
struct Target {
    triple: &'static str,
    what: &'static str,
    run: fn(&Builder, &'static str) -> Result<()>,
}

const TARGETS: [Target; 5] = [
    Target { triple: "wasm32-unknown-unknown", what: "core built, waits run in node", run: wasm::run },
    Target { triple: "wasm32v1-none", what: "core built, waits run in node", run: wasm::run },
    Target {
        triple: "aarch64-apple-darwin",
        what: "core, std, tokio, metal checked",
        run: |builder, triple| {
            let packages =
                ["wakeline-core", "wakeline-std", "wakeline-tokio", "wakeline-metal", "wakeline-wordwait"];
            builder
                .cargo("check", triple, STD)?
                .args(packages.iter().flat_map(|package| ["-p", package]))
                .run()
        },
    },
    Target {
        triple: "x86_64-pc-windows-gnu",
        what: "core, std, tokio, cuda checked",
        run: |builder, triple| {
            let packages =
                ["wakeline-core", "wakeline-std", "wakeline-tokio", "wakeline-cuda", "wakeline-wordwait"];
            let check = builder.cargo("check", triple, STD)?;
            check
                .path_also(&kits::MINGW.folder()?.join("usr/bin"))
                .args(packages.iter().flat_map(|package| ["-p", package]))
                .run()
        },
    },
    Target { triple: "aarch64-unknown-linux-gnu", what: "tests run in an emulator", run: aarch64::run },
];

/// What is built of Rust's libraries where there is no operating system.
const CORE: &str = "core,alloc";

/// What is built of them to check against.
const STD: &str = "std,panic_abort";

/// Who builds for a target.
#[derive(Debug)]
pub(crate) struct Builder {
    target_dir: PathBuf,
    /// Made when the first target needs it.
    with_sources: OnceCell<Toolchain>,
    /// Whether it has the time for all that is done for a target: else for what `ci` asks.
    pub(crate) full: bool,
}

impl Builder {
    pub(crate) fn new(full: bool) -> Result<Self> {
        let target_dir = Workspace::load()?.target_directory.join("targets");
        Ok(Self { target_dir, with_sources: OnceCell::new(), full })
    }

    /// A command of cargo for the target, whose libraries are installed, or are built: those named by `libraries`.
    ///
    /// # Errors
    /// They are not installed, and their sources cannot be had: a [`Missing`](missing::Missing).
    pub(crate) fn cargo(&self, command: &str, triple: &'static str, libraries: &str) -> Result<Cmd> {
        let cargo = if toolchain::has_libraries(triple)? {
            Cmd::cargo().arg(command)
        } else {
            self.toolchain()?.cargo().arg(command).arg(format!("-Zbuild-std={libraries}"))
        };
        Ok(self.with_folder(cargo, triple))
    }

    /// The same, by the toolchain that has the libraries' sources: for what only a nightly is let do.
    pub(crate) fn cargo_with_sources(
        &self,
        command: &str,
        triple: &'static str,
        libraries: &str,
    ) -> Result<Cmd> {
        let cargo = self.toolchain()?.cargo().arg(command).arg(format!("-Zbuild-std={libraries}"));
        Ok(self.with_folder(cargo, triple))
    }

    fn with_folder(&self, cargo: Cmd, triple: &str) -> Cmd {
        // No debug information: nobody debugs what is built here, and it is a third of the time.
        let cargo = cargo.words("--locked --target").arg(triple).arg("--target-dir").arg(&self.target_dir);
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "0")
    }

    fn toolchain(&self) -> Result<&Toolchain> {
        if let Some(found) = self.with_sources.get() {
            return Ok(found);
        }
        let triples: Vec<&str> = TARGETS.iter().map(|target| target.triple).collect();
        let found = toolchain::with_sources(&triples)?;
        Ok(self.with_sources.get_or_init(|| found))
    }

    /// The linker that comes with Rust.
    ///
    /// # Errors
    /// As [`cargo`](Self::cargo).
    pub(crate) fn linker(&self) -> Result<PathBuf> {
        Ok(self.toolchain()?.linker())
    }

    /// Where the target's things are built.
    pub(crate) fn folder(&self, triple: &str) -> PathBuf {
        self.target_dir.join(triple)
    }
}

/// All targets, for `ci`: of aarch64 Linux the word waits alone.
pub(crate) fn run_for_ci() -> Result<()> {
    run(&Args { ci: true, ..Args::default() })
}

/// Does what is done for each target, and tells how long each took.
///
/// # Errors
/// A name that is no target's; the first target that fails; what a target needs and cannot be had, a [`Missing`](missing::Missing).
pub(crate) fn run(args: &Args) -> Result<()> {
    let known: Vec<&str> = TARGETS.iter().map(|target| target.triple).collect();
    for name in &args.targets {
        ensure!(known.contains(&name.as_str()), "`{name}` is not among the targets: {}", known.join(", "));
    }
    let asked =
        |target: &&Target| args.targets.is_empty() || args.targets.iter().any(|name| name == target.triple);
    let builder = Builder::new(!args.ci)?;
    let (mut table, mut lacking) = (String::new(), None);
    for target in TARGETS.iter().filter(asked) {
        println!("--> {}: {}", target.triple, target.what);
        let started = Instant::now();
        // What lacks one target does not keep the others from being looked at.
        let came = match missing::settle((target.run)(&builder, target.triple), args.allow_missing) {
            Ok(Outcome::Done) => target.what,
            Ok(Outcome::Skipped(_)) => "skipped",
            Err(error) if error.is::<missing::Missing>() => {
                println!("missing: {error:#}");
                lacking.get_or_insert(error);
                "missing"
            }
            Err(error) => return Err(error),
        };
        let took = started.elapsed().as_secs_f64();
        writeln!(table, "  {:<26} {took:>6.1} s  {came}", target.triple)?;
    }
    print!("{table}");
    lacking.map_or(Ok(()), Err)
}

//! The bundle: one folder of stripped executables and a script, for a GPU machine without Rust and without a network.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::cmd::Cmd;
use crate::interop;
use crate::workspace::root;

/// How large it may be: what is carried to such machines is often limited to 64 MiB.
const BYTES_MAX: u64 = 60_000_000;

/// What is built for it: the tests that run on a GPU (with the stand-in, for comparison), examples, benches, the doctor.
const BUILD: &str = "build --profile bundle --locked --message-format=json-render-diagnostics \
    -p wakeline-tests -p wakeline-cuda -p wakeline-fake-driver -p wakeline-examples -p wakeline-benches \
    --lib --bins --test cuda --test operations --test compile --test launches --test machine --test collectives --example cuda_wait --example decode_loop \
    --example device_ops --example multi_device --example pipeline --example saxpy";

/// The same of the package with cudarc, which is beside the workspace.
const BUILD_CUDARC: &str = "build --profile bundle --locked --message-format=json-render-diagnostics \
    --manifest-path examples/cudarc_interop/Cargo.toml --bins --test cudarc_streams";

/// What is taken of that, by the names that cargo gives it.
const TAKEN: &[&str] = &[
    "bench",
    "collectives",
    "compile",
    "crowds",
    "cuda",
    "cuda_wait",
    "cudarc_interop",
    "cudarc_streams",
    "decode_loop",
    "device_ops",
    "doctor",
    "gpu",
    "gpu_checks",
    "launches",
    "machine",
    "multi_device",
    "operations",
    "ops",
    "pipeline",
    "ranks",
    "saxpy",
    "tensors",
    "wake",
    "watch",
];

/// The library that stands in for the driver; the tests look for it beside them.
const STAND_IN: &str = "libwakeline_fake_driver.so";

/// What the folder's script is called.
const SCRIPT: &str = "run";

/// Where to put it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder, which is made anew
    #[arg(long, value_name = "DIR", default_value = "out/bundle")]
    out: PathBuf,
}

/// The part of cargo's messages that is looked at.
#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    target: Option<Target>,
    executable: Option<PathBuf>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
}

/// Builds and fills it.
///
/// # Errors
/// Something does not build, is not there, or the folder gets too large or cannot be written.
pub(crate) fn run(args: &Args) -> Result<()> {
    let out = root().join(&args.out);
    let mut built = Cmd::cargo().words(BUILD).read()?;
    built += &Cmd::cargo().words(BUILD_CUDARC).arg("--target-dir").arg(interop::target_dir()?).read()?;
    let messages = built.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    let artifacts: Vec<_> = messages.filter(|message| message.reason == "compiler-artifact").collect();
    empty(&out)?;
    let mut bytes = 0;
    for name in TAKEN {
        let named = |message: &&Message| message.target.as_ref().is_some_and(|target| target.name == *name);
        let executables: Vec<_> =
            artifacts.iter().filter(named).filter_map(|message| message.executable.as_ref()).collect();
        let [executable] = executables[..] else {
            bail!("of the name `{name}` {} programs were built in place of one", executables.len());
        };
        bytes += copy(executable, &out, name)?;
    }
    let mut files = artifacts.iter().flat_map(|message| &message.filenames);
    let stand_in = files.find(|file| file.file_name().is_some_and(|name| name == STAND_IN));
    bytes += copy(stand_in.with_context(|| format!("{STAND_IN} was not built"))?, &out, STAND_IN)?;
    script(&out.join(SCRIPT))?;
    ensure!(bytes <= BYTES_MAX, "the bundle has {bytes} bytes, more than {BYTES_MAX}");
    println!(
        "{}: {} files, {:.1} MB; on the GPU machine: ./{SCRIPT}",
        out.display(),
        TAKEN.len() + 2,
        mega(bytes)
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Makes the folder anew. One that holds anything but an earlier bundle stays as it is.
fn empty(out: &Path) -> Result<()> {
    if out.exists() {
        for entry in fs::read_dir(out).with_context(|| out.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name();
            let ours = |known: &&str| name == **known;
            if ![STAND_IN, SCRIPT].iter().chain(TAKEN).any(ours) {
                bail!("{} is no bundle's: name an empty or a new folder by --out", entry.path().display());
            }
            fs::remove_file(entry.path())?;
        }
    }
    fs::create_dir_all(out).with_context(|| out.display().to_string())
}

fn copy(from: &Path, out: &Path, name: &str) -> Result<u64> {
    let to = out.join(name);
    fs::copy(from, &to).with_context(|| format!("{} to {}", from.display(), to.display()))
}

fn script(path: &Path) -> Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o755);
    let mut file = options.open(path).with_context(|| path.display().to_string())?;
    file.write_all(include_bytes!("bundle.sh"))?;
    Ok(())
}

//! Libraries and devices of GPUs, found by their files alone: nothing is loaded, opened or called.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;

use crate::parse::{self, Cached};

/// What is looked for, and what it is.
const LIBRARIES: [(&str, &str); 7] = [
    ("libcuda.so.1", "CUDA driver"),
    ("libnvidia-ml.so.1", "NVIDIA management"),
    ("libamdhip64.so.7", "HIP runtime 7"),
    ("libamdhip64.so.6", "HIP runtime 6"),
    ("libamdhip64.so.5", "HIP runtime 5"),
    ("libhsa-runtime64.so.1", "HSA runtime"),
    ("libze_loader.so.1", "Level Zero loader"),
];

/// Where `ldconfig` is where a user's path does not name its folder.
const LDCONFIG: [&str; 3] = ["ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"];

/// What an entry of the loader's cache says of this program's architecture; other entries are for other programs.
const CACHE_KIND: Option<&str> = if cfg!(target_arch = "x86_64") {
    Some("x86-64")
} else if cfg!(target_arch = "aarch64") {
    Some("AArch64")
} else {
    None
};

/// Folders that every loader searches.
const DEFAULT_FOLDERS: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
/// Folders that a loader searches only when it is told to.
const OTHER_FOLDERS: [&str; 7] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/compat",
    "/usr/local/cuda/lib64",
    "/opt/rocm/lib",
    "/usr/lib/wsl/lib",
];

const NVIDIA_GPUS: &str = "/proc/driver/nvidia/gpus";
const KFD_NODES: &str = "/sys/class/kfd/kfd/topology/nodes";

/// Device nodes that tell of a GPU, by the start of their names; a number may follow.
const NODES: [&str; 3] = ["nvidia", "kfd", "dxg"];

/// What there is.
#[derive(Debug, Serialize)]
pub(crate) struct Gpu {
    /// Whether the loader's cache could be read.
    pub(crate) loader_cache_read: bool,
    pub(crate) libraries: Vec<Library>,
    pub(crate) nvidia_driver: Option<String>,
    pub(crate) devices: Vec<String>,
    pub(crate) device_nodes: Vec<String>,
}

/// A library that was looked for.
#[derive(Debug, Serialize)]
pub(crate) struct Library {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) path: Option<String>,
    /// From the file's name.
    pub(crate) version: Option<String>,
    /// Whether the loader finds it by its name; `None` where that is not known.
    pub(crate) found_by_loader: Option<bool>,
}

impl Gpu {
    /// Looks for files, and runs `ldconfig -p`.
    pub(crate) fn find() -> Self {
        let cache = loader_cache();
        Self {
            loader_cache_read: cache.is_some(),
            libraries: LIBRARIES.map(|(name, what)| library(name, what, cache.as_deref())).into(),
            nvidia_driver: parse::read("/proc/driver/nvidia/version")
                .and_then(|text| parse::driver_version(&text).map(str::to_owned)),
            devices: nvidia_devices().into_iter().chain(kfd_devices()).collect(),
            device_nodes: device_nodes(),
        }
    }

    /// Whether a library is where the loader finds it, by the start of its name.
    pub(crate) fn loads(&self, start: &str) -> bool {
        let of_name = |library: &&Library| library.name.starts_with(start);
        self.libraries.iter().filter(of_name).any(|library| library.found_by_loader == Some(true))
    }

    /// Whether there is a device node whose name starts so.
    pub(crate) fn has_node(&self, start: &str) -> bool {
        self.device_nodes.iter().any(|node| node.starts_with(start))
    }
}

fn loader_cache() -> Option<Vec<Cached>> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    LDCONFIG.into_iter().find_map(|program| {
        let output =
            Command::new(program).arg("-p").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        let listed = parse::ldconfig(&String::from_utf8_lossy(&output.stdout));
        (output.status.success() && !listed.is_empty()).then_some(listed)
    })
}

fn library(name: &'static str, what: &'static str, cache: Option<&[Cached]>) -> Library {
    let ours =
        |entry: &&Cached| entry.name == name && CACHE_KIND.is_none_or(|kind| entry.kind.contains(kind));
    let cached = cache.and_then(|entries| entries.iter().find(ours)).map(|entry| PathBuf::from(&entry.path));
    let in_folder = |folders: &[&str]| {
        folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists())
    };
    let (path, found_by_loader) = if let Some(path) = cached.or_else(|| in_folder(&DEFAULT_FOLDERS)) {
        (Some(path), Some(true))
    } else {
        let path = in_folder(&OTHER_FOLDERS);
        (path, cache.map(|_| false))
    };
    // The name that all links lead to has the version.
    let file = path.as_deref().and_then(|path| fs::canonicalize(path).ok());
    let file = file.as_deref().and_then(Path::file_name).map(|file| file.to_string_lossy().into_owned());
    Library {
        name,
        what,
        version: file.as_deref().and_then(parse::version).map(str::to_owned),
        path: path.map(|path| path.display().to_string()),
        found_by_loader,
    }
}

fn nvidia_devices() -> Vec<String> {
    let information = |folder: PathBuf| parse::read(&folder.join("information").display().to_string());
    let model = |text: String| parse::field(&text, "Model").map(str::to_owned);
    entries(NVIDIA_GPUS).into_iter().filter_map(information).filter_map(model).collect()
}

/// Nodes of the AMD driver: processors have none of the SIMD units.
fn kfd_devices() -> Vec<String> {
    let device = |folder: PathBuf| {
        let properties = parse::read(&folder.join("properties").display().to_string())?;
        let of = |name: &str| {
            let mut lines = properties.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(left, _)| *left == name).map(|(_, value)| value.trim().to_owned())
        };
        if of("simd_count")? == "0" {
            return None;
        }
        Some(format!("AMD gfx target {}", of("gfx_target_version")?))
    };
    entries(KFD_NODES).into_iter().filter_map(device).collect()
}

fn device_nodes() -> Vec<String> {
    let name = |path: PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let is_gpu = |name: &String| {
        NODES.iter().any(|start| {
            name.strip_prefix(start).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
        })
    };
    entries("/dev").into_iter().filter_map(name).filter(is_gpu).collect()
}

/// What a folder holds, in order; nothing where it is not there.
fn entries(folder: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_where_the_cache_says_or_nowhere() {
        let kind = CACHE_KIND.unwrap_or("libc6").to_owned();
        let name = "libnone-such.so.1";
        let entry = Cached { name: name.to_owned(), kind, path: "/no/such/libnone-such.so.1.2".to_owned() };
        let found = library(name, "nothing", Some(std::slice::from_ref(&entry)));
        assert_eq!(found.path.as_deref(), Some("/no/such/libnone-such.so.1.2"));
        assert_eq!((found.found_by_loader, found.version), (Some(true), None));

        let other = Cached { kind: "libc6,other".to_owned(), ..entry };
        if CACHE_KIND.is_some() {
            assert_eq!(library(name, "nothing", Some(&[other])).found_by_loader, Some(false));
        }
        assert_eq!(library(name, "nothing", None).found_by_loader, None, "unknown, not absent");
    }

    #[test]
    fn folders_that_are_not_there_hold_nothing() {
        assert!(entries("/no/such/folder").is_empty());
    }
}

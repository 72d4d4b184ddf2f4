//! The run-time compiler as the environment has it: its library, which is of the settings, the toolkit's headers and the folder of its cache, for which variables of others are
//! looked at here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use wakeline_core::Error;
use wakeline_cuda::{Compiler, HeaderPlaces, KernelCache};

use crate::settings::Settings;

/// What the folder of compiled kernels is called below the user's folder for caches.
pub const CACHE_FOLDER: &str = "wakeline/kernels";

/// How many versions of Python an environment is looked at for.
const PYTHONS_MAX: usize = 16;

/// A compiler of CUDA C as the environment has it, for a binary's start: the library that `WAKELINE_NVRTC` names, or else the one that is found by its names;
/// headers by [`header_places`]; what it makes is kept in [`cache_folder`], where there is one that can be written, and in memory.
///
/// ```
/// use wakeline::cuda::{Arch, CompileOptions};
/// use wakeline::{ErrorCode, Settings};
/// let compiler = wakeline::compiler(&Settings::from_env()?);
/// let source = "extern \"C\" __global__ void nothing() {}";
/// match compiler.compile(source, Arch::new(9, 0), &CompileOptions::new()) {
///     Ok(compiled) => println!("{compiled:?}"),
///     Err(error) => assert_eq!(error.code(), ErrorCode::CompilerMissing, "{error}"),
/// }
/// # Ok::<(), wakeline::Error>(())
/// ```
pub fn compiler(settings: &Settings) -> Compiler {
    let compiler = settings.nvrtc.as_ref().map_or_else(Compiler::new, Compiler::at);
    // Without a folder it is compiled anew in each process: slower, and no less right.
    let at_folder = |folder: PathBuf| -> Result<KernelCache, Error> { KernelCache::at(folder) };
    let cache = cache_folder().and_then(|folder| at_folder(folder).ok());
    compiler.headers(header_places()).cached(&cache.unwrap_or_else(KernelCache::in_memory))
}

/// Where compiled kernels are kept: [`CACHE_FOLDER`] below `XDG_CACHE_HOME`, or `.cache` of `HOME`; on Windows below `LOCALAPPDATA`. `None` where none of these is
/// an absolute path.
pub fn cache_folder() -> Option<PathBuf> {
    folder_of(|name| std::env::var_os(name))
}

fn folder_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = if cfg!(windows) {
        path("LOCALAPPDATA")
    } else {
        path("XDG_CACHE_HOME").or_else(|| path("HOME").map(|home| home.join(".cache")))
    };
    caches.map(|caches| caches.join(CACHE_FOLDER))
}

/// Where the environment has the toolkit's headers: `CUDA_HOME`, `CUDA_PATH`, the packages of the Python environment `VIRTUAL_ENV`, and those of the system's Python.
pub fn header_places() -> HeaderPlaces {
    places_of(|name| std::env::var_os(name))
}

fn places_of(variable: impl Fn(&str) -> Option<OsString>) -> HeaderPlaces {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut places = HeaderPlaces::new();
    for toolkit in ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(set) {
        places = places.toolkit(toolkit);
    }
    let pythons = set("VIRTUAL_ENV").into_iter().chain(["/usr/local", "/usr"].map(PathBuf::from));
    for packages in pythons.flat_map(|python| packages_of(&python)) {
        places = places.python(packages);
    }
    places
}

/// The folders of packages of a Python environment that have any of NVIDIA's.
fn packages_of(python: &Path) -> Vec<PathBuf> {
    let libraries = std::fs::read_dir(python.join("lib")).into_iter().flatten().flatten();
    let versions = libraries
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python")));
    let mut packages: Vec<PathBuf> = versions
        .take(PYTHONS_MAX)
        .flat_map(|python| [python.join("site-packages"), python.join("dist-packages")])
        .chain([python.join("Lib").join("site-packages")])
        .filter(|packages| packages.join("nvidia").is_dir())
        .collect();
    packages.sort();
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'v>(values: &'v [(&'v str, &'v str)]) -> impl Fn(&str) -> Option<OsString> + 'v {
        |name| values.iter().find(|(other, _)| *other == name).map(|(_, value)| value.into())
    }

    #[test]
    #[cfg(unix)]
    fn the_cache_is_where_the_user_has_caches() {
        for (values, wanted) in [
            (&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")][..], Some("/c/wakeline/kernels")),
            (&[("XDG_CACHE_HOME", "c"), ("HOME", "/h")], Some("/h/.cache/wakeline/kernels")),
            (&[("HOME", "")], None),
            (&[], None),
        ] {
            assert_eq!(folder_of(of(values)), wanted.map(PathBuf::from), "{values:?}");
        }
    }

    #[test]
    fn headers_are_where_the_environment_says() {
        let places = places_of(of(&[("CUDA_HOME", "/opt/cuda"), ("CUDA_PATH", "")]));
        let text = format!("{places:?}");
        assert!(text.contains("/opt/cuda/include") && !text.contains("\"include\""), "{text}");
    }
}

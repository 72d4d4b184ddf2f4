//! Finding the built library and making a copy of it that nobody else has loaded.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, io, process};

/// What keeps a [`Fake`](crate::Fake) from being made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FakeError {
    /// The library was not built, or is elsewhere.
    #[error(
        "{FILE} is at none of {looked:?}: build wakeline-fake-driver, or put the file beside this program"
    )]
    Missing {
        /// Where it was looked for.
        looked: Vec<PathBuf>,
    },
    /// Its copy could not be made.
    #[error("{path}: {source}", path = path.display())]
    Copy {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The copy could not be loaded, or lacks a symbol.
    #[error("{path}: {source}", path = path.display())]
    Load {
        /// The copy.
        path: PathBuf,
        /// Why not.
        source: libloading::Error,
    },
}

const FILE: &str = "libwakeline_fake_driver.so";

/// A file of its own, in a folder of its own; both are gone with this value. A loaded library lives on without its file.
#[derive(Debug)]
pub(crate) struct Copied {
    folder: PathBuf,
    file: PathBuf,
}

impl Copied {
    /// The loader knows libraries by device and inode, so each copy is an instance.
    pub(crate) fn new() -> Result<Self, FakeError> {
        /// The Rust library's own, and nothing of a fake's: it numbers the copies of this process.
        static COPIES: AtomicU64 = AtomicU64::new(0);

        let built = built()?;
        let number = COPIES.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("wakeline-fake-{}-{number}", process::id()));
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| FakeError::Copy { path, source }
        };
        fs::create_dir_all(&folder).map_err(failed(&folder))?;
        let file = folder.join(FILE);
        let copied = Self { folder, file };
        fs::copy(&built, &copied.file).map_err(failed(&copied.file))?;
        Ok(copied)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.file
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        // What is left behind is a file in a folder for temporary ones: nobody's failure.
        let _ = fs::remove_file(&self.file);
        let _ = fs::remove_dir(&self.folder);
    }
}

/// The library as cargo built it: beside a test's executable, in `deps` beside an example's or a program's.
fn built() -> Result<PathBuf, FakeError> {
    let program = env::current_exe()
        .map_err(|source| FakeError::Copy { path: PathBuf::from("the running program"), source })?;
    let folders = program.ancestors().skip(1).take(2);
    let places: Vec<PathBuf> =
        folders.flat_map(|folder| [folder.join(FILE), folder.join("deps").join(FILE)]).collect();
    let found = places.iter().find(|place| place.is_file()).cloned();
    found.ok_or(FakeError::Missing { looked: places })
}

//! What a target needs beside the compiler: folders of Debian's packages in the cache, fetched once.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::{cache, debian};
use crate::cmd::Cmd;
use crate::missing::Missing;

/// Some packages of Debian's, unpacked.
#[derive(Debug)]
pub(crate) struct Kit {
    /// The folder's name in the cache.
    name: &'static str,
    suite: &'static str,
    packages: &'static [&'static str],
    /// With all that they depend on, as a program that is run by its own loader needs.
    whole: bool,
    /// The files that are wanted, where not all are: as tar names them.
    files: &'static str,
    /// What is left undone without it.
    what_for: &'static str,
}

/// The tool that makes import libraries for Windows. It runs on every glibc from this suite's on.
pub(crate) const MINGW: Kit = Kit {
    name: "kit-mingw-bookworm",
    suite: "bookworm",
    packages: &["binutils-mingw-w64-x86-64"],
    whole: false,
    files: "",
    what_for: "nothing is checked for Windows",
};

/// The C library of aarch64, to link against with the linker that comes with Rust, and to run with.
pub(crate) const GLIBC_AARCH64: Kit = Kit {
    name: "kit-aarch64-bookworm",
    suite: "bookworm",
    packages: &[
        "libc6-arm64-cross",
        "libc6-dev-arm64-cross",
        "libgcc-s1-arm64-cross",
        "libgcc-12-dev-arm64-cross",
    ],
    whole: false,
    files: "",
    what_for: "nothing is built for aarch64",
};

/// The emulator of programs: one static file for each processor.
pub(crate) const QEMU_USER: Kit = Kit {
    name: "kit-qemu-trixie-backports",
    suite: "trixie-backports",
    packages: &["qemu-user"],
    whole: false,
    files: "./usr/bin/qemu-aarch64",
    what_for: "nothing is run for aarch64",
};

/// The emulator of machines that has the instructions which park on a line.
pub(crate) const BOCHS: Kit = Kit {
    name: "kit-bochs-trixie",
    suite: "trixie",
    packages: &["bochs", "bochs-term"],
    whole: true,
    files: "",
    what_for: "no park of x86-64 is executed",
};

/// Where packages for this machine keep their libraries, and the loader.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

impl Kit {
    /// A program of a whole kit, run by the kit's own loader with its own libraries.
    ///
    /// # Errors
    /// As [`folder`](Self::folder).
    pub(crate) fn program(&self, name: &str) -> Result<Cmd> {
        let folder = self.folder()?;
        let libraries = folder.join(LIBRARIES);
        Ok(Cmd::new(libraries.join("ld-linux-x86-64.so.2"))
            .arg("--library-path")
            .arg(format!("{0}:{0}/pulseaudio", libraries.display()))
            .arg(folder.join("usr/bin").join(name)))
    }

    /// Its folder, fetched where it is not there yet.
    ///
    /// # Errors
    /// A [`Missing`] where it cannot be had.
    pub(crate) fn folder(&self) -> Result<PathBuf> {
        let cache = cache::folder()?;
        let done = cache.join(self.name);
        if !done.exists() {
            self.fetch(&cache).map_err(|error| Missing {
                what: format!("{}: {error:#}", self.what_for),
                install: format!(
                    "run it on a Debian with its archive keyring that reaches the suite {} (packages {}), or put them unpacked into {}",
                    self.suite,
                    self.packages.join(", "),
                    done.display()
                ),
            })?;
        }
        let shown = done.to_str().context("the cache's path is no UTF-8")?;
        ensure!(
            !shown.contains(char::is_whitespace),
            "the cache's path has a space in it, which cargo's settings cannot: {shown}; set WAKELINE_CACHE"
        );
        Ok(done)
    }

    fn fetch(&self, cache: &std::path::Path) -> Result<()> {
        println!("  fetching {} of Debian's {}", self.packages.join(", "), self.suite);
        let unfinished = cache::Unfinished::new(cache)?;
        let archive = debian::Archive::open(unfinished.path(), &[self.suite])?;
        let kit = unfinished.path().join("kit");
        if self.whole {
            archive.extract_all(self.packages, &kit)?;
        } else {
            archive.extract(self.packages, self.files, &kit)?;
        }
        unfinished.finish("kit", &cache.join(self.name))
    }
}

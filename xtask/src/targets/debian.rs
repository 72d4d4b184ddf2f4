//! Packages out of Debian's archive, unpacked into folders: nothing is installed.
//!
//! They come through an apt with folders of its own, so the system's package state is not touched; apt checks the archive's signature and the packages'
//! hashes. The sources of Rust's libraries are among them: Debian packs them for every release of Rust (`rust-src`, for all architectures, without
//! dependencies).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::cmd::Cmd;

/// Where `rust-src` is looked for. The first keeps several releases at once.
pub(crate) const RUST_SUITES: &[&str] = &["trixie-backports", "forky", "sid"];

/// What apt checks signatures with.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The archive if no source of the system names another mirror.
const MIRROR: &str = "http://deb.debian.org/debian";

/// Debian's archive, seen through an apt of our own.
#[derive(Debug)]
pub(crate) struct Archive {
    folder: PathBuf,
    conf: PathBuf,
}

impl Archive {
    /// Sets an apt up in `folder` and reads the indexes of these suites.
    ///
    /// # Errors
    /// This is no Debian, or the archive cannot be reached.
    pub(crate) fn open(folder: &Path, suites: &[&str]) -> Result<Self> {
        let apt =
            Cmd::new("apt-get").arg("--version").works() && Cmd::new("dpkg-deb").arg("--version").works();
        ensure!(
            apt && Path::new(KEYRING).exists(),
            "this machine has no apt-get, no dpkg-deb or no {KEYRING}"
        );
        let root = folder.join("apt");
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(root.join(part))?;
        }
        let mirror = mirror();
        let source = |suite| format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n");
        let sources: Vec<String> = suites.iter().map(source).collect();
        fs::write(root.join("sources.list"), sources.concat())?;
        fs::write(root.join("status"), "")?;
        let conf = root.join("apt.conf");
        fs::write(&conf, configuration(&root))?;
        let archive = Self { folder: folder.to_owned(), conf };
        // A suite that is gone is no fault as long as another has the package; who fetches is told.
        if let Err(error) = archive.apt("apt-get").words("-qq update").read_quietly() {
            println!("  apt-get update: {error:#}");
        }
        Ok(archive)
    }

    /// The versions of `rust-src` that there are.
    pub(crate) fn versions(&self) -> Result<Vec<String>> {
        let (table, _) = self.apt("apt-cache").words("madison rust-src").read_quietly()?;
        let mut versions = parse_madison(&table);
        versions.dedup();
        ensure!(
            !versions.is_empty(),
            "no rust-src in {} of {}; is the archive reachable?",
            RUST_SUITES.join(", "),
            mirror()
        );
        Ok(versions)
    }

    /// Downloads the package and puts its `library` folder into `to`.
    pub(crate) fn extract_libraries(&self, version: &str, to: &Path) -> Result<()> {
        let unpacked = self.folder.join("unpacked");
        fs::create_dir_all(&unpacked)?;
        for deb in self.download(&[&format!("rust-src={version}")])? {
            unpack(&deb, &unpacked, "--wildcards ./usr/src/rustc-*/library")?;
        }
        let library =
            fs::read_dir(unpacked.join("usr/src"))?.flatten().map(|entry| entry.path().join("library"));
        let library = library.into_iter().next().context("the package holds no sources")?;
        fs::create_dir_all(to)?;
        fs::rename(&library, to.join("library")).with_context(|| format!("cannot move {}", library.display()))
    }

    /// Downloads these packages, and nothing that they depend on, and unpacks `files` of them into `to`, all where that is empty.
    pub(crate) fn extract(&self, packages: &[&str], files: &str, to: &Path) -> Result<()> {
        fs::create_dir_all(to)?;
        let options = format!("{WITHOUT_PAPER} {files}");
        self.download(packages)?.iter().try_for_each(|deb| unpack(deb, to, &options))
    }

    /// The same with all that they depend on, down to the C library: what is unpacked runs by its own loader.
    pub(crate) fn extract_all(&self, packages: &[&str], to: &Path) -> Result<()> {
        fs::create_dir_all(to)?;
        let get = self.apt("apt-get").words("-qq install -y --no-install-recommends --download-only");
        get.args(packages).read_quietly()?;
        debs(&self.folder.join("apt/cache/archives"))?
            .iter()
            .try_for_each(|deb| unpack(deb, to, WITHOUT_PAPER))
    }

    /// The files of these packages, in a folder of their own.
    fn download(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        let inside = self.folder.join("deb");
        fs::create_dir_all(&inside)?;
        // apt puts a download into the folder it runs in, hence `env -C`.
        let get = self.apt("env").arg("-C").arg(&inside).words("apt-get -qq download");
        get.args(packages).read_quietly()?;
        let found = debs(&inside)?;
        ensure!(found.len() == packages.len(), "apt-get downloaded {} of {packages:?}", found.len());
        Ok(found)
    }

    fn apt(&self, program: &str) -> Cmd {
        Cmd::new(program).env("APT_CONFIG", &self.conf).env("LC_ALL", "C")
    }
}

/// Options of tar: everything but what is to be read by people.
const WITHOUT_PAPER: &str =
    "--exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale";

fn unpack(deb: &Path, to: &Path, options: &str) -> Result<()> {
    let files = Cmd::new("dpkg-deb").arg("--fsys-tarfile").arg(deb);
    files.pipe_into(&Cmd::new("tar").arg("-x").arg("-C").arg(to).words(options))
}

fn debs(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(fs::read_dir(folder)?.flatten().map(|entry| entry.path()).filter(|path| is_deb(path)).collect())
}

fn is_deb(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "deb")
}

/// All of apt's folders in `root`.
fn configuration(root: &Path) -> String {
    let root = root.display();
    format!(
        "Dir::Etc::sourcelist \"{root}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
         Dir::Etc::preferencesparts \"/dev/null\";\nDir::State::lists \"{root}/lists\";\n\
         Dir::State::status \"{root}/status\";\nDir::Cache \"{root}/cache\";\n\
         APT::Sandbox::User \"\";\nAcquire::Languages \"none\";\nAcquire::Retries \"3\";\n"
    )
}

/// The mirror that the system's own sources name.
fn mirror() -> String {
    let new = fs::read_to_string("/etc/apt/sources.list.d/debian.sources").unwrap_or_default();
    let old = fs::read_to_string("/etc/apt/sources.list").unwrap_or_default();
    parse_mirror(&new, &old).unwrap_or_else(|| MIRROR.to_owned())
}

fn parse_mirror(deb822: &str, one_line: &str) -> Option<String> {
    let is_url = |word: &&str| word.starts_with("http");
    let new = deb822.lines().filter(|line| line.starts_with("URIs:"));
    let old = one_line.lines().filter(|line| line.starts_with("deb "));
    let mut urls = new.chain(old).filter_map(|line| line.split_whitespace().find(is_url));
    urls.find(|url| !url.contains("security")).map(|url| url.trim_end_matches('/').to_owned())
}

/// The versions in the lines `rust-src | 1.95.0+dfsg1-2~bpo13+1 | http://.. Packages`, best first.
fn parse_madison(table: &str) -> Vec<String> {
    let version = |line: &str| Some(line.split('|').nth(1)?.trim().to_owned());
    table.lines().filter_map(version).collect()
}

/// The version of the same minor release as `release`: the libraries go with their compiler only.
pub(crate) fn fitting<'v>(offered: &'v [String], release: &str) -> Option<&'v str> {
    let (minor, _) = release.rsplit_once('.')?;
    let same = |version: &&String| version.strip_prefix(minor).is_some_and(|rest| rest.starts_with('.'));
    offered.iter().find(same).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_of_the_same_release_are_taken() {
        let table = " rust-src | 1.97.1+dfsg1-1~bpo13+1 | http://x trixie-backports/main amd64 Packages\n \
                     rust-src | 1.95.0+dfsg1-2~bpo13+1 | http://x trixie-backports/main amd64 Packages\n";
        let offered = parse_madison(table);
        assert_eq!(fitting(&offered, "1.95.0"), Some("1.95.0+dfsg1-2~bpo13+1"));
        assert_eq!(fitting(&offered, "1.97.0-nightly"), Some("1.97.1+dfsg1-1~bpo13+1"));
        assert_eq!(fitting(&offered, "1.9.0"), None);
        assert_eq!(fitting(&offered, "1.96.0"), None);
    }

    #[test]
    fn the_mirror_is_the_systems() {
        let new = "Types: deb\n# http://snapshot.invalid\nURIs: http://m.invalid/debian/\nSuites: bookworm\n";
        assert_eq!(parse_mirror(new, ""), Some("http://m.invalid/debian".to_owned()));
        let old = "deb http://security.invalid/debian-security s main\ndeb [a=b] https://m.invalid/d bookworm main\n";
        assert_eq!(parse_mirror("", old), Some("https://m.invalid/d".to_owned()));
        assert_eq!(parse_mirror("", ""), None);
    }
}

//! The folder for what is fetched once and kept, and how something gets into it: whole, or not at all.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result, anyhow};

/// What a folder in the making begins with; the id of its process follows.
const UNFINISHED: &str = "unfinished-";

/// `$WAKELINE_CACHE`, else `$XDG_CACHE_HOME/wakeline`, else `~/.cache/wakeline`.
pub(crate) fn folder() -> Result<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("WAKELINE_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("wakeline")))
        .or_else(|| Some(set("HOME")?.join(".cache/wakeline")))
        .ok_or_else(|| anyhow!("no folder to keep sources in; set WAKELINE_CACHE to one"))
}

/// A folder beside the finished ones. It is removed when it goes out of scope, or by a later run if ours is killed.
#[derive(Debug)]
pub(crate) struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    pub(crate) fn new(cache: &Path) -> Result<Self> {
        remove_left_over(cache);
        let path = cache.join(format!("{UNFINISHED}{}", process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make the folder {}", path.display()))?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the part `name` to `to` in one step. Where another run was faster, its result stays.
    pub(crate) fn finish(&self, name: &str, to: &Path) -> Result<()> {
        match fs::rename(self.path.join(name), to) {
            Err(_) if to.exists() => Ok(()),
            result => result.with_context(|| format!("cannot make {}", to.display())),
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // What cannot be removed now is removed by a later run.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes what runs left that no longer live.
fn remove_left_over(cache: &Path) {
    let Ok(entries) = fs::read_dir(cache) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(UNFINISHED)) else {
            continue;
        };
        // The program's file is gone from a process that has ended, even if nobody has taken note of its end.
        let program = fs::read_link(Path::new("/proc").join(pid).join("exe"));
        if program.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_arrives_whole_and_nothing_else_stays() {
        let cache = env::temp_dir().join(format!("wakeline-cache-test-{}", process::id()));
        let left = cache.join(format!("{UNFINISHED}0"));
        fs::create_dir_all(&left).unwrap();
        let unfinished = Unfinished::new(&cache).unwrap();
        assert!(!left.exists(), "what a dead run left is removed");

        let done = cache.join("done");
        fs::create_dir(unfinished.path().join("part")).unwrap();
        unfinished.finish("part", &done).unwrap();
        assert!(done.is_dir());
        unfinished.finish("part", &done).unwrap(); // another run was faster
        assert!(unfinished.finish("part", &cache.join("other")).is_err());

        drop(unfinished);
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 1, "only what is finished");
        fs::remove_dir_all(&cache).unwrap();
    }
}

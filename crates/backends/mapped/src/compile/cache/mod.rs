//! What was compiled once, kept in memory and on disk.
//!
//! Entries go by a strong hash of all that they were made from (`key`), so that one that is found is right. On disk each is a file
//! that is written whole and then renamed, with a hash of its own in it; so processes need no lock, and what was cut or changed is found out.

mod disk;
mod entry;
mod memory;

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use wakeline_core::Error;

use self::disk::{Disk, Found};
use self::memory::Memory;
use super::key::Key;
use super::library::Facts;
use super::made::Made;

/// How many bytes of files a [`KernelCache`] keeps, where nothing else is said. 256 MiB.
pub const CACHE_DISK_BYTES_MAX: u64 = 256 << 20;

/// How many bytes of images a [`KernelCache`] keeps in memory, where nothing else is said. 64 MiB.
pub const CACHE_MEMORY_BYTES_MAX: u64 = 64 << 20;

/// How much a [`KernelCache`] keeps, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// The folder of its files; `None` keeps none.
    pub folder: Option<PathBuf>,
    /// How many bytes of files it keeps: the ones used last.
    pub disk_bytes_max: u64,
    /// How many bytes of images it keeps in memory: the ones used last.
    pub memory_bytes_max: u64,
}

impl Default for CacheConfig {
    /// In memory alone.
    fn default() -> Self {
        Self { folder: None, disk_bytes_max: CACHE_DISK_BYTES_MAX, memory_bytes_max: CACHE_MEMORY_BYTES_MAX }
    }
}

/// Compiled kernels, kept in memory and, where it has a folder, on disk. Clones are handles of one.
///
/// Two processes may use one folder. What is in it is run on the device with all rights of the process: let nobody write there whom you would not have write
/// to the program. It is made for its owner alone where it is not there.
///
/// A disk that fails fails no compilation: it is counted, and compiled again.
///
/// ```
/// use wakeline_mapped::compile::KernelCache;
/// let cache = KernelCache::in_memory();
/// assert_eq!(cache.stats().misses, 0);
/// ```
#[derive(Clone)]
pub struct KernelCache {
    inner: Arc<Inner>,
}

struct Inner {
    memory: Mutex<Memory>,
    disk: Option<Disk>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    memory_hits: AtomicU64,
    disk_hits: AtomicU64,
    misses: AtomicU64,
    unkept: AtomicU64,
    corrupt: AtomicU64,
    evicted: AtomicU64,
    failed: AtomicU64,
}

/// What a [`KernelCache`] has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CacheStats {
    /// Found in memory.
    pub memory_hits: u64,
    /// Found on disk.
    pub disk_hits: u64,
    /// Found nowhere, and compiled.
    pub misses: u64,
    /// Compiled and not kept, since not all of what they were made from can be known: a header's name that a macro makes, a header that changed meanwhile.
    pub unkept: u64,
    /// Files that were cut or changed: deleted, and compiled again.
    pub corrupt: u64,
    /// Files that were deleted to make room.
    pub evicted: u64,
    /// Calls of the system about a file that failed.
    pub failed: u64,
}

impl KernelCache {
    /// One that keeps what this process compiles, in its memory.
    pub fn in_memory() -> Self {
        Self::of(None, CACHE_MEMORY_BYTES_MAX)
    }

    /// One with files in this folder, which is made where it is not there.
    ///
    /// ```
    /// use wakeline_mapped::compile::KernelCache;
    /// let error = KernelCache::at("/dev/null/kernels").unwrap_err();
    /// assert_eq!(error.code(), wakeline_core::ErrorCode::CacheFolder);
    /// ```
    ///
    /// # Errors
    ///
    /// [`CacheFolder`](wakeline_core::ErrorCode::CacheFolder): it cannot be made, or is none.
    pub fn at(folder: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::with(CacheConfig { folder: Some(folder.into()), ..CacheConfig::default() })
    }

    /// One as `config` says.
    ///
    /// # Errors
    ///
    /// As [`at`](Self::at).
    pub fn with(config: CacheConfig) -> Result<Self, Error> {
        let disk = config.folder.map(|folder| Disk::at(folder, config.disk_bytes_max)).transpose()?;
        Ok(Self::of(disk, config.memory_bytes_max))
    }

    fn of(disk: Option<Disk>, memory_bytes_max: u64) -> Self {
        let memory = Mutex::new(Memory::new(memory_bytes_max));
        Self { inner: Arc::new(Inner { memory, disk, counts: Counts::default() }) }
    }

    /// The folder of its files.
    pub fn folder(&self) -> Option<&Path> {
        self.inner.disk.as_ref().map(Disk::folder)
    }

    /// What it has done so far.
    pub fn stats(&self) -> CacheStats {
        let Counts { memory_hits, disk_hits, misses, unkept, corrupt, evicted, failed } = &self.inner.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CacheStats {
            memory_hits: read(memory_hits),
            disk_hits: read(disk_hits),
            misses: read(misses),
            unkept: read(unkept),
            corrupt: read(corrupt),
            evicted: read(evicted),
            failed: read(failed),
        }
    }

    /// What was compiled of this key.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Made>> {
        let counts = &self.inner.counts;
        if let Some(compiled) = self.memory(|memory| memory.get(key)) {
            count(&counts.memory_hits, 1);
            return Some(compiled);
        }
        let found = self.read(&key.file()).and_then(|payload| {
            let compiled = entry::compiled(&payload, key).map(Arc::new);
            if compiled.is_none() {
                self.forget(&key.file());
            }
            compiled
        });
        count(if found.is_some() { &counts.disk_hits } else { &counts.misses }, 1);
        found.inspect(|compiled| self.memory(|memory| memory.put(*key, compiled)))
    }

    /// Keeps what was compiled of this key.
    pub(super) fn put(&self, key: &Key, compiled: &Arc<Made>) {
        self.memory(|memory| memory.put(*key, compiled));
        self.write(&key.file(), &entry::of_compiled(compiled, key));
    }

    pub(super) fn unkept(&self) {
        count(&self.inner.counts.unkept, 1);
    }

    /// What was found of a compiler that was asked for in this way, if it is still the same file.
    pub(super) fn facts(&self, asked: &Key) -> Option<Facts> {
        let payload = self.read(&asked.compiler_file())?;
        entry::facts(&payload)
    }

    /// Keeps that, where there is a disk.
    pub(super) fn put_facts(&self, asked: &Key, facts: &Facts) {
        if self.inner.disk.is_some()
            && self.facts(asked).as_ref() != Some(facts)
            && let Some(payload) = entry::of_facts(facts)
        {
            self.write(&asked.compiler_file(), &payload);
        }
    }

    fn memory<R>(&self, f: impl FnOnce(&mut Memory) -> R) -> R {
        // What a thread that panicked left is a list of whole entries.
        f(&mut self.inner.memory.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn read(&self, file: &str) -> Option<Vec<u8>> {
        let counts = &self.inner.counts;
        match self.inner.disk.as_ref()?.read(file) {
            Ok(Found::Payload(payload)) => Some(payload),
            Ok(Found::Nothing) => None,
            Ok(Found::Corrupt) => {
                self.forget(file);
                None
            }
            Err(_) => {
                count(&counts.failed, 1);
                None
            }
        }
    }

    /// Deletes a file that is not what it should be.
    fn forget(&self, file: &str) {
        count(&self.inner.counts.corrupt, 1);
        if self.inner.disk.as_ref().is_some_and(|disk| disk.delete(file).is_err()) {
            count(&self.inner.counts.failed, 1);
        }
    }

    fn write(&self, file: &str, payload: &[u8]) {
        let Some(disk) = &self.inner.disk else { return };
        match disk.write(file, payload) {
            Ok(evicted) => count(&self.inner.counts.evicted, evicted),
            Err(_) => count(&self.inner.counts.failed, 1),
        }
    }
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl fmt::Debug for KernelCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelCache")
            .field("folder", &self.folder())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

//! Entries on disk: a file each, written whole and renamed, with a hash of what is in it.
//!
//! ```text
//! <64 digits>.kernel       an entry     8 bytes what it is, 8 its length, 32 its hash, then so many bytes
//! <64 digits>.compiler     what was found of a compiler, the same
//! .<process>-<number>.tmp  one that is being written, or was when its process ended
//! ```
//!
//! Files of other names are left alone. When a file was changed last is when it was used last.
//! Nothing is locked: who reads a file that is deleted meanwhile has read it.

use core::sync::atomic::{AtomicU64, Ordering};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use wakeline_core::{Error, ErrorCode};

/// What a file of this form begins with.
const MAGIC: &[u8; 8] = b"wakeker1";
const HASH_BYTES: usize = 32;
const HEADER_BYTES: usize = MAGIC.len() + size_of::<u64>() + HASH_BYTES;

/// No file that is read is longer.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// How many names are tried for a file that is being written.
const NAMES_MAX: u64 = 64;

/// One that is being written for longer than that is nobody's any more.
const WRITING_S_MAX: u64 = 3_600;

/// How full the folder is left when room was made in it, in percent: so that not every new entry makes room anew.
const LEFT_PCT: u64 = 90;

pub(super) struct Disk {
    folder: PathBuf,
    bytes_max: u64,
    /// Of files that were begun.
    number: AtomicU64,
}

/// What a file is.
pub(super) enum Found {
    Payload(Vec<u8>),
    Nothing,
    /// Cut, changed, or something else.
    Corrupt,
}

impl Disk {
    pub(super) fn at(folder: PathBuf, bytes_max: u64) -> Result<Self, Error> {
        let failed =
            |what: &dyn core::fmt::Display| Error::new(ErrorCode::CacheFolder, [&folder.display(), what]);
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::DirBuilderExt as _;
            builder.mode(0o700);
        }
        builder.create(&folder).map_err(|error| failed(&error))?;
        if !folder.is_dir() {
            return Err(failed(&"it is a file"));
        }
        Ok(Self { folder, bytes_max, number: AtomicU64::new(0) })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn read(&self, file: &str) -> io::Result<Found> {
        let mut options = OpenOptions::new();
        options.read(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            // Of a pipe the opening waits for somebody who writes.
            options.custom_flags(libc::O_NONBLOCK);
        }
        let file = match options.open(self.folder.join(file)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
            return Ok(Found::Corrupt);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
        // It may grow meanwhile; then it is not whole.
        (&file).take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        let Some(payload) = opened(&bytes) else { return Ok(Found::Corrupt) };
        // Where the folder is another user's, it is not told; it then goes by when it was written.
        let _ = file.set_modified(SystemTime::now());
        Ok(Found::Payload(payload.to_vec()))
    }

    pub(super) fn delete(&self, file: &str) -> io::Result<()> {
        match fs::remove_file(self.folder.join(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes a file, and makes room for it. How many others were deleted for that. One that has no room at all is not written.
    pub(super) fn write(&self, file: &str, payload: &[u8]) -> io::Result<u64> {
        let sealed = sealed(payload);
        let bytes = sealed.len() as u64;
        if bytes > self.bytes_max {
            return Ok(0);
        }
        let evicted = self.make_room(bytes)?;
        let (path, mut open) = self.begin()?;
        let written = open.write_all(&sealed).and_then(|()| {
            drop(open);
            fs::rename(&path, self.folder.join(file))
        });
        if let Err(error) = written {
            // It is old soon, and then deleted by whoever makes room.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(evicted)
    }

    /// A file of its own, under a name that nobody reads.
    fn begin(&self) -> io::Result<(PathBuf, File)> {
        let process = std::process::id();
        for _ in 1..NAMES_MAX {
            let number = self.number.fetch_add(1, Ordering::Relaxed);
            let path = self.folder.join(format!(".{process}-{number}.tmp"));
            match File::create_new(&path) {
                Ok(file) => return Ok((path, file)),
                // Another cache of this process, or one of a process that had this number and ended.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Deletes the files that were not used for the longest until so many bytes more fit.
    fn make_room(&self, bytes: u64) -> io::Result<u64> {
        let (mut files, mut total) = (Vec::new(), bytes);
        let now = SystemTime::now();
        for entry in fs::read_dir(&self.folder)? {
            // One that is gone by now takes no room.
            let Ok((entry, metadata)) =
                entry.and_then(|entry| entry.metadata().map(|metadata| (entry, metadata)))
            else {
                continue;
            };
            let (path, used) = (entry.path(), metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH));
            match entry.file_name().to_str().and_then(Name::of) {
                Some(Name::Entry) => {
                    total += metadata.len();
                    files.push((used, metadata.len(), path));
                }
                Some(Name::Begun)
                    if now.duration_since(used).is_ok_and(|age| age > Duration::from_secs(WRITING_S_MAX)) =>
                {
                    let _ = fs::remove_file(path);
                }
                _ => {}
            }
        }
        if total <= self.bytes_max {
            return Ok(0);
        }
        files.sort();
        let (mut evicted, left) = (0, self.bytes_max / 100 * LEFT_PCT);
        for (_, len, path) in files {
            if total <= left.max(bytes) {
                break;
            }
            if fs::remove_file(path).is_ok() {
                evicted += 1;
            }
            total = total.saturating_sub(len);
        }
        Ok(evicted)
    }
}

/// What a file is by its name, as `Key` and `begin` make them. One of another name is not ours to delete.
enum Name {
    Entry,
    /// One that is being written.
    Begun,
}

impl Name {
    fn of(name: &str) -> Option<Self> {
        let (name, kind) = name.rsplit_once('.')?;
        let number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        match kind {
            "kernel" | "compiler" => {
                let digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
                (name.len() == 2 * HASH_BYTES && name.bytes().all(digit)).then_some(Self::Entry)
            }
            "tmp" => {
                let (process, count) = name.strip_prefix('.')?.split_once('-')?;
                (number(process) && number(count)).then_some(Self::Begun)
            }
            _ => None,
        }
    }
}

fn sealed(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    bytes.extend(MAGIC);
    bytes.extend((payload.len() as u64).to_le_bytes());
    bytes.extend(Sha256::digest(payload));
    bytes.extend(payload);
    bytes
}

/// What is in a file, if it is what its header says.
fn opened(bytes: &[u8]) -> Option<&[u8]> {
    let (header, payload) = bytes.split_at_checked(HEADER_BYTES)?;
    let rest = header.strip_prefix(MAGIC)?;
    let (len, hash) = rest.split_at_checked(size_of::<u64>())?;
    let whole = len == (payload.len() as u64).to_le_bytes() && hash == Sha256::digest(payload).as_slice();
    whole.then_some(payload)
}

//! The key of an entry: a strong hash of all that an image is made from.

use core::fmt::Write as _;
use std::fs;

use sha2::{Digest as _, Sha256};

use super::headers::Reached;
use super::library::Facts;
use super::program::Job;

/// Another form of keys or entries: none is taken for one of these.
const FORM: &str = "wakeline kernels 1";

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key(pub(super) [u8; 32]);

impl Key {
    /// Of a compilation: the compiler's name and release and the length of its file (releases of one version differ in that), the options, which have the
    /// architecture, the source with its name, the headers given as texts, and all files that it can reach.
    pub(super) fn of(compiler: &str, facts: &Facts, job: &Job<'_>, reached: &Reached) -> Self {
        let mut hash = Hash::new("compiled");
        hash.text(compiler);
        hash.number(facts.version.major.into());
        hash.number(facts.version.minor.into());
        hash.number(fs::metadata(&facts.path).map_or(0, |metadata| metadata.len()));
        hash.texts(job.options.iter());
        hash.text(job.name);
        hash.text(job.source);
        hash.texts(job.instances.iter());
        hash.texts(job.headers.iter().flat_map(|(name, text)| [name, text]));
        hash.number(reached.files.len() as u64);
        for (path, content) in &reached.files {
            hash.text(&path.to_string_lossy());
            hash.0.update(content);
        }
        hash.texts(reached.absent.iter());
        hash.done()
    }

    /// Of the way in which a compiler is asked for.
    pub(super) fn asked<'n>(names: impl ExactSizeIterator<Item = &'n str>) -> Self {
        let mut hash = Hash::new("compiler");
        hash.number(names.len() as u64);
        names.for_each(|name| hash.text(name));
        hash.done()
    }

    /// The file of an entry.
    pub(super) fn file(&self) -> String {
        format!("{}.kernel", self.digits())
    }

    /// The file of what was found of a compiler.
    pub(super) fn compiler_file(&self) -> String {
        format!("{}.compiler", self.digits())
    }

    fn digits(&self) -> String {
        self.0.iter().fold(String::new(), |mut digits, byte| {
            // A text takes everything.
            let _ = write!(digits, "{byte:02x}");
            digits
        })
    }
}

/// Everything goes in with its length before it, so that nothing runs into the next.
struct Hash(Sha256);

impl Hash {
    fn new(what: &str) -> Self {
        let mut hash = Self(Sha256::new());
        hash.text(FORM);
        hash.text(what);
        hash
    }

    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text);
    }

    fn texts<'t>(&mut self, texts: impl Iterator<Item = &'t String>) {
        let texts: Vec<&String> = texts.collect();
        self.number(texts.len() as u64);
        for text in texts {
            self.text(text);
        }
    }

    fn done(self) -> Key {
        Key(self.0.finalize().into())
    }
}

//! What came of a source.

use core::fmt;
use core::marker::PhantomData;
use std::ffi::CString;
use std::sync::Arc;

/// Code, and what is known of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Made {
    pub(super) code: Code,
    /// Instances of templates, and what the module calls them.
    pub(super) names: Vec<(String, String)>,
    pub(super) log: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Code {
    /// An image of the vendor's kind.
    Machine(Vec<u8>),
    /// A text that the driver compiles.
    Text(CString),
}

impl Code {
    /// A text that ends with a zero, and has no other.
    pub(super) fn text(bytes: Vec<u8>) -> Option<Self> {
        CString::from_vec_with_nul(bytes).ok().map(Self::Text)
    }
}

/// What came of a source: machine code, or a text for the driver, not loaded yet. Cheap to clone.
pub struct Compiled<R> {
    made: Arc<Made>,
    vendor: PhantomData<fn() -> R>,
}

impl<R> Compiled<R> {
    pub(super) const fn new(made: Arc<Made>) -> Self {
        Self { made, vendor: PhantomData }
    }

    pub(super) fn made(&self) -> &Made {
        &self.made
    }

    /// How long its code is, in bytes.
    pub fn bytes(&self) -> u64 {
        self.made.bytes()
    }

    /// The text, where that is what was made.
    pub fn text(&self) -> Option<&str> {
        match &self.made.code {
            Code::Machine(_) => None,
            Code::Text(text) => text.to_str().ok(),
        }
    }

    /// The machine code, where that is what was made.
    pub fn image(&self) -> Option<&[u8]> {
        match &self.made.code {
            Code::Machine(image) => Some(image),
            Code::Text(_) => None,
        }
    }

    /// What the compiler said of it, warnings most likely.
    pub fn log(&self) -> &str {
        &self.made.log
    }
}

impl Made {
    pub(super) fn bytes(&self) -> u64 {
        match &self.code {
            Code::Machine(image) => image.len() as u64,
            Code::Text(text) => text.as_bytes().len() as u64,
        }
    }
}

impl<R> Clone for Compiled<R> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.made))
    }
}

impl<R> PartialEq for Compiled<R> {
    fn eq(&self, other: &Self) -> bool {
        self.made == other.made
    }
}

impl<R> Eq for Compiled<R> {}

impl<R> fmt::Debug for Compiled<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.image().is_some() { "machine code" } else { "a text" };
        f.debug_struct("Compiled")
            .field("code", &kind)
            .field("bytes", &self.bytes())
            .field("names", &self.made.names)
            .finish_non_exhaustive()
    }
}

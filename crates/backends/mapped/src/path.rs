//! How a point's word comes to be stored, and the start-up probe that decides it.

use core::fmt;

use wakeline_core::{Error, ErrorCode, Ladder};

/// Who stores the word of a point.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CompletionPath {
    /// The stream itself, behind the work. The default.
    #[default]
    Word,
    /// A host function of the driver's, behind the work: tens of microseconds later, and two threads of the driver's.
    Callback,
    /// Nobody: waits ask the driver.
    Poll,
}

impl fmt::Display for CompletionPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Word => "word",
            Self::Callback => "callback",
            Self::Poll => "poll",
        })
    }
}

/// Tries a path out.
pub trait Probe {
    /// Whether a store of this kind lands; why not.
    ///
    /// # Errors
    ///
    /// Half a sentence without a full stop.
    fn stores(&self, path: CompletionPath) -> Result<(), String>;
}

impl Ladder for CompletionPath {
    type Caps = dyn Probe;
    const RUNGS: &'static [Self] = &[Self::Word, Self::Callback, Self::Poll];
    const FALLBACK: ErrorCode = ErrorCode::CompletionFallback;
    const REFUSED: ErrorCode = ErrorCode::CompletionRefused;

    fn check(self, probe: &dyn Probe) -> Result<Vec<Error>, String> {
        match self {
            Self::Poll => Ok(Vec::new()),
            path => probe.stores(path).map(|()| Vec::new()),
        }
    }
}

//! Settings that may not be had: what was asked for, what is granted, and why they differ.
//!
//! One walk serves every such setting: a [`Ladder`] says what its rungs are and which of them can run,
//! [`Declared::resolve`] steps down until one can. Nothing is replaced in silence: a fallback is a coded warning.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Display;

use crate::error::{Error, ErrorCode};

/// Whether something else may run than what was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Strictness {
    /// The next lower rung that can run does, with a coded warning. The default.
    #[default]
    Fallback,
    /// Nothing else: what cannot run as asked is an error.
    Strict,
}

/// A setting whose values stand above each other: where one cannot run, the next lower one takes its place.
///
/// ```
/// use core::fmt;
/// use wakeline_core::{Declared, Error, ErrorCode, Ladder, Strictness};
///
/// #[derive(Clone, Copy, PartialEq, Debug)]
/// enum Path { Word, Callback, Ask }
///
/// impl fmt::Display for Path {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         f.write_str(match self { Path::Word => "word", Path::Callback => "callback", Path::Ask => "ask" })
///     }
/// }
///
/// struct Device { stores_words: bool, calls_back: bool }
///
/// impl Ladder for Path {
///     type Caps = Device;
///     const RUNGS: &'static [Self] = &[Path::Word, Path::Callback, Path::Ask];
///     const FALLBACK: ErrorCode = ErrorCode::ExecutorFallback; // a code of its own, really
///     const REFUSED: ErrorCode = ErrorCode::ExecutorRefused;
///
///     fn check(self, device: &Device) -> Result<Vec<Error>, String> {
///         match self {
///             Path::Word if !device.stores_words => Err("streams store no words".into()),
///             Path::Callback if !device.calls_back => Err("there are no callbacks".into()),
///             _ => Ok(vec![]),
///         }
///     }
/// }
///
/// let device = Device { stores_words: false, calls_back: true };
/// let path = Declared::resolve(Path::Word, Strictness::Fallback, &device)?;
/// assert_eq!(path.granted(), Path::Callback);
/// assert_eq!(path.warnings()[0].args(), ["word", "streams store no words", "callback"]);
/// assert!(Declared::resolve(Path::Word, Strictness::Strict, &device).is_err());
/// # Ok::<(), Error>(())
/// ```
pub trait Ladder: Copy + PartialEq + Display + 'static {
    /// What can be had here.
    type Caps: ?Sized;

    /// Every value, the most demanding first. The last MUST be able to run anywhere, or a fallback may be refused.
    const RUNGS: &'static [Self];

    /// The code of the warning that another rung runs. MUST take three arguments: what was asked for, why it cannot
    /// run (with a part for each rung that was passed), what runs.
    const FALLBACK: ErrorCode;

    /// The code of the refusal. MUST take two arguments: what was asked for, why it cannot run.
    const REFUSED: ErrorCode;

    /// Whether this rung can run: with which warnings, or why not (half a sentence without a full stop).
    ///
    /// MUST depend on `caps` alone. Called at most once a rung and walk.
    ///
    /// # Errors
    ///
    /// The reason why it cannot run.
    fn check(self, caps: &Self::Caps) -> Result<Vec<Error>, String>;
}

/// A setting as it was asked for and as it was granted, with a coded warning for whatever is not as asked.
///
/// ```
/// use wakeline_core::{ErrorCode, ExecutorKind, HostCaps, Strictness, resolve};
/// let executor = resolve(ExecutorKind::IoUring, Strictness::Fallback, &HostCaps::WORD_WAIT)?;
/// assert_eq!(executor.requested(), ExecutorKind::IoUring);
/// assert_eq!(executor.granted(), ExecutorKind::GpuReactor);
/// assert_eq!(executor.warnings()[0].code(), ErrorCode::ExecutorFallback);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Declared<T> {
    requested: T,
    granted: T,
    warnings: Vec<Error>,
}

impl<T: Ladder> Declared<T> {
    /// Grants `requested` where it can run, else the first rung below it that can: one walk down the ladder, each
    /// rung asked at most once. A fallback is one warning, [`Ladder::FALLBACK`], before those of the rung granted.
    ///
    /// Under [`Strictness::Strict`] only `requested` is asked. Warnings of a rung that does run are no refusal.
    ///
    /// # Errors
    ///
    /// [`Ladder::REFUSED`] where strictness forbids a fallback, or nothing below can run either.
    pub fn resolve(requested: T, strictness: Strictness, caps: &T::Caps) -> Result<Self, Error> {
        let mut reasons = match requested.check(caps) {
            Ok(warnings) => return Ok(Self { requested, granted: requested, warnings }),
            Err(reason) => reason,
        };
        let below = T::RUNGS.iter().skip_while(|rung| **rung != requested).skip(1);
        for &granted in below.take_while(|_| strictness == Strictness::Fallback) {
            match granted.check(caps) {
                Ok(more) => {
                    let mut warnings = Vec::with_capacity(1 + more.len());
                    warnings.push(Error::new(T::FALLBACK, [&requested, &reasons, &granted]));
                    warnings.extend(more);
                    return Ok(Self { requested, granted, warnings });
                }
                Err(reason) => reasons = format!("{reasons}; nor `{granted}`: {reason}"),
            }
        }
        Err(Error::new(T::REFUSED, [&requested, &reasons]))
    }

    /// What was asked for.
    pub const fn requested(&self) -> T {
        self.requested
    }

    /// What is to run.
    pub const fn granted(&self) -> T {
        self.granted
    }

    /// What is not as asked: coded, in the order found. Whoever prints or logs them does it once.
    pub fn warnings(&self) -> &[Error] {
        &self.warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use core::cell::RefCell;
    use core::fmt;

    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Rung(u32);

    impl Display for Rung {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "rung-{}", self.0)
        }
    }

    /// Which rungs can run, and which were asked.
    struct Caps {
        run: &'static [u32],
        asked: RefCell<Vec<u32>>,
    }

    impl Ladder for Rung {
        type Caps = Caps;
        const RUNGS: &'static [Self] = &[Self(3), Self(2), Self(1), Self(0)];
        const FALLBACK: ErrorCode = ErrorCode::ExecutorFallback;
        const REFUSED: ErrorCode = ErrorCode::ExecutorRefused;

        fn check(self, caps: &Caps) -> Result<Vec<Error>, String> {
            caps.asked.borrow_mut().push(self.0);
            if caps.run.contains(&self.0) {
                return Ok(alloc::vec![Error::new(ErrorCode::ParkFallback, [&"why", &self])]);
            }
            Err(format!("no {}", self.0))
        }
    }

    fn walk(
        rung: u32,
        strictness: Strictness,
        run: &'static [u32],
    ) -> (Result<Declared<Rung>, Error>, Vec<u32>) {
        let caps = Caps { run, asked: RefCell::default() };
        let result = Declared::resolve(Rung(rung), strictness, &caps);
        (result, caps.asked.into_inner())
    }

    #[test]
    fn each_rung_is_asked_once_and_all_reasons_are_told_in_one_warning() {
        let (declared, asked) = walk(3, Strictness::Fallback, &[1, 0]);
        let declared = declared.unwrap();
        assert_eq!(asked, [3, 2, 1]);
        assert_eq!((declared.requested(), declared.granted()), (Rung(3), Rung(1)));
        assert_eq!(declared.warnings().len(), 2);
        assert_eq!(declared.warnings()[0].args(), ["rung-3", "no 3; nor `rung-2`: no 2", "rung-1"]);
        assert_eq!(declared.warnings()[1].args(), ["why", "rung-1"], "the rung's own warning is kept");
    }

    #[test]
    fn what_can_run_is_granted_and_nothing_below_is_asked() {
        for strictness in [Strictness::Fallback, Strictness::Strict] {
            let (declared, asked) = walk(2, strictness, &[3, 2, 1, 0]);
            let declared = declared.unwrap();
            assert_eq!(asked, [2]);
            assert_eq!(declared.granted(), Rung(2));
            assert_eq!(declared.warnings()[0].code(), ErrorCode::ParkFallback);
        }
    }

    #[test]
    fn strict_asks_for_nothing_else() {
        let (refused, asked) = walk(2, Strictness::Strict, &[3, 1, 0]);
        let error = refused.unwrap_err();
        assert_eq!(asked, [2]);
        assert_eq!(error.code(), ErrorCode::ExecutorRefused);
        assert_eq!(error.args(), ["rung-2", "no 2"]);
    }

    #[test]
    fn a_ladder_on_which_nothing_runs_is_refused() {
        let (refused, asked) = walk(1, Strictness::Fallback, &[3]);
        assert_eq!(asked, [1, 0]);
        assert!(refused.unwrap_err().to_string().contains("no 1; nor `rung-0`: no 0"));
        let (refused, asked) = walk(9, Strictness::Fallback, &[0]);
        assert_eq!(asked, [9], "what is no rung has none below it");
        assert!(refused.is_err());
    }
}

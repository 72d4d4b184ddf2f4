//! Which executor runs the waits, and what a host must offer for it.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::declared::{Declared, Ladder, Strictness};
use crate::error::{Error, ErrorCode};
use crate::lex::{Fault, OneOf, closest};

/// Who runs the waits.
///
/// ```
/// use wakeline_core::ExecutorKind;
/// assert_eq!("gpu-reactor".parse::<ExecutorKind>()?, ExecutorKind::GpuReactor);
/// assert_eq!(ExecutorKind::default().to_string(), "naive");
///
/// let error = "gpu_reactor".parse::<ExecutorKind>().unwrap_err();
/// assert!(error.to_string().contains("column 4: did you mean `gpu-reactor`?"));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ExecutorKind {
    /// `naive`: each wait runs inline, on the thread that awaits it. Runs anywhere. The default.
    #[default]
    Naive,
    /// `gpu-reactor`: one thread runs tasks and parks on their completion words. Needs a word wait.
    GpuReactor,
    /// `io-uring`: the same, idling in an `io_uring` that carries the user's I/O too. Needs a word wait and `io_uring`.
    IoUring,
}

impl ExecutorKind {
    /// Every kind, in the order of what they need.
    pub const ALL: [Self; 3] = [Self::Naive, Self::GpuReactor, Self::IoUring];
    const NAMES: [&'static str; 3] = [Self::Naive.name(), Self::GpuReactor.name(), Self::IoUring.name()];

    /// The name, as it is read and printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::GpuReactor => "gpu-reactor",
            Self::IoUring => "io-uring",
        }
    }
}

impl FromStr for ExecutorKind {
    type Err = Error;

    /// Reads a kind's name, exactly: lower case, no white space.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidExecutor`]: the text (cut after 200 characters), the column up to which it could have
    /// been a name, the name that may have been meant, and all there are.
    fn from_str(text: &str) -> Result<Self, Error> {
        if let Some(kind) = Self::ALL.into_iter().find(|kind| kind.name() == text) {
            return Ok(kind);
        }
        let common = |name: &&str| text.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        let at = Self::NAMES.iter().map(common).max().unwrap_or(0);
        let help = format!("An executor is {}", OneOf(&Self::NAMES));
        let message = match closest(text, &Self::NAMES) {
            Some(name) => format!("did you mean `{name}`? {help}"),
            None => help,
        };
        Err(Fault::new(at, message).into_error(ErrorCode::InvalidExecutor, text))
    }
}

impl fmt::Display for ExecutorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

bitflags::bitflags! {
    /// What a host offers to its executors.
    ///
    /// ```
    /// use wakeline_core::HostCaps;
    /// let caps = HostCaps::NAP_PARK | HostCaps::IO_URING;
    /// assert!(!caps.contains(HostCaps::WORD_WAIT));
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct HostCaps: u8 {
        /// The processor can park this process on a word (`umwait`, `mwaitx`, `wfet`). Most virtual machines hide it.
        const WORD_WAIT = 1 << 0;
        /// The host can park on a word by a bounded spin and naps.
        const NAP_PARK = 1 << 1;
        /// The kernel lets this process use `io_uring`.
        const IO_URING = 1 << 2;
    }
}

impl Ladder for ExecutorKind {
    type Caps = HostCaps;
    const RUNGS: &'static [Self] = &[Self::IoUring, Self::GpuReactor, Self::Naive];
    const FALLBACK: ErrorCode = ErrorCode::ExecutorFallback;
    const REFUSED: ErrorCode = ErrorCode::ExecutorRefused;

    fn check(self, caps: &HostCaps) -> Result<Vec<Error>, String> {
        let lacks_ring = self == Self::IoUring && !caps.contains(HostCaps::IO_URING);
        let lacks_wait = self != Self::Naive && !caps.intersects(HostCaps::WORD_WAIT | HostCaps::NAP_PARK);
        match (lacks_ring, lacks_wait) {
            (false, false) if self == Self::Naive || caps.contains(HostCaps::WORD_WAIT) => Ok(Vec::new()),
            (false, false) => {
                let why = "none was found or asked for";
                Ok(vec![Error::new(ErrorCode::ParkFallback, [&why, &"a bounded spin and naps"])])
            }
            (true, false) => Err("no io_uring".into()),
            (false, true) => Err("no word wait, neither in hardware nor by naps".into()),
            (true, true) => Err("neither io_uring nor a word wait".into()),
        }
    }
}

/// Grants an executor: what was asked for, or the next lower one that this host can run (`io-uring`, `gpu-reactor`,
/// `naive`), with coded warnings. [`Declared::resolve`], by its usual name.
///
/// A nap park counts as a word wait, also under [`Strictness::Strict`], and is told by an
/// [`ErrorCode::ParkFallback`] warning: the executor is the one asked for, only its waits cost more.
///
/// # Errors
///
/// [`ErrorCode::ExecutorRefused`] where `requested` cannot run here and strictness forbids another.
pub fn resolve(
    requested: ExecutorKind,
    strictness: Strictness,
    caps: &HostCaps,
) -> Result<Declared<ExecutorKind>, Error> {
    Declared::resolve(requested, strictness, caps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    use ExecutorKind::{GpuReactor, IoUring, Naive};

    #[test]
    fn every_request_is_granted_or_refused_as_tabled() {
        const WORD: HostCaps = HostCaps::WORD_WAIT;
        const NAP: HostCaps = HostCaps::NAP_PARK;
        const RING: HostCaps = HostCaps::IO_URING;
        // What a host offers, what is granted for gpu-reactor and for io-uring, whether these two park by naps.
        let table = [
            (HostCaps::empty(), Naive, Naive, false),
            (WORD, GpuReactor, GpuReactor, false),
            (NAP, GpuReactor, GpuReactor, true),
            (WORD.union(NAP), GpuReactor, GpuReactor, false),
            (RING, Naive, Naive, false),
            (RING.union(WORD), GpuReactor, IoUring, false),
            (RING.union(NAP), GpuReactor, IoUring, true),
            (RING.union(WORD).union(NAP), GpuReactor, IoUring, false),
        ];
        for (caps, gpu_reactor, io_uring, naps) in table {
            for (requested, granted) in [(Naive, Naive), (GpuReactor, gpu_reactor), (IoUring, io_uring)] {
                let mut codes = Vec::new();
                codes.extend((requested != granted).then_some(ErrorCode::ExecutorFallback));
                codes.extend((naps && granted != Naive).then_some(ErrorCode::ParkFallback));

                let declared = resolve(requested, Strictness::Fallback, &caps).unwrap();
                let context = format!("{requested} with {caps:?}: {declared:?}");
                assert_eq!((declared.requested(), declared.granted()), (requested, granted), "{context}");
                let seen: Vec<ErrorCode> = declared.warnings().iter().map(Error::code).collect();
                assert_eq!(seen, codes, "{context}");
                if requested != granted {
                    let args = declared.warnings()[0].args();
                    assert_eq!([&*args[0], &*args[2]], [requested.name(), granted.name()], "{context}");
                }

                let strict = resolve(requested, Strictness::Strict, &caps);
                if requested == granted {
                    let strict = strict.unwrap();
                    assert_eq!(strict.granted(), requested, "{context}");
                    assert_eq!(strict.warnings().len(), declared.warnings().len(), "{context}");
                } else {
                    let error = strict.unwrap_err();
                    assert_eq!(error.code(), ErrorCode::ExecutorRefused, "{context}");
                    assert_eq!(error.args()[0], requested.name(), "{context}");
                }
            }
        }
    }

    #[test]
    fn a_fallback_says_what_was_asked_why_not_and_what_runs() {
        let declared = resolve(IoUring, Strictness::Fallback, &HostCaps::empty()).unwrap();
        assert_eq!(
            declared.warnings()[0].to_string(),
            "executor `io-uring` cannot run here (neither io_uring nor a word wait; nor `gpu-reactor`: no word wait, \
             neither in hardware nor by naps): running `naive` instead"
        );
    }

    #[test]
    fn names_read_back_and_others_are_refused_with_help() {
        for (kind, name) in ExecutorKind::ALL.into_iter().zip(ExecutorKind::NAMES) {
            assert_eq!(kind.to_string(), name);
            assert_eq!(name.parse::<ExecutorKind>().unwrap(), kind);
        }
        for (text, column, meant) in [
            ("", "1", ""),
            ("gpu_reactor", "4", "did you mean `gpu-reactor`?"),
            ("gpu", "4", "did you mean `gpu-reactor`?"),
            ("naive ", "6", "did you mean `naive`?"),
            ("IO-URING", "1", "did you mean `io-uring`?"),
            ("iouring", "3", "did you mean `io-uring`?"),
            ("tokio", "1", ""),
        ] {
            let error = text.parse::<ExecutorKind>().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidExecutor);
            assert_eq!(error.args()[..2], [text, column]);
            assert!(error.args()[2].contains(meant), "{error}");
            assert_eq!(error.args()[2].contains("did you mean"), !meant.is_empty(), "{error}");
            assert!(error.args()[2].contains("`naive`, `gpu-reactor` or `io-uring`"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: String) {
            if let Err(error) = text.parse::<ExecutorKind>() {
                let column: usize = error.args()[1].parse().unwrap();
                prop_assert!((1..=text.chars().count() + 1).contains(&column), "{}", error);
            }
        }
    }
}

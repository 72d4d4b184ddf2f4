//! What work does to memory and to the host as it ends.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use wakeline_core::{Error, ErrorCode, Nanos};

use crate::table::Key;

/// A kernel of the simulated device: a closure of the host, and how long it runs. Clones are the same kernel.
///
/// The closure is called when the simulated work ends, without a lock held, by whichever thread lets time pass; while it runs
/// the device stands still. It must not wait for the device. Where it panics the device faults, with the panic's message.
///
/// ```
/// use wakeline_core::{CompletionPort, Nanos};
/// use wakeline_sim::{SimArg, SimConfig, SimDevice, SimKernel, VirtualTime};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::exact())?;
/// let stream = device.stream()?;
/// let add = SimKernel::new(Nanos::from_micros(20), |args| {
///     let word = args.word(1) as u8;
///     args.bytes_mut(0).iter_mut().for_each(|byte| *byte += word);
/// });
/// let (memory, pinned) = (stream.alloc(4)?, device.pinned(4)?);
/// stream.fill(&memory, 40)?;
/// stream.run(&add, &[SimArg::Write((&memory).into()), SimArg::Word(2)])?;
/// stream.download(&memory, &pinned, 4)?;
/// stream.point().block(None)?;
/// let mut bytes = [0; 4];
/// pinned.read(&mut bytes)?;
/// assert_eq!(bytes, [42; 4]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone)]
pub struct SimKernel {
    pub(crate) length: Nanos,
    pub(crate) code: Arc<dyn Fn(&mut SimArgs) + Send + Sync>,
    /// What it stands in for.
    pub(crate) name: Option<&'static str>,
    /// The bytes of each argument, where they are known.
    takes: Option<Arc<[usize]>>,
}

impl SimKernel {
    /// A kernel that runs for `length` and then does what `code` says.
    pub fn new(length: Nanos, code: impl Fn(&mut SimArgs) + Send + Sync + 'static) -> Self {
        Self { length, code: Arc::new(code), name: None, takes: None }
    }

    /// The same, in place of the kernel of this name: who is told that it panicked is told that.
    #[must_use]
    pub fn named(self, name: &'static str) -> Self {
        Self { name: Some(name), ..self }
    }

    /// Who it is, in errors.
    pub(crate) fn who(&self) -> String {
        self.name.map_or_else(
            || String::from("the closure of a kernel"),
            |name| format!("a closure in place of kernel `{name}`"),
        )
    }

    /// The same, which takes arguments of so many bytes each: a buffer has 8. Whoever binds it to others, or launches it with more or fewer, is told.
    #[must_use]
    pub fn taking(self, bytes: &[usize]) -> Self {
        Self { takes: Some(bytes.into()), ..self }
    }

    /// That it takes these.
    #[cfg(feature = "ops")]
    pub(crate) fn check_takes(&self, bytes: &[usize]) -> Result<(), Error> {
        match &self.takes {
            Some(takes) if **takes != *bytes => {
                let shown = |bytes: &[usize]| format!("{} argument(s) of {bytes:?} bytes", bytes.len());
                Err(mismatch(&shown(takes), &shown(bytes)))
            }
            _ => Ok(()),
        }
    }

    /// That it takes so many.
    pub(crate) fn check_count(&self, count: usize) -> Result<(), Error> {
        match &self.takes {
            Some(takes) if takes.len() != count => {
                Err(mismatch(&format!("{} argument(s)", takes.len()), &format!("{count}")))
            }
            _ => Ok(()),
        }
    }
}

#[cold]
fn mismatch(takes: &str, handed: &str) -> Error {
    Error::new(ErrorCode::KernelMismatch, [&"a closure", &takes, &handed])
}

impl fmt::Debug for SimKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimKernel").field("length", &self.length).finish_non_exhaustive()
    }
}

/// What a kernel was launched with: numbers and bytes, by the place of the argument, counted from 0.
///
/// An argument that is absent or of the other kind reads as nothing: 0, or no bytes.
#[derive(Debug, Default)]
pub struct SimArgs {
    pub(crate) args: Vec<Slot>,
    /// Each buffer once, however many arguments name it.
    pub(crate) buffers: Vec<(Key, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Slot {
    Word(u64),
    /// The bytes of a buffer from an offset on.
    Buffer(usize, usize),
}

impl SimArgs {
    /// The number at this place.
    pub fn word(&self, place: usize) -> u64 {
        match self.args.get(place) {
            Some(&Slot::Word(word)) => word,
            _ => 0,
        }
    }

    /// The bytes of the buffer at this place.
    pub fn bytes(&self, place: usize) -> &[u8] {
        match self.args.get(place) {
            Some(&Slot::Buffer(index, offset)) => {
                self.buffers.get(index).and_then(|(_, bytes)| bytes.get(offset..)).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// The bytes of the buffer at this place, to be changed.
    pub fn bytes_mut(&mut self, place: usize) -> &mut [u8] {
        match self.args.get(place) {
            Some(&Slot::Buffer(index, offset)) => {
                let bytes = self.buffers.get_mut(index).and_then(|(_, bytes)| bytes.get_mut(offset..));
                bytes.unwrap_or_default()
            }
            _ => &mut [],
        }
    }
}

/// Rows of one length, equally far apart on each side. All in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SimRows {
    /// How long each is.
    pub len: usize,
    /// How many there are.
    pub count: usize,
    /// From the beginning of one to that of the next, where they come from.
    pub from_pitch: usize,
    /// The same where they go.
    pub to_pitch: usize,
}

impl SimRows {
    /// One row.
    pub(crate) const fn one(len: usize) -> Self {
        Self { len, count: 1, from_pitch: len, to_pitch: len }
    }

    /// How many bytes there must be from an offset on, at this pitch.
    pub(crate) fn end(self, offset: usize, pitch: usize) -> usize {
        let Some(gaps) = self.count.checked_sub(1) else { return offset };
        gaps.saturating_mul(pitch).saturating_add(self.len).saturating_add(offset)
    }
}

/// What happens as work ends.
pub(crate) enum Job {
    Effect(Effect),
    Free(Key),
    Host(Box<dyn FnOnce() + Send>),
}

/// What may happen again and again: what graphs are made of.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// Writes these bytes again and again into the range.
    Fill(Key, Range<usize>, Arc<[u8]>),
    /// Copies rows, from one offset on to another.
    Copy {
        from: (Key, usize),
        to: (Key, usize),
        rows: SimRows,
    },
    Kernel(SimKernel, Vec<Slot>, Vec<Key>),
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Effect(_) => "Effect",
            Self::Free(..) => "Free",
            Self::Host(..) => "Host",
        })
    }
}

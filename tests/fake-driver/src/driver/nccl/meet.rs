//! What a stream does when it comes to a collective: leaves what its rank gives, waits for the others, takes what it gets.

use core::ffi::c_int;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::reduce::{Number, reduced};
use crate::driver::raw;
use crate::driver::state::State;

/// What is done, with the library's number of a reduction, a root or the other rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    AllReduce(c_int),
    AllGather,
    ReduceScatter(c_int),
    Broadcast(c_int),
    Reduce(c_int, c_int),
    Send(c_int),
    Receive(c_int),
}

impl What {
    /// The other rank, where it is between two.
    pub(super) fn peer(self) -> Option<usize> {
        match self {
            Self::Send(peer) | Self::Receive(peer) => usize::try_from(peer).ok(),
            _ => None,
        }
    }

    pub(super) const fn sends(self) -> bool {
        matches!(self, Self::Send(_))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) what: What,
    count: usize,
    number: Number,
}

impl Shape {
    pub(super) fn new(what: What, count: usize, number: c_int) -> Option<Self> {
        let number = Number::of(number)?;
        let how = match what {
            What::AllReduce(how) | What::ReduceScatter(how) | What::Reduce(how, _) => how,
            _ => 0,
        };
        (0..=4).contains(&how).then_some(Self { what, count, number })
    }

    const fn bytes(&self) -> usize {
        self.count * self.number.bytes()
    }
}

/// One rank's part, in a stream.
#[derive(Clone, Debug)]
pub(in crate::driver) struct Meet {
    pub(in crate::driver) comm: u64,
    pub(in crate::driver) rank: usize,
    pub(super) world: usize,
    /// Of the communicator's collectives this one, or of the messages between the two.
    pub(super) number: u64,
    pub(super) shape: Shape,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) folder: Arc<Path>,
}

impl Meet {
    pub(in crate::driver) fn reads(&self) -> Option<(u64, usize)> {
        let bytes = self.shape.bytes();
        match self.shape.what {
            What::Receive(_) => None,
            What::ReduceScatter(_) => Some((self.from, bytes * self.world)),
            _ => Some((self.from, bytes)),
        }
    }

    pub(in crate::driver) fn writes(&self) -> Option<(u64, usize)> {
        let bytes = self.shape.bytes();
        match self.shape.what {
            What::Send(_) => None,
            What::AllGather => Some((self.to, bytes * self.world)),
            What::Reduce(_, root) if usize::try_from(root) != Ok(self.rank) => None,
            _ => Some((self.to, bytes)),
        }
    }

    fn file(&self, rank: usize) -> PathBuf {
        self.folder.join(format!("c-{}-{rank}", self.number))
    }

    fn message(&self) -> Option<PathBuf> {
        let peer = self.shape.what.peer()?;
        let (from, to) = if self.shape.what.sends() { (self.rank, peer) } else { (peer, self.rank) };
        Some(self.folder.join(format!("p-{}-{from}-{to}", self.number)))
    }

    /// Leaves what it gives, whole or not at all. A device that has come to this has done what is before.
    pub(in crate::driver) fn post(&self) {
        let file = match self.shape.what {
            What::Receive(_) => return,
            What::Send(_) => self.message(),
            _ => Some(self.file(self.rank)),
        };
        let (Some(file), Some((from, bytes))) = (file, self.reads()) else { return };
        let mut text =
            format!("{:?}\n", (self.signature(), self.shape.count, self.shape.number)).into_bytes();
        text.extend(raw::read(from, bytes));
        let whole = file.with_extension("new");
        // Where that fails the others never see it, and a test ends by its deadline.
        let _ = fs::write(&whole, text).and_then(|()| fs::rename(&whole, &file));
        if self.shape.what.peer().is_none() && self.number > 2 {
            // All have read it: they have come to the one behind it.
            let _ = fs::remove_file(self.folder.join(format!("c-{}-{}", self.number - 2, self.rank)));
        }
    }

    /// What must be alike of all.
    fn signature(&self) -> String {
        match self.shape.what {
            What::Send(_) | What::Receive(_) => "message".to_owned(),
            what => format!("{what:?}"),
        }
    }

    /// Whether all that it needs of others is there.
    pub(in crate::driver) fn is_met(&self) -> bool {
        match self.shape.what {
            What::Send(_) => true,
            What::Receive(_) => self.message().is_some_and(|file| file.exists()),
            _ => (0..self.world).all(|rank| self.file(rank).exists()),
        }
    }

    fn read(&self, file: &Path) -> Result<Vec<u8>, String> {
        let text = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
        let (head, bytes) = text.split_at(end);
        let own = format!("{:?}", (self.signature(), self.shape.count, self.shape.number));
        if head != own.as_bytes() {
            return Err(format!("one rank does {own}, another {}", String::from_utf8_lossy(head)));
        }
        Ok(bytes.get(1..).unwrap_or_default().to_vec())
    }

    fn gets(&self) -> Result<Option<Vec<u8>>, String> {
        let bytes = self.shape.bytes();
        let each = || (0..self.world).map(|rank| self.read(&self.file(rank))).collect::<Result<Vec<_>, _>>();
        let number = self.shape.number;
        Ok(match self.shape.what {
            What::Send(_) => None,
            What::Receive(_) => {
                let Some(file) = self.message() else { return Ok(None) };
                let message = self.read(&file)?;
                let _ = fs::remove_file(file);
                Some(message)
            }
            What::AllReduce(how) | What::Reduce(how, _) => Some(reduced(number, how, &each()?)),
            What::AllGather => Some(each()?.concat()),
            What::ReduceScatter(how) => {
                let all = reduced(number, how, &each()?);
                Some(all.get(self.rank * bytes..(self.rank + 1) * bytes).unwrap_or_default().to_vec())
            }
            What::Broadcast(root) => each()?.into_iter().nth(usize::try_from(root).unwrap_or(usize::MAX)),
        })
    }
}

impl State {
    /// A rank's device has what the others give.
    pub(in crate::driver) fn exchange(&mut self, meet: &Meet) {
        // What was aborted does nothing.
        if !self.has_comm(meet.comm) {
            return;
        }
        match meet.gets() {
            Ok(Some(bytes)) => {
                if let Some((to, len)) = meet.writes() {
                    if len == bytes.len() && self.pages.holds(to, len) {
                        raw::write(to, &bytes);
                    } else {
                        self.violation(&format!(
                            "a collective writes to {to:#x}, which is no memory of {len} bytes"
                        ));
                    }
                }
            }
            Ok(None) => {}
            Err(what) => self.violation(&what),
        }
    }
}

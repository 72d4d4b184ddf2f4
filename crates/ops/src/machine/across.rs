//! Copies from one device of a machine to another.
//!
//! ```text
//!   direct   of the one   ──work──●
//!            of the other         └►──copy──►                        ● an event is recorded, ► a stream waits for it
//!
//!   staged   of the one   ──work──download 0──●──download 1──●─────►──download 2──●
//!            of the other                     └►──upload 0──●└►──upload 1──●       └►──upload 2──►
//! ```
//!
//! The copy is work of the device that it goes to: one submission there, in whose stream the copy or the uploads are. Downloads are a flight of their own of the device
//! that they come from, in a stream kept for that. All is enqueued at once, and the host waits for nothing; a block of pinned memory is filled again once the upload
//! out of it is done.

// A promise to the port, which the records of hazards keep.
#![allow(unsafe_code)]

use std::sync::Arc;

use smallvec::SmallVec;
use wakeline_core::{Error, ErrorCode, within};

use crate::events::Place;
use crate::hazard::Storage;
use crate::port::{At, Link, Memory, Peers, Promise};
use crate::runtime::Core;
use crate::stream::Stream;
use crate::submission::Submission;

/// How many bytes a block has by way of which memory goes where devices do not reach each other.
pub const STAGE_BYTES: usize = 4 << 20;

/// How many such blocks a copy has at most: one that is filled, one that is emptied, and one between.
pub const STAGES_MAX: usize = 3;

/// How many entries of a queue a piece takes on each side: a wait, the copy, the event behind it.
const PIECE_ENTRIES: u32 = 3;

impl<D: Peers> Submission<D> {
    /// Enqueues a copy of `len_bytes` from memory of any device of this one's [`Machine`](crate::Machine), from an offset on, to memory of this one; behind all that it
    /// conflicts with on either. Both live until it is done. Between memory of one device it is a copy as any.
    ///
    /// Where the driver lets the one reach the other it is one call; else it goes through [`STAGES_MAX`] blocks of [`STAGE_BYTES`] pinned memory at most, of
    /// the pool of the device that it comes from. The first copy between two devices has them linked, which may take milliseconds: see
    /// [`Machine::link`](crate::Machine::link). When the work has landed the other device is asked for its health, a call of the driver: where it has faulted, this operation
    /// fails with that, and so does each that uses what was written.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](ErrorCode::InvalidLimit) where it goes beyond the end of either: nothing is written then;
    /// [`ForeignMemory`](ErrorCode::ForeignMemory) where `from` is of no device of the machine, or `to` not of this one;
    /// [`CaptureRefused`](ErrorCode::CaptureRefused) where it is recorded in a graph; what either device says.
    pub fn copy_across(
        &mut self,
        from: (&Arc<Storage<D>>, usize),
        to: (&Arc<Storage<D>>, usize),
        len_bytes: usize,
    ) -> Result<(), Error> {
        for (memory, start) in [from, to] {
            // Before a first piece is written, where it goes in pieces.
            within("the end of a copy, in bytes,", start.saturating_add(len_bytes), 0, memory.len_bytes())?;
        }
        let own = Arc::clone(self.stream.core());
        if !to.0.is_of(&own) {
            return Err(Error::new(ErrorCode::ForeignMemory, []));
        }
        if from.0.is_of(&own) {
            return self.touch(&[from.0.read(), to.0.write()], |device, stream| {
                // SAFETY: `touch` orders what else uses the two, and keeps them.
                let promise = unsafe { Promise::new() };
                device.copy(stream, at(from), at(to), len_bytes, promise)
            });
        }
        self.not_recorded(&"a copy from another device", &"copy before the capture, and hand the memory in")?;
        let source = Arc::clone(from.0.core());
        // Of one machine are those that know of each other's gates.
        let kin = self.stream.kin().filter(|_| Arc::ptr_eq(&source.gates, &own.gates)).cloned();
        let Some(kin) = kin else { return Err(Error::new(ErrorCode::ForeignMemory, [])) };
        // Before anything is enqueued: whatever happens from here on.
        self.comes_from(&source);
        if len_bytes == 0 {
            return Ok(());
        }
        match kin.link(&own, &source)? {
            Link::Direct => self.touch_from(from.0, to.0, |device, stream| {
                // SAFETY: `touch_from` orders what else uses the two, and keeps them.
                let promise = unsafe { Promise::new() };
                device.copy_peer(stream, (&source.device, at(from)), at(to), len_bytes, promise)
            }),
            Link::Staged => {
                let ferry = kin.ferry(&source)?;
                self.copy_staged(&source, &ferry, from, to, len_bytes)
            }
        }
    }

    fn copy_staged(
        &mut self,
        source: &Arc<Core<D>>,
        ferry: &Stream<D>,
        from: (&Arc<Storage<D>>, usize),
        to: (&Arc<Storage<D>>, usize),
        len_bytes: usize,
    ) -> Result<(), Error> {
        let pieces = len_bytes.div_ceil(STAGE_BYTES);
        let mut stages: SmallVec<[Stage<D>; STAGES_MAX]> = SmallVec::new();
        for _ in 0..pieces.min(STAGES_MAX) {
            let pinned = Arc::new(source.device.pinned(len_bytes.min(STAGE_BYTES))?);
            stages.push(Stage { pinned, emptied: None });
        }
        source.device.ready(ferry.raw())?;
        let mut away = Submission::new(ferry.clone(), ferry.lane().admit_anyway(1));
        for Stage { pinned, .. } in &stages {
            away.retain_shared(pinned);
            self.retain_shared(pinned);
        }
        let count = stages.len();
        for piece in 0..pieces {
            let Some(Stage { pinned, emptied }) = stages.get_mut(piece % count) else { break };
            let done = piece * STAGE_BYTES;
            let bytes = (len_bytes - done).min(STAGE_BYTES);
            away.room(PIECE_ENTRIES)?;
            if let Some(emptied) = emptied.take() {
                away.wait_behind(&self.stream, emptied)?;
            }
            away.touch(&[from.0.read()], |device, stream| {
                // SAFETY: `touch` orders what else uses the memory, and keeps it; the block is kept, and what was uploaded from it before is waited for.
                let promise = unsafe { Promise::new() };
                device.download(stream, at(from).further(done), At::from(&**pinned), bytes, promise)
            })?;
            let filled = away.record()?;
            self.room(PIECE_ENTRIES)?;
            self.wait_behind(ferry, filled)?;
            self.touch(&[to.0.write()], |device, stream| {
                // SAFETY: as above; what was downloaded to the block is waited for, and it is filled again only behind this.
                let promise = unsafe { Promise::new() };
                device.upload(stream, At::from(&**pinned), at(to).further(done), bytes, promise)
            })?;
            *emptied = Some(self.record()?);
        }
        Ok(())
    }
}

/// A block by way of which pieces go.
struct Stage<D: Memory> {
    pinned: Arc<D::Pinned>,
    /// The place behind the last upload from it.
    emptied: Option<Place>,
}

fn at<D: Memory>((storage, offset_bytes): (&Arc<Storage<D>>, usize)) -> At<'_, D::Buffer> {
    At { memory: storage.buffer(), offset_bytes }
}

//! The library's calls for communicators: which they are, and what they come to.

use core::ffi::{c_int, c_void};
use core::ptr;

use wakeline_core::{Error, ErrorCode};
use wakeline_ops::port::Kind;

use super::club::RawPart;
use super::library::{CollectiveLibrary, CollectiveVendor};
use super::sys::{IN_PROGRESS, RawComm, RawConfig, RawId, RawResult, SUCCESS, raw_number, raw_reduce};
use crate::stream::Stream;

/// A communicator of one rank, as the library has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comm(RawComm);

// SAFETY: the library's communicators may be used from any thread, one at a time but for an abort, by its manual; who uses one is the crew, or who aborts in its place.
unsafe impl Send for Comm {}
// SAFETY: as above.
unsafe impl Sync for Comm {}

/// What a call has come to that may not have ended yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    Done,
    /// The library is at it.
    Under,
}

fn progress<V: CollectiveVendor>(
    library: &CollectiveLibrary<V>,
    call: &str,
    result: RawResult,
) -> Result<Progress, Error> {
    match result {
        SUCCESS => Ok(Progress::Done),
        IN_PROGRESS => Ok(Progress::Under),
        failed => Err(library.failed(call, failed)),
    }
}

/// A number of ranks, as the library counts.
fn count(number: usize) -> Result<c_int, Error> {
    c_int::try_from(number)
        .map_err(|_| Error::new(ErrorCode::InvalidLimit, [&"a rank", &number, &0, &c_int::MAX]))
}

/// Calls `calls` in one group.
pub(super) fn group<V: CollectiveVendor>(
    library: &CollectiveLibrary<V>,
    calls: impl FnOnce() -> Result<(), Error>,
) -> Result<Progress, Error> {
    let functions = &library.loaded.functions;
    // SAFETY: it takes nothing; this thread is in no group.
    progress(library, "ncclGroupStart", unsafe { (functions.group_start)() })?;
    let called = calls();
    // SAFETY: the group was begun on this thread.
    let ended = progress(library, "ncclGroupEnd", unsafe { (functions.group_end)() });
    called.and(ended)
}

impl Comm {
    pub(super) const NONE: Self = Self(ptr::null_mut());

    pub(super) const fn is_none(self) -> bool {
        self.0.is_null()
    }

    /// Begins to join, with the rank's device bound.
    ///
    /// # Safety
    ///
    /// The rank's context is bound. `room` stays where it is until the group has ended that this is called in.
    pub(super) unsafe fn begin<V: CollectiveVendor>(
        room: &mut Self,
        library: &CollectiveLibrary<V>,
        world: usize,
        id: RawId,
        rank: usize,
    ) -> Result<(), Error> {
        if let Some(init) = library.loaded.functions.init_config {
            let (world, rank) = (count(world)?, count(rank)?);
            let mut config = RawConfig::nonblocking();
            // SAFETY: the device is bound, the room stays, and the configuration is read in the call.
            let result = unsafe { init(&raw mut room.0, world, id, rank, &raw mut config) };
            return progress(library, "ncclCommInitRankConfig", result).map(drop);
        }
        // SAFETY: as the caller says.
        unsafe { Self::begin_blocking(room, library, world, id, rank) }
    }

    /// The same of a communicator whose calls come back once they have ended.
    ///
    /// # Safety
    ///
    /// As [`begin`](Self::begin).
    pub(super) unsafe fn begin_blocking<V: CollectiveVendor>(
        room: &mut Self,
        library: &CollectiveLibrary<V>,
        world: usize,
        id: RawId,
        rank: usize,
    ) -> Result<(), Error> {
        let (world, rank) = (count(world)?, count(rank)?);
        // SAFETY: the device is bound, and the room stays.
        let result = unsafe { (library.loaded.functions.init)(&raw mut room.0, world, id, rank) };
        progress(library, "ncclCommInitRank", result).map(drop)
    }

    /// How it is, which is rank `rank`, and what it is at.
    pub(super) fn state<V: CollectiveVendor>(
        self,
        library: &CollectiveLibrary<V>,
        rank: usize,
    ) -> Result<Progress, Error> {
        if self.is_none() {
            return Ok(Progress::Done);
        }
        let mut state = SUCCESS;
        // SAFETY: the communicator was neither aborted nor destroyed, and `state` is a number's room.
        let asked = unsafe { (library.loaded.functions.async_error)(self.0, &raw mut state) };
        progress(library, "ncclCommGetAsyncError", asked)?;
        match state {
            SUCCESS => Ok(Progress::Done),
            IN_PROGRESS => Ok(Progress::Under),
            failed => Err(library.failed(&format!("rank {rank}"), failed)),
        }
    }

    /// Hands a part over.
    ///
    /// # Safety
    ///
    /// The rank's context is bound. The memory stays until what is enqueued on `stream` is done, and nothing else touches it that would conflict.
    pub(super) unsafe fn hand_over<V: CollectiveVendor>(
        self,
        library: &CollectiveLibrary<V>,
        stream: &Stream<V>,
        part: &RawPart,
    ) -> Result<(), Error> {
        let functions = &library.loaded.functions;
        let number = raw_number(part.number);
        let (from, to, len, comm) = (part.from(), part.to(), part.count, self.0);
        let stream: *mut c_void = stream.raw().as_ptr();
        let (call, result) = match part.kind {
            Kind::AllReduce(how) => {
                // SAFETY: as the caller says: both are of `len` numbers.
                let called =
                    unsafe { (functions.all_reduce)(from, to, len, number, raw_reduce(how), comm, stream) };
                ("ncclAllReduce", called)
            }
            Kind::AllGather => {
                // SAFETY: as the caller says: what is read is of `len` numbers, what is written of as many of each rank.
                let called = unsafe { (functions.all_gather)(from, to, len, number, comm, stream) };
                ("ncclAllGather", called)
            }
            Kind::ReduceScatter(how) => {
                // SAFETY: as the caller says: what is written is of `len` numbers, what is read of as many for each rank.
                let called = unsafe {
                    (functions.reduce_scatter)(from, to, len, number, raw_reduce(how), comm, stream)
                };
                ("ncclReduceScatter", called)
            }
            Kind::Broadcast(root) => {
                let root = count(root)?;
                // SAFETY: as the caller says: both are of `len` numbers.
                ("ncclBroadcast", unsafe { (functions.broadcast)(from, to, len, number, root, comm, stream) })
            }
            Kind::Reduce(how, root) => {
                let (how, root) = (raw_reduce(how), count(root)?);
                // SAFETY: as the caller says: both are of `len` numbers.
                ("ncclReduce", unsafe { (functions.reduce)(from, to, len, number, how, root, comm, stream) })
            }
            Kind::Send(peer) => {
                let peer = count(peer)?;
                // SAFETY: as the caller says: it is of `len` numbers.
                ("ncclSend", unsafe { (functions.send)(from, len, number, peer, comm, stream) })
            }
            Kind::Receive(peer) => {
                let peer = count(peer)?;
                // SAFETY: as the caller says: it is of `len` numbers.
                ("ncclRecv", unsafe { (functions.receive)(to, len, number, peer, comm, stream) })
            }
        };
        progress(library, call, result).map(drop)
    }

    /// Has the library end what it is at, and forget the communicator. What that comes to is nobody's: it had failed before.
    pub(super) fn abort<V: CollectiveVendor>(self, library: &CollectiveLibrary<V>) {
        if !self.is_none() {
            // SAFETY: it was neither aborted nor destroyed before, and is not used any more.
            let _ = unsafe { (library.loaded.functions.abort)(self.0) };
        }
    }

    /// Begins to leave, where the library has calls that come back at once.
    pub(super) fn finalize<V: CollectiveVendor>(
        self,
        library: &CollectiveLibrary<V>,
    ) -> Result<Progress, Error> {
        match library.loaded.functions.finalize {
            Some(finalize) if !self.is_none() && library.is_nonblocking() => {
                // SAFETY: it was neither aborted nor destroyed, and nothing is enqueued any more.
                progress(library, "ncclCommFinalize", unsafe { finalize(self.0) })
            }
            _ => Ok(Progress::Done),
        }
    }

    /// Leaves.
    pub(super) fn destroy<V: CollectiveVendor>(self, library: &CollectiveLibrary<V>) {
        if !self.is_none() {
            // SAFETY: as for an abort. A failure is nobody's: it has left.
            let _ = unsafe { (library.loaded.functions.destroy)(self.0) };
        }
    }
}

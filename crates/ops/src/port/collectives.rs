//! Devices that compute together: what operations over several ranks need of them.

use core::fmt;
use std::any::Any;
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode};

use super::{At, Memory};
pub use crate::collective::{Assembly, Beginning, Signature, Ticket};

/// How many bytes a [`UniqueId`] has: as NVIDIA's and AMD's libraries have it.
pub const UNIQUE_ID_BYTES: usize = 128;

/// What ranks of several processes find each other by. Made once, by any of them, and handed to the others as bytes.
///
/// Whoever knows it can join, so it goes by a way that is trusted.
///
/// ```
/// use wakeline_ops::port::UniqueId;
/// let id = UniqueId::from_bytes([7; 128]);
/// assert_eq!(UniqueId::from_bytes(*id.as_bytes()), id);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UniqueId([u8; UNIQUE_ID_BYTES]);

impl UniqueId {
    /// One that another process has made.
    pub const fn from_bytes(bytes: [u8; UNIQUE_ID_BYTES]) -> Self {
        Self(bytes)
    }

    /// To be handed to other processes.
    pub const fn as_bytes(&self) -> &[u8; UNIQUE_ID_BYTES] {
        &self.0
    }
}

impl fmt::Debug for UniqueId {
    /// Not its bytes: they are a secret of those who join.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UniqueId").finish_non_exhaustive()
    }
}

/// What numbers collectives are of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Number {
    /// `i8`
    I8,
    /// `u8`
    U8,
    /// `i32`
    I32,
    /// `u32`
    U32,
    /// `i64`
    I64,
    /// `u64`
    U64,
    /// `f16` of the crate `half`
    F16,
    /// `bf16` of the crate `half`
    Bf16,
    /// `f32`
    F32,
    /// `f64`
    F64,
}

impl Number {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::I8,
        Self::U8,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
    ];

    /// How many bytes one has.
    pub const fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

/// How numbers of all ranks become one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reduce {
    /// Their sum. Whole numbers wrap.
    Sum,
    /// Their product. Whole numbers wrap.
    Prod,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// Their sum by how many ranks there are; of whole numbers the part behind the point is cut off.
    Avg,
}

/// What ranks do together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Every rank gets the reduction of all. `count` numbers each.
    AllReduce(Reduce),
    /// Every rank gets those of all, in the order of ranks: `count` of each.
    AllGather,
    /// Every rank gets its part of the reduction of all: `count` numbers of `count` by the number of ranks.
    ReduceScatter(Reduce),
    /// Every rank gets those of this one.
    Broadcast(usize),
    /// This rank gets the reduction of all.
    Reduce(Reduce, usize),
    /// To this rank.
    Send(usize),
    /// From this rank.
    Receive(usize),
}

impl Kind {
    /// What messages call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce(_) => "all-reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter(_) => "reduce-scatter",
            Self::Broadcast(_) => "broadcast",
            Self::Reduce(..) => "reduce",
            Self::Send(_) => "send",
            Self::Receive(_) => "receive",
        }
    }

    /// The other rank, where it is between two.
    pub const fn peer(self) -> Option<usize> {
        match self {
            Self::Send(peer) | Self::Receive(peer) => Some(peer),
            _ => None,
        }
    }
}

/// What one rank does of a collective: one of all ranks by itself, or several between two at a time.
#[derive(Debug)]
pub struct Part<'a, B> {
    /// What is done.
    pub kind: Kind,
    /// Of what.
    pub number: Number,
    /// Of how many, as [`Kind`] says.
    pub count: usize,
    /// What this rank gives. Of a broadcast and a reduction in place the same as `to`.
    pub from: Option<At<'a, B>>,
    /// What this rank gets.
    pub to: Option<At<'a, B>>,
}

impl<B> Clone for Part<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Part<'_, B> {}

/// A rank of this process that is to join.
#[derive(Debug)]
pub struct Seat<D> {
    /// Its number among all.
    pub rank: usize,
    /// Its device, which no other rank of the communicator has.
    pub device: D,
}

/// What goes with a rank's parts.
#[derive(Debug)]
pub struct Work<'a, H> {
    /// What was [prepared](Collectives::prepare) for it; the submission keeps it.
    pub held: &'a H,
    /// To be ended.
    pub ticket: &'a Arc<Ticket>,
    /// What the parts touch.
    pub kept: Kept,
}

/// What parts touch, to be kept by whoever has to leak it.
pub type Kept = Arc<dyn Any + Send + Sync>;

/// A device that computes together with others, by ranks of a communicator.
///
/// All ranks of one communicator are handed their parts in one order. Those of one process are told apart by their seat, the place in which they were handed to
/// [`join`](Self::join).
pub trait Collectives: Memory {
    /// What connects them: a library that is loaded, say. Clones are the same.
    type Library: Clone + Send + Sync + 'static;
    /// The ranks of this process, in one communicator.
    ///
    /// Dropping it leaves: that MUST NOT wait, and what is enqueued ends as if it were still there.
    type Member: Send + Sync + 'static;
    /// What an enqueued part needs to live until the work of its submission is done.
    type Held: Send + 'static;
    /// How many entries of its stream's queue a part takes at most.
    const ENTRIES: u32;

    /// An id for ranks of several processes. MAY wait for the network's interfaces: tens of milliseconds.
    ///
    /// # Errors
    ///
    /// What the library says.
    fn unique_id(library: &Self::Library) -> Result<UniqueId, Error>;

    /// Begins to join; `joined` is ended when all ranks are there, or that cannot be. `id` is absent where all ranks are of this process.
    ///
    /// MUST NOT wait. What is dropped before it has joined MUST give up.
    ///
    /// # Errors
    ///
    /// What can be told at once.
    fn join(
        library: &Self::Library,
        seats: Vec<Seat<Self>>,
        world: usize,
        id: Option<&UniqueId>,
        joined: &Arc<Ticket>,
    ) -> Result<Self::Member, Error>;

    /// Makes what the rank in this seat needs for one thing that it does in this stream. MUST NOT wait. Never called under a lock.
    ///
    /// # Errors
    ///
    /// What a call says.
    fn prepare(member: &Self::Member, seat: usize, stream: &Self::Stream) -> Result<Self::Held, Error>;

    /// Enqueues what the rank in this seat does, as one: either one part of all ranks, or several between two.
    ///
    /// MUST NOT wait, neither for the device nor for other ranks or the library. What is enqueued in `stream` afterwards runs behind it. `ticket` MUST be ended: well behind
    /// it, or by a failure, and a failure MUST be told before the stream goes on. Where nobody can ever know that a device is done with the memory, `kept` MUST be leaked.
    ///
    /// # Errors
    ///
    /// The communicator's first failure; what a call says. Nothing is enqueued then that other work of the stream has to wait for.
    ///
    /// # Promise
    ///
    /// As [`Memory::copy`], for all that is named; parts lie within their buffers, and none is of another kind than the others.
    fn enqueue(
        member: &Self::Member,
        seat: usize,
        stream: &Self::Stream,
        parts: &[Part<'_, Self::Buffer>],
        work: Work<'_, Self::Held>,
        promise: super::Promise,
    ) -> Result<(), Error>;

    /// Ends the communicator with this cause, unless it has failed before: all that is under way fails so, its streams go on, and nothing is enqueued any more.
    ///
    /// MUST NOT wait, and MAY be called from any thread.
    fn abort(member: &Self::Member, cause: &Error);

    /// Lets all streams go on that still wait, though nobody knows whether the library is done with their memory, which is leaked. Called where an abort did not end in
    /// [`GIVE_UP_MS`](crate::GIVE_UP_MS). MUST NOT wait. Provided: does nothing, for devices whose aborts end at once.
    fn give_up(member: &Self::Member) {
        let _ = member;
    }

    /// Whether it is well. MUST give the first failure once there is one, and MUST NOT wait.
    ///
    /// # Errors
    ///
    /// The first failure.
    fn well(member: &Self::Member) -> Result<(), Error>;
}

/// That ranks are all of them once at most, and of this many.
///
/// # Errors
///
/// [`InvalidCollective`](ErrorCode::InvalidCollective), [`InvalidLimit`](ErrorCode::InvalidLimit).
pub(crate) fn check_ranks(ranks: &[usize], world: usize) -> Result<(), Error> {
    wakeline_core::within("ranks of a communicator", world, 1, crate::collective::RANKS_MAX)?;
    let wrong =
        |what: &str| Err(Error::new(ErrorCode::InvalidCollective, [&"joining a communicator", &what]));
    if ranks.is_empty() {
        return wrong("a process has one rank at least");
    }
    for (at, rank) in ranks.iter().enumerate() {
        if *rank >= world {
            return wrong(&format!("rank {rank} is beyond the last of {world}, which is {}", world - 1));
        }
        if ranks.iter().skip(at + 1).any(|other| other == rank) {
            return wrong(&format!("rank {rank} is there twice: each has a number of its own"));
        }
    }
    Ok(())
}

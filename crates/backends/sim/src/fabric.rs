//! What connects simulated devices: ranks that meet, and what they compute together, in plain code of the host.
//!
//! ```text
//!   each rank's stream:  ──reads what it gives, tells the meeting──► waits for its gate ──► writes what it gets──►
//!                                        │ the last to come            ▲
//!                                        └─► computes, opens all gates ┘◄── or somebody aborts: nothing is written, and it is told
//! ```
//!
//! The devices of one meeting are of one time line; the gates of all open at the simulated time at which the last has come. Numbers are reduced in the order of ranks, so the same
//! run gives the same bits.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;

use half::{bf16, f16};
use wakeline_core::{Error, ErrorCode, Nanos};
use wakeline_ops::port::{
    Assembly, Collectives, Kind, Number, Part, Promise, Reduce, Seat, Signature, Ticket, UNIQUE_ID_BYTES,
    UniqueId, Work,
};

use crate::access::{SimArg, SimAt, SimMemory};
use crate::device::SimDevice;
use crate::gate::SimGate;
use crate::job::{SimArgs, SimKernel};
use crate::stream::SimStream;
use crate::sync::Lock;
use crate::time::{TimeLine, VirtualTime};

/// How long a collective takes once all have come, where nothing else is said.
pub const COLLECTIVE_NS: u64 = 20_000;

/// What connects simulated devices of one time line, as a library of collectives connects real ones. Clones are the same.
///
/// Ranks that join by the id of one fabric meet; those of another never do.
///
/// ```
/// use wakeline_core::ErrorCode;
/// use wakeline_ops::port::Collectives;
/// use wakeline_ops::{CollectiveConfig, Ranks, Runtime, SingleStream};
/// use wakeline_sim::{SimConfig, SimDevice, SimFabric, VirtualTime, VirtualWatcher};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let watcher = VirtualWatcher::new(&device);
/// let runtime = Runtime::new(device, &SingleStream, watcher.clone())?;
/// let fabric = SimFabric::new();
/// let id = SimDevice::unique_id(&fabric)?;
/// // The other of two never comes.
/// let joining = Ranks::join(&fabric, &id, 2, vec![(0, runtime)], CollectiveConfig::default());
/// assert_eq!(watcher.run(joining)?.unwrap_err().code(), ErrorCode::RankMissing);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub struct SimFabric<T: TimeLine = VirtualTime> {
    inner: Arc<Inner<T>>,
    length: Nanos,
}

struct Inner<T: TimeLine>(Lock<Meetings<T>>);

struct Meetings<T: TimeLine> {
    ids_made: u64,
    by_id: BTreeMap<[u8; UNIQUE_ID_BYTES], Weak<Meeting<T>>>,
}

impl<T: TimeLine> SimFabric<T> {
    /// A fabric whose collectives take [`COLLECTIVE_NS`] once all have come.
    pub fn new() -> Self {
        Self::taking(Nanos::from_nanos(COLLECTIVE_NS))
    }

    /// A fabric whose collectives take this long once all have come.
    pub fn taking(length: Nanos) -> Self {
        let meetings = Meetings { ids_made: 0, by_id: BTreeMap::new() };
        Self { inner: Arc::new(Inner(Lock::new(meetings))), length }
    }
}

impl<T: TimeLine> Default for SimFabric<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: TimeLine> Clone for SimFabric<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), length: self.length }
    }
}

impl<T: TimeLine> fmt::Debug for SimFabric<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimFabric").field("length", &self.length).finish_non_exhaustive()
    }
}

/// Where the ranks of one communicator meet.
struct Meeting<T: TimeLine> {
    world: usize,
    length: Nanos,
    state: Lock<Attendance<T>>,
}

struct Attendance<T: TimeLine> {
    joined: BTreeSet<usize>,
    /// Who waits for all to be there, with their ranks.
    joining: Vec<(Vec<usize>, Arc<Ticket>)>,
    failed: Option<Error>,
    assembly: Assembly<Arrived<T>>,
    /// What was enqueued and has not ended.
    under_way: Vec<Arc<Coming<T>>>,
}

/// A rank that has come to what it does, and what it gives, part by part.
type Arrived<T> = (Arc<Coming<T>>, Vec<Vec<u8>>);

/// What one rank does at one time.
struct Coming<T: TimeLine> {
    rank: usize,
    parts: Vec<Signature>,
    /// Kept by the flight.
    gate: Weak<SimGate<T>>,
    ticket: Arc<Ticket>,
    /// What each part that gets something gets, once all have come.
    gets: Lock<Option<Vec<Vec<u8>>>>,
}

impl<T: TimeLine> Coming<T> {
    fn open(&self) {
        if let Some(gate) = self.gate.upgrade() {
            gate.open();
        }
    }
}

impl<T: TimeLine> Meeting<T> {
    fn new(world: usize, length: Nanos) -> Arc<Self> {
        let state = Attendance {
            joined: BTreeSet::new(),
            joining: Vec::new(),
            failed: None,
            assembly: Assembly::new((0..world).collect()),
            under_way: Vec::new(),
        };
        Arc::new(Self { world, length, state: Lock::new(state) })
    }

    /// These ranks are there.
    fn join(&self, ranks: &[usize], joined: &Arc<Ticket>) -> Result<(), Error> {
        let told = {
            let mut state = self.state.lock();
            if let Some(failed) = &state.failed {
                return Err(failed.clone());
            }
            if let Some(rank) = ranks.iter().find(|rank| state.joined.contains(rank)) {
                return Err(joining(&format!("rank {rank} has joined before: each has a number of its own")));
            }
            state.joined.extend(ranks);
            state.joining.push((ranks.to_vec(), Arc::clone(joined)));
            if state.joined.len() < self.world { Vec::new() } else { core::mem::take(&mut state.joining) }
        };
        for (_, ticket) in told {
            ticket.end(Ok(()));
        }
        Ok(())
    }

    /// These ranks are gone.
    fn leave(&self, ranks: &[usize]) {
        let mut state = self.state.lock();
        if state.joined.len() < self.world {
            state.joined.retain(|rank| !ranks.contains(rank));
            state.joining.retain(|(its, _)| its != ranks);
        }
    }

    /// A rank's stream has come to this, with what it gives.
    fn arrive(&self, coming: &Arc<Coming<T>>, gives: Vec<Vec<u8>>) {
        let (mut met, mut failed) = (Vec::new(), None);
        {
            let mut state = self.state.lock();
            if state.failed.is_some() {
                return;
            }
            state.assembly.push(coming.rank, coming.parts.clone(), (Arc::clone(coming), gives));
            loop {
                match state.assembly.take_next() {
                    Ok(Some(together)) => {
                        met.push(together.into_iter().map(|(_, one)| one).collect::<Vec<_>>());
                    }
                    Ok(None) => break,
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
        }
        for together in met {
            exchange(&together);
            for (coming, _) in &together {
                coming.open();
            }
        }
        if let Some(error) = failed {
            self.fail(&error);
        }
    }

    /// A rank has what it gets, if it was to get anything.
    fn deliver(&self, coming: &Arc<Coming<T>>, args: &mut SimArgs) {
        if let Some(gets) = coming.gets.lock().take() {
            for (place, bytes) in gets.iter().enumerate() {
                if let Some(to) = args.bytes_mut(place).get_mut(..bytes.len()) {
                    to.copy_from_slice(bytes);
                }
            }
            coming.ticket.end(Ok(()));
        }
        self.state.lock().under_way.retain(|other| !Arc::ptr_eq(other, coming));
    }

    /// All that is under way fails so.
    fn fail(&self, cause: &Error) {
        let (joining, left, waiting);
        {
            let mut state = self.state.lock();
            if state.failed.is_some() {
                return;
            }
            state.failed = Some(cause.clone());
            joining = core::mem::take(&mut state.joining);
            left = core::mem::take(&mut state.under_way);
            waiting = state.assembly.drain();
        }
        for (_, ticket) in &joining {
            ticket.end(Err(cause.clone()));
        }
        for coming in &left {
            // What it gets is there: that was done.
            if coming.gets.lock().is_none() {
                coming.ticket.end(Err(cause.clone()));
            }
            coming.open();
        }
        drop(waiting);
    }
}

fn joining(wrong: &str) -> Error {
    Error::new(ErrorCode::InvalidCollective, [&"joining a communicator", &wrong])
}

/// The ranks of one process in a meeting of simulated devices.
pub struct SimMember<T: TimeLine> {
    meeting: Arc<Meeting<T>>,
    ranks: Vec<usize>,
}

impl<T: TimeLine> Drop for SimMember<T> {
    fn drop(&mut self) {
        self.meeting.leave(&self.ranks);
    }
}

impl<T: TimeLine> fmt::Debug for SimMember<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimMember").field("ranks", &self.ranks).finish_non_exhaustive()
    }
}

impl<T: TimeLine + Send + Sync + 'static> Collectives for SimDevice<T> {
    type Library = SimFabric<T>;
    type Member = SimMember<T>;
    type Held = Arc<SimGate<T>>;
    /// What it gives, the gate, what it gets.
    const ENTRIES: u32 = 3;

    fn unique_id(fabric: &SimFabric<T>) -> Result<UniqueId, Error> {
        let mut meetings = fabric.inner.0.lock();
        meetings.ids_made += 1;
        let mut bytes = [0; UNIQUE_ID_BYTES];
        for (byte, from) in bytes.iter_mut().zip(meetings.ids_made.to_le_bytes()) {
            *byte = from;
        }
        Ok(UniqueId::from_bytes(bytes))
    }

    fn join(
        fabric: &SimFabric<T>,
        seats: Vec<Seat<Self>>,
        world: usize,
        id: Option<&UniqueId>,
        joined: &Arc<Ticket>,
    ) -> Result<SimMember<T>, Error> {
        let ranks: Vec<usize> = seats.iter().map(|seat| seat.rank).collect();
        let meeting = match id {
            None => Meeting::new(world, fabric.length),
            Some(id) => {
                let mut meetings = fabric.inner.0.lock();
                meetings.by_id.retain(|_, meeting| meeting.strong_count() > 0);
                let found = meetings.by_id.get(id.as_bytes()).and_then(Weak::upgrade);
                found.unwrap_or_else(|| {
                    let meeting = Meeting::new(world, fabric.length);
                    meetings.by_id.insert(*id.as_bytes(), Arc::downgrade(&meeting));
                    meeting
                })
            }
        };
        if meeting.world != world {
            let others = meeting.world;
            return Err(joining(&format!(
                "it is to have {world} ranks, but {others} for those who came before"
            )));
        }
        meeting.join(&ranks, joined)?;
        Ok(SimMember { meeting, ranks })
    }

    fn prepare(_: &SimMember<T>, _: usize, stream: &SimStream<T>) -> Result<Arc<SimGate<T>>, Error> {
        stream.device().gate().map(Arc::new)
    }

    /// What is enqueued of it when a later call fails does nothing but read: its device has faulted then, or its queue is full, for which there was room.
    fn enqueue(
        member: &SimMember<T>,
        seat: usize,
        stream: &SimStream<T>,
        parts: &[Part<'_, SimMemory>],
        Work { held: gate, ticket, .. }: Work<'_, Arc<SimGate<T>>>,
        _: Promise,
    ) -> Result<(), Error> {
        let meeting = &member.meeting;
        let rank = member.ranks.get(seat).copied().unwrap_or(usize::MAX);
        let signature =
            |part: &Part<'_, _>| Signature { kind: part.kind, number: part.number, count: part.count };
        let coming = Arc::new(Coming {
            rank,
            parts: parts.iter().map(signature).collect(),
            gate: Arc::downgrade(gate),
            ticket: Arc::clone(ticket),
            gets: Lock::new(None),
        });
        {
            let mut state = meeting.state.lock();
            if let Some(failed) = &state.failed {
                return Err(failed.clone());
            }
            state.under_way.push(Arc::clone(&coming));
        }
        let lengths: Vec<usize> = parts
            .iter()
            .filter(|part| part.from.is_some())
            .map(|part| part.number.bytes() * part.count * times(part.kind, true, meeting.world))
            .collect();
        let (its, who) = (Arc::clone(meeting), Arc::clone(&coming));
        let gives = SimKernel::new(Nanos::ZERO, move |args| {
            let give =
                |(place, len): (usize, &usize)| args.bytes(place).get(..*len).unwrap_or_default().to_vec();
            its.arrive(&who, lengths.iter().enumerate().map(give).collect());
        });
        let (its, who) = (Arc::clone(meeting), coming);
        let gets = SimKernel::new(meeting.length, move |args| its.deliver(&who, args));
        let at = |at: wakeline_ops::port::At<'_, SimMemory>| (at.memory.clone(), at.offset_bytes);
        let from: Vec<_> = parts.iter().filter_map(|part| part.from.map(at)).collect();
        let to: Vec<_> = parts.iter().filter_map(|part| part.to.map(at)).collect();
        let read: Vec<_> =
            from.iter().map(|(memory, offset)| SimArg::Read(SimAt { memory, offset: *offset })).collect();
        let write: Vec<_> =
            to.iter().map(|(memory, offset)| SimArg::Write(SimAt { memory, offset: *offset })).collect();
        stream.run(&gives.named("what a rank gives"), &read)?;
        stream.wait_open(gate)?;
        stream.run(&gets.named("what a rank gets"), &write)
    }

    fn abort(member: &SimMember<T>, cause: &Error) {
        member.meeting.fail(cause);
    }

    fn well(member: &SimMember<T>) -> Result<(), Error> {
        member.meeting.state.lock().failed.clone().map_or(Ok(()), Err)
    }
}

/// By how many times its count what a rank gives, or gets, is longer.
const fn times(kind: Kind, gives: bool, world: usize) -> usize {
    match kind {
        Kind::AllGather if !gives => world,
        Kind::ReduceScatter(_) if gives => world,
        _ => 1,
    }
}

/// Computes what each of these gets.
fn exchange<T: TimeLine>(together: &[Arrived<T>]) {
    let Some(part) = together.first().and_then(|(coming, _)| coming.parts.first()).copied() else { return };
    if part.kind.peer().is_some() {
        return between(together);
    }
    let mut in_order: Vec<_> = together.iter().collect();
    in_order.sort_by_key(|(coming, _)| coming.rank);
    let each: Vec<&[u8]> =
        in_order.iter().map(|(_, gives)| gives.first().map(Vec::as_slice).unwrap_or_default()).collect();
    let all = match part.kind {
        Kind::AllReduce(how) | Kind::ReduceScatter(how) | Kind::Reduce(how, _) => {
            reduced(part.number, how, &each)
        }
        Kind::Broadcast(root) => each.get(root).map(|bytes| bytes.to_vec()).unwrap_or_default(),
        _ => each.concat(),
    };
    for (place, (coming, gives)) in in_order.iter().enumerate() {
        let gets = match part.kind {
            Kind::ReduceScatter(_) => {
                let len = part.count * part.number.bytes();
                all.get(place * len..(place + 1) * len).unwrap_or_default().to_vec()
            }
            // The others keep what they have.
            Kind::Reduce(_, root) if root != coming.rank => gives.first().cloned().unwrap_or_default(),
            _ => all.clone(),
        };
        *coming.gets.lock() = Some(Vec::from([gets]));
    }
}

/// Hands on what goes between two of these: of several between the same the first sent is the first received.
fn between<T: TimeLine>(together: &[Arrived<T>]) {
    let mut sent: BTreeMap<(usize, usize), Vec<&Vec<u8>>> = BTreeMap::new();
    for (coming, gives) in together {
        let sends = coming.parts.iter().filter_map(|part| match part.kind {
            Kind::Send(to) => Some(to),
            _ => None,
        });
        for (to, bytes) in sends.zip(gives) {
            sent.entry((coming.rank, to)).or_default().push(bytes);
        }
    }
    for (coming, _) in together {
        let mut gets = Vec::new();
        for part in &coming.parts {
            let Kind::Receive(from) = part.kind else { continue };
            let waiting = sent.get_mut(&(from, coming.rank)).filter(|waiting| !waiting.is_empty());
            gets.push(waiting.map(|waiting| waiting.remove(0).clone()).unwrap_or_default());
        }
        *coming.gets.lock() = Some(gets);
    }
}

/// The reduction of these, number by number, in their order.
fn reduced(number: Number, how: Reduce, each: &[&[u8]]) -> Vec<u8> {
    macro_rules! whole {
        ($ty:ty) => {
            fold::<$ty, { size_of::<$ty>() }>(
                each,
                <$ty>::from_ne_bytes,
                <$ty>::to_ne_bytes,
                |one, other| match how {
                    Reduce::Sum | Reduce::Avg => one.wrapping_add(other),
                    Reduce::Prod => one.wrapping_mul(other),
                    Reduce::Min => one.min(other),
                    Reduce::Max => one.max(other),
                },
                // No number of ranks is too large for the narrowest: the quotient is taken of a wider one.
                |sum| if how == Reduce::Avg { average!($ty, sum) } else { sum },
            )
        };
    }
    macro_rules! average {
        ($ty:ty, $sum:expr) => {{
            let ranks = i128::try_from(each.len().max(1)).unwrap_or(i128::MAX);
            <$ty>::try_from(i128::from($sum) / ranks).unwrap_or_default()
        }};
    }
    macro_rules! floating {
        ($ty:ty, $of:expr) => {
            fold::<$ty, { size_of::<$ty>() }>(
                each,
                <$ty>::from_ne_bytes,
                <$ty>::to_ne_bytes,
                |one, other| match how {
                    Reduce::Sum | Reduce::Avg => one + other,
                    Reduce::Prod => one * other,
                    Reduce::Min => one.min(other),
                    Reduce::Max => one.max(other),
                },
                |sum| if how == Reduce::Avg { sum / $of } else { sum },
            )
        };
    }
    #[allow(clippy::cast_precision_loss, reason = "there are few ranks")]
    let ranks = each.len() as f32;
    match number {
        Number::I8 => whole!(i8),
        Number::U8 => whole!(u8),
        Number::I32 => whole!(i32),
        Number::U32 => whole!(u32),
        Number::I64 => whole!(i64),
        Number::U64 => whole!(u64),
        Number::F16 => floating!(f16, f16::from_f32(ranks)),
        Number::Bf16 => floating!(bf16, bf16::from_f32(ranks)),
        Number::F32 => floating!(f32, ranks),
        Number::F64 => floating!(f64, f64::from(ranks)),
    }
}

fn fold<N: Copy, const BYTES: usize>(
    each: &[&[u8]],
    read: fn([u8; BYTES]) -> N,
    write: fn(N) -> [u8; BYTES],
    both: impl Fn(N, N) -> N,
    end: impl Fn(N) -> N,
) -> Vec<u8> {
    let numbers = |bytes: &[u8]| -> Vec<N> {
        bytes.as_chunks::<BYTES>().0.iter().map(|number| read(*number)).collect()
    };
    let Some((first, others)) = each.split_first() else { return Vec::new() };
    let mut all = numbers(first);
    for other in others {
        for (number, other) in all.iter_mut().zip(numbers(other)) {
            *number = both(*number, other);
        }
    }
    all.into_iter().flat_map(|number| write(end(number))).collect()
}

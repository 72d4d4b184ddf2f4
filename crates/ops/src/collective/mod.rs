//! Collectives: what several devices compute together, as operations.
//!
//! ```text
//!   Ranks::of, join ──► Joining ──all ranks have come──► Ranks, of this process ──► Rank ──all_reduce(..)──► an operation of its device
//!                          └─not in time──► RankMissing                └─all_reduce(vec)──► Together: one of each rank, submitted in one go
//! ```
//!
//! A rank's part is an operation of its own device: its memory is ordered with all else that uses it, its end is its submission's point. Parts of one process find each other
//! by their order, whoever submits them.
//!
//! Invariants:
//! 1. Nothing here waits for another rank, the device or a library: a poll enqueues, and who tends tells of deadlines.
//! 2. All that is under way ends by its deadline, or by the first failure, and from then on the communicator refuses with that.
//! 3. A part that was not done is told as failed, whatever its stream says.

mod assembly;
mod deadlines;
mod memory;
mod op;
mod ticket;
mod together;

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode, Nanos, within};

pub use self::assembly::{Assembly, Signature};
use self::deadlines::Deadlines;
pub use self::memory::{CollectiveMemory, Numbers, Region};
pub use self::op::{Between, Exchange, InPlace};
pub use self::ticket::{Beginning, Ticket};
pub use self::together::Together;
use crate::op::DeviceOp;
use crate::port::{Collectives, Reduce, Seat, UniqueId, check_ranks};
use crate::runtime::Runtime;

/// How many ranks a communicator has at most.
pub const RANKS_MAX: usize = 65_536;

/// The longest time for which ranks may be waited for.
pub const RANKS_WITHIN_MS_MAX: u64 = 24 * 60 * 60 * 1_000;

/// How long an abort may take to end what is under way. What has not ended by then is told as failed all the same, and its memory is leaked: the library may be at work on it.
pub const GIVE_UP_MS: u64 = 5_000;

/// For how long ranks are waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollectiveConfig {
    /// Until all have joined: two minutes.
    pub join_within: Nanos,
    /// From the submission of a part to its end, with all that is in front of it in its stream, and in those of the other ranks: a minute.
    pub within: Nanos,
}

impl Default for CollectiveConfig {
    fn default() -> Self {
        Self { join_within: Nanos::from_millis(120_000), within: Nanos::from_millis(60_000) }
    }
}

impl CollectiveConfig {
    fn check(&self) -> Result<(), Error> {
        check_limit(self.join_within)?;
        check_limit(self.within).map(drop)
    }
}

fn check_limit(limit: Nanos) -> Result<Nanos, Error> {
    let (least, most) = (Nanos::from_nanos(1), Nanos::from_millis(RANKS_WITHIN_MS_MAX));
    within("how long ranks are waited for", limit, least, most)
}

/// What the ranks of this process in one communicator share.
pub(crate) struct Shared<D: Collectives> {
    member: D::Member,
    /// The rank of each seat, and where its operations run.
    seats: Vec<(usize, Runtime<D>)>,
    world: usize,
    config: CollectiveConfig,
    deadlines: Deadlines,
}

/// The ranks of this process in a communicator: devices that compute together. Clones are the same ranks.
///
/// ```
/// use wakeline_core::Error;
/// use wakeline_ops::{Ranks, Runtime, SingleStream, CollectiveConfig, DeviceOp, port::Reduce};
/// use wakeline_sim::{SimConfig, SimDevice, SimFabric, VirtualTime, VirtualWatcher};
/// use wakeline_tensor::Tensor;
///
/// let time = VirtualTime::new();
/// let devices = [(); 2].map(|()| SimDevice::new(time.clone(), SimConfig::default()).expect("a device"));
/// let watcher = VirtualWatcher::of(&devices[0], &devices[1..]);
/// let runtimes = devices.map(|device| Runtime::new(device, &SingleStream, watcher.clone()).expect("a runtime"));
/// let fabric = SimFabric::new(); // what connects them; of NVIDIA's GPUs it is their library, `Nccl`
/// let sums = watcher.run(async {
///     let ranks = Ranks::of(&fabric, &runtimes, CollectiveConfig::default()).await?;
///     let one = Tensor::from_host(vec![1_u32, 2]).on(&runtimes[0]).await?;
///     let other = Tensor::from_host(vec![10_u32, 20]).on(&runtimes[1]).await?;
///     let sums = ranks.all_reduce(vec![one, other], Reduce::Sum).await?; // in place
///     sums[1].to_host().on(&runtimes[1]).await
/// })?;
/// assert_eq!(sums?, [11, 22]);
/// # Ok::<(), Error>(())
/// ```
///
/// A process that has some of the ranks joins by an id that another has made, see [`join`](Self::join). Dropping the last handle leaves the communicator and waits for nothing.
pub struct Ranks<D: Collectives> {
    shared: Arc<Shared<D>>,
}

/// One rank: what it does is an operation of its runtime's device. Clones are the same rank.
///
/// A part that is submitted waits, on the device, for the other ranks to come to it, and with it all that its stream has behind it. All ranks come to the parts of a communicator in
/// one order. For what is enqueued behind it the part is as a gate: where the queue of its stream is full then, that is [`QueueFull`](ErrorCode::QueueFull) and not waited for. Of several communicators on the same devices, have one's operations end before another's are submitted.
pub struct Rank<D: Collectives> {
    shared: Arc<Shared<D>>,
    seat: usize,
    within: Nanos,
}

impl<D: Collectives> Ranks<D> {
    /// Has the devices of these runtimes be all the ranks of a new communicator: rank n is that of the nth. Begins when it is first polled.
    pub fn of(library: &D::Library, runtimes: &[Runtime<D>], config: CollectiveConfig) -> Joining<D> {
        let seats = runtimes.iter().cloned().enumerate().collect();
        Self::begin(library, None, runtimes.len(), seats, config)
    }

    /// Joins a communicator of `world` ranks, of which these are this process's, each with the runtime of its device. All that join it have the same id, of
    /// [`unique_id`](Collectives::unique_id), which one of them has made.
    pub fn join(
        library: &D::Library,
        id: &UniqueId,
        world: usize,
        ranks: Vec<(usize, Runtime<D>)>,
        config: CollectiveConfig,
    ) -> Joining<D> {
        Self::begin(library, Some(*id), world, ranks, config)
    }

    fn begin(
        library: &D::Library,
        id: Option<UniqueId>,
        world: usize,
        seats: Vec<(usize, Runtime<D>)>,
        config: CollectiveConfig,
    ) -> Joining<D> {
        Joining(State::Begins(Box::new(Begins { library: library.clone(), id, world, seats, config })))
    }

    /// The ranks, in the order in which their runtimes were handed in.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Rank<D>> + '_ {
        (0..self.shared.seats.len()).map(|seat| self.shared.rank(seat))
    }

    /// How many ranks of this process there are.
    pub fn len(&self) -> usize {
        self.shared.seats.len()
    }

    /// Never: a process that joins has one rank at least.
    pub fn is_empty(&self) -> bool {
        self.shared.seats.is_empty()
    }

    /// How many ranks the communicator has, of all processes.
    pub fn world(&self) -> usize {
        self.shared.world
    }

    /// The first failure, once there is one: from then on nothing can be done by these ranks.
    ///
    /// # Errors
    ///
    /// [`CommunicatorFailed`](ErrorCode::CommunicatorFailed), [`RankMissing`](ErrorCode::RankMissing), [`LibraryStuck`](ErrorCode::LibraryStuck), or what [`abort`](Self::abort) was given.
    pub fn well(&self) -> Result<(), Error> {
        D::well(&self.shared.member)
    }

    /// Ends the communicator: all that is under way fails with this cause, here, and in other processes by their own deadlines at the latest. Waits for nothing.
    pub fn abort(&self, cause: &Error) {
        self.shared.fail(cause);
    }

    /// One operation of each rank, submitted in one go: what all the methods below are made of.
    pub fn together<O>(&self, op: impl FnMut(Rank<D>) -> O) -> Together<O>
    where
        O: DeviceOp<Device = D>,
    {
        Together::new(&self.shared, Ok(self.iter().map(op).collect()))
    }

    fn with_each<B, O>(&self, what: &str, each: Vec<B>, mut op: impl FnMut(Rank<D>, B) -> O) -> Together<O>
    where
        O: DeviceOp<Device = D>,
    {
        let ops = if each.len() == self.len() {
            Ok(self.iter().zip(each).map(|(rank, each)| op(rank, each)).collect())
        } else {
            let wrong = format!("{} were handed in, for {} rank(s)", each.len(), self.len());
            Err(Error::new(ErrorCode::InvalidCollective, [&what, &wrong]))
        };
        Together::new(&self.shared, ops)
    }

    /// See [`Rank::all_reduce`]; the memory of each rank, in their order.
    pub fn all_reduce<B: CollectiveMemory<D>>(
        &self,
        memory: Vec<B>,
        reduce: Reduce,
    ) -> Together<InPlace<D, B>> {
        self.with_each("all-reduce", memory, |rank, memory| rank.all_reduce(memory, reduce))
    }

    /// See [`Rank::all_gather`]; what each rank gives and where it gets all.
    pub fn all_gather<F, T>(&self, memory: Vec<(F, T)>) -> Together<Between<D, F, T>>
    where
        F: CollectiveMemory<D>,
        T: CollectiveMemory<D>,
    {
        self.with_each("all-gather", memory, |rank, (from, to)| rank.all_gather(from, to))
    }

    /// See [`Rank::reduce_scatter`]; what each rank gives and where it gets its part.
    pub fn reduce_scatter<F, T>(&self, memory: Vec<(F, T)>, reduce: Reduce) -> Together<Between<D, F, T>>
    where
        F: CollectiveMemory<D>,
        T: CollectiveMemory<D>,
    {
        self.with_each("reduce-scatter", memory, |rank, (from, to)| rank.reduce_scatter(from, to, reduce))
    }

    /// See [`Rank::broadcast`]; the memory of each rank, in their order.
    pub fn broadcast<B: CollectiveMemory<D>>(&self, memory: Vec<B>, root: usize) -> Together<InPlace<D, B>> {
        self.with_each("broadcast", memory, |rank, memory| rank.broadcast(memory, root))
    }

    /// See [`Rank::reduce`]; the memory of each rank, in their order.
    pub fn reduce<B: CollectiveMemory<D>>(
        &self,
        memory: Vec<B>,
        reduce: Reduce,
        root: usize,
    ) -> Together<InPlace<D, B>> {
        self.with_each("reduce", memory, |rank, memory| rank.reduce(memory, reduce, root))
    }
}

impl<D: Collectives> Shared<D> {
    fn rank(self: &Arc<Self>, seat: usize) -> Rank<D> {
        Rank { shared: Arc::clone(self), seat, within: self.config.within }
    }

    fn seat(&self, seat: usize) -> Option<&(usize, Runtime<D>)> {
        self.seats.get(seat)
    }
}

impl<D: Collectives> Rank<D> {
    /// Its number among all.
    pub fn number(&self) -> usize {
        self.shared.seat(self.seat).map_or(usize::MAX, |(rank, _)| *rank)
    }

    /// How many ranks there are.
    pub fn world(&self) -> usize {
        self.shared.world
    }

    /// Where its operations run. `None` never.
    pub fn runtime(&self) -> Option<&Runtime<D>> {
        self.shared.seat(self.seat).map(|(_, runtime)| runtime)
    }

    /// The same rank, what it does having to end within another time than [`CollectiveConfig`] says. When that is over the communicator is.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](ErrorCode::InvalidLimit).
    pub fn within(&self, limit: Nanos) -> Result<Self, Error> {
        Ok(Self { within: check_limit(limit)?, ..self.clone() })
    }
}

/// Ranks that come together; see [`Ranks::of`] and [`Ranks::join`].
///
/// # Errors
///
/// What it resolves to: [`RankMissing`](ErrorCode::RankMissing) where not all have come in time, [`InvalidCollective`](ErrorCode::InvalidCollective) where they cannot be ranks of one communicator,
/// what library and devices say.
#[must_use = "it does nothing until it is awaited"]
pub struct Joining<D: Collectives>(State<D>);

enum State<D: Collectives> {
    Begins(Box<Begins<D>>),
    Waits(Arc<Shared<D>>, Arc<Ticket>),
    Over,
}

struct Begins<D: Collectives> {
    library: D::Library,
    id: Option<UniqueId>,
    world: usize,
    seats: Vec<(usize, Runtime<D>)>,
    config: CollectiveConfig,
}

impl<D: Collectives> Begins<D> {
    fn begin(self) -> Result<(Arc<Shared<D>>, Arc<Ticket>), Error> {
        let Self { library, id, world, seats, config } = self;
        config.check()?;
        let numbers: Vec<_> = seats.iter().map(|(rank, _)| *rank).collect();
        check_ranks(&numbers, world)?;
        let joined = Arc::new(Ticket::default());
        let of =
            |(rank, runtime): &(usize, Runtime<D>)| Seat { rank: *rank, device: runtime.device().clone() };
        let member = D::join(&library, seats.iter().map(of).collect(), world, id.as_ref(), &joined)?;
        let shared = Arc::new(Shared { member, seats, world, config, deadlines: Deadlines::new() });
        shared.ends_within(config.join_within, "joining a communicator", None, &joined);
        Ok((shared, joined))
    }
}

/// Nothing of it is pinned.
impl<D: Collectives> Unpin for Joining<D> {}

impl<D: Collectives> Future for Joining<D> {
    type Output = Result<Ranks<D>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let (shared, ticket) = match core::mem::replace(&mut this.0, State::Over) {
            State::Begins(begins) => begins.begin()?,
            State::Waits(shared, ticket) => (shared, ticket),
            State::Over => return Poll::Ready(Err(Error::new(ErrorCode::PolledAfterEnd, []))),
        };
        this.0 = State::Waits(shared, ticket);
        let State::Waits(shared, ticket) = &this.0 else { return Poll::Pending };
        let joined = ready!(ticket.poll(context));
        let shared = Arc::clone(shared);
        this.0 = State::Over;
        Poll::Ready(joined.map(|()| Ranks { shared }))
    }
}

impl<D: Collectives> Clone for Ranks<D> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<D: Collectives> Clone for Rank<D> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), ..*self }
    }
}

impl<D: Collectives> fmt::Debug for Ranks<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks: Vec<_> = self.shared.seats.iter().map(|(rank, _)| *rank).collect();
        f.debug_struct("Ranks").field("ranks", &ranks).field("world", &self.world()).finish_non_exhaustive()
    }
}

impl<D: Collectives> fmt::Debug for Rank<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rank")
            .field("number", &self.number())
            .field("world", &self.world())
            .finish_non_exhaustive()
    }
}

impl<D: Collectives> fmt::Debug for Joining<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.0 {
            State::Begins(_) => "begins",
            State::Waits(..) => "waits",
            State::Over => "over",
        };
        f.debug_tuple("Joining").field(&state).finish()
    }
}

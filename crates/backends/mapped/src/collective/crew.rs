//! The crew: the thread on which a communicator's ranks of this process make the library's calls.
//!
//! ```text
//!   join ──all have come──► errands: hand over, watch ──nobody is there any more──► leave
//!     └───────failed────────────┴──failed──► abort: told before, then the library, then the gates of what it was at
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use wakeline_core::{Error, ErrorCode};
use wakeline_ops::port::{Beginning, Device as _, Priority, Seat, UniqueId};

use super::club::{Club, Errand, Job};
use super::comm::{Comm, Progress, group};
use super::library::{CollectiveVendor, raw_id};
use crate::ops::OpDevice;
use crate::stream::Stream;

/// How long the crew naps at first between two questions, microseconds.
pub const WATCH_US_MIN: u64 = 20;

/// The most that it naps, while something is under way: how late a failure of the library's is told. Each nap is twice as long as the one before.
pub const WATCH_US_MAX: u64 = 2_000;

/// How long leaving may take before it is an abort.
pub const LEAVE_MS_MAX: u64 = 5_000;

/// A rank of this process.
struct Rank<V: CollectiveVendor> {
    number: usize,
    device: OpDevice<V>,
    /// Where the library enqueues.
    stream: Stream<V>,
    comm: Comm,
}

/// Naps that grow.
struct Naps(u64);

impl Naps {
    const fn new() -> Self {
        Self(WATCH_US_MIN)
    }

    fn next(&mut self) -> Duration {
        let nap = self.0;
        self.0 = (nap * 2).min(WATCH_US_MAX);
        Duration::from_micros(nap)
    }
}

/// The thread.
pub(super) fn run<V: CollectiveVendor>(
    club: &Arc<Club<V>>,
    seats: Vec<Seat<OpDevice<V>>>,
    world: usize,
    id: Option<&UniqueId>,
) {
    let mut ranks = match rank_streams(seats) {
        Ok(ranks) => ranks,
        Err(error) => return Club::fail(club, &error),
    };
    if let Err(error) = join(club, &mut ranks, world, id) {
        return abort(club, &ranks, &error);
    }
    club.join();
    let mut naps = Naps::new();
    loop {
        let done = match club.next(naps.next()) {
            Errand::HandOver(jobs) => {
                naps = Naps::new();
                hand_over(club, &ranks, world, &jobs)
            }
            Errand::Watch => watch(club, &ranks),
            Errand::Abort(error) => Err(error),
            Errand::Leave => return leave(club, &ranks),
        };
        if let Err(error) = done {
            return abort(club, &ranks, &error);
        }
    }
}

fn rank_streams<V: CollectiveVendor>(seats: Vec<Seat<OpDevice<V>>>) -> Result<Vec<Rank<V>>, Error> {
    let rank = |Seat { rank, device }: Seat<OpDevice<V>>| {
        let stream = device.stream(Priority::High)?;
        Ok(Rank { number: rank, device, stream, comm: Comm::NONE })
    };
    seats.into_iter().map(rank).collect()
}

fn join<V: CollectiveVendor>(
    club: &Arc<Club<V>>,
    ranks: &mut [Rank<V>],
    world: usize,
    id: Option<&UniqueId>,
) -> Result<(), Error> {
    let library = &club.library;
    club.well()?;
    let id = match id {
        Some(id) => raw_id(id),
        None => library.raw_id().map_err(|result| library.failed("ncclGetUniqueId", result))?,
    };
    let begun = group(library, || {
        for rank in &mut *ranks {
            let _bound = rank.device.context().bind()?;
            // SAFETY: the context is bound; the room is a part of `ranks`, which outlives the group.
            unsafe { Comm::begin(&mut rank.comm, library, world, id, rank.number) }?;
        }
        Ok(())
    })?;
    wait_for(club, &ranks.iter(), begun)?;
    if ranks.iter().any(|rank| rank.comm.is_none()) {
        let said = "it gave no communicator";
        return Err(Error::new(ErrorCode::CommunicatorFailed, [&V::NAME, &"ncclCommInitRank", &said]));
    }
    Ok(())
}

/// Waits until the library is through with what it has begun for these ranks, or it has failed.
fn wait_for<'r, V: CollectiveVendor>(
    club: &Club<V>,
    ranks: &(impl Iterator<Item = &'r Rank<V>> + Clone),
    begun: Progress,
) -> Result<(), Error> {
    let (library, mut naps) = (&club.library, Naps::new());
    if begun == Progress::Done && !library.is_nonblocking() {
        return club.well();
    }
    loop {
        let mut under = false;
        for rank in ranks.clone() {
            let _bound = rank.device.context().bind()?;
            under |= rank.comm.state(library, rank.number)? == Progress::Under;
        }
        if !under {
            return club.well();
        }
        if let Some(failed) = club.nap(naps.next()) {
            return Err(failed);
        }
        if club.leaves() {
            return Err(Error::new(
                ErrorCode::Cancelled,
                [&"(none)", &"(none)", &"no rank was left that waits"],
            ));
        }
    }
}

/// Hands the parts of ranks that have come together over to the library, and has the device open their gates behind.
fn hand_over<V: CollectiveVendor>(
    club: &Arc<Club<V>>,
    ranks: &[Rank<V>],
    world: usize,
    jobs: &[Job<V>],
) -> Result<(), Error> {
    let library = &club.library;
    let each = || jobs.iter().filter_map(|job| Some((ranks.get(job.seat)?, job)));
    for (rank, job) in each() {
        job.event.wait(&rank.stream)?;
    }
    let comms: Vec<Comm> = ranks.iter().map(|rank| rank.comm).collect();
    if !library.is_nonblocking() {
        club.block(&comms)?;
    }
    let by = Beginning { library: V::COLLECTIVES, loads_early: V::LOADS_EARLY };
    for job in jobs {
        job.ticket.begins(Some(by));
    }
    let begun = group(library, || {
        for (rank, job) in each() {
            let _bound = rank.device.context().bind()?;
            // Of nothing there is nothing to do, and where an empty memory begins is no library's to look at.
            for part in job.parts.iter().filter(|part| part.count > 0) {
                let part = if world == 1 { part.of_one() } else { *part };
                // SAFETY: the context is bound. The job's submission keeps the memory until its stream has come by the gate, which is opened behind this; what else uses it is ordered before
                // the event that the stream waits for, or behind the gate.
                unsafe { rank.comm.hand_over(library, &rank.stream, &part) }?;
            }
        }
        Ok(())
    });
    if !library.is_nonblocking() {
        club.unblock();
        club.well()?;
    }
    wait_for(club, &each().map(|(rank, _)| rank), begun?)?;
    for (rank, job) in each() {
        job.ticket.begins(None);
        job.open_behind(&rank.stream)?;
    }
    Ok(())
}

/// Tells of what has ended, and asks for failures where something is left.
fn watch<V: CollectiveVendor>(club: &Club<V>, ranks: &[Rank<V>]) -> Result<(), Error> {
    if !club.settle() {
        return Ok(());
    }
    for rank in ranks {
        let _bound = rank.device.context().bind()?;
        rank.comm.state(&club.library, rank.number)?;
    }
    Ok(())
}

/// Ends what is under way: by then all of it that was not done is told to have failed.
fn abort<V: CollectiveVendor>(club: &Arc<Club<V>>, ranks: &[Rank<V>], cause: &Error) {
    Club::fail(club, cause);
    let left = club.left();
    if !club.aborted() {
        for rank in ranks {
            let _bound = rank.device.context().bind().ok();
            rank.comm.abort(&club.library);
        }
    }
    // Behind what the library has enqueued, which ends now.
    let mut opened = true;
    for job in &left {
        opened &= ranks.get(job.seat).is_some_and(|rank| job.open_behind(&rank.stream).is_ok());
    }
    if !opened {
        // The device has failed: nothing comes any more.
        return club.give_up();
    }
    // Until all have, or it is given up by who tells of deadlines.
    let mut naps = Naps::new();
    while club.settle() {
        std::thread::sleep(naps.next());
    }
}

fn leave<V: CollectiveVendor>(club: &Arc<Club<V>>, ranks: &[Rank<V>]) {
    let library = &club.library;
    let start = Instant::now();
    let mut naps = Naps::new();
    let left = ranks.iter().try_for_each(|rank| {
        let _bound = rank.device.context().bind()?;
        rank.comm.finalize(library).map(drop)
    });
    let mut well = left.is_ok();
    while well && library.is_nonblocking() {
        let mut under = false;
        for rank in ranks {
            match rank.comm.state(library, rank.number) {
                Ok(progress) => under |= progress == Progress::Under,
                Err(_) => well = false,
            }
        }
        if !under {
            break;
        }
        well &= start.elapsed() < Duration::from_millis(LEAVE_MS_MAX);
        std::thread::sleep(naps.next());
    }
    for rank in ranks {
        let _bound = rank.device.context().bind().ok();
        if well { rank.comm.destroy(library) } else { rank.comm.abort(library) }
    }
}

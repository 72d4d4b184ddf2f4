//! Collectives by a vendor's library, as the device of operations has them.
//!
//! The library's calls may block: for a rank that has not come, a network, another call. So none is made by whoever submits. What goes on in a submission:
//!
//! ```text
//!   its stream     ──work──● event        ▼ waits for a gate ──what is behind──►
//!                          │              ▲
//!   the rank's own         └─►  ──library's work──● store that opens the gate          ● ► are enqueued by the crew, when all ranks of this process have come
//! ```
//!
//! The crew is one thread for the ranks of this process in one communicator, which the host supplies. It hands their parts to the library in one group, has the device open the gates behind them,
//! asks for failures while something is under way, and aborts. Whoever aborts tells first who has failed and calls the library then, so that a gate which the device opens
//! behind an aborted kernel is never taken for an end.
//!
//! | file | what |
//! |---|---|
//! | `sys.rs`, `library.rs` | the library's functions, numbers and layouts; loading it |
//! | `club.rs` | what submissions and the crew share: what waits, what is under way, what has failed |
//! | `crew.rs` | the thread: joining, handing over, watching, aborting, leaving |
//! | `comm.rs` | the library's calls, each in its rank's context |
//! | `bare.rs` | a communicator without operations, for measurements |
//!
//! Invariants:
//! 1. No call of the library is made under a lock, nor by a thread that submits, tends or polls.
//! 2. A ticket of something that fails is ended before the library is told to abort.
//! 3. A gate is kept until it reads as open; one that a store may still open after it was given up is leaked.

mod bare;
mod club;
mod comm;
mod crew;
mod library;
mod sys;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use wakeline_core::{Error, ErrorCode};
use wakeline_ops::port::{Collectives, Part, Promise, Seat, Ticket, UniqueId, Work};

pub use self::bare::BareRanks;
use self::club::{Club, Job, RawPart};
pub use self::crew::{LEAVE_MS_MAX, WATCH_US_MAX, WATCH_US_MIN};
pub use self::library::{CollectiveLibrary, CollectiveVendor, Spawn};
use crate::event::Event;
use crate::gate::Gate;
use crate::ops::{DeviceMemory, OpDevice};
use crate::stream::Stream;

/// The ranks of this process in a communicator of a vendor's library.
#[derive(Debug)]
pub struct OpMember<V: CollectiveVendor>(Arc<Club<V>>);

impl<V: CollectiveVendor> Drop for OpMember<V> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// What one thing that a rank does needs: the place in its stream behind which it comes, and the gate that its stream waits for.
#[derive(Debug)]
pub struct OpPrepared<V: CollectiveVendor> {
    event: Arc<Event<V>>,
    gate: Arc<Gate<V>>,
}

impl<V: CollectiveVendor> Collectives for OpDevice<V> {
    type Library = CollectiveLibrary<V>;
    type Member = OpMember<V>;
    type Held = OpPrepared<V>;
    /// An event, and a wait for the gate.
    const ENTRIES: u32 = 2;

    fn unique_id(library: &CollectiveLibrary<V>) -> Result<UniqueId, Error> {
        library.make_id()
    }

    fn join(
        library: &CollectiveLibrary<V>,
        seats: Vec<Seat<Self>>,
        world: usize,
        id: Option<&UniqueId>,
        joined: &Arc<Ticket>,
    ) -> Result<OpMember<V>, Error> {
        for (at, seat) in seats.iter().enumerate() {
            let same = |other: &&Seat<Self>| other.device.context().raw() == seat.device.context().raw();
            if let Some(other) = seats.iter().skip(at + 1).find(same) {
                let (one, other) = (seat.rank, other.rank);
                let wrong =
                    format!("ranks {one} and {other} are of one device: each rank has a device of its own");
                return Err(Error::new(ErrorCode::InvalidCollective, [&"joining a communicator", &wrong]));
            }
        }
        let club = Club::new(library, seats.iter().map(|seat| seat.rank).collect(), Arc::clone(joined));
        let member = OpMember(Arc::clone(&club));
        let id = id.copied();
        (library.loaded.spawn)(Box::new(move || crew::run(&club, seats, world, id.as_ref())))?;
        Ok(member)
    }

    fn prepare(_: &OpMember<V>, _: usize, stream: &Stream<V>) -> Result<OpPrepared<V>, Error> {
        let context = stream.context();
        Ok(OpPrepared { event: Arc::new(Event::new(&context)?), gate: Arc::new(Gate::new(&context)?) })
    }

    fn enqueue(
        member: &OpMember<V>,
        seat: usize,
        stream: &Stream<V>,
        parts: &[Part<'_, DeviceMemory<V>>],
        work: Work<'_, OpPrepared<V>>,
        _: Promise,
    ) -> Result<(), Error> {
        let OpPrepared { event, gate } = work.held;
        member.0.well()?;
        event.record(stream)?;
        gate.wait(stream).inspect_err(|_| gate.open())?;
        let job = Job {
            seat,
            parts: parts.iter().map(RawPart::of).collect(),
            event: Arc::clone(event),
            gate: Arc::clone(gate),
            ticket: Arc::clone(work.ticket),
            kept: work.kept,
            opens: Arc::default(),
        };
        member.0.come(&job)
    }

    fn abort(member: &OpMember<V>, cause: &Error) {
        Club::fail(&member.0, cause);
    }

    fn give_up(member: &OpMember<V>) {
        member.0.give_up();
    }

    fn well(member: &OpMember<V>) -> Result<(), Error> {
        member.0.well()
    }
}

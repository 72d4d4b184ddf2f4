//! A communicator of the library's by itself, without operations: what a measurement holds awaited collectives against.
//!
//! No part of the interface: calls block as the library has it, and nothing has a deadline. It is here since the library's functions are known nowhere else, and safe
//! since it hands out neither its memory nor its streams.

use core::fmt;
use core::mem;

use wakeline_core::{CompletionPort as _, Error, ErrorCode, Wake};
use wakeline_ops::port::{Kind, Number, Reduce};

use super::club::RawPart;
use super::comm::{Comm, group};
use super::library::{CollectiveLibrary, CollectiveVendor};
use crate::context::Context;
use crate::memory::DeviceBuffer;
use crate::port::Port;
use crate::stream::Stream;

/// All ranks of a communicator in one process, each with a stream and memory of its own.
#[doc(hidden)]
pub struct BareRanks<V: CollectiveVendor> {
    library: CollectiveLibrary<V>,
    ranks: Vec<Bare<V>>,
    numbers: usize,
    /// Something was enqueued and nobody saw its end.
    is_busy: bool,
}

struct Bare<V: CollectiveVendor> {
    context: Context<V>,
    stream: Stream<V>,
    memory: DeviceBuffer<V>,
    comm: Comm,
}

impl<V: CollectiveVendor> BareRanks<V> {
    /// Has these devices join, with memory for so many `f32` each. Blocks until they have.
    ///
    /// # Errors
    ///
    /// What the driver or the library says.
    pub fn join(
        library: &CollectiveLibrary<V>,
        contexts: impl IntoIterator<Item = Context<V>>,
        numbers: usize,
    ) -> Result<Self, Error> {
        let bare = |context: Context<V>| {
            let (stream, memory) =
                (context.stream()?, DeviceBuffer::new(&context, numbers.saturating_mul(size_of::<f32>()))?);
            stream.ready()?;
            Ok(Bare { context, stream, memory, comm: Comm::NONE })
        };
        let ranks: Vec<_> = contexts.into_iter().map(bare).collect::<Result<_, Error>>()?;
        let mut all = Self { library: library.clone(), ranks, numbers, is_busy: false };
        let id = library.raw_id().map_err(|result| library.failed("ncclGetUniqueId", result))?;
        let world = all.ranks.len();
        let ranks = &mut all.ranks;
        group(library, || {
            for (number, rank) in ranks.iter_mut().enumerate() {
                let _bound = rank.context.bind()?;
                // SAFETY: the context is bound; the room is a part of `ranks`, which outlives the group.
                unsafe { Comm::begin_blocking(&mut rank.comm, library, world, id, number) }?;
            }
            Ok(())
        })?;
        if all.ranks.iter().any(|rank| rank.comm.is_none()) {
            let said = "it gave no communicator";
            return Err(Error::new(ErrorCode::CommunicatorFailed, [&V::NAME, &"ncclCommInitRank", &said]));
        }
        Ok(all)
    }

    /// Sums all numbers of all ranks, in place: the library's calls in one group, a store of a word behind each, and looks at those until all have come or `goes_on` says
    /// no.
    ///
    /// # Errors
    ///
    /// What the driver or the library says; [`Cancelled`](ErrorCode::Cancelled) where `goes_on` did.
    pub fn all_reduce(&mut self, mut goes_on: impl FnMut() -> bool) -> Result<(), Error> {
        self.is_busy = true;
        let (library, numbers) = (&self.library, self.numbers);
        group(library, || {
            for rank in &self.ranks {
                let _bound = rank.context.bind()?;
                let sum = Kind::AllReduce(Reduce::Sum);
                let part = RawPart::in_place(sum, Number::F32, numbers, rank.memory.address());
                // SAFETY: the context is bound; the memory is of so many numbers, this value's alone, and kept for good where nobody sees the end.
                unsafe { rank.comm.hand_over(library, &rank.stream, &part) }?;
            }
            Ok(())
        })?;
        let points = self.ranks.iter().map(|rank| rank.stream.armed_port());
        let points: Vec<Port<V>> = points.collect::<Result<_, _>>()?;
        for point in &points {
            while point.poll() != Wake::Reached {
                if !goes_on() {
                    let why = "an all-reduce by the library's own calls did not end";
                    return Err(Error::new(ErrorCode::Cancelled, [&"(none)", &"(none)", &why]));
                }
                core::hint::spin_loop();
            }
        }
        self.is_busy = false;
        Ok(())
    }
}

impl<V: CollectiveVendor> Drop for BareRanks<V> {
    fn drop(&mut self) {
        let ranks = mem::take(&mut self.ranks);
        if self.is_busy {
            // The library may be at work on the memory.
            return mem::forget(ranks);
        }
        for rank in &ranks {
            let _bound = rank.context.bind().ok();
            rank.comm.destroy(&self.library);
        }
    }
}

impl<V: CollectiveVendor> fmt::Debug for BareRanks<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BareRanks")
            .field("ranks", &self.ranks.len())
            .field("numbers", &self.numbers)
            .finish_non_exhaustive()
    }
}

//! What is known of a submission that is recorded and does not run.
//!
//! ```text
//!   origin ──work──●───first branch───────◄──◄──
//!                  │                      │  │       streams that nobody else has, made for this capture
//!   another        └►──second branch──●───┘  │
//!   another        └►──third branch───●──────┘
//! ```
//!
//! It claims no accesses: no record of a buffer is looked at or changed. What conflicts within it is ordered by records of its own, one for each buffer, in the same way: places in
//! streams, that other streams wait for. What is left of them is the list of buffers, by which launches are ordered.

use core::any::Any;
use core::fmt::Display;
use std::collections::BTreeMap;
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode};

use crate::events::Place;
use crate::hazard::{Storage, Uses};
use crate::owner::Owners;
use crate::port::{Device, Graphs, Memory, Priority};
use crate::runtime::Core;
use crate::stream::Stream;
use crate::submission::Submission;

/// How many streams a capture has at most: branches beyond those stay in the stream of their operation.
pub(crate) const RECORDED_STREAMS_MAX: usize = 16;

pub(crate) struct Recording<D: Device> {
    /// Makes a stream for it.
    make: MakeStream<D>,
    /// How urgent they are.
    priority: Priority,
    /// Streams of it that no branch is in.
    spare: Vec<Stream<D>>,
    /// How many streams it has besides its first.
    made: usize,
    /// By the numbers of the buffers.
    accesses: BTreeMap<u64, Access<D>>,
    /// Of which stream which other has waited for which place.
    behind: Behind,
    /// What the launches come behind: work that was submitted before, and is not in it.
    after: Vec<(Stream<D>, Place)>,
    /// What was to be recorded first that cannot be.
    refused: Option<Error>,
    one_stream: bool,
}

type MakeStream<D> = fn(&Arc<Core<D>>, Priority) -> Result<Stream<D>, Error>;

/// Up to which place of the other each stream is behind, by the numbers of both.
type Behind = BTreeMap<(u64, u64), u64>;

/// What is done with a buffer.
struct Access<D: Device> {
    /// A [`Storage`], which only those can name who know that the device has memory.
    storage: Arc<dyn Any + Send + Sync>,
    writes: bool,
    uses: Uses<D>,
}

/// What is left of a recording.
pub(super) struct Recorded<D: Memory> {
    /// By the numbers of the buffers, and whether they are written.
    pub(super) accesses: Vec<(Arc<Storage<D>>, bool)>,
    pub(super) after: Vec<(Stream<D>, Place)>,
    pub(super) owners: Owners,
}

impl<D: Device> Recording<D> {
    const fn new(make: MakeStream<D>, priority: Priority) -> Self {
        Self {
            make,
            priority,
            spare: Vec::new(),
            made: 0,
            accesses: BTreeMap::new(),
            behind: BTreeMap::new(),
            after: Vec::new(),
            refused: None,
            one_stream: false,
        }
    }

    /// Streams for so many branches; `None` stands for the stream of their operation.
    pub(crate) fn branches(&mut self, core: &Arc<Core<D>>, count: usize) -> Vec<Option<Stream<D>>> {
        let count = if self.one_stream { 0 } else { count };
        // The last of them first, as they are taken.
        let mut streams: Vec<_> = (0..count).map(|_| self.branch(core)).collect();
        streams.reverse();
        streams
    }

    fn branch(&mut self, core: &Arc<Core<D>>) -> Option<Stream<D>> {
        if let Some(stream) = self.spare.pop() {
            return Some(stream);
        }
        if self.made + 1 >= RECORDED_STREAMS_MAX {
            return None;
        }
        // Where there is none, less runs at a time; a fault is told by what is recorded next.
        let stream = (self.make)(core, self.priority).ok()?;
        self.made += 1;
        Some(stream)
    }

    /// The branch in it was joined.
    pub(crate) fn give_back(&mut self, stream: Stream<D>) {
        self.spare.push(stream);
    }

    /// Has what is recorded in `stream` from now on come behind a place of another stream of this capture, unless it does.
    pub(crate) fn wait_behind(
        &mut self,
        stream: &Stream<D>,
        other: &Stream<D>,
        place: Place,
    ) -> Result<(), Error> {
        wait_behind(&mut self.behind, stream, other, place)
    }

    /// Has the launches come behind a place of a stream that is not in this capture.
    pub(crate) fn come_behind(&mut self, stream: &Stream<D>, place: Place) {
        if !self.after.iter().any(|(other, known)| other.id() == stream.id() && *known == place) {
            self.after.push((stream.clone(), place));
        }
    }
}

impl<D: Memory> Recording<D> {
    fn touch(
        &mut self,
        stream: &Stream<D>,
        touches: &[(&Arc<Storage<D>>, bool)],
        enqueue: impl FnOnce(&D, &D::Stream) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let place = stream.open_place()?;
        let enqueued = self.enqueue(stream, touches, enqueue);
        if enqueued.is_err() {
            stream.end_place(place);
            return enqueued;
        }
        // Recorded here and now, so that who comes behind it comes behind nothing else.
        stream.enqueued(place);
        stream.close_place(place).1?;
        for &(storage, writes) in touches {
            if let Some(access) = self.accesses.get_mut(&storage.number()) {
                access.uses.note(stream, place, writes);
            }
        }
        Ok(())
    }

    fn enqueue(
        &mut self,
        stream: &Stream<D>,
        touches: &[(&Arc<Storage<D>>, bool)],
        enqueue: impl FnOnce(&D, &D::Stream) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for &(storage, writes) in touches {
            let access = self.accesses.entry(storage.number()).or_insert_with(|| {
                let storage = Arc::clone(storage) as Arc<dyn Any + Send + Sync>;
                Access { storage, writes: false, uses: Uses::new() }
            });
            access.writes |= writes;
            for before in access.uses.before(stream.id(), writes) {
                let (other, place) = before.at();
                wait_behind(&mut self.behind, stream, other, place)?;
            }
        }
        enqueue(stream.device(), stream.raw())
    }
}

/// Has what is recorded in `stream` from now on come behind a place of another, unless it does.
fn wait_behind<D: Device>(
    behind: &mut Behind,
    stream: &Stream<D>,
    other: &Stream<D>,
    place: Place,
) -> Result<(), Error> {
    let known = behind.entry((stream.id(), other.id())).or_insert(0);
    if *known < place.number {
        stream.wait_behind(other, place)?;
        *known = place.number;
    }
    Ok(())
}

impl<D: Device> Submission<D> {
    /// One whose work is recorded in this stream, which is being captured and which nobody else has.
    pub(super) fn to_record(stream: Stream<D>) -> Self
    where
        D: Graphs,
    {
        let mut submission = Self::uncounted(stream);
        let priority = submission.stream.priority();
        submission.recording = Some(Box::new(Recording::new(Stream::for_captures, priority)));
        submission
    }

    /// Whether what it enqueues becomes part of a [`Graph`](crate::Graph) and does not run now, but with each launch of that.
    #[inline]
    pub const fn records(&self) -> bool {
        self.recording.is_some()
    }

    /// For an operation that cannot be repeated: that this submission is not being recorded in a [`Graph`](crate::Graph). Where it is, the whole capture ends with this error, also where the
    /// operation that asks goes on.
    ///
    /// # Errors
    ///
    /// [`CaptureRefused`](ErrorCode::CaptureRefused): `what` cannot be recorded, and what to do `instead`.
    #[inline]
    pub fn not_recorded(&mut self, what: &dyn Display, instead: &dyn Display) -> Result<(), Error> {
        if self.records() { Err(self.refusal(what, instead)) } else { Ok(()) }
    }

    /// That something cannot be recorded, which the whole capture ends with.
    #[cold]
    pub(crate) fn refusal(&mut self, what: &dyn Display, instead: &dyn Display) -> Error {
        let error = Error::new(ErrorCode::CaptureRefused, [what, instead]);
        if let Some(recording) = &mut self.recording {
            recording.refused.get_or_insert_with(|| error.clone());
        }
        error
    }

    /// Whether what is recorded from now on stays in one stream; whether it did before.
    pub(crate) fn record_in_one_stream(&mut self, yes: bool) -> bool {
        self.recording.as_mut().is_some_and(|recording| core::mem::replace(&mut recording.one_stream, yes))
    }
}

impl<D: Memory> Submission<D> {
    /// Records one call on these buffers, in the order of their numbers.
    #[cold]
    pub(crate) fn touch_recorded(
        &mut self,
        touches: &[(&Arc<Storage<D>>, bool)],
        enqueue: impl FnOnce(&D, &D::Stream) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match &mut self.recording {
            Some(recording) => recording.touch(&self.stream, touches, enqueue),
            None => Ok(()),
        }
    }

    /// What it has recorded.
    ///
    /// # Errors
    ///
    /// What was refused meanwhile.
    pub(super) fn recorded(mut self) -> Result<Recorded<D>, Error> {
        let owners = core::mem::take(&mut self.owners);
        let Some(recording) = self.recording.take() else {
            return Ok(Recorded { accesses: Vec::new(), after: Vec::new(), owners });
        };
        let Recording { accesses, after, refused, .. } = *recording;
        if let Some(error) = refused {
            return Err(error);
        }
        let storage = |Access { storage, writes, .. }: Access<D>| {
            // Never an error: `touch_in` has put them there.
            storage.downcast::<Storage<D>>().ok().map(|storage| (storage, writes))
        };
        Ok(Recorded { accesses: accesses.into_values().filter_map(storage).collect(), after, owners })
    }
}

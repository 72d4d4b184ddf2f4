//! One awaited point of a stream.

use core::fmt;
use std::time::Duration;

use wakeline_core::{Arming, CompletionPort, ContextKey, Error, Instant, MemoryDescriptor, Status};

use crate::driver::{LineDriver, RawEvent};
use crate::error::{CallError, Kind};
use crate::inner::Inner;
use crate::line::MappedLine;
use crate::path::CompletionPath;
use crate::stream::{Stream, Word};

/// The shortest nap of a blocking wait.
pub const BLOCK_NAP_US_MIN: u64 = 20;

/// The longest nap of a blocking wait.
pub const BLOCK_NAP_US_MAX: u64 = 500;

/// A nap is at most this part of the time blocked so far.
pub const BLOCK_NAP_PART: u32 = 32;

/// How long after its work a point whose word a host function stores still counts as pending without it.
///
/// The point is in front of the function, which runs when its thread does: on a busy machine milliseconds later. Who trusts the word
/// would take it for lost.
pub const CALLBACK_LATE_MS_MAX: u64 = 100;

/// One awaited point of a [`Stream`]: all that was enqueued before the value was made. See [`CompletionPort`].
///
/// The event behind that work is the point; whoever asks is told of the event, or that the stream has nothing left at all: by the one that knows
/// sooner, the event where the word is there. One of [`Stream::word_port`] has no event. Dropped at any time; the work goes on.
///
/// Costs of the driver calls on an H200 (driver 580): making it 0.2 us, arming 1.2 us, a query 0.3 us while the stream
/// is busy. `block` naps between queries, for a part of the time blocked so far ([`BLOCK_NAP_PART`]): a driver's own blocking call
/// spins or not by flags of the whole process, and none has a deadline. So it ends up to [`BLOCK_NAP_US_MAX`] late, about a 32nd of a
/// short wait.
pub struct Port<D: LineDriver> {
    stream: Stream<D>,
    /// None where the word alone tells.
    event: Option<RawEvent>,
    word: Option<Word<D>>,
    answer: Option<Answer>,
    /// Whether a host function stores the word.
    by_callback: bool,
    /// Since when the work is known to be done, but the host function has not run.
    overdue: Option<std::time::Instant>,
    blocked: Duration,
}

/// Which of the two that are asked said done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// The stream: nothing at all is left in it.
    Stream,
    /// The point's own event: there is work behind the point, or the stream did not know yet.
    Event,
}

impl<D: LineDriver> fmt::Debug for Port<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("stream", &self.stream)
            .field("event", &self.event)
            .field("word", &self.word)
            .finish_non_exhaustive()
    }
}

impl<D: LineDriver> Port<D> {
    pub(crate) fn new(stream: &Stream<D>) -> Result<Self, Error> {
        let shared = stream.shared();
        let context = &shared.context;
        context.open()?;
        shared.is_here()?;
        let _bound = context.bind()?;
        // An event recorded now would become a part of the graph, and asking for it an error.
        shared.is_free()?;
        let event = context.take_event()?;
        // SAFETY: the context is bound, the event its own and the stream alive.
        if let Err(error) = unsafe { context.driver.event_record(event, shared.raw) } {
            context.give_event(event);
            return Err(shared.failed(error));
        }
        // A capture may have begun between the look and the call: an event of it must never be asked.
        if let Err(error) = shared.is_free() {
            context.give_event(event);
            return Err(error);
        }
        Ok(Self::of(stream, Some(event), None, false))
    }

    fn of(stream: &Stream<D>, event: Option<RawEvent>, word: Option<Word<D>>, by_callback: bool) -> Self {
        let (stream, blocked) = (stream.clone(), Duration::ZERO);
        Self { stream, event, word, answer: None, by_callback, overdue: None, blocked }
    }

    /// As [`new`](Self::new), armed: looks, binds and looks again once for both.
    pub(crate) fn armed(stream: &Stream<D>) -> Result<Self, Error> {
        let (shared, context) = (stream.shared(), &stream.shared().context);
        context.open()?;
        shared.is_here()?;
        let bound = context.bind()?;
        shared.is_free()?;
        let event = context.take_event()?;
        // SAFETY: the context is bound, the event its own and the stream alive.
        let recorded = unsafe { context.driver.event_record(event, shared.raw) };
        let path = context.completion();
        let stored = match recorded {
            Ok(()) => shared.store_bound(&bound, path),
            Err(error) => Err(shared.failed(error)),
        };
        // Where something was stored, that looked again, behind the event too.
        let word = match stored {
            Ok(None) => shared.is_free().map(|()| None),
            stored => stored,
        };
        drop(bound);
        match word {
            Ok(word) => Ok(Self::of(stream, Some(event), word, path == CompletionPath::Callback)),
            Err(error) => {
                context.give_event(event);
                Err(error)
            }
        }
    }

    /// As [`armed`](Self::armed), without an event where the stream stores its words by itself.
    pub(crate) fn by_word(stream: &Stream<D>) -> Result<Self, Error> {
        let (shared, context) = (stream.shared(), &stream.shared().context);
        context.open()?;
        shared.is_here()?;
        // Nobody but the event tells of a stream that is another on each thread.
        if context.completion() == CompletionPath::Word && shared.thread.is_none() {
            let bound = context.bind_to_enqueue()?;
            shared.is_free()?;
            if let Some(word) = shared.store_bound(&bound, CompletionPath::Word)? {
                return Ok(Self::of(stream, None, Some(word), false));
            }
        }
        Self::armed(stream)
    }

    /// Takes a word that somebody else stores.
    pub(crate) fn set_word(&mut self, word: Word<D>) {
        self.word = Some(word);
    }

    /// The stream that the point is of.
    pub const fn stream(&self) -> &Stream<D> {
        &self.stream
    }

    fn inner(&self) -> &Inner<D> {
        &self.stream.shared().context
    }

    /// Who said that the point is done; `None` before anybody did.
    pub const fn answer(&self) -> Option<Answer> {
        self.answer
    }

    /// Asks once, for the work and for the host function that is behind it, and keeps the answer.
    fn status(&mut self) -> Result<Status, Error> {
        // What the host was to be called for behind a fault goes with the first who hears of that: nobody else may come by.
        let mut answer = self.ask().inspect_err(|_| self.inner().abandon_if_failed())?;
        // A stream that has nothing left has nobody to run any more.
        if answer == Some(Answer::Event) && self.awaits_callback() {
            let since = self.overdue.get_or_insert_with(std::time::Instant::now);
            if since.elapsed() < Duration::from_millis(CALLBACK_LATE_MS_MAX) {
                answer = None;
            }
        }
        self.answer = answer;
        Ok(if answer.is_some() { Status::Done } else { Status::Pending })
    }

    /// Whether a host function is to store the word and has not.
    fn awaits_callback(&self) -> bool {
        self.by_callback && self.word.as_ref().is_some_and(|word| !word.reached())
    }

    /// Asks once, the one that knows first first: who says done; `None` where nobody does.
    ///
    /// The event was recorded before the word's store was enqueued: where the word is there the event is done, and the stream most often not yet, which has the
    /// end of the store to tell. Where it is not, the stream may have nothing left before the event is said to be done.
    fn ask(&self) -> Result<Option<Answer>, Error> {
        let context = self.inner();
        context.sound()?;
        let _bound = context.bind()?;
        let event_first = self.word.as_ref().is_some_and(MemoryDescriptor::reached);
        if event_first && self.ask_event()? == Status::Done {
            return Ok(Some(Answer::Event));
        }
        if self.ask_stream()? == Status::Done {
            return Ok(Some(Answer::Stream));
        }
        Ok((!event_first && self.ask_event()? == Status::Done).then_some(Answer::Event))
    }

    /// What the stream says; `Pending` where it must not be asked. The context is bound.
    fn ask_stream(&self) -> Result<Status, Error> {
        let (shared, context) = (self.stream.shared(), self.inner());
        // A per-thread stream is another one on another thread; one that is captured must not be asked.
        if shared.thread.is_some() || answer(context, shared.capturing(), true)? {
            return Ok(Status::Pending);
        }
        // SAFETY: the context is bound, the stream alive and not captured.
        answer(context, unsafe { context.driver.stream_query(shared.raw) }, Status::Pending)
    }

    /// What the event says, where there is one. The context is bound.
    fn ask_event(&self) -> Result<Status, Error> {
        let (context, Some(event)) = (self.inner(), self.event) else { return Ok(Status::Pending) };
        // SAFETY: the context is bound; the event is this port's until it is dropped.
        answer(context, unsafe { context.driver.event_query(event) }, Status::Pending)
    }
}

/// What a call said; `captured` where a capture forbade it, which says nothing of the point.
fn answer<D: LineDriver, T>(
    context: &Inner<D>,
    result: Result<T, CallError>,
    captured: T,
) -> Result<T, Error> {
    match result {
        Err(error) if error.kind == Kind::Capturing => Ok(captured),
        result => result.map_err(|error| context.told(error)),
    }
}

impl<D: LineDriver> CompletionPort for Port<D> {
    type Line = MappedLine<D>;

    fn query(&mut self) -> Result<Status, Error> {
        self.status()
    }

    /// Comes back pending after each nap: whoever asked looks at its clock, of which nothing is known here, and whether it is still wanted.
    fn block(&mut self, _: Option<Instant>) -> Result<Status, Error> {
        if self.status()? == Status::Done {
            return Ok(Status::Done);
        }
        let least = Duration::from_micros(BLOCK_NAP_US_MIN);
        let most = Duration::from_micros(BLOCK_NAP_US_MAX);
        let start = std::time::Instant::now();
        std::thread::sleep((self.blocked / BLOCK_NAP_PART).clamp(least, most));
        self.blocked = self.blocked.saturating_add(start.elapsed());
        Ok(Status::Pending)
    }

    fn arm(&mut self) -> Result<Arming, Error> {
        if self.word.is_some() {
            // A fork's child does not have the word.
            self.inner().original()?;
            return Ok(Arming::Armed);
        }
        self.inner().open()?;
        self.word = self.stream.shared().store()?;
        self.by_callback = self.inner().completion() == CompletionPath::Callback;
        Ok(if self.word.is_some() { Arming::Armed } else { Arming::Unsupported })
    }

    fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>> {
        self.word.as_ref()
    }

    /// Launches a kernel that does nothing, and a store behind it, in a stream of the context's own, unless those before are still under way. The first of a context
    /// makes that stream and loads the kernel, which takes milliseconds, where [`Context::prepare_warming`](crate::Context::prepare_warming) has not.
    fn warm(&mut self) {
        self.inner().warm();
    }

    fn context(&self) -> Option<ContextKey> {
        Some(ContextKey::of(self.inner()))
    }
}

impl<D: LineDriver> Drop for Port<D> {
    fn drop(&mut self) {
        if let Some(event) = self.event {
            self.inner().give_event(event);
        }
    }
}

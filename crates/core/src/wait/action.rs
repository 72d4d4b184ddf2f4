//! What a wait asks for, and what it is told.

use super::Report;
use crate::port::Status;
use crate::time::Instant;

/// What the driver of a [`Wait`](super::Wait) saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Observation {
    /// What a query or a block said.
    Status(Status),
    /// A driver call failed; the cause stays with whoever made it.
    Failed,
    /// The store of the word was enqueued.
    Armed,
    /// The stream cannot store words.
    Unsupported,
    /// A sleep or a park came back without a result: its time is up, or for no reason at all.
    Woke,
    /// The word has reached its number.
    Reached,
    /// The wait's token was cancelled.
    Cancelled,
}

/// What the driver of a [`Wait`](super::Wait) is to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Ask the port for the status.
    Query,
    /// Have the port enqueue the store of the word.
    Arm,
    /// Block on the port until the moment given, without bound for `None`.
    Block {
        /// When to come back at the latest.
        until: Option<Instant>,
    },
    /// Sleep to this moment; nothing need be watched.
    SleepUntil(Instant),
    /// Watch the word until the moment given, looking at it at least once.
    Park {
        /// When to come back at the latest.
        until: Instant,
    },
    /// Have the port touch what the next submission needs ([`CompletionPort::warm`](crate::CompletionPort::warm)), where this is done on the thread that
    /// submits it; answered by [`Observation::Woke`].
    Warm,
    /// The wait is over.
    Finish(Report),
}

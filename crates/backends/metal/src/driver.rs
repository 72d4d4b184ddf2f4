//! Metal's calls, as a table: all that the rest of this crate knows of it.

use crate::error::BufferError;
use crate::signal::Bell;

/// How far a command buffer has come, by its own word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BufferStatus {
    /// It has no place in its queue.
    NotEnqueued,
    /// It has a place in its queue, and waits to be committed.
    Enqueued,
    /// It is committed, or scheduled: it will end by itself.
    Committed,
    /// All of its work is done and visible to the host.
    Completed,
    /// It was ended by an error.
    Error,
}

impl BufferStatus {
    /// The name of a status before it is committed, for who hands one in later.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NotEnqueued => "not enqueued",
            Self::Enqueued => "enqueued",
            Self::Committed => "committed",
            Self::Completed => "completed",
            Self::Error => "ended by an error",
        }
    }
}

/// Metal, as this crate calls it. What is made may be used from any thread, and a clone is the same object.
///
/// None of the calls waits for the device but [`wait`](Self::wait), and each MUST bring the autorelease pool that it needs: the threads that call have none.
pub trait MetalDriver: Clone + Send + Sync + 'static {
    /// A device (`MTLDevice`).
    type Device: Send + Sync + 'static;
    /// A queue of command buffers (`MTLCommandQueue`).
    type Queue: Send + Sync + 'static;
    /// A command buffer (`MTLCommandBuffer`).
    type Buffer: Clone + Send + Sync + 'static;
    /// A shared event (`MTLSharedEvent`).
    type Event: Clone + Send + Sync + 'static;

    /// The system's default device; `None` where there is none.
    fn system_device(&self) -> Option<Self::Device>;

    /// A queue of the device; `None` where it gives none.
    fn new_queue(&self, device: &Self::Device) -> Option<Self::Queue>;

    /// A shared event of the device; `None` where it gives none.
    fn new_event(&self, device: &Self::Device) -> Option<Self::Event>;

    /// A command buffer of the queue; `None` where it gives none.
    fn new_buffer(&self, queue: &Self::Queue) -> Option<Self::Buffer>;

    /// Whether the buffer was made by the queue.
    fn is_of(&self, buffer: &Self::Buffer, queue: &Self::Queue) -> bool;

    /// Takes the buffer for who hands it in: says whether nobody has before, on any thread and by any clone.
    fn claim(&self, buffer: &Self::Buffer) -> bool;

    /// Encodes the signal of `value`, behind all that the buffer has: it must be neither committed nor have an open encoder.
    fn encode_signal(&self, buffer: &Self::Buffer, event: &Self::Event, value: u64);

    /// Has `bell` rung once the buffer has completed or was ended by an error. It must not be committed.
    ///
    /// MUST let go of the bell when the buffer has ended or is gone.
    fn on_completed(&self, buffer: &Self::Buffer, bell: Bell<Self>);

    /// Has `bell` rung once the event's value is `value` or above, at once where it is. MUST NOT keep a thread for it.
    fn notify(&self, event: &Self::Event, value: u64, bell: Bell<Self>);

    /// Gives the buffer its place in its queue. It must have none.
    fn enqueue(&self, buffer: &Self::Buffer);

    /// Commits the buffer. It must not be committed.
    fn commit(&self, buffer: &Self::Buffer);

    /// How far the buffer has come.
    fn status(&self, buffer: &Self::Buffer) -> BufferStatus;

    /// What ended the buffer whose status is [`BufferStatus::Error`]; `None` where nothing is said of it.
    fn error(&self, buffer: &Self::Buffer) -> Option<BufferError>;

    /// The value that was signaled last.
    fn signaled_value(&self, event: &Self::Event) -> u64;

    /// Blocks this thread until the event's value is `value` or above, or for so many milliseconds; says whether it is.
    fn wait(&self, event: &Self::Event, value: u64, timeout_ms: u64) -> bool;
}

//! What goes wrong.

use wakeline_core::Nanos;

/// `MTLCommandBufferErrorDeviceRemoved`.
pub const DEVICE_REMOVED: i64 = 11;

/// How a buffer is killed, with which number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kill {
    /// Where its work ends: it never signals.
    BeforeSignal(i64),
    /// Right behind its signal, which is seen.
    BehindSignal(i64),
    /// It says so only as late as its status is, its value long there.
    ValueAndError(i64),
}

/// What becomes of a call of a listener or a handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Call {
    /// It comes as soon as it can.
    #[default]
    Prompt,
    /// It comes so much later.
    Late(Nanos),
    /// It never comes.
    Lost,
    /// It comes twice.
    Twice,
    /// It comes at once, for nothing, and again when it should.
    Early,
}

/// What a wait for a value does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wait {
    /// What it should.
    #[default]
    Honest,
    /// It comes back at once without the value.
    GivesUp,
    /// It says that the value is there when it is not.
    Lies,
}

/// What the system gives none of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absent {
    /// No device.
    Device,
    /// No queue.
    Queue,
    /// No event.
    Event,
    /// No buffer.
    Buffer,
}

/// All of it. The default is nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// How buffers are killed.
    pub kill: Option<Kill>,
    /// The calls of listeners.
    pub listener: Call,
    /// The calls of handlers.
    pub handler: Call,
    /// How long behind its signal a buffer's status is.
    pub status_lag: Nanos,
    /// What waits do.
    pub wait: Wait,
    /// What there is none of.
    pub absent: Option<Absent>,
}

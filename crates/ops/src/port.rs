//! The port: what device operations need of a device.
//!
//! | port | what a backend supplies |
//! |---|---|
//! | [`Device`] | streams, events, points that can be awaited, host functions, health |
//! | [`Memory`] | stream-ordered memory, pinned memory of the host, copies |
//! | [`Launch`] | kernels |
//! | [`Gates`] | words that streams wait for, until the host opens them |
//!
//! All are used through generics, never as trait objects. Each method lists what an implementer MUST do. All of a stream's work runs in
//! the order in which it was enqueued; between streams there is no order but by events. A call that enqueues MUST NOT wait for the
//! device, as long as no more is enqueued in a stream than [`ENTRIES_MAX`](crate::ENTRIES_MAX) entries.
//!
//! Methods that let a device touch memory ask for a [`Promise`], which only `unsafe` code can make: nothing but the caller can know that
//! the memory stays, and that no other stream touches it at the same time. [`Tensor`](crate::Tensor) is the safe way to them.

// What makes a promise is declared unsafe; nothing unsafe is done here.
#![allow(unsafe_code)]

use wakeline_core::{CompletionPort, Error, LineRef};

/// How urgent the work of a stream is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Priority {
    /// After everything else, where the device can tell.
    Low,
    /// As any work.
    #[default]
    Normal,
    /// Before everything else, where the device can tell.
    High,
}

/// A caller's word that what a method lists under *Promise* holds; for all of them, that the arguments are of that device.
///
/// ```compile_fail,E0603
/// let promise = wakeline_ops::port::Promise(()); // nobody makes one in safe code
/// ```
#[derive(Debug)]
pub struct Promise(());

impl Promise {
    /// Gives the word for the one call that this is handed to.
    ///
    /// # Safety
    ///
    /// What the method that it is handed to lists under *Promise* holds, and stream, buffers and kernel are of the device that it is
    /// called on.
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

/// A device with streams. Clones are the same device.
pub trait Device: Clone + Send + Sync + 'static {
    /// A stream. MUST stay until its last point and all work enqueued in it are done, also when it is dropped before.
    type Stream: Send + Sync + 'static;
    /// An event: a place in a stream that others can wait for.
    type Event: Send + Sync + 'static;
    /// What keeps the completion line of a point alive.
    type Line: LineRef + Send + Sync + 'static;
    /// A point of a stream. MUST keep the stream as long as it needs it.
    type Point: CompletionPort<Line = Self::Line> + Send + 'static;

    /// A new stream. MUST take `priority` as the nearest that the device has.
    ///
    /// # Errors
    ///
    /// The device's fault, or that no further stream can be had.
    fn stream(&self, priority: Priority) -> Result<Self::Stream, Error>;

    /// A new event, not recorded yet.
    ///
    /// # Errors
    ///
    /// The device's fault, or that no further event can be had.
    fn event(&self) -> Result<Self::Event, Error>;

    /// Records `event` behind what is enqueued in `stream` so far. Where it was recorded before, MUST leave waits that were enqueued
    /// by then as they are.
    ///
    /// # Errors
    ///
    /// The device's fault, or whatever made the call fail.
    fn record(&self, stream: &Self::Stream, event: &Self::Event) -> Result<(), Error>;

    /// Has what is enqueued in `stream` from now on wait, on the device, for `event` as it was recorded last.
    ///
    /// The caller MUST have recorded it. The host MUST NOT wait.
    ///
    /// # Errors
    ///
    /// As [`record`](Self::record).
    fn wait(&self, stream: &Self::Stream, event: &Self::Event) -> Result<(), Error>;

    /// The point that all work enqueued in `stream` so far is in front of.
    ///
    /// # Errors
    ///
    /// As [`record`](Self::record).
    fn point(&self, stream: &Self::Stream) -> Result<Self::Point, Error>;

    /// The same point, armed, for whoever is going to watch its word.
    ///
    /// MUST be what [`point`](Self::point) gives, with its [`arm`](CompletionPort::arm) called; a stream that cannot store words gives it unarmed.
    /// Provided: these two, one after the other. A device that looks at something before and after each does both in one go.
    ///
    /// # Errors
    ///
    /// As [`record`](Self::record).
    fn armed_point(&self, stream: &Self::Stream) -> Result<Self::Point, Error> {
        let mut point = self.point(stream)?;
        point.arm()?;
        Ok(point)
    }

    /// That work may be enqueued in `stream` now, from this thread, to be awaited. Asked before each operation enqueues anything.
    ///
    /// MUST be an error where the stream is being captured: what is enqueued then is recorded and does not run, so that there is no end to wait for, nor a
    /// moment at which what it keeps may be let go. MUST NOT wait for the device. Provided: always.
    ///
    /// # Errors
    ///
    /// Why not: [`StreamCapturing`](wakeline_core::ErrorCode::StreamCapturing); the device's fault.
    fn ready(&self, stream: &Self::Stream) -> Result<(), Error> {
        let _ = stream;
        Ok(())
    }

    /// Calls `calls`, which makes several calls of this device on this thread: a submission.
    ///
    /// MUST call it once, on the spot, and give what it gives. Provided: nothing else. A device that sets something up around each of its calls,
    /// the thread's context say, does that once for all of them here; where that fails, the calls themselves say so.
    fn together<R>(&self, calls: impl FnOnce() -> R) -> R {
        calls()
    }

    /// Touches what the next submission from this thread is going to need, the driver's code and data above all, so that it finds them in the processor's caches:
    /// called by a task that was woken before the end of its work, with nothing else to do. Provided: does nothing.
    ///
    /// MUST NOT wait for the device, nor enqueue anything in a stream of the caller's. A failure is nobody's: what is submitted next shows it.
    fn warm(&self) {}

    /// Calls `function` on a thread of the host when the work enqueued so far has ended; what is enqueued behind waits for it.
    ///
    /// MUST call it at most once, and drop it where it is never called, at the latest when somebody hears of the fault that it is behind. The function
    /// MUST NOT call the device or wait for it, and is dropped where it is called.
    ///
    /// # Errors
    ///
    /// As [`record`](Self::record).
    fn call_host<F>(&self, stream: &Self::Stream, function: F) -> Result<(), Error>
    where
        F: FnOnce() + Send + 'static;

    /// Whether the device is well. MUST give the first fault's error once there is one, and MUST NOT wait.
    ///
    /// # Errors
    ///
    /// The device's fault.
    fn health(&self) -> Result<(), Error>;
}

/// A device whose streams can wait for the host.
///
/// Whoever has a stream wait for a word sees to it that it is opened, whatever happens: nothing behind it runs before.
pub trait Gates: Device {
    /// A word that streams wait for. Kept by its user until the waits for it are over; dropping it opens it.
    type Word: Send + Sync + 'static;

    /// A word, closed. MUST NOT wait for the device, but to make room for the first of as many as there are at a time. Never called under a lock.
    ///
    /// # Errors
    ///
    /// The device's fault; that no further word can be had; that streams cannot wait for words.
    fn word(&self) -> Result<Self::Word, Error>;

    /// Has what is enqueued in `stream` from now on wait, on the device, until `word` is open. The host MUST NOT wait.
    ///
    /// # Errors
    ///
    /// As [`record`](Device::record), and that streams cannot wait for words. It may have been enqueued all the same.
    fn wait_open(&self, stream: &Self::Stream, word: &Self::Word) -> Result<(), Error>;

    /// Opens it, for good. MUST be no driver call and cannot fail: a store, which streams that wait for it see soon. May be called from any thread,
    /// several times, and after a fault.
    fn open(word: &Self::Word);
}

/// Pinned memory of the host, which a device copies from and to. Given back when it is dropped.
pub trait Pinned: Send + Sync + 'static {
    /// Reads its first bytes into `out`, which MUST NOT be longer than it.
    ///
    /// # Errors
    ///
    /// That there are fewer bytes, or that a checking backend found the device still writing.
    ///
    /// # Promise
    ///
    /// No work that writes it is in flight.
    fn read(&self, out: &mut [u8], promise: Promise) -> Result<(), Error>;

    /// Writes `from`, which MUST NOT be longer than it, to its first bytes.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    ///
    /// # Promise
    ///
    /// No work that reads or writes it is in flight, and no other thread reads it.
    fn write(&self, from: &[u8], promise: Promise) -> Result<(), Error>;
}

/// A device with memory. Lengths are in bytes; copies begin at the start of both buffers.
pub trait Memory: Device {
    /// A buffer of the device: a name, which frees nothing when it is dropped.
    type Buffer: Send + Sync + 'static;
    /// Pinned memory of the host.
    type Pinned: Pinned;

    /// Allocates a buffer in the order of `stream`; its contents are not defined. Work of other streams MUST be ordered behind this.
    ///
    /// # Errors
    ///
    /// The device's fault, or that there is not enough memory.
    fn alloc(&self, stream: &Self::Stream, len: usize) -> Result<Self::Buffer, Error>;

    /// Pinned memory of the host; what is in it is not defined. May wait for the device where it has none to use again: what was given back
    /// MUST be used again, within the bound that the device has. Never called under a lock.
    ///
    /// # Errors
    ///
    /// The device's fault, or that there is not enough memory.
    fn pinned(&self, len: usize) -> Result<Self::Pinned, Error>;

    /// Frees `buffer` behind what is enqueued in `stream`. MUST NOT wait for the device.
    ///
    /// # Errors
    ///
    /// The device's fault, or whatever made the call fail; the buffer is then lost.
    ///
    /// # Promise
    ///
    /// All work that uses the buffer is done or ordered before this, and none comes later.
    fn free(&self, stream: &Self::Stream, buffer: &Self::Buffer, promise: Promise) -> Result<(), Error>;

    /// Sets all bytes of `buffer`.
    ///
    /// # Errors
    ///
    /// The device's fault, or whatever made the call fail; nothing is enqueued then.
    ///
    /// # Promise
    ///
    /// The buffer stays until this is done, and all other work that uses it is ordered before or behind this.
    fn fill(
        &self,
        stream: &Self::Stream,
        buffer: &Self::Buffer,
        byte: u8,
        promise: Promise,
    ) -> Result<(), Error>;

    /// Copies `len` bytes between buffers of the device.
    ///
    /// # Errors
    ///
    /// As [`fill`](Self::fill).
    ///
    /// # Promise
    ///
    /// As [`fill`](Self::fill), for both buffers; work that only reads `from` needs no order.
    fn copy(
        &self,
        stream: &Self::Stream,
        from: &Self::Buffer,
        to: &Self::Buffer,
        len: usize,
        promise: Promise,
    ) -> Result<(), Error>;

    /// Copies `len` bytes to the device.
    ///
    /// # Errors
    ///
    /// As [`fill`](Self::fill).
    ///
    /// # Promise
    ///
    /// As [`copy`](Self::copy); the host does not write `from` until this is done.
    fn upload(
        &self,
        stream: &Self::Stream,
        from: &Self::Pinned,
        to: &Self::Buffer,
        len: usize,
        promise: Promise,
    ) -> Result<(), Error>;

    /// Copies `len` bytes to the host.
    ///
    /// # Errors
    ///
    /// As [`fill`](Self::fill).
    ///
    /// # Promise
    ///
    /// As [`copy`](Self::copy); the host does not touch `to` until this is done.
    fn download(
        &self,
        stream: &Self::Stream,
        from: &Self::Buffer,
        to: &Self::Pinned,
        len: usize,
        promise: Promise,
    ) -> Result<(), Error>;
}

/// An argument of a kernel.
#[derive(Debug)]
pub enum Arg<'a, B> {
    /// A number; narrower ones are its low bytes.
    Word(u64),
    /// A buffer that the kernel only reads.
    Read(&'a B),
    /// A buffer that the kernel writes, and may read.
    Write(&'a B),
}

/// How many threads a kernel runs on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// Blocks, in three dimensions.
    pub blocks: [u32; 3],
    /// Threads of a block, in three dimensions.
    pub threads: [u32; 3],
    /// Bytes of shared memory a block, beyond what the kernel itself says.
    pub shared_bytes: u32,
}

/// A device with kernels.
pub trait Launch: Memory {
    /// A kernel that can be launched. Clones are the same kernel; the code MUST stay until every launch of it is done.
    type Kernel: Clone + Send + Sync + 'static;

    /// Launches `kernel`.
    ///
    /// # Errors
    ///
    /// The device's fault, or that the kernel cannot be launched so; nothing is enqueued then.
    ///
    /// # Promise
    ///
    /// The arguments are those that the kernel takes, it touches no memory but theirs, writes only what is handed in as
    /// [`Arg::Write`], and of each buffer holds what [`Memory::fill`] asks for.
    fn launch(
        &self,
        stream: &Self::Stream,
        kernel: &Self::Kernel,
        shape: Shape,
        args: &[Arg<'_, Self::Buffer>],
        promise: Promise,
    ) -> Result<(), Error>;
}

//! The port: what device operations need of a device.
//!
//! | port | what a backend supplies |
//! |---|---|
//! | [`Device`] | streams, events, points that can be awaited, host functions, health |
//! | [`Memory`] | stream-ordered memory, pinned memory of the host, copies |
//! | [`Pools`] | what its memory comes to, and bounds of it |
//! | [`Launch`] | kernels |
//! | [`HostKernels`] | kernels that are functions of the host, where the device is simulated |
//! | [`Graphs`] | work that is captured once and launched again and again |
//! | [`Peers`] | copies between devices, and streams of one that wait for another |
//! | [`Gates`] | words that streams wait for, until the host opens them |
//! | [`Collectives`] | what several devices compute together |
//!
//! All are used through generics, never as trait objects. Each method lists what an implementer MUST do. All of a stream's work runs in
//! the order in which it was enqueued; between streams there is no order but by events. A call that enqueues MUST NOT wait for the
//! device, as long as no more is enqueued in a stream than [`ENTRIES_MAX`](crate::ENTRIES_MAX) entries.
//!
//! Methods that let a device touch memory ask for a [`Promise`], which only `unsafe` code can make: nothing but the caller can know that
//! the memory stays, and that no other stream touches it at the same time. [`Storage`](crate::Storage) and
//! [`Submission::touch`](crate::Submission::touch) keep that for whoever builds on them; the tensors of `wakeline-tensor` are the safe way.

mod collectives;
mod graphs;
mod host;
mod peers;
mod promise;
mod shape;

use wakeline_core::{CompletionPort, Error, LineRef};

pub(crate) use collectives::check_ranks;
pub use collectives::{
    Assembly, Beginning, Collectives, Kept, Kind, Number, Part, Reduce, Seat, Signature, Ticket,
    UNIQUE_ID_BYTES, UniqueId, Work,
};
pub use graphs::{Graphs, Node, NodeKind};
pub use host::{HostArgs, HostKernels};
pub use peers::{Link, Peers};
pub use promise::Promise;
pub use shape::{Shape, ShapeLimits};

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
    /// The caller MUST have recorded it: in a stream of this device, or of one [beside](Peers::beside) it. The host MUST NOT wait.
    ///
    /// # Errors
    ///
    /// As [`record`](Self::record); [`StreamCapturing`](wakeline_core::ErrorCode::StreamCapturing) where the event was recorded in a stream for
    /// [captures](Graphs::capture_stream), and this is none.
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

    /// As [`armed_point`](Self::armed_point), of which nobody but the word has to tell: for runtimes whose plan trusts words.
    ///
    /// Where it is armed, asking MAY say pending for as long as the stream has work behind it, and MUST say done or err once there is none. Provided:
    /// [`armed_point`](Self::armed_point).
    ///
    /// # Errors
    ///
    /// As [`record`](Self::record).
    fn word_point(&self, stream: &Self::Stream) -> Result<Self::Point, Error> {
        self.armed_point(stream)
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
    /// MUST be an error in a stream that is being captured: it would be called by each launch of the graph. MUST call it at most once, and drop it where it is never called, at the latest when somebody hears of the fault that it is behind. The function
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
    /// Reads its bytes from `offset_bytes` on into `out`.
    ///
    /// # Errors
    ///
    /// That there are fewer bytes, or that a checking backend found the device still writing.
    ///
    /// # Promise
    ///
    /// No work that writes it is in flight.
    fn read(&self, offset_bytes: usize, out: &mut [u8], promise: Promise) -> Result<(), Error>;

    /// Writes `from` to its bytes from `offset_bytes` on.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    ///
    /// # Promise
    ///
    /// No work that reads or writes it is in flight, and no other thread reads it.
    fn write(&self, offset_bytes: usize, from: &[u8], promise: Promise) -> Result<(), Error>;
}

/// The bytes of a buffer, or of pinned memory, from an offset on.
///
/// ```
/// use wakeline_ops::port::At;
/// let buffer = "of a device";
/// assert_eq!(At::from(&buffer), At { memory: &buffer, offset_bytes: 0 });
/// ```
#[derive(PartialEq, Eq, Debug)]
pub struct At<'a, B> {
    /// Whose bytes.
    pub memory: &'a B,
    /// From where on.
    pub offset_bytes: usize,
}

impl<B> Clone for At<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for At<'_, B> {}

impl<B> At<'_, B> {
    /// So many bytes further on.
    #[must_use]
    pub const fn further(self, bytes: usize) -> Self {
        Self { memory: self.memory, offset_bytes: self.offset_bytes + bytes }
    }
}

impl<'a, B> From<&'a B> for At<'a, B> {
    /// From its first byte on.
    fn from(memory: &'a B) -> Self {
        Self { memory, offset_bytes: 0 }
    }
}

/// What memory is filled with: a number of one, two or four bytes, in the byte order of the host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pattern {
    /// Of one byte.
    One(u8),
    /// Of two.
    Two(u16),
    /// Of four.
    Four(u32),
}

impl Pattern {
    /// How many bytes it has.
    pub const fn bytes(self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Two(_) => 2,
            Self::Four(_) => 4,
        }
    }
}

/// Rows of one length, equally far apart on each side. All in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rows {
    /// How long each is.
    pub len: usize,
    /// How many there are.
    pub count: usize,
    /// From the beginning of one to that of the next, where they come from: at least `len`, at most `i32::MAX`.
    pub from_pitch: usize,
    /// The same where they go.
    pub to_pitch: usize,
}

impl Rows {
    /// How many bytes there are from the first to behind the last, at this pitch. Saturates.
    pub const fn extent(&self, pitch: usize) -> usize {
        match self.count.checked_sub(1) {
            Some(gaps) => gaps.saturating_mul(pitch).saturating_add(self.len),
            None => 0,
        }
    }
}

/// A device with memory. Lengths are in bytes. What is said of `len` bytes of a buffer is meant from its offset on; of too few there the call
/// MUST fail and enqueue nothing.
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

    /// Writes `pattern` so many times, from the offset of `to` on, which MUST be a multiple of the pattern's length.
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
        to: At<'_, Self::Buffer>,
        pattern: Pattern,
        count: usize,
        promise: Promise,
    ) -> Result<(), Error>;

    /// Copies `len` bytes between buffers of the device, or within one where the two do not overlap.
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
        from: At<'_, Self::Buffer>,
        to: At<'_, Self::Buffer>,
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
        from: At<'_, Self::Pinned>,
        to: At<'_, Self::Buffer>,
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
        from: At<'_, Self::Buffer>,
        to: At<'_, Self::Pinned>,
        len: usize,
        promise: Promise,
    ) -> Result<(), Error>;

    /// Copies rows between buffers of the device, or within one where nothing that is read is written. As one [`copy`](Self::copy) for each of them, in one call.
    ///
    /// # Errors
    ///
    /// As [`fill`](Self::fill).
    ///
    /// # Promise
    ///
    /// As [`copy`](Self::copy).
    fn copy_rows(
        &self,
        stream: &Self::Stream,
        from: At<'_, Self::Buffer>,
        to: At<'_, Self::Buffer>,
        rows: Rows,
        promise: Promise,
    ) -> Result<(), Error>;

    /// Copies rows to the device.
    ///
    /// # Errors
    ///
    /// As [`fill`](Self::fill).
    ///
    /// # Promise
    ///
    /// As [`upload`](Self::upload).
    fn upload_rows(
        &self,
        stream: &Self::Stream,
        from: At<'_, Self::Pinned>,
        to: At<'_, Self::Buffer>,
        rows: Rows,
        promise: Promise,
    ) -> Result<(), Error>;

    /// Copies rows to the host.
    ///
    /// # Errors
    ///
    /// As [`fill`](Self::fill).
    ///
    /// # Promise
    ///
    /// As [`download`](Self::download).
    fn download_rows(
        &self,
        stream: &Self::Stream,
        from: At<'_, Self::Buffer>,
        to: At<'_, Self::Pinned>,
        rows: Rows,
        promise: Promise,
    ) -> Result<(), Error>;
}

/// How much memory of one sort a device has, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PoolUse {
    /// What was asked for and not given back.
    pub in_use_bytes: u64,
    /// What the pool has of the system: what is in use, and what it keeps for who asks next.
    pub reserved_bytes: u64,
    /// The most that was in use at a time.
    pub high_water_bytes: u64,
    /// How much may be in use, or for pinned memory reserved, at a time.
    pub limit_bytes: u64,
}

/// A device whose memory can be looked at and bounded: what the device itself has, and what is pinned of the host.
///
/// ```
/// use wakeline_core::ErrorCode;
/// use wakeline_ops::port::Pools;
/// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// use wakeline_tensor::Tensor;
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
/// let tensor = Tensor::<f32, _>::zeros(1_000).on(&runtime).sync()?;
/// assert_eq!(device.device_pool()?.in_use_bytes, 4_000);
/// device.limit_device_pool(5_000);
/// let error = tensor.dup().on(&runtime).sync().unwrap_err();
/// assert_eq!(error.code(), ErrorCode::OutOfMemory);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
///
/// Where a limit stands in the way of an allocation, that MUST fail with [`OutOfMemory`](wakeline_core::ErrorCode::OutOfMemory), which names the bytes that
/// were asked for and the limit, and nothing is allocated.
pub trait Pools: Memory {
    /// The device's memory. MUST NOT wait for the device.
    ///
    /// # Errors
    ///
    /// The device's fault, or whatever made a call fail.
    fn device_pool(&self) -> Result<PoolUse, Error>;

    /// From now on at most so much of the device's memory is in use at a time. What is in use beyond that stays.
    fn limit_device_pool(&self, bytes: u64);

    /// Gives the system back what is kept and not in use, until no more than `keep_bytes` are reserved. MAY wait for the device.
    ///
    /// # Errors
    ///
    /// As [`device_pool`](Self::device_pool).
    fn trim_device_pool(&self, keep_bytes: u64) -> Result<(), Error>;

    /// The host's pinned memory. MUST NOT wait for the device.
    fn pinned_pool(&self) -> PoolUse;

    /// From now on at most so much of the host's memory is pinned at a time. What is in use beyond that stays.
    fn limit_pinned_pool(&self, bytes: u64);

    /// As [`trim_device_pool`](Self::trim_device_pool), of pinned memory. MAY wait for the device.
    ///
    /// # Errors
    ///
    /// As [`device_pool`](Self::device_pool).
    fn trim_pinned_pool(&self, keep_bytes: u64) -> Result<(), Error>;
}

/// An argument of a kernel.
#[derive(Debug)]
pub enum Arg<'a, B> {
    /// A number; narrower ones are its low bytes.
    Word(u64),
    /// A buffer that the kernel only reads: the address of the byte at the offset.
    Read(At<'a, B>),
    /// A buffer that the kernel writes, and may read.
    Write(At<'a, B>),
}

/// A device with kernels.
pub trait Launch: Memory {
    /// A kernel that can be launched. Clones are the same kernel; the code MUST stay until every launch of it is done.
    type Kernel: Clone + Send + Sync + 'static;

    /// That `kernel` takes just as many arguments as `bytes` has lengths, each of that many bytes, as far as the device can tell: asked once, by whoever
    /// is going to launch it many times. Provided: it may.
    ///
    /// # Errors
    ///
    /// [`KernelMismatch`](wakeline_core::ErrorCode::KernelMismatch), or whatever made a call fail.
    fn takes(&self, kernel: &Self::Kernel, bytes: &[usize]) -> Result<(), Error> {
        let (_, _) = (kernel, bytes);
        Ok(())
    }

    /// Launches `kernel`. MUST NOT allocate for up to eight arguments.
    ///
    /// # Errors
    ///
    /// The device's fault; [`InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit) where `shape` is beyond the device, and
    /// [`LaunchUnsupported`](wakeline_core::ErrorCode::LaunchUnsupported) where nothing can be launched so; nothing is enqueued then.
    ///
    /// # Promise
    ///
    /// The arguments are those that the kernel takes, it touches no memory but theirs, writes only what is handed in as
    /// [`Arg::Write`], and of each buffer holds what [`Memory::fill`] asks for. Where `shape` is [overlapping](Shape::overlapping) it touches nothing before it has
    /// waited for the kernel in front of it.
    fn launch(
        &self,
        stream: &Self::Stream,
        kernel: &Self::Kernel,
        shape: Shape,
        args: &[Arg<'_, Self::Buffer>],
        promise: Promise,
    ) -> Result<(), Error>;
}

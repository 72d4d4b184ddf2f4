//! A device as the device of operations: the port of `wakeline-ops`, over the table of a driver.
//!
//! | what the port asks for | what does it here |
//! |---|---|
//! | streams, points | [`Stream`] and [`Port`], as for waits: streams of our own, words in mapped memory |
//! | events | events of the context's pool, without timing |
//! | device memory | the device's default pool, in the order of streams |
//! | pinned memory | blocks of the context's pool, recycled |
//! | host functions | the driver's own, behind a stream's work |
//! | gates | the driver's waits for words in mapped memory |
//! | kernels | [`Function`] of a [`Module`] that stays loaded |
//! | other devices | events that any stream waits for, copies between contexts: [`PeerDriver`] |
//! | graphs | captures of the calling thread, of drivers that tell of them: [`GraphDriver`] |
//!
//! Invariants:
//! 1. No call here waits for the device but those that make something: a device, a module, a block of pinned memory that the pool does not have.
//! 2. After a sticky fault every call fails with the first cause, those that come to know it without asking the driver again.
//! 3. Each call binds the context that it needs and gives the caller's back.

mod access;
mod graphs;
mod launch;
mod peers;
mod tally;

use core::ffi::c_void;
use core::fmt;
use core::ptr;
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode};
use wakeline_ops::port::{
    self, Arg, At, Gates, Launch, Memory, Pattern, PoolUse, Priority, Promise, Rows, Shape,
};

pub use self::access::DeviceMemory;
use self::access::End;
pub use self::graphs::{GraphDriver, OpCaptured, OpGraph, RawNode, Refused, listed};
pub use self::peers::PeerDriver;
use self::tally::Tally;
use crate::config::ContextConfig;
use crate::context::Context;
use crate::driver::{Launches, Ordinal, TextDriver, WorkDriver};
use crate::error::CallError;
use crate::event::Event;
use crate::function::Function;
use crate::gate::Gate;
use crate::line::MappedLine;
use crate::module::Module;
use crate::pinned::{Pinned, PinnedUse};
use crate::port::Port;
use crate::stream::Stream;

/// How many bytes of freed device memory the device's default pool keeps for the next allocation, where nothing else is said: all of it.
///
/// A driver's own default is 0: it gives all that is free back to the system whenever somebody synchronizes, and the next allocation has to map memory
/// anew.
pub const DEVICE_BYTES_KEPT: u64 = u64::MAX;

/// How many arguments a launch takes without an allocation.
const ARGS_INLINE_MAX: usize = 32;

/// Pinned memory of the host, for copies from and to a device.
#[derive(Debug)]
pub struct OpPinned<D: WorkDriver>(Pinned<D>);

/// What an [`OpDevice`] is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpDeviceConfig {
    /// How words are stored, and how much there may be of what its context has.
    pub context: ContextConfig,
    /// How many bytes of freed memory the device's default pool keeps at least, see [`DEVICE_BYTES_KEPT`]. The pool is the whole process's: where others
    /// have set more it stays so, and it is never set back.
    pub device_bytes_kept: u64,
}

impl Default for OpDeviceConfig {
    /// The default of a context, and [`DEVICE_BYTES_KEPT`].
    fn default() -> Self {
        Self { context: ContextConfig::default(), device_bytes_kept: DEVICE_BYTES_KEPT }
    }
}

/// A device for operations. Clones are handles of one.
///
/// A buffer, a stream or a kernel is to be used with the device that it was made of, or a clone; a stream of another is refused where that is not
/// already promised.
pub struct OpDevice<D: WorkDriver> {
    context: Context<D>,
    /// The priorities of the least and the most urgent streams.
    priorities: (i32, i32),
    tally: Arc<Tally>,
    launches: Launches,
}

impl<D: WorkDriver> Clone for OpDevice<D> {
    fn clone(&self) -> Self {
        Self { context: self.context.clone(), tally: Arc::clone(&self.tally), ..*self }
    }
}

impl<D: WorkDriver> OpDevice<D> {
    /// The driver's number of a priority.
    fn number_of(&self, priority: Priority) -> i32 {
        let (least, most) = self.priorities;
        match priority {
            Priority::Low => least,
            Priority::Normal => 0,
            Priority::High => most,
        }
    }

    /// A device by its number, in its primary context: the one that it shares with all else in the process.
    ///
    /// # Errors
    ///
    /// As [`Context::primary`] and [`in_context`](Self::in_context).
    pub fn new(driver: &D, ordinal: Ordinal) -> Result<Self, Error> {
        Self::with(driver, ordinal, &OpDeviceConfig::default())
    }

    /// The same with another configuration.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with(driver: &D, ordinal: Ordinal, config: &OpDeviceConfig) -> Result<Self, Error> {
        let context = Context::primary(driver, ordinal, &config.context)?;
        Self::in_context(context, config.device_bytes_kept)
    }

    /// The device of this context, in it. Sets how much its default pool keeps.
    ///
    /// # Errors
    ///
    /// [`Backend`](ErrorCode::Backend): driver or device cannot allocate in the order of a stream, or a call failed. There is no fallback: without that, each free
    /// would wait for the device.
    pub fn in_context(context: Context<D>, device_bytes_kept: u64) -> Result<Self, Error> {
        context.open()?;
        let (driver, bound) = (context.driver(), context.bind()?);
        let told = |error: CallError| context.told(error);
        let pool = access::keep_freed(driver, device_bytes_kept).map_err(told)?;
        // SAFETY: the context is bound.
        let priorities = unsafe { driver.priorities() }.map_err(told)?;
        // SAFETY: as above.
        let launches = unsafe { driver.launches() }.map_err(told)?;
        drop(bound);
        // Before its first use, which is in a poll. Where it cannot be had, operations do without.
        let _ = context.prepare_warming();
        Ok(Self { context, priorities, tally: Arc::new(Tally::new(D::NAME, pool)), launches })
    }

    /// Its context: for health, counts, words, and work by other means.
    pub const fn context(&self) -> &Context<D> {
        &self.context
    }

    /// A kernel of a binary image of the driver's kind, that stays loaded: unloading may wait for the device, and the last who has a kernel may be the one that
    /// sees it end.
    ///
    /// # Errors
    ///
    /// As [`Module::from_image`].
    ///
    /// # Safety
    ///
    /// As [`Module::from_image`].
    pub unsafe fn image(&self, image: &[u8]) -> Result<Module<D>, Error> {
        // SAFETY: as the caller says.
        Ok(unsafe { Module::from_image(&self.context, image) }?.kept())
    }

    /// That a kernel is of its context.
    #[inline]
    fn takes_kernel(&self, kernel: &Function<D>) -> Result<(), Error> {
        let (own, other) = (self.context.raw(), kernel.module().context().raw());
        if own == other {
            return Ok(());
        }
        Err(launch::of_another_context::<D>(kernel.name(), &other, &own))
    }

    /// That a stream is of this device, where nobody has promised it.
    fn owns(&self, stream: &Stream<D>) -> Result<(), Error> {
        if stream.is_of(&self.context) {
            return Ok(());
        }
        let (other, own) = (stream.context().raw(), self.context.raw());
        Err(Error::new(ErrorCode::ForeignStream, [&D::NAME, &stream.raw(), &other, &own]))
    }
}

impl<D: TextDriver> OpDevice<D> {
    /// Compiles a text of PTX and loads it; it stays loaded as [`image`](Self::image) does. Takes milliseconds, and may wait for the device.
    ///
    /// # Errors
    ///
    /// As [`Module::from_ptx`].
    pub fn ptx(&self, text: &str) -> Result<Module<D>, Error> {
        Ok(Module::from_ptx(&self.context, text)?.kept())
    }
}

impl<D: WorkDriver> fmt::Debug for OpDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpDevice")
            .field("context", &self.context)
            .field("priorities", &self.priorities)
            .field("tally", &self.tally)
            .field("launches", &self.launches)
            .finish()
    }
}

impl<D: WorkDriver> port::Device for OpDevice<D> {
    type Stream = Stream<D>;
    type Event = Event<D>;
    type Line = MappedLine<D>;
    type Point = Port<D>;

    /// [`Normal`](Priority::Normal) is 0, as of streams that others make without a word on it: on most devices the least urgent there is.
    fn stream(&self, priority: Priority) -> Result<Stream<D>, Error> {
        self.context.stream_with_priority(self.number_of(priority))
    }

    fn event(&self) -> Result<Event<D>, Error> {
        Event::new(&self.context)
    }

    fn record(&self, stream: &Stream<D>, event: &Event<D>) -> Result<(), Error> {
        event.record(stream)
    }

    fn wait(&self, stream: &Stream<D>, event: &Event<D>) -> Result<(), Error> {
        event.wait(stream)
    }

    fn point(&self, stream: &Stream<D>) -> Result<Port<D>, Error> {
        stream.port()
    }

    /// Half the calls of a point that is armed by itself.
    fn armed_point(&self, stream: &Stream<D>) -> Result<Port<D>, Error> {
        stream.armed_port()
    }

    /// No event: what is behind the point keeps the driver from knowing of it, and nobody asks it.
    fn word_point(&self, stream: &Stream<D>) -> Result<Port<D>, Error> {
        stream.word_port()
    }

    /// One call of the driver, which asks whether the stream is captured.
    fn ready(&self, stream: &Stream<D>) -> Result<(), Error> {
        stream.ready()
    }

    /// Binds the context once: calls that find it bound make two calls of the driver for that in place of six.
    fn together<R>(&self, calls: impl FnOnce() -> R) -> R {
        // Where it has failed or is closed, the calls say so without the driver.
        let _bound = self.context.open().and_then(|()| self.context.bind());
        calls()
    }

    /// A kernel that does nothing and a store behind it, in a stream of the context's own, unless those before are under way.
    fn warm(&self) {
        self.context.warm();
    }

    fn call_host<F>(&self, stream: &Stream<D>, function: F) -> Result<(), Error>
    where
        F: FnOnce() + Send + 'static,
    {
        stream.call_host(function)
    }

    /// One query of an event that was never recorded, where no fault is known yet.
    fn health(&self) -> Result<(), Error> {
        self.context.health()
    }
}

impl<D: WorkDriver> Gates for OpDevice<D> {
    type Word = Gate<D>;

    fn word(&self) -> Result<Gate<D>, Error> {
        Gate::new(&self.context)
    }

    fn wait_open(&self, stream: &Stream<D>, word: &Gate<D>) -> Result<(), Error> {
        word.wait(stream)
    }

    fn open(word: &Gate<D>) {
        word.open();
    }
}

impl<D: WorkDriver> port::Pinned for OpPinned<D> {
    fn read(&self, offset_bytes: usize, out: &mut [u8], _: Promise) -> Result<(), Error> {
        // SAFETY: no work that writes it is in flight, says the promise.
        unsafe { self.0.read_at(offset_bytes, out) }
    }

    fn write(&self, offset_bytes: usize, from: &[u8], _: Promise) -> Result<(), Error> {
        // SAFETY: no work that reads or writes it is in flight, and no thread reads it, says the promise.
        unsafe { self.0.write_at(offset_bytes, from) }
    }
}

impl<D: WorkDriver> Memory for OpDevice<D> {
    type Buffer = DeviceMemory<D>;
    type Pinned = OpPinned<D>;

    fn alloc(&self, stream: &Stream<D>, len: usize) -> Result<DeviceMemory<D>, Error> {
        self.owns(stream)?;
        let taken = self.tally.take(len)?;
        let buffer = access::alloc(&self.context, stream, len)?;
        taken.keep();
        Ok(buffer)
    }

    fn pinned(&self, len: usize) -> Result<OpPinned<D>, Error> {
        Pinned::new(&self.context, len).map(OpPinned)
    }

    fn free(&self, stream: &Stream<D>, buffer: &DeviceMemory<D>, _: Promise) -> Result<(), Error> {
        // Where that fails the buffer is lost, and nobody's.
        self.tally.give(buffer.len());
        // SAFETY: as the promise says.
        unsafe { access::free(&self.context, stream, buffer) }
    }

    fn fill(
        &self,
        stream: &Stream<D>,
        to: At<'_, DeviceMemory<D>>,
        pattern: Pattern,
        count: usize,
        _: Promise,
    ) -> Result<(), Error> {
        // SAFETY: as the promise says.
        unsafe { access::fill(&self.context, stream, to, pattern, count) }
    }

    fn copy(
        &self,
        stream: &Stream<D>,
        from: At<'_, DeviceMemory<D>>,
        to: At<'_, DeviceMemory<D>>,
        len: usize,
        _: Promise,
    ) -> Result<(), Error> {
        // SAFETY: as the promise says.
        unsafe { access::copy(&self.context, stream, &End::Device(from), &End::Device(to), len) }
    }

    fn upload(
        &self,
        stream: &Stream<D>,
        from: At<'_, OpPinned<D>>,
        to: At<'_, DeviceMemory<D>>,
        len: usize,
        _: Promise,
    ) -> Result<(), Error> {
        // SAFETY: as the promise says.
        unsafe { access::copy(&self.context, stream, &host(from), &End::Device(to), len) }
    }

    fn download(
        &self,
        stream: &Stream<D>,
        from: At<'_, DeviceMemory<D>>,
        to: At<'_, OpPinned<D>>,
        len: usize,
        _: Promise,
    ) -> Result<(), Error> {
        // SAFETY: as the promise says.
        unsafe { access::copy(&self.context, stream, &End::Device(from), &host(to), len) }
    }

    fn copy_rows(
        &self,
        stream: &Stream<D>,
        from: At<'_, DeviceMemory<D>>,
        to: At<'_, DeviceMemory<D>>,
        rows: Rows,
        _: Promise,
    ) -> Result<(), Error> {
        // SAFETY: as the promise says.
        unsafe { access::copy_rows(&self.context, stream, &End::Device(from), &End::Device(to), rows) }
    }

    fn upload_rows(
        &self,
        stream: &Stream<D>,
        from: At<'_, OpPinned<D>>,
        to: At<'_, DeviceMemory<D>>,
        rows: Rows,
        _: Promise,
    ) -> Result<(), Error> {
        // SAFETY: as the promise says.
        unsafe { access::copy_rows(&self.context, stream, &host(from), &End::Device(to), rows) }
    }

    fn download_rows(
        &self,
        stream: &Stream<D>,
        from: At<'_, DeviceMemory<D>>,
        to: At<'_, OpPinned<D>>,
        rows: Rows,
        _: Promise,
    ) -> Result<(), Error> {
        // SAFETY: as the promise says.
        unsafe { access::copy_rows(&self.context, stream, &End::Device(from), &host(to), rows) }
    }
}

impl<D: WorkDriver> port::Pools for OpDevice<D> {
    /// What this device and its clones have allocated; reserved is what the device's default pool has, which is the whole process's.
    fn device_pool(&self) -> Result<PoolUse, Error> {
        let reserved_bytes = access::reserved(&self.context, self.tally.pool())?;
        Ok(PoolUse { reserved_bytes, ..self.tally.usage() })
    }

    /// Of this device and its clones: others in the process have their own.
    fn limit_device_pool(&self, bytes: u64) {
        self.tally.limit(bytes);
    }

    /// Of the device's default pool: the driver's own trim. What was freed in streams that have not come to it yet is in use for the driver.
    fn trim_device_pool(&self, keep_bytes: u64) -> Result<(), Error> {
        access::trim(&self.context, self.tally.pool(), keep_bytes)
    }

    fn pinned_pool(&self) -> PoolUse {
        let PinnedUse { bytes, kept_bytes, high_water_bytes, limit_bytes } = self.context.pinned();
        PoolUse {
            in_use_bytes: (bytes - kept_bytes) as u64,
            reserved_bytes: bytes as u64,
            high_water_bytes: high_water_bytes as u64,
            limit_bytes: limit_bytes as u64,
        }
    }

    /// Of its context.
    fn limit_pinned_pool(&self, bytes: u64) {
        self.context.limit_pinned(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    fn trim_pinned_pool(&self, keep_bytes: u64) -> Result<(), Error> {
        self.context.trim_pinned(usize::try_from(keep_bytes).unwrap_or(usize::MAX))
    }
}

fn host<D: WorkDriver>(at: At<'_, OpPinned<D>>) -> End<'_, D> {
    End::Host(&at.memory.0, at.offset_bytes)
}

impl<D: WorkDriver> Launch for OpDevice<D> {
    type Kernel = Function<D>;

    /// By [`Function::takes`]: not all drivers can tell.
    fn takes(&self, kernel: &Function<D>, bytes: &[usize]) -> Result<(), Error> {
        kernel.takes(bytes)
    }

    /// Of a module that its last handle unloads, the kernel's last user does that, which may wait for the device: load modules by
    /// [`OpDevice::image`].
    #[inline]
    fn launch(
        &self,
        stream: &Stream<D>,
        kernel: &Function<D>,
        shape: Shape,
        args: &[Arg<'_, DeviceMemory<D>>],
        _: Promise,
    ) -> Result<(), Error> {
        self.context.open()?;
        self.takes_kernel(kernel)?;
        let enqueue = |words: &mut [u64], values: &mut [*mut c_void]| {
            for ((arg, room), value) in args.iter().zip(words).zip(values.iter_mut()) {
                *room = launch::word(arg);
                *value = ptr::from_mut(room).cast();
            }
            // SAFETY: the stream is of this device; the kernel takes these arguments and does with them what may be done, says the promise.
            unsafe { launch::launch(kernel, &self.launches, stream.raw(), shape, values) }
        };
        let count = args.len();
        let (mut words, mut values) = ([0; ARGS_INLINE_MAX], [ptr::null_mut(); ARGS_INLINE_MAX]);
        match (words.get_mut(..count), values.get_mut(..count)) {
            (Some(words), Some(values)) => enqueue(words, values),
            _ => enqueue(&mut vec![0; count], &mut vec![ptr::null_mut(); count]),
        }
    }
}

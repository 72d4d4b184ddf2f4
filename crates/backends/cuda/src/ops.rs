//! A CUDA device as the device of operations: the port of `wakeline-ops`, over this driver.
//!
//! | what the port asks for | what does it here |
//! |---|---|
//! | streams, points | [`CuStream`] and [`CudaPort`], as for waits: streams of our own, words in mapped memory |
//! | events | events of the context's pool, without timing |
//! | device memory | the device's default pool: `cuMemAllocAsync`, `cuMemFreeAsync` |
//! | pinned memory | blocks of the context's pool, recycled |
//! | host functions | `cuLaunchHostFunc` |
//! | gates | `cuStreamWaitValue64` on words in mapped memory |
//! | kernels | [`Function`] of a [`Module`] that stays loaded |
//! | graphs | captures of the calling thread, `cuGraphLaunch`; see `graphs.rs` |
//!
//! Invariants:
//! 1. No call here waits for the device but those that make something: a device, a module, a block of pinned memory that the pool does not have.
//! 2. After a sticky fault every call fails with the first cause, those that come to know it without asking the driver again.
//! 3. Each call binds the context that it needs and gives the caller's back.

use core::ffi::c_void;
use core::fmt;
use core::ptr;
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode};
use wakeline_mapped::driver::Ordinal;
use wakeline_mapped::{Context, ContextConfig, Event, Gate, MappedLine, Pinned, PinnedUse};
use wakeline_ops::port::{
    self, Arg, At, Gates, Launch, Memory, Pattern, PoolUse, Priority, Promise, Rows, Shape,
};

use crate::access::{self, CudaMemory, Side};
use crate::cuda::Cuda;
use crate::device::Device;
use crate::function::Function;
use crate::launch::{self, Launches};
use crate::module::Module;
use crate::tally::Tally;
use crate::wait::{CuStream, CudaContext, CudaPort};

/// How many bytes of freed device memory the device's default pool keeps for the next allocation, where nothing else is said: all of it.
///
/// The driver's own default is 0: it gives all that is free back to the system whenever somebody synchronizes, and the next allocation has to map memory
/// anew.
pub const DEVICE_BYTES_KEPT: u64 = u64::MAX;

/// How many arguments a launch takes without an allocation.
const ARGS_INLINE_MAX: usize = 32;

/// An event between streams of a CUDA device.
pub type CudaEvent = Event<Cuda>;

/// Pinned memory of the host, for copies from and to a CUDA device.
#[derive(Debug)]
pub struct CudaPinned(Pinned<Cuda>);

/// A runtime of operations on a CUDA device.
pub type CudaRuntime = wakeline_ops::Runtime<CudaDevice>;

/// A stream of such a runtime.
pub type CudaOpStream = wakeline_ops::Stream<CudaDevice>;

/// What a [`CudaDevice`] is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CudaDeviceConfig {
    /// How words are stored, and how much there may be of what its context has.
    pub context: ContextConfig,
    /// How many bytes of freed memory the device's default pool keeps at least, see [`DEVICE_BYTES_KEPT`]. The pool is the whole process's: where others
    /// have set more it stays so, and it is never set back.
    pub device_bytes_kept: u64,
}

impl Default for CudaDeviceConfig {
    /// The default of a context, and [`DEVICE_BYTES_KEPT`].
    fn default() -> Self {
        Self { context: ContextConfig::default(), device_bytes_kept: DEVICE_BYTES_KEPT }
    }
}

/// A CUDA device for operations. Clones are handles of one.
///
/// ```
/// use wakeline_cuda::{Cuda, CudaDevice, Ordinal};
/// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin};
/// use wakeline_std::{Point, Watcher, block_on};
/// use wakeline_tensor::Tensor;
///
/// let cuda = match Cuda::load() {
///     Ok(cuda) => cuda,
///     Err(error) => return Ok(println!("skipped: {error}")),
/// };
/// let device = CudaDevice::new(&cuda, Ordinal(0))?;
/// let watcher = Watcher::new()?;
/// let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), watcher.handle().tender(&Point::new("ops")))?;
/// let op = Tensor::from_host(vec![1_u32, 2, 3]).then(|tensor| tensor.to_host());
/// assert_eq!(block_on(op.on(&runtime))?, [1, 2, 3]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
///
/// A buffer, a stream or a kernel is to be used with the device that it was made of, or a clone; a stream of another is refused where that is not
/// already promised.
#[derive(Clone)]
pub struct CudaDevice {
    context: CudaContext,
    /// The priorities of the least and the most urgent streams.
    priorities: (i32, i32),
    tally: Arc<Tally>,
    launches: Launches,
}

impl CudaDevice {
    /// A device by its number, in its primary context: the one that it shares with all else in the process.
    ///
    /// # Errors
    ///
    /// As [`Context::primary`] and [`in_context`](Self::in_context).
    pub fn new(cuda: &Cuda, ordinal: Ordinal) -> Result<Self, Error> {
        Self::with(cuda, ordinal, &CudaDeviceConfig::default())
    }

    /// The same with another configuration.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with(cuda: &Cuda, ordinal: Ordinal, config: &CudaDeviceConfig) -> Result<Self, Error> {
        let context = Context::primary(cuda, ordinal, &config.context)?;
        Self::in_context(context, config.device_bytes_kept)
    }

    /// The device of this context, in it. Sets how much its default pool keeps.
    ///
    /// # Errors
    ///
    /// [`Backend`](ErrorCode::Backend): driver or device cannot allocate in the order of a stream ([`Caps::MEMORY_POOLS`](crate::Caps::MEMORY_POOLS),
    /// [`Device::has_memory_pools`]), or a call failed. There is no fallback: without that, each free would wait for the device.
    pub fn in_context(context: CudaContext, device_bytes_kept: u64) -> Result<Self, Error> {
        context.open()?;
        let (cuda, bound) = (context.driver(), context.bind()?);
        let device = Device::current(cuda).map_err(|error| context.told(error))?;
        if !device.has_memory_pools()? {
            let mut error = cuda.absent("cuMemAllocAsync");
            "driver or device has no pools of memory, which operations need".clone_into(&mut error.text);
            return Err(error.into());
        }
        let pool = access::keep_freed(&device, device_bytes_kept).map_err(|error| context.told(error))?;
        let priorities = priorities(cuda).map_err(|error| context.told(error))?;
        let launches = Launches::of(&device)?;
        drop(bound);
        // Before its first use, which is in a poll. Where it cannot be had, operations do without.
        let _ = context.prepare_warming();
        Ok(Self { context, priorities, tally: Arc::new(Tally::new(pool)), launches })
    }

    /// Its context: for health, counts, words, and work by other means.
    pub const fn context(&self) -> &CudaContext {
        &self.context
    }

    /// Compiles a text of PTX and loads it. Takes milliseconds, and may wait for the device.
    ///
    /// It stays loaded until its context is gone: unloading may wait for the device, and the last who has a kernel may be the one that sees it end.
    ///
    /// # Errors
    ///
    /// As [`Module::from_ptx`].
    pub fn ptx(&self, text: &str) -> Result<Module, Error> {
        Module::for_good(&self.context, text)
    }

    /// A kernel of a binary image, a cubin or a fat binary, that stays loaded as [`ptx`](Self::ptx) does.
    ///
    /// # Errors
    ///
    /// As [`Module::from_image`].
    ///
    /// # Safety
    ///
    /// As [`Module::from_image`].
    pub unsafe fn image(&self, image: &[u8]) -> Result<Module, Error> {
        // SAFETY: as the caller says.
        unsafe { Module::image_for_good(&self.context, image) }
    }

    pub(crate) const fn launches(&self) -> &Launches {
        &self.launches
    }

    /// That a kernel is of its context.
    #[inline]
    pub(crate) fn takes_kernel(&self, kernel: &Function) -> Result<(), Error> {
        let (own, other) = (self.context.raw(), kernel.module().context().raw());
        if own == other {
            return Ok(());
        }
        Err(launch::of_another_context(kernel.name(), &other, &own))
    }

    /// That a stream is of this device, where nobody has promised it.
    fn owns(&self, stream: &CuStream) -> Result<(), Error> {
        if stream.is_of(&self.context) {
            return Ok(());
        }
        let (other, own) = (stream.context().raw(), self.context.raw());
        Err(Error::new(ErrorCode::ForeignStream, [&crate::error::BACKEND, &stream.raw(), &other, &own]))
    }
}

/// The least and the most urgent priority; a driver that does not tell has one. The context is bound.
fn priorities(cuda: &Cuda) -> Result<(i32, i32), wakeline_mapped::error::CallError> {
    let Some(ask) = cuda.symbols().cuCtxGetStreamPriorityRange else { return Ok((0, 0)) };
    let (mut least, mut most) = (0, 0);
    // SAFETY: a context is bound, and both are a number's room.
    let status = unsafe { ask(&raw mut least, &raw mut most) };
    cuda.check("cuCtxGetStreamPriorityRange", status)?;
    Ok((least, most))
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDevice")
            .field("context", &self.context)
            .field("priorities", &self.priorities)
            .field("tally", &self.tally)
            .field("launches", &self.launches)
            .finish()
    }
}

impl port::Device for CudaDevice {
    type Stream = CuStream;
    type Event = CudaEvent;
    type Line = MappedLine<Cuda>;
    type Point = CudaPort;

    /// [`Normal`](Priority::Normal) is 0, as of streams that others make without a word on it: on most devices the least urgent there is.
    fn stream(&self, priority: Priority) -> Result<CuStream, Error> {
        let (least, most) = self.priorities;
        self.context.stream_with_priority(match priority {
            Priority::Low => least,
            Priority::Normal => 0,
            Priority::High => most,
        })
    }

    fn event(&self) -> Result<CudaEvent, Error> {
        Event::new(&self.context)
    }

    fn record(&self, stream: &CuStream, event: &CudaEvent) -> Result<(), Error> {
        event.record(stream)
    }

    fn wait(&self, stream: &CuStream, event: &CudaEvent) -> Result<(), Error> {
        event.wait(stream)
    }

    fn point(&self, stream: &CuStream) -> Result<CudaPort, Error> {
        stream.port()
    }

    /// Half the calls of a point that is armed by itself.
    fn armed_point(&self, stream: &CuStream) -> Result<CudaPort, Error> {
        stream.armed_port()
    }

    /// No event: what is behind the point keeps the driver from knowing of it, and nobody asks it.
    fn word_point(&self, stream: &CuStream) -> Result<CudaPort, Error> {
        stream.word_port()
    }

    /// One call of the driver, which asks whether the stream is captured.
    fn ready(&self, stream: &CuStream) -> Result<(), Error> {
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

    fn call_host<F>(&self, stream: &CuStream, function: F) -> Result<(), Error>
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

impl Gates for CudaDevice {
    type Word = Gate<Cuda>;

    fn word(&self) -> Result<Gate<Cuda>, Error> {
        Gate::new(&self.context)
    }

    fn wait_open(&self, stream: &CuStream, word: &Gate<Cuda>) -> Result<(), Error> {
        word.wait(stream)
    }

    fn open(word: &Gate<Cuda>) {
        word.open();
    }
}

impl port::Pinned for CudaPinned {
    fn read(&self, offset_bytes: usize, out: &mut [u8], _: Promise) -> Result<(), Error> {
        // SAFETY: no work that writes it is in flight, says the promise.
        unsafe { self.0.read_at(offset_bytes, out) }
    }

    fn write(&self, offset_bytes: usize, from: &[u8], _: Promise) -> Result<(), Error> {
        // SAFETY: no work that reads or writes it is in flight, and no thread reads it, says the promise.
        unsafe { self.0.write_at(offset_bytes, from) }
    }
}

impl Memory for CudaDevice {
    type Buffer = CudaMemory;
    type Pinned = CudaPinned;

    fn alloc(&self, stream: &CuStream, len: usize) -> Result<CudaMemory, Error> {
        self.owns(stream)?;
        let taken = self.tally.take(len)?;
        let buffer = access::alloc(&self.context, stream, len)?;
        taken.keep();
        Ok(buffer)
    }

    fn pinned(&self, len: usize) -> Result<CudaPinned, Error> {
        Pinned::new(&self.context, len).map(CudaPinned)
    }

    fn free(&self, stream: &CuStream, buffer: &CudaMemory, _: Promise) -> Result<(), Error> {
        // Where that fails the buffer is lost, and nobody's.
        self.tally.give(buffer.len());
        // SAFETY: as the promise says.
        unsafe { access::free(&self.context, stream, buffer) }
    }

    fn fill(
        &self,
        stream: &CuStream,
        to: At<'_, CudaMemory>,
        pattern: Pattern,
        count: usize,
        _: Promise,
    ) -> Result<(), Error> {
        // SAFETY: as the promise says.
        unsafe { access::fill(&self.context, stream, to, pattern, count) }
    }

    fn copy(
        &self,
        stream: &CuStream,
        from: At<'_, CudaMemory>,
        to: At<'_, CudaMemory>,
        len: usize,
        _: Promise,
    ) -> Result<(), Error> {
        // SAFETY: as the promise says.
        unsafe { access::copy(&self.context, stream, from, to, len) }
    }

    fn upload(
        &self,
        stream: &CuStream,
        from: At<'_, CudaPinned>,
        to: At<'_, CudaMemory>,
        len: usize,
        _: Promise,
    ) -> Result<(), Error> {
        // SAFETY: as the promise says.
        unsafe { access::upload(&self.context, stream, (&from.memory.0, from.offset_bytes), to, len) }
    }

    fn download(
        &self,
        stream: &CuStream,
        from: At<'_, CudaMemory>,
        to: At<'_, CudaPinned>,
        len: usize,
        _: Promise,
    ) -> Result<(), Error> {
        // SAFETY: as the promise says.
        unsafe { access::download(&self.context, stream, from, (&to.memory.0, to.offset_bytes), len) }
    }

    fn copy_rows(
        &self,
        stream: &CuStream,
        from: At<'_, CudaMemory>,
        to: At<'_, CudaMemory>,
        rows: Rows,
        _: Promise,
    ) -> Result<(), Error> {
        // SAFETY: as the promise says.
        unsafe { self.rows(stream, Side::Device(from), Side::Device(to), rows) }
    }

    fn upload_rows(
        &self,
        stream: &CuStream,
        from: At<'_, CudaPinned>,
        to: At<'_, CudaMemory>,
        rows: Rows,
        _: Promise,
    ) -> Result<(), Error> {
        // SAFETY: as the promise says.
        unsafe { self.rows(stream, Side::Host(&from.memory.0, from.offset_bytes), Side::Device(to), rows) }
    }

    fn download_rows(
        &self,
        stream: &CuStream,
        from: At<'_, CudaMemory>,
        to: At<'_, CudaPinned>,
        rows: Rows,
        _: Promise,
    ) -> Result<(), Error> {
        // SAFETY: as the promise says.
        unsafe { self.rows(stream, Side::Device(from), Side::Host(&to.memory.0, to.offset_bytes), rows) }
    }
}

impl port::Pools for CudaDevice {
    /// What this device and its clones have allocated; reserved is what the device's default pool has, which is the whole process's.
    fn device_pool(&self) -> Result<PoolUse, Error> {
        let reserved_bytes = access::reserved(&self.context, self.tally.pool())?;
        Ok(PoolUse { reserved_bytes, ..self.tally.usage() })
    }

    /// Of this device and its clones: others in the process have their own.
    fn limit_device_pool(&self, bytes: u64) {
        self.tally.limit(bytes);
    }

    /// Of the device's default pool: `cuMemPoolTrimTo`. What was freed in streams that have not come to it yet is in use for the driver.
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

impl CudaDevice {
    /// # Safety
    ///
    /// As of the port's `copy_rows`, `upload_rows`, `download_rows`: what their promise says.
    unsafe fn rows(&self, stream: &CuStream, from: Side<'_>, to: Side<'_>, rows: Rows) -> Result<(), Error> {
        // SAFETY: as the caller says.
        unsafe { access::copy_rows(&self.context, stream, from, to, rows) }
    }
}

impl Launch for CudaDevice {
    type Kernel = Function;

    /// By [`Function::takes`]: drivers of CUDA 12.4 on can tell.
    fn takes(&self, kernel: &Function, bytes: &[usize]) -> Result<(), Error> {
        kernel.takes(bytes)
    }

    /// Of a module that its last handle unloads, the kernel's last user does that, which may wait for the device: load modules by
    /// [`CudaDevice::ptx`].
    fn launch(
        &self,
        stream: &CuStream,
        kernel: &Function,
        shape: Shape,
        args: &[Arg<'_, CudaMemory>],
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

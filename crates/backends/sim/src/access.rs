//! What is asked of a stream and a device with memory: allocations, copies, kernels, events.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use wakeline_core::{ContextKey, Error, Nanos};

use crate::device::SimDevice;
use crate::error::failed;
use crate::job::{Effect, Job, SimKernel, SimRows, Slot};
use crate::memory::{MemoryUse, Misuse};
use crate::order::{Order, Place};
use crate::state::{Call, Captured, State, Touch};
use crate::stream::SimStream;
use crate::sync::Lock;
use crate::table::Key;
use crate::time::{TimeLine, VirtualTime};

/// Memory of a [`SimDevice`]: a name, as a device's address is. It frees nothing when it is dropped; a clone names the same.
#[derive(Clone, Debug)]
pub struct SimMemory {
    pub(crate) key: Key,
    pub(crate) context: ContextKey,
    /// The devices beside its own know its key.
    machine: ContextKey,
    len: usize,
}

impl SimMemory {
    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The bytes of a buffer, or of pinned memory, from an offset on.
#[derive(Debug)]
pub struct SimAt<'a, B> {
    /// Whose bytes.
    pub memory: &'a B,
    /// From which byte on.
    pub offset: usize,
}

impl<B> Clone for SimAt<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for SimAt<'_, B> {}

impl<'a, B> From<&'a B> for SimAt<'a, B> {
    /// From its first byte on.
    fn from(memory: &'a B) -> Self {
        Self { memory, offset: 0 }
    }
}

/// Memory of the host that a [`SimDevice`] copies from and to. Given back when it is dropped, which must be after the device is done.
pub struct SimPinned<T: TimeLine = VirtualTime> {
    device: SimDevice<T>,
    key: Key,
    len: usize,
}

impl<T: TimeLine> SimPinned<T> {
    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads its first bytes into `out`.
    ///
    /// # Errors
    ///
    /// [`Backend`](wakeline_core::ErrorCode::Backend) for a [`Misuse`]: the device still writes, or there are fewer bytes.
    pub fn read(&self, out: &mut [u8]) -> Result<(), Error> {
        self.read_at(0, out)
    }

    /// Reads its bytes from `offset` on into `out`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        self.touch("read", offset, out.len(), false, |buffer| out.copy_from_slice(buffer))
    }

    /// Writes `from` to its first bytes.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), also while the device still reads.
    pub fn write(&self, from: &[u8]) -> Result<(), Error> {
        self.write_at(0, from)
    }

    /// Writes `from` to its bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn write_at(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        self.touch("write", offset, from.len(), true, |buffer| buffer.copy_from_slice(from))
    }

    fn touch<R>(
        &self,
        call: &'static str,
        offset: usize,
        len: usize,
        writes: bool,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error> {
        let now = self.device.now();
        self.device.with(|state| {
            state.turn(now);
            if let Err(misuse) = state.check_host(self.key, offset.saturating_add(len), writes) {
                return Err(state.misused(call, misuse));
            }
            let bytes =
                state.buffers.get_mut(self.key).and_then(|buffer| buffer.bytes.get_mut(offset..offset + len));
            bytes.map(f).ok_or_else(|| state.misused(call, Misuse::Foreign))
        })
    }
}

impl<T: TimeLine> Drop for SimPinned<T> {
    fn drop(&mut self) {
        let now = self.device.now();
        self.device.with(|state| {
            state.turn(now);
            if let Err(misuse) = state.check_host(self.key, 0, true) {
                state.buffers.misuse(misuse);
            }
            state.buffers.remove(self.key);
        });
    }
}

impl<T: TimeLine> fmt::Debug for SimPinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimPinned").field("len", &self.len).finish_non_exhaustive()
    }
}

/// An event of a [`SimDevice`]: recorded in one stream, waited for in others. Clones are the same event.
#[derive(Clone, Debug)]
pub struct SimEvent {
    /// By which machine.
    recorded: Arc<Lock<Option<(ContextKey, Recorded)>>>,
}

#[cfg(feature = "ops")]
impl SimEvent {
    /// Whether it was recorded last in a capture.
    pub(crate) fn is_captured(&self) -> bool {
        matches!(*self.recorded.lock(), Some((_, Recorded::Captured(_))))
    }
}

/// What an event stands for.
#[derive(Clone, Debug)]
enum Recorded {
    Place(Place, Order),
    /// A place in a capture.
    Captured(Captured),
}

/// An argument of a kernel; see [`SimStream::run`].
#[derive(Clone, Copy, Debug)]
pub enum SimArg<'a> {
    /// A number.
    Word(u64),
    /// A buffer that the kernel reads.
    Read(SimAt<'a, SimMemory>),
    /// A buffer that the kernel writes, and may read.
    Write(SimAt<'a, SimMemory>),
}

impl<T: TimeLine> SimDevice<T> {
    /// An event that is not recorded yet.
    pub fn event(&self) -> SimEvent {
        SimEvent { recorded: Arc::new(Lock::new(None)) }
    }

    /// Pinned memory of so many bytes.
    ///
    /// # Errors
    ///
    /// The device's fault.
    pub fn pinned(&self, len: usize) -> Result<SimPinned<T>, Error> {
        let now = self.now();
        let key = self.with(|state| {
            state.begin(Call::Other("pinned"), now);
            state.health()?;
            state.allocate(len, true)
        })?;
        Ok(SimPinned { device: self.clone(), key, len })
    }

    /// What was done that a correct program never does, oldest first, the first [`MISUSES_MAX`](crate::MISUSES_MAX) of it.
    pub fn misuses(&self) -> Vec<Misuse> {
        self.with(|state| state.buffers.misuses().to_vec())
    }

    /// How much memory is neither freed nor given back.
    pub fn memory_use(&self) -> MemoryUse {
        self.with(|state| state.buffers.in_use())
    }

    /// How many gates there are: made, and not dropped.
    pub fn gates(&self) -> usize {
        self.with(State::gates_in_use)
    }

    /// How many gates are closed and have streams that are to wait for them, while the device is well.
    pub fn gates_closed(&self) -> usize {
        self.with(State::gates_closed)
    }
}

/// Memory, kernels and events. Each call fails with the device's fault, with
/// [`Backend`](wakeline_core::ErrorCode::Backend) when the queue is full and for a [`Misuse`], and costs the calling thread
/// [`launch_ns`](crate::SimConfig::launch_ns). What it enqueues takes effect at the simulated time at which it ends.
impl<T: TimeLine> SimStream<T> {
    /// Allocates memory; its use in other streams must be ordered behind this.
    ///
    /// # Errors
    ///
    /// As all of these.
    pub fn alloc(&self, len: usize) -> Result<SimMemory, Error> {
        let device = self.device();
        self.call("alloc", |state| {
            state.forbid_captured("alloc", self.key())?;
            let key = state.allocate(len, false)?;
            let touches = [(key, len, Touch::Write)];
            let length = Nanos::from_nanos(device.config().copy_ns);
            let job = Job::Effect(Effect::Fill(key, 0..len, [crate::memory::FRESH].into()));
            if let Err(error) = state.enqueue_job("alloc", self.key(), length, job, &touches) {
                state.buffers.remove(key);
                return Err(error);
            }
            Ok(SimMemory { key, context: device.context(), machine: device.machine(), len })
        })
    }

    /// Frees memory behind what is enqueued.
    ///
    /// # Errors
    ///
    /// As all of these; nothing is freed then.
    pub fn free(&self, memory: &SimMemory) -> Result<(), Error> {
        self.job("free", Nanos::ZERO, Job::Free(memory.key), &[(memory, 0, Touch::Free)], None)
    }

    /// Sets all bytes.
    ///
    /// # Errors
    ///
    /// As all of these.
    pub fn fill(&self, memory: &SimMemory, byte: u8) -> Result<(), Error> {
        self.fill_with(memory, &[byte], memory.len)
    }

    /// Writes `pattern` so many times.
    ///
    /// # Errors
    ///
    /// As all of these.
    pub fn fill_with<'a>(
        &self,
        to: impl Into<SimAt<'a, SimMemory>>,
        pattern: &[u8],
        count: usize,
    ) -> Result<(), Error> {
        let SimAt { memory, offset } = to.into();
        let len = pattern.len().saturating_mul(count);
        let end = offset.saturating_add(len);
        let job = Job::Effect(Effect::Fill(memory.key, offset..end, pattern.into()));
        self.job("fill", self.copy_length(), job, &[(memory, end, Touch::Write)], None)
    }

    /// Copies `len` bytes between buffers of the device.
    ///
    /// # Errors
    ///
    /// As all of these.
    pub fn copy<'a>(
        &self,
        from: impl Into<SimAt<'a, SimMemory>>,
        to: impl Into<SimAt<'a, SimMemory>>,
        len: usize,
    ) -> Result<(), Error> {
        self.copy_rows(from, to, SimRows::one(len))
    }

    /// Copies `len` bytes from a buffer of a device [beside](SimDevice::beside) this one, where each reaches the other's memory.
    ///
    /// # Errors
    ///
    /// As all of these; [`Backend`](wakeline_core::ErrorCode::Backend) where they do not reach each other.
    pub fn copy_peer<'a>(
        &self,
        from: impl Into<SimAt<'a, SimMemory>>,
        to: impl Into<SimAt<'a, SimMemory>>,
        len: usize,
    ) -> Result<(), Error> {
        let (from, to) = (from.into(), to.into());
        let (job, read, written) =
            copy((from.memory.key, from.offset), (to.memory.key, to.offset), SimRows::one(len));
        let touches = [(from.memory.key, read, Touch::Read), (to.memory.key, written, Touch::Write)];
        let (context, machine) = (self.device().context(), self.device().machine());
        let foreign = to.memory.context != context || from.memory.machine != machine;
        self.call("copy_peer", |state| {
            if foreign {
                return Err(state.misused("copy_peer", Misuse::Foreign));
            }
            state.forbid_captured("copy_peer", self.key())?;
            if !state.is_reached(from.memory.key) {
                return Err(failed("copy_peer", &"the devices do not reach each other's memory"));
            }
            state.enqueue_job("copy_peer", self.key(), self.copy_length(), job, &touches)
        })
    }

    /// Copies rows between buffers of the device.
    ///
    /// # Errors
    ///
    /// As all of these.
    pub fn copy_rows<'a>(
        &self,
        from: impl Into<SimAt<'a, SimMemory>>,
        to: impl Into<SimAt<'a, SimMemory>>,
        rows: SimRows,
    ) -> Result<(), Error> {
        let (from, to) = (from.into(), to.into());
        let (job, read, written) = copy((from.memory.key, from.offset), (to.memory.key, to.offset), rows);
        let touches = [(from.memory, read, Touch::Read), (to.memory, written, Touch::Write)];
        self.job("copy", self.copy_length(), job, &touches, None)
    }

    /// Copies `len` bytes to the device.
    ///
    /// # Errors
    ///
    /// As all of these.
    pub fn upload<'a>(
        &self,
        from: impl Into<SimAt<'a, SimPinned<T>>>,
        to: impl Into<SimAt<'a, SimMemory>>,
        len: usize,
    ) -> Result<(), Error>
    where
        T: 'a,
    {
        self.upload_rows(from, to, SimRows::one(len))
    }

    /// Copies rows to the device.
    ///
    /// # Errors
    ///
    /// As all of these.
    pub fn upload_rows<'a>(
        &self,
        from: impl Into<SimAt<'a, SimPinned<T>>>,
        to: impl Into<SimAt<'a, SimMemory>>,
        rows: SimRows,
    ) -> Result<(), Error>
    where
        T: 'a,
    {
        let (from, to) = (from.into(), to.into());
        let (job, read, written) = copy((from.memory.key, from.offset), (to.memory.key, to.offset), rows);
        let pinned = Some((from.memory, read, Touch::Read));
        self.job("upload", self.copy_length(), job, &[(to.memory, written, Touch::Write)], pinned)
    }

    /// Copies `len` bytes to the host.
    ///
    /// # Errors
    ///
    /// As all of these.
    pub fn download<'a>(
        &self,
        from: impl Into<SimAt<'a, SimMemory>>,
        to: impl Into<SimAt<'a, SimPinned<T>>>,
        len: usize,
    ) -> Result<(), Error>
    where
        T: 'a,
    {
        self.download_rows(from, to, SimRows::one(len))
    }

    /// Copies rows to the host.
    ///
    /// # Errors
    ///
    /// As all of these.
    pub fn download_rows<'a>(
        &self,
        from: impl Into<SimAt<'a, SimMemory>>,
        to: impl Into<SimAt<'a, SimPinned<T>>>,
        rows: SimRows,
    ) -> Result<(), Error>
    where
        T: 'a,
    {
        let (from, to) = (from.into(), to.into());
        let (job, read, written) = copy((from.memory.key, from.offset), (to.memory.key, to.offset), rows);
        let pinned = Some((to.memory, written, Touch::Write));
        self.job("download", self.copy_length(), job, &[(from.memory, read, Touch::Read)], pinned)
    }

    /// Launches a kernel.
    ///
    /// # Errors
    ///
    /// As all of these; and [`KernelMismatch`](wakeline_core::ErrorCode::KernelMismatch) where it [takes](SimKernel::taking) another number of arguments.
    pub fn run(&self, kernel: &SimKernel, args: &[SimArg<'_>]) -> Result<(), Error> {
        let (effect, touches) = launched(kernel, args)?;
        self.job("run", kernel.length, Job::Effect(effect), &touches, None)
    }

    /// Calls a function of the host when the work enqueued so far has ended; what is enqueued behind waits for it.
    ///
    /// It is called without a lock held, by whichever thread lets time pass, and must not wait for the device.
    ///
    /// # Errors
    ///
    /// As all of these; the function is dropped then.
    pub fn call_host(&self, function: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        self.job("call_host", Nanos::ZERO, Job::Host(Box::new(function)), &[], None)
    }

    /// Records the event behind what is enqueued.
    ///
    /// # Errors
    ///
    /// As all of these.
    pub fn record(&self, event: &SimEvent) -> Result<(), Error> {
        let recorded = self.call("record", |state| {
            if state.is_capturing(self.key()) {
                return Ok(state.record_captured(self.key()).map(Recorded::Captured));
            }
            Ok(state.record(self.key()).map(|(place, order)| Recorded::Place(place, order)))
        })?;
        *event.recorded.lock() = recorded.map(|recorded| (self.device().machine(), recorded));
        Ok(())
    }

    /// Has what is enqueued from now on wait for the event.
    ///
    /// # Errors
    ///
    /// As all of these.
    pub fn wait(&self, event: &SimEvent) -> Result<(), Error> {
        let recorded = event.recorded.lock().clone();
        self.call("wait", |state| match &recorded {
            Some((machine, recorded)) if *machine == self.device().machine() => match recorded {
                Recorded::Place(place, order) => state.enqueue_wait(self.key(), place, order),
                Recorded::Captured(captured) => state.join_capture(self.key(), captured),
            },
            Some(_) => Err(state.misused("wait", Misuse::Foreign)),
            None => {
                let stream = state.number(self.key());
                Err(state.misused("wait", Misuse::Unsubmitted { stream }))
            }
        })
    }

    fn copy_length(&self) -> Nanos {
        Nanos::from_nanos(self.device().config().copy_ns)
    }

    /// Makes a call: counts it, lets it cost its time, and makes it where the device is well.
    pub(crate) fn call<R>(
        &self,
        name: &'static str,
        f: impl FnOnce(&mut State) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let device = self.device();
        let now = device.now();
        device.with(|state| state.begin(Call::Other(name), now));
        device.charge(device.config().launch_ns);
        let now = device.now();
        let (result, bell) = device.enqueue(|state| {
            state.turn(now);
            state.health()?;
            f(state)
        });
        bell.ring();
        result
    }

    fn job(
        &self,
        name: &'static str,
        length: Nanos,
        job: Job,
        memory: &[(&SimMemory, usize, Touch)],
        pinned: Option<(&SimPinned<T>, usize, Touch)>,
    ) -> Result<(), Error> {
        let context = self.device().context();
        let foreign = memory.iter().any(|(memory, ..)| memory.context != context)
            || pinned.is_some_and(|(pinned, ..)| pinned.device.machine() != self.device().machine());
        let touches = memory.iter().map(|&(memory, bytes, touch)| (memory.key, bytes, touch));
        let pinned = pinned.map(|(pinned, bytes, touch)| (pinned.key, bytes, touch));
        let touches: Vec<_> = touches.chain(pinned).collect();
        self.call(name, |state| {
            if foreign {
                return Err(state.misused(name, Misuse::Foreign));
            }
            state.enqueue_job(name, self.key(), length, job, &touches)
        })
    }
}

/// A copy of rows between two places, and where what it reads and what it writes ends.
fn copy(from: (Key, usize), to: (Key, usize), rows: SimRows) -> (Job, usize, usize) {
    let (read, written) = (rows.end(from.1, rows.from_pitch), rows.end(to.1, rows.to_pitch));
    (Job::Effect(Effect::Copy { from, to, rows }), read, written)
}

/// A launch: what it does, and to which bytes of which memory.
type Launched<'a> = (Effect, Vec<(&'a SimMemory, usize, Touch)>);

/// What a launch of a kernel does.
pub(crate) fn launched<'a>(kernel: &SimKernel, args: &[SimArg<'a>]) -> Result<Launched<'a>, Error> {
    kernel.check_count(args.len())?;
    let (mut slots, mut keys, mut touches) = (Vec::new(), Vec::new(), Vec::new());
    for arg in args {
        let (at, touch) = match *arg {
            SimArg::Word(word) => {
                slots.push(Slot::Word(word));
                continue;
            }
            SimArg::Read(at) => (at, Touch::Read),
            SimArg::Write(at) => (at, Touch::Write),
        };
        let SimAt { memory, offset } = at;
        let index = keys.iter().position(|&key| key == memory.key).unwrap_or(keys.len());
        if index == keys.len() {
            keys.push(memory.key);
        }
        slots.push(Slot::Buffer(index, offset));
        touches.push((memory, offset, touch));
    }
    Ok((Effect::Kernel(kernel.clone(), slots, keys), touches))
}

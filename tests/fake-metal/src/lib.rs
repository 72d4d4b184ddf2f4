//! A stand-in for Metal's calls, for tests: command buffers whose work is simulated, in virtual or in real time.
//!
//! Behind a buffer's work come four things, each at its time ([`Faults`]): its signal, the listeners of the event, its status, and its handlers. Listeners
//! and handlers run on whichever thread lets time pass, as Metal's run on threads of its own. A buffer can be killed before its signal, behind it or at any
//! moment; a device can be removed; listeners and handlers can be late, lost, early or double; a wait can come back for no reason.
//!
//! What was left behind is counted: [`FakeMetal::live`].
#![allow(clippy::missing_panics_doc, reason = "for tests")]

mod buffer;
mod event;
mod faults;

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use wakeline_core::{Instant, Nanos, Turn};
use wakeline_metal::{Bell, BufferError, BufferStatus, MetalDriver};
use wakeline_sim::{SimDevice, SimStream, TimeLine};

pub use buffer::FakeBuffer;
pub use event::FakeEvent;
pub use faults::{Absent, Call, DEVICE_REMOVED, Faults, Kill, Wait};

/// What a call costs the thread that makes it, nanoseconds: time passes for who asks again and again.
const CALL_NS: u64 = 300;

/// A time line that the fake may run on: any that can be sent to other threads.
pub trait Time: TimeLine + Send + Sync + 'static {}

impl<T: TimeLine + Send + Sync + 'static> Time for T {}

/// Metal, played on a simulated device. Clones are the same.
pub struct FakeMetal<T: Time> {
    inner: Arc<Inner<T>>,
}

struct Inner<T: Time> {
    device: SimDevice<T>,
    faults: Mutex<Faults>,
    buffers: Mutex<Vec<Weak<buffer::Inner<T>>>>,
    /// The error that ends all buffers, 0 while there is none.
    lost: AtomicI64,
    live: Arc<Live>,
}

/// How many things there are.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) buffers: AtomicUsize,
    pub(crate) bells: AtomicUsize,
}

/// A queue.
pub struct FakeQueue<T: Time> {
    stream: SimStream<T>,
}

impl<T: Time> fmt::Debug for FakeQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeQueue").finish_non_exhaustive()
    }
}

impl<T: Time> Clone for FakeMetal<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T: Time> fmt::Debug for FakeMetal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeMetal").field("live", &self.live()).finish_non_exhaustive()
    }
}

pub(crate) fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Time> FakeMetal<T> {
    /// On this device, which whoever drives it drives; its own faults are not looked at.
    pub fn new(device: &SimDevice<T>) -> Self {
        Self {
            inner: Arc::new(Inner {
                device: device.clone(),
                faults: Mutex::default(),
                buffers: Mutex::default(),
                lost: AtomicI64::new(0),
                live: Arc::default(),
            }),
        }
    }

    /// Changes what goes wrong, of buffers that are committed from now on.
    pub fn set_faults(&self, faults: Faults) {
        *lock(&self.inner.faults) = faults;
    }

    pub(crate) fn faults(&self) -> Faults {
        *lock(&self.inner.faults)
    }

    /// The simulated device.
    pub fn device(&self) -> &SimDevice<T> {
        &self.inner.device
    }

    /// How many buffers and how many bells are kept by anybody.
    pub fn live(&self) -> (usize, usize) {
        let live = &self.inner.live;
        (live.buffers.load(Ordering::SeqCst), live.bells.load(Ordering::SeqCst))
    }

    pub(crate) fn census(&self) -> &Arc<Live> {
        &self.inner.live
    }

    /// The calling thread spends the cost of a call.
    pub(crate) fn spend(&self, ns: u64) {
        let until = self.now() + Nanos::from_nanos(ns);
        while self.now() < until {
            self.device().time().pass(until);
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.device().time().now()
    }
}

impl<T: Time> FakeMetal<T> {
    /// Ends all that is under way and all that comes, as when the device is unplugged.
    pub fn remove_device(&self) {
        self.inner.lost.store(DEVICE_REMOVED, Ordering::SeqCst);
        let buffers: Vec<_> = lock(&self.inner.buffers).iter().filter_map(Weak::upgrade).collect();
        for buffer in buffers {
            FakeBuffer(buffer).kill_if_committed(DEVICE_REMOVED);
        }
    }

    /// What ends a buffer that is committed now.
    pub(crate) fn lost(&self) -> Option<i64> {
        let lost = self.inner.lost.load(Ordering::SeqCst);
        (lost != 0).then_some(lost)
    }
}

impl<T: Time> MetalDriver for FakeMetal<T> {
    type Device = ();
    type Queue = FakeQueue<T>;
    type Buffer = FakeBuffer<T>;
    type Event = FakeEvent<T>;

    fn system_device(&self) -> Option<()> {
        (self.faults().absent != Some(Absent::Device)).then_some(())
    }

    fn new_queue(&self, (): &()) -> Option<FakeQueue<T>> {
        if self.faults().absent == Some(Absent::Queue) {
            return None;
        }
        self.device().stream().ok().map(|stream| FakeQueue { stream })
    }

    fn new_event(&self, (): &()) -> Option<FakeEvent<T>> {
        (self.faults().absent != Some(Absent::Event)).then(|| FakeEvent::new(self.clone()))
    }

    fn new_buffer(&self, queue: &FakeQueue<T>) -> Option<FakeBuffer<T>> {
        if self.faults().absent == Some(Absent::Buffer) {
            return None;
        }
        let buffer = FakeBuffer::new(self.clone(), queue.stream.clone());
        let mut buffers = lock(&self.inner.buffers);
        buffers.retain(|buffer| buffer.strong_count() > 0);
        buffers.push(Arc::downgrade(&buffer.0));
        Some(buffer)
    }

    fn is_of(&self, buffer: &FakeBuffer<T>, queue: &FakeQueue<T>) -> bool {
        Arc::ptr_eq(buffer.0.queue.line(), queue.stream.line())
            && buffer.0.queue.slot() == queue.stream.slot()
    }

    fn claim(&self, buffer: &FakeBuffer<T>) -> bool {
        buffer.claim()
    }

    fn encode_signal(&self, buffer: &FakeBuffer<T>, event: &FakeEvent<T>, value: u64) {
        self.spend(CALL_NS);
        buffer.encode(event, value);
    }

    fn on_completed(&self, buffer: &FakeBuffer<T>, bell: Bell<Self>) {
        self.spend(CALL_NS);
        buffer.handle(bell);
    }

    fn notify(&self, event: &FakeEvent<T>, value: u64, bell: Bell<Self>) {
        self.spend(CALL_NS);
        event.listen(value, bell);
    }

    fn enqueue(&self, buffer: &FakeBuffer<T>) {
        self.spend(CALL_NS);
        buffer.enqueue();
    }

    fn commit(&self, buffer: &FakeBuffer<T>) {
        self.spend(CALL_NS);
        buffer.commit();
    }

    fn status(&self, buffer: &FakeBuffer<T>) -> BufferStatus {
        self.spend(CALL_NS);
        // What is due has happened by then, however late whoever drives the device is.
        self.device().turn(self.now());
        buffer.asked()
    }

    fn error(&self, buffer: &FakeBuffer<T>) -> Option<BufferError> {
        buffer.error()
    }

    fn signaled_value(&self, event: &FakeEvent<T>) -> u64 {
        event.value()
    }

    fn wait(&self, event: &FakeEvent<T>, value: u64, timeout_ms: u64) -> bool {
        event.wait(value, timeout_ms)
    }
}

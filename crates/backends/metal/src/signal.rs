//! What the listener of an event, the handler of a buffer and the port of a point have in common.

use core::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use atomic_waker::AtomicWaker;
use wakeline_core::{Error, HostLine, MemoryDescriptor, Seq, Slot};

use crate::device::Device;
use crate::driver::{BufferStatus, MetalDriver};
use crate::error::BufferError;

/// The word of a point: each has a line of its own, so points may end in any order.
const SLOT: Slot = Slot::ALL[0];

/// How a point ended, once it is known to have.
///
/// ```text
///   pending ──look: status Completed──► the word is stored, then Ok is kept ──► done
///      │
///      └──────look: status Error──────► the cause is kept, the word is not stored ──► failed
/// ```
pub(crate) struct Signal<D: MetalDriver> {
    device: Device<D>,
    line: Arc<HostLine>,
    value: u64,
    /// What is asked. None once it has ended or the port is gone: the buffer keeps its handler, which keeps this, so this must not keep the buffer.
    buffer: Mutex<Option<D::Buffer>>,
    end: OnceLock<Result<(), Error>>,
    waker: AtomicWaker,
}

impl<D: MetalDriver> Signal<D> {
    pub(crate) fn new(device: Device<D>, buffer: D::Buffer, value: u64) -> Arc<Self> {
        let line = Arc::new(HostLine::new());
        // The number before: values may be anywhere in their range, and are compared by their distance.
        line.store(SLOT, Seq::new(value.wrapping_sub(1)));
        let buffer = Mutex::new(Some(buffer));
        Arc::new(Self { device, line, value, buffer, end: OnceLock::new(), waker: AtomicWaker::new() })
    }

    pub(crate) fn word(&self) -> MemoryDescriptor<Arc<HostLine>> {
        MemoryDescriptor::new(Arc::clone(&self.line), SLOT, Seq::new(self.value))
    }

    pub(crate) fn waker(&self) -> &AtomicWaker {
        &self.waker
    }

    /// Asks the buffer, unless its end is known; `None` while it has none.
    pub(crate) fn look(&self) -> Option<Result<(), Error>> {
        if let Some(end) = self.end.get() {
            return Some(end.clone());
        }
        let buffer = self.buffer().clone()?;
        let end = match self.device.driver().status(&buffer) {
            BufferStatus::NotEnqueued | BufferStatus::Enqueued | BufferStatus::Committed => return None,
            BufferStatus::Completed => Ok(()),
            BufferStatus::Error => {
                let error = self.device.driver().error(&buffer);
                Err(self.device.told(&error.unwrap_or_else(|| BufferError::new(0, "without a cause"))))
            }
        };
        if end.is_ok() {
            self.line.store(SLOT, Seq::new(self.value));
        }
        let end = self.end.get_or_init(|| end).clone();
        self.let_go();
        Some(end)
    }

    /// Gives up the buffer: what rings later finds nothing to ask.
    pub(crate) fn let_go(&self) {
        let buffer = self.buffer().take();
        // Not under the lock: it may be the last of it.
        drop(buffer);
    }

    fn buffer(&self) -> std::sync::MutexGuard<'_, Option<D::Buffer>> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: MetalDriver> fmt::Debug for Signal<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signal")
            .field("value", &self.value)
            .field("end", &self.end.get())
            .finish_non_exhaustive()
    }
}

/// What the listener of an event and the handler of a command buffer ring. May outlive the port, and be rung at any time and any number of times.
pub struct Bell<D: MetalDriver>(pub(crate) Arc<Signal<D>>);

impl<D: MetalDriver> Bell<D> {
    /// Looks at the buffer, and wakes who awaits its end. Takes no lock of others' and waits for nothing.
    pub fn ring(&self) {
        // Who asks the port is told of an error.
        let _ = self.0.look();
        self.0.waker.wake();
    }
}

impl<D: MetalDriver> Clone for Bell<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: MetalDriver> fmt::Debug for Bell<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bell").field(&self.0).finish()
    }
}

//! Copies to the host that are checked byte by byte: that who awaits a point sees what was done before it.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use wakeline_core::{CompletionPort, Error, Status};

use crate::driver::WorkDriver;
use crate::memory::{DeviceBuffer, HostBuffer};
use crate::stream::Stream;

/// A buffer of the device that is filled with a byte and copied to the host, again and again.
///
/// It can be looked at while a copy is under way, and then shows what has come so far: that is what it is for. Dropped while the stream has work left, or has
/// failed, it leaves its memory to the device for good.
#[derive(Debug)]
pub struct Readback<D: WorkDriver> {
    stream: Stream<D>,
    /// `None` once the value is dropped.
    buffers: Option<(DeviceBuffer<D>, HostBuffer<D>)>,
    /// Something was enqueued that is perhaps not of this stream: a capture began meanwhile.
    stray: AtomicBool,
}

impl<D: WorkDriver> Readback<D> {
    /// Allocates `bytes` at both ends, rounded up to whole words of eight.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::new`] and [`HostBuffer::new`].
    pub fn new(stream: &Stream<D>, bytes: usize) -> Result<Self, Error> {
        let context = &stream.context();
        // What cannot be rounded up cannot be allocated either, and that error says why.
        let bytes = bytes.max(1).checked_next_multiple_of(size_of::<u64>()).unwrap_or(usize::MAX);
        // The host's first: it knows what length there can be.
        let host = HostBuffer::new(context, bytes)?;
        let buffers = (DeviceBuffer::new(context, bytes)?, host);
        Ok(Self { stream: stream.clone(), buffers: Some(buffers), stray: AtomicBool::new(false) })
    }

    /// Enqueues that all bytes of the device's become `byte`, and behind that their copy to the host.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::fill`] and [`DeviceBuffer::copy_to`].
    pub fn launch(&self, byte: u8) -> Result<(), Error> {
        let Some((device, host)) = &self.buffers else { return Ok(()) };
        self.stream.ready()?;
        // SAFETY: the stream is kept and of the buffer's context. The buffer is used on this stream alone, and freed only when that has nothing left.
        unsafe { device.fill(self.stream.raw(), byte) }?;
        // SAFETY: as above; what the host reads meanwhile it reads by atomic loads, through no reference to the bytes.
        unsafe { device.copy_to(self.stream.raw(), host) }?;
        self.stream.ready().inspect_err(|_| self.stray.store(true, Ordering::Release))
    }

    /// How many of the host's bytes are not `byte`. Reads all of them.
    pub fn stale_bytes(&self, byte: u8) -> usize {
        let Some((_, host)) = &self.buffers else { return 0 };
        let expected = u64::from_ne_bytes([byte; size_of::<u64>()]);
        let words = host.bytes() / size_of::<u64>();
        let first = host.start().cast::<u64>();
        let mut stale = 0;
        for index in 0..words {
            // SAFETY: within the buffer.
            let word = unsafe { first.add(index) };
            // SAFETY: a page's start is aligned, the memory has values and is kept; the host looks at it by atomic loads alone.
            let word = unsafe { AtomicU64::from_ptr(word) };
            let found = word.load(Ordering::Relaxed);
            if found != expected {
                stale += (found ^ expected).to_ne_bytes().iter().filter(|byte| **byte != 0).count();
            }
        }
        stale
    }
}

impl<D: WorkDriver> Drop for Readback<D> {
    fn drop(&mut self) {
        let idle = self.stream.port().and_then(|mut port| port.query());
        if !matches!(idle, Ok(Status::Done)) || *self.stray.get_mut() {
            // A copy may still come.
            core::mem::forget(self.buffers.take());
        }
    }
}

//! Metal itself: the table of its calls, through objc2's bindings. Thin: nothing is decided here.
//!
//! Every call is made within an autorelease pool of its own. The framework is linked, as every program on Apple's systems may: it is part of them.
#![allow(unsafe_code, reason = "objects and blocks of Objective-C")]

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use block2::RcBlock;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_metal::{
    MTLCommandBuffer, MTLCommandBufferStatus, MTLCommandQueue, MTLCreateSystemDefaultDevice, MTLDevice,
    MTLEvent, MTLSharedEvent, MTLSharedEventListener,
};

use crate::driver::{BufferStatus, MetalDriver};
use crate::error::BufferError;
use crate::signal::Bell;

/// Metal's own calls, and the listener of its events: one for all, on a dispatch queue of its own.
#[derive(Clone, Debug)]
pub struct Metal {
    listener: Retained<MTLSharedEventListener>,
}

impl Metal {
    /// With a listener of its own.
    pub fn new() -> Self {
        Self { listener: autoreleasepool(|_| MTLSharedEventListener::new()) }
    }
}

impl Default for Metal {
    fn default() -> Self {
        Self::new()
    }
}

/// A command buffer of Metal's. Clones are the same.
#[derive(Clone)]
pub struct CommandBuffer {
    raw: Retained<ProtocolObject<dyn MTLCommandBuffer>>,
    /// Whether it was handed in, by any of the clones.
    claimed: Arc<AtomicBool>,
}

impl CommandBuffer {
    /// This one, to be awaited.
    ///
    /// # Safety
    ///
    /// Until it is handed to a stream nobody encodes into it but the thread that hands it in, and nobody encodes or commits at the same time on another. No other value was made of it
    /// that is not a clone of this.
    pub unsafe fn from_raw(raw: Retained<ProtocolObject<dyn MTLCommandBuffer>>) -> Self {
        Self::new(raw)
    }

    fn new(raw: Retained<ProtocolObject<dyn MTLCommandBuffer>>) -> Self {
        Self { raw, claimed: Arc::default() }
    }

    /// Metal's own, to encode work into and, where a stream made a point of it, to commit it.
    ///
    /// # Safety
    ///
    /// It is used on one thread at a time; nothing is encoded once it is handed to a stream.
    pub unsafe fn raw(&self) -> &ProtocolObject<dyn MTLCommandBuffer> {
        &self.raw
    }
}

impl fmt::Debug for CommandBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CommandBuffer").field(&Retained::as_ptr(&self.raw)).finish()
    }
}

// SAFETY: Objective-C counts references atomically, so any thread may drop it. What is called from other threads than its own, once it is handed to a
// stream, is `status` and `error`, which Metal answers on any thread; what encodes is called by the stream alone, on the one thread that has claimed it.
unsafe impl Send for CommandBuffer {}
// SAFETY: as above. What else there is takes `raw`, whose caller keeps to one thread.
unsafe impl Sync for CommandBuffer {}

/// What a buffer's handler is called with.
type OfBuffer = NonNull<ProtocolObject<dyn MTLCommandBuffer>>;
/// What an event's listener is called with, beside the value.
type OfEvent = NonNull<ProtocolObject<dyn MTLSharedEvent>>;

impl MetalDriver for Metal {
    type Device = Retained<ProtocolObject<dyn MTLDevice>>;
    type Queue = Retained<ProtocolObject<dyn MTLCommandQueue>>;
    type Buffer = CommandBuffer;
    type Event = Retained<ProtocolObject<dyn MTLSharedEvent>>;

    fn system_device(&self) -> Option<Self::Device> {
        autoreleasepool(|_| MTLCreateSystemDefaultDevice())
    }

    fn new_queue(&self, device: &Self::Device) -> Option<Self::Queue> {
        autoreleasepool(|_| device.newCommandQueue())
    }

    fn new_event(&self, device: &Self::Device) -> Option<Self::Event> {
        autoreleasepool(|_| device.newSharedEvent())
    }

    fn new_buffer(&self, queue: &Self::Queue) -> Option<Self::Buffer> {
        autoreleasepool(|_| queue.commandBuffer().map(CommandBuffer::new))
    }

    fn is_of(&self, buffer: &Self::Buffer, queue: &Self::Queue) -> bool {
        autoreleasepool(|_| buffer.raw.commandQueue() == *queue)
    }

    fn claim(&self, buffer: &Self::Buffer) -> bool {
        !buffer.claimed.swap(true, Ordering::AcqRel)
    }

    fn encode_signal(&self, buffer: &Self::Buffer, event: &Self::Event, value: u64) {
        let event: &ProtocolObject<dyn MTLEvent> = ProtocolObject::from_ref(&**event);
        autoreleasepool(|_| buffer.raw.encodeSignalEvent_value(event, value));
    }

    fn on_completed(&self, buffer: &Self::Buffer, bell: Bell<Self>) {
        let block: RcBlock<dyn Fn(OfBuffer)> = RcBlock::new(move |_| bell.ring());
        // SAFETY: the block is a valid one, which Metal copies; its bell may be rung and dropped on any thread.
        autoreleasepool(|_| unsafe { buffer.raw.addCompletedHandler(RcBlock::as_ptr(&block)) });
    }

    fn notify(&self, event: &Self::Event, value: u64, bell: Bell<Self>) {
        let block: RcBlock<dyn Fn(OfEvent, u64)> = RcBlock::new(move |_, _| bell.ring());
        autoreleasepool(|_| {
            // SAFETY: as above.
            unsafe { event.notifyListener_atValue_block(&self.listener, value, RcBlock::as_ptr(&block)) };
        });
    }

    fn enqueue(&self, buffer: &Self::Buffer) {
        autoreleasepool(|_| buffer.raw.enqueue());
    }

    fn commit(&self, buffer: &Self::Buffer) {
        autoreleasepool(|_| buffer.raw.commit());
    }

    fn status(&self, buffer: &Self::Buffer) -> BufferStatus {
        match autoreleasepool(|_| buffer.raw.status()) {
            MTLCommandBufferStatus::NotEnqueued => BufferStatus::NotEnqueued,
            MTLCommandBufferStatus::Enqueued => BufferStatus::Enqueued,
            MTLCommandBufferStatus::Completed => BufferStatus::Completed,
            MTLCommandBufferStatus::Error => BufferStatus::Error,
            // Committed and scheduled; and what a later system may add, which is no end that is known here.
            _ => BufferStatus::Committed,
        }
    }

    fn error(&self, buffer: &Self::Buffer) -> Option<BufferError> {
        autoreleasepool(|_| {
            let error = buffer.raw.error()?;
            Some(BufferError::new(error.code() as i64, error.localizedDescription().to_string()))
        })
    }

    fn signaled_value(&self, event: &Self::Event) -> u64 {
        autoreleasepool(|_| event.signaledValue())
    }

    fn wait(&self, event: &Self::Event, value: u64, timeout_ms: u64) -> bool {
        autoreleasepool(|_| event.waitUntilSignaledValue_timeoutMS(value, timeout_ms))
    }
}

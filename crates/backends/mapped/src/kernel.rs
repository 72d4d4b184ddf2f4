//! Words that a running kernel stores.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode, MemoryDescriptor, Seq};

use crate::context::Context;
use crate::driver::LineDriver;
use crate::inner::Inner;
use crate::line::MappedLine;
use crate::path::CompletionPath;
use crate::pool::{Armed, Place};
use crate::port::Port;
use crate::stream::Stream;

/// A word that a running kernel stores its progress into: every number is a point that can be awaited while the kernel goes on.
///
/// The kernel gets [`address`](Self::address) and stores rising numbers, from the one after [`reads`](Self::reads). Each store needs a fence of the
/// whole system before it, so that who sees the number sees what came before it: in CUDA C++
/// `__threadfence_system(); *(volatile unsigned long long*)word = n;` by one thread after a barrier of its block, in PTX
/// `fence.acq_rel.sys; st.relaxed.sys.u64` (or `st.release.sys.u64`).
///
/// Await it by a wait for a kernel point ([`Wait::kernel_point`](wakeline_core::Wait::kernel_point)) under a `flag` plan: the word is the
/// authority, and the driver is asked every backstop whether the kernel has failed.
///
/// Nobody can know whether a kernel still stores into it. So a value whose address was asked for and that is dropped sets its word aside
/// for good, counted in [`SlotUse::lost`](crate::SlotUse); [`retire`](Self::retire) and [`retire_behind`](Self::retire_behind) give it back.
pub struct KernelWord<D: LineDriver> {
    context: Arc<Inner<D>>,
    place: Place,
    /// Whether anybody has the address, thus a kernel may.
    given: AtomicBool,
    /// What was stored behind the last kernel that has it.
    last: Option<Seq>,
}

/// How far beyond what a word reads the number lies that gives it back: a quarter of all numbers, so that those within as much of what it
/// reads are before it, as numbers wrap.
const BEYOND: u64 = 1 << 62;

impl<D: LineDriver> fmt::Debug for KernelWord<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelWord")
            .field("address", &format_args!("{:#x}", self.place.device()))
            .field("reads", &self.reads())
            .finish_non_exhaustive()
    }
}

impl<D: LineDriver> KernelWord<D> {
    pub(crate) fn new(context: &Arc<Inner<D>>) -> Result<Self, Error> {
        context.open()?;
        let _bound = context.bind()?;
        let place = context.take_place()?;
        Ok(Self { context: Arc::clone(context), place, given: AtomicBool::new(false), last: None })
    }

    /// Where the device sees the word: eight bytes, aligned.
    pub fn address(&self) -> u64 {
        self.given.store(true, Ordering::Relaxed);
        self.place.device()
    }

    /// What the word reads now, `Acquire`. In a fork's child, which does not have it, [`Seq::ZERO`]: to know that takes a system call, so look at
    /// a [`word`](Self::word) in a loop.
    pub fn reads(&self) -> Seq {
        if self.context.forked() {
            return Seq::ZERO;
        }
        // SAFETY: the page is the context's.
        unsafe { self.place.word() }
    }

    /// Stores `number` from the host, `Release`: for a word that tells a kernel something, or what rises between two kernels. Nothing
    /// in a fork's child.
    pub fn set(&self, number: Seq) {
        if self.context.forked() {
            return;
        }
        // SAFETY: the page is the context's.
        unsafe { self.place.store(number) };
    }

    /// "The word reaches this number", for a wait that needs no driver: a watcher's bare word, say.
    pub fn word(&self, number: Seq) -> MemoryDescriptor<MappedLine<D>> {
        // SAFETY: the place is of a page of this context.
        let line = unsafe { MappedLine::new(Arc::clone(&self.context), self.place.line()) };
        MemoryDescriptor::new(line, self.place.slot(), number)
    }

    /// The point at which the word reaches `number`, for a kernel that was launched on `stream` before this call: the driver is
    /// asked about that work for faults.
    ///
    /// # Errors
    ///
    /// As [`Stream::port`].
    pub fn port(&self, stream: &Stream<D>, number: Seq) -> Result<Port<D>, Error> {
        self.belongs_with(stream)?;
        let mut port = Port::new(stream)?;
        port.set_word(self.word(number));
        Ok(port)
    }

    /// That `stream` is of this word's context.
    ///
    /// # Errors
    ///
    /// [`ForeignStream`](ErrorCode::ForeignStream): it is not.
    pub fn belongs_with(&self, stream: &Stream<D>) -> Result<(), Error> {
        let (own, other) = (self.context.raw, stream.shared().context.raw);
        if own == other {
            return Ok(());
        }
        Err(Error::new(ErrorCode::ForeignStream, [&D::NAME, &stream.raw(), &other, &own]))
    }

    /// Gives the word back for others to use.
    ///
    /// # Safety
    ///
    /// No kernel stores into it from now on.
    pub unsafe fn retire(mut self) {
        *self.given.get_mut() = false;
    }

    /// Gives the word back for others to use as soon as all work that is on `stream` by now has ended: the stream stores a last number into
    /// it behind that work. One driver call, which does not wait for the device.
    ///
    /// Where the stream cannot store it, the word is set aside for good, as in a drop. Waits for the word end by that number.
    ///
    /// # Safety
    ///
    /// All kernels that store into it are on `stream` by now, in no graph, and the numbers that they store are less than 2^62, either way, from
    /// what it [`reads`](Self::reads) now.
    pub unsafe fn retire_behind(mut self, stream: &Stream<D>) {
        // What nobody has the address of goes back as it is.
        if !*self.given.get_mut() {
            return;
        }
        let context = &self.context;
        if self.belongs_with(stream).is_err() || context.completion() != CompletionPath::Word {
            return;
        }
        let Ok(()) = stream.ready_in_drop() else { return };
        let last = Seq::new(self.reads().get().wrapping_add(BEYOND));
        let stored = context.try_bind().and_then(|_bound| {
            // SAFETY: the context is bound, the stream alive, the address that of a word of a page which is kept until this has landed.
            unsafe { context.driver.store(stream.raw(), self.place.device(), last.get()) }
        });
        match stored {
            // A capture may have begun between the look and the call.
            Ok(()) if stream.ready_in_drop().is_ok() => self.last = Some(last),
            Ok(()) => {}
            Err(error) => context.failed_in_drop(&error),
        }
    }

    /// The context that it belongs to.
    pub fn context(&self) -> Context<D> {
        Context::of(Arc::clone(&self.context))
    }
}

impl<D: LineDriver> Drop for KernelWord<D> {
    fn drop(&mut self) {
        let armed = if let Some(last) = self.last {
            Armed::Upto(last)
        } else if *self.given.get_mut() {
            Armed::Unknown
        } else if self.context.forked() {
            // No process but the one that made it has the page, and none needs the word.
            return;
        } else {
            // SAFETY: the page is the context's.
            Armed::Upto(unsafe { self.place.word() })
        };
        self.context.give_place(self.place, armed);
    }
}

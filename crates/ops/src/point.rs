//! The point behind a submission, by whichever way its end is told.

use core::fmt;
use core::ops::Deref;
use std::sync::Arc;

use wakeline_core::{
    Arming, CompletionLine, CompletionPort, ContextKey, Error, HostLine, Instant, LineRef, MemoryDescriptor,
    Seq, Slot, Status, Wake,
};

use crate::port::Device;
use crate::stream::Stream;
use crate::sync::Lock;

/// A point of a device as operations wait for it: its word is the device's own, or one that a function of the host stores into behind the
/// work. What a runtime's tender tends.
pub struct OpPoint<P: CompletionPort> {
    point: P,
    word: Option<MemoryDescriptor<OpLine<P::Line>>>,
}

/// The line of an [`OpPoint`]'s word.
#[derive(Clone)]
pub enum OpLine<L> {
    /// The device's own.
    Device(L),
    /// One of the host.
    Host(Arc<HostLine>),
}

impl<L: LineRef> Deref for OpLine<L> {
    type Target = CompletionLine;

    #[inline]
    fn deref(&self) -> &CompletionLine {
        match self {
            Self::Device(line) => line.line(),
            Self::Host(line) => line,
        }
    }
}

impl<L> fmt::Debug for OpLine<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device(_) => "Device",
            Self::Host(_) => "Host",
        })
    }
}

impl<P: CompletionPort> fmt::Debug for OpPoint<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpPoint")
            .field("word", &self.word.as_ref().map(MemoryDescriptor::seq))
            .finish_non_exhaustive()
    }
}

impl<P: CompletionPort> OpPoint<P> {
    pub(crate) const fn new(point: P) -> Self {
        Self { point, word: None }
    }

    /// Its word, once it is sealed.
    pub(crate) const fn word(&self) -> Option<&MemoryDescriptor<OpLine<P::Line>>> {
        self.word.as_ref()
    }

    /// Arms it by the device's own word, for who looks at it here.
    #[inline]
    pub(crate) fn arm_own(&mut self) -> Result<Arming, Error> {
        self.point.arm()
    }

    /// Whether its word is there.
    #[inline]
    pub(crate) fn reached(&self) -> bool {
        match &self.word {
            Some(word) => word.reached(),
            None => self.point.poll() == Wake::Reached,
        }
    }

    /// Makes its word known to others. What is seen to its end here needs none of its own.
    pub(crate) fn seal(&mut self) {
        if let (None, Some(word)) = (&self.word, self.point.descriptor()) {
            let line = OpLine::Device(word.line_ref().clone());
            self.word = Some(MemoryDescriptor::new(line, word.slot(), word.seq()));
        }
    }

    /// Has a function of the host store a word behind all that is enqueued in the stream.
    ///
    /// The function stores, and does nothing else: it takes no lock and calls no driver, so that whatever thread it runs on waits for
    /// nobody who may be in a driver call.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub(crate) fn arm_by_callback<D>(&mut self, stream: &Stream<D>) -> Result<(), Error>
    where
        D: Device<Point = P, Line = P::Line>,
    {
        let (line, seq) = stream.host_word().next(|line, seq| {
            let line = Arc::clone(line);
            stream.device().call_host(stream.raw(), move || line.store(HostWord::SLOT, seq))
        })?;
        self.word = Some(MemoryDescriptor::new(OpLine::Host(line), HostWord::SLOT, seq));
        Ok(())
    }
}

impl<P: CompletionPort> CompletionPort for OpPoint<P> {
    type Line = OpLine<P::Line>;

    fn query(&mut self) -> Result<Status, Error> {
        self.point.query()
    }

    fn block(&mut self, until: Option<Instant>) -> Result<Status, Error> {
        self.point.block(until)
    }

    fn arm(&mut self) -> Result<Arming, Error> {
        if self.word.is_some() {
            return Ok(Arming::Armed);
        }
        let arming = self.arm_own()?;
        self.seal();
        Ok(arming)
    }

    fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>> {
        self.word.as_ref()
    }

    fn context(&self) -> Option<ContextKey> {
        self.point.context()
    }

    fn ended(&self) -> Option<Instant> {
        self.point.ended()
    }
}

/// The word of a stream that functions of the host store into. Made when it is first used.
#[derive(Debug)]
pub(crate) struct HostWord(Lock<Option<(Arc<HostLine>, Seq)>>);

impl HostWord {
    const SLOT: Slot = Slot::ALL[0];

    pub(crate) fn new() -> Self {
        Self(Lock::new(None))
    }

    /// Takes the next number and enqueues its store, under one lock: the numbers land in their order. Where that fails the number is
    /// gone all the same: it may have been enqueued, and must not end a later point.
    fn next(
        &self,
        enqueue: impl FnOnce(&Arc<HostLine>, Seq) -> Result<(), Error>,
    ) -> Result<(Arc<HostLine>, Seq), Error> {
        let mut word = self.0.lock();
        let (line, last) = word.get_or_insert_with(|| (Arc::new(HostLine::new()), Seq::ZERO));
        let seq = last.next();
        *last = seq;
        enqueue(line, seq)?;
        Ok((Arc::clone(line), seq))
    }
}

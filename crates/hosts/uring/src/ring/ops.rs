//! Operations as futures, with buffers that go in by value.

use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::io;
use std::os::fd::OwnedFd;

use io_uring::cqueue;

use super::UringIdle;
use super::slab::{Ended, Kind, Memory, Polled};
use super::sys::{Request, check};
use super::tag::Key;

/// The future of an operation that was started on a [`UringIdle`].
///
/// The operation is under way whether this is polled or not: several may be started and then awaited. Dropping it gives up
/// interest: the operation is cancelled as soon as it is submitted, and its buffer freed when the kernel has let go of it. What it had
/// done by then stays done: a connection that was accepted meanwhile is closed, bytes that were received are lost. (A
/// [`close`](UringIdle::close) is not cancelled.) A future that is forgotten keeps its place until the ring is dropped.
///
/// A thread's operations end with that thread: one that starts some must live until they have ended.
///
/// # Panics
///
/// When it is polled after it was ready.
#[must_use = "the operation is cancelled when its future is dropped"]
pub struct Op<'r, O: Operation> {
    ring: &'r UringIdle,
    state: OpState,
    operation: PhantomData<fn() -> O>,
}

enum OpState {
    Started(Key),
    Refused(io::Error, Memory),
    Over,
}

/// What the future of an operation gives. Sealed: the operations are [`Accept`], [`Transfer`], [`Close`] and [`Raw`].
pub trait Operation: sealed::Operation {}

/// An [`accept`](UringIdle::accept).
#[derive(Debug)]
pub enum Accept {}
/// A receiving or sending: `recv`, `read`, `send` or `write`.
#[derive(Debug)]
pub enum Transfer {}
/// A [`close`](UringIdle::close).
#[derive(Debug)]
pub enum Close {}
/// An operation of your own, [`submit`](UringIdle::submit)ted with a `T` to keep.
#[derive(Debug)]
pub struct Raw<T>(PhantomData<T>);

impl<O: sealed::Operation> Operation for O {}

mod sealed {
    use super::{Ended, Memory, io};

    pub trait Operation {
        type Output;
        fn end(ended: Ended) -> Self::Output;
        fn refuse(error: io::Error, memory: Memory) -> Self::Output;
    }
}

impl sealed::Operation for Accept {
    type Output = io::Result<OwnedFd>;

    fn end(ended: Ended) -> Self::Output {
        ended.into_accepted()
    }

    fn refuse(error: io::Error, _: Memory) -> Self::Output {
        Err(error)
    }
}

impl sealed::Operation for Transfer {
    type Output = (io::Result<usize>, Vec<u8>);

    fn end(ended: Ended) -> Self::Output {
        ended.into_transferred()
    }

    fn refuse(error: io::Error, memory: Memory) -> Self::Output {
        let buffer = if let Memory::Buffer(buffer) = memory { buffer } else { Vec::new() };
        (Err(error), buffer)
    }
}

impl sealed::Operation for Close {
    type Output = io::Result<()>;

    fn end(ended: Ended) -> Self::Output {
        check(ended.result).map(drop)
    }

    fn refuse(error: io::Error, _: Memory) -> Self::Output {
        Err(error)
    }
}

impl<T: 'static> sealed::Operation for Raw<T> {
    /// What was kept is there, but for a defect of this crate.
    type Output = (io::Result<i32>, Option<T>);

    fn end(ended: Ended) -> Self::Output {
        (check(ended.result), unboxed(ended.memory))
    }

    fn refuse(error: io::Error, memory: Memory) -> Self::Output {
        (Err(error), unboxed(memory))
    }
}

fn unboxed<T: 'static>(memory: Memory) -> Option<T> {
    let Memory::Other(kept) = memory else { return None };
    kept.downcast().ok().map(|kept| *kept)
}

impl<'r, O: Operation> Op<'r, O> {
    pub(super) fn started(ring: &'r UringIdle, started: Result<Key, (io::Error, Memory)>) -> Self {
        let state = match started {
            Ok(key) => OpState::Started(key),
            Err((error, memory)) => OpState::Refused(error, memory),
        };
        Self { ring, state, operation: PhantomData }
    }
}

impl<O: Operation> Future for Op<'_, O> {
    type Output = O::Output;

    #[expect(clippy::panic, reason = "the contract of futures; documented")]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let key = match core::mem::replace(&mut self.state, OpState::Over) {
            OpState::Started(key) => key,
            OpState::Refused(error, memory) => return Poll::Ready(O::refuse(error, memory)),
            OpState::Over => panic!("an operation was polled after it was ready"),
        };
        // Each borrow ends before a waker is cloned or dropped.
        let polled = self.ring.state.borrow_mut().ops.poll(key, context.waker());
        match polled {
            Polled::Ended(ended) => return Poll::Ready(O::end(ended)),
            Polled::Waits => {}
            Polled::Pending => {
                let waker = context.waker().clone();
                let last = self.ring.state.borrow_mut().ops.leave(key, waker);
                drop(last);
            }
        }
        self.state = OpState::Started(key);
        Poll::Pending
    }
}

impl<O: Operation> Drop for Op<'_, O> {
    fn drop(&mut self) {
        if let OpState::Started(key) = self.state {
            let mut state = self.ring.state.borrow_mut();
            let ended = state.ops.take(key);
            let (waker, cancel) = if ended.is_some() { (None, false) } else { state.ops.orphan(key) };
            if cancel {
                state.cancel(key);
            }
            drop(state);
            drop(waker);
            if let Some(ended) = ended {
                discard(ended);
            }
        }
    }
}

/// Drops what an operation left, a descriptor included.
pub(super) fn discard(ended: Ended) {
    if ended.kind == Kind::Accept {
        drop(ended.into_accepted());
    }
}

impl<O: Operation> fmt::Debug for Op<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            OpState::Started(_) => "started",
            OpState::Refused(..) => "refused",
            OpState::Over => "over",
        };
        f.debug_struct("Op").field("state", &state).finish_non_exhaustive()
    }
}

/// Operations on owned descriptors. Each is pushed at once and submitted with others, as an entry of
/// [`push`](UringIdle::push) is; it keeps the descriptor open and its buffer alive until it has ended. Where there is no room for
/// another (operations in flight, entries not submitted), the future is ready with an error of the kind
/// [`QuotaExceeded`](io::ErrorKind::QuotaExceeded), whose source is a coded [`Error`](wakeline_core::Error). None allocates.
///
/// A `TcpStream`, `TcpListener`, `File` and so on turns into an `Arc<OwnedFd>` by `Arc::new(OwnedFd::from(stream))`.
impl UringIdle {
    /// Accepts a connection on a listening socket.
    pub fn accept(&self, fd: &Arc<OwnedFd>) -> Op<'_, Accept> {
        self.start(fd, Request::Accept)
    }

    /// Receives bytes from a socket into the buffer's spare capacity, behind what it holds; gives their number and the buffer. None
    /// means that the other side has closed. An error of the kind [`InvalidInput`](io::ErrorKind::InvalidInput) where there is no
    /// spare capacity.
    pub fn recv(&self, fd: &Arc<OwnedFd>, buffer: Vec<u8>) -> Op<'_, Transfer> {
        self.start_into(fd, buffer, Request::Receive)
    }

    /// Sends the buffer's bytes to a socket; gives the number of those that were sent, mostly all, and the buffer. Raises no
    /// `SIGPIPE`.
    pub fn send(&self, fd: &Arc<OwnedFd>, buffer: Vec<u8>) -> Op<'_, Transfer> {
        self.start(fd, Request::Send(buffer))
    }

    /// As [`recv`](Self::recv), from a file or a pipe at its own position.
    pub fn read(&self, fd: &Arc<OwnedFd>, buffer: Vec<u8>) -> Op<'_, Transfer> {
        self.start_into(fd, buffer, Request::Read)
    }

    /// As [`send`](Self::send), to a file or a pipe at its own position.
    pub fn write(&self, fd: &Arc<OwnedFd>, buffer: Vec<u8>) -> Op<'_, Transfer> {
        self.start(fd, Request::Write(buffer))
    }

    /// Closes a descriptor without blocking this thread. Where there is no room it is closed at once instead, and the
    /// future gives the error.
    pub fn close(&self, fd: OwnedFd) -> Op<'_, Close> {
        let started = self.state.borrow_mut().start_close(fd);
        Op::started(self, started.map_err(|error| (error, Memory::None)))
    }

    /// The next completion of an entry that was [pushed](Self::push), as a future; one of them waits at a time.
    pub fn completion(&self) -> Completion<'_> {
        Completion { ring: self }
    }

    fn start<O: Operation>(&self, fd: &Arc<OwnedFd>, request: Request) -> Op<'_, O> {
        let started = self.state.borrow_mut().start(fd, request);
        Op::started(self, started)
    }

    fn start_into(
        &self,
        fd: &Arc<OwnedFd>,
        buffer: Vec<u8>,
        request: fn(Vec<u8>) -> Request,
    ) -> Op<'_, Transfer> {
        if buffer.len() == buffer.capacity() {
            // Nothing received would read as the end.
            let error = io::Error::new(io::ErrorKind::InvalidInput, "the buffer has no spare capacity");
            return Op::started(self, Err((error, Memory::Buffer(buffer))));
        }
        self.start(fd, request(buffer))
    }
}

/// The next completion of an entry that was pushed: see [`UringIdle::completion`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct Completion<'r> {
    ring: &'r UringIdle,
}

impl Future for Completion<'_> {
    type Output = cqueue::Entry;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<cqueue::Entry> {
        if let Some(entry) = self.ring.take_completion() {
            return Poll::Ready(entry);
        }
        let waker = context.waker().clone();
        let last = self.ring.state.borrow_mut().waker.replace(waker);
        drop(last);
        Poll::Pending
    }
}

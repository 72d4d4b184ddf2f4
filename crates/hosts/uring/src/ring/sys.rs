//! The boundary to the kernel: all unsafe code of this crate.
//!
//! Memory that the kernel uses after a call has returned is of two kinds. The time of the timeout is read while an entry is
//! submitted, within `io_uring_enter`; its box lives as long as the ring. What an operation writes to or reads from moves into the
//! table of operations before its entry is pushed, and leaves it only behind the last completion; where the ring goes first, it
//! is leaked. The bell is a poll and shares no memory at all.
#![allow(unsafe_code)]

use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::ptr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, TimeoutFlags, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use wakeline_core::{Error, ErrorCode, Instant};

use super::limits::UringLimits;
use super::ops::{Op, Raw};
use super::slab::{Ended, Kept, Kind, Memory};
use super::state::State;
use super::tag::{Key, Tag, USER_DATA_RESERVED};
use super::{UringIdle, broken};

const NS_PER_S: u64 = 1_000_000_000;
/// The most that one call of the kernel moves.
const TRANSFER_BYTES_MAX: u32 = 0x7fff_f000;

/// The queues that are shared with the kernel. Needs Linux 5.13, for polls that stay armed.
pub(super) struct Ring {
    io: IoUring,
    /// What every entry of a timeout that is not submitted yet points to.
    time: Box<UnsafeCell<Timespec>>,
    /// Whether entries can ask for no completion where they succeed: Linux 5.17.
    pub(super) quiet: bool,
    /// How often the kernel was entered.
    pub(super) enters: u64,
    /// What the next calls fail with, instead of being made.
    #[cfg(test)]
    pub(super) forced: std::collections::VecDeque<i32>,
}

/// The submission queue is full, and the kernel takes nothing from it now.
#[derive(Debug)]
pub(super) struct Full;

impl Ring {
    pub(super) fn new(limits: UringLimits) -> io::Result<Self> {
        let io = IoUring::builder().setup_cqsize(limits.completions()).build(limits.entries())?;
        if !io.params().is_feature_resource_tagging() {
            let why = "the kernel's io_uring is too old: Linux 5.13 or later is needed";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let quiet = io.params().is_feature_skip_cqe_on_success();
        Ok(Self {
            io,
            time: Box::new(UnsafeCell::new(Timespec::new())),
            quiet,
            enters: 0,
            #[cfg(test)]
            forced: std::collections::VecDeque::new(),
        })
    }

    /// Submits what was pushed; with `wait` blocks until a completion is there. Fails with the number of the error.
    pub(super) fn enter(&mut self, wait: bool) -> Result<(), i32> {
        #[cfg(test)]
        if let Some(errno) = self.forced.pop_front() {
            return Err(errno);
        }
        self.enters += 1;
        let result = if wait { self.io.submit_and_wait(1) } else { self.io.submit() };
        result.map(|_| ()).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
    }

    /// How many entries the kernel has not taken yet.
    pub(super) fn unsubmitted(&mut self) -> usize {
        self.io.submission().len()
    }

    /// Whether there is room for an entry, which is made by submitting.
    pub(super) fn has_room(&mut self) -> bool {
        if self.io.submission().is_full() {
            // Where it fails, there is no room; whoever sleeps next meets the error again.
            let _ = self.enter(false);
        }
        !self.io.submission().is_full()
    }

    /// The next completion. A look at shared memory.
    pub(super) fn next(&mut self) -> Option<cqueue::Entry> {
        self.io.completion().next()
    }

    /// Whether completions wait in the kernel, for want of room.
    pub(super) fn overflown(&mut self) -> bool {
        self.io.submission().cq_overflow()
    }

    /// Pushes a timeout at `at`, which nothing but the time completes.
    pub(super) fn push_timer(&mut self, at: Instant, key: Key) -> Result<(), Full> {
        let time = self.set_time(at);
        let entry = opcode::Timeout::new(time).count(0).flags(TimeoutFlags::ABS).build();
        self.push_own(entry, Tag::Timer(key))
    }

    /// Pushes the change of a timeout's time to `at`.
    pub(super) fn push_update(&mut self, at: Instant, key: Key) -> Result<(), Full> {
        let time = self.set_time(at);
        let target = Tag::Timer(key).user_data();
        let entry = opcode::TimeoutUpdate::new(target, time).flags(TimeoutFlags::ABS).build();
        let entry = if self.quiet { entry.flags(Flags::SKIP_SUCCESS) } else { entry };
        self.push_own(entry, Tag::Update)
    }

    /// Pushes a poll of an event, which stays armed.
    pub(super) fn push_bell(&mut self, event: BorrowedFd<'_>) -> Result<(), Full> {
        const READABLE: u32 = libc::POLLIN as u32;
        let entry = opcode::PollAdd::new(Fd(event.as_raw_fd()), READABLE).multi(true).build();
        self.push_own(entry, Tag::Bell)
    }

    /// Pushes the cancelling of an operation.
    pub(super) fn push_cancel(&mut self, key: Key) -> Result<(), Full> {
        let entry = opcode::AsyncCancel::new(Tag::Operation(key).user_data()).build();
        let entry = if self.quiet { entry.flags(Flags::SKIP_SUCCESS) } else { entry };
        self.push_own(entry, Tag::Cancel)
    }

    /// Exact for all instants; the kernel itself saturates at 292 years.
    fn set_time(&mut self, at: Instant) -> *const Timespec {
        // Always below a second, and so below 2^32.
        let part = u32::try_from(at.as_nanos() % NS_PER_S).unwrap_or(0);
        *self.time.get_mut() = Timespec::new().sec(at.as_nanos() / NS_PER_S).nsec(part);
        self.time.get()
    }

    fn push_own(&mut self, entry: Entry, tag: Tag) -> Result<(), Full> {
        // SAFETY: of the ring's own entries only those of timeouts point to memory: to the time, which the kernel reads in
        // `io_uring_enter`, while this thread writes nothing, and whose box lives as long as the ring.
        unsafe { self.push(&entry.user_data(tag.user_data())) }
    }

    /// Pushes an entry; submits those before it where the queue is full.
    ///
    /// # Safety
    ///
    /// What the entry points to must stay valid until its last completion has come.
    unsafe fn push(&mut self, entry: &Entry) -> Result<(), Full> {
        if !self.has_room() {
            return Err(Full);
        }
        // SAFETY: by this function's contract.
        unsafe { self.io.submission().push(entry) }.map_err(|_| Full)
    }
}

/// What an operation is to do; a buffer goes in by value.
pub(super) enum Request {
    Accept,
    /// Into the spare capacity.
    Receive(Vec<u8>),
    Send(Vec<u8>),
    /// Into the spare capacity, at the file's position.
    Read(Vec<u8>),
    Write(Vec<u8>),
}

impl State {
    /// Starts an operation on `fd`; gives the buffer back where there is no room.
    pub(super) fn start(&mut self, fd: &Arc<OwnedFd>, request: Request) -> Result<Key, (io::Error, Memory)> {
        let number = Fd(fd.as_raw_fd());
        let receives = matches!(request, Request::Receive(_) | Request::Read(_));
        let (kind, is_file, memory) = match request {
            Request::Accept => (Kind::Accept, false, Memory::None),
            Request::Receive(buffer) => (Kind::Receive, false, Memory::Buffer(buffer)),
            Request::Read(buffer) => (Kind::Receive, true, Memory::Buffer(buffer)),
            Request::Send(buffer) => (Kind::Other, false, Memory::Buffer(buffer)),
            Request::Write(buffer) => (Kind::Other, true, Memory::Buffer(buffer)),
        };
        let kept = Kept { fd: Some(Arc::clone(fd)), memory };
        let entry = |memory: &mut Memory| match memory {
            Memory::Buffer(buffer) if receives => {
                let spare = buffer.spare_capacity_mut();
                let (at, length) = (spare.as_mut_ptr().cast::<u8>(), length(spare.len()));
                if is_file {
                    opcode::Read::new(number, at, length).offset(u64::MAX).build()
                } else {
                    opcode::Recv::new(number, at, length).build()
                }
            }
            Memory::Buffer(buffer) => {
                let (at, length) = (buffer.as_ptr(), length(buffer.len()));
                if is_file {
                    opcode::Write::new(number, at, length).offset(u64::MAX).build()
                } else {
                    let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
                    opcode::Send::new(number, at, length).flags(flags).build()
                }
            }
            _ => opcode::Accept::new(number, ptr::null_mut(), ptr::null_mut())
                .flags(libc::SOCK_CLOEXEC)
                .build(),
        };
        // SAFETY: the entry points to the buffer that is kept, within its length or its spare capacity, or to nothing.
        unsafe { self.start_kept(kind, kept, entry) }
    }

    /// Starts the closing of `fd`, which is closed at once where there is no room.
    pub(super) fn start_close(&mut self, fd: OwnedFd) -> Result<Key, io::Error> {
        let number = Fd(fd.as_raw_fd());
        let entry = |_: &mut Memory| opcode::Close::new(number).build();
        // SAFETY: the entry points to nothing.
        let key =
            unsafe { self.start_kept(Kind::Close, Kept::default(), entry) }.map_err(|(error, _)| error)?;
        // The entry owns it from here on: the kernel closes it, whatever the result.
        let _ = fd.into_raw_fd();
        Ok(key)
    }

    /// Starts an operation that keeps `kept` until its last completion.
    ///
    /// # Safety
    ///
    /// The entry points to nothing but memory that what is kept owns and does not move, or that is never freed.
    unsafe fn start_kept(
        &mut self,
        kind: Kind,
        kept: Kept,
        entry: impl FnOnce(&mut Memory) -> Entry,
    ) -> Result<Key, (io::Error, Memory)> {
        if !self.ring.has_room() {
            return Err((refused(&"the submission queue is full"), kept.memory));
        }
        let key = match self.ops.start(kind, kept) {
            Ok(key) => key,
            Err(kept) => return Err((refused(&"all operations are in flight"), kept.memory)),
        };
        let pushed = self.ops.kept(key).is_some_and(|kept| {
            let entry = entry(&mut kept.memory).user_data(Tag::Operation(key).user_data());
            // SAFETY: by this function's contract, what the entry points to is kept, and the table gives it away behind the
            // operation's last completion alone; a ring that goes before that leaks it.
            unsafe { self.ring.push(&entry) }.is_ok()
        });
        if pushed {
            self.pushed();
            return Ok(key);
        }
        let memory = self.ops.unstart(key).unwrap_or_default().memory;
        Err((refused(&"the submission queue is full"), memory))
    }
}

impl UringIdle {
    /// Pushes an entry of yours; its completions come by [`completions`](Self::completions) or
    /// [`completion`](Self::completion).
    ///
    /// It is submitted with others: when this thread sleeps, or at the first [`turn`](wakeline_core::Idle::turn) after
    /// [`SUBMIT_US_MAX`](super::SUBMIT_US_MAX). Costs some 50 ns, and a system call where the queue is full.
    ///
    /// # Safety
    ///
    /// - What the entry points to stays valid until its last completion has been handed out; where the ring is dropped before
    ///   that, for good.
    /// - A descriptor in it stays open until the entry is submitted.
    /// - It carries none of the flags `IO_LINK`, `IO_HARDLINK` and `IO_DRAIN`: the ring's own entries come in between, and
    ///   would wait for it or it for them.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidLimit`] where its `user_data` is [reserved](USER_DATA_RESERVED); [`ErrorCode::Backend`] where the
    /// queue is full and the kernel takes nothing now (wait, then push again). Nothing was pushed then.
    pub unsafe fn push(&self, entry: &Entry) -> Result<(), Error> {
        let user_data = entry.get_user_data();
        if user_data >= USER_DATA_RESERVED {
            let most = USER_DATA_RESERVED - 1;
            return Err(Error::new(ErrorCode::InvalidLimit, [&"user_data", &user_data, &0, &most]));
        }
        let mut state = self.state.borrow_mut();
        // SAFETY: by this function's contract.
        unsafe { state.ring.push(entry) }.map_err(|_| broken(&"push", &"the submission queue is full"))?;
        state.pushed();
        Ok(())
    }

    /// Starts an operation of your own and returns the future of its result. `keep` is what the kernel uses meanwhile: it comes
    /// back with the result, and stays alive until then whatever becomes of the future. The entry's `user_data` is set here.
    ///
    /// The future's own rules are at [`Op`]. An entry that completes several times ends with its last completion and gives the
    /// first result, as zero-copy sends need; use [`push`](Self::push) to see them all. Allocates a box for `keep`.
    ///
    /// # Safety
    ///
    /// As [`push`](Self::push), except that memory need only be valid for as long as `keep`, wherever that is moved to: what
    /// it owns on the heap is. Nor does it carry `SKIP_SUCCESS`: without a completion its place is never free again.
    pub unsafe fn submit<T: Send + 'static>(&self, entry: Entry, keep: T) -> Op<'_, Raw<T>> {
        let kept = Kept { fd: None, memory: Memory::Other(Box::new(keep)) };
        let mut state = self.state.borrow_mut();
        // SAFETY: by this function's contract.
        let started = unsafe { state.start_kept(Kind::Other, kept, |_| entry) };
        drop(state);
        Op::started(self, started)
    }
}

#[cfg(test)]
impl UringIdle {
    /// Pushes what points to nothing: for tests, which are no place for unsafe code.
    pub(super) fn push_nop(&self, user_data: u64) -> Result<(), Error> {
        // SAFETY: it points to nothing and has no flags.
        unsafe { self.push(&opcode::Nop::new().build().user_data(user_data)) }
    }

    /// As a user might: takes the timeout of the ring away from it.
    pub(super) fn push_theft(&self, user_data: u64) -> Result<(), Error> {
        let target = Tag::Timer(self.state.borrow().timer).user_data();
        // SAFETY: it points to nothing and has no flags.
        unsafe { self.push(&opcode::TimeoutRemove::new(target).build().user_data(user_data)) }
    }

    /// An operation that ends at once, and keeps `keep`.
    pub(super) fn submit_nop<T: Send + 'static>(&self, keep: T) -> Op<'_, Raw<T>> {
        // SAFETY: it points to nothing and has no flags.
        unsafe { self.submit(opcode::Nop::new().build(), keep) }
    }
}

impl Ended {
    /// The result of an accept.
    pub(super) fn into_accepted(self) -> io::Result<OwnedFd> {
        let number = check(self.result)?;
        if self.kind != Kind::Accept {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: a value of this kind is made once, by the completion of an accept, whose result is a descriptor that was just
        // opened for this process and that nobody else knows.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    }

    /// The result of a transfer, and the buffer with what was received behind what it held.
    pub(super) fn into_transferred(self) -> (io::Result<usize>, Vec<u8>) {
        let moved = check(self.result).map(|count| usize::try_from(count).unwrap_or(0));
        let Memory::Buffer(mut buffer) = self.memory else { return (moved, Vec::new()) };
        if let (Kind::Receive, Ok(count)) = (self.kind, &moved) {
            let length = buffer.len() + (*count).min(buffer.capacity() - buffer.len());
            // SAFETY: the length is within the capacity, and the kernel has written that many bytes behind the old length: it
            // was given the spare capacity, and the buffer was not touched since.
            unsafe { buffer.set_len(length) };
        }
        (moved, buffer)
    }
}

/// A result as the kernel gives it: an error is its negative number.
pub(super) fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(result.wrapping_neg())) } else { Ok(result) }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX).min(TRANSFER_BYTES_MAX)
}

fn refused(why: &dyn core::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::QuotaExceeded, broken(&"start", why))
}

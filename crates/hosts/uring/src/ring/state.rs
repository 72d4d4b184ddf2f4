//! What a ring knows between two calls: what it has armed, what its completions mean, who is to be woken.

use alloc::collections::VecDeque;
use core::task::Waker;
use std::io;
use std::os::fd::AsFd;

use io_uring::cqueue;
use wakeline_core::{Clock, Error, Instant, Nanos};
use wakeline_std::{Bell, StdClock, approach};

use super::slab::{Completed, Ended, Slab};
use super::sys::{Full, Ring};
use super::tag::{Key, Tag};
use super::{Event, RETRY_US, UringLimits, broken};

pub(super) struct State {
    pub(super) ring: Ring,
    pub(super) clock: StdClock,
    pub(super) ops: Slab,
    /// Completions of entries that the user pushed; at most as many as the queue holds.
    pub(super) inbox: VecDeque<cqueue::Entry>,
    pub(super) inbox_max: usize,
    /// Who waits for one of them.
    pub(super) waker: Option<Waker>,
    /// Wakers taken out to be called, with room for all that there can be.
    pub(super) due: Vec<Waker>,
    /// What nobody waited for, to be dropped where user code may run.
    pub(super) discarded: Vec<Ended>,
    /// When the timeout that is in flight or to be submitted fires.
    pub(super) timer_at: Option<Instant>,
    /// Its key, or that of the last one.
    pub(super) timer: Key,
    pub(super) bell_armed: bool,
    /// Since the last call ended, I/O of a task, or I/O that nobody awaits, has ended.
    pub(super) news: News,
    /// Since when the oldest entry of the user's waits to be submitted.
    pub(super) pushed_at: Option<Instant>,
    /// Whether an operation is still to be cancelled, for want of room.
    pub(super) owes_cancels: bool,
    pub(super) fault: Option<Error>,
    pub(super) retries: u64,
    pub(super) completions: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct News {
    pub(super) of_tasks: bool,
    pub(super) of_nobody: bool,
}

impl State {
    pub(super) fn new(ring: Ring, clock: StdClock, limits: UringLimits) -> Self {
        let inbox_max = limits.completions() as usize;
        Self {
            ring,
            clock,
            ops: Slab::new(limits.operations()),
            inbox: VecDeque::with_capacity(inbox_max),
            inbox_max,
            waker: None,
            due: Vec::with_capacity(limits.operations() as usize + 1),
            discarded: Vec::with_capacity(limits.operations() as usize),
            timer_at: None,
            timer: Key::new(0),
            bell_armed: false,
            news: News::default(),
            pushed_at: None,
            owes_cancels: false,
            fault: None,
            retries: 0,
            completions: 0,
        }
    }

    /// An entry of the user's was pushed.
    pub(super) fn pushed(&mut self) {
        if self.pushed_at.is_none() {
            self.pushed_at = Some(self.clock.now());
        }
    }

    /// Submits what was pushed and does not wait. Where that fails, it stays pushed.
    pub(super) fn flush(&mut self) {
        if self.pushed_at.is_some() {
            let _ = self.enter(false);
        }
    }

    pub(super) fn enter(&mut self, wait: bool) -> Result<(), i32> {
        self.ring.enter(wait)?;
        if self.ring.unsubmitted() == 0 {
            self.pushed_at = None;
        }
        Ok(())
    }

    /// Takes all that has come out of the queue, without calling anybody.
    pub(super) fn reap(&mut self) {
        let mut asked = false;
        while self.inbox.len() < self.inbox_max {
            if let Some(entry) = self.ring.next() {
                self.take(&entry);
                asked = false;
            } else if asked || !self.ring.overflown() || self.enter(false).is_err() {
                break;
            } else {
                // The kernel had set completions aside for want of room, and has given them back now if it could.
                asked = true;
            }
        }
    }

    pub(super) fn take(&mut self, entry: &cqueue::Entry) {
        let (result, more) = (entry.result(), cqueue::more(entry.flags()));
        match Tag::of(entry.user_data()) {
            Tag::User => {
                self.completions += 1;
                self.inbox.push_back(entry.clone());
                match self.waker.take() {
                    Some(waker) => self.wake(waker),
                    None => self.news.of_nobody = true,
                }
            }
            Tag::Operation(key) => match self.ops.complete(key, result, more) {
                Completed::Nothing => {}
                Completed::Ended(waker) => {
                    self.completions += 1;
                    match waker {
                        Some(waker) => self.wake(waker),
                        None => self.news.of_nobody = true,
                    }
                }
                Completed::Orphan(ended) => self.discarded.push(ended),
            },
            Tag::Timer(key) if key == self.timer => {
                self.timer_at = None;
                self.judge("timeout", result, &[libc::ETIME, libc::ECANCELED]);
            }
            Tag::Timer(_) | Tag::Cancel => {}
            Tag::Update => {
                if self.judge("timeout update", result, &[libc::ENOENT, libc::EALREADY, libc::ECANCELED]) {
                    // It stands at its old time; a new one takes its place.
                    self.timer_at = None;
                }
            }
            Tag::Bell if more => {}
            Tag::Bell => {
                self.bell_armed = false;
                self.judge("poll", result, &[libc::ECANCELED]);
            }
        }
    }

    pub(super) fn wake(&mut self, waker: Waker) {
        self.news.of_tasks = true;
        self.due.push(waker);
    }

    /// Remembers an error that none of the ring's own entries should meet. Returns whether it was one.
    pub(super) fn judge(&mut self, call: &str, result: i32, expected: &[i32]) -> bool {
        let errno = result.wrapping_neg();
        let is_fault = result < 0 && !expected.contains(&errno);
        if is_fault {
            self.retries += 1;
            if !is_passing(errno) {
                self.blame(call, errno);
            }
        }
        is_fault
    }

    pub(super) fn blame(&mut self, call: &str, errno: i32) {
        if self.fault.is_none() {
            let error = io::Error::from_raw_os_error(errno);
            self.fault = Some(broken(&call, &error).with_source(error));
        }
    }

    /// Whether I/O has ended since this was asked last; so many completions that nobody fetched are news for good.
    pub(super) fn take_news(&mut self) -> bool {
        let News { of_tasks, of_nobody } = core::mem::take(&mut self.news);
        of_tasks || of_nobody || self.is_full()
    }

    pub(super) fn is_full(&self) -> bool {
        self.inbox.len() >= self.inbox_max
    }

    /// Sleeps once, until something comes; false when there is news, the time is up or it `rang` before.
    ///
    /// `rang` is asked behind the last look at the queue: that may have taken the completion which a ring just left.
    pub(super) fn wait(
        &mut self,
        until: Option<Instant>,
        bell: &Bell<Event>,
        rang: impl FnOnce() -> bool,
    ) -> bool {
        self.reap();
        let now = self.clock.now();
        let is_over = until.is_some_and(|until| now >= until);
        if is_over || self.has_news() || rang() {
            self.flush();
            return false;
        }
        let entered = match self.arm(until.map(|until| approach(now, until)), bell) {
            Ok(()) => self.enter(true),
            Err(Full) => Err(libc::EAGAIN),
        };
        let failed = entered.err().filter(|errno| *errno != libc::EINTR);
        let before = self.retries;
        self.reap();
        if let Some(errno) = failed {
            self.retries += 1;
            if !is_passing(errno) {
                self.blame("io_uring_enter", errno);
            }
        }
        if self.has_news() {
            return false;
        }
        if failed.is_some() || self.retries > before {
            let retry = self.clock.now() + Nanos::from_micros(RETRY_US);
            self.clock.sleep_until(until.map_or(retry, |until| until.min(retry)));
        }
        true
    }

    pub(super) fn has_news(&self) -> bool {
        self.news.of_tasks || self.news.of_nobody || self.is_full()
    }

    /// Makes sure that the bell and the time end the sleep that is about to begin.
    pub(super) fn arm(&mut self, until: Option<Instant>, bell: &Bell<Event>) -> Result<(), Full> {
        if self.owes_cancels {
            self.cancel_all(true);
        }
        if !self.bell_armed {
            self.ring.push_bell(bell.sleeper().0.as_fd())?;
            self.bell_armed = true;
        }
        // One for an earlier moment, where there is no bound now, is left to fire.
        let Some(until) = until.filter(|until| self.timer_at != Some(*until)) else { return Ok(()) };
        if self.timer_at.is_some() {
            self.ring.push_update(until, self.timer)?;
        } else {
            let key = self.timer.next();
            self.ring.push_timer(until, key)?;
            self.timer = key;
        }
        self.timer_at = Some(until);
        Ok(())
    }

    /// Cancels an operation, later where there is no room now.
    pub(super) fn cancel(&mut self, key: Key) {
        match self.ring.push_cancel(key) {
            Ok(()) => self.pushed(),
            Err(Full) => self.owes_cancels = true,
        }
    }

    /// Cancels what is in flight, `orphans` only or all, again where it was before: that changes nothing.
    pub(super) fn cancel_all(&mut self, orphans: bool) {
        self.owes_cancels = false;
        let mut index = 0;
        while let Some(key) = self.ops.cancellable(index, orphans) {
            self.cancel(key);
            if self.owes_cancels {
                return;
            }
            index = key.index + 1;
        }
    }
}

/// Of these errors the next call may be free.
fn is_passing(errno: i32) -> bool {
    matches!(errno, libc::EAGAIN | libc::EBUSY | libc::ENOMEM | libc::EINTR)
}

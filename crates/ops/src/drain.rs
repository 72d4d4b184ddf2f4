//! Waiting until nothing is in flight any more: what a program does before it closes what tends its flights.
//!
//! Every end of a flight looks whether somebody waits, which is a load. Whoever waits says so first and counts then; an end is counted
//! first and looks then; both in one order for all threads. So either the end sees who waits, or who waits sees the end.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode, Instant, Nanos};

use crate::counts::Counters;
use crate::interest::Place;
use crate::lock;
use crate::panics::survive;
use crate::port::Device;
use crate::runtime::{Core, Runtime};
use crate::sync::{AtomicBool, Lock, Ordering};

/// Who waits for the flights of a device to end.
#[derive(Debug)]
pub(crate) struct Drains {
    /// Somebody does.
    some: AtomicBool,
    waiting: Lock<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    wakers: Vec<(u64, Waker)>,
    numbers: u64,
}

impl Drains {
    pub(crate) fn new() -> Self {
        Self { some: AtomicBool::new(false), waiting: Lock::new(Waiting::default()) }
    }

    /// A flight has ended, and is counted by now.
    #[inline]
    pub(crate) fn ended(&self, counters: &Counters) {
        if self.some.load(Ordering::SeqCst) {
            self.look(counters);
        }
    }

    /// Wakes all, where it was the last.
    #[cold]
    fn look(&self, counters: &Counters) {
        let woken = {
            let mut waiting = self.waiting.lock();
            if counters.read().in_flight() > 0 {
                return;
            }
            self.some.store(false, Ordering::SeqCst);
            core::mem::take(&mut waiting.wakers)
        };
        for (_, waker) in woken {
            lock::wake(waker);
        }
    }

    /// Has the task woken when nothing is in flight any more. The caller counts afterwards.
    fn wait(&self, number: &mut Option<u64>, waker: Waker) {
        let old = {
            let mut waiting = self.waiting.lock();
            waiting.numbers += 1;
            let next = waiting.numbers;
            let number = *number.get_or_insert(next);
            let old = take(&mut waiting.wakers, number);
            waiting.wakers.push((number, waker));
            self.some.store(true, Ordering::SeqCst);
            old
        };
        // Somebody else's, without the lock.
        drop(old);
    }

    fn leave(&self, number: u64) {
        let old = {
            let mut waiting = self.waiting.lock();
            let old = take(&mut waiting.wakers, number);
            if waiting.wakers.is_empty() {
                self.some.store(false, Ordering::SeqCst);
            }
            old
        };
        survive(|| drop(old));
    }
}

fn take(wakers: &mut Vec<(u64, Waker)>, number: u64) -> Option<Waker> {
    let place = wakers.iter().position(|(its, _)| *its == number)?;
    Some(wakers.swap_remove(place).1)
}

impl<D: Device> Runtime<D> {
    /// Resolves when nothing is in flight any more in this runtime and all that were made from one another with it, which is when everything
    /// that their work needed has been let go, or leaked and counted after a fault: then what tends their points may be closed, and the process end. Submits nothing, and keeps nobody
    /// from submitting: what is submitted meanwhile is waited for as well.
    ///
    /// ```
    /// use wakeline_core::{ErrorCode, Nanos};
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
    /// use wakeline_tensor::Tensor;
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// let config = SimConfig { copy_ns: 5_000_000, ..SimConfig::default() };
    /// let device = SimDevice::new(VirtualTime::new(), config)?;
    /// let watcher = VirtualWatcher::new(&device);
    /// let runtime = Runtime::new(device, &SingleStream, watcher.clone())?;
    /// let late = Tensor::full(64, 1_u8).on(&runtime).timeout(Nanos::from_millis(1));
    /// watcher.run(late)?.unwrap_err(); // awaited no longer; the work goes on
    /// let left = watcher.run(runtime.drain(Nanos::from_millis(1)))?.unwrap_err();
    /// assert_eq!((left.code(), &*left.args()[0]), (ErrorCode::NotDrained, "1"));
    /// watcher.run(runtime.drain(Nanos::from_millis(1_000)))??;
    /// assert_eq!(runtime.counts().in_flight(), 0);
    /// watcher.close();
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// On a thread of one's own: `wakeline_std::block_on(runtime.drain(within))`. The time counts from the first poll on, by the clock of whoever tends.
    ///
    /// # Errors
    ///
    /// [`NotDrained`](ErrorCode::NotDrained) where some are in flight after `within`, with how many: nothing of them was ended or freed. To close who tends then ends
    /// them, and leaks what they keep, since the device may still be at work on it.
    pub fn drain(&self, within: Nanos) -> Drain<D> {
        Drain { core: Arc::clone(self.core()), within, until: None, number: None, place: None }
    }
}

/// See [`Runtime::drain`].
#[must_use = "it does nothing until it is awaited"]
pub struct Drain<D: Device> {
    core: Arc<Core<D>>,
    within: Nanos,
    until: Option<Instant>,
    /// Its number among those that wait.
    number: Option<u64>,
    /// Where it waits for its time.
    place: Option<Place<D>>,
}

impl<D: Device> Future for Drain<D> {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let this = self.get_mut();
        let (core, fleet) = (&this.core, &this.core.fleet);
        let until = *this.until.get_or_insert_with(|| core.tender.now() + this.within);
        // Somebody else's code, before anything of ours is half done.
        fleet.drains.wait(&mut this.number, context.waker().clone());
        core.interests.register(core, &mut this.place, context, until, None);
        // Only now: what comes from here on is told.
        let left = fleet.counters.read().in_flight();
        if left == 0 {
            return Poll::Ready(Ok(()));
        }
        if core.tender.now() < until {
            return Poll::Pending;
        }
        Poll::Ready(Err(Error::new(ErrorCode::NotDrained, [&left, &this.within])))
    }
}

impl<D: Device> Drop for Drain<D> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.core.fleet.drains.leave(number);
        }
    }
}

impl<D: Device> fmt::Debug for Drain<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").field("within", &self.within).finish_non_exhaustive()
    }
}

//! Seeing points to their ends for somebody who may never ask again.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use std::task::Wake;

use wakeline_core::{CompletionPort, Error, Report, Tend, WaitPlan};

use super::future::WatcherWait;
use super::sync::{AtomicU32, Lock, Ordering};
use super::{WatcherHandle, home::Home};
use crate::points::Point;

/// A watcher that sees points to their ends; see [`Tend`]. Made by [`WatcherHandle::tender`]. Clones are the same.
///
/// What it is told to call is called on a thread of the watcher, so it must be short, as a waker; at once and on the calling thread where
/// the wait cannot begin. Costs two allocations a point.
///
/// ```
/// use std::sync::mpsc;
/// use wakeline_core::{Nanos, Tend};
/// use wakeline_sim::{RealTime, SimConfig, SimDevice};
/// use wakeline_std::{DeviceThread, Point, StdClock, Watcher};
/// let clock = StdClock::new();
/// let sleep = |length: Nanos| std::thread::sleep(std::time::Duration::from_nanos(length.as_nanos()));
/// let device = SimDevice::new(RealTime::new(clock, sleep), SimConfig::default())?;
/// let thread = DeviceThread::spawn(clock, device.clone())?;
/// let watcher = Watcher::new()?;
/// let tender = watcher.handle().tender(&Point::new("copies"));
/// let stream = device.stream()?;
/// stream.launch(Nanos::from_micros(300))?;
/// let (tell, told) = mpsc::channel();
/// tender.tend(stream.point(), &"flag:park_us=50,backstop_us=1000".parse()?, move |result| tell.send(result).unwrap());
/// assert!(told.recv().unwrap().is_ok());
/// # watcher.close(Watcher::CLOSE)?;
/// # drop(stream);
/// # thread.stop()?;
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Tender {
    home: Arc<Home>,
    point: Point,
}

impl fmt::Debug for Tender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tender").field("point", &self.point.name()).finish_non_exhaustive()
    }
}

impl WatcherHandle {
    /// What sees points to their ends by this watcher. `point` says what waits may be predicted by, and learns from them.
    pub fn tender(&self, point: &Point) -> Tender {
        Tender { home: Arc::clone(&self.home), point: point.clone() }
    }
}

impl<P> Tend<P> for Tender
where
    P: CompletionPort + Send + 'static,
    P::Line: Send + Sync + 'static,
{
    fn tend<E>(&self, port: P, plan: &WaitPlan, ended: E)
    where
        E: FnOnce(Result<Report, Error>) + Send + 'static,
    {
        // A wait that is woken early would be watched by a thread of the watcher itself, which watches its word anyway.
        let wait = WatcherWait::new(&self.home, port, plan, &self.point).early_wake(false);
        let tended = Tended { polling: AtomicU32::new(IDLE), wait: Lock::new(Some((wait, ended))) };
        Arc::new(tended).advance();
    }
}

/// Nobody polls.
const IDLE: u32 = 0;
/// Somebody does.
const POLLING: u32 = 1;
/// Somebody does, and it was woken meanwhile: by itself even, where a waker is registered while it is woken.
const AGAIN: u32 = 2;

/// A wait that polls itself when it is woken. Its own waker keeps it alive until its end, which the watcher sees to.
struct Tended<P, E>
where
    P: CompletionPort + Send + 'static,
    P::Line: Send + Sync + 'static,
{
    polling: AtomicU32,
    /// Locked by whoever polls, and so never waited for.
    wait: Lock<Option<(WatcherWait<P>, E)>>,
}

impl<P, E> Tended<P, E>
where
    P: CompletionPort + Send + 'static,
    P::Line: Send + Sync + 'static,
    E: FnOnce(Result<Report, Error>) + Send + 'static,
{
    fn advance(self: Arc<Self>) {
        let woken = |state| if state == IDLE { POLLING } else { AGAIN };
        if self.change(woken) != IDLE {
            return;
        }
        let waker = Waker::from(Arc::clone(&self));
        loop {
            if let Some((result, ended)) = self.poll(&waker) {
                // Stays as if it were being polled: nobody polls it any more.
                return ended(result);
            }
            // Once more where it was woken meanwhile.
            if self.change(|state| if state == AGAIN { POLLING } else { IDLE }) == POLLING {
                return;
            }
        }
    }

    /// Changes who polls; what it was before.
    fn change(&self, change: impl Fn(u32) -> u32) -> u32 {
        let mut before = self.polling.load(Ordering::Acquire);
        loop {
            let now = change(before);
            match self.polling.compare_exchange(before, now, Ordering::AcqRel, Ordering::Acquire) {
                Ok(before) => return before,
                Err(other) => before = other,
            }
        }
    }

    fn poll(&self, waker: &Waker) -> Option<(Result<Report, Error>, E)> {
        let mut wait = self.wait.lock();
        let poll = Pin::new(&mut wait.as_mut()?.0).poll(&mut Context::from_waker(waker));
        let Poll::Ready(result) = poll else { return None };
        let (over, ended) = wait.take()?;
        drop(wait);
        // Its port, without the lock.
        drop(over);
        Some((result, ended))
    }
}

impl<P, E> Wake for Tended<P, E>
where
    P: CompletionPort + Send + 'static,
    P::Line: Send + Sync + 'static,
    E: FnOnce(Result<Report, Error>) + Send + 'static,
{
    fn wake(self: Arc<Self>) {
        self.advance();
    }
}

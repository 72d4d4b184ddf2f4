//! Shared operations that come upon one another in the midst of a submission, and wakers that poll on the spot.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use common::{Rig, poll_once};
use wakeline_core::{Error, ErrorCode};
use wakeline_ops::{DeviceOp, Shared, value};
use wakeline_sim::SimDevice;

type Op = Pin<Box<dyn Future<Output = Result<u8, Error>> + Send>>;

/// One whose submission begins, says so, and goes on when it is told to.
fn stays() -> (Shared<impl DeviceOp<Device = SimDevice, Pending = u8, Output = u8>>, Receiver<()>, Sender<()>)
{
    let ((begun, wait), (goes, on)) = (channel(), channel::<()>());
    let op = value(7_u8).map(move |number| {
        begun.send(()).unwrap();
        on.recv_timeout(Duration::from_secs(20)).unwrap();
        number
    });
    (op.shared(), wait, goes)
}

#[test]
fn one_that_is_made_of_a_busy_one_pends_and_is_not_kept_from_running_later() {
    let rig = Rig::new();
    let (inner, begun, goes) = stays();
    let outer = inner.clone().map(|number| *number + 1).shared();
    std::thread::scope(|scope| {
        let submits = inner.clone();
        let runtime = &rig.runtime;
        let thread = scope.spawn(move || *submits.on(runtime).sync().unwrap());
        begun.recv().unwrap();
        // A poll finds out before anything is submitted, and waits as a future.
        let mut polled = outer.clone().on(&rig.runtime);
        let start = Instant::now();
        assert!(poll_once(&mut polled).is_pending());
        // Who comes upon it in the midst of a submission waits on the spot, for a tenth of a second, and errs alone.
        let again = outer.clone();
        let error = value(()).then(move |()| again).on(&rig.runtime).sync().unwrap_err();
        assert_eq!((error.code(), error.args()), (ErrorCode::SharedBusy, &["100".to_owned()][..]));
        assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
        goes.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), 7);
        // It was not kept.
        assert_eq!(*rig.run(outer.clone().on(&rig.runtime)).unwrap(), 8);
        assert_eq!(*rig.run(polled).unwrap(), 8);
    });
    rig.assert_clean();
}

/// Polls a future of its own when it is woken, on the spot.
struct PollsOnTheSpot(Mutex<Polled>);

/// The future, and what it gave.
type Polled = (Option<Op>, Option<Result<u8, Error>>);

impl Wake for PollsOnTheSpot {
    fn wake(self: Arc<Self>) {
        let mut inner = self.0.lock().unwrap();
        let Some(mut future) = inner.0.take() else { return };
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => inner.1 = Some(result),
            Poll::Pending => inner.0 = Some(future),
        }
    }
}

#[test]
fn a_waker_that_polls_on_the_spot_in_the_midst_of_a_submission_may_submit() {
    let rig = Rig::new();
    let (shared, begun, goes) = stays();
    std::thread::scope(|scope| {
        let (submits, runtime) = (shared.clone(), &rig.runtime);
        // The end of the shared one's submission wakes, within that of what is around it.
        let thread = scope.spawn(move || {
            let op = submits.then(|number| value(*number + 1));
            op.on(runtime).sync().unwrap()
        });
        begun.recv().unwrap();
        let other = shared.clone().map(|number| *number).on(&rig.runtime);
        let mut other: Op = Box::pin(other);
        let task = Arc::new(PollsOnTheSpot(Mutex::new((None, None))));
        let waker = Waker::from(Arc::clone(&task));
        assert!(other.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        task.0.lock().unwrap().0 = Some(other);
        goes.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), 8);
        let mut inner = task.0.lock().unwrap();
        match (inner.0.take(), inner.1.take()) {
            // It was submitted then, and is in flight.
            (Some(future), None) => assert_eq!(rig.run(future).unwrap(), 7),
            (_, result) => assert_eq!(result.unwrap().unwrap(), 7),
        }
    });
    rig.assert_clean();
}

//! The tasks of a program on our executor: its idle sleep and its park let the whole world go on.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake as RawWake, Waker};

use wakeline_core::{Clock, CompletionLine, Executor, HostLine, Idle, Instant, Nanos, Park, Reactor, Wake};

use super::task::{self, Way};
use super::world::{Outside, World};
use crate::dice::Dice;

/// The thread of the executor.
#[derive(Clone)]
pub(crate) struct Host<'s> {
    world: Rc<World<'s>>,
    bell: Arc<Bell>,
    dice: Rc<Cell<u64>>,
    /// Since when there is nothing to come.
    idle_since: Rc<Cell<Option<Instant>>>,
}

/// For how long there may be nothing to come: longer than a fault goes unnoticed, and than a backstop.
const IDLE_NS_MAX: u64 = 2_000_000_000;

/// What its tasks wait for that is no operation.
pub(crate) type Waits<'s> = Rc<Reactor<Host<'s>, Arc<HostLine>>>;

struct Bell(AtomicBool);

impl RawWake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl Host<'_> {
    /// Lets time pass, from one moment at which something is due to the next, until `until` or until `ended`.
    fn sleep(&self, until: Instant, mut ended: impl FnMut() -> bool) -> bool {
        let world = &*self.world;
        let mut dice = Dice::new(self.dice.get());
        // Some end early, for no reason.
        let early = dice.one_in(16).then(|| world.now() + Nanos::from_nanos(1 + dice.below(200_000)));
        self.dice.set(self.dice.get().wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1));
        let until = early.unwrap_or(Instant::MAX).min(until);
        loop {
            if let Err(broken) = world.settle() {
                // There is nobody to give it to.
                std::panic::resume_unwind(Box::new(broken));
            }
            if ended() {
                self.idle_since.set(None);
                return true;
            }
            let now = world.now();
            let next = world.next();
            // A waker of each task is kept to poll it for no reason, so that the executor does not see this itself.
            let idle_since = next.is_none().then(|| self.idle_since.get().unwrap_or(now));
            self.idle_since.set(idle_since);
            let idle = now.since(idle_since.unwrap_or(now));
            assert!(idle.as_nanos() < IDLE_NS_MAX, "tasks are left, and nothing can come any more");
            let next = next.unwrap_or(Instant::MAX).min(until);
            if now >= until || next == Instant::MAX {
                return false;
            }
            world.pass(next);
        }
    }
}

impl Clock for Host<'_> {
    fn now(&self) -> Instant {
        self.world.now()
    }
}

impl Idle for Host<'_> {
    fn idle(&self, until: Option<Instant>) {
        self.sleep(until.unwrap_or(Instant::MAX), || self.bell.0.load(Ordering::Acquire));
        self.bell.0.store(false, Ordering::Release);
    }

    fn bell(&self) -> Waker {
        Waker::from(Arc::clone(&self.bell))
    }
}

impl Park for Host<'_> {
    fn park(&self, _: Option<&CompletionLine>, until: Instant, mut ready: impl FnMut() -> bool) -> Wake {
        let mut reached = false;
        self.sleep(until, || {
            reached = ready();
            reached || self.bell.0.swap(false, Ordering::AcqRel)
        });
        if reached { Wake::Reached } else { Wake::Woke }
    }
}

/// A task that can be dropped from outside.
struct Abortable<'s> {
    task: Option<Pin<Box<dyn Future<Output = ()> + 's>>>,
    outside: Rc<Outside>,
    polls: Rc<Cell<u64>>,
}

impl Future for Abortable<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.polls.set(self.polls.get() + 1);
        if self.outside.aborted.get() {
            self.task = None;
        }
        let this = &mut *self;
        let Some(task) = &mut this.task else { return Poll::Ready(()) };
        *this.outside.waker.borrow_mut() = Some(context.waker().clone());
        let polled = task.as_mut().poll(context);
        if polled.is_ready() {
            // Else the executor thinks that somebody may still wake it.
            drop(this.outside.waker.take());
        }
        polled
    }
}

/// Runs all tasks to their ends; how many polls that took.
pub(crate) fn run(world: &Rc<World<'_>>, tasks: u64) -> Result<u64, String> {
    let bell = Arc::new(Bell(AtomicBool::new(false)));
    let host = Host {
        world: Rc::clone(world),
        bell,
        dice: Rc::new(Cell::new(world.seed)),
        idle_since: Rc::default(),
    };
    let waits: Waits<'_> = Rc::new(Reactor::new(host.clone()));
    let count = usize::try_from(tasks).unwrap_or(1);
    let polls = Rc::new(Cell::new(0));
    world.note(|| "on our executor".to_owned());
    world.delay.set(Nanos::ZERO);
    let mut executor =
        Executor::new(&*waits, host.clone(), host, count).map_err(|error| error.to_string())?;
    for number in 0..count {
        let outside = Rc::<Outside>::default();
        world.tasks.borrow_mut().push(Rc::clone(&outside));
        let way = Way::on_reactor(Rc::clone(world), Rc::clone(&waits));
        let task = Some(Box::pin(task::run(way, number)) as Pin<Box<dyn Future<Output = ()>>>);
        let task = Abortable { task, outside, polls: Rc::clone(&polls) };
        executor.spawn(task).map_err(|error| error.to_string())?;
    }
    let ran = executor.run(|_, ()| {}).map_err(|error| error.to_string());
    world.whole()?;
    ran?;
    if waits.registered() > 0 {
        return Err(format!("{} registrations were left behind", waits.registered()));
    }
    world.tasks.borrow_mut().clear();
    Ok(polls.get())
}

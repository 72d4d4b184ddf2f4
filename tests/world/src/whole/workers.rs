//! A simulated runtime of several workers: which task is polled next, by which of them and how long that takes it, is drawn from a seed.
//!
//! A poll itself runs on the spot, since there is one thread; its worker is then busy for a while, so that tasks that were woken wait for one, and
//! run in another order than they were woken in. In half of the programs each poll has a waker of its own and all earlier ones are dead: whoever
//! keeps an old one loses the task.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use wakeline_core::{Clock, Instant, Nanos};
use wakeline_sim::VirtualTime;

use super::task::{self, Way};
use super::world::{Outside, World};
use crate::dice::Dice;

/// Workers at most.
const WORKERS_MAX: u64 = 8;

/// The longest that a worker is busy with one poll.
const POLL_NS_MAX: u64 = 30_000;

/// The tasks that are ready to be polled.
struct Queue {
    time: VirtualTime,
    state: Mutex<State>,
}

struct State {
    /// Which, and since when.
    ready: Vec<(usize, Instant)>,
    tasks: Vec<Known>,
}

#[derive(Clone, Copy, Default)]
struct Known {
    queued: bool,
    /// That of its last waker.
    generation: u64,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes a task, as long as no later waker of it was handed out.
struct Wakes {
    queue: Arc<Queue>,
    task: usize,
    generation: u64,
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let now = self.queue.time.now();
        let mut state = self.queue.lock();
        let Some(known) = state.tasks.get_mut(self.task) else { return };
        if known.generation == self.generation && !known.queued {
            known.queued = true;
            state.ready.push((self.task, now));
        }
    }
}

type Task<'s> = Pin<Box<dyn Future<Output = ()> + 's>>;

struct Workers<'s> {
    world: Rc<World<'s>>,
    queue: Arc<Queue>,
    tasks: Vec<Option<Task<'s>>>,
    outside: Vec<Rc<Outside>>,
    /// When each is free.
    free_at: Vec<Instant>,
    dice: Dice,
    new_wakers: bool,
    polls: u64,
}

/// Runs all tasks to their ends; how many polls that took.
pub(crate) fn run(world: &Rc<World<'_>>, tasks: u64, dice: &mut Dice) -> Result<u64, String> {
    let count = usize::try_from(tasks).unwrap_or(1);
    let workers = 1 + dice.place(usize::try_from(WORKERS_MAX).unwrap_or(1));
    let ready = (0..count).map(|task| (task, Instant::ORIGIN)).collect();
    let known = Known { queued: true, generation: 0 };
    let state = Mutex::new(State { ready, tasks: vec![known; count] });
    let queue = Arc::new(Queue { time: world.time.clone(), state });
    let outside: Vec<Rc<Outside>> = (0..count).map(|_| Rc::default()).collect();
    world.tasks.borrow_mut().clone_from(&outside);
    let task = |task: usize| -> Task<'_> { Box::pin(task::run(Way::new(Rc::clone(world)), task)) };
    let all = (0..count).map(|number| Some(task(number))).collect();
    let mut this = Workers {
        world: Rc::clone(world),
        queue,
        tasks: all,
        outside,
        free_at: vec![Instant::ORIGIN; workers],
        dice: Dice::of_part(world.seed, u64::MAX - 2),
        new_wakers: dice.one_in(2),
        polls: 0,
    };
    world.note(|| format!("{workers} workers, each poll a waker of its own: {}", this.new_wakers));
    this.run()?;
    world.tasks.borrow_mut().clear();
    Ok(this.polls)
}

impl Workers<'_> {
    fn run(&mut self) -> Result<(), String> {
        let world = Rc::clone(&self.world);
        loop {
            world.settle()?;
            self.abort();
            if self.tasks.iter().all(Option::is_none) {
                return Ok(());
            }
            let now = world.now();
            let free = self.free_at.iter().position(|at| *at <= now);
            let ready = self.queue.lock().ready.len();
            if let Some(worker) = free.filter(|_| ready > 0) {
                self.poll(worker, ready);
                continue;
            }
            let worker = self.free_at.iter().copied().min().filter(|_| ready > 0);
            match world.next().into_iter().chain(worker).min() {
                Some(next) => world.pass(next),
                None => return Err(self.stalled()),
            }
        }
    }

    /// Drops those that are aborted, where they wait.
    fn abort(&mut self) {
        for (task, outside) in self.tasks.iter_mut().zip(&self.outside) {
            if outside.aborted.get() {
                drop(task.take());
            }
        }
    }

    fn poll(&mut self, worker: usize, ready: usize) {
        let at = self.dice.place(ready);
        let (number, woken_at, generation) = {
            let mut state = self.queue.lock();
            let (number, woken_at) = state.ready.swap_remove(at);
            let known = &mut state.tasks[number];
            known.queued = false;
            known.generation += u64::from(self.new_wakers);
            (number, woken_at, known.generation)
        };
        let Some(task) = &mut self.tasks[number] else { return };
        let its = Wakes { queue: Arc::clone(&self.queue), task: number, generation };
        let waker = Waker::from(Arc::new(its));
        *self.outside[number].waker.borrow_mut() = Some(waker.clone());
        self.world.delay.set(self.world.now().since(woken_at));
        self.polls += 1;
        if let Poll::Ready(()) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
            self.tasks[number] = None;
        }
        let busy = Nanos::from_nanos(100 + self.dice.below(POLL_NS_MAX) / (1 + self.dice.below(40)));
        self.free_at[worker] = self.world.now() + busy;
    }

    /// Nothing can come any more, and tasks are left.
    fn stalled(&self) -> String {
        let left: Vec<_> = (0..self.tasks.len()).filter(|&task| self.tasks[task].is_some()).collect();
        format!("tasks {left:?} are left, nobody has woken them, and nothing can come any more")
    }
}

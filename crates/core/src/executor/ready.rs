//! The set of tasks that are ready: a tree of bits that any thread may add to.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::task::Wake;
use core::task::Waker;

use crate::doorbell::Doorbell;
use crate::sync::{AtomicU64, Ordering, fence};
use crate::time::Instant;

const FAN: usize = 64;

/// The most tasks of one executor: three levels of 64.
pub const TASKS_MAX: usize = FAN * FAN * FAN;

/// Which tasks are ready, shared between an executor and the wakers of its tasks.
///
/// A waker sets the task's bit in a leaf and, only where that leaf was empty, the leaf's bit one level up, and so on: at
/// most three atomic operations however many tasks there are, none of them a lock, nothing allocated, and a task that is woken
/// twice is ready once. The executor takes whole words from the top down, clearing a word before it looks at
/// what hangs below it: whoever finds a word empty after that sets its bit above again.
#[derive(Debug)]
pub(super) struct Ready {
    root: AtomicU64,
    mids: Box<[AtomicU64]>,
    leaves: Box<[AtomicU64]>,
    door: Doorbell,
}

impl Ready {
    /// For up to `tasks_max` tasks, which is at most [`TASKS_MAX`]; rings `bell` when a sleeping executor has to wake.
    pub(super) fn new(tasks_max: usize, bell: Waker) -> Self {
        let words = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        let leaves = tasks_max.div_ceil(FAN);
        Self {
            root: AtomicU64::new(0),
            mids: words(leaves.div_ceil(FAN)),
            leaves: words(leaves),
            door: Doorbell::new(bell),
        }
    }

    /// Marks a task as ready and rings if the executor sleeps.
    pub(super) fn insert(&self, task: usize) {
        let bit = 1 << (task % FAN);
        // AcqRel: what the waking thread wrote is seen by the poll; a bit found set was set by one whose ring is on its way.
        let leaf = self.leaves[task / FAN].fetch_or(bit, Ordering::AcqRel);
        if leaf & bit != 0 {
            return;
        }
        if leaf == 0 {
            let mid = self.mids[task / FAN / FAN].fetch_or(1 << (task / FAN % FAN), Ordering::AcqRel);
            if mid == 0 {
                self.root.fetch_or(1 << (task / FAN / FAN), Ordering::AcqRel);
            }
        }
        self.door.ring(Instant::ORIGIN);
    }

    /// Whether no task is ready. One that is just being added may be missed; its adder then sees the executor sleep.
    pub(super) fn is_empty(&self) -> bool {
        self.root.load(Ordering::Acquire) == 0
    }

    /// Whether a waker is on its way: its task's bit is set, but the bits above are not yet, by it or by the one it relies on.
    ///
    /// To be asked after it was seen that no waker is alive; the fence makes visible what those did before they went.
    pub(super) fn adding(&self) -> bool {
        fence(Ordering::Acquire);
        self.leaves.iter().any(|leaf| leaf.load(Ordering::Relaxed) != 0)
    }

    /// Runs `sleep` unless a task is ready, with wakers ringing from before the last look on.
    pub(super) fn sleep<T>(&self, sleep: impl FnOnce() -> T) -> Option<T> {
        self.door.sleep(Instant::MAX, || self.is_empty(), sleep)
    }
}

/// Where the executor stands in taking ready tasks: what it has taken off the tree and not yet run.
///
/// Goes round the tree, so that a task that is always ready keeps no other from running.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    root: u32,
    mid: u64,
    leaf_index: usize,
    leaf: u64,
}

impl Cursor {
    /// The next ready task; each is given once for one or several wakes.
    pub(super) fn next(&mut self, ready: &Ready) -> Option<usize> {
        loop {
            if let Some(bit) = take_lowest(&mut self.leaf) {
                return Some(self.leaf_index * FAN + bit);
            }
            if let Some(bit) = take_lowest(&mut self.mid) {
                self.leaf_index = self.root as usize * FAN + bit;
                self.leaf = ready.leaves[self.leaf_index].swap(0, Ordering::AcqRel);
                continue;
            }
            // The next set bit behind the last one taken, going round.
            let root = ready.root.load(Ordering::Acquire);
            let start = (self.root + 1) % u64::BITS;
            let ahead = root.rotate_right(start);
            if ahead == 0 {
                return None;
            }
            self.root = (start + ahead.trailing_zeros()) % u64::BITS;
            ready.root.fetch_and(!(1 << self.root), Ordering::AcqRel);
            self.mid = ready.mids[self.root as usize].swap(0, Ordering::AcqRel);
        }
    }
}

fn take_lowest(word: &mut u64) -> Option<usize> {
    let bit = (*word != 0).then(|| word.trailing_zeros() as usize)?;
    *word &= *word - 1;
    Some(bit)
}

/// The waker of one task's place; made once a place, cloned without allocation.
#[derive(Debug)]
pub(super) struct TaskWaker {
    pub(super) ready: Arc<Ready>,
    pub(super) task: usize,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.insert(self.task);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.insert(self.task);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn drain(cursor: &mut Cursor, ready: &Ready) -> Vec<usize> {
        core::iter::from_fn(|| cursor.next(ready)).collect()
    }

    #[test]
    fn each_ready_task_is_given_once_at_every_size() {
        for tasks_max in [1, 64, 65, 4_096, 4_097, TASKS_MAX] {
            let ready = Ready::new(tasks_max, Waker::noop().clone());
            let mut cursor = Cursor::default();
            let last = tasks_max - 1;
            for task in [0, last / 2, last, last, 0] {
                ready.insert(task);
            }
            let mut tasks = drain(&mut cursor, &ready);
            tasks.sort_unstable();
            let mut expected = Vec::from([0, last / 2, last]);
            expected.dedup();
            assert_eq!(tasks, expected, "{tasks_max}");
            assert!(ready.is_empty());
            ready.insert(last);
            assert_eq!(drain(&mut cursor, &ready), [last], "ready again");
        }
    }

    /// A waker that was stopped half way looks like no wake at all from the top.
    #[test]
    fn a_wake_that_is_half_way_is_seen_where_it_is_looked_for() {
        let ready = Ready::new(65, Waker::noop().clone());
        ready.leaves[1].fetch_or(1, Ordering::AcqRel);
        assert!(ready.is_empty() && ready.adding());
    }

    #[test]
    fn a_task_that_is_always_ready_keeps_no_other_from_running() {
        let ready = Ready::new(TASKS_MAX, Waker::noop().clone());
        let mut cursor = Cursor::default();
        ready.insert(0);
        ready.insert(200_000);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let task = cursor.next(&ready).unwrap();
            if task == 0 {
                ready.insert(0);
            }
            seen.push(task);
        }
        assert!(seen.contains(&200_000), "{seen:?}");
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::sync::{Condvar, Mutex};
    use loom::thread;

    /// A bell that an idle thread waits on. (A lock, for loom lets a read-modify-write pass over a store for good.)
    struct Bell {
        rung: Mutex<bool>,
        ring: Condvar,
    }

    impl Bell {
        fn wait(&self) {
            let mut rung = self.rung.lock().unwrap();
            while !*rung {
                rung = self.ring.wait(rung).unwrap();
            }
            *rung = false;
        }
    }

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            *self.rung.lock().unwrap() = true;
            self.ring.notify_one();
        }
    }

    /// All interleavings with up to this many preemptions; a lost wake takes one or two.
    fn model(check: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(check);
    }

    /// Whatever the interleaving, the executor gets every task: a wake that it slept through would leave it asleep for good,
    /// which loom reports.
    #[test]
    fn loom_a_wake_is_never_slept_through() {
        model(|| {
            let bell = Arc::new(Bell { rung: Mutex::new(false), ring: Condvar::new() });
            let ready = Arc::new(Ready::new(65, Waker::from(Arc::clone(&bell))));
            let wakers = [0, 64].map(|task| {
                let ready = Arc::clone(&ready);
                thread::spawn(move || ready.insert(task))
            });
            let mut cursor = Cursor::default();
            let mut tasks = alloc::vec::Vec::new();
            while tasks.len() < 2 {
                match cursor.next(&ready) {
                    Some(task) => tasks.push(task),
                    None => {
                        ready.sleep(|| bell.wait());
                    }
                }
            }
            for waker in wakers {
                waker.join().unwrap();
            }
            tasks.sort_unstable();
            assert_eq!(tasks, [0, 64]);
            assert!(cursor.next(&ready).is_none(), "a wake was doubled");
        });
    }

    /// Two wakes of one leaf: the second finds the first's bit and adds its own without touching the levels above.
    #[test]
    fn loom_two_wakes_of_one_leaf_both_arrive() {
        model(|| {
            let ready = Arc::new(Ready::new(2, Waker::noop().clone()));
            let wakers = [0, 1].map(|task| {
                let ready = Arc::clone(&ready);
                thread::spawn(move || ready.insert(task))
            });
            let mut cursor = Cursor::default();
            let mut seen = usize::from(cursor.next(&ready).is_some());
            for waker in wakers {
                waker.join().unwrap();
            }
            seen += core::iter::from_fn(|| cursor.next(&ready)).count();
            assert_eq!(seen, 2);
        });
    }
}

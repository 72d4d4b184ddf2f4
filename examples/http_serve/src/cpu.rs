//! What the waiting costs: CPU time of the watcher's threads, and of the polls in which tasks wait.
//!
//! Both together are all that wakeline spends to know when a batch is done. The threads' also holds the batching windows, whose times the watcher keeps. Not in it is what
//! submits a batch, which is the first poll of its operation (and watches, for 20 us at most, where the batch is expected to be that short); nor the simulated device's own thread, which is what a GPU would do.

use std::fs;
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};

use wakeline::Nanos;
use wakeline_std::usage::thread_cpu_time;

/// What the names of the watcher's threads begin with, of which Linux keeps 15 letters.
const WATCHER_THREADS: [&str; 3] = ["wakeline-watch", "wakeline-overse", "wakeline-help"];

/// The CPU time of the watcher's threads so far, user and system; none where the system does not tell (elsewhere than on Linux).
pub fn of_watcher() -> Option<Nanos> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    // A thread that ends meanwhile counts no more.
    let each = tasks.flatten().filter_map(|task| of_thread(&task.path()));
    Some(Nanos::from_nanos(each.sum()))
}

/// That of the thread of this folder in nanoseconds, if it is one of the watcher's.
fn of_thread(task: &Path) -> Option<u64> {
    let name = fs::read_to_string(task.join("comm")).ok()?;
    if !WATCHER_THREADS.iter().any(|begin| name.starts_with(begin)) {
        return None;
    }
    // How long it ran, how long it waited to run, and how often it did.
    fs::read_to_string(task.join("schedstat")).ok()?.split(' ').next()?.parse().ok()
}

/// The CPU time of the polls in which tasks waited.
#[derive(Debug, Default)]
pub struct Meter {
    waited_ns: AtomicU64,
}

impl Meter {
    /// Counts what the polls of `future` take from the second on: the first one submits. Each is two system calls more, about 0.6 us together.
    pub async fn time<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut is_first = true;
        poll_fn(|context| {
            let begun = if is_first { None } else { thread_cpu_time() };
            let polled = future.as_mut().poll(context);
            if let (Some(begun), Some(ended)) = (begun, thread_cpu_time()) {
                self.waited_ns.fetch_add((ended - begun).as_nanos(), Ordering::Relaxed);
            }
            is_first = false;
            polled
        })
        .await
    }

    /// All of it so far.
    pub fn waited(&self) -> Nanos {
        Nanos::from_nanos(self.waited_ns.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::future::ready;
    use std::task::Poll;
    use std::thread;
    use std::time::Duration;

    use wakeline_std::{Watcher, block_on};

    use super::*;

    #[test]
    fn polls_behind_the_first_count() {
        let meter = Meter::default();
        block_on(meter.time(ready(())));
        assert_eq!(meter.waited(), Nanos::ZERO);
        let mut polls = 0;
        let busy = poll_fn(|context| {
            let begun = thread_cpu_time().unwrap();
            while thread_cpu_time().unwrap() - begun < Nanos::from_millis(2) {}
            context.waker().wake_by_ref();
            polls += 1;
            if polls == 3 { Poll::Ready(()) } else { Poll::Pending }
        });
        block_on(meter.time(busy));
        assert!(meter.waited() >= Nanos::from_millis(4), "{}", meter.waited());
    }

    #[test]
    fn the_threads_of_a_watcher_are_found_by_their_names() {
        let watcher = Watcher::new().unwrap();
        let found =
            || fs::read_dir("/proc/self/task").unwrap().flatten().filter_map(|task| of_thread(&task.path()));
        // They name themselves.
        for _ in 0..60_000 {
            if found().count() == 2 {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(found().count(), 2);
        assert!(of_watcher() > Some(Nanos::ZERO));
        watcher.close(Watcher::CLOSE).unwrap();
    }
}

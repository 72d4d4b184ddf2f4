//! What the threads of the watchers of this process have used, as Linux tells.

use std::fs;
use std::path::Path;

/// How their names begin; Linux cuts them after 15 characters: those that watch, the one that oversees them, the helpers.
const NAMES: [&str; 3] = ["wakeline-watch", "wakeline-overse", "wakeline-help"];

/// What they have used so far, all together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Threads {
    /// CPU time, user and system.
    pub cpu_ns: u64,
    /// How often one of them went to sleep, which is how often one woke up.
    pub wake_ups: u64,
}

impl Threads {
    /// Those that run now; `None` where none is found.
    pub fn now() -> Option<Self> {
        let threads = fs::read_dir("/proc/self/task").ok()?.flatten();
        threads.filter_map(|thread| Self::of(&thread.path())).reduce(|sum, one| Self {
            cpu_ns: sum.cpu_ns + one.cpu_ns,
            wake_ups: sum.wake_ups + one.wake_ups,
        })
    }

    /// One of them; `None` for others, and for one that has just ended.
    fn of(folder: &Path) -> Option<Self> {
        let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
        let name = read("comm")?;
        if !NAMES.iter().any(|begin| name.starts_with(begin)) {
            return None;
        }
        let first = |text: &str| text.split_whitespace().next()?.parse().ok();
        let status = read("status")?;
        let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some(Self { cpu_ns: first(&read("schedstat")?)?, wake_ups: first(switches)? })
    }

    /// What they have used since `earlier`. A thread that has ended meanwhile takes its own with it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            wake_ups: self.wake_ups.saturating_sub(earlier.wake_ups),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use wakeline::Nanos;
    use wakeline_std::{Watcher, WatcherConfig};

    #[test]
    fn a_watchers_threads_are_found_and_go_with_it() {
        let (told, started) = std::sync::mpsc::channel();
        let hook = move |name: &str| told.send(name.to_owned()).unwrap();
        let watcher = Watcher::with(WatcherConfig::default().on_thread_start(hook)).unwrap();
        for _ in 0..2 {
            let name = started.recv().unwrap();
            assert!(NAMES.iter().any(|begin| name.starts_with(begin)), "{name}");
        }
        // They go to sleep some time after that.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while Threads::now().is_none_or(|threads| threads.wake_ups < 2) {
            assert!(std::time::Instant::now() < end, "{:?}", Threads::now());
            std::thread::yield_now();
        }
        watcher.close(Nanos::from_millis(5_000)).unwrap();
        assert_eq!(Threads::now(), None);
    }
}

//! Keeping the measuring thread and those that play the device on processors of their own.
//!
//! A real device needs no processor; a simulated one does, and where the scheduler puts it on the one that the waiting thread
//! spins on, the device is late by a slice of the scheduler (milliseconds) that no real one has. On a virtual machine with
//! two processors, Linux was seen to do that for one step of fifty while the other processor idled.

/// The calling thread's processor of its own, until the guard is dropped.
///
/// ```
/// use wakeline_measure::Apart;
/// let (thread, apart) = Apart::from(|| std::thread::spawn(|| "on any other processor"));
/// if let Some(apart) = &apart {
///     println!("measuring on processor {}", apart.cpu());
/// }
/// # thread.join().unwrap();
/// ```
#[derive(Debug)]
#[must_use = "the thread may run anywhere again when the guard is dropped"]
pub struct Apart {
    cpu: usize,
    /// Kept for its drop.
    _affinity: sys::Affinity,
}

impl Apart {
    /// Runs `spawn`, whose threads get all of the calling thread's processors but one, and keeps the calling thread on that one.
    ///
    /// `None` where there is only one processor, or the system does not let threads choose: `spawn` is run all the same.
    pub fn from<T>(spawn: impl FnOnce() -> T) -> (T, Option<Self>) {
        let Some((own, others)) = sys::Affinity::split() else {
            return (spawn(), None);
        };
        let spawned = spawn();
        // Threads inherit the affinity of the one that starts them.
        drop(others);
        let apart = sys::Affinity::only(own).map(|affinity| Self { cpu: own, _affinity: affinity });
        (spawned, apart)
    }

    /// The number of the processor.
    pub const fn cpu(&self) -> usize {
        self.cpu
    }
}

#[cfg(target_os = "linux")]
mod sys {
    use core::fmt;
    use core::marker::PhantomData;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    /// Sets the affinity of the calling thread back when it is dropped.
    pub(super) struct Affinity {
        before: CpuSet,
        /// Neither `Send` nor `Sync`: it is about this thread.
        this_thread: PhantomData<*const ()>,
    }

    impl Affinity {
        /// The last of this thread's processors (the first ones handle most interrupts), and this thread kept on the others.
        pub(super) fn split() -> Option<(usize, Self)> {
            let mut others = sched_getaffinity(None).ok()?;
            let own = (0..CpuSet::MAX_CPU).rev().find(|cpu| others.is_set(*cpu))?;
            others.unset(own);
            if others.count() == 0 {
                return None;
            }
            Some((own, Self::set(&others)?))
        }

        pub(super) fn only(cpu: usize) -> Option<Self> {
            let mut only = CpuSet::new();
            only.set(cpu);
            Self::set(&only)
        }

        fn set(cpus: &CpuSet) -> Option<Self> {
            let before = sched_getaffinity(None).ok()?;
            sched_setaffinity(None, cpus).ok()?;
            Some(Self { before, this_thread: PhantomData })
        }
    }

    impl Drop for Affinity {
        fn drop(&mut self) {
            // It was allowed before. Should that have changed meanwhile, the thread stays where it is.
            let _ = sched_setaffinity(None, &self.before);
        }
    }

    impl fmt::Debug for Affinity {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Affinity").finish_non_exhaustive()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod sys {
    /// Threads cannot choose here: there is no value.
    #[derive(Debug)]
    pub(super) enum Affinity {}

    impl Affinity {
        pub(super) fn split() -> Option<(usize, Self)> {
            None
        }

        pub(super) fn only(_cpu: usize) -> Option<Self> {
            None
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use rustix::thread::{CpuSet, sched_getaffinity};

    fn cpus() -> Vec<usize> {
        let set = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
    }

    #[test]
    fn the_two_share_no_processor_and_all_is_as_before_afterwards() {
        // On a thread of its own: others of the test run at the same time.
        std::thread::spawn(|| {
            let before = cpus();
            let (spawned, apart) = Apart::from(|| std::thread::spawn(cpus));
            let others = spawned.join().unwrap();
            match &apart {
                Some(apart) => {
                    assert_eq!(cpus(), [apart.cpu()]);
                    assert_eq!(others.len() + 1, before.len());
                    assert!(!others.contains(&apart.cpu()));
                }
                None => assert_eq!((before.len(), others), (1, before.clone())),
            }
            drop(apart);
            assert_eq!(cpus(), before);
        })
        .join()
        .unwrap();
    }
}

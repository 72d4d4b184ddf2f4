//! Bounds on time, judged on machines that others load as well.
//!
//! A bound on time holds on an idle machine; on one that others load it says nothing about the code. So each measurement runs beside
//! a [`Machine`], which measures what the plainest code gets at the same time: a thread that sleeps, and another that it wakes.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use wakeline_core::Nanos;

/// How often a measurement is made at most.
const ATTEMPTS: u32 = 10;
/// How long the thread of the control sleeps.
const SLEEP: Duration = Duration::from_millis(1);
/// Of a machine on which bounds on time can be judged: how late the plainest code usually is, 70 us where nobody else is there.
const USUALLY_LATE_MAX: Nanos = Nanos::from_micros(200);
/// Of such a machine: how late it is at the most. A scheduler's slice is 3 to 4 ms: beyond that, others had the processor.
const EVER_LATE_MAX: Nanos = Nanos::from_millis(4);

/// How late a thread is that another wakes after a sleep of a millisecond, again and again while this is there.
#[derive(Debug)]
pub struct Machine {
    over: Arc<AtomicBool>,
    lates: Arc<Mutex<Vec<Nanos>>>,
    threads: [Option<JoinHandle<()>>; 2],
}

impl Machine {
    /// Begins to look.
    pub fn watch() -> Self {
        let (over, lates) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (tell, told) = mpsc::channel::<Instant>();
        let ended = Arc::clone(&over);
        let sleeps = std::thread::spawn(move || {
            loop {
                let due = Instant::now() + SLEEP;
                std::thread::sleep(SLEEP);
                if tell.send(due).is_err() || ended.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let seen = Arc::clone(&lates);
        let is_woken = std::thread::spawn(move || {
            while let Ok(due) = told.recv() {
                let late = u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX);
                lock(&seen).push(Nanos::from_nanos(late));
            }
        });
        Self { over, lates, threads: [Some(sleeps), Some(is_woken)] }
    }

    /// Half of them were later so far.
    pub fn usual(&self) -> Nanos {
        let mut lates = lock(&self.lates).clone();
        if lates.is_empty() { Nanos::ZERO } else { median(&mut lates) }
    }

    /// The latest so far.
    pub fn worst(&self) -> Nanos {
        lock(&self.lates).iter().max().copied().unwrap_or(Nanos::ZERO)
    }

    /// What made bounds on time mean nothing here, if anything did.
    ///
    /// Looks no more from here on. What is still under way counts: a measurement may have been shorter than the control's first sleep, or
    /// others may have had the processor to its end.
    fn unfit(&mut self) -> Option<String> {
        self.end();
        let (usual, worst) = (self.usual(), self.worst());
        let unfit = usual > USUALLY_LATE_MAX || worst > EVER_LATE_MAX;
        unfit.then(|| format!("a thread that another wakes is {usual} late here, at worst {worst}"))
    }

    fn end(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in &mut self.threads {
            if let Some(thread) = thread.take() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What measures time does not run beside each other in one process.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    lock(&ALONE)
}

/// The middle one.
///
/// # Panics
///
/// There is none.
pub fn median<T: Ord + Copy>(values: &mut [T]) -> T {
    values.sort_unstable();
    values[values.len() / 2]
}

/// Makes a measurement until it is right, up to ten times with longer and longer pauses between. Call it [`alone`], or let nothing else that
/// it matters for run in the process.
///
/// Where it was wrong every time, and more often than not the machine was unfit for it, there is a line on standard error that begins with
/// `skipped:`, which the test harness does not swallow. So what is right now and then passes, and so does what keeps all processors busy by
/// itself: count such things, or the CPU time, in place of measuring how late something is.
///
/// # Panics
///
/// With what each found wrong, where the machine was fit at least half of the time.
pub fn measured(mut once: impl FnMut(&Machine) -> Result<(), String>) {
    let (mut wrong, mut unfit) = (Vec::new(), Vec::new());
    for attempt in 0..ATTEMPTS {
        std::thread::sleep(Duration::from_millis(100) * attempt);
        let mut machine = Machine::watch();
        let Err(this) = once(&machine) else { return };
        wrong.push(this);
        unfit.extend(machine.unfit());
    }
    assert!(2 * unfit.len() > wrong.len(), "wrong every time: {}", wrong.join("; "));
    let test = std::thread::current().name().unwrap_or("a measurement").to_string();
    let _ = writeln!(
        std::io::stderr(),
        "skipped: {test}: the machine is too busy to judge times on: {}; found: {}",
        unfit.join("; "),
        wrong.join("; "),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a measurement that took less than a millisecond nothing was known, which counted as a machine that is fit.
    #[test]
    fn what_takes_no_time_has_a_control_too() {
        let mut machine = Machine::watch();
        let _ = machine.unfit();
        assert!(!lock(&machine.lates).is_empty());
        assert!(machine.worst() >= machine.usual() && machine.usual() > Nanos::ZERO);
    }
}

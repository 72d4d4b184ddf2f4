//! Waking a sleeper only where it sleeps, and only where it would sleep for too long.

use core::fmt;
use core::task::Waker;

use crate::sync::{AtomicU64, Ordering, fence};
use crate::time::Instant;

/// The sleeper is awake: whoever adds work need not ring.
const AWAKE: u64 = 0;

/// Between a thread that sleeps while it has nothing to do and those that give it something.
///
/// Those put their work where the sleeper looks, then [`ring`](Self::ring); the sleeper announces that it is about to sleep, looks
/// a last time, and sleeps. Either its last look sees the work or the ringer sees the announcement, since both have a
/// sequentially consistent fence between the one and the other (Dekker's pattern). So a ring costs a fence and a load while the
/// sleeper is awake, and also while it sleeps but will wake by itself before the work is due.
///
/// ```
/// use wakeline_core::{Doorbell, Idle, Instant};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualHost, VirtualTime};
/// let host = VirtualHost::new(&SimDevice::new(VirtualTime::new(), SimConfig::default())?);
/// let door = Doorbell::new(host.bell());
/// door.ring(Instant::ORIGIN); // nobody sleeps: rings no bell
/// let until = Instant::from_nanos(5_000);
/// door.sleep(until, || true, || host.idle(Some(until)));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub struct Doorbell {
    /// When the sleeper wakes by itself; [`AWAKE`] while it is awake or has been rung for.
    wakes_at: AtomicU64,
    bell: Waker,
}

impl Doorbell {
    /// For the sleeper that `bell` wakes.
    pub fn new(bell: Waker) -> Self {
        Self { wakes_at: AtomicU64::new(AWAKE), bell }
    }

    /// To be called after work was put where the sleeper looks: wakes it unless it is awake or wakes by itself by `due`.
    /// [`Instant::ORIGIN`] is "at once".
    #[inline]
    pub fn ring(&self, due: Instant) {
        fence(Ordering::SeqCst);
        if due.as_nanos() < self.wakes_at.load(Ordering::Relaxed) {
            self.bell.wake_by_ref();
        }
    }

    /// Runs `sleep`, which ends by itself at `until`, unless there is something to do: `nothing_to_do` is the last look. From before
    /// that look on, a [`ring`](Self::ring) for something due before `until` wakes the bell, which `sleep` MUST NOT sleep through: as an
    /// [`Idle::idle`](crate::Idle::idle) does not. One thread at a time. `None` where it did not sleep.
    pub fn sleep<T>(
        &self,
        until: Instant,
        nothing_to_do: impl FnOnce() -> bool,
        sleep: impl FnOnce() -> T,
    ) -> Option<T> {
        self.wakes_at.store(until.as_nanos().max(AWAKE + 1), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let slept = nothing_to_do().then(sleep);
        self.wakes_at.store(AWAKE, Ordering::Relaxed);
        slept
    }
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorbell").finish_non_exhaustive()
    }
}

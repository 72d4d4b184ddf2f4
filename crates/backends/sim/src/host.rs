//! A host on a virtual time line: where a real one would wait, it lets the devices go on.

use alloc::sync::Arc;
use alloc::task::Wake as RawWake;
use alloc::vec::Vec;
use core::task::Waker;

use wakeline_core::{Clock, CompletionLine, Idle, Instant, Nanos, Park, Timer, Wake};

use crate::device::SimDevice;
use crate::dice::{Dice, Draw, HOST};
use crate::fault::{Chance, Faults};
use crate::sync::{AtomicBool, Lock, Ordering};
use crate::time::{TimeLine, VirtualTime};

/// One host thread on the virtual time line of its devices: their clock, timer, idle and park.
///
/// Waiting moves the clock from event to event, so that every store lands at its own time and is seen then. The
/// faults [`spurious_wake`](Faults::spurious_wake), [`early_sleep`](Faults::early_sleep) and
/// [`clock_step`](Faults::clock_step) of the first device happen here. Work is deterministic on one thread; several threads may share
/// a time line, but then its order is theirs.
///
/// ```
/// use wakeline_core::{Clock, Idle, Nanos};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualHost, VirtualTime};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let host = VirtualHost::new(&device);
/// let until = host.now() + Nanos::from_millis(1);
/// host.idle(Some(until)); // takes no real time
/// assert_eq!(host.now(), until);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Debug)]
pub struct VirtualHost {
    time: VirtualTime,
    devices: Vec<SimDevice<VirtualTime>>,
    dice: Lock<Dice>,
    bell: Arc<Bell>,
}

/// What ends an idle call.
#[derive(Debug)]
struct Bell(AtomicBool);

impl RawWake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl VirtualHost {
    /// The host of this device, whose faults and seed are also the host's.
    pub fn new(device: &SimDevice<VirtualTime>) -> Self {
        Self {
            time: device.time().clone(),
            devices: Vec::from([device.clone()]),
            dice: Lock::new(Dice::new(device.config().seed, HOST)),
            bell: Arc::new(Bell(AtomicBool::new(false))),
        }
    }

    /// The same host with another device, which must be on the same time line.
    #[must_use]
    pub fn and(mut self, device: &SimDevice<VirtualTime>) -> Self {
        debug_assert!(
            core::ptr::eq(self.time.clock(), device.time().clock()),
            "the devices of one host share its time line"
        );
        self.devices.push(device.clone());
        self
    }

    /// The time line.
    pub fn time(&self) -> &VirtualTime {
        &self.time
    }

    /// Lets time pass until `until`, event by event, or until `ended` says so.
    fn pass(&self, until: Instant, mut ended: impl FnMut() -> bool) -> bool {
        loop {
            let now = self.time.now();
            let next = self.turn(now);
            if ended() {
                return true;
            }
            // At the end of time nothing can come any more: wake rather than wait for nothing.
            if now >= until || next.min(until) == Instant::MAX {
                return false;
            }
            self.time.pass(next.min(until));
        }
    }

    /// Does what is due on all devices; when something is due next.
    fn turn(&self, now: Instant) -> Instant {
        let due = |device: &SimDevice<VirtualTime>| {
            device.with(|state| {
                state.turn(now);
                state.next_due()
            })
        };
        self.devices.iter().map(due).min().unwrap_or(Instant::MAX)
    }

    /// When something is due next on a device.
    pub(crate) fn next_due(&self) -> Instant {
        let due = |device: &SimDevice<VirtualTime>| device.with(|state| state.next_due());
        self.devices.iter().map(due).min().unwrap_or(Instant::MAX)
    }

    fn sleep(&self, until: Instant, ended: impl FnMut() -> bool) {
        let early = self.roll(Draw::EarlySleep, |faults| faults.early_sleep);
        let now = self.time.now();
        let half = Nanos::from_nanos(until.since(now).as_nanos().div_ceil(2));
        let end = match early {
            Some(early) if until < Instant::MAX => (until - early).max(now + half),
            _ => until,
        };
        self.pass(end, ended);
        self.step();
    }

    /// The clock may jump now.
    fn step(&self) {
        if let Some(step) = self.roll(Draw::ClockStep, |faults| faults.clock_step) {
            let now = self.time.now() + step;
            self.time.pass(now);
            self.turn(now);
        }
    }

    /// By how much a fault of the first device happens to this host, if it does.
    fn roll(&self, draw: Draw, chance: impl FnOnce(&Faults) -> Chance) -> Option<Nanos> {
        let chance = self.devices.first()?.with(|state| chance(state.faults()));
        self.dice.lock().roll(draw, chance).map(Nanos::from_nanos)
    }

    fn rung(&self) -> bool {
        self.bell.0.load(Ordering::Acquire)
    }

    /// Whether it rang; answers the ring.
    fn take_ring(&self) -> bool {
        self.rung() && self.bell.0.swap(false, Ordering::AcqRel)
    }
}

impl Clock for VirtualHost {
    fn now(&self) -> Instant {
        self.time.now()
    }
}

impl Timer for VirtualHost {
    /// Sleeps in the first poll: virtual time has nothing else to wait for.
    async fn sleep_until(&self, at: Instant) {
        self.sleep(at, || false);
    }

    async fn yield_now(&self) {}
}

impl Idle for VirtualHost {
    /// Returns early also where nothing is due on any device and nobody rang: nothing could end it.
    fn idle(&self, until: Option<Instant>) {
        self.sleep(until.unwrap_or(Instant::MAX), || self.rung());
        // One that comes only now is answered, too: what the ringing thread wrote before must be seen then.
        self.bell.0.swap(false, Ordering::AcqRel);
    }

    fn bell(&self) -> Waker {
        Waker::from(Arc::clone(&self.bell))
    }
}

impl Park for VirtualHost {
    /// A ring that ends a park is answered by that; one that finds the words reached is not.
    fn park(&self, _line: Option<&CompletionLine>, until: Instant, mut ready: impl FnMut() -> bool) -> Wake {
        let spurious = self.roll(Draw::SpuriousWake, |faults| faults.spurious_wake);
        // A park that took no time at all would be the next one again: the wait would never end.
        let after = |after: Nanos| after.max(Nanos::from_nanos(1));
        let end = spurious.map_or(until, |ns| until.min(self.time.now() + after(ns)));
        let mut reached = false;
        self.pass(end, || {
            reached = ready();
            reached || self.take_ring()
        });
        self.step();
        if reached { Wake::Reached } else { Wake::Woke }
    }
}

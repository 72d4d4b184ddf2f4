//! On which device of a machine an operation runs.

use core::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use wakeline_core::{Instant, Nanos};

use crate::known::Kind;
use crate::machine::Site;
use crate::port::Device;

/// Chooses among the devices of a [`Machine`](crate::Machine), by number, for each operation that it is handed.
///
/// Those that come with this crate: [`InTurn`], [`LeastBusy`], [`ByKey`]; a closure is one, too:
///
/// ```
/// use wakeline_ops::{DeviceLoads, Machine, SingleStream, value};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// let first = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let devices = [first.clone(), first.beside(SimConfig::default())?];
/// let watcher = VirtualWatcher::new(&first);
/// // Odd keys there, even ones here.
/// let odd = |loads: &DeviceLoads<'_>| usize::from(loads.key() % 2 == 1);
/// let machine = Machine::new(devices, &SingleStream, watcher.clone())?.placed_by(odd);
/// let number = watcher.run(machine.run(|site| value(site.number())).keyed(7))??;
/// assert_eq!(number, 1);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub trait Placement: Send + Sync + 'static {
    /// The number of the device for the next operation, counted from 0. MUST NOT block. Of one that is out, or not there, the next that is in is taken.
    fn place(&self, loads: &DeviceLoads<'_>) -> usize;
}

impl<F> Placement for F
where
    F: Fn(&DeviceLoads<'_>) -> usize + Send + Sync + 'static,
{
    fn place(&self, loads: &DeviceLoads<'_>) -> usize {
        self(loads)
    }
}

/// What is known of a site, whatever its device.
pub(super) trait Loaded {
    fn is_in(&self) -> bool;
    fn pressure(&self, now: Instant) -> (usize, Nanos);
    fn streams(&self) -> usize;
    fn expect(&self, kind: Kind) -> Option<Nanos>;
}

impl<D: Device> Loaded for Site<D> {
    fn is_in(&self) -> bool {
        Self::is_in(self)
    }

    fn pressure(&self, now: Instant) -> (usize, Nanos) {
        self.runtime().pressure(now)
    }

    fn streams(&self) -> usize {
        self.runtime().streams()
    }

    fn expect(&self, kind: Kind) -> Option<Nanos> {
        self.runtime().core().fleet.known.expect(kind)
    }
}

/// What is in flight on each device of a machine, for a placement that goes by that. What is told may have changed by the time that it is used; it counts the streams of the
/// machine's own runtimes.
pub struct DeviceLoads<'a> {
    pub(super) sites: &'a dyn Fn(usize) -> Option<&'a dyn Loaded>,
    pub(super) devices: usize,
    pub(super) now: Instant,
    pub(super) kind: Kind,
    pub(super) key: u64,
}

impl DeviceLoads<'_> {
    fn site(&self, device: usize) -> Option<&dyn Loaded> {
        (self.sites)(device)
    }

    /// How many devices there are, those that are out among them. They are numbered from 0; of a number too large all that is told is nothing.
    pub const fn devices(&self) -> usize {
        self.devices
    }

    /// Whether operations may be placed there.
    pub fn is_in(&self, device: usize) -> bool {
        self.site(device).is_some_and(Loaded::is_in)
    }

    /// Those where they may.
    pub fn all_in(&self) -> impl Iterator<Item = usize> {
        (0..self.devices).filter(|&device| self.is_in(device))
    }

    /// How many operations are in flight on it.
    pub fn in_flight(&self, device: usize) -> usize {
        self.site(device).map_or(0, |site| site.pressure(self.now).0)
    }

    /// How long until all in flight on it has ended, by what is known of how long its kinds take there: the mean of its streams. Zero where nothing is.
    pub fn residual(&self, device: usize) -> Nanos {
        self.site(device).map_or(Nanos::ZERO, |site| {
            let left = site.pressure(self.now).1.as_nanos();
            Nanos::from_nanos(left / u64::try_from(site.streams().max(1)).unwrap_or(1))
        })
    }

    /// How long the operation that is to be placed takes there by itself, by what was learned of its type and key on that device; `None` where nothing was.
    pub fn service(&self, device: usize) -> Option<Nanos> {
        self.site(device)?.expect(self.kind)
    }

    /// The key that its user has given it; 0 without.
    pub const fn key(&self) -> u64 {
        self.key
    }
}

impl fmt::Debug for DeviceLoads<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = (0..self.devices).map(|device| {
            (self.is_in(device), self.in_flight(device), self.residual(device), self.service(device))
        });
        f.debug_list().entries(each).finish()
    }
}

/// The devices in turn, those alone that are in.
#[derive(Debug, Default)]
pub struct InTurn(AtomicUsize);

impl InTurn {
    /// From the first on.
    pub const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }
}

/// The one of this turn, counted among those that are in.
fn in_turn(loads: &DeviceLoads<'_>, turn: usize) -> impl Iterator<Item = usize> {
    let count = loads.all_in().count();
    loads.all_in().chain(loads.all_in()).skip(turn % count.max(1)).take(count)
}

impl Placement for InTurn {
    fn place(&self, loads: &DeviceLoads<'_>) -> usize {
        in_turn(loads, self.0.fetch_add(1, Ordering::Relaxed)).next().unwrap_or(0)
    }
}

/// A device is taken to be slower than the fastest by so much at most. What was learned of it may be of one that took long once, and it would never be learned anew where
/// nothing is placed there.
const SLOWER_MAX: u64 = 8;

/// The device on which the operation is expected to end first: what is in flight there, and what it takes there itself, as far as that was learned; of those the one with
/// the least in flight, and of those the next in turn.
///
/// Devices of different speeds get as much as they can do once it is known how long things take on each: what nobody has run on a device yet counts as nothing there.
/// Costs a look at the clock, two loads a stream of each device, and no call of a driver.
#[derive(Debug, Default)]
pub struct LeastBusy(AtomicUsize);

impl LeastBusy {
    /// One that knows of nothing yet.
    pub const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }
}

impl Placement for LeastBusy {
    fn place(&self, loads: &DeviceLoads<'_>) -> usize {
        let least = loads.all_in().filter_map(|device| loads.service(device)).min();
        let most = Nanos::from_nanos(least.map_or(0, |least| least.as_nanos().saturating_mul(SLOWER_MAX)));
        let busy = |device: &usize| -> (Nanos, usize) {
            let own = loads.service(*device).unwrap_or(Nanos::ZERO).min(most);
            (loads.residual(*device) + own, loads.in_flight(*device))
        };
        in_turn(loads, self.0.fetch_add(1, Ordering::Relaxed)).min_by_key(busy).unwrap_or(0)
    }
}

/// By the key that an operation is given ([`Spread::keyed`](crate::Spread::keyed)): the same key on the same device, for as long as that is in, for state that
/// lives there. Where a device goes out its own keys are spread over the others, and no other moves; they come back with it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByKey;

impl Placement for ByKey {
    /// The highest of one number for each device and key.
    fn place(&self, loads: &DeviceLoads<'_>) -> usize {
        loads.all_in().max_by_key(|&device| mixed(loads.key() ^ mixed(device as u64 + 1))).unwrap_or(0)
    }
}

/// Each bit of it depends on all bits of the number (the finish of `SplitMix64`).
const fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

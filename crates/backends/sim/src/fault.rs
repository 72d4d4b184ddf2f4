//! The faults that a device can be given: what goes wrong, how often, by how much.

use wakeline_core::{Error, Instant, within};

use crate::dice::{Dice, Draw, HOST, PPM_MAX};

/// The longest delay a fault may have: one hour.
pub const FAULT_NS_MAX: u64 = 3_600_000_000_000;

/// The shortest spurious wake of a swarm: shorter ones would make a million parks of one long wait.
const SPURIOUS_NS_MIN: u64 = 10_000;

/// How often something goes wrong, and by how much.
///
/// ```
/// use wakeline_sim::Chance;
/// // Every hundredth time, by 5 to 20 us.
/// let chance = Chance { ppm: 10_000, ns_min: 5_000, ns_max: 20_000 };
/// assert_ne!(chance, Chance::NEVER);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Chance {
    /// How often, in parts per million of the occasions.
    pub ppm: u32,
    /// The least it is then, in nanoseconds.
    pub ns_min: u64,
    /// The most it is then, in nanoseconds; every value between is as likely.
    pub ns_max: u64,
}

impl Chance {
    /// It never happens.
    pub const NEVER: Self = Self { ppm: 0, ns_min: 0, ns_max: 0 };

    /// It happens every time, and by just this many nanoseconds.
    pub const fn always(ns: u64) -> Self {
        Self { ppm: PPM_MAX, ns_min: ns, ns_max: ns }
    }

    fn check(self, what: &str) -> Result<(), Error> {
        within(&alloc::format!("{what}.ppm"), self.ppm, 0, PPM_MAX)?;
        within(&alloc::format!("{what}.ns_max"), self.ns_max, 0, FAULT_NS_MAX)?;
        within(&alloc::format!("{what}.ns_min"), self.ns_min, 0, self.ns_max).map(drop)
    }
}

/// What goes wrong on a device and on its virtual host. All probabilities are in parts per million.
///
/// Faults come in two sorts. After a *survivable* one a wait still ends well under the driver's authority, at
/// most one backstop late. After a *fatal* one ([`stuck_ppm`](Self::stuck_ppm), [`fault_at`](Self::fault_at),
/// [`fault_at_call`](Self::fault_at_call)) it ends by its deadline or with the device's error.
///
/// ```
/// use wakeline_sim::{Chance, Faults};
/// let faults = Faults { lost_store_ppm: 1_000, late_store: Chance::always(40_000), ..Faults::none() };
/// assert_ne!(faults, Faults::none());
/// assert_eq!(Faults::swarm(7), Faults::swarm(7));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// A store lands late. Later stores of its stream wait for it, as posted writes do.
    pub late_store: Chance,
    /// A store never lands.
    pub lost_store_ppm: u32,
    /// A store lands up to this much before the work in front of it has ended.
    pub early_store: Chance,
    /// A store lands, and once more this much later, whoever owns its word by then. At most
    /// [`queue_len_max`](crate::SimConfig::queue_len_max) second landings of a word are under way; a store that
    /// would add to them lands once.
    pub repeated_store: Chance,
    /// A store changes places with the next store of its stream, if that is enqueued by then: the later number
    /// lands early, and the earlier number after it.
    pub swapped_store_ppm: u32,
    /// A store is enqueued but submitted only by the next query or block on its stream, or when another stream is told to wait for
    /// it; what is enqueued behind it waits with it.
    pub deferred_store_ppm: u32,
    /// A query takes this much longer.
    pub slow_query: Chance,
    /// The driver never says that a point is done, whatever its work does. Fatal.
    pub stuck_ppm: u32,
    /// A stream cannot store words.
    pub unsupported_ppm: u32,
    /// The device faults at this moment, and stays so. Fatal.
    pub fault_at: Option<Instant>,
    /// The device faults at the driver call of this number, counted from 1, and stays so. Fatal.
    pub fault_at_call: Option<u64>,
    /// How long a fault goes unnoticed: until then calls succeed and nothing completes any more. An H200 takes
    /// 330 to 350 ms after a trap.
    pub fault_lag_ns: u64,
    /// A park of the virtual host ends for no reason, this long after it began, but not before 1 ns is over: time
    /// always passes. Short ones make many of one wait.
    pub spurious_wake: Chance,
    /// A sleep of the virtual host ends this much early, but not before half of it is over: time always passes.
    pub early_sleep: Chance,
    /// The clock jumps by this much when a park or a sleep of the virtual host ends.
    pub clock_step: Chance,
}

impl Faults {
    /// Nothing goes wrong.
    pub const fn none() -> Self {
        Self {
            late_store: Chance::NEVER,
            lost_store_ppm: 0,
            early_store: Chance::NEVER,
            repeated_store: Chance::NEVER,
            swapped_store_ppm: 0,
            deferred_store_ppm: 0,
            slow_query: Chance::NEVER,
            stuck_ppm: 0,
            unsupported_ppm: 0,
            fault_at: None,
            fault_at_call: None,
            fault_lag_ns: 0,
            spurious_wake: Chance::NEVER,
            early_sleep: Chance::NEVER,
            clock_step: Chance::NEVER,
        }
    }

    /// A selection of faults drawn from a seed: each survivable kind is on in half of the swarms, each fatal
    /// kind in one of sixteen.
    ///
    /// Swarms that leave kinds out find more than runs in which everything always goes wrong at once.
    #[must_use]
    pub fn swarm(seed: u64) -> Self {
        let mut swarm = Swarm(Dice::new(seed, HOST));
        Self {
            late_store: swarm.chance(1, 200_000_000),
            lost_store_ppm: swarm.ppm(),
            early_store: swarm.chance(1, 10_000_000),
            repeated_store: swarm.chance(1, 200_000_000),
            swapped_store_ppm: swarm.ppm(),
            deferred_store_ppm: swarm.ppm(),
            slow_query: swarm.chance(1, 500_000_000),
            unsupported_ppm: swarm.ppm(),
            spurious_wake: swarm.chance(SPURIOUS_NS_MIN, 1_000_000),
            early_sleep: swarm.chance(1, 1_000_000),
            clock_step: swarm.chance(1, 100_000_000),
            stuck_ppm: if swarm.fatal() { swarm.strength() } else { 0 },
            fault_at: swarm.fatal().then(|| Instant::from_nanos(swarm.below(1_000_000_000))),
            fault_at_call: swarm.fatal().then(|| 1 + swarm.below(1_000)),
            fault_lag_ns: swarm.below(350_000_000),
        }
    }

    /// The same without the fatal ones: every wait must then end well.
    #[must_use]
    pub const fn survivable(self) -> Self {
        Self { stuck_ppm: 0, fault_at: None, fault_at_call: None, ..self }
    }

    /// # Errors
    ///
    /// `InvalidLimit` where a probability or a delay is out of range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        for (what, ppm) in [
            ("faults.lost_store_ppm", self.lost_store_ppm),
            ("faults.swapped_store_ppm", self.swapped_store_ppm),
            ("faults.deferred_store_ppm", self.deferred_store_ppm),
            ("faults.stuck_ppm", self.stuck_ppm),
            ("faults.unsupported_ppm", self.unsupported_ppm),
        ] {
            within(what, ppm, 0, PPM_MAX)?;
        }
        for (what, chance) in [
            ("faults.late_store", self.late_store),
            ("faults.early_store", self.early_store),
            ("faults.repeated_store", self.repeated_store),
            ("faults.slow_query", self.slow_query),
            ("faults.spurious_wake", self.spurious_wake),
            ("faults.early_sleep", self.early_sleep),
            ("faults.clock_step", self.clock_step),
        ] {
            chance.check(what)?;
        }
        within("faults.fault_lag_ns", self.fault_lag_ns, 0, FAULT_NS_MAX)?;
        within("faults.fault_at_call", self.fault_at_call.unwrap_or(1), 1, u64::MAX).map(drop)
    }
}

struct Swarm(Dice);

impl Swarm {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(Draw::Swarm, bound)
    }

    fn fatal(&mut self) -> bool {
        self.below(16) == 0
    }

    /// One in a thousand, in a hundred, in ten, or always.
    fn strength(&mut self) -> u32 {
        match self.below(4) {
            0 => 1_000,
            1 => 10_000,
            2 => 100_000,
            _ => PPM_MAX,
        }
    }

    fn ppm(&mut self) -> u32 {
        if self.below(2) == 0 { 0 } else { self.strength() }
    }

    fn chance(&mut self, ns_least: u64, ns_most: u64) -> Chance {
        let ppm = self.ppm();
        let (one, other) = (self.magnitude(ns_least, ns_most), self.magnitude(ns_least, ns_most));
        if ppm == 0 { Chance::NEVER } else { Chance { ppm, ns_min: one.min(other), ns_max: one.max(other) } }
    }

    /// Drawn by its power of two first, so that small ones are as likely as large ones.
    fn magnitude(&mut self, least: u64, most: u64) -> u64 {
        let powers = u64::from(most.ilog2() - least.ilog2()) + 1;
        let low = least << self.below(powers);
        (low + self.below(low)).min(most)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use wakeline_core::ErrorCode;

    #[test]
    fn every_swarm_is_a_valid_configuration_and_every_kind_is_on_in_some() {
        let mut on = [0; 14];
        for seed in 0..1_000 {
            let swarm = Faults::swarm(seed);
            swarm.check().unwrap();
            let kinds = [
                swarm.late_store.ppm > 0,
                swarm.lost_store_ppm > 0,
                swarm.early_store.ppm > 0,
                swarm.repeated_store.ppm > 0,
                swarm.swapped_store_ppm > 0,
                swarm.deferred_store_ppm > 0,
                swarm.slow_query.ppm > 0,
                swarm.unsupported_ppm > 0,
                swarm.spurious_wake.ppm > 0,
                swarm.early_sleep.ppm > 0,
                swarm.clock_step.ppm > 0,
                swarm.stuck_ppm > 0,
                swarm.fault_at.is_some(),
                swarm.fault_at_call.is_some(),
            ];
            for (count, kind) in on.iter_mut().zip(kinds) {
                *count += i32::from(kind);
            }
            let mild = swarm.survivable();
            assert!(mild.stuck_ppm == 0 && mild.fault_at.is_none() && mild.fault_at_call.is_none());
        }
        assert!(on[..11].iter().all(|count| (400..600).contains(count)), "{on:?}");
        assert!(on[11..].iter().all(|count| (30..100).contains(count)), "{on:?}");
    }

    #[test]
    fn a_fault_out_of_range_names_its_field_and_the_range() {
        let faults = Faults { lost_store_ppm: 1_000_001, ..Faults::none() };
        let error = faults.check().unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidLimit);
        assert_eq!(error.args(), ["faults.lost_store_ppm", "1000001", "0", "1000000"]);
        let chance = Chance { ppm: 1, ns_min: 9, ns_max: 8 };
        let faults = Faults { clock_step: chance, ..Faults::none() };
        assert_eq!(faults.check().unwrap_err().args(), ["faults.clock_step.ns_min", "9", "0", "8"]);
    }
}

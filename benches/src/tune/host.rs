//! The host that a replay pretends to run on: how late it wakes, and what looking costs.

use wakeline_core::Nanos;
use wakeline_std::APPROACH_LEAST_US;

/// How late a sleep of about this length ends: two quantiles of a log-normal spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Anchor {
    /// The length of the sleep.
    pub length: Nanos,
    /// What half of the sleeps are late by at most.
    pub p50: Nanos,
    /// What 99 % are late by at most.
    pub p99: Nanos,
}

impl Anchor {
    /// From microseconds.
    pub const fn from_micros(length: u64, p50: u64, p99: u64) -> Self {
        Self {
            length: Nanos::from_micros(length),
            p50: Nanos::from_micros(p50),
            p99: Nanos::from_micros(p99),
        }
    }
}

/// What the steps of a wait cost the thread that waits: time and CPU time alike, but for sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// A status query.
    pub query: Nanos,
    /// Arming a word.
    pub arm: Nanos,
    /// A look at a word in memory.
    pub look: Nanos,
    /// Warming what the next submission needs, by `+warm`.
    pub warm: Nanos,
    /// CPU time of a sleep of up to 100 us, into the kernel and out of it. The time that takes is part of the oversleep.
    pub nap_cpu: Nanos,
    /// The same of a longer one, of which the caches are colder.
    pub sleep_cpu: Nanos,
}

/// How long a nap is at most, microseconds.
pub(super) const NAP_US_MAX: u64 = 100;

impl Costs {
    /// CPU time of a sleep of this length, which hosts take in two where it is long.
    pub fn sleep(&self, length: Nanos) -> Nanos {
        let us = length.as_micros();
        let once = if us <= NAP_US_MAX { self.nap_cpu } else { self.sleep_cpu };
        if us <= APPROACH_LEAST_US { once } else { once + once }
    }
}

/// A host as replays know it.
///
/// ```
/// use wakeline_benches::tune::{HostModel, Rng};
/// use wakeline_core::Nanos;
/// let (host, mut rng) = (HostModel::h200(), Rng::new(7));
/// let mut late: Vec<_> = (0..1_000).map(|_| host.oversleep(Nanos::from_millis(1), &mut rng)).collect();
/// late.sort_unstable();
/// assert!((10_000..12_000).contains(&late[500].as_nanos()), "{}", late[500]); // between those at 0.3 and 10 ms
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct HostModel {
    anchors: Vec<Anchor>,
    /// What looking costs.
    pub costs: Costs,
}

/// The 99 % quantile of a normal distribution, in standard deviations.
const Z99: f64 = 2.326_347_9;

impl HostModel {
    /// A host that is late as the anchors say: between two of them by interpolation, beyond the outer ones as these are. `None`
    /// without any, or with lengths that do not rise.
    pub fn new(anchors: Vec<Anchor>, costs: Costs) -> Option<Self> {
        let rises = anchors.windows(2).all(|pair| pair[0].length < pair[1].length);
        (!anchors.is_empty() && rises).then_some(Self { anchors, costs })
    }

    /// The host of an NVIDIA H200 with a timer slack of 1 ns: a 16-core virtual machine on Emerald Rapids, Linux 6.18.
    ///
    /// Oversleep there was 5 us at the median and 9 to 14 at 99 % after naps of 10 to 100 us. Longer sleeps are taken in two
    /// ([`approach`](wakeline_std::approach)): 10 to 13 and 53 to 70 us after 1.5, 5 and 10 ms. Naps of 10 us took 4.5 us of CPU each, sleeps of 300 us 8.
    pub fn h200() -> Self {
        Self {
            anchors: vec![
                Anchor::from_micros(10, 5, 9),
                Anchor::from_micros(100, 6, 14),
                Anchor::from_micros(300, 10, 53),
                Anchor::from_micros(10_000, 12, 60),
            ],
            costs: Self::H200_COSTS,
        }
    }

    /// The same host at the worst of what was seen.
    pub fn h200_worst() -> Self {
        Self {
            anchors: vec![
                Anchor::from_micros(10, 6, 14),
                Anchor::from_micros(100, 9, 48),
                Anchor::from_micros(300, 13, 84),
                Anchor::from_micros(10_000, 15, 138),
            ],
            costs: Self::H200_COSTS,
        }
    }

    const H200_COSTS: Costs = Costs {
        query: Nanos::from_nanos(300),
        arm: Nanos::from_nanos(1_200),
        look: Nanos::from_nanos(20),
        warm: Nanos::from_nanos(30_000),
        nap_cpu: Nanos::from_nanos(4_500),
        sleep_cpu: Nanos::from_nanos(8_000),
    };

    /// The median and the 99 % quantile of the oversleep after a sleep of this length, in nanoseconds.
    pub fn quantiles(&self, length: Nanos) -> (f64, f64) {
        let above = self.anchors.partition_point(|anchor| anchor.length < length);
        let (low, high) =
            (self.anchors[above.saturating_sub(1)], self.anchors[above.min(self.anchors.len() - 1)]);
        let ln = |length: Nanos| float(length.max(Nanos::from_nanos(1))).ln();
        let span = ln(high.length) - ln(low.length);
        let share = if span > 0.0 { (ln(length) - ln(low.length)) / span } else { 0.0 };
        let between =
            |low: Nanos, high: Nanos| (ln(low) + (ln(high) - ln(low)) * share.clamp(0.0, 1.0)).exp();
        (between(low.p50, high.p50), between(low.p99, high.p99))
    }

    /// How late one sleep of this length is.
    pub fn oversleep(&self, length: Nanos, rng: &mut Rng) -> Nanos {
        let [late] = self.oversleeps_at(length, [rng.normal()]);
        nanos(late)
    }

    /// How late sleeps are that stand so many standard deviations from the median, in nanoseconds.
    pub fn oversleeps_at<const N: usize>(&self, length: Nanos, deviations: [f64; N]) -> [f64; N] {
        let (p50, p99) = self.quantiles(length);
        let deviation = (p99 / p50).ln() / Z99;
        deviations.map(|deviations| p50 * (deviation * deviations).exp())
    }
}

/// In nanoseconds: exact for all that a trace can hold.
#[expect(clippy::cast_precision_loss, reason = "times of a trace are below a minute")]
pub(super) fn float(time: Nanos) -> f64 {
    time.as_nanos() as f64
}

/// A number of nanoseconds, rounded.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped, and the cast saturates"
)]
pub(super) fn nanos(ns: f64) -> Nanos {
    Nanos::from_nanos(ns.round().max(0.0) as u64)
}

/// Random numbers from a seed, the same everywhere: `SplitMix64`.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// From this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// Above 0, at most 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits")]
    pub fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Of the standard normal distribution, by Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (core::f64::consts::TAU * self.uniform()).cos()
    }
}

//! Arms that take turns, and what each did by round: from measured turns to the cells of a run's file.

use alloc::collections::BTreeMap;

use super::schema::{Better, Cell, Metric};
use crate::Paired;
use crate::{Interval, Tail};

/// How many points a latency's curve has at most.
const CURVE: usize = 64;

/// A quantity that is measured: its name in files, its unit, and which way it is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quantity {
    /// See [`Metric`] for those in use.
    pub name: &'static str,
    /// `ns`, `J`, `1/s`, or empty.
    pub unit: &'static str,
    /// Which way it is better.
    pub better: Better,
}

/// All quantities, in the order in which they are shown.
pub mod quantity {
    use super::{Better, Quantity};

    const fn less(name: &'static str, unit: &'static str) -> Quantity {
        Quantity { name, unit, better: Better::Less }
    }

    /// Mean latency of the waits of a round, from the true end of the work to the code behind the wait.
    pub const LATENCY: Quantity = less("latency", "ns");
    /// The median of the same.
    pub const LATENCY_P50: Quantity = less("latency_p50", "ns");
    /// CPU time of the waiting threads for an operation, less declared work.
    pub const CPU: Quantity = less("cpu", "ns");
    /// CPU time of the whole process for an operation; what plays a device is left out.
    pub const PROCESS_CPU: Quantity = less("process_cpu", "ns");
    /// Voluntary context switches of the waiting threads for an operation.
    pub const SWITCHES: Quantity = less("switches", "");
    /// Energy for an operation, of all that is known.
    pub const ENERGY: Quantity = less("energy", "J");
    /// Of the GPU alone.
    pub const ENERGY_GPU: Quantity = less("energy_gpu", "J");
    /// Of the processors alone.
    pub const ENERGY_CPU: Quantity = less("energy_cpu", "J");
    /// Operations or tokens in a second.
    pub const THROUGHPUT: Quantity = Quantity { name: "throughput", unit: "1/s", better: Better::More };
    /// From the arrival of a request to its last token, on average.
    pub const REQUEST: Quantity = less("request_latency", "ns");
    /// CPU time of the declared work of the host for an operation.
    pub const HOST_WORK: Quantity = less("host_work", "ns");
    /// The share of waits that slept past the end of the work.
    pub const LATE_WAKES: Quantity = less("late_wakes", "");

    /// All of them.
    pub const ALL: [Quantity; 12] = [
        LATENCY,
        LATENCY_P50,
        CPU,
        PROCESS_CPU,
        SWITCHES,
        ENERGY,
        ENERGY_GPU,
        ENERGY_CPU,
        THROUGHPUT,
        REQUEST,
        HOST_WORK,
        LATE_WAKES,
    ];
}

/// What an arm did in one round.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    values: BTreeMap<&'static str, f64>,
    late_ns: Vec<i64>,
}

impl Turn {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a quantity. What is not known is not set.
    pub fn set(&mut self, quantity: Quantity, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.values.insert(quantity.name, value);
        }
    }

    /// Says how late each wait was, which sets the latencies of the round too. A real device's clock is known to a microsecond or so: a wait
    /// may seem to be early by that, and counts as not late in the quantiles.
    pub fn late(&mut self, mut late_ns: Vec<i64>) {
        if late_ns.is_empty() {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a wait")]
        let real = |ns: i64| ns as f64;
        #[expect(clippy::cast_precision_loss, reason = "a number of waits")]
        let count = late_ns.len() as f64;
        self.set(quantity::LATENCY, Some(late_ns.iter().map(|ns| real(*ns)).sum::<f64>() / count));
        late_ns.sort_unstable();
        self.set(quantity::LATENCY_P50, late_ns.get((late_ns.len() - 1) / 2).map(|ns| real(*ns)));
        self.late_ns = late_ns;
    }
}

/// Arms that take turns.
#[derive(Debug)]
pub struct Rounds {
    /// Says whose turn it is; what turns cost is kept here.
    order: Paired,
    turns: Vec<Vec<BTreeMap<&'static str, f64>>>,
    tails: Vec<Tail>,
}

/// What a cell is called.
#[derive(Clone, Debug)]
pub struct Label {
    /// Of the suite.
    pub suite: &'static str,
    /// Of the case.
    pub case: String,
}

impl Label {
    /// What the orders of the arms are drawn from in a run of this seed: another number for each case, so that short ones do not all lack the same orders.
    pub fn seed(&self, seed: u64) -> u64 {
        let bytes = self.suite.bytes().chain([b'/']).chain(self.case.bytes());
        // FNV-1a, with the seed for its offset.
        bytes.fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    }
}

/// An arm, as cells tell of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArmLabel {
    /// Its name.
    pub arm: String,
    /// Whose way it is.
    pub family: String,
    /// The text of its plan.
    pub plan: Option<String>,
}

impl Rounds {
    /// No rounds yet, of `arms` arms, whose orders are drawn from this seed.
    pub fn new(arms: usize, seed: u64) -> Self {
        Self {
            order: Paired::seeded(arms, seed),
            turns: vec![Vec::new(); arms],
            tails: core::iter::repeat_with(Tail::new).take(arms).collect(),
        }
    }

    /// Has every arm take its turn, in the order of the round.
    ///
    /// # Errors
    ///
    /// What `turn` fails with. The round does not count then.
    pub fn round<E>(&mut self, mut turn: impl FnMut(usize) -> Result<Turn, E>) -> Result<(), E> {
        let mut round = vec![Turn::new(); self.turns.len()];
        self.order.round(|arm| {
            round[arm] = turn(arm)?;
            Ok(0)
        })?;
        for (arm, turn) in round.into_iter().enumerate() {
            for late in &turn.late_ns {
                self.tails[arm].record(u64::try_from(*late).unwrap_or(0));
            }
            self.turns[arm].push(turn.values);
        }
        Ok(())
    }

    /// How many rounds were run to their end.
    pub const fn rounds(&self) -> usize {
        self.order.rounds()
    }

    /// What a quantity of an arm was in each round; `None` where a round lacks it, or there are none.
    pub fn by_round(&self, arm: usize, quantity: Quantity) -> Option<Vec<f64>> {
        let values: Option<Vec<f64>> =
            self.turns[arm].iter().map(|turn| turn.get(quantity.name).copied()).collect();
        values.filter(|values| !values.is_empty())
    }

    /// A quantity of `arm` by what `base` had in the same round, as a geometric mean where none is zero; `None` where that was nothing in any of them, or less: how late a word is seen can lie below what
    /// is known of the end of its work.
    pub fn ratio(&self, arm: usize, base: usize, quantity: Quantity) -> Option<Interval> {
        let (values, bases) = (self.by_round(arm, quantity)?, self.by_round(base, quantity)?);
        if bases.iter().any(|base| *base <= 0.0) {
            return None;
        }
        let ratios: Vec<f64> = values.iter().zip(&bases).map(|(value, base)| value / base).collect();
        if ratios.iter().any(|ratio| *ratio <= 0.0) {
            return Interval::of(&ratios);
        }
        // By their logarithms: the mean of ratios by a base that is not steady lies above the ratio of what is behind them, by its variance, while the interval
        // gets narrower with each round. The wider side stands for both.
        let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let Interval { mean, half_width, n } = Interval::of(&logs)?;
        let middle = mean.exp();
        // Of few rounds it may be more than a number holds; and one that is not finite would be none in a file.
        let half_width = half_width.map(|half| (middle * half.exp_m1()).min(f64::MAX));
        Some(Interval { mean: middle, half_width, n })
    }

    /// What `arm` did, beside `base`.
    pub fn cell(&self, label: &Label, arms: &[ArmLabel], (arm, base): (usize, usize)) -> Cell {
        let metrics = quantity::ALL.iter().filter_map(|quantity| {
            let by_round = self.by_round(arm, *quantity)?;
            let metric = Metric {
                unit: quantity.unit.to_owned(),
                better: quantity.better,
                value: Interval::of(&by_round)?,
                ratio: self.ratio(arm, base, *quantity),
                by_round,
            };
            Some((quantity.name.to_owned(), metric))
        });
        let latency = self.tails[arm].quantiles();
        Cell {
            suite: label.suite.to_owned(),
            case: label.case.clone(),
            arm: arms[arm].arm.clone(),
            family: arms[arm].family.clone(),
            plan: arms[arm].plan.clone(),
            base: arms[base].arm.clone(),
            rounds: self.rounds(),
            metrics: metrics.collect(),
            latency: (latency.count > 0).then_some(latency),
            cdf: self.tails[arm].curve(CURVE),
            notes: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> [ArmLabel; 2] {
        ["spin", "flag"].map(|arm| ArmLabel {
            arm: arm.to_owned(),
            family: "raw".to_owned(),
            plan: (arm == "flag").then(|| "flag:park_us=50,backstop_us=1000".to_owned()),
        })
    }

    fn cell(rounds: &Rounds, arm: usize) -> Cell {
        rounds.cell(&Label { suite: "wake", case: "200 us".to_owned() }, &labels(), (arm, 0))
    }

    /// Twice as much in one round and half as much in another is the same: neither arm is above the other, whichever is the base.
    #[test]
    fn a_ratio_is_that_of_the_logarithms() {
        let mut rounds = Rounds::new(2, 0);
        for round in 0..20 {
            let cost = |arm| if (arm + round) % 2 == 0 { 100.0 } else { 200.0 };
            let turn = |arm| {
                let mut turn = Turn::new();
                turn.set(quantity::CPU, Some(cost(arm)));
                Ok::<_, ()>(turn)
            };
            rounds.round(turn).unwrap();
        }
        for (arm, base) in [(0, 1), (1, 0)] {
            let ratio = rounds.ratio(arm, base, quantity::CPU).unwrap();
            assert!((ratio.mean - 1.0).abs() < 1e-9 && !ratio.excludes(1.0), "{ratio:?}");
        }
    }

    /// Student's t of two rounds is 64, and what the logarithms differ by is multiplied by that.
    #[test]
    fn a_ratio_of_two_rounds_that_differ_has_an_interval_that_a_file_keeps() {
        let mut rounds = Rounds::new(2, 0);
        for cost in [1.0, 1e12] {
            let turn = |arm| {
                let mut turn = Turn::new();
                turn.set(quantity::CPU, Some(if arm == 0 { 1.0 } else { cost }));
                Ok::<_, ()>(turn)
            };
            rounds.round(turn).unwrap();
        }
        let ratio = rounds.ratio(1, 0, quantity::CPU).unwrap();
        let kept: Interval = serde_json::from_str(&serde_json::to_string(&ratio).unwrap()).unwrap();
        assert_eq!((ratio.half_width, kept.half_width), (Some(f64::MAX), Some(f64::MAX)));
    }

    #[test]
    fn a_cell_has_what_was_measured_in_every_round_and_its_ratios_by_round() {
        let mut rounds = Rounds::new(2, 0);
        for drift in [1.0, 2.0, 4.0] {
            rounds
                .round(|arm| {
                    let mut turn = Turn::new();
                    turn.set(quantity::CPU, Some(if arm == 0 { 100.0 } else { 5.0 } * drift));
                    turn.set(quantity::ENERGY, (drift < 3.0).then_some(1.0));
                    turn.late(vec![30, -2, 10, 20]);
                    Ok::<_, ()>(turn)
                })
                .unwrap();
        }
        let cell = cell(&rounds, 1);
        assert_eq!((cell.rounds, cell.base.as_str(), cell.arm.as_str()), (3, "spin", "flag"));
        let cpu = &cell.metrics["cpu"];
        assert_eq!(cpu.by_round, [5.0, 10.0, 20.0]);
        assert!((cpu.ratio.unwrap().mean - 0.05).abs() < 1e-12 && cpu.ratio.unwrap().excludes(1.0));
        assert!((cell.metrics["latency"].value.mean - 14.5).abs() < 1e-9);
        assert!((cell.metrics["latency_p50"].value.mean - 10.0).abs() < 1e-9);
        let latency = cell.latency.unwrap();
        assert_eq!((latency.count, latency.p50_ns, latency.max_ns), (12, 10, 30));
        assert_eq!(cell.cdf.last(), Some(&(30, 1.0)));
        // Missing in a round is missing.
        assert!(!cell.metrics.contains_key("energy") && !cell.metrics.contains_key("throughput"));
    }

    #[test]
    fn what_is_no_number_and_a_base_of_nothing_tell_no_ratio() {
        let mut rounds = Rounds::new(2, 0);
        rounds
            .round(|arm| {
                let mut turn = Turn::new();
                turn.set(quantity::CPU, Some(f64::NAN));
                turn.set(quantity::SWITCHES, Some(if arm == 0 { 0.0 } else { 3.0 }));
                turn.late(Vec::new());
                Ok::<_, ()>(turn)
            })
            .unwrap();
        let cell = cell(&rounds, 1);
        assert_eq!(cell.metrics.keys().collect::<Vec<_>>(), ["switches"]);
        assert_eq!((cell.metrics["switches"].ratio, cell.latency, cell.cdf.len()), (None, None, 0));
    }

    #[test]
    fn a_round_that_fails_does_not_count() {
        let mut rounds = Rounds::new(2, 0);
        let failed = rounds.round(|arm| if arm == 1 { Err("broken") } else { Ok(Turn::new()) });
        assert_eq!((failed, rounds.rounds()), (Err("broken"), 0));
        assert_eq!(rounds.by_round(0, quantity::CPU), None);
    }
}

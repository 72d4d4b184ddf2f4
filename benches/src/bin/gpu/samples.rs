//! What an arm did, and what that is beside the arm that it is compared with.

use wakeline_benches::{Interval, Paired, Signed, Usage};

/// What one wait came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// How long after the end of its work it was known.
    pub(crate) late_ns: i64,
    pub(crate) cpu_ns: u64,
}

/// What arms did that took turns.
pub(crate) struct Samples {
    late_ns: Vec<Vec<i64>>,
    cpu_ns: Vec<u64>,
    usage: Vec<Usage>,
    /// The median latency of each round, and the CPU time.
    late: Paired,
    cpu: Paired,
}

/// An arm beside its base.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside {
    pub(crate) waits: u64,
    pub(crate) rounds: usize,
    pub(crate) late: Signed,
    /// Each quantile over the base's.
    pub(crate) added: Signed,
    /// The medians of rounds over the base's of the same round.
    pub(crate) added_mean_ns: Option<Interval>,
    pub(crate) late_ratio: Option<Interval>,
    pub(crate) cpu_per_wait_ns: u64,
    /// The CPU time of each round by the base's of the same round.
    pub(crate) cpu_ratio: Option<Interval>,
    pub(crate) usage: Usage,
}

impl Samples {
    pub(crate) fn new(arms: usize) -> Self {
        Self {
            late_ns: vec![Vec::new(); arms],
            cpu_ns: vec![0; arms],
            usage: vec![Usage::default(); arms],
            late: Paired::new(arms),
            cpu: Paired::new(arms),
        }
    }

    /// Runs each arm once, in the order of the round: some waits of it.
    pub(crate) fn round<E>(&mut self, mut run: impl FnMut(usize) -> Result<Vec<Sample>, E>) -> Result<(), E> {
        let mut spent = vec![0; self.cpu_ns.len()];
        let (late_ns, cpu_ns, usage) = (&mut self.late_ns, &mut self.cpu_ns, &mut self.usage);
        self.late.round(|arm| {
            let before = Usage::now();
            let samples = run(arm)?;
            usage[arm] += Usage::now().since(before);
            spent[arm] = samples.iter().map(|sample| sample.cpu_ns).sum();
            cpu_ns[arm] += spent[arm];
            let mut round: Vec<_> = samples.iter().map(|sample| sample.late_ns).collect();
            late_ns[arm].extend(&round);
            Ok(Signed::of(&mut round).p50_ns.max(0).unsigned_abs())
        })?;
        // The order does not matter for what is known already.
        self.cpu.round(|arm| Ok(spent[arm]))
    }

    /// What `arm` did, beside `base`.
    pub(crate) fn beside(&self, arm: usize, base: usize) -> Beside {
        let late = |arm: usize| Signed::of(&mut self.late_ns[arm].clone());
        let differences: Vec<_> = self
            .late
            .costs(arm)
            .zip(self.late.costs(base))
            .map(|(arm, base)| difference(arm, base))
            .collect();
        let waits = self.late_ns[arm].len() as u64;
        Beside {
            waits,
            rounds: self.late.rounds(),
            late: late(arm),
            added: late(arm).over(late(base)),
            added_mean_ns: Interval::of(&differences),
            late_ratio: self.late.ratio(arm, base),
            cpu_per_wait_ns: self.cpu_ns[arm].checked_div(waits).unwrap_or(0),
            cpu_ratio: self.cpu.ratio(arm, base),
            usage: self.usage[arm],
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds of one wait")]
fn difference(arm: u64, base: u64) -> f64 {
    arm as f64 - base as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_is_compared_with_its_base_round_by_round() {
        let mut samples = Samples::new(2);
        for drift in [0, 1_000] {
            samples
                .round(|arm| {
                    let arm = u32::try_from(arm).unwrap();
                    let sample = |late_ns| Sample { late_ns, cpu_ns: 100 / (1 + 3 * u64::from(arm)) };
                    Ok::<_, ()>((0..3).map(|n| sample(drift + 10 * n + i64::from(arm) * 5)).collect())
                })
                .unwrap();
        }
        let beside = samples.beside(1, 0);
        assert_eq!((beside.waits, beside.rounds, beside.cpu_per_wait_ns), (6, 2, 25));
        assert_eq!((beside.late.min_ns, beside.late.max_ns, beside.added.p50_ns), (5, 1_025, 5));
        let mean = beside.added_mean_ns.unwrap();
        assert!((mean.mean - 5.0).abs() < 1e-9 && mean.half_width.unwrap() < 1e-9, "{mean:?}");
        assert!((beside.cpu_ratio.unwrap().mean - 0.25).abs() < 1e-9);
    }

    #[test]
    fn a_round_that_fails_does_not_count() {
        let mut samples = Samples::new(1);
        assert_eq!(samples.round(|_| Err("broken")), Err("broken"));
        assert_eq!(samples.beside(0, 0).rounds, 0);
    }
}

//! Scales: from values to places in a picture, and the values that an axis names.

/// The steps of a decade that an axis may begin, end or be labelled at.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

/// The distances that ticks of a linear axis may have, in a decade.
const DISTANCES: [f64; 4] = [1.0, 2.0, 2.5, 5.0];

/// How wide a character of a label is taken to be, in units of the picture: a digit of a wide font.
const CHAR_PX: f64 = 7.0;

/// The least space between two labels.
const GAP_PX: f64 = 8.0;

/// How far from one, and from zero, an axis reaches at most: so that it has a decade of ticks at most for each of these, and no sum of its ends overflows.
/// What lies beyond stands at its end.
const HIGHEST: f64 = 1e30;
const LOWEST: f64 = 1e-30;

/// From values to places.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Scale {
    kind: Kind,
    low: f64,
    high: f64,
    /// Where `low` and `high` are.
    px: (f64, f64),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    /// With the distance of its ticks.
    Linear {
        step: f64,
    },
    Log,
}

impl Scale {
    /// Logarithmic, over all of these values that are above zero, from one step to another; `None` without any.
    pub(super) fn log(values: impl IntoIterator<Item = f64>, px: (f64, f64)) -> Option<Self> {
        let (low, high) = ends(values.into_iter().filter(|value| *value > 0.0))?;
        let [low, high] = [low, high].map(|end| end.clamp(LOWEST, HIGHEST));
        let (mut low, mut high) = (step_below(low), step_above(high));
        // A single value stands in the middle.
        if high / low < 1.5 {
            (low, high) = (step_below(low * 0.9), step_above(high * 1.1));
        }
        Some(Self { kind: Kind::Log, low, high, px })
    }

    /// Linear from `low` to `high`, a little around them where they are the same, with about `ticks` ticks between.
    pub(super) fn linear((low, high): (f64, f64), px: (f64, f64), ticks: f64) -> Self {
        let [low, high] = [low, high].map(|end| end.clamp(-HIGHEST, HIGHEST));
        let least = 1e-9 * low.abs().max(1e-9);
        let (low, high) = if high - low < least { (low - least, low + least) } else { (low, high) };
        Self { kind: Kind::Linear { step: distance_above((high - low) / ticks.max(1.0)) }, low, high, px }
    }

    /// Where `value` is; one that is off the scale is at its end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = match self.kind {
            Kind::Linear { .. } => (value - self.low) / (self.high - self.low),
            Kind::Log if value > 0.0 => (value / self.low).ln() / (self.high / self.low).ln(),
            Kind::Log => 0.0,
        };
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        self.px.0 + share * (self.px.1 - self.px.0)
    }

    /// Whether `value` is on the scale, not only at its end.
    pub(super) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// The values to name, rising.
    pub(super) fn ticks(&self) -> Vec<f64> {
        match self.kind {
            Kind::Linear { step } => {
                let first = (self.low / step - 1e-6).ceil();
                let last = (self.high / step + 1e-6).floor();
                let next = |index: &f64| (*index < last).then_some(index + 1.0);
                // Adding nothing to it turns a negative zero into zero.
                std::iter::successors(Some(first), next).map(|index| index * step + 0.0).collect()
            }
            Kind::Log => {
                let all = steps_between(self.low, self.high);
                let decades: Vec<f64> = all.iter().copied().filter(|tick| is_decade(*tick)).collect();
                if decades.len() >= 3 { decades } else { all }
            }
        }
    }

    /// The ticks with their places and labels: as many as fit side by side where they are centred at their places.
    pub(super) fn labels(&self, label: impl Fn(f64) -> String) -> Vec<(f64, String)> {
        let labelled = |tick: &f64| (self.at(*tick), label(*tick));
        let fits = |labels: &[(f64, String)]| labels.windows(2).all(|pair| apart(&pair[0], &pair[1]));
        let ticks = self.ticks();
        let all: Vec<(f64, String)> = ticks.iter().map(labelled).collect();
        if fits(&all) {
            return all;
        }
        // Where not all do, powers of ten say more than others.
        let decades = ticks.iter().filter(|tick| self.kind == Kind::Log && is_decade(**tick));
        let round: Vec<(f64, String)> = decades.map(labelled).collect();
        let from = if round.is_empty() { all } else { round };
        let strides = (1..from.len()).map(|stride| from.iter().step_by(stride).cloned().collect::<Vec<_>>());
        strides.into_iter().find(|some| fits(some)).unwrap_or_else(|| from.into_iter().take(1).collect())
    }
}

/// How wide a text is taken to be.
pub(super) fn width_px(text: &str) -> f64 {
    text.chars().map(|_| CHAR_PX).sum()
}

fn apart(left: &(f64, String), right: &(f64, String)) -> bool {
    (right.0 - left.0).abs() >= f64::midpoint(width_px(&left.1), width_px(&right.1)) + GAP_PX
}

/// The lowest and the highest of those that are numbers.
pub(super) fn ends(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite.fold(None, |ends, value| {
        let (low, high) = ends.unwrap_or((value, value));
        Some((value.min(low), value.max(high)))
    })
}

/// The power of ten at or below.
fn decade(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    // The logarithm of a power of ten may be a hair off.
    if decade * 10.0 <= value * (1.0 + 1e-12) { decade * 10.0 } else { decade }
}

fn is_decade(value: f64) -> bool {
    (value / decade(value) - 1.0).abs() < 1e-9
}

fn step_below(value: f64) -> f64 {
    let decade = decade(value);
    let step = STEPS.into_iter().rev().find(|step| decade * step <= value * (1.0 + 1e-9));
    decade * step.unwrap_or(1.0)
}

fn step_above(value: f64) -> f64 {
    let decade = decade(value);
    let step = STEPS.into_iter().chain([10.0]).find(|step| decade * step >= value * (1.0 - 1e-9));
    decade * step.unwrap_or(10.0)
}

fn distance_above(value: f64) -> f64 {
    let decade = decade(value);
    let step = DISTANCES.into_iter().chain([10.0]).find(|step| decade * step >= value * (1.0 - 1e-9));
    decade * step.unwrap_or(10.0)
}

/// All steps from `low` to `high`, which are steps.
fn steps_between(low: f64, high: f64) -> Vec<f64> {
    let mut steps = vec![low];
    while let Some(last) = steps.last().copied().filter(|last| *last < high * (1.0 - 1e-9)) {
        steps.push(step_above(last * 1.01));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(found: &[f64], wanted: &[f64]) -> bool {
        found.len() == wanted.len()
            && found.iter().zip(wanted).all(|(a, b)| (a - b).abs() <= 1e-9 * b.abs().max(1e-9))
    }

    #[test]
    fn a_logarithmic_scale_goes_from_step_to_step() {
        let scale = Scale::log([230.0, 0.0, 41_000.0, f64::NAN], (10.0, 110.0)).unwrap();
        assert!(
            near(&scale.ticks(), &[1_000.0, 10_000.0]) || scale.ticks().len() >= 3,
            "{:?}",
            scale.ticks()
        );
        assert!((scale.at(200.0) - 10.0).abs() < 1e-9 && (scale.at(50_000.0) - 110.0).abs() < 1e-9);
        assert!((scale.at(200.0 * 250f64.sqrt()) - 60.0).abs() < 1e-6);
        assert!(near(&[scale.at(0.0), scale.at(1e9)], &[10.0, 110.0]), "what is off it stands at its ends");
        assert!(scale.holds(230.0) && !scale.holds(1e9));
        assert_eq!(Scale::log([0.0, -1.0], (0.0, 1.0)), None);
    }

    #[test]
    fn ticks_are_decades_or_their_steps() {
        let ticks = |values: [f64; 2]| Scale::log(values, (0.0, 1.0)).unwrap().ticks();
        assert!(near(&ticks([1.0, 1_000.0]), &[1.0, 10.0, 100.0, 1_000.0]));
        assert!(near(&ticks([3.0, 30.0]), &[2.0, 5.0, 10.0, 20.0, 50.0]));
        assert!(near(&ticks([1_000.0, 1_000.0]), &[500.0, 1_000.0, 2_000.0]), "{:?}", ticks([1e3, 1e3]));
        let linear = |ends| Scale::linear(ends, (0.0, 1.0), 4.0).ticks();
        assert!(near(&linear((0.0, 1.0)), &[0.0, 0.25, 0.5, 0.75, 1.0]));
        assert!(near(&linear((0.93, 1.08)), &[0.95, 1.0, 1.05]), "{:?}", linear((0.93, 1.08)));
        assert!(near(&linear((-0.3, 0.9)), &[0.0, 0.5]), "{:?}", linear((-0.3, 0.9)));
        assert!(!linear((5.0, 5.0)).is_empty() && !linear((0.0, 0.0)).is_empty());
        let exact = Scale::linear((950.0, 1_004.0), (0.0, 54.0), 5.0);
        assert!(near(&exact.ticks(), &[960.0, 980.0, 1_000.0]), "{:?}", exact.ticks());
        assert!((exact.at(960.0) - 10.0).abs() < 1e-9);
    }

    proptest! {
        /// Subnormal numbers, the largest ones, and both at once: no axis has more ticks than a person reads, and none takes its time.
        #[test]
        fn no_value_makes_an_axis_endless(
            low in prop_oneof![prop::num::f64::ANY, Just(5e-324), Just(0.0)],
            high in prop_oneof![prop::num::f64::ANY, Just(f64::MAX), Just(-5e-324)],
        ) {
            let linear = ends([low, high]).map(|ends| Scale::linear(ends, (0.0, 100.0), 5.0));
            for scale in Scale::log([low, high], (0.0, 100.0)).into_iter().chain(linear) {
                let ticks = scale.ticks();
                prop_assert!(ticks.len() <= 70 && ticks.iter().all(|tick| tick.is_finite()), "{ticks:?}");
                prop_assert!([low, high].iter().all(|value| (0.0..=100.0).contains(&scale.at(*value))));
                prop_assert!(!scale.labels(|tick| format!("{tick:e}")).is_empty(), "{scale:?}");
            }
        }

        #[test]
        fn every_value_is_on_its_scale_and_labels_are_apart(
            values in prop::collection::vec(1e-9f64..1e15, 1..20), width in 60f64..400.0
        ) {
            let ends = ends(values.iter().copied()).unwrap();
            for scale in [
                Scale::log(values.clone(), (50.0, 50.0 + width)).unwrap(),
                Scale::linear(ends, (50.0, 50.0 + width), 5.0),
            ] {
                for value in &values {
                    prop_assert!(scale.holds(*value), "{value} {scale:?}");
                    prop_assert!((50.0..=50.0 + width).contains(&scale.at(*value)));
                }
                let ticks = scale.ticks();
                prop_assert!(ticks.len() <= 40 && ticks.windows(2).all(|pair| pair[0] < pair[1]), "{ticks:?}");
                let labels = scale.labels(|tick| format!("{tick:.3}"));
                prop_assert!(!labels.is_empty());
                prop_assert!(labels.windows(2).all(|pair| apart(&pair[0], &pair[1])), "{labels:?}");
            }
        }
    }
}

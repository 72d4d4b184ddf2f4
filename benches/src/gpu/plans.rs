//! The plans that are checked, and points that have learned.

use wakeline_core::{End, Nanos, Outcome, Report, Residual, WaitPlan};
use wakeline_std::Point;

/// Each way of waiting once, in the order in which they are shown.
pub const PLANS: [&str; 7] = [
    "block",
    "poll",
    "poll+predict:margin_us=100,min_sleep_us=50,max_sleep_us=5000,window=4",
    "flag:park_us=100,backstop_us=2000",
    "flag:park_us=100,backstop_us=2000+predict:margin_us=100,min_sleep_us=50,max_sleep_us=5000,window=4",
    TRUSTED,
    "flag:park_us=100,backstop_us=2000+predict:margin_us=100,min_sleep_us=50,max_sleep_us=5000,window=4+trust",
];

/// The one of them that trusts the word.
pub const TRUSTED: &str = "flag:park_us=100,backstop_us=2000+trust";

/// How often those of them that watch a word ask the driver.
pub const BACKSTOP_US: u64 = 2_000;

/// A point that has seen work of that length often enough to predict it.
pub fn learned(plan: &WaitPlan, length: Nanos) -> Point {
    let point = Point::new("bench");
    let report = Report {
        end: End::Done(Outcome::Trusted),
        plan: *plan,
        authority: plan.authority(),
        elapsed: length,
        residual: Some(Residual::Exact(length)),
        overshoot: Nanos::ZERO,
        queries: 0,
        parks: 1,
        sleeps: 1,
        warmed: false,
    };
    for _ in 0..plan.predict().map_or(0, |predict| predict.window()) {
        point.observe(&Ok(report));
    }
    point
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_is_one_and_a_learned_point_predicts_where_it_can() {
        for text in PLANS {
            let plan: WaitPlan = text.parse().unwrap();
            assert_eq!(plan.to_string(), text);
            let length = Nanos::from_micros(700);
            let predicted = learned(&plan, length).predict(&plan);
            assert_eq!(predicted, text.contains("predict").then_some(length), "{text}");
            let asks = format!("backstop_us={BACKSTOP_US}");
            assert_eq!(text.contains("backstop"), text.contains(&asks), "{text}");
        }
    }
}

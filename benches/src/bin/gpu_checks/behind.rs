//! Check `behind`: work that is queued behind a point does not delay it, under any plan.

use std::io::Write;

use serde::Serialize;
use wakeline_benches::gpu::{Failure, Gpu, Host, PLANS, learned};
use wakeline_core::{Clock, Error, Nanos, WaitPlan};
use wakeline_cuda::kernels::TimedSteps;
use wakeline_std::StdClock;

use crate::args::Check;
use crate::output::{Output, Verdict};
use crate::own::{LOST, Own};

/// How long the work before the point takes.
const BEFORE: Nanos = Nanos::from_millis(5);

/// How late a wait may be: `block` naps for a part of the time that it has waited, the others are sooner.
const LATE_MAX: Nanos = Nanos::from_millis(1);

/// What was seen.
#[derive(Clone, Copy, Debug, Serialize)]
struct Seen {
    behind_ms: u64,
    /// From the end of the work before the point to the end of the wait.
    late_us: u64,
    late_us_max: u64,
}

pub(crate) fn behind(
    output: &mut Output<impl Write>,
    gpu: &Gpu,
    behind: Nanos,
    slack: Nanos,
) -> Result<(), Failure> {
    let own = Own::new(gpu)?;
    let clock = StdClock::new();
    let steps = TimedSteps::new(&own.context.stream()?, clock)?;
    for text in PLANS {
        let late = late(&own, &steps, text, behind)?;
        // However much slack there is: who waits for what is behind is late by all of it.
        let most = (LATE_MAX + slack).min(Nanos::from_nanos(behind.as_nanos() / 2));
        let (late_us, late_us_max) = (late.as_micros(), most.as_micros());
        output.tell(Verdict {
            check: Check::Behind,
            name: text.to_owned(),
            count: 1,
            broken: (late > most)
                .then(|| format!("it ended {late} after its work, which is not within {most}")),
            detail: Seen { behind_ms: behind.as_micros() / 1_000, late_us, late_us_max },
        })?;
    }
    Ok(())
}

/// How long after the end of its work a wait ended, with so much behind it.
fn late(own: &Own, steps: &TimedSteps<StdClock>, text: &str, behind: Nanos) -> Result<Nanos, Error> {
    let plan: WaitPlan = text.parse()?;
    let launched = steps.launch(BEFORE, false)?;
    let port = steps.stream().armed_port()?;
    own.kernels.occupy(steps.stream(), behind)?;
    Host::Inline.wait(&plan, port, &learned(&plan, BEFORE), LOST)?;
    let known = StdClock::new().now();
    // Waits for what is behind.
    Ok(known.since(steps.ended(launched)?))
}

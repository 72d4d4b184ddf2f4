//! A task that is woken by an [`Alarm`], which knows the end: a bound for all early wakes.

use wakeline::{Clock, CompletionPort, Error, Instant, Nanos, Wake};
use wakeline_benches::Alarm;

use crate::arms::on_workers;
use crate::stage::Stage;

/// Waits so often for a task that is notified `LEAD_US` before the end, and watches from then on.
pub(crate) fn bare<const LEAD_US: u64, const IN_TWO: bool>(
    stage: &Stage,
    length: Nanos,
    waits: u32,
) -> Result<Vec<Nanos>, Error> {
    let (launcher, clock) = (stage.launcher(), stage.clock());
    let alarm = Alarm::spawn(clock, IN_TWO)?;
    on_workers(stage, async move {
        let mut samples = Vec::new();
        for _ in 0..waits {
            let point = launcher.launch(length);
            alarm.until(Instant::from_nanos(point.due().as_nanos().saturating_sub(LEAD_US * 1_000))).await;
            while point.poll() != Wake::Reached {
                core::hint::spin_loop();
            }
            samples.push(clock.now().since(point.stored_at()));
        }
        Ok(samples)
    })
}

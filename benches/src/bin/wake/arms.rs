//! The ways of waking a task, one function each: it does some waits for work of one length, and says how late each was.

use std::sync::Arc;

use tokio::sync::Notify;
use wakeline::{Clock, Error, Nanos, Wait, WaitPlan, drive};

use crate::stage::Stage;

/// One way.
pub(crate) struct Arm {
    pub(crate) name: &'static str,
    /// Waits so often for work of that length, a little more at times, on the calling thread or on the runtime of the stage: from each store to the
    /// moment when the waiting code runs.
    pub(crate) run: fn(&Stage, Nanos, u32) -> Result<Vec<Nanos>, Error>,
}

/// All of them, the one that the others are compared with first.
pub(crate) const ARMS: &[Arm] = &[
    Arm { name: "notify", run: notify },
    Arm { name: "local", run: local },
    Arm { name: "local-unpredicted", run: local_unpredicted },
];

/// The device's thread wakes a task of a `current_thread` runtime by tokio's own means.
fn notify(stage: &Stage, length: Nanos, waits: u32) -> Result<Vec<Nanos>, Error> {
    let notify = Arc::new(Notify::new());
    let rung = Arc::clone(&notify);
    let _hook = stage.hook(Arc::new(move || rung.notify_one()));
    stage.runtime().block_on(async {
        let mut samples = Vec::new();
        for _ in 0..waits {
            let point = stage.launch(length);
            notify.notified().await;
            samples.push(stage.clock().now().since(point.stored_at()));
        }
        Ok(samples)
    })
}

/// The runtime's thread watches the word itself, after a sleep by what it knows of the work's length.
fn local(stage: &Stage, length: Nanos, waits: u32) -> Result<Vec<Nanos>, Error> {
    let text = "flag:park_us=1000,backstop_us=100000+predict:margin_us=20,min_sleep_us=50,max_sleep_us=20000,window=8+trust";
    on_local(stage, length, waits, &text.parse()?)
}

/// The same without a sleep: it spins for its budget, then naps.
fn local_unpredicted(stage: &Stage, length: Nanos, waits: u32) -> Result<Vec<Nanos>, Error> {
    on_local(stage, length, waits, &"flag:park_us=1000,backstop_us=100000+trust".parse()?)
}

fn on_local(stage: &Stage, length: Nanos, waits: u32, plan: &WaitPlan) -> Result<Vec<Nanos>, Error> {
    stage.runtime().block_on(async {
        let mut samples = Vec::new();
        for _ in 0..waits {
            let mut point = stage.launch(length);
            let wait = Wait::new(plan).predicted(plan.predict().is_some().then_some(length));
            drive(wait, &mut point, stage.local(), None).await?;
            samples.push(stage.clock().now().since(point.stored_at()));
        }
        Ok(samples)
    })
}

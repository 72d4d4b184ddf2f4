//! The ways of waking a task, one function each: it does some waits for work of one length, and says how late each was.

use std::sync::Arc;

use tokio::sync::Notify;
use wakeline::{
    Clock, CompletionPort, End, Error, ErrorCode, Nanos, Outcome, Report, Residual, Wait, WaitPlan, Wake,
    drive,
};
use wakeline_std::{Point as Learned, WatcherHandle, block_on};

use crate::bare::bare;
use crate::stage::{Launcher, Place, Stage};

/// One way.
pub(crate) struct Arm {
    pub(crate) name: &'static str,
    /// The arm that it is compared with.
    pub(crate) base: &'static str,
    /// Waits so often for work of that length, a little more at times, on the calling thread or on the runtime of the stage: from each store to the
    /// moment when the waiting code runs.
    pub(crate) run: fn(&Stage, Nanos, u32) -> Result<Vec<Nanos>, Error>,
}

/// All of them. Each is compared with its base.
pub(crate) const ARMS: &[Arm] = &[
    Arm { name: "spin", base: "spin", run: spin },
    Arm { name: "futex", base: "futex", run: futex },
    Arm { name: "watcher-thread", base: "futex", run: watcher_thread },
    Arm { name: "notify", base: "notify", run: notify },
    Arm { name: "local", base: "notify", run: local },
    Arm { name: "local-unpredicted", base: "notify", run: local_unpredicted },
    Arm { name: "watcher-current", base: "notify", run: watcher_current },
    Arm { name: "notify-workers", base: "notify-workers", run: notify_workers },
    Arm { name: "watcher-workers", base: "notify-workers", run: watcher_workers },
    Arm { name: "early-thread", base: "spin", run: early_thread },
    Arm { name: "early-workers", base: "spin", run: early_workers },
    Arm { name: "early-stirred", base: "spin", run: early_stirred },
    Arm { name: "early-strict", base: "spin", run: early_strict },
    // What the early ones are bounded by: see `bare.rs`.
    Arm { name: "bare-40", base: "spin", run: bare::<40, true> },
    Arm { name: "bare-80", base: "spin", run: bare::<80, true> },
    Arm { name: "bare-120", base: "spin", run: bare::<120, true> },
    Arm { name: "bare-200", base: "spin", run: bare::<200, true> },
    Arm { name: "bare-300", base: "spin", run: bare::<300, true> },
    Arm { name: "bare-80-in-one", base: "spin", run: bare::<80, false> },
    Arm { name: "bare-120-in-one", base: "spin", run: bare::<120, false> },
];

/// This thread looks at the word all the time.
#[expect(clippy::unnecessary_wraps, reason = "all arms of the table are of one type")]
fn spin(stage: &Stage, length: Nanos, waits: u32) -> Result<Vec<Nanos>, Error> {
    let mut samples = Vec::new();
    for _ in 0..waits {
        let point = stage.launch(length);
        while point.poll() != Wake::Reached {
            core::hint::spin_loop();
        }
        samples.push(stage.clock().now().since(point.stored_at()));
    }
    Ok(samples)
}

/// The device's thread unparks this one: a bare futex.
#[expect(clippy::unnecessary_wraps, reason = "all arms of the table are of one type")]
fn futex(stage: &Stage, length: Nanos, waits: u32) -> Result<Vec<Nanos>, Error> {
    let thread = std::thread::current();
    let _hook = stage.hook(Arc::new(move || thread.unpark()));
    let mut samples = Vec::new();
    for _ in 0..waits {
        let point = stage.launch(length);
        while point.poll() != Wake::Reached {
            std::thread::park();
        }
        samples.push(stage.clock().now().since(point.stored_at()));
    }
    Ok(samples)
}

/// How long before the predicted end the watcher's thread watches: it covers what its sleeps end late. A task that is woken early comes
/// at that time or so, and has to be there before the end only.
const MARGIN_US: u32 = 100;
const EARLY_MARGIN_US: u32 = 25;

/// Whether a task is woken early.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Early {
    No,
    Plain,
    Stirred,
}

/// Waits so often by the watcher, on whatever runs this future.
async fn by_watcher(
    (handle, launcher): (WatcherHandle, Launcher),
    (length, waits): (Nanos, u32),
    (early, suffix): (Early, &str),
) -> Result<Vec<Nanos>, Error> {
    let margin = match early {
        Early::No => MARGIN_US,
        Early::Plain | Early::Stirred => EARLY_MARGIN_US,
    };
    let predict = format!("margin_us={margin},min_sleep_us=50,max_sleep_us=20000,window=8");
    let plan: WaitPlan = format!("flag:park_us=1000,backstop_us=100000+predict:{predict}{suffix}").parse()?;
    let mut samples = Vec::new();
    let learned = Learned::new("wake");
    // Known from the start: what is learned of lengths is measured elsewhere.
    for _ in 0..8 {
        learned.observe(&Ok(report(&plan, length)));
    }
    for _ in 0..waits {
        let point = launcher.launch(length);
        let seen = point.clone();
        let wait = handle.wait(point, &plan, &learned);
        wait.early_wake(early != Early::No).stir(early == Early::Stirred).await?;
        samples.push(handle.now().since(seen.stored_at()));
    }
    Ok(samples)
}

/// A wait that took exactly so long.
fn report(plan: &WaitPlan, length: Nanos) -> Report {
    Report {
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
    }
}

fn watched(
    stage: &Stage,
    place: Place,
    work: (Nanos, u32),
    how: (Early, &'static str),
) -> Result<Vec<Nanos>, Error> {
    let what = (stage.handle(place).clone(), stage.launcher());
    match place {
        Place::Thread => block_on(by_watcher(what, work, how)),
        Place::CurrentThread => stage.runtime().block_on(by_watcher(what, work, how)),
        Place::Workers => on_workers(stage, by_watcher(what, work, how)),
    }
}

/// Runs a task on the workers; this thread waits for its end.
pub(crate) fn on_workers(
    stage: &Stage,
    task: impl Future<Output = Result<Vec<Nanos>, Error>> + Send + 'static,
) -> Result<Vec<Nanos>, Error> {
    let task = stage.workers().spawn(task);
    stage.workers().block_on(task).unwrap_or_else(|error| {
        Err(Error::new(ErrorCode::Backend, [&"wake", &"running a task", &error]).with_source(error))
    })
}

fn watcher_thread(stage: &Stage, length: Nanos, waits: u32) -> Result<Vec<Nanos>, Error> {
    watched(stage, Place::Thread, (length, waits), (Early::No, "+trust"))
}

fn watcher_current(stage: &Stage, length: Nanos, waits: u32) -> Result<Vec<Nanos>, Error> {
    watched(stage, Place::CurrentThread, (length, waits), (Early::No, "+trust"))
}

fn watcher_workers(stage: &Stage, length: Nanos, waits: u32) -> Result<Vec<Nanos>, Error> {
    watched(stage, Place::Workers, (length, waits), (Early::No, "+trust"))
}

/// The task is woken before its word lands, and watches it itself.
fn early_workers(stage: &Stage, length: Nanos, waits: u32) -> Result<Vec<Nanos>, Error> {
    watched(stage, Place::Workers, (length, waits), (Early::Plain, "+trust"))
}

/// The same, stirred before.
fn early_stirred(stage: &Stage, length: Nanos, waits: u32) -> Result<Vec<Nanos>, Error> {
    watched(stage, Place::Workers, (length, waits), (Early::Stirred, "+trust"))
}

/// The same as the first under the driver's authority: the watcher asks, and the task watches for its answer.
fn early_strict(stage: &Stage, length: Nanos, waits: u32) -> Result<Vec<Nanos>, Error> {
    watched(stage, Place::Workers, (length, waits), (Early::Plain, ""))
}

fn early_thread(stage: &Stage, length: Nanos, waits: u32) -> Result<Vec<Nanos>, Error> {
    watched(stage, Place::Thread, (length, waits), (Early::Plain, "+trust"))
}

/// The device's thread wakes a task of a `multi_thread` runtime by tokio's own means.
fn notify_workers(stage: &Stage, length: Nanos, waits: u32) -> Result<Vec<Nanos>, Error> {
    let notify = Arc::new(Notify::new());
    let rung = Arc::clone(&notify);
    let _hook = stage.hook(Arc::new(move || rung.notify_one()));
    let (launcher, clock) = (stage.launcher(), stage.clock());
    on_workers(stage, async move {
        let mut samples = Vec::new();
        for _ in 0..waits {
            let point = launcher.launch(length);
            notify.notified().await;
            samples.push(clock.now().since(point.stored_at()));
        }
        Ok(samples)
    })
}

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

//! What a program may come to where the driver does something wrong.

use std::time::{Duration, Instant as Wall};

use wakeline_core::{Error, ErrorCode};
use wakeline_fake_driver::{Act, Fake, Live};
use wakeline_mapped::Counts;
use wakeline_mapped::driver::{CaptureMode, RawContext};
use wakeline_mapped::error::{CallError, Kind};

use super::extras::Extras;
use super::program::{Program, Step};
use super::row::Wrong;

/// The longest that a step may take: the work, a call held up, a store tried out in vain, and what a busy machine adds.
const LATE: Duration = Duration::from_millis(2_500);

/// How long threads that were told to end may hold on to what they have.
const LINGERING: Duration = Duration::from_secs(2);

/// `CUDA_ERROR_ILLEGAL_STATE`: what a stream that is being captured says to another capture.
const ILLEGAL_STATE: i32 = 401;

/// Calls by which a thread gets its context: where they fail nothing can be given back, not even the caller's own.
const BINDS: [&str; 3] = ["cuCtxGetCurrent", "cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode"];

/// Calls whose failures mean another way to the same, by design.
const ASIDE: [&str; 5] = [
    "cuGetProcAddress",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    // How much shared memory a kernel may have: the first launch with much of it finds out.
    "cuFuncGetAttribute",
];

/// The calls that enqueue the store of a word.
const STORES: [&str; 2] = ["cuStreamWriteValue64", "cuLaunchHostFunc"];

/// The calls by which a point is asked for.
const ASKS: [&str; 3] = ["cuStreamIsCapturing", "cuStreamQuery", "cuEventQuery"];

pub(super) fn is_sticky<D: Extras>(status: i32) -> bool {
    D::kind(status) == Kind::Sticky
}

/// What was counted in between.
pub(super) fn since(now: &Counts, before: &Counts) -> Counts {
    Counts {
        pages_made: now.pages_made - before.pages_made,
        pages_freed: now.pages_freed - before.pages_freed,
        pages_leaked: now.pages_leaked - before.pages_leaked,
        slots_leaked: now.slots_leaked - before.slots_leaked,
        contexts_leaked: now.contexts_leaked - before.contexts_leaked,
        drop_failures: now.drop_failures - before.drop_failures,
        callbacks_made: now.callbacks_made - before.callbacks_made,
    }
}

/// The calling thread has its own context and capture mode again.
pub(super) fn thread<D: Extras>(driver: &D, own: RawContext, wrong: Option<&Wrong>) -> Vec<String> {
    let mut problems = Vec::new();
    let name = wrong.map_or("", Wrong::of_cuda);
    let current = driver.current().unwrap();
    // Where the driver does not take it back, or has pushed another and denies it.
    let refuses = wrong.is_some_and(|wrong| matches!(wrong.act, Act::Fail(_)));
    let cannot = refuses && name == "cuCtxSetCurrent" || ["cuCtxCreate", "cuCtxPopCurrent"].contains(&name);
    if current != own {
        if !cannot {
            problems.push(format!("the thread's context is {current} and no longer {own}"));
        }
        // SAFETY: the caller's context is alive.
        unsafe { driver.set_current(own) }.unwrap();
    }
    let mode = driver.exchange_capture_mode(CaptureMode(0)).unwrap();
    if mode != CaptureMode(0) && name != "cuThreadExchangeStreamCaptureMode" {
        problems.push(format!("the thread's capture mode is {mode:?}"));
    }
    problems
}

/// Each failure is one that there may be, and comes in time.
pub(super) fn steps<D: Extras>(steps: &[Step], program: Program, wrong: Option<&Wrong>) -> Vec<String> {
    let mut problems = Vec::new();
    for Step { what, error, took } in steps {
        let is_timeout = error.as_ref().is_some_and(|error| error.code() == ErrorCode::Timeout);
        // Looked for a million times, each time: a stamp of a kernel that does not run.
        let looks =
            wrong.is_some_and(|wrong| wrong.act == Act::DropEffect && wrong.of_cuda() == "cuLaunchKernel");
        if *took > LATE * if looks { 8 } else { 1 } && !is_timeout {
            problems.push(format!("{what} took {took:?}"));
        }
        let Some(error) = error else { continue };
        if !wrong.is_some_and(|wrong| may_be::<D>(error, what, program, wrong)) {
            problems.push(format!("{what} failed with {error}"));
        }
    }
    problems
}

/// Somebody was told of what the driver did wrong, or it was counted.
pub(super) fn told<D: Extras>(
    fake: &Fake,
    steps: &[Step],
    counted: &Counts,
    wrong: Option<&Wrong>,
) -> Option<String> {
    let wrong = wrong?;
    let status = wrong.status()?;
    let told = steps.iter().filter_map(|step| step.error.as_ref()).any(|error| {
        // What a capture forbids is told as that, also in the reason for another way of storing words.
        let is_of_capture =
            D::kind(status) == Kind::Capturing && error.to_string().contains("is being captured");
        names(error, wrong) || is_of_capture
    });
    let counted = counted.drop_failures > 0 || counted.slots_leaked > 0;
    if told || counted || is_meant::<D>(wrong.of_cuda(), status) {
        return None;
    }
    // A query that said "not ready" has not failed.
    let has_failed = fake.log().iter().any(|call| call.name == wrong.call && call.status.0 == status);
    has_failed.then(|| "nobody was told, and nothing counted".to_owned())
}

/// Whether it says which call failed, and how.
pub(super) fn names(error: &Error, wrong: &Wrong) -> bool {
    let source = core::error::Error::source(error).and_then(|source| source.downcast_ref::<CallError>());
    if source.is_some_and(|source| source.call == wrong.name() && Some(source.status) == wrong.status()) {
        return true;
    }
    // A warning has it in words.
    let text = error.to_string();
    text.contains(wrong.name()) && wrong.status().is_some_and(|status| text.contains(&format!("({status})")))
}

/// Whether a failure is one that this may lead to.
fn may_be<D: Extras>(error: &Error, what: &str, program: Program, wrong: &Wrong) -> bool {
    let name = wrong.of_cuda();
    let kind = wrong.status().map(D::kind);
    let source = core::error::Error::source(error).and_then(|source| source.downcast_ref::<CallError>());
    let is_the_call =
        source.is_some_and(|source| source.call == wrong.name() && Some(source.status) == wrong.status());
    match error.code() {
        ErrorCode::Backend => {
            is_the_call
                || left_capturing(wrong) && source.is_some_and(|source| source.status == ILLEGAL_STATE)
        }
        // What was said of a store; or a capture that could not be ended.
        ErrorCode::StreamCapturing => {
            let forbids = is_the_call || name == "cuStreamIsCapturing";
            kind == Some(Kind::Capturing) && forbids || left_capturing(wrong) && what == "port"
        }
        // A capture forbids to ask for as long as it lasts; of a thread's own stream there is one way to ask.
        ErrorCode::Timeout => {
            let is_for_good = kind == Some(Kind::Capturing) && !wrong.when.is_once();
            is_for_good && program == Program::Foreign && name == "cuEventQuery"
        }
        ErrorCode::CompletionFallback => what == "warning",
        ErrorCode::CompletionRefused => what == "context",
        ErrorCode::StoreLost => {
            let stores = STORES.contains(&name) || program.stores_by_kernel() && name == "cuLaunchKernel";
            what == "wait" && wrong.act == Act::DropEffect && stores
        }
        // Its stores never land.
        ErrorCode::ContextInUse => what == "close" && wrong.act == Act::DropEffect && STORES.contains(&name),
        _ => false,
    }
}

/// Whether the driver began a capture and denies it, or does not end one.
fn left_capturing(wrong: &Wrong) -> bool {
    match wrong.act {
        Act::Fail(_) => wrong.of_cuda() == "cuStreamEndCapture",
        Act::FailAfter(_) => wrong.of_cuda() == "cuStreamBeginCapture",
        _ => false,
    }
}

/// Whether a failure of this call needs no word, by design.
fn is_meant<D: Extras>(name: &str, status: i32) -> bool {
    match D::kind(status) {
        _ if ASIDE.contains(&name) => true,
        Kind::NotSupported => STORES.contains(&name) || name == "cuThreadExchangeStreamCaptureMode",
        Kind::Capturing => ASKS.contains(&name),
        // At the end of the process nobody wants to know of drops.
        Kind::Gone => is_of_drops(name) || D::DROPS_ASK && ASKS.contains(&name),
        // A driver that does not know of the attribute.
        Kind::Refused => name == "cuDeviceGetAttribute" && status == 1,
        Kind::OutOfMemory | Kind::Sticky => false,
    }
}

fn is_of_drops(name: &str) -> bool {
    let ends = ["Destroy", "Unload", "Release", "Free", "FreeHost", "EndCapture"];
    BINDS.contains(&name) || ends.iter().any(|end| name.ends_with(end)) || name == "cuDeviceGet"
}

/// Nothing is left of the program but what is counted as leaked, or what the driver itself would not take or denied to have made.
pub(super) fn left(
    fake: &Fake,
    before: &Live,
    counted: &Counts,
    row: (Program, Option<&Wrong>),
) -> Vec<String> {
    let start = Wall::now();
    loop {
        let problems = remains(&fake.live(), before, counted, row);
        if problems.is_empty() || start.elapsed() > LINGERING {
            return problems;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn remains(now: &Live, before: &Live, counted: &Counts, row: (Program, Option<&Wrong>)) -> Vec<String> {
    let (program, wrong) = row;
    let kept = program.modules_kept().unwrap_or(u64::MAX / 2);
    let name = wrong.map_or("", Wrong::of_cuda);
    let denies = wrong.is_some_and(|wrong| matches!(wrong.act, Act::FailAfter(_)));
    let binds = BINDS.contains(&name);
    // What it is, how much more there is than before, how much of it is counted, who makes and who ends it.
    let rows = [
        (
            "primary retains",
            now.primary_retains,
            before.primary_retains,
            counted.contexts_leaked,
            "cuDevicePrimaryCtxRetain",
            "",
        ),
        ("contexts", now.contexts, before.contexts, counted.contexts_leaked, "cuCtxCreate", ""),
        (
            "pages",
            now.pinned_pages,
            before.pinned_pages,
            counted.pages_leaked,
            "cuMemHostAlloc",
            "cuMemFreeHost",
        ),
        ("streams", now.streams, before.streams, 0, "cuStreamCreateWithPriority", "cuStreamDestroy"),
        ("events", now.events, before.events, 0, "cuEventCreate", "cuEventDestroy"),
        ("allocations", now.device_allocations, before.device_allocations, 0, "cuMemAlloc", "cuMemFree"),
        ("modules", now.modules, before.modules, kept, "cuModuleLoadDataEx", "cuModuleUnload"),
        ("graphs", now.graphs, before.graphs, 0, "", "cuGraphDestroy"),
        (
            "executable graphs",
            now.graph_execs,
            before.graph_execs,
            0,
            "cuGraphInstantiateWithFlags",
            "cuGraphExecDestroy",
        ),
    ];
    let mut problems = Vec::new();
    for (what, now, before, leaked, maker, ender) in rows {
        let excused = name == ender || denies && name == maker || binds;
        if now > before + leaked && !excused {
            problems.push(format!("{} {what} are left, {leaked} of them counted", now - before));
        }
    }
    problems
}

//! The gate that every exported call passes: rules and the states of the whole driver first, then the call itself, then
//! the log.

use super::clock::{self, NS_PER_US};
use super::log::Ended;
use super::state::{Guard, State, shared};
use super::{Answer, Stop, current};
use crate::Status;
use crate::wire::Act;

/// What may be called before `cuInit`.
const EARLY: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "hipInit",
    "hipDriverGetVersion",
];

/// An enqueue waits itself for what is due within this time, as calls of the real driver take about as long.
const INLINE_NS: u64 = 3_000;

/// Makes a call: `body`, perhaps several times until it does not ask to be made again.
pub(super) fn call(
    name: &'static str,
    stream: Option<u64>,
    body: impl FnMut(&mut State) -> Answer,
) -> Status {
    call_in(name, current::top(), stream, body)
}

/// As [`call`], by a thread whose context is this.
pub(super) fn call_in(
    name: &'static str,
    context: Option<u64>,
    stream: Option<u64>,
    mut body: impl FnMut(&mut State) -> Answer,
) -> Status {
    // A fork's child has the memory of an initialized driver, and no driver. No lock may be touched there.
    if shared().is_forked() {
        return Status::NOT_INITIALIZED;
    }
    let mut state = shared().lock();
    state.log.count(name);
    let refused = refused(&mut state, name);
    let act = if refused.is_some() { None } else { state.rules.act(name) };
    let status = match (refused, act) {
        (Some(status), _) | (_, Some(Act::Fail(status))) => status,
        (_, Some(Act::DropEffect)) => Status::SUCCESS,
        (_, act) => {
            state = held_up(state, act);
            let mut status;
            (state, status) = made(state, name, &mut body);
            if let (Some(Act::FailAfter(instead)), Status::SUCCESS) = (act, status) {
                status = instead;
            }
            status
        }
    };
    if state.options.log {
        let call = Ended { name, thread: current::thread(), context, stream, status };
        let len_max = state.options.log_len_max;
        state.log.ended(call, len_max);
    }
    status
}

/// What the driver as a whole says to this call, whatever it is.
fn refused(state: &mut Guard, name: &'static str) -> Option<Status> {
    if state.options.deinitialized {
        return Some(Status::DEINITIALIZED);
    }
    if state.options.stub {
        return Some(Status::STUB_LIBRARY);
    }
    if current::runs_host_functions() {
        state.call = name;
        state.violation("called from a host function");
        return Some(Status::NOT_PERMITTED);
    }
    let is_early = EARLY.contains(&name) || name.starts_with("hipGet");
    (!shared().is_initialized() && !is_early).then_some(Status::NOT_INITIALIZED)
}

/// What a rule does before the call begins.
/// Waits as a rule says.
pub(super) fn held_up(mut state: Guard, act: Option<Act>) -> Guard {
    match act {
        Some(Act::DelayUs(us)) => {
            drop(state);
            let until = clock::now().saturating_add(us.saturating_mul(NS_PER_US));
            sleep_until(until);
            shared().lock()
        }
        Some(Act::Block) => {
            state = shared().wait_for_release(state);
            state
        }
        _ => state,
    }
}

fn sleep_until(until: u64) {
    let nap = until.saturating_sub(clock::now()).saturating_sub(clock::SPIN_NS);
    if nap > 0 {
        std::thread::sleep(std::time::Duration::from_nanos(nap));
    }
    clock::spin(until, || false);
}

fn made(
    mut state: Guard,
    name: &'static str,
    body: &mut impl FnMut(&mut State) -> Answer,
) -> (Guard, Status) {
    loop {
        shared().advance(&mut state);
        state.call = name;
        // The driver may have gone down while the call waited.
        if let Some(status) = refused(&mut state, name) {
            return (state, status);
        }
        match body(&mut state) {
            Ok(()) => {
                if state.stirred {
                    settle(&mut state);
                }
                return (state, Status::SUCCESS);
            }
            Err(Stop::With(status)) => {
                shared().tell(&mut state);
                return (state, status);
            }
            // What the attempt itself enqueued is seen to first.
            Err(Stop::Again(_)) if state.stirred => {}
            Err(Stop::Again(until)) => state = shared().wait(state, until),
        }
    }
}

/// Starts what was enqueued, and sees to what is due at once.
fn settle(state: &mut Guard) {
    state.advance();
    let due = state.next_due();
    if due <= clock::now().saturating_add(INLINE_NS) {
        clock::spin(due, || false);
    }
    shared().advance(state);
}

//! The library's side of what a test asks: one exported function, bytes in and bytes out.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};

use serde::Serialize;

use super::exports::EXPORTS;
use super::state::{State, shared};
use super::{current, hip};
use crate::wire::Request;

/// The request was not understood.
const NOT_UNDERSTOOD: c_int = 1;

/// Answers a [`Request`] in JSON by a call of `sink`.
// SAFETY: nothing else has this name.
#[unsafe(no_mangle)]
extern "C" fn wakeline_fake_control(
    request: *const u8,
    len: usize,
    sink: extern "C" fn(*mut c_void, *const u8, usize),
    user: *mut c_void,
) -> c_int {
    // SAFETY: `Fake` lends `len` bytes for the length of this call.
    let request = unsafe { core::slice::from_raw_parts(request, len) };
    let Ok(request) = serde_json::from_slice::<Request>(request) else { return NOT_UNDERSTOOD };
    let mut state = shared().lock();
    let answer = answer(&mut state, request);
    shared().tell(&mut state);
    drop(state);
    match answer {
        Ok(answer) => sink(user, answer.as_ptr(), answer.len()),
        Err(_) => return NOT_UNDERSTOOD,
    }
    0
}

fn answer(state: &mut State, request: Request) -> serde_json::Result<Vec<u8>> {
    fn json(answer: impl Serialize) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&answer)
    }
    match request {
        Request::Options => json(&state.options),
        Request::SetOptions(options) => {
            state.options = options;
            state.stirred = true;
            json(())
        }
        Request::Rule(rule) => json(state.rules.add(rule)),
        Request::Hits(rule) => json(state.rules.hits(rule)),
        Request::ClearRules => {
            state.rules.clear();
            json(())
        }
        Request::Release => {
            state.releases += 1;
            state.stirred = true;
            json(())
        }
        Request::Blocked => json(state.blocked),
        Request::Calls(name) => json(state.log.counted(&name)),
        Request::Log => json(state.log.calls()),
        Request::ClearLog => {
            state.log.clear();
            json(())
        }
        Request::Violations => {
            state.check_freed();
            json(state.log.violations())
        }
        Request::Forgive => {
            state.log.forgive();
            json(())
        }
        Request::Priority(stream) => json(state.priority(stream)),
        Request::ReleaseThreshold(device) => {
            json(state.release_thresholds.get(&device).copied().unwrap_or(0))
        }
        Request::Live => {
            shared().advance(state);
            json(state.live())
        }
        Request::Reset => {
            state.reset();
            shared().uninitialize();
            current::forget();
            json(())
        }
        Request::Symbols => json(
            EXPORTS.iter().map(|export| export.name).chain(hip::NAMES.iter().copied()).collect::<Vec<_>>(),
        ),
    }
}

//! The thread that runs host functions, one after the other, without the lock.
#![allow(unsafe_code)]

use core::ffi::c_void;
use std::thread;

use super::arg::{CallbackFn, HostFn, StreamArg};
use super::current;
use super::state::shared;
use crate::Status;

/// What is called.
#[derive(Clone, Copy, Debug)]
pub(super) enum Function {
    Host(HostFn),
    /// With the stream, and that all is well.
    Callback(CallbackFn),
}

/// A host function whose turn has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hosted {
    pub(super) stream: u64,
    pub(super) function: Function,
    pub(super) data: usize,
}

/// Starts the thread. Says whether it runs.
pub(super) fn start() -> bool {
    thread::Builder::new().name("fake-driver-host".to_owned()).spawn(run).is_ok()
}

fn run() {
    current::now_runs_host_functions();
    let mut state = shared().lock();
    loop {
        let Some(hosted) = state.hosted.pop_front() else {
            state = shared().wait_for_host_function(state);
            continue;
        };
        drop(state);
        call(hosted);
        state = shared().lock();
        state.returned(hosted.stream);
        shared().advance(&mut state);
    }
}

fn call(hosted: Hosted) {
    let data = core::ptr::with_exposed_provenance_mut::<c_void>(hosted.data);
    match hosted.function {
        // SAFETY: who enqueued it promised that it may be called with this data once the work before it is done.
        Function::Host(function) => unsafe { function(data) },
        // SAFETY: as above.
        Function::Callback(function) => unsafe { function(StreamArg(hosted.stream), Status::SUCCESS, data) },
    }
}

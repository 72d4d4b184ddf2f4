//! The C library: what the exported symbols do.
//!
//! ```text
//!   exports ──► gate ──► rules, log            every call passes here
//!                 │
//!                 ├──► context stream event memory capture graph module ..   what calls mean
//!                 │                      │ enqueue
//!                 └──► engine ◄──────────┘     what streams do as time goes by
//! ```
//!
//! One lock covers all state. It is held while a call is worked on, and while time is advanced: by every call that comes
//! and by the engine's thread. It is not held while a caller waits, nor while a host function runs.

mod arg;
mod capture;
mod clock;
mod context;
mod control;
mod cubin;
mod cuda_c;
mod current;
mod device;
mod energy;
mod engine;
mod enqueue;
mod event;
mod exports;
mod gate;
mod graph;
mod handle;
mod hip;
mod hip_graph;
mod hip_words;
mod hiprtc;
mod hosts;
mod kernel;
mod log;
mod lookup;
mod memory;
mod module;
mod nccl;
mod nvrtc;
mod op;
mod pages;
mod peer;
mod pool;
mod ptx;
mod raw;
mod rules;
mod state;
mod stream;

use crate::Status;

/// What a call comes to, if it does not stop.
type Answer<T = ()> = Result<T, Stop>;

/// Why a call stops.
#[derive(Clone, Copy, Debug)]
enum Stop {
    /// It ends with this status.
    With(Status),
    /// It has changed nothing yet, and is to be made again when something has happened, by this time at the latest.
    Again(u64),
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Self::With(status)
    }
}

//! The library of collectives, `libnccl.so.2` and `librccl.so.1`: its symbols, which both have, on the devices of this driver.
//!
//! Ranks meet in a folder that the unique id names, whichever processes they are of: each leaves there what it gives, under the number of the collective, and looks for what
//! the others give. So it computes, over the memory of the simulated devices. Calls come back as the real library's do: of a communicator with `blocking = 0` they say "in progress", and what they
//! enqueue is enqueued once somebody asked how far they are; who uses such a communicator before that is a violation.
//!
//! Rules fit its calls, whose statuses are numbers of its own there; they are counted and logged.
#![allow(unsafe_code, non_snake_case)]

mod comm;
mod meet;
mod reduce;

use core::ffi::{c_char, c_int};
use std::ffi::CStr;

pub(super) use self::comm::Comms;
use self::comm::{Ask, Config, Id};
pub(super) use self::meet::Meet;
use self::meet::{Shape, What};
use super::arg::{Address, Arg, Out, StreamArg};
use super::gate::held_up;
use super::hip::on_device;
use super::log::Ended;
use super::state::{Guard, State, shared};
use super::{Answer, Stop, current};
use crate::Status;
use crate::wire::Act;

/// `ncclResult_t`
const UNHANDLED: Status = Status(1);
const INTERNAL: Status = Status(3);
pub(super) const INVALID_ARGUMENT: Status = Status(4);
pub(super) const INVALID_USAGE: Status = Status(5);
pub(super) const REMOTE: Status = Status(6);
pub(super) const IN_PROGRESS: Status = Status(7);

impl Arg for Id {}
impl Arg for *mut Config {}

/// Makes a call, or what a rule says in its place.
fn call(name: &'static str, mut body: impl FnMut(&mut State) -> Answer) -> Status {
    let mut state = shared().lock();
    state.log.count(name);
    let status = match state.rules.act(name) {
        Some(Act::Fail(status)) => status,
        Some(Act::DropEffect) => Status::SUCCESS,
        act => {
            state = held_up(state, act);
            let status;
            (state, status) = made(state, name, &mut body);
            match act {
                Some(Act::FailAfter(instead)) if matches!(status, Status::SUCCESS | IN_PROGRESS) => instead,
                _ => status,
            }
        }
    };
    let len_max = state.options.log_len_max;
    let ended = Ended { name, thread: current::thread(), context: current::top(), stream: None, status };
    state.log.ended(ended, len_max);
    shared().tell(&mut state);
    status
}

fn made(
    mut state: Guard,
    name: &'static str,
    body: &mut impl FnMut(&mut State) -> Answer,
) -> (Guard, Status) {
    loop {
        shared().advance(&mut state);
        state.call = name;
        let done = if state.is_hip { on_device(&mut state, &mut *body) } else { body(&mut state) };
        match done {
            Ok(()) => return (state, Status::SUCCESS),
            Err(Stop::With(Status::INVALID_VALUE)) => return (state, INVALID_ARGUMENT),
            // What the driver says is no number of the library's.
            Err(Stop::With(status)) if status.0 > IN_PROGRESS.0 => return (state, UNHANDLED),
            Err(Stop::With(status)) => return (state, status),
            Err(Stop::Again(until)) => {
                // What others leave in the folder nobody tells of.
                let until = until.min(state.now.saturating_add(LOOK_NS));
                state = shared().wait(state, until);
            }
        }
    }
}

/// How often a call that waits for other ranks looks for them.
const LOOK_NS: u64 = 300_000;

macro_rules! exports {
    ($($name:ident($($arg:ident: $ty:ty),*) => $body:expr;)*) => {$(
        // SAFETY: the name is the library's own, and this library is loaded in its place, into a scope of its own.
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $ty),*) -> Status {
            call(stringify!($name), |state| $body(state $(, $arg)*))
        }
    )*};
}

exports! {
    ncclGetVersion(out: Out<c_int>) => |state: &mut State, out: Out<c_int>| out.set(state.options.nccl_version);
    ncclGetUniqueId(out: Out<Id>) => comm::unique_id;
    ncclCommInitRankConfig(out: Out<u64>, world: c_int, id: Id, rank: c_int, config: *mut Config) => |state: &mut State, out, world, id: Id, rank, config| {
        let nonblocking = comm::is_nonblocking(config)?;
        comm::init(state, out, (world, rank), &id, nonblocking)
    };
    ncclCommInitRank(out: Out<u64>, world: c_int, id: Id, rank: c_int) => |state: &mut State, out, world, id: Id, rank| {
        comm::init(state, out, (world, rank), &id, false)
    };
    ncclCommFinalize(comm: u64) => comm::finalize;
    ncclCommDestroy(comm: u64) => comm::destroy;
    ncclCommAbort(comm: u64) => comm::abort;
    ncclCommGetAsyncError(comm: u64, out: Out<c_int>) => |state: &mut State, comm, out: Out<c_int>| {
        let Status(told) = comm::asked(state, comm, Ask::State)?;
        out.set(told)
    };
    ncclGroupStart() => |_: &mut State| {
        comm::group_start();
        Ok(())
    };
    ncclGroupEnd() => comm::group_end;
    ncclAllReduce(from: Address, to: Address, count: usize, number: c_int, how: c_int, comm: u64, stream: StreamArg) => |state, from, to, count, number, how, comm, stream| {
        part(state, What::AllReduce(how), (from, to), count, number, comm, stream)
    };
    ncclAllGather(from: Address, to: Address, count: usize, number: c_int, comm: u64, stream: StreamArg) => |state, from, to, count, number, comm, stream| {
        part(state, What::AllGather, (from, to), count, number, comm, stream)
    };
    ncclReduceScatter(from: Address, to: Address, count: usize, number: c_int, how: c_int, comm: u64, stream: StreamArg) => |state, from, to, count, number, how, comm, stream| {
        part(state, What::ReduceScatter(how), (from, to), count, number, comm, stream)
    };
    ncclBroadcast(from: Address, to: Address, count: usize, number: c_int, root: c_int, comm: u64, stream: StreamArg) => |state, from, to, count, number, root, comm, stream| {
        part(state, What::Broadcast(root), (from, to), count, number, comm, stream)
    };
    ncclReduce(from: Address, to: Address, count: usize, number: c_int, how: c_int, root: c_int, comm: u64, stream: StreamArg) => |state, from, to, count, number, how, root, comm, stream| {
        part(state, What::Reduce(how, root), (from, to), count, number, comm, stream)
    };
    ncclSend(from: Address, count: usize, number: c_int, peer: c_int, comm: u64, stream: StreamArg) => |state, from, count, number, peer, comm, stream| {
        part(state, What::Send(peer), (from, from), count, number, comm, stream)
    };
    ncclRecv(to: Address, count: usize, number: c_int, peer: c_int, comm: u64, stream: StreamArg) => |state, to, count, number, peer, comm, stream| {
        part(state, What::Receive(peer), (to, to), count, number, comm, stream)
    };
}

fn part(
    state: &mut State,
    what: What,
    (from, to): (Address, Address),
    count: usize,
    number: c_int,
    comm: u64,
    stream: StreamArg,
) -> Answer {
    let shape = Shape::new(what, count, number).ok_or(INVALID_ARGUMENT)?;
    comm::part(state, comm, shape, (from.value(), to.value()), stream)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(status: Status) -> *const c_char {
    const TEXTS: &[&CStr] = &[
        c"no error",
        c"unhandled cuda error",
        c"unhandled system error",
        c"internal error",
        c"invalid argument",
        c"invalid usage",
        c"remote process exited or there was a network error",
        c"NCCL operation in progress",
    ];
    let text = usize::try_from(status.0).ok().and_then(|number| TEXTS.get(number));
    text.unwrap_or(&c"unknown result code").as_ptr()
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_: u64) -> *const c_char {
    c"".as_ptr()
}

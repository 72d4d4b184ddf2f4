//! Communicators: how ranks join, what a group is, and how far a call is.

use core::ffi::{c_char, c_int, c_uint};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::{env, fs, process};

use super::meet::{Meet, Shape};
use super::{IN_PROGRESS, INTERNAL, INVALID_ARGUMENT, INVALID_USAGE, REMOTE};
use crate::Status;
use crate::driver::arg::{Out, StreamArg};
use crate::driver::op::Op;
use crate::driver::state::State;
use crate::driver::{Answer, Stop, current};

/// `NCCL_UNIQUE_ID_BYTES`
const ID_BYTES: usize = 128;
/// `NCCL_API_MAGIC`
const MAGIC: c_uint = 0xcafe_beef;
/// What a communicator's handle begins with, so that it is none of another kind.
const HANDLES: u64 = 0x6e63_636c_0000;

/// `ncclUniqueId`: the folder where ranks meet.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Id([c_char; ID_BYTES]);

/// The beginning of `ncclConfig_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
}

#[derive(Debug, Default)]
pub(in crate::driver) struct Comms {
    all: BTreeMap<u64, Comm>,
    made: u64,
    ids: u64,
}

impl Comms {
    pub(in crate::driver) fn len(&self) -> usize {
        self.all.len()
    }
}

#[derive(Debug)]
struct Comm {
    rank: usize,
    world: usize,
    folder: PathBuf,
    /// The context it was made in.
    context: u64,
    nonblocking: bool,
    at: At,
    /// How many collectives it has come to.
    collectives: u64,
    /// How many messages it has sent to each, and received of each.
    messages: BTreeMap<(bool, usize), u64>,
}

#[derive(Debug)]
enum At {
    Joining,
    Ready,
    /// These are enqueued when somebody asks after this.
    Launching(u64, Vec<(u64, Meet)>),
    Finalizing,
}

/// What is asked of a communicator.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    State,
    Use,
}

/// What a group has been told so far.
#[derive(Debug, Default)]
struct Group {
    depth: usize,
    inits: Vec<u64>,
    parts: Vec<(u64, u64, Meet)>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

pub(super) fn unique_id(state: &mut State, out: Out<Id>) -> Answer {
    state.comms.ids += 1;
    let copy = core::ptr::from_ref(state).addr();
    let folder =
        env::temp_dir().join(format!("wakeline-nccl-{}-{copy:x}-{}", process::id(), state.comms.ids));
    fs::create_dir_all(&folder).map_err(|_| INTERNAL)?;
    let mut id = Id([0; ID_BYTES]);
    let text = folder.to_string_lossy().into_owned();
    if text.len() >= ID_BYTES {
        return Err(INTERNAL.into());
    }
    id.0.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = c_char::from_ne_bytes([from]));
    out.set(id)
}

fn folder(id: &Id) -> Option<PathBuf> {
    let bytes = id.0.map(|byte| byte.to_ne_bytes()[0]);
    let text = CStr::from_bytes_until_nul(&bytes).ok()?.to_str().ok()?;
    Some(PathBuf::from(text)).filter(|folder| folder.is_dir())
}

pub(super) fn is_nonblocking(config: *mut Config) -> Answer<bool> {
    if config.is_null() {
        return Ok(false);
    }
    // SAFETY: it is not null, and the caller hands a configuration in, of which this is the oldest beginning.
    let config = unsafe { config.read() };
    let known = config.magic == MAGIC && config.size >= size_of::<Config>() && config.version >= 21_400;
    if known { Ok(config.blocking == 0) } else { Err(INVALID_ARGUMENT.into()) }
}

pub(super) fn init(
    state: &mut State,
    out: Out<u64>,
    (world, rank): (c_int, c_int),
    id: &Id,
    nonblocking: bool,
) -> Answer {
    out.needed()?;
    let context = state.current()?;
    let (world, rank) = (usize::try_from(world), usize::try_from(rank));
    let (Ok(world), Ok(rank)) = (world, rank) else { return Err(INVALID_ARGUMENT.into()) };
    if rank >= world {
        return Err(INVALID_ARGUMENT.into());
    }
    let folder = folder(id).ok_or(INVALID_ARGUMENT)?;
    fs::write(folder.join(format!("join-{rank}")), []).map_err(|_| INTERNAL)?;
    state.comms.made += 1;
    let handle = HANDLES + state.comms.made;
    let comm = Comm {
        rank,
        world,
        folder,
        context,
        nonblocking,
        at: At::Joining,
        collectives: 0,
        messages: BTreeMap::new(),
    };
    state.comms.all.insert(handle, comm);
    out.set(handle)?;
    GROUP.with_borrow_mut(|group| group.inits.push(handle));
    end_if_alone(state)
}

/// Outside of a group each call is one.
fn end_if_alone(state: &mut State) -> Answer {
    if GROUP.with_borrow(|group| group.depth > 0) { Ok(()) } else { flush(state) }
}

pub(super) fn group_start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

pub(super) fn group_end(state: &mut State) -> Answer {
    let depth = GROUP.with_borrow(|group| group.depth);
    match depth {
        0 => return Err(INVALID_USAGE.into()),
        // Made again where it waits: it ends when that is over.
        1 => flush(state)?,
        _ => {}
    }
    GROUP.with_borrow_mut(|group| group.depth -= 1);
    Ok(())
}

/// Does what a group was told. Whoever waits in it is asked again.
fn flush(state: &mut State) -> Answer {
    let (inits, parts) = GROUP.with_borrow(|group| (group.inits.clone(), group.parts.clone()));
    let mut under = false;
    for handle in inits {
        let Some(comm) = state.comms.all.get(&handle) else { continue };
        if comm.nonblocking {
            under = true;
        } else if asked(state, handle, Ask::State)? == IN_PROGRESS {
            return Err(Stop::Again(u64::MAX));
        }
    }
    let from = state.now.saturating_add(state.options.nccl_lag_us.saturating_mul(1_000));
    for (handle, stream, meet) in parts {
        let Some(comm) = state.comms.all.get_mut(&handle) else { continue };
        if !comm.nonblocking {
            state.enqueue(stream, Op::Meet(meet))?;
            continue;
        }
        under = true;
        match &mut comm.at {
            At::Launching(_, parts) => parts.push((stream, meet)),
            at => *at = At::Launching(from, vec![(stream, meet)]),
        }
    }
    GROUP.with_borrow_mut(|group| {
        group.inits.clear();
        group.parts.clear();
    });
    if !under {
        return Ok(());
    }
    // It ends here, and the caller is told that it goes on.
    GROUP.with_borrow_mut(|group| group.depth = group.depth.saturating_sub(1));
    Err(IN_PROGRESS.into())
}

/// How far a communicator is; with what it was at enqueued, where its time has come.
pub(super) fn asked(state: &mut State, handle: u64, ask: Ask) -> Answer<Status> {
    let dead = &state.options.nccl_dead;
    let Some(comm) = state.comms.all.get_mut(&handle) else {
        state.violation(&format!("communicator {handle:#x} is none, or was destroyed or aborted"));
        return Err(INVALID_ARGUMENT.into());
    };
    let is_dead = |rank: usize| dead.iter().any(|dead| usize::try_from(*dead) == Ok(rank));
    if !dead.is_empty() && !is_dead(comm.rank) && (0..comm.world).any(is_dead) {
        return Ok(REMOTE);
    }
    match &mut comm.at {
        At::Ready => Ok(Status::SUCCESS),
        At::Joining => {
            let all = (0..comm.world).all(|rank| comm.folder.join(format!("join-{rank}")).exists());
            if all && ask == Ask::State {
                comm.at = At::Ready;
            }
            Ok(if all { Status::SUCCESS } else { IN_PROGRESS })
        }
        At::Finalizing => {
            comm.at = At::Ready;
            Ok(Status::SUCCESS)
        }
        At::Launching(from, _) if *from > state.now => Ok(IN_PROGRESS),
        At::Launching(_, parts) => {
            let parts = core::mem::take(parts);
            comm.at = At::Ready;
            for (stream, meet) in parts {
                state.enqueue(stream, Op::Meet(meet))?;
            }
            Ok(Status::SUCCESS)
        }
    }
}

pub(super) fn part(
    state: &mut State,
    handle: u64,
    shape: Shape,
    (from, to): (u64, u64),
    stream: StreamArg,
) -> Answer {
    let ready = asked(state, handle, Ask::Use)?;
    let stream = state.stream(stream)?;
    let its = state.streams.get(&stream).map(|stream| stream.context);
    let Some(comm) = state.comms.all.get_mut(&handle) else { return Err(INVALID_ARGUMENT.into()) };
    let is_busy = ready == IN_PROGRESS || matches!(comm.at, At::Joining | At::Finalizing);
    if is_busy || its != Some(comm.context) {
        let rank = comm.rank;
        let what =
            if is_busy { "while a call of it is in progress" } else { "with a stream of another device" };
        state.violation(&format!("communicator {handle:#x} of rank {rank} is used {what}"));
        return Err(INVALID_USAGE.into());
    }
    let (rank, world, folder) = (comm.rank, comm.world, comm.folder.clone());
    if shape.what.peer().is_some_and(|peer| peer >= world) {
        return Err(INVALID_ARGUMENT.into());
    }
    let number = match shape.what.peer() {
        None => {
            comm.collectives += 1;
            comm.collectives
        }
        Some(peer) => {
            let count = comm.messages.entry((shape.what.sends(), peer)).or_default();
            *count += 1;
            *count
        }
    };
    let meet = Meet { comm: handle, rank, world, number, shape, from, to, folder: folder.into() };
    if let Some((address, bytes)) = meet.reads() {
        state.span(address, bytes)?;
    }
    if let Some((address, bytes)) = meet.writes() {
        state.span(address, bytes)?;
    }
    GROUP.with_borrow_mut(|group| group.parts.push((handle, stream, meet)));
    end_if_alone(state)
}

pub(super) fn finalize(state: &mut State, handle: u64) -> Answer {
    asked(state, handle, Ask::Use)?;
    let Some(comm) = state.comms.all.get_mut(&handle) else { return Err(INVALID_ARGUMENT.into()) };
    if !comm.nonblocking {
        return Ok(());
    }
    comm.at = At::Finalizing;
    Err(IN_PROGRESS.into())
}

pub(super) fn destroy(state: &mut State, handle: u64) -> Answer {
    let busy = state.streams.values().any(|stream| {
        stream.queue.iter().any(|queued| matches!(&queued.op, Op::Meet(meet) if meet.comm == handle))
    });
    if busy {
        state.violation(&format!(
            "communicator {handle:#x} is destroyed while collectives of it are enqueued"
        ));
    }
    abort(state, handle)
}

/// What it is at ends at once, and does nothing.
pub(super) fn abort(state: &mut State, handle: u64) -> Answer {
    if current::top().is_none() {
        state.violation("a communicator is aborted or destroyed without its device being bound");
    }
    let Some(comm) = state.comms.all.remove(&handle) else {
        state.violation(&format!("communicator {handle:#x} is destroyed or aborted twice"));
        return Err(INVALID_ARGUMENT.into());
    };
    state.stirred = true;
    leave(&comm.folder, comm.rank, comm.world);
    Ok(())
}

/// The last one takes the folder away.
fn leave(folder: &Path, rank: usize, world: usize) {
    // A folder that is left behind is one of temporary ones.
    let _ = fs::write(folder.join(format!("left-{rank}")), []);
    if (0..world).all(|rank| folder.join(format!("left-{rank}")).exists()) {
        let _ = fs::remove_dir_all(folder);
    }
}

impl State {
    /// Whether a communicator is still there: one that was aborted is not.
    pub(in crate::driver) fn has_comm(&self, handle: u64) -> bool {
        self.comms.all.contains_key(&handle)
    }

    /// Whether this rank is dead: it never comes to anything.
    pub(in crate::driver) fn is_dead(&self, rank: usize) -> bool {
        self.options.nccl_dead.iter().any(|dead| usize::try_from(*dead) == Ok(rank))
    }
}

//! What a stream can hold, and what each of it does when its turn is over.

use std::sync::Arc;

use super::context::Halt;
use super::hosts::Function;
use super::kernel::Kernel;
use super::nccl::Meet;
use super::state::State;
use crate::Status;
use crate::wire::FaultEnds;

/// One operation of a stream. Captured graphs are made of them, too.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Nothing: it only has its place in the order.
    Nothing,
    Kernel(Kernel),
    Store {
        address: u64,
        value: u64,
    },
    /// Goes on once the word is as asked.
    Wait {
        address: u64,
        value: u64,
        test: Test,
    },
    /// An event's record; of the records of that event, this one.
    Record {
        event: u64,
        record: u64,
    },
    Copy {
        to: u64,
        from: Source,
        bytes: usize,
    },
    /// Rows, each so many bytes behind the one before.
    Rows {
        to: u64,
        from: u64,
        rows: Rows,
    },
    /// With these bytes again and again.
    Fill {
        to: u64,
        value: [u8; 4],
        bytes: usize,
    },
    Free {
        address: u64,
    },
    /// A rank's part in a collective: goes on once the others have come.
    Meet(Meet),
    /// A call of the user's.
    Host {
        function: Function,
        data: usize,
    },
}

/// What is alike of the rows of a copy, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub(super) len: usize,
    pub(super) count: usize,
    pub(super) from_pitch: usize,
    pub(super) to_pitch: usize,
}

impl Rows {
    /// How many bytes there are from the first to behind the last, at this pitch.
    pub(super) fn extent(&self, pitch: usize) -> Option<usize> {
        self.count.checked_sub(1)?.checked_mul(pitch)?.checked_add(self.len)
    }
}

/// Where a copy comes from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    At(u64),
    /// Pageable memory of the host is read when the copy is enqueued, as the driver stages it.
    Staged(Arc<[u8]>),
}

/// How `cuStreamWaitValue64` compares.
#[derive(Clone, Copy, Debug)]
pub(super) enum Test {
    Reached,
    Equal,
    And,
    Nor,
}

impl Test {
    pub(super) fn of(flags: u32) -> Option<Self> {
        [Self::Reached, Self::Equal, Self::And, Self::Nor].into_iter().nth(usize::try_from(flags).ok()?)
    }

    pub(super) fn passes(self, word: u64, value: u64) -> bool {
        match self {
            Self::Reached => word.wrapping_sub(value).cast_signed() >= 0,
            Self::Equal => word == value,
            Self::And => word & value != 0,
            Self::Nor => !(word | value) != 0,
        }
    }
}

impl Op {
    /// How long it takes, once begun, if it is for the clock to say.
    pub(super) fn takes_ns(&self, store_lag_ns: u64) -> Option<u64> {
        match self {
            Self::Kernel(kernel) => Some(kernel.takes_ns()),
            Self::Store { .. } => Some(store_lag_ns),
            Self::Wait { .. } | Self::Meet(_) | Self::Host { .. } => None,
            _ => Some(0),
        }
    }

    /// The memory that it reads, and does not write.
    pub(super) fn reads(&self) -> Option<(u64, usize)> {
        match *self {
            Self::Copy { from: Source::At(from), bytes, .. } => Some((from, bytes)),
            Self::Rows { from, rows, .. } => Some((from, rows.extent(rows.from_pitch)?)),
            Self::Meet(ref meet) => meet.reads(),
            _ => None,
        }
    }

    /// The memory that it writes.
    pub(super) fn writes(&self) -> Option<(u64, usize)> {
        match *self {
            Self::Kernel(kernel) => kernel.writes(),
            Self::Store { address, .. } => Some((address, 8)),
            Self::Copy { to, bytes, .. } | Self::Fill { to, bytes, .. } => Some((to, bytes)),
            Self::Rows { to, rows, .. } => Some((to, rows.extent(rows.to_pitch)?)),
            Self::Meet(ref meet) => meet.writes(),
            _ => None,
        }
    }
}

impl State {
    /// Does what `op` does, at the time it ended.
    pub(super) fn perform(&mut self, context: u64, op: &Op, end: u64) {
        self.check_begun(op);
        match op {
            Op::Nothing | Op::Wait { .. } | Op::Host { .. } => {}
            Op::Kernel(kernel) => self.run(context, *kernel, end),
            Op::Store { address, value } => {
                if !self.pages.store(*address, *value) {
                    self.misses(context, *address, "a store");
                }
            }
            Op::Record { event, record } => self.recorded(*event, *record, end),
            Op::Copy { to, from, bytes } => {
                if !self.pages.copy(*to, from, *bytes) {
                    self.misses(context, *to, "a copy");
                }
            }
            Op::Rows { to, from, rows } => {
                let Rows { len, count, from_pitch, to_pitch } = *rows;
                let copied = (0..count as u64).all(|row| {
                    let (from, to) = (from + row * from_pitch as u64, to + row * to_pitch as u64);
                    self.pages.copy(to, &Source::At(from), len)
                });
                if !copied {
                    self.misses(context, *to, "a copy of rows");
                }
            }
            Op::Fill { to, value, bytes } => {
                if !self.pages.fill(*to, *value, *bytes) {
                    self.misses(context, *to, "a fill");
                }
            }
            Op::Meet(meet) => self.exchange(meet),
            Op::Free { address } => self.freed_by_stream(*address),
        }
    }

    /// What an operation uses was allocated before: in its own stream's order, or in another's that it is behind.
    fn check_begun(&mut self, op: &Op) {
        let freed = if let Op::Free { address } = *op { Some((address, 1)) } else { None };
        for (address, _) in op.reads().into_iter().chain(op.writes()).chain(freed) {
            if self.pages.begins(address).is_some_and(|from| !self.is_reached(from)) {
                self.violation(&format!(
                    "{address:#x} is used before it was allocated, for its stream was not waited for"
                ));
            }
        }
    }

    /// The device was to use memory that is not there. What was freed is left alone; what never was is a fault.
    pub(super) fn misses(&mut self, context: u64, address: u64, what: &str) {
        if self.pages.was_freed(address) {
            self.violation(&format!("{what} to {address:#x}, which is freed"));
        } else {
            self.violation(&format!("{what} to {address:#x}, which is no memory of the device's"));
            self.fault(context, Status::ILLEGAL_ADDRESS);
        }
    }

    /// Stops everything in the context, or in all of them; calls are told later.
    pub(super) fn fault(&mut self, context: u64, status: Status) {
        let told_at = self.now.saturating_add(self.options.fault_delay_us.saturating_mul(1_000));
        let all = self.options.fault_ends == FaultEnds::Process;
        let halt = Halt { status, told_at };
        for (_, context) in self.contexts.iter_mut().filter(|(handle, _)| all || **handle == context) {
            context.halt(halt);
        }
        if all {
            self.halt.get_or_insert(halt);
        }
        let streams = &self.streams;
        let halted = |stream: u64| streams.get(&stream).is_none_or(|stream| all || stream.context == context);
        self.hosted.retain(|hosted| !halted(hosted.stream));
        self.stirred = true;
    }
}

//! Suite `ops`: device operations submitted and awaited, beside the device's own calls and a spin on the word; and crowds of them.
//!
//! Its arms are ways of running operations, which no other suite has, the spin on the word, and the ways of other libraries. A latency is what an operation
//! took more than its work, so submission and all.

use std::time::Duration;

use wakeline_core::{Clock, Error, Nanos};
use wakeline_std::Point;

use crate::ab::arms::{Arm, LATE_US, Operation, Way};
use crate::ab::device::{Device, RAW};
use crate::ab::hosts::Waiter;
use crate::ab::rounds::{Turn, quantity};
use crate::ab::session::{Named, Output, Setup, real};
use crate::gpu::Failure;
use crate::ops;

/// How long the operations of a turn take together, and how many there are at least and at most.
const TURN: Nanos = Nanos::from_millis(20);
const TIMES: [u64; 2] = [3, 50];

/// How long a crowd runs in a turn.
const CROWD: Duration = Duration::from_millis(300);

/// What a case is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ops {
    /// One at a time, of this length.
    Await(Nanos),
    /// So many tasks that each run one after another, of 50 us on 16 streams.
    Loop(usize),
    /// So many tasks that await work of 20 ms, each in a stream of its own.
    Idle(usize),
}

impl core::fmt::Display for Ops {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Await(length) => write!(f, "{} us", length.as_micros()),
            Self::Loop(tasks) => write!(f, "{tasks} tasks of 50 us"),
            Self::Idle(tasks) => write!(f, "{tasks} tasks of 20 ms"),
        }
    }
}

impl Ops {
    /// The arm that the others are compared with.
    const fn base(self) -> &'static str {
        match self {
            Self::Await(_) => ops::Arm::Spin.name(),
            Self::Loop(_) => "scan",
            Self::Idle(_) => ops::Arm::Multi.name(),
        }
    }

    /// Whether the arm is one of this case: of one operation at a time also the spin and other libraries' own ways, behind the same work, launched on the
    /// stream that they all share.
    fn fits(self, arm: &Arm) -> bool {
        match (self, &arm.way) {
            (Self::Await(_), Way::Spin | Way::Operation(Operation::Awaits(_)))
            | (Self::Loop(_) | Self::Idle(_), Way::Operation(Operation::Awaits(ops::Arm::Multi)))
            | (Self::Loop(_), Way::Operation(Operation::Scans))
            | (Self::Idle(_), Way::Operation(Operation::AwaitsLate)) => true,
            (Self::Await(_), Way::Raw(_)) => arm.family != RAW,
            _ => false,
        }
    }
}

pub(super) fn measure<D: Device>(
    setup: &Setup<'_, D>,
    output: &mut Output,
    named: &Named,
    what: Ops,
) -> Result<(), Failure> {
    let Some(operations) = setup.device.operations() else {
        output.say(&format!("{}/{}: no operations on this device yet", named.label.suite, named.label.case));
        return Ok(());
    };
    let Some(chosen) = setup.choose(&[what.base()], |arm| what.fits(arm)) else {
        output.passes_over(named);
        return Ok(());
    };
    match what {
        Ops::Await(length) => {
            let waiter = setup.waiter();
            let times = (TURN.as_nanos() / length.as_nanos().max(1)).clamp(TIMES[0], TIMES[1]);
            setup.rounds(output, named, &chosen, |index, _| {
                let arm = &chosen.arms[index];
                let own = |way| operations.turn(way, length, usize::try_from(times).unwrap_or(1));
                let run = || match arm.way {
                    Way::Spin => own(ops::Arm::Spin),
                    Way::Operation(Operation::Awaits(way)) => own(way),
                    _ => (0..times).map(|_| theirs_once(setup, &waiter, arm, length)).collect(),
                };
                waiter.begin(arm)?;
                let result = setup.metered(arm, run);
                waiter.end(arm)?;
                let (took, meters) = result?;
                let mut turn = Turn::new();
                meters.tell(&mut turn, times, None);
                let length = i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
                turn.late(took.into_iter().map(|took| took.cast_signed() - length).collect());
                Ok(turn)
            })
        }
        Ops::Loop(tasks) => setup.rounds(output, named, &chosen, |index, _| {
            let arm = &chosen.arms[index];
            let raw = arm.way == Way::Operation(Operation::Scans);
            crowd(setup, arm, || operations.crowd(raw, (tasks, 16), (Nanos::from_micros(50), 0), CROWD))
        }),
        Ops::Idle(tasks) => setup.rounds(output, named, &chosen, |index, _| {
            let arm = &chosen.arms[index];
            let late_us = if arm.way == Way::Operation(Operation::AwaitsLate) { LATE_US } else { 0 };
            let length = Nanos::from_millis(20);
            crowd(setup, arm, || operations.crowd(false, (tasks, tasks), (length, late_us), CROWD))
        }),
    }
}

/// Work of this length, and a wait for it in a library's own way: how long that took.
fn theirs_once<D: Device>(
    setup: &Setup<'_, D>,
    waiter: &Waiter<'_, D>,
    arm: &Arm,
    length: Nanos,
) -> Result<u64, Error> {
    let before = setup.device.clock().now();
    setup.device.launch(length)?;
    let known = setup.hosts.run(arm.host(), waiter.wait(arm, 1, &Point::new("ops")))??;
    Ok(known.at.since(before).as_nanos())
}

fn crowd<D: Device>(
    setup: &Setup<'_, D>,
    arm: &Arm,
    run: impl FnOnce() -> Result<u64, Error>,
) -> Result<Turn, Error> {
    let (count, meters) = setup.metered(arm, run)?;
    let mut turn = Turn::new();
    meters.tell(&mut turn, count, None);
    turn.set(quantity::THROUGHPUT, Some(real(count) / meters.took.as_secs_f64()));
    Ok(turn)
}

//! Crowds of tasks that each submit again when they are told, by what is learned of kinds and streams: whoever is told late submits late.

use std::collections::BinaryHeap;
use std::sync::Arc;

use wakeline_core::{Instant, Nanos};

use crate::known::{Kind, Known};
use crate::lane::{Lane, Permit, Ticket};

const MS: u64 = 1_000_000;
/// What one of a crowd may be told late.
const LATE_NS: u64 = MS / 5;

/// The host does nothing for so long, every now and then.
const STALL_NS: u64 = 60 * MS;
const STALLS_EVERY_NS: u64 = 2_000 * MS;

/// A flight: its stream, its ticket and place, when it ends, and whether it is seen to.
struct Flying(usize, Ticket, Permit, u64, bool);

/// How many operations a second `tasks` get done that take turns over `streams`, each as long as `length` says of its number. Each is told of when it ends,
/// or, by what is `learned`, where that was expected to be later.
fn per_second(tasks: usize, streams: usize, learned: bool, mut length: impl FnMut(u64) -> u64) -> f64 {
    const COUNT: u64 = 20_000;
    let (known, kind) = (Known::new(), Kind::of::<u8>(0));
    let lanes: Vec<_> = (0..streams).map(|_| Lane::new()).collect();
    let mut free = vec![0; streams];
    let mut flying: Vec<Option<Flying>> = (0..tasks).map(|_| None).collect();
    // They begin at one moment: all have their places before the first submits.
    let begin = 1_000 * MS;
    let mut places: Vec<_> = (0..tasks).map(|task| Some(lanes[task % streams].admit_anyway(1))).collect();
    let mut told: BinaryHeap<_> = (0..tasks).map(|task| (core::cmp::Reverse(begin), task)).collect();
    let mut now = begin;
    for number in 0..COUNT {
        let Some((core::cmp::Reverse(at), task)) = told.pop() else { break };
        now = at;
        if let Some(Flying(stream, ticket, permit, end, exact)) = flying[task].take() {
            let lane: &Arc<Lane> = &lanes[stream];
            let seen = Instant::from_nanos(if exact { end } else { now });
            if let Some(lesson) = lane.arrive(&ticket, seen, exact) {
                let about = Nanos::from_nanos(LATE_NS);
                known.learn(kind, lesson.took, about, lesson.exact, ticket.service);
            }
            drop(permit);
        }
        let stream = usize::try_from(number).unwrap_or(0) % streams;
        let permit = places[task].take().unwrap_or_else(|| lanes[stream].admit_anyway(1));
        let ticket = lanes[stream].depart(Instant::from_nanos(now), known.expect(kind));
        let end = free[stream].max(now) + length(number);
        free[stream] = end;
        let looked = ticket.expected.filter(|_| learned).map_or(now, Instant::as_nanos);
        let stalled = (end.max(looked) - begin) % STALLS_EVERY_NS < STALL_NS;
        let exact = end > looked && !stalled;
        let stall = if stalled { STALL_NS - (end.max(looked) - begin) % STALLS_EVERY_NS } else { 0 };
        told.push((core::cmp::Reverse(end.max(looked) + stall), task));
        flying[task] = Some(Flying(stream, ticket, permit, end, exact));
    }
    #[expect(clippy::cast_precision_loss, reason = "a number of operations and a time")]
    let rate = (COUNT as f64) * 1e9 / (now - begin) as f64;
    rate
}

#[test]
fn operations_of_one_kind_and_many_lengths_keep_their_streams_busy() {
    for (tasks, streams) in [(64, 64), (64, 4), (16, 16), (128, 64)] {
        for seed in 0..20_u64 {
            let length = |number: u64| {
                let drawn = number.wrapping_add(seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58;
                20 * MS + drawn * 20 * MS / 48
            };
            let ideal = per_second(tasks, streams, false, length);
            let learned = per_second(tasks, streams, true, length);
            assert!(
                learned > 0.85 * ideal,
                "{learned:.0} of {ideal:.0} a second: {tasks} on {streams}, seed {seed}"
            );
        }
    }
}

/// Streams that share a device, which gets busier and idler: all take twice as long for a while.
#[test]
fn lengths_that_double_for_a_while_are_followed_both_ways() {
    let length = |number: u64| if number / 5_000 % 2 == 1 { 40 * MS } else { 20 * MS };
    for (tasks, streams) in [(64, 64), (64, 4)] {
        let ideal = per_second(tasks, streams, false, length);
        let learned = per_second(tasks, streams, true, length);
        assert!(learned > 0.9 * ideal, "{learned:.0} of {ideal:.0} a second: {tasks} on {streams}");
    }
}

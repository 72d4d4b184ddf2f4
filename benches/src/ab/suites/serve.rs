//! Suite `serve`: a decode server that does its own work while a step runs, and then waits for it.

use core::hint::black_box;
use std::collections::BTreeMap;

use wakeline_core::{Clock, Error, Instant, Nanos};
use wakeline_std::Point;

use super::server::{Load, Next, Server, Step};
use crate::ab::arms::{Arm, Host};
use crate::ab::device::Device;
use crate::ab::hosts::{LateWakes, Waiter};
use crate::ab::rounds::{Turn, quantity};
use crate::ab::session::{Named, Output, Setup, cpu, real, since};
use crate::gpu::Failure;

/// The work of the host for a step and for each of its rows, in rounds of a loop: about 30 us and 5 us a row, which is what sampling and turning
/// tokens into text takes. What it truly took is measured, and taken off.
const WORK: u64 = 20_000;
const WORK_ROW: u64 = 3_500;

/// How many points an arm learns by at most: a step of the same rows, of which as many are new.
const POINTS_MAX: usize = 512;

/// What a turn came to.
struct Served {
    server: Server,
    took: Nanos,
    /// CPU time of the host's own work.
    worked: Option<Nanos>,
    late_ns: Vec<i64>,
    late_wakes: LateWakes,
}

/// What an arm has learned: by rows, and by how many of them joined.
#[derive(Default)]
struct Learned(BTreeMap<(u64, u64), Point>);

impl Learned {
    fn point(&mut self, step: &Step) -> Point {
        let key = (step.rows, step.joined);
        if self.0.len() >= POINTS_MAX && !self.0.contains_key(&key) {
            self.0.pop_first();
        }
        self.0.entry(key).or_insert_with(|| Point::new("step")).clone()
    }
}

pub(super) fn measure<D: Device>(
    setup: &Setup<'_, D>,
    output: &mut Output,
    named: &Named,
    load: Load,
) -> Result<(), Failure> {
    let fits = |arm: &Arm| arm.waits() && arm.host() != Host::Threads;
    let Some(chosen) = setup.choose(&["sync-spin", "status-spin"], fits) else {
        output.passes_over(named);
        return Ok(());
    };
    let mut learned: Vec<Learned> = chosen.arms.iter().map(|_| Learned::default()).collect();
    let waiter = setup.waiter();
    setup.rounds(output, named, &chosen, |index, round| {
        let arm = &chosen.arms[index];
        let server = Server::new(load, setup.extent.seed, round);
        waiter.begin(arm)?;
        let task = serve(setup.device, &waiter, arm, server, &mut learned[index]);
        let result = setup.metered(arm, || setup.hosts.run(arm.host(), task)?);
        waiter.end(arm)?;
        let (came, meters) = result?;
        let tokens = came.server.tokens();
        let mut turn = Turn::new();
        let waiting = meters.thread.zip(came.worked).map(|(all, worked)| all - worked);
        meters.tell(&mut turn, tokens, waiting);
        let each = |worked: Nanos| real(worked.as_nanos()) / real(tokens.max(1));
        turn.set(quantity::HOST_WORK, came.worked.map(each));
        turn.set(quantity::THROUGHPUT, Some(real(tokens) * 1e9 / real(came.took.as_nanos().max(1))));
        turn.set(quantity::REQUEST, came.server.request_ns());
        turn.set(quantity::LATE_WAKES, came.late_wakes.share());
        turn.late(came.late_ns);
        Ok(turn)
    })
}

/// Serves until all is done. Every arm does the same but for the wait.
async fn serve<D: Device>(
    device: &D,
    waiter: &Waiter<'_, D>,
    arm: &Arm,
    mut server: Server,
    learned: &mut Learned,
) -> Result<Served, Error> {
    let clock = device.clock();
    let began = clock.now();
    let after = |at: Instant| at.since(began);
    let (mut worked, mut late_ns, mut late_wakes) = (Some(Nanos::ZERO), Vec::new(), LateWakes::default());
    loop {
        match server.next(after(clock.now())) {
            Next::Over => break,
            Next::Idle(until) => clock.sleep_until(began + until),
            Next::Step(step) => {
                let launched = device.launch(step.length)?;
                // While the device works: what is to be done for the tokens of the step before.
                let before = cpu();
                work(&step);
                let used = cpu().zip(before).map(|(now, then)| now - then);
                worked = worked.zip(used).map(|(sum, used)| sum + used);
                let known = waiter.wait(arm, step.rows, &learned.point(&step)).await?;
                server.stepped(after(known.at));
                late_wakes.count(known);
                if device.tells_ends_freely() {
                    late_ns.push(since(known.at, device.ended(&launched, known.at)?));
                }
            }
        }
    }
    Ok(Served { server, took: after(clock.now()), worked, late_ns, late_wakes })
}

/// The host's own work, the same amount for the same rows.
fn work(step: &Step) {
    let mut state = step.rows;
    for _ in 0..WORK + WORK_ROW * step.rows {
        state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

//! Suite `wake`: from the end of a kernel to the thread that waits for it.

use std::io::Write;

use wakeline_benches::gpu::Failure;
use wakeline_core::{Error, Nanos};

use crate::args::Budget;
use crate::bench::Bench;
use crate::output::{HEAD, Output, Told};
use crate::samples::Samples;
use crate::ways::{ARMS, Arm, Waiter, Way};

/// How long kernels are, microseconds, with the part of the time that each length gets, percent: for as many waits of the long ones
/// as tell of one in a hundred.
const LENGTHS_US: [(u64, u64); 4] = [(20, 8), (100, 8), (1_000, 22), (5_000, 62)];

/// What a wait takes beside the kernel, roughly, microseconds: launches, and comparing the clocks.
const OVERHEAD_US: u64 = 60;

/// How many waits an arm does before those that count: more than a plan's window.
const WARM_UPS: u32 = 10;

pub(crate) fn wake(output: &mut Output<impl Write>, bench: &Bench, budget: &Budget) -> Result<(), Failure> {
    output.line(HEAD)?;
    for (length_us, percent) in LENGTHS_US {
        let arms: Vec<&Arm> = ARMS.iter().filter(|arm| arm.least_us <= length_us).collect();
        let round_us = (length_us + OVERHEAD_US) * u64::from(budget.waits()) * arms.len() as u64;
        let rounds = budget.rounds(percent, round_us);
        let length = Nanos::from_micros(length_us);
        let (samples, waiters) = measure(bench, &arms, length, rounds, budget.waits())?;
        output.line(&format!("wake: kernels of {length_us} us, {rounds} rounds"))?;
        let driver = arms.iter().position(|arm| arm.way == Way::Synchronize);
        for (index, (arm, waiter)) in arms.iter().zip(&waiters).enumerate() {
            let told = Told {
                bench,
                case: format!("wake {length_us} us"),
                length,
                arm: arm.name,
                base: arms[0].name,
                plan: arm.way.plan(),
                beside: samples.beside(index, 0),
                driver: driver.map(|driver| samples.beside(index, driver)),
                cpu_percent: None,
                confirmations: waiter.confirmations(),
            };
            output.arm(told)?;
        }
    }
    Ok(())
}

fn measure(
    bench: &Bench,
    arms: &[&Arm],
    length: Nanos,
    rounds: u64,
    waits: u32,
) -> Result<(Samples, Vec<Waiter>), Error> {
    let waiters = arms.iter().map(|arm| Waiter::new(arm)).collect::<Result<Vec<_>, _>>()?;
    for waiter in &waiters {
        for _ in 0..WARM_UPS {
            waiter.wait(bench, length)?;
        }
        waiter.begin();
    }
    let mut samples = Samples::new(arms.len());
    for _ in 0..rounds {
        samples.round(|arm| (0..waits).map(|_| waiters[arm].wait(bench, length)).collect())?;
    }
    Ok((samples, waiters))
}

//! Check `churn`: threads make, use and drop streams, lines and ports at once; nothing crashes, and nothing is left.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;
use wakeline_benches::gpu::{Failure, Gpu, Host, PLANS, learned};
use wakeline_core::{CompletionPort, Error, Nanos, WaitPlan};
use wakeline_cuda::CuStream;

use crate::args::Check;
use crate::output::{Output, Verdict};
use crate::own::{LOST, Own, joined, share};

/// How many threads do it at once.
const THREADS: u64 = 16;

/// How long closing the context may take: until the last store has landed.
const CLOSE: Duration = Duration::from_secs(20);

/// What was left.
#[derive(Clone, Copy, Debug, Serialize)]
struct Left {
    waits: u64,
    drop_failures: u64,
    slots_lost: usize,
    pages_made: u64,
    pages_freed: u64,
}

pub(crate) fn churn(output: &mut Output<impl Write>, gpu: &Gpu, turns: u64) -> Result<(), Failure> {
    let before = gpu.cuda().census().counts();
    let own = Own::new(gpu)?;
    let shared = own.context.stream()?;
    let threads = std::thread::scope(|scope| {
        let turn = |index| {
            let (own, shared) = (&own, &shared);
            scope.spawn(move || turn_often(own, shared, index, share(turns, index, THREADS)))
        };
        joined((0..THREADS).map(turn).collect())
    })?;
    drop(shared);
    let Own { kernels, context } = own;
    drop(kernels);
    let slots_lost = context.slots().lost;
    let closed = context.close(CLOSE);
    let after = gpu.cuda().census().counts();
    let left = Left {
        waits: threads.into_iter().sum(),
        drop_failures: after.drop_failures - before.drop_failures,
        slots_lost,
        pages_made: after.pages_made - before.pages_made,
        pages_freed: after.pages_freed - before.pages_freed,
    };
    let broken = closed.err().map(|error| format!("the context does not close: {error}"));
    output.tell(Verdict {
        check: Check::Churn,
        name: format!("{THREADS} threads, streams, lines and ports"),
        count: turns,
        broken: broken.or_else(|| left.broken()),
        detail: left,
    })?;
    Ok(())
}

impl Left {
    fn broken(&self) -> Option<String> {
        let Self { drop_failures, slots_lost, pages_made, pages_freed, .. } = *self;
        if drop_failures > 0 {
            return Some(format!("{drop_failures} calls failed in drops"));
        }
        if slots_lost > 0 {
            return Some(format!("{slots_lost} words cannot be used again"));
        }
        (pages_made != pages_freed).then(|| format!("of {pages_made} pages {pages_freed} were freed"))
    }
}

/// So many turns of one thread; how many waits there were.
fn turn_often(own: &Own, shared: &CuStream, thread: u64, turns: u64) -> Result<u64, Error> {
    let plans = PLANS.map(str::parse::<WaitPlan>);
    let plans = plans.into_iter().collect::<Result<Vec<_>, _>>()?;
    let point = learned(&WaitPlan::poll(), Nanos::ZERO);
    let mut waits = 0;
    for turn in 0..turns {
        let mine = own.context.stream_with_priority(-i32::try_from(turn % 3).unwrap_or(0))?;
        let stream = if (thread + turn).is_multiple_of(3) { shared } else { &mine };
        if turn.is_multiple_of(4) {
            own.kernels.occupy(stream, Nanos::from_nanos(turn * 7_919 % 50_000))?;
        }
        let mut port = stream.port()?;
        match (thread * 7 + turn) % 5 {
            // Never armed, or armed and let go of at once.
            0 => drop(port),
            1 => drop(stream.armed_port()?),
            // The line outlives its port and its stream.
            2 => {
                port.arm()?;
                let line = port.descriptor().cloned();
                drop((port, mine));
                let _ = line.is_some_and(|word| word.reached());
            }
            way => {
                let plan = &plans[usize::try_from((turn + way) % PLANS.len() as u64).unwrap_or_default()];
                Host::Inline.wait(plan, port, &point, LOST)?;
                waits += 1;
            }
        }
    }
    Ok(waits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_left_does_not_hold() {
        let good = Left { waits: 9, drop_failures: 0, slots_lost: 0, pages_made: 2, pages_freed: 2 };
        assert_eq!(good.broken(), None);
        assert!(Left { drop_failures: 1, ..good }.broken().is_some());
        assert!(Left { slots_lost: 1, ..good }.broken().is_some());
        assert!(Left { pages_freed: 1, ..good }.broken().is_some());
    }
}

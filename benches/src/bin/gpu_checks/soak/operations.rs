//! Tasks that await operations: tensors, kernels on them, branches, shared ones, gates and graphs, each result judged by what its numbers must be.
//!
//! Their futures are awaited at once or late, told late, dropped and forgotten at any moment, ended by deadlines and tokens. Memory that was freed or handed
//! to others too early shows as wrong numbers, in theirs or in those of others.

use core::future::poll_fn;
use core::pin::Pin;
use core::task::Poll;
use std::sync::Arc;

use wakeline_benches::draws::Draws;
use wakeline_core::{CancelToken, Clock, Error, ErrorCode, Nanos};
use wakeline_cuda::{CudaDevice, CudaRuntime};
use wakeline_ops::port::Priority;
use wakeline_ops::{DeviceFuture, DeviceOp, Graph, all, gate, zip};
use wakeline_std::StdClock;
use wakeline_tensor::Tensor;

use super::load::{LATE_MAX, Load, Stop, Tally};
use super::raw::affine;
use crate::own::LOST;

/// What waits for operations are counted as, beside the plans.
const PLAN: &str = "operations";
const GRAPHS: &str = "graphs";

/// How many numbers a tensor has, at most.
const LEN_MAX: u64 = 4_096;

/// How many tensors a task keeps.
const KEPT_MAX: usize = 4;

/// How long a deadline is, at most, and how long a gate stays closed.
const DEADLINE_NS_MAX: u64 = 300_000;
const CLOSED: Nanos = Nanos::from_millis(200);

/// After how many launches a graph is made anew.
const LAUNCHES_A_GRAPH: u32 = 64;

type Numbers = Tensor<u32, CudaDevice>;

/// One task: one operation after another, until it is told to stop.
pub(super) async fn operates(load: &Load, runtime: &CudaRuntime, name: &str, task: u64) {
    let mut tally = Tally::default();
    let draws = Draws::new(load.seed, task);
    let mut program = Program { load, runtime, name, draws, kept: Vec::new(), graph: None };
    let result = program.works(&mut tally).await;
    load.ended(&format!("{name}, operations {task}"), tally, result);
}

/// A tensor, and what each of its numbers is.
struct Kept(Numbers, u32);

/// A graph that changes two tensors, with what they hold.
struct Changes {
    graph: Graph<CudaDevice>,
    pair: [Kept; 2],
    launches: u32,
}

struct Program<'l> {
    load: &'l Load,
    runtime: &'l CudaRuntime,
    name: &'l str,
    draws: Draws,
    kept: Vec<Kept>,
    graph: Option<Changes>,
}

impl Program<'_> {
    async fn works(&mut self, tally: &mut Tally) -> Result<(), Stop> {
        while self.load.goes_on() {
            match self.draws.between(0, 9) {
                0 | 1 => self.sends(tally).await?,
                2 => self.changes(tally).await?,
                3 => self.copies(tally).await?,
                4 => self.branches(tally).await?,
                5 => self.shares(tally).await?,
                6 => self.waits_at_a_gate(tally).await?,
                7 | 8 => self.launches(tally).await?,
                _ => self.looks(tally).await?,
            }
            if self.kept.len() > KEPT_MAX {
                // Perhaps with work in flight.
                drop(self.kept.swap_remove(0));
            }
        }
        Ok(())
    }

    fn number(&mut self) -> u32 {
        u32::try_from(self.draws.between(1, 1 << 20)).unwrap_or(1)
    }

    fn len(&mut self) -> usize {
        usize::try_from(self.draws.between(1, LEN_MAX)).unwrap_or(1)
    }

    /// Runs an operation in one of the ways there are: its output, where there is one.
    async fn ends<O>(&mut self, op: O, tally: &mut Tally) -> Result<Option<<O as DeviceOp>::Output>, Stop>
    where
        O: DeviceOp<Device = CudaDevice>,
        DeviceFuture<O>: Unpin,
    {
        let mut future = op.on(self.runtime);
        let (token, clock) = (self.runtime.cancel_token(), StdClock::new());
        let begun = clock.now();
        let way = self.draws.between(0, 15);
        match way {
            0 => {
                drop(future);
                tally.ended("dropped");
                return Ok(None);
            }
            1 | 2 => {
                // Where it has ended, its output goes as well.
                drop(once(&mut future).await);
                if way == 1 {
                    drop(future);
                } else {
                    core::mem::forget(future);
                }
                tally.ended(if way == 1 { "dropped" } else { "forgotten" });
                return Ok(None);
            }
            3 => return self.judged(future.sync(), (begun, None), PLAN, tally),
            4 => {
                let within = Nanos::from_nanos(self.draws.between(0, DEADLINE_NS_MAX));
                let result = future.timeout(within).await;
                return self.judged(result, (begun, Some(within)), PLAN, tally);
            }
            5 | 6 => {
                let token = if way == 5 { token } else { CancelToken::new() };
                let mut future = future.cancelled_by(&token);
                let first = once(&mut future).await;
                token.cancel();
                let result = match first {
                    Poll::Ready(result) => result,
                    Poll::Pending => future.await,
                };
                return self.judged(result, (begun, Some(Nanos::ZERO)), PLAN, tally);
            }
            7 => future = future.late_us(500),
            8 => {
                // Submitted, and left alone for longer than it takes.
                if let Poll::Ready(result) = once(&mut future).await {
                    return self.judged(result, (begun, None), PLAN, tally);
                }
                let until = clock.now() + Nanos::from_micros(self.draws.between(0, 300));
                while clock.now() < until {
                    std::thread::yield_now();
                }
            }
            _ => {}
        }
        // None that is lost is waited for without an end.
        let result = future.deadline(begun + LOST).await;
        self.judged(result, (begun, None), PLAN, tally)
    }

    /// Judges how an operation ended; `limit` where it had a deadline, or a token.
    fn judged<T>(
        &self,
        result: Result<T, Error>,
        (begun, limit): (wakeline_core::Instant, Option<Nanos>),
        plan: &str,
        tally: &mut Tally,
    ) -> Result<Option<T>, Stop> {
        let took = StdClock::new().now().since(begun);
        self.load.count();
        tally.count(self.name, plan, took);
        match (result, limit) {
            (Ok(output), _) => {
                tally.ended("done");
                Ok(Some(output))
            }
            (Err(error), Some(within))
                if matches!(error.code(), ErrorCode::Timeout | ErrorCode::Cancelled) && took >= within =>
            {
                let timed = error.code() == ErrorCode::Timeout;
                tally.ended(if timed { "timed out" } else { "cancelled" });
                let past = Nanos::from_nanos(took.as_nanos() - within.as_nanos());
                tally.beyond_deadline_us = tally.beyond_deadline_us.max(past.as_micros());
                if past > LATE_MAX {
                    return Err(Stop::Broken(format!("an operation ended {past} after its deadline")));
                }
                Ok(None)
            }
            (Err(error), _) if error.code() == ErrorCode::Timeout => {
                Err(Stop::Broken(format!("an operation is lost: {error}")))
            }
            (Err(error), _) => Err(Stop::Error(error)),
        }
    }

    /// Awaits it to its end, for it changes what is kept.
    async fn awaited<O>(&self, op: O, plan: &str, tally: &mut Tally) -> Result<<O as DeviceOp>::Output, Stop>
    where
        O: DeviceOp<Device = CudaDevice>,
    {
        let begun = StdClock::new().now();
        let result = op.on(self.runtime).deadline(begun + LOST).await;
        let output = self.judged(result, (begun, None), plan, tally)?;
        output.ok_or_else(|| Stop::Broken("an operation without limits ended by one".to_owned()))
    }

    /// Numbers to the device and back.
    async fn sends(&mut self, tally: &mut Tally) -> Result<(), Stop> {
        let (first, len) = (self.number(), self.len());
        let numbers: Vec<u32> = (first..).take(len).collect();
        let op = Tensor::from_host(numbers.clone()).then(|tensor: Numbers| tensor.to_host());
        match self.ends(op, tally).await? {
            Some(read) if read != numbers => {
                Err(Stop::Broken(format!("of {len} numbers sent others came back")))
            }
            _ => Ok(()),
        }
    }

    /// A kernel on numbers that were sent.
    async fn changes(&mut self, tally: &mut Tally) -> Result<(), Stop> {
        let (number, len) = (self.number(), self.len());
        let kernel = self.load.affine.clone();
        let op = Tensor::from_host(vec![number; len])
            .then(move |tensor: Numbers| affine(&kernel, &tensor, (3, 1)).map(move |()| tensor));
        if let Some(tensor) = self.ends(op, tally).await? {
            self.kept.push(Kept(tensor, number * 3 + 1));
        }
        Ok(())
    }

    /// From one of those that are kept over another.
    async fn copies(&mut self, tally: &mut Tally) -> Result<(), Stop> {
        let len = self.len();
        let number = self.number();
        let op = Tensor::full(len, number).then(move |from: Numbers| {
            let from = Arc::new(from);
            Tensor::full(len, 0).then(move |to: Numbers| from.copy_to(to))
        });
        if let Some(tensor) = self.ends(op, tally).await? {
            self.kept.push(Kept(tensor, number));
        }
        Ok(())
    }

    /// Changes what two streams read, and reads both.
    async fn branches(&mut self, tally: &mut Tally) -> Result<(), Stop> {
        let (number, len) = (self.number(), self.len());
        let kernel = self.load.affine.clone();
        let op = Tensor::from_host(vec![number; len]).arc().then(move |from: Arc<Numbers>| {
            let again = Arc::clone(&from);
            let changed = Tensor::full(len, 0)
                .then(move |to| again.copy_to(to))
                .then(move |tensor: Numbers| affine(&kernel, &tensor, (2, 1)).map(move |()| tensor));
            zip!(changed, all([from.to_host(), from.to_host()]))
        });
        if let Some((tensor, reads)) = self.ends(op, tally).await? {
            reads.iter().try_for_each(|read| is_all(read, number, len))?;
            self.kept.push(Kept(tensor, number * 2 + 1));
        }
        Ok(())
    }

    /// A shared operation, several times.
    async fn shares(&mut self, tally: &mut Tally) -> Result<(), Stop> {
        let (number, len) = (self.number(), self.len());
        let shared = Tensor::<u32, CudaDevice>::full(len, number).shared();
        for _ in 0..3 {
            let read = shared.clone().then(|tensor: Arc<Numbers>| tensor.to_host());
            if let Some(read) = self.ends(read, tally).await? {
                is_all(&read, number, len)?;
            }
        }
        Ok(())
    }

    /// Behind a gate that is opened, or dropped, or never.
    async fn waits_at_a_gate(&mut self, tally: &mut Tally) -> Result<(), Stop> {
        let (number, len) = (self.number(), self.len());
        let clock = StdClock::new();
        let made = clock.now();
        let (handle, opened) = gate(CLOSED)?;
        let op = opened.then(move |()| Numbers::full(len, number)).then(|tensor: Numbers| tensor.to_host());
        let mut future = op.on(self.runtime);
        let begun = clock.now();
        let first = once(&mut future).await;
        if self.draws.between(0, 3) == 0 {
            // Dropped, the gate says so to who waits behind it.
            drop((handle, future));
            tally.ended("dropped");
            return Ok(());
        }
        let opened = handle.open();
        // Of a task that was not polled for so long its deadline has opened it.
        let is_late = clock.now().since(made) >= CLOSED;
        let result = match first {
            Poll::Ready(result) => result,
            Poll::Pending => future.deadline(begun + LOST).await,
        };
        let timed_out = |error: &Error| error.code() == ErrorCode::GateTimedOut;
        if is_late && (opened.as_ref().is_err_and(timed_out) || result.as_ref().is_err_and(timed_out)) {
            tally.ended("opened late");
            return Ok(());
        }
        opened?;
        match self.judged(result, (begun, None), PLAN, tally)? {
            Some(read) => is_all(&read, number, len),
            None => Ok(()),
        }
    }

    /// Launches a graph, and makes it where there is none.
    async fn launches(&mut self, tally: &mut Tally) -> Result<(), Stop> {
        let mut changes = match self.graph.take() {
            Some(changes) => changes,
            None => self.captured(tally).await?,
        };
        self.awaited(changes.graph.launch(), GRAPHS, tally).await?;
        for (Kept(_, number), factor) in changes.pair.iter_mut().zip([3, 5]) {
            *number = number.wrapping_mul(factor).wrapping_add(1);
        }
        changes.launches += 1;
        if changes.launches.is_multiple_of(8) {
            let [one, two] = &changes.pair;
            let reads = self.awaited(zip!(one.0.to_host(), two.0.to_host()), PLAN, tally).await?;
            is_all(&reads.0, one.1, one.0.len())?;
            is_all(&reads.1, two.1, two.0.len())?;
        }
        if changes.launches < LAUNCHES_A_GRAPH {
            self.graph = Some(changes);
            return Ok(());
        }
        // The last launch is under way when all of it goes.
        let mut last = changes.graph.launch().on(self.runtime);
        drop(once(&mut last).await);
        tally.ended("dropped");
        Ok(())
    }

    async fn captured(&mut self, tally: &mut Tally) -> Result<Changes, Stop> {
        let (number, len, kernel) = (self.number(), self.len(), self.load.affine.clone());
        let two = zip!(Numbers::full(len, number), Numbers::full(len, number));
        let (one, two) = self.awaited(two, PLAN, tally).await?;
        let step = |tensor: &Numbers, factor| affine(&kernel, tensor, (factor, 1));
        let stream = self.runtime.stream(Priority::Normal)?;
        let graph = zip!(step(&one, 3), step(&two, 5)).map(drop).graph_on(&stream)?;
        Ok(Changes { graph, pair: [Kept(one, number), Kept(two, number)], launches: 0 })
    }

    /// Changes one of those that are kept, in place, and reads it.
    async fn looks(&mut self, tally: &mut Tally) -> Result<(), Stop> {
        let Some(Kept(tensor, number)) = self.kept.pop() else { return Ok(()) };
        self.awaited(affine(&self.load.affine, &tensor, (7, 3)), PLAN, tally).await?;
        let number = number.wrapping_mul(7).wrapping_add(3);
        let read = self.awaited(tensor.to_host(), PLAN, tally).await?;
        is_all(&read, number, tensor.len())
    }
}

/// One poll, by whoever is awake.
async fn once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context))).await
}

fn is_all(read: &[u32], number: u32, len: usize) -> Result<(), Stop> {
    let other = read.iter().find(|read| **read != number);
    if read.len() == len && other.is_none() {
        return Ok(());
    }
    Err(Stop::Broken(format!("{len} numbers should be {number}: {} were read, also {other:?}", read.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_numbers_and_fewer_do_not_hold() {
        is_all(&[7, 7], 7, 2).unwrap();
        assert!(is_all(&[7, 8], 7, 2).is_err() && is_all(&[7], 7, 2).is_err());
    }
}

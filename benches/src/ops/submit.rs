//! What an operation costs the host until its first poll is over, beside the calls that it makes.

use core::future::poll_fn;
use core::pin::Pin;
use core::task::Poll;

use serde::Serialize;
use wakeline_core::{Clock, Error, Nanos};
use wakeline_ops::DeviceOp;

use super::{Bench, Machine};
use crate::Interval;
use crate::Paired;

/// How many are submitted one behind the other, and how long each takes: the first is not done when the last is submitted, and all have places in a
/// device's queue.
const TIMES: usize = 64;
const LENGTH: Nanos = Nanos::from_micros(500);

/// What submitting took.
#[derive(Clone, Debug, Serialize)]
pub struct Submitted {
    /// `submit`.
    pub case: &'static str,
    /// See [`Machine::NAME`].
    pub device: &'static str,
    /// `raw`: a launch, and a store of a word; else an operation, built, submitted and polled once.
    pub arm: &'static str,
    /// How many rounds there were, and how many each submitted.
    pub rounds: usize,
    /// See [`Submitted::rounds`].
    pub times: usize,
    /// For one, the median of the rounds.
    pub p50_ns: u64,
    /// By the raw calls, paired by round.
    pub ratio: Option<Interval>,
}

impl<M: Machine> Bench<M> {
    /// Submits operations by hand and by the device's own calls, in turns.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub fn submits(&self, rounds: usize) -> Result<Vec<Submitted>, Error> {
        const ARMS: [&str; 2] = ["raw", "await"];
        let run = |arm: usize| if arm == 0 { self.raw_submits() } else { self.op_submits() };
        // What is to be learned, and what is slow the first time.
        for arm in 0..ARMS.len() {
            run(arm)?;
        }
        let mut paired = Paired::new(ARMS.len());
        for _ in 0..rounds {
            paired.round(|arm| Ok::<_, Error>(run(arm)?.as_nanos() / TIMES as u64))?;
        }
        let told = |(arm, name): (usize, &&'static str)| {
            let mut costs: Vec<u64> = paired.costs(arm).collect();
            costs.sort_unstable();
            Submitted {
                case: "submit",
                device: M::NAME,
                arm: name,
                rounds: paired.rounds(),
                times: TIMES,
                p50_ns: super::quantile(&costs, 50),
                ratio: paired.ratio(arm, 0),
            }
        };
        Ok(ARMS.iter().enumerate().map(told).collect())
    }

    fn raw_submits(&self) -> Result<Nanos, Error> {
        self.machine.raw_submits(self.stream.raw(), LENGTH, TIMES, &self.clock)
    }

    fn op_submits(&self) -> Result<Nanos, Error> {
        self.current.block_on(async {
            let mut flying = Vec::with_capacity(TIMES);
            let before = self.clock.now();
            for _ in 0..TIMES {
                let mut op = self.work(LENGTH).on(&self.runtime);
                match poll_fn(|context| Poll::Ready(Pin::new(&mut op).poll(context))).await {
                    Poll::Ready(ended) => ended?,
                    Poll::Pending => flying.push(op),
                }
            }
            let took = self.clock.now().since(before);
            for op in flying {
                op.await?;
            }
            Ok(took)
        })
    }
}

//! Batches: requests that come within a window go to the device together.
//!
//! ```text
//!   handlers ──try_send──► queue ──► one task: first, window, slot ──spawn──► a task a batch ──► handlers
//!              full: 503             (a slot for each batch in flight)        one operation
//! ```
//!
//! A batch is open from its first request's arrival on until the window is over or it is full. While no slot is free it stays open, so that under load batches grow
//! instead of the queue. The window is timed by the watcher, to microseconds: tokio's own timer rounds up to a millisecond.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use wakeline::{Clock, Error, Nanos, Timer};
use wakeline_tokio::TokioWatcher;

use crate::metrics::Metrics;
use crate::model::{Model, OUTPUTS};

/// A request that waits for its result.
#[derive(Debug)]
pub struct Job {
    /// Its numbers.
    pub input: Vec<f32>,
    /// When it came.
    pub arrived: Instant,
    /// Whoever waits; nobody any more where it is closed.
    pub reply: oneshot::Sender<Result<Done, Error>>,
}

/// Its result.
#[derive(Debug)]
pub struct Done {
    /// Its numbers.
    pub output: Vec<f32>,
    /// How many requests were in its batch.
    pub rows: u32,
}

/// Makes batches of jobs.
#[derive(Debug)]
pub struct Batcher<M> {
    /// What computes them.
    pub model: Arc<M>,
    /// Where they are counted.
    pub metrics: Arc<Metrics>,
    /// The timer of windows.
    pub timer: TokioWatcher,
    /// How long a batch is open.
    pub window: Nanos,
    /// The most jobs of a batch.
    pub batch_max: usize,
    /// One for each batch that may be in flight.
    pub slots: Arc<Semaphore>,
}

impl<M: Model> Batcher<M> {
    /// Until the queue is closed and empty.
    pub async fn run(self, mut queue: mpsc::Receiver<Job>) {
        while let Some(first) = queue.recv().await {
            let window = pin!(self.timer.sleep_until(self.timer.now() + self.left(&first)));
            let mut batch = vec![first];
            self.fill(&mut batch, &mut queue, window).await;
            let mut slot = pin!(Arc::clone(&self.slots).acquire_owned());
            let slot = match self.fill(&mut batch, &mut queue, slot.as_mut()).await {
                Some(slot) => slot,
                None => slot.await,
            };
            // There are none any more: the server ends.
            let Ok(slot) = slot else { return };
            // Those that nobody waits for any more would be computed for nothing.
            batch.retain(|job| !job.reply.is_closed());
            if !batch.is_empty() {
                tokio::spawn(infer(Arc::clone(&self.model), Arc::clone(&self.metrics), batch, slot));
            }
        }
    }

    /// How long the batch of this first request is still open.
    fn left(&self, first: &Job) -> Nanos {
        let age = u64::try_from(first.arrived.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.window - Nanos::from_nanos(age)
    }

    /// Puts what comes into the batch until `until` resolves; or it is full, or the queue has ended, which is none.
    async fn fill<F: Future>(
        &self,
        batch: &mut Vec<Job>,
        queue: &mut mpsc::Receiver<Job>,
        mut until: Pin<&mut F>,
    ) -> Option<F::Output> {
        while batch.len() < self.batch_max {
            let room = self.batch_max - batch.len();
            // What is there already goes with it, also where the time is over.
            tokio::select! {
                biased;
                more = queue.recv_many(batch, room) => if more == 0 { return None },
                output = &mut until => return Some(output),
            }
        }
        None
    }
}

/// Has a batch computed, and answers its requests. The slot is free again behind it.
async fn infer<M: Model>(model: Arc<M>, metrics: Arc<Metrics>, batch: Vec<Job>, _slot: OwnedSemaphorePermit) {
    let rows = u32::try_from(batch.len()).unwrap_or(u32::MAX);
    let numbers = batch.iter().flat_map(|job| job.input.iter().copied()).collect();
    let begun = Instant::now();
    metrics.batch_begins(rows);
    let outcome = model.infer(numbers, rows).await;
    metrics.batch_ends(begun, &outcome);
    // Who has left meanwhile needs no answer.
    match outcome {
        Ok(output) => {
            for (job, output) in batch.into_iter().zip(output.chunks(OUTPUTS)) {
                let _ = job.reply.send(Ok(Done { output: output.to_vec(), rows }));
            }
        }
        Err(error) => {
            for job in batch {
                let _ = job.reply.send(Err(error.clone()));
            }
        }
    }
}

//! The model: a matrix product, of a batch of rows by weights that stay on the device.
//!
//! [`infer`](Model::infer) is what an inference server does with wakeline: numbers of the host become a tensor, a kernel reads it, what it wrote comes back, and a task of
//! tokio's awaits all of that as one operation.

#![allow(clippy::many_single_char_names, reason = "as in c = a * b, of m by k and k by n numbers")]

use std::future::Future;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use wakeline::ops::port::Launch;
use wakeline::ops::{DeviceOp, Runtime};
use wakeline::tensor::{Tensor, kernel};
use wakeline::{Error, ErrorCode, Nanos};

use crate::cpu::Meter;

/// The weights' rows and columns.
const WEIGHTS: [u32; 2] = [16, 4];
/// How many numbers a request has.
pub const INPUTS: usize = WEIGHTS[0] as usize;
/// How many numbers its result has.
pub const OUTPUTS: usize = WEIGHTS[1] as usize;

/// How long the weights may take to the device.
const START_MS_MAX: u64 = 10_000;

kernel! {
    /// `c = a * b`, of `m` by `k` and `k` by `n` numbers, row by row.
    pub struct Matmul(out c: [f32], in a: [f32], in b: [f32], m: u32, k: u32, n: u32)
    where
        m as usize * n as usize <= c.len(),
        m as usize * k as usize <= a.len(),
        k as usize * n as usize <= b.len();
}

/// The same in CUDA C, for any number of blocks and threads.
pub(crate) const SOURCE: &str = r#"
extern "C" __global__ void matmul(float *c, const float *a, const float *b, unsigned m, unsigned k, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < m * n; i += gridDim.x * blockDim.x) {
        float sum = 0.0f;
        for (unsigned j = 0; j < k; j++) sum += a[i / n * k + j] * b[j * n + i % n];
        c[i] = sum;
    }
}
"#;

/// The same on the host: what the simulated device computes, and who has no device.
pub(crate) fn matmul(c: &mut [f32], a: &[f32], b: &[f32], [m, k, n]: [usize; 3]) {
    for (row, to) in a.chunks_exact(k).zip(c.chunks_exact_mut(n)).take(m) {
        to.fill(0.0);
        for (factor, of_b) in row.iter().zip(b.chunks_exact(n)) {
            to.iter_mut().zip(of_b).for_each(|(to, b)| *to += factor * b);
        }
    }
}

/// What is to be learned from data elsewhere: small whole numbers of either sign, row by row.
pub fn weights() -> Vec<f32> {
    let weight = |at: usize| [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0][(at * at + 3 * at) % 7];
    (0..INPUTS * OUTPUTS).map(weight).collect()
}

/// What computes batches.
pub trait Model: Send + Sync + 'static {
    /// The results of `rows` requests, row by row as they came.
    fn infer(&self, numbers: Vec<f32>, rows: u32) -> impl Future<Output = Result<Vec<f32>, Error>> + Send;

    /// Resolves when nothing is in flight any more.
    fn drain(&self, within: Nanos) -> impl Future<Output = Result<(), Error>> + Send;
}

/// The model on a device.
#[derive(Debug)]
pub struct OnDevice<D: Launch> {
    runtime: Runtime<D>,
    matmul: Matmul<D>,
    weights: Arc<Tensor<f32, D>>,
    hung: Nanos,
    meter: Arc<Meter>,
}

impl<D: Launch> OnDevice<D> {
    /// Sends the weights there, within 10 s. A batch that takes longer than `hung` is awaited no longer; the waiting of tasks goes to `meter`.
    ///
    /// # Errors
    ///
    /// The device's fault.
    pub async fn new(
        runtime: Runtime<D>,
        matmul: Matmul<D>,
        hung: Nanos,
        meter: Arc<Meter>,
    ) -> Result<Self, Error> {
        let start = Nanos::from_millis(START_MS_MAX);
        let weights = Tensor::from_host(weights()).on(&runtime).timeout(start).await?;
        Ok(Self { runtime, matmul, weights: Arc::new(weights), hung, meter })
    }

    /// What runs its operations.
    pub fn runtime(&self) -> &Runtime<D> {
        &self.runtime
    }
}

impl<D: Launch> Model for OnDevice<D> {
    async fn infer(&self, numbers: Vec<f32>, rows: u32) -> Result<Vec<f32>, Error> {
        let (input, result) = (Tensor::from_host(numbers), Tensor::uninit(rows as usize * OUTPUTS));
        let weights = Arc::clone(&self.weights);
        let [inputs, outputs] = WEIGHTS;
        let op = self.matmul.call(result, input, weights, rows, inputs, outputs);
        let op = op.then(|(result, ..)| result.to_host());
        // How long it takes is learned by the size of the batch. The time-out ends the awaiting; what the device may still touch lives on.
        let key = u64::from(rows.next_power_of_two());
        self.meter.time(op.on(&self.runtime).keyed(key).timeout(self.hung)).await
    }

    async fn drain(&self, within: Nanos) -> Result<(), Error> {
        self.runtime.drain(within).await
    }
}

/// No device: a thread of tokio's for such calls sleeps for as long. To compare with.
#[derive(Debug)]
pub struct Asleep {
    weights: Vec<f32>,
    step: Duration,
}

impl Asleep {
    /// It sleeps for so long a batch.
    pub fn new(step: Nanos) -> Self {
        Self { weights: weights(), step: Duration::from_nanos(step.as_nanos()) }
    }
}

impl Model for Asleep {
    async fn infer(&self, numbers: Vec<f32>, rows: u32) -> Result<Vec<f32>, Error> {
        let step = self.step;
        let slept = tokio::task::spawn_blocking(move || thread::sleep(step)).await;
        slept.map_err(|error| Error::new(ErrorCode::Backend, [&"tokio", &"sleeping", &error]))?;
        let mut result = vec![0.0; rows as usize * OUTPUTS];
        matmul(&mut result, &numbers, &self.weights, [rows as usize, INPUTS, OUTPUTS]);
        Ok(result)
    }

    async fn drain(&self, _within: Nanos) -> Result<(), Error> {
        Ok(())
    }
}

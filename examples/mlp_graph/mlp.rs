//! The layers: kernels, weights, the pass on a device and on the host.

#![allow(clippy::many_single_char_names, reason = "as in c = a * b, of m by k and k by n numbers")]

use std::sync::Arc;

use wakeline::ops::port::Launch;
use wakeline::ops::{Boxed, DeviceOp};
use wakeline::tensor::{Tensor, kernel};
use wakeline::{Error, ErrorCode};

kernel! {
    /// `c = a * b`, of `m` by `k` and `k` by `n` numbers, row by row.
    pub(crate) struct Matmul(out c: [f32], in a: [f32], in b: [f32], m: u32, k: u32, n: u32)
    where
        m as usize * n as usize <= c.len(),
        m as usize * k as usize <= a.len(),
        k as usize * n as usize <= b.len();
}

kernel! {
    /// Adds `bias` to each row of `y`; and what is below zero becomes zero where `relu` is not 0.
    pub(crate) struct Bias(inout y: [f32], in bias: [f32], rows: u32, columns: u32, relu: u32)
    where rows as usize * columns as usize <= y.len(), columns as usize <= bias.len();
}

/// The numbers along each side of a tile.
pub(crate) const TILE: u32 = 16;

/// Both in CUDA C. Of the product, a block computes a tile at a time, with tiles of both factors in shared memory, by 256 threads; with fewer it is wrong, and touches nothing else.
pub(crate) const SOURCE: &str = r#"
#define TILE 16

extern "C" __global__ void matmul(float *c, const float *a, const float *b, unsigned m, unsigned k, unsigned n) {
    __shared__ float of_a[TILE][TILE];
    __shared__ float of_b[TILE][TILE];
    unsigned across = (n + TILE - 1) / TILE, tiles = across * ((m + TILE - 1) / TILE);
    unsigned y = threadIdx.x / TILE % TILE, x = threadIdx.x % TILE;
    for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        unsigned row = tile / across * TILE + y, column = tile % across * TILE + x;
        float sum = 0.0f;
        for (unsigned step = 0; step < k; step += TILE) {
            of_a[y][x] = row < m && step + x < k ? a[(size_t)row * k + step + x] : 0.0f;
            of_b[y][x] = step + y < k && column < n ? b[(size_t)(step + y) * n + column] : 0.0f;
            __syncthreads();
            for (unsigned i = 0; i < TILE; i++) {
                sum += of_a[y][i] * of_b[i][x];
            }
            __syncthreads();
        }
        if (row < m && column < n) {
            c[(size_t)row * n + column] = sum;
        }
    }
}

extern "C" __global__ void add_bias(float *y, const float *bias, unsigned rows, unsigned columns, unsigned relu) {
    size_t count = (size_t)rows * columns;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (size_t)blockDim.x) {
        float sum = y[i] + bias[i % columns];
        y[i] = relu && sum < 0.0f ? 0.0f : sum;
    }
}
"#;

/// `c = a * b` on the host.
pub(crate) fn matmul(c: &mut [f32], a: &[f32], b: &[f32], [m, k, n]: [usize; 3]) {
    for (row, to) in a.chunks_exact(k).zip(c.chunks_exact_mut(n)).take(m) {
        to.fill(0.0);
        for (factor, of_b) in row.iter().zip(b.chunks_exact(n)) {
            to.iter_mut().zip(of_b).for_each(|(to, b)| *to += factor * b);
        }
    }
}

/// What [`Bias`] does, on the host.
pub(crate) fn add_bias(y: &mut [f32], bias: &[f32], [rows, columns]: [usize; 2], relu: bool) {
    for row in y.chunks_exact_mut(columns).take(rows) {
        for (y, bias) in row.iter_mut().zip(bias) {
            *y = if relu { (*y + bias).max(0.0) } else { *y + bias };
        }
    }
}

/// What a product gives back: where it was written, and the first factor.
pub(crate) type Product<D> = Boxed<D, (Tensor<f32, D>, Tensor<f32, D>)>;

/// A way to make matrix products.
pub(crate) trait Products<D: Launch>: Clone + Send + 'static {
    fn name(&self) -> String;

    /// `c = a * b`, of `m` by `k` and `k` by `n` numbers.
    fn product(
        &self,
        c: Tensor<f32, D>,
        a: Tensor<f32, D>,
        b: Arc<Tensor<f32, D>>,
        dims: [u32; 3],
    ) -> Product<D>;
}

/// By the kernel above.
pub(crate) struct Tiled<D: Launch>(pub(crate) Matmul<D>);

impl<D: Launch> Clone for Tiled<D> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<D: Launch> Products<D> for Tiled<D> {
    fn name(&self) -> String {
        "a tiled kernel of ours".to_owned()
    }

    fn product(
        &self,
        c: Tensor<f32, D>,
        a: Tensor<f32, D>,
        b: Arc<Tensor<f32, D>>,
        [m, k, n]: [u32; 3],
    ) -> Product<D> {
        self.0.call(c, a, b, m, k, n).map(|(c, a, ..)| (c, a)).boxed()
    }
}

/// How large all is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Rows of a batch.
    pub(crate) rows: u32,
    pub(crate) inputs: u32,
    pub(crate) hidden: u32,
    pub(crate) outputs: u32,
}

/// Small numbers of either sign, which a seed tells apart.
fn numbers(seed: u32, count: u32) -> Vec<f32> {
    let number = |at: u32| {
        let mixed = (at ^ seed.wrapping_mul(0x9E37_79B9)).wrapping_mul(0x85EB_CA6B);
        f32::from(u16::try_from(mixed >> 16).unwrap_or(0)) / 65_536.0 - 0.5
    };
    (0..count).map(number).collect()
}

impl Sizes {
    /// The inputs of a pass.
    pub(crate) fn batch(&self, pass: u32) -> Vec<f32> {
        numbers(100 + pass, self.rows * self.inputs)
    }

    /// Weights and bias of both layers.
    fn weights(&self) -> [Vec<f32>; 4] {
        let counts = [self.inputs * self.hidden, self.hidden, self.hidden * self.outputs, self.outputs];
        [1, 2, 3, 4].map(|seed| numbers(seed, counts[seed as usize - 1]))
    }
}

/// What changes from pass to pass.
pub(crate) struct State<D: Launch> {
    pub(crate) input: Tensor<f32, D>,
    hidden: Tensor<f32, D>,
    pub(crate) output: Tensor<f32, D>,
}

/// What does not.
pub(crate) struct Layers<D: Launch, P> {
    sizes: Sizes,
    products: P,
    bias: Bias<D>,
    on_host: [Vec<f32>; 4],
    weights: [Arc<Tensor<f32, D>>; 4],
}

impl<D: Launch, P: Products<D>> Layers<D, P> {
    pub(crate) async fn new(sizes: Sizes, products: P, bias: Bias<D>) -> Result<Self, Error> {
        let on_host = sizes.weights();
        let [first, second, third, fourth] = on_host.clone().map(Tensor::from_host);
        let weights = [first.await?, second.await?, third.await?, fourth.await?].map(Arc::new);
        Ok(Self { sizes, products, bias, on_host, weights })
    }

    /// What a pass reads and writes. A graph allocates nothing: so all of it is there before.
    pub(crate) async fn state(&self) -> Result<State<D>, Error> {
        let Sizes { rows, inputs, hidden, outputs } = self.sizes;
        let zeros = |columns| Tensor::zeros([rows as usize, columns as usize]);
        Ok(State { input: zeros(inputs).await?, hidden: zeros(hidden).await?, output: zeros(outputs).await? })
    }

    /// A pass: awaited as it is, or recorded.
    pub(crate) fn forward(
        &mut self,
        state: State<D>,
    ) -> impl DeviceOp<Device = D, Pending = State<D>, Output = State<D>> + use<D, P> {
        let Sizes { rows, inputs, hidden: middle, outputs } = self.sizes;
        let [weights, bias, next_weights, next_bias] = self.weights.clone();
        let (adds, adds_next, products) = (self.bias.clone(), self.bias.clone(), self.products.clone());
        let State { input, hidden, output } = state;
        let first = self.products.product(hidden, input, weights, [rows, inputs, middle]);
        first
            .then(move |(hidden, input)| {
                adds.call(hidden, bias, rows, middle, 1).map(move |(hidden, ..)| (hidden, input))
            })
            .then(move |(hidden, input)| {
                let product = products.product(output, hidden, next_weights, [rows, middle, outputs]);
                product.map(move |(output, hidden)| (output, hidden, input))
            })
            .then(move |(output, hidden, input)| {
                let last = adds_next.call(output, next_bias, rows, outputs, 0);
                last.map(move |(output, ..)| State { input, hidden, output })
            })
    }

    /// That a pass gave what the host gives.
    pub(crate) fn check(&self, pass: u32, output: &[f32], tolerance: f32) -> Result<(), Error> {
        let [rows, inputs, middle, outputs] =
            [self.sizes.rows, self.sizes.inputs, self.sizes.hidden, self.sizes.outputs].map(|it| it as usize);
        let [weights, bias, next_weights, next_bias] = &self.on_host;
        let (mut hidden, mut wanted) = (vec![0.0; rows * middle], vec![0.0; rows * outputs]);
        matmul(&mut hidden, &self.sizes.batch(pass), weights, [rows, inputs, middle]);
        add_bias(&mut hidden, bias, [rows, middle], true);
        matmul(&mut wanted, &hidden, next_weights, [rows, middle, outputs]);
        add_bias(&mut wanted, next_bias, [rows, outputs], false);
        let is_near = |(got, wanted): (&f32, &f32)| (got - wanted).abs() <= tolerance * wanted.abs().max(1.0);
        if output.len() == wanted.len() && output.iter().zip(&wanted).all(is_near) {
            return Ok(());
        }
        let wrong = format!("pass {pass} gave other numbers than the host");
        Err(Error::new(ErrorCode::Backend, [&self.products.name(), &"a forward pass", &wrong]))
    }
}

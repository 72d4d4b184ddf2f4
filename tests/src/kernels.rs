//! Typed kernels that every device has: closures on the simulated one, on the stand-in and on a GPU by CUDA C, or PTX where there is no compiler for that.

use wakeline_tensor::kernel;

kernel! {
    /// `z = a * x + y`, of `n` numbers, rounded once.
    pub struct Saxpy(out z: [f32], a: f32, in x: [f32], in y: [f32], n: u32)
    where n as usize <= z.len(), n as usize <= x.len(), n as usize <= y.len();
}

kernel! {
    /// Each of so many numbers becomes itself times the factor plus the addend, by their low halves.
    pub struct Affine(inout numbers: [u32], count: u64, factor: u64, addend: u64)
    where count <= numbers.len() as u64;
}

/// [`Saxpy`] in CUDA C, for any grid and block in one dimension.
pub const SAXPY_CUDA: &str = r#"
extern "C" __global__ void saxpy(float *z, float a, const float *x, const float *y, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        z[i] = a * x[i] + y[i];
    }
}
"#;

//! A context of one's own: what goes wrong in it goes wrong in no other.

use wakeline_core::{Error, ErrorCode, Nanos};
use wakeline_cuda::kernels::Kernels;
use wakeline_cuda::{ContextConfig, CudaContext, Ordinal};

use wakeline_benches::gpu::Gpu;

/// How long a wait may take before it counts as lost.
pub(crate) const LOST: Nanos = Nanos::from_millis(20_000);

/// A context beside the primary one, with kernels.
pub(crate) struct Own {
    pub(crate) kernels: Kernels,
    pub(crate) context: CudaContext,
}

impl Own {
    pub(crate) fn new(gpu: &Gpu) -> Result<Self, Error> {
        let context = CudaContext::create(gpu.cuda(), Ordinal(0), &ContextConfig::default())?;
        let kernels = Kernels::load(&context)?;
        Ok(Self { kernels, context })
    }
}

/// Whether a wait that ended like this was lost: its end was never told.
pub(crate) fn is_lost(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::Timeout | ErrorCode::StoreLost)
}

/// What threads came to; the error of one that failed.
pub(crate) fn joined<T>(
    threads: Vec<std::thread::ScopedJoinHandle<'_, Result<T, Error>>>,
) -> Result<Vec<T>, Error> {
    let ended = threads.into_iter().map(|thread| match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    });
    ended.collect()
}

/// The part of `all` that thread number `index` of `threads` does.
pub(crate) fn share(all: u64, index: u64, threads: u64) -> u64 {
    all / threads + u64::from(index < all % threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for all in [0, 1, 15, 16, 17, 100_000] {
            assert_eq!((0..16).map(|index| share(all, index, 16)).sum::<u64>(), all);
        }
    }
}

//! Collectives of CUDA devices: NCCL, as one of the libraries that `wakeline_mapped` knows.

pub use wakeline_mapped::BareRanks;
use wakeline_mapped::{CollectiveLibrary, CollectiveVendor};

use crate::cuda::Cuda;

/// NCCL, NVIDIA's library of collectives, loaded: `libnccl.so.2`, from where the system looks for libraries. The one that a wheel of `nvidia-nccl` brings is named by its path.
///
/// ```
/// use wakeline_core::ErrorCode;
/// use wakeline_cuda::Nccl;
/// match Nccl::load(wakeline_std::on_a_thread) {
///     Ok(nccl) => println!("NCCL {}", nccl.version()),
///     Err(error) => assert_eq!(error.code(), ErrorCode::CollectivesMissing),
/// }
/// ```
///
/// The GPUs of one process as ranks, awaited on any runtime:
///
/// ```no_run
/// use wakeline_cuda::{Cuda, CudaDevice, CudaRuntime, Nccl, Ordinal};
/// use wakeline_ops::port::Reduce;
/// use wakeline_ops::{CollectiveConfig, DeviceOp, Ranks, StreamPoolRoundRobin};
/// use wakeline_std::{Point, Watcher};
/// use wakeline_tensor::Tensor;
///
/// # async fn run() -> Result<(), wakeline_core::Error> {
/// let (cuda, watcher) = (Cuda::load()?, Watcher::new()?);
/// let runtime = |ordinal| {
///     let tender = watcher.handle().tender(&Point::new("ops"));
///     CudaRuntime::new(CudaDevice::new(&cuda, Ordinal(ordinal))?, &StreamPoolRoundRobin::default(), tender)
/// };
/// let runtimes = [runtime(0)?, runtime(1)?];
/// let nccl = Nccl::load(wakeline_std::on_a_thread)?;
/// let ranks = Ranks::of(&nccl, &runtimes, CollectiveConfig::default()).await?;
/// let gradients = [0, 1].map(|rank: usize| Tensor::<f32, _>::randn(1 << 20, rank as u64).on(&runtimes[rank]));
/// let [one, other] = gradients;
/// let sums = ranks.all_reduce(vec![one.await?, other.await?], Reduce::Avg).await?;
/// # let _ = sums;
/// # Ok(()) }
/// ```
pub type Nccl = CollectiveLibrary<Cuda>;

impl CollectiveVendor for Cuda {
    const COLLECTIVES: &'static str = "NCCL";
    const COLLECTIVE_LIBRARIES: &'static [&'static str] = &["libnccl.so.2"];
    const LOADS_EARLY: &'static str = "CUDA_MODULE_LOADING=EAGER in the environment of the process";
}

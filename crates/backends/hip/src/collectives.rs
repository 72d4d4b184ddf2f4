//! Collectives of HIP devices: RCCL, which has NCCL's interface, as one of the libraries that `wakeline_mapped` knows.

use wakeline_mapped::{CollectiveLibrary, CollectiveVendor};

use crate::hip::Hip;

/// RCCL, AMD's library of collectives, loaded: `librccl.so.1`, from where the system looks for libraries. Never run on hardware.
///
/// A stream waits for its rank's part as for a gate, which HIP documents for memory of its own kind alone: try gates out first.
///
/// ```
/// use wakeline_core::ErrorCode;
/// use wakeline_hip::Rccl;
/// match Rccl::load(wakeline_std::on_a_thread) {
///     Ok(rccl) => println!("RCCL {}", rccl.version()),
///     Err(error) => assert_eq!(error.code(), ErrorCode::CollectivesMissing),
/// }
/// ```
pub type Rccl = CollectiveLibrary<Hip>;

impl CollectiveVendor for Hip {
    const COLLECTIVES: &'static str = "RCCL";
    const COLLECTIVE_LIBRARIES: &'static [&'static str] = &["librccl.so.1"];
    const LOADS_EARLY: &'static str = "HIP_ENABLE_DEFERRED_LOADING=0 in the environment of the process";
}

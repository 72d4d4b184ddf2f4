//! The A/B runs of wakeline with arms of other libraries: see `README.md`.
//!
//! | file | whose arms |
//! |---|---|
//! | `theirs.rs` | cudarc's, and the stream that all work is launched on |
//! | `cuda_async.rs` | cuda-async's, with the feature `cuda-async` |

#[cfg(feature = "cuda-async")]
mod cuda_async;
mod theirs;

use std::cell::OnceCell;
use std::path::Path;
use std::process::ExitCode;

use wakeline_benches::ab::device::{CudaBench, RawWay};
use wakeline_benches::ab::run::{self, Peers};
use wakeline_benches::gpu::{Failure, Gpu};
use wakeline_core::Error;

use theirs::Theirs;

/// The libraries of which there are arms.
#[derive(Debug, Default)]
struct Libraries {
    cudarc: OnceCell<Theirs>,
}

impl Peers for Libraries {
    fn open(&self, driver: Option<&Path>) -> Result<CudaBench, Failure> {
        // First, since it says why there is no driver where cudarc would panic.
        let gpu = Gpu::open(driver)?;
        let (theirs, stream) = Theirs::open(gpu.cuda())?;
        // It is opened once.
        let _ = self.cudarc.set(theirs);
        Ok(CudaBench::on(gpu, &stream)?)
    }

    fn ways<'d>(&self, device: &'d CudaBench) -> Result<Vec<Box<dyn RawWay + 'd>>, Error> {
        let mut ways: Vec<Box<dyn RawWay + 'd>> = Vec::new();
        if let Some(theirs) = self.cudarc.get() {
            ways.extend(theirs.ways()?);
        }
        #[cfg(feature = "cuda-async")]
        ways.extend(cuda_async::ways(device)?);
        let _ = device;
        Ok(ways)
    }
}

fn main() -> ExitCode {
    run::main("bench_peers", std::env::args_os().skip(1), &Libraries::default())
}

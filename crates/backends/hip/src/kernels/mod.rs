//! Kernels for examples, tests and benches, as a source in HIP C: work of a given length, stores, and faults on purpose. With the feature `compile`.
//!
//! They are compiled for the device by HIPRTC when they are loaded. Never run on a device: see the README.
//!
//! | kernel | parameters | what it does |
//! |---|---|---|
//! | [`OCCUPY`] | nanoseconds | is busy for so long, at most 60 s |
//! | [`OCCUPY_UNTIL`] | a time | is busy until the device's clock shows it, 60 s at most |
//! | [`STORE_WORD`] | address, value, nanoseconds | is busy, then stores the value with a fence of the whole system before it |
//! | [`STAMP`] | address | stores the device's time in nanoseconds |
//! | [`AFFINE`] | address, count, factor, addend | of so many `u32`, each becomes itself times the factor plus the addend |
//! | [`TRAP`], [`ASSERT_FAILS`] | none | traps |
//! | [`ILLEGAL_ADDRESS`] | none | stores where nothing is mapped |
//! | [`SAXPY`] | `(float *z, float a, const float *x, const float *y, unsigned n)` | of `n` numbers, `z = a * x + y`, rounded once |

use std::path::PathBuf;

use wakeline_core::Error;
use wakeline_mapped::compile::CompileOptions;
use wakeline_mapped::driver::KernelDriver;
use wakeline_mapped::{Context, Module};

use crate::compile::Compiler;
use crate::hip::Hip;

pub use wakeline_mapped::work::{
    AFFINE, ASSERT_FAILS, Fault, ILLEGAL_ADDRESS, OCCUPY, OCCUPY_UNTIL, STAMP, STORE_WORD, TRAP,
};

/// The kernels, loaded for a device.
pub type Kernels = wakeline_mapped::Kernels<Hip>;

/// All of the kernels: one source.
pub const SOURCE: &str = include_str!("kernels.hip");

/// Of `n` numbers, `z = a * x + y`, rounded once.
pub const SAXPY: &str = "saxpy";

impl KernelDriver for Hip {
    /// By the compiler in the library itself, where it is a part of that, and else by the one that [`Hiprtc::load`](crate::Hiprtc) finds.
    fn kernels(context: &Context<Self>) -> Result<Module<Self>, Error> {
        let of_library = Compiler::at(PathBuf::from(context.driver().library()));
        let compiler = if of_library.library().is_ok() { of_library } else { Compiler::new() };
        Ok(Module::from_source(context, &compiler, SOURCE, &CompileOptions::new())?.kept())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_a_kernel_of_the_source_and_each_kernel_has_a_name() {
        let names =
            [OCCUPY, OCCUPY_UNTIL, STORE_WORD, STAMP, AFFINE, TRAP, ILLEGAL_ADDRESS, ASSERT_FAILS, SAXPY];
        for name in names {
            assert!(SOURCE.contains(&format!("extern \"C\" __global__ void {name}(")), "{name}");
        }
        assert_eq!(SOURCE.matches("__global__").count(), names.len());
    }
}

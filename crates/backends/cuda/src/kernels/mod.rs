//! Kernels for examples, tests and benches, as text: work of a given length, stores, and faults on purpose.
//!
//! They are written by hand in the driver's own assembly language, so that nothing is needed to build them, and are compiled by the
//! driver when they are loaded. Any device of compute capability 7.0 on runs them. All of their parameters are `u64`.
//!
//! | kernel | parameters | what it does |
//! |---|---|---|
//! | [`OCCUPY`] | nanoseconds | is busy for so long, at most 60 s |
//! | [`OCCUPY_UNTIL`] | a time | is busy until the device's clock shows it, 60 s at most |
//! | [`STORE_WORD`] | address, value, nanoseconds | is busy, then stores the value with a fence of the whole system before it |
//! | [`STAMP`] | address | stores the device's time in nanoseconds |
//! | [`TIMED_STEP`] | two addresses | is busy for as many nanoseconds as stand at the first, then stores the device's time at the second |
//! | [`TIMED_STORE`] | three addresses, value | the same, then stores the value at the third with a fence before it |
//! | [`AFFINE`] | address, count, factor, addend | of so many `u32`, each becomes itself times the factor plus the addend |
//! | [`TRAP`] | none | traps: `CUDA_ERROR_LAUNCH_FAILED` (719) |
//! | [`ILLEGAL_ADDRESS`] | none | stores where nothing is mapped: `CUDA_ERROR_ILLEGAL_ADDRESS` (700) |
//! | [`ASSERT_FAILS`] | none | fails an assertion: `CUDA_ERROR_ASSERT` (710), and the driver prints it |
//!
//! [`SAXPY`] is in a text of its own, and takes what a kernel in CUDA C of that name would.
//!
//! [`Kernels`] launches them without an `unsafe` of the caller's, [`TimedSteps`] steps of work that tell when they ended.
//!
//! ```no_run
//! use wakeline_core::Nanos;
//! use wakeline_cuda::{Cuda, kernels::Kernels};
//!
//! let context = Cuda::load()?.context(0)?;
//! let stream = context.stream()?;
//! Kernels::load(&context)?.occupy(&stream, Nanos::from_millis(1))?;
//! # Ok::<(), wakeline_core::Error>(())
//! ```

mod steps;

pub use steps::TimedSteps;
pub use wakeline_mapped::work::{
    AFFINE, ASSERT_FAILS, Fault, ILLEGAL_ADDRESS, OCCUPY, OCCUPY_UNTIL, STAMP, STORE_WORD, TRAP,
};

use crate::cuda::Cuda;

/// The kernels, loaded into a context.
pub type Kernels = wakeline_mapped::Kernels<Cuda>;

/// All of the kernels: one module's text.
pub const PTX: &str = include_str!("kernels.ptx");

/// A text of its own, with [`SAXPY`]: for where there is no run-time compiler.
pub const SAXPY_PTX: &str = include_str!("saxpy.ptx");

/// Of `n` numbers, `z = a * x + y`, rounded once: `(float *z, float a, const float *x, const float *y, unsigned n)`. Any grid and block in one dimension.
pub const SAXPY: &str = "saxpy";

/// Busy for the nanoseconds at `length`, then stores the device's time at `end`: `(length, end)`. One thread.
pub const TIMED_STEP: &str = "timed_step";

/// As [`TIMED_STEP`], then a fence and a store of `value`: `(length, end, address, value)`. One thread.
pub const TIMED_STORE: &str = "timed_store";

#[cfg(test)]
mod tests {
    use super::*;

    /// By the device's time, before their loops: the other clock ends them only where that stands still, and after minutes.
    #[test]
    fn what_keeps_a_thread_busy_does_so_for_a_minute_at_most() {
        for name in [OCCUPY, OCCUPY_UNTIL] {
            let (_, text) = PTX.split_once(&format!(".visible .entry {name}(")).unwrap();
            let (before, _) = text.split_once("BUSY:").unwrap();
            assert!(before.contains("60000000000;") && before.contains("min.u64"), "{name}");
        }
    }

    #[test]
    fn each_name_is_an_entry_of_the_text_and_each_entry_has_a_name() {
        let names = [
            OCCUPY,
            OCCUPY_UNTIL,
            STORE_WORD,
            STAMP,
            TIMED_STEP,
            TIMED_STORE,
            AFFINE,
            TRAP,
            ILLEGAL_ADDRESS,
            ASSERT_FAILS,
        ];
        for name in names {
            assert!(PTX.contains(&format!(".visible .entry {name}(")), "{name}");
        }
        assert_eq!(PTX.matches(".entry ").count(), names.len());
    }

    #[test]
    fn the_text_is_what_the_drivers_compiler_reads() {
        for text in [PTX, SAXPY_PTX] {
            assert!(text.is_ascii(), "no other letters, in comments neither");
            let code = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("//"));
            assert_eq!(
                code.take(3).collect::<Vec<_>>(),
                [".version 6.0", ".target sm_70", ".address_size 64"]
            );
        }
        assert!(SAXPY_PTX.contains(&format!(".visible .entry {SAXPY}(")));
    }

    #[test]
    fn the_store_of_a_word_has_its_fence_right_before_it() {
        let lines: Vec<_> = PTX.lines().map(str::trim).collect();
        let behind = lines.windows(2).filter(|two| two[0] == "fence.acq_rel.sys;").map(|two| two[1]);
        let stores = ["st.relaxed.sys.u64 [%rd9], %rd10;", "st.relaxed.sys.u64 [%rd12], %rd13;"];
        assert_eq!(behind.collect::<Vec<_>>(), stores);
    }
}

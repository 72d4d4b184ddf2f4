//! What the tests over several crates share.
//!
//! | here | what |
//! |---|---|
//! | `conform.rs` | the script of waits that every pair of backend and host passes |
//! | `metal.rs` | a Metal device to test on: the fake |
//! | `crowds/` | crowds of waits in real time on any host, drawn from a seed and judged against the truth |
//! | `watching.rs` | devices in real time, ports that tell of their calls, for the tests of the watcher |
//! | `rig.rs` | a driver to test on: the stand-in, or the machine's own |
//! | `vendor.rs` | what tests have to know of whose driver it is |
//! | `ops_rig.rs` | a device of operations to test on: the simulated one, CUDA on the stand-in, CUDA on a GPU |
//! | `machine_rig.rs` | several devices to test on |
//! | `every_call.rs` | a program each of whose driver calls fails once, in each way |
//! | `kernels.rs` | typed kernels that every device has |
//! | `bin/crowds.rs` | runs many of these crowds |
//! | `tests/cases.rs` | failures from the field, each kept away by a test of its name |
//! | `tests/conformance.rs` | the same scripted waits on every pair of backend and host |
//! | `tests/TABLE.md` | which test keeps which promise |

pub mod conform;
pub mod crowds;
pub mod every_call;
pub mod kernels;
pub mod machine_rig;
pub mod metal;
pub mod ops_rig;
pub mod rig;
mod suite;
pub mod vendor;
pub mod watching;

/// The programs of the README and of each chapter of the guide are tests as well.
#[cfg(doctest)]
mod documents {
    macro_rules! documents {
        ($($name:ident: $path:literal),* $(,)?) => {$(
            #[doc = include_str!(concat!("../../", $path))]
            pub struct $name;
        )*};
    }

    documents! {
        Readme: "README.md",
        Contributing: "CONTRIBUTING.md",
        Guide: "guide/README.md",
        Backend: "guide/backend.md",
        Benchmarks: "guide/benchmarks.md",
        Collectives: "guide/collectives.md",
        Costs: "guide/costs.md",
        CustomOp: "guide/custom_op.md",
        Devices: "guide/devices.md",
        Fallbacks: "guide/fallbacks.md",
        Faults: "guide/faults.md",
        FromCudaAsync: "guide/from_cuda_async.md",
        FromCudarc: "guide/from_cudarc.md",
        FromGpuAsyncReactor: "guide/from_gpu_async_reactor.md",
        Graphs: "guide/graphs.md",
        Operations: "guide/operations.md",
        Plans: "guide/plans.md",
        Runtimes: "guide/runtimes.md",
        Tensors: "guide/tensors.md",
        Tested: "guide/tested.md",
        Testing: "guide/testing.md",
        Waiting: "guide/waiting.md",
    }
}

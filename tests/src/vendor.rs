//! A vendor's driver, as far as tests have to know which it is: how it is loaded, what its calls and faults are called, what another context is.

#![allow(clippy::missing_errors_doc, clippy::missing_panics_doc, clippy::unwrap_used, reason = "for tests")]

use std::path::Path;

use wakeline_core::{Error, ErrorCode};
use wakeline_cuda::Cuda;
use wakeline_fake_driver::{Options, hip_name};
use wakeline_hip::Hip;
use wakeline_mapped::compile::CompileOptions;
use wakeline_mapped::driver::KernelDriver;
use wakeline_mapped::error::Kind;
use wakeline_mapped::{Context, ContextConfig, Counts, Fault, Function, GraphDriver, Module, Ordinal};

use crate::kernels::SAXPY_CUDA;

/// A vendor's driver.
pub trait Vendor: KernelDriver + GraphDriver {
    /// What tests on the stand-in and on a device are called: ("fake", "gpu").
    const ON: (&'static str, &'static str);

    /// How many ways in which a process ends are tried out.
    const EXITS: usize;

    /// The functions that begin and end a capture and destroy what was captured, as the library exports them.
    const CAPTURES: [&'static str; 3];

    /// Calls that are made, by CUDA's names, when the last handle of a [`context_beside`](Self::context_beside) is dropped.
    const ENDS: [&'static str; 6];

    /// Whether kernels that are loaded for good stay when their context goes, for it is the device.
    const MODULES_STAY: bool;

    /// The machine's own.
    fn load() -> Result<Self, Error>;

    /// The library in this file.
    fn load_from(path: &Path) -> Result<Self, Error>;

    /// What the library was loaded by.
    fn library(&self) -> String;

    /// What the stand-in needs, for a test.
    fn prepare(options: &mut Options);

    /// A context of its own on the first device.
    fn own_context(&self, config: &ContextConfig) -> Result<Context<Self>, Error>;

    /// Another context: a fault in one need not be one of the other.
    fn context_beside(&self, config: &ContextConfig) -> Result<Context<Self>, Error>;

    /// Its own name of a call of CUDA's, as errors have it.
    fn call(cuda: &'static str) -> &'static str;

    /// What it says of a fault.
    fn status(fault: Fault) -> &'static str;

    /// What a status means.
    fn kind(status: i32) -> Kind;

    /// A kernel for `z = a * x + y`, by the compiler in this file, or the machine's.
    fn saxpy(context: &Context<Self>, compiler: Option<&Path>) -> Function<Self>;

    /// What was counted.
    fn counts(&self) -> Counts {
        self.census().counts()
    }
}

impl Vendor for Cuda {
    const ON: (&'static str, &'static str) = ("fake", "gpu");
    const EXITS: usize = 20;
    const MODULES_STAY: bool = false;
    const CAPTURES: [&'static str; 3] = ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphDestroy"];
    const ENDS: [&'static str; 6] = [
        "cuStreamDestroy",
        "cuEventDestroy",
        "cuMemFreeHost",
        "cuCtxDestroy",
        "cuCtxSetCurrent",
        "cuCtxGetCurrent",
    ];

    fn load() -> Result<Self, Error> {
        Self::load()
    }

    fn load_from(path: &Path) -> Result<Self, Error> {
        Self::load_from(path)
    }

    fn library(&self) -> String {
        self.library().to_owned()
    }

    fn prepare(_: &mut Options) {}

    fn own_context(&self, config: &ContextConfig) -> Result<Context<Self>, Error> {
        Context::create(self, Ordinal(0), config)
    }

    fn context_beside(&self, config: &ContextConfig) -> Result<Context<Self>, Error> {
        Context::create(self, Ordinal(0), config)
    }

    fn call(cuda: &'static str) -> &'static str {
        cuda
    }

    fn status(fault: Fault) -> &'static str {
        match fault {
            Fault::Trap => "CUDA_ERROR_LAUNCH_FAILED (719)",
            Fault::IllegalAddress => "CUDA_ERROR_ILLEGAL_ADDRESS (700)",
            Fault::Assert => "CUDA_ERROR_ASSERT (710)",
        }
    }

    fn kind(status: i32) -> Kind {
        wakeline_cuda::kind(status)
    }

    /// From CUDA C, where there is a compiler.
    fn saxpy(context: &Context<Self>, compiler: Option<&Path>) -> Function<Self> {
        use wakeline_cuda::kernels::{SAXPY, SAXPY_PTX};
        let compiler = compiler.map_or_else(wakeline_cuda::Compiler::new, wakeline_cuda::Compiler::at);
        let mut module = Module::from_source(context, &compiler, SAXPY_CUDA, &CompileOptions::new());
        if let Some(error) = module.as_ref().err().filter(|error| error.code() == ErrorCode::CompilerMissing)
        {
            println!("skipped: no NVRTC: {error}");
            module = Module::from_ptx(context, SAXPY_PTX);
        }
        module.unwrap().kept().function(SAXPY).unwrap()
    }
}

/// A context is a device: another one is that of the second.
impl Vendor for Hip {
    const ON: (&'static str, &'static str) = ("hip", "amd");
    const EXITS: usize = 8;
    const MODULES_STAY: bool = true;
    const CAPTURES: [&'static str; 3] = ["hipStreamBeginCapture", "hipStreamEndCapture", "hipGraphDestroy"];
    const ENDS: [&'static str; 6] = [
        "cuStreamDestroy",
        "cuEventDestroy",
        "cuMemFreeHost",
        "cuDevicePrimaryCtxRelease",
        "cuCtxSetCurrent",
        "cuCtxGetCurrent",
    ];

    fn load() -> Result<Self, Error> {
        Self::load()
    }

    fn load_from(path: &Path) -> Result<Self, Error> {
        Self::load_from(path)
    }

    fn library(&self) -> String {
        self.library().to_owned()
    }

    fn prepare(options: &mut Options) {
        options.devices = 2;
    }

    fn own_context(&self, config: &ContextConfig) -> Result<Context<Self>, Error> {
        Context::primary(self, Ordinal(0), config)
    }

    fn context_beside(&self, config: &ContextConfig) -> Result<Context<Self>, Error> {
        Context::primary(self, Ordinal(1), config)
    }

    fn call(cuda: &'static str) -> &'static str {
        hip_name(cuda).unwrap_or(cuda)
    }

    fn status(fault: Fault) -> &'static str {
        match fault {
            Fault::Trap => "hipErrorLaunchFailure (719)",
            Fault::IllegalAddress => "hipErrorIllegalAddress (700)",
            Fault::Assert => "hipErrorAssert (710)",
        }
    }

    fn kind(status: i32) -> Kind {
        wakeline_hip::kind(status)
    }

    fn saxpy(context: &Context<Self>, _: Option<&Path>) -> Function<Self> {
        Self::kernels(context).unwrap().function(wakeline_hip::kernels::SAXPY).unwrap()
    }
}

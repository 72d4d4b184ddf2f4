//! Kernels from CUDA C, compiled while the program runs: NVRTC, as one of the compilers that `wakeline_mapped::compile` knows.

use core::ffi::CStr;

use wakeline_core::{Error, ErrorCode};
use wakeline_mapped::compile::{CompileOptions, Facts, Opt, RtcLibrary, RtcVendor, Target};
use wakeline_mapped::{Context, Module};

use crate::arch::Arch;
use crate::cuda::Cuda;
use crate::device::Device;
use crate::error::BACKEND;

/// Compiles sources in CUDA C for a device, and keeps what it made where it has a [`KernelCache`](wakeline_mapped::compile::KernelCache).
///
/// NVRTC is loaded when it is first needed. Its code is the machine code of the device, or, where NVRTC is older than the device's architecture, the newest PTX that
/// it can make, which the driver compiles when the module is loaded. It takes 50 ms and more where it compiles, and less than 1 ms where that was kept.
///
/// ```
/// use wakeline_core::ErrorCode;
/// use wakeline_cuda::{Arch, CompileOptions, Compiler};
/// let source = r#"extern "C" __global__ void twice(float *numbers) { numbers[threadIdx.x] *= 2; }"#;
/// match Compiler::new().compile(source, Arch::new(9, 0), &CompileOptions::new()) {
///     Ok(compiled) => println!("{} bytes", compiled.bytes()),
///     Err(error) if error.code() == ErrorCode::CompilerMissing => println!("no NVRTC here: {error}"),
///     Err(error) => return Err(error),
/// }
/// # Ok::<(), wakeline_core::Error>(())
/// ```
///
/// With a cache, and loaded at once:
///
/// ```no_run
/// use wakeline_cuda::{CompileOptions, Compiler, Cuda, KernelCache, Module};
/// let context = Cuda::load()?.context(0)?;
/// let compiler = Compiler::new().cached(&KernelCache::at("/var/cache/app/kernels")?);
/// let source = "template <typename T> __global__ void twice(T *numbers) { numbers[threadIdx.x] *= 2; }";
/// let module = Module::from_source(&context, &compiler, source, &CompileOptions::new().instance("twice<float>"))?;
/// let twice = module.function("twice<float>")?;
/// # let _ = twice;
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub type Compiler = wakeline_mapped::compile::Compiler<Cuda>;

/// What came of a source in CUDA C: machine code or PTX, not loaded yet.
pub type Compiled = wakeline_mapped::compile::Compiled<Cuda>;

/// NVRTC, the compiler of CUDA C, loaded: the first of `libnvrtc.so`, `libnvrtc.so.13`, `libnvrtc.so.12` and `libnvrtc.so.11.2` that the system finds; on Windows of
/// `nvrtc64_130_0.dll`, `nvrtc64_120_0.dll` and `nvrtc64_112_0.dll`. It needs no driver and no device. Loading it takes 3 to 20 ms, by its release.
///
/// ```
/// use wakeline_core::ErrorCode;
/// use wakeline_cuda::Nvrtc;
/// match Nvrtc::load() {
///     Ok(nvrtc) => println!("NVRTC {} knows {:?}", nvrtc.version(), nvrtc.archs()),
///     Err(error) => assert_eq!(error.code(), ErrorCode::CompilerMissing),
/// }
/// ```
pub type Nvrtc = RtcLibrary<Cuda>;

impl RtcVendor for Cuda {
    const COMPILER: &'static str = "NVRTC";
    const PREFIX: &'static str = "nvrtc";
    /// The one that a toolkit's installation chose, then the newest.
    const LIBRARIES: &'static [&'static str] = if cfg!(windows) {
        &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"]
    } else {
        &["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"]
    };
    const SINCE: &'static str = "of 11.2 or later";
    const MACHINE: &'static str = "CUBIN";
    const TEXT: Option<&'static str> = Some("PTX");
    const HAS_ARCHS: bool = true;
    const SOURCE: &'static str = "kernels.cu";
    const RESERVED: &'static [&'static str] = &[
        "-I",
        "--include-path",
        "-include",
        "--pre-include",
        "-pch",
        "--pch",
        "--gpu-architecture",
        "-arch",
    ];
    const TOOLKIT: &'static str = if cfg!(windows) { "" } else { "/usr/local/cuda" };

    type Arch = Arch;

    fn arch_of_number(number: u32) -> Arch {
        Arch::of_number(number)
    }

    fn arch(context: &Context<Self>) -> Result<Arch, Error> {
        let _bound = context.bind()?;
        let device = Device::current(context.driver()).map_err(|error| context.told(error))?;
        device.arch()
    }

    /// Machine code where the compiler knows the device's architecture, and else the newest PTX that it can make.
    fn target(device: &Arch, facts: &Facts, options: &CompileOptions) -> Result<Target, Error> {
        let known = facts.archs.contains(&device.number());
        let newest = facts.archs.iter().rev().find(|arch| Arch::of_number(**arch) <= *device);
        let number = device.number();
        let made = |text: String, is_machine_code| Ok(Target { text, is_machine_code });
        match (known, options.is_specific(), options.wants_ptx(), newest) {
            (true, true, true, _) => made(format!("compute_{number}a"), false),
            (true, true, false, _) => made(format!("sm_{number}a"), true),
            (true, false, false, _) => made(format!("sm_{number}"), true),
            (_, false, _, Some(newest)) => made(format!("compute_{newest}"), false),
            _ => {
                let compiler = format!("NVRTC {} ({})", facts.version, facts.path.display());
                let known: Vec<_> =
                    facts.archs.iter().map(|arch| Arch::of_number(*arch).to_string()).collect();
                Err(Error::new(ErrorCode::ArchUnsupported, [&BACKEND, &compiler, device, &known.join(", ")]))
            }
        }
    }

    fn written(option: Opt<'_>) -> Option<String> {
        Some(match option {
            Opt::Target(target) => format!("--gpu-architecture={target}"),
            Opt::Standard(standard) => format!("--std={}", standard.text()),
            Opt::Define(name, value) => format!("--define-macro={name}={value}"),
            Opt::FastMath => "--use_fast_math".to_owned(),
            Opt::LineInfo => "--generate-line-info".to_owned(),
            Opt::Registers(most) => format!("--maxrregcount={most}"),
            Opt::Folder(folder) => format!("--include-path={folder}"),
        })
    }

    fn load_text(
        context: &Context<Self>,
        text: &CStr,
        names: Vec<(String, String)>,
    ) -> Result<Module<Self>, Error> {
        Module::text_with(context, text, names)
    }
}

#[cfg(test)]
mod tests {
    use wakeline_mapped::compile::CompilerVersion;

    use super::*;

    fn chosen(device: (u32, u32), options: &CompileOptions) -> Result<String, Error> {
        let archs = vec![75, 80, 86, 90];
        let facts =
            Facts { version: CompilerVersion { major: 12, minor: 1 }, archs, path: "libnvrtc.so.12".into() };
        Cuda::target(&Arch::new(device.0, device.1), &facts, options).map(|target| target.text)
    }

    #[test]
    fn a_device_gets_machine_code_or_the_newest_text() {
        let plain = CompileOptions::new();
        assert_eq!(chosen((9, 0), &plain).unwrap(), "sm_90");
        assert_eq!(chosen((9, 0), &plain.clone().as_ptx()).unwrap(), "compute_90");
        assert_eq!(chosen((9, 0), &plain.clone().specific()).unwrap(), "sm_90a");
        assert_eq!(chosen((9, 0), &plain.clone().specific().as_ptx()).unwrap(), "compute_90a");
        // Newer than the compiler, and one of a generation that it left out.
        assert_eq!(chosen((12, 0), &plain).unwrap(), "compute_90");
        assert_eq!(chosen((8, 9), &plain).unwrap(), "compute_86");
    }

    #[test]
    fn what_the_compiler_cannot_do_is_told() {
        for (device, options) in
            [((7, 0), CompileOptions::new()), ((12, 0), CompileOptions::new().specific())]
        {
            let error = chosen(device, &options).unwrap_err();
            assert_eq!(error.code(), ErrorCode::ArchUnsupported);
            assert_eq!(error.args()[1..2], ["NVRTC 12.1 (libnvrtc.so.12)"]);
            assert_eq!(error.args()[3], "7.5, 8.0, 8.6, 9.0");
        }
    }

    #[test]
    fn a_compiler_that_is_not_there_names_what_was_tried() {
        let error = Compiler::at("no/such/libnvrtc.so").library().unwrap_err();
        assert_eq!(error.code(), ErrorCode::CompilerMissing);
        assert_eq!(error.args()[..2], ["cuda", "no/such/libnvrtc.so"]);
        assert_eq!(Compiler::at("").library().unwrap_err().args()[2], "a library has a name");
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn a_library_that_is_none_is_told_by_what_it_lacks() {
        let error = Nvrtc::load_from("libm.so.6").unwrap_err();
        assert_eq!(error.code(), ErrorCode::CompilerMissing);
        assert_eq!(error.args()[2], "libm.so.6 has no `nvrtcVersion`, as every NVRTC of 11.2 or later has");
    }

    #[test]
    fn each_option_is_written_as_the_compiler_takes_it() {
        let options = [
            Opt::Target("sm_90"),
            Opt::Standard(wakeline_mapped::compile::Standard::Cpp20),
            Opt::Define("N", "4"),
            Opt::FastMath,
            Opt::LineInfo,
            Opt::Registers(64),
            Opt::Folder("/a b"),
        ];
        assert_eq!(
            options.map(|option| Cuda::written(option).unwrap()),
            [
                "--gpu-architecture=sm_90",
                "--std=c++20",
                "--define-macro=N=4",
                "--use_fast_math",
                "--generate-line-info",
                "--maxrregcount=64",
                "--include-path=/a b",
            ]
        );
    }
}

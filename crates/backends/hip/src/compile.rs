//! Kernels from HIP C, compiled while the program runs: HIPRTC, as one of the compilers that `wakeline_mapped::compile` knows.

use core::ffi::CStr;

use wakeline_core::{Error, invalid_setting};
use wakeline_mapped::compile::{CompileOptions, Facts, Opt, RtcLibrary, RtcVendor, Target};
use wakeline_mapped::{Context, Module};

use crate::device::{Device, GfxArch};
use crate::hip::Hip;

/// Compiles sources in HIP C for a device, and keeps what it made where it has a [`KernelCache`](wakeline_mapped::compile::KernelCache).
///
/// ```
/// use wakeline_core::ErrorCode;
/// use wakeline_hip::{CompileOptions, Compiler, GfxArch};
/// let source = r#"extern "C" __global__ void twice(float *numbers) { numbers[threadIdx.x] *= 2; }"#;
/// match Compiler::new().compile(source, GfxArch::new("gfx90a"), &CompileOptions::new()) {
///     Ok(compiled) => println!("{} bytes", compiled.bytes()),
///     Err(error) if error.code() == ErrorCode::CompilerMissing => println!("no HIPRTC here: {error}"),
///     Err(error) => println!("a HIPRTC that does not do: {error}"),
/// }
/// ```
pub type Compiler = wakeline_mapped::compile::Compiler<Hip>;

/// What came of a source in HIP C, not loaded yet.
pub type Compiled = wakeline_mapped::compile::Compiled<Hip>;

/// HIPRTC, the compiler of HIP C, loaded: the first of `libhiprtc.so.7`, `.so.6`, `.so.5`, `libhiprtc.so` and, for releases in which it was a part of that,
/// `libamdhip64.so.5` that the system finds; on Windows of `hiprtc.dll` and `amdhip64.dll`.
pub type Hiprtc = RtcLibrary<Hip>;

impl RtcVendor for Hip {
    const COMPILER: &'static str = "HIPRTC";
    const PREFIX: &'static str = "hiprtc";
    const LIBRARIES: &'static [&'static str] = if cfg!(windows) {
        &["hiprtc.dll", "amdhip64.dll"]
    } else {
        &["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so", "libamdhip64.so.5"]
    };
    const SINCE: &'static str = "of 4.2 or later";
    const MACHINE: &'static str = "Code";
    const TEXT: Option<&'static str> = None;
    const HAS_ARCHS: bool = false;
    const SOURCE: &'static str = "kernels.hip";
    const RESERVED: &'static [&'static str] =
        &["-I", "-isystem", "-include", "--include", "-imacros", "--gpu-architecture", "--offload-arch"];
    const TOOLKIT: &'static str = if cfg!(windows) { "" } else { "/opt/rocm" };

    type Arch = GfxArch;

    fn arch_of_number(number: u32) -> GfxArch {
        GfxArch::new(format!("gfx{number}"))
    }

    fn arch(context: &Context<Self>) -> Result<GfxArch, Error> {
        let _bound = context.bind()?;
        let arch = Device::current(context.driver()).and_then(|device| device.gfx());
        arch.map_err(|error| context.told(error))
    }

    /// Machine code for the device, whatever it is: the compiler does not tell which it knows, and says so when it is asked for another.
    fn target(device: &GfxArch, _: &Facts, options: &CompileOptions) -> Result<Target, Error> {
        if options.wants_ptx() {
            return Err(invalid_setting(
                "a compiler's option",
                "as_ptx",
                "one that HIPRTC has: PTX is CUDA's",
            ));
        }
        // With the features that the device has settled, or for devices of that kind whatever they have.
        let text = if options.is_specific() { device.to_string() } else { device.processor().to_owned() };
        Ok(Target { text, is_machine_code: true })
    }

    fn written(option: Opt<'_>) -> Option<String> {
        match option {
            Opt::Target(target) => Some(format!("--gpu-architecture={target}")),
            Opt::Standard(standard) => Some(format!("-std={}", standard.text())),
            Opt::Define(name, value) => Some(format!("-D{name}={value}")),
            Opt::FastMath => Some("-ffast-math".to_owned()),
            Opt::LineInfo => Some("-gline-tables-only".to_owned()),
            Opt::Registers(_) => None,
            Opt::Folder(folder) => Some(format!("-I{folder}")),
        }
    }

    fn load_text(_: &Context<Self>, _: &CStr, _: Vec<(String, String)>) -> Result<Module<Self>, Error> {
        Err(invalid_setting("what a compiler made", "a text", "a code object"))
    }
}

#[cfg(test)]
mod tests {
    use wakeline_core::ErrorCode;
    use wakeline_mapped::compile::CompilerVersion;

    use super::*;

    #[test]
    fn a_device_gets_code_for_its_processor_or_for_just_itself() {
        let version = CompilerVersion { major: 6, minor: 4 };
        let facts = Facts { version, archs: Vec::new(), path: "libhiprtc.so.6".into() };
        let device = GfxArch::new("gfx90a:sramecc+:xnack-");
        let target = |options: &CompileOptions| Hip::target(&device, &facts, options);
        assert_eq!(target(&CompileOptions::new()).unwrap().text, "gfx90a");
        assert_eq!(target(&CompileOptions::new().specific()).unwrap().text, "gfx90a:sramecc+:xnack-");
        let error = target(&CompileOptions::new().as_ptx()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidSetting);
    }

    #[test]
    fn a_compiler_that_is_not_there_names_what_was_tried() {
        let error = Compiler::at("no/such/libhiprtc.so").library().unwrap_err();
        assert_eq!(error.code(), ErrorCode::CompilerMissing);
        assert_eq!(error.args()[..2], ["hip", "no/such/libhiprtc.so"]);
    }
}

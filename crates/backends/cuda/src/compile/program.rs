//! One compilation: from a source to an image, or to an error with what the compiler says.

use core::ffi::{CStr, c_char, c_int};
use core::ptr;
use std::ffi::CString;

use wakeline_core::{Error, ErrorCode};

use super::nvrtc::Nvrtc;
use super::sys::{NVRTC_ERROR_COMPILATION, NVRTC_SUCCESS, nvrtcProgram, nvrtcResult};
use crate::error::BACKEND;

/// How much of what a compiler says is kept, in bytes. What is left out is said.
pub const LOG_BYTES_MAX: usize = 16 << 10;

/// The most that a compiler is believed to have said or made, in bytes.
const OUTPUT_BYTES_MAX: usize = 1 << 30;

/// The folder that a source is said to be in. There is none of the name, so that nothing is included from where the program happens to be: the compiler looks
/// for headers beside a source, and in the current folder for one without.
const FOLDER: &str = "/<source>/";

/// What is to be compiled.
pub(super) struct Job<'a> {
    pub(super) name: &'a str,
    pub(super) source: &'a str,
    /// Headers that are there as texts, by the names that they are included by.
    pub(super) headers: &'a [(String, String)],
    pub(super) options: &'a [String],
    /// Instances of templates, as the source calls them.
    pub(super) instances: &'a [String],
    /// Whether the options ask for machine code.
    pub(super) machine_code: bool,
}

/// What came of it.
pub(super) struct Output {
    pub(super) image: Vec<u8>,
    /// Instances of templates, and what the module calls them.
    pub(super) names: Vec<(String, String)>,
    pub(super) log: String,
}

/// Destroys its program.
struct Program<'n> {
    nvrtc: &'n Nvrtc,
    raw: nvrtcProgram,
    name: &'n str,
}

/// Compiles.
///
/// # Errors
///
/// [`CompileFailed`](ErrorCode::CompileFailed) with the compiler's log.
pub(super) fn compile(nvrtc: &Nvrtc, job: &Job<'_>) -> Result<Output, Error> {
    let texts = |what: &str, text: &str| {
        CString::new(text).map_err(|_| {
            failed(job.name, "not compiled", &format!("{what} has a zero byte in it, which would end it"))
        })
    };
    let source = texts("the source", job.source)?;
    let name = texts("its name", &format!("{FOLDER}{}", job.name))?;
    let names =
        job.headers.iter().map(|(name, _)| texts("a header's name", name)).collect::<Result<Vec<_>, _>>()?;
    let headers =
        job.headers.iter().map(|(_, text)| texts("a header", text)).collect::<Result<Vec<_>, _>>()?;
    let options =
        job.options.iter().map(|option| texts("an option", option)).collect::<Result<Vec<_>, _>>()?;
    let instances =
        job.instances.iter().map(|name| texts("an instance", name)).collect::<Result<Vec<_>, _>>()?;

    let program = Program::new(nvrtc, job.name, &source, &name, &headers, &names)?;
    for instance in &instances {
        // SAFETY: the program is alive and not compiled yet, and the text ends with a zero.
        let result = unsafe { (nvrtc.functions().nvrtcAddNameExpression)(program.raw, instance.as_ptr()) };
        program.checked("nvrtcAddNameExpression", result)?;
    }
    let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let count = c_int::try_from(pointers.len()).unwrap_or(c_int::MAX);
    // SAFETY: the program is alive, and the options are as many texts that end with a zero.
    let result = unsafe { (nvrtc.functions().nvrtcCompileProgram)(program.raw, count, pointers.as_ptr()) };
    let log = program.log();
    if result != NVRTC_SUCCESS {
        let said = if log.is_empty() && result != NVRTC_ERROR_COMPILATION { "it says no more" } else { &log };
        return Err(failed(job.name, &nvrtc.called(result), said));
    }
    let names = job.instances.iter().zip(&instances);
    let names = names.map(|(name, instance)| Ok((name.clone(), program.lowered(instance)?)));
    let names = names.collect::<Result<Vec<_>, Error>>()?;
    let functions = nvrtc.functions();
    let image = if job.machine_code {
        program.output("nvrtcGetCUBIN", functions.nvrtcGetCUBINSize, functions.nvrtcGetCUBIN)?
    } else {
        program.output("nvrtcGetPTX", functions.nvrtcGetPTXSize, functions.nvrtcGetPTX)?
    };
    Ok(Output { image, names, log })
}

impl<'n> Program<'n> {
    fn new(
        nvrtc: &'n Nvrtc,
        shown: &'n str,
        source: &CStr,
        name: &CStr,
        headers: &[CString],
        names: &[CString],
    ) -> Result<Self, Error> {
        let pointers =
            |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<*const c_char>>();
        let (headers, names) = (pointers(headers), pointers(names));
        let count = c_int::try_from(headers.len()).unwrap_or(c_int::MAX);
        let mut program = Self { nvrtc, raw: ptr::null_mut(), name: shown };
        let create = nvrtc.functions().nvrtcCreateProgram;
        let raw = &raw mut program.raw;
        // SAFETY: `raw` is a handle's room; source, name and as many headers as names are texts that end with a zero, which are copied.
        let result =
            unsafe { create(raw, source.as_ptr(), name.as_ptr(), count, headers.as_ptr(), names.as_ptr()) };
        program.checked("nvrtcCreateProgram", result)?;
        Ok(program)
    }

    fn checked(&self, call: &str, result: nvrtcResult) -> Result<(), Error> {
        if result == NVRTC_SUCCESS {
            return Ok(());
        }
        let said = format!("{call} failed; {}", self.log());
        Err(failed(self.name, &self.nvrtc.called(result), said.trim_end_matches([' ', ';'])))
    }

    /// What the compiler says of it, up to [`LOG_BYTES_MAX`] bytes.
    fn log(&self) -> String {
        let functions = self.nvrtc.functions();
        if self.raw.is_null() {
            return String::new();
        }
        let read = self.bytes(functions.nvrtcGetProgramLogSize, functions.nvrtcGetProgramLog);
        let bytes = read.unwrap_or_default();
        let text = CStr::from_bytes_until_nul(&bytes)
            .map_or_else(|_| String::from_utf8_lossy(&bytes), CStr::to_string_lossy);
        bounded(&text.replace(FOLDER, ""))
    }

    fn lowered(&self, instance: &CStr) -> Result<String, Error> {
        let mut lowered = ptr::null();
        let ask = self.nvrtc.functions().nvrtcGetLoweredName;
        // SAFETY: the program is compiled, the text ends with a zero, and `lowered` is a pointer's room.
        let result = unsafe { ask(self.raw, instance.as_ptr(), &raw mut lowered) };
        self.checked("nvrtcGetLoweredName", result)?;
        if lowered.is_null() {
            return Err(failed(self.name, "nothing", "nvrtcGetLoweredName said success, but gave no name"));
        }
        // SAFETY: it is not null, so it is a text that ends with a zero and lives as long as the program.
        let lowered = unsafe { CStr::from_ptr(lowered) };
        Ok(lowered.to_string_lossy().into_owned())
    }

    fn output(&self, call: &'static str, size: Size, get: Get) -> Result<Vec<u8>, Error> {
        match self.bytes(size, get) {
            Ok(bytes) if bytes.is_empty() => {
                Err(failed(self.name, "nothing", &format!("{call} gave nothing")))
            }
            Ok(bytes) => Ok(bytes),
            Err(result) => self.checked(call, result).map(|()| Vec::new()),
        }
    }

    /// What one function gives, of the length that the other tells.
    fn bytes(&self, size: Size, get: Get) -> Result<Vec<u8>, nvrtcResult> {
        let mut len = 0;
        // SAFETY: the program is alive, and `len` a number's room.
        let result = unsafe { size(self.raw, &raw mut len) };
        if result != NVRTC_SUCCESS {
            return Err(result);
        }
        let mut bytes = vec![0_u8; len.min(OUTPUT_BYTES_MAX)];
        if bytes.is_empty() || bytes.len() < len {
            return Ok(Vec::new());
        }
        // SAFETY: the program is alive, and there is room for as much as the call before said.
        let result = unsafe { get(self.raw, bytes.as_mut_ptr().cast()) };
        if result == NVRTC_SUCCESS { Ok(bytes) } else { Err(result) }
    }
}

type Size = unsafe extern "C" fn(nvrtcProgram, *mut usize) -> nvrtcResult;
type Get = unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> nvrtcResult;

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the program was made here and is destroyed once. What is said of that helps nobody.
            let _ = unsafe { (self.nvrtc.functions().nvrtcDestroyProgram)(&raw mut self.raw) };
        }
    }
}

#[cold]
fn failed(name: &str, status: &str, log: &str) -> Error {
    Error::new(ErrorCode::CompileFailed, [&BACKEND, &name, &status, &log.trim_end()])
}

/// The first [`LOG_BYTES_MAX`] bytes of a text, and that it was cut where it was.
fn bounded(text: &str) -> String {
    let text = text.trim_end();
    if text.len() <= LOG_BYTES_MAX {
        return text.to_owned();
    }
    let end = (0..=LOG_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    let kept = text.get(..end).unwrap_or_default();
    format!("{kept}\n[cut here: {end} of {} bytes]", text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_cut_between_characters_and_says_so() {
        assert_eq!(bounded("two lines\n\n"), "two lines");
        let long = "ü".repeat(LOG_BYTES_MAX);
        let cut = bounded(&format!("x{long}"));
        assert!(
            cut.ends_with(&format!(
                "ü\n[cut here: {} of {} bytes]",
                LOG_BYTES_MAX - 1,
                2 * LOG_BYTES_MAX + 1
            )),
            "{}",
            &cut[cut.len() - 60..]
        );
    }
}

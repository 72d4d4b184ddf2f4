//! One compilation: from a source to an image, or to an error with what the compiler says.

use core::ffi::{CStr, c_char, c_int};
use core::ptr;
use std::ffi::CString;

use wakeline_core::{Error, ErrorCode};

use super::library::RtcLibrary;
use super::sys::{COMPILATION, Get, RtcProgram, RtcResult, SUCCESS, Size};
use super::vendor::RtcVendor;

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
struct Program<'n, R: RtcVendor> {
    library: &'n RtcLibrary<R>,
    raw: RtcProgram,
    name: &'n str,
}

/// Compiles.
///
/// # Errors
///
/// [`CompileFailed`](ErrorCode::CompileFailed) with the compiler's log.
pub(super) fn compile<R: RtcVendor>(library: &RtcLibrary<R>, job: &Job<'_>) -> Result<Output, Error> {
    let texts = |what: &str, text: &str| {
        CString::new(text).map_err(|_| {
            failed::<R>(
                job.name,
                "not compiled",
                &format!("{what} has a zero byte in it, which would end it"),
            )
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

    let program = Program::new(library, job.name, &source, &name, &headers, &names)?;
    for instance in &instances {
        // SAFETY: the program is alive and not compiled yet, and the text ends with a zero.
        let result = unsafe { (library.functions().add_name)(program.raw, instance.as_ptr()) };
        program.checked("AddNameExpression", result)?;
    }
    let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let count = c_int::try_from(pointers.len()).unwrap_or(c_int::MAX);
    // SAFETY: the program is alive, and the options are as many texts that end with a zero.
    let result = unsafe { (library.functions().compile)(program.raw, count, pointers.as_ptr()) };
    let log = program.log();
    if result != SUCCESS {
        let said = if log.is_empty() && result != COMPILATION { "it says no more" } else { &log };
        return Err(failed::<R>(job.name, &library.called(result), said));
    }
    let names = job.instances.iter().zip(&instances);
    let names = names.map(|(name, instance)| Ok((name.clone(), program.lowered(instance)?)));
    let names = names.collect::<Result<Vec<_>, Error>>()?;
    let functions = library.functions();
    let image = if job.machine_code {
        program.output(R::MACHINE, functions.machine)?
    } else if let (Some(name), Some(text)) = (R::TEXT, functions.text) {
        program.output(name, text)?
    } else {
        return Err(failed::<R>(job.name, "not compiled", "this compiler makes no texts"));
    };
    Ok(Output { image, names, log })
}

impl<'n, R: RtcVendor> Program<'n, R> {
    fn new(
        library: &'n RtcLibrary<R>,
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
        let mut program = Self { library, raw: ptr::null_mut(), name: shown };
        let create = library.functions().create;
        let raw = &raw mut program.raw;
        // SAFETY: `raw` is a handle's room; source, name and as many headers as names are texts that end with a zero, which are copied.
        let result =
            unsafe { create(raw, source.as_ptr(), name.as_ptr(), count, headers.as_ptr(), names.as_ptr()) };
        program.checked("CreateProgram", result)?;
        Ok(program)
    }

    fn checked(&self, call: &str, result: RtcResult) -> Result<(), Error> {
        if result == SUCCESS {
            return Ok(());
        }
        let said = format!("{}{call} failed; {}", R::PREFIX, self.log());
        Err(failed::<R>(self.name, &self.library.called(result), said.trim_end_matches([' ', ';'])))
    }

    /// What the compiler says of it, up to [`LOG_BYTES_MAX`] bytes.
    fn log(&self) -> String {
        let functions = self.library.functions();
        if self.raw.is_null() {
            return String::new();
        }
        let read = self.bytes(functions.log);
        let bytes = read.unwrap_or_default();
        let text = CStr::from_bytes_until_nul(&bytes)
            .map_or_else(|_| String::from_utf8_lossy(&bytes), CStr::to_string_lossy);
        bounded(&text.replace(FOLDER, ""))
    }

    fn lowered(&self, instance: &CStr) -> Result<String, Error> {
        let mut lowered = ptr::null();
        let ask = self.library.functions().lowered;
        // SAFETY: the program is compiled, the text ends with a zero, and `lowered` is a pointer's room.
        let result = unsafe { ask(self.raw, instance.as_ptr(), &raw mut lowered) };
        self.checked("GetLoweredName", result)?;
        if lowered.is_null() {
            return Err(failed::<R>(
                self.name,
                "nothing",
                "its GetLoweredName said success, but gave no name",
            ));
        }
        // SAFETY: it is not null, so it is a text that ends with a zero and lives as long as the program.
        let lowered = unsafe { CStr::from_ptr(lowered) };
        Ok(lowered.to_string_lossy().into_owned())
    }

    fn output(&self, what: &'static str, calls: (Size, Get)) -> Result<Vec<u8>, Error> {
        match self.bytes(calls) {
            Ok(bytes) if bytes.is_empty() => {
                Err(failed::<R>(self.name, "nothing", &format!("{}Get{what} gave nothing", R::PREFIX)))
            }
            Ok(bytes) => Ok(bytes),
            Err(result) => self.checked(&format!("Get{what}"), result).map(|()| Vec::new()),
        }
    }

    /// What one function gives, of the length that the other tells.
    fn bytes(&self, (size, get): (Size, Get)) -> Result<Vec<u8>, RtcResult> {
        let mut len = 0;
        // SAFETY: the program is alive, and `len` a number's room.
        let result = unsafe { size(self.raw, &raw mut len) };
        if result != SUCCESS {
            return Err(result);
        }
        let mut bytes = vec![0_u8; len.min(OUTPUT_BYTES_MAX)];
        if bytes.is_empty() || bytes.len() < len {
            return Ok(Vec::new());
        }
        // SAFETY: the program is alive, and there is room for as much as the call before said.
        let result = unsafe { get(self.raw, bytes.as_mut_ptr().cast()) };
        if result == SUCCESS { Ok(bytes) } else { Err(result) }
    }
}

impl<R: RtcVendor> Drop for Program<'_, R> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the program was made here and is destroyed once. What is said of that helps nobody.
            let _ = unsafe { (self.library.functions().destroy)(&raw mut self.raw) };
        }
    }
}

#[cold]
fn failed<R: RtcVendor>(name: &str, status: &str, log: &str) -> Error {
    Error::new(ErrorCode::CompileFailed, [&R::NAME, &name, &status, &log.trim_end()])
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

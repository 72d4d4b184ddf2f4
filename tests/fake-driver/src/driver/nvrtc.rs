//! The run-time compiler `libnvrtc.so`: its symbols, for sources as far as `cuda_c` knows them.
//!
//! It needs no `cuInit`. Rules fit its calls, whose statuses are numbers of its own there; they are counted, and not in the log of the driver's calls.
#![allow(unsafe_code, non_snake_case)]

use core::ffi::{CStr, c_char, c_int};
use std::collections::BTreeMap;
use std::ffi::CString;

use super::arg::{Chars, List, Out, Text};
use super::cuda_c::{Headers, kernels, lowered, ptx};
use super::gate::held_up;
use super::state::{State, shared};
use super::{Answer, Stop, cubin};
use crate::Status;
use crate::wire::Act;

/// `nvrtcResult`
const OUT_OF_MEMORY: Status = Status(1);
const INVALID_INPUT: Status = Status(3);
const INVALID_PROGRAM: Status = Status(4);
const INVALID_OPTION: Status = Status(5);
const COMPILATION: Status = Status(6);
const NAME_NOT_VALID: Status = Status(10);

/// A program that is being compiled.
#[derive(Debug, Default)]
pub(super) struct Program {
    source: String,
    name: String,
    headers: Headers,
    expressions: Vec<String>,
    /// What the module calls each of them.
    lowered: BTreeMap<String, CString>,
    log: String,
    cubin: Vec<u8>,
    ptx: String,
}

/// Makes a call, or what a rule says in its place.
pub(super) fn call(name: &'static str, body: impl FnOnce(&mut State) -> Answer) -> Status {
    let mut state = shared().lock();
    state.log.count(name);
    match state.rules.act(name) {
        Some(Act::Fail(status)) => status,
        Some(Act::DropEffect) => Status::SUCCESS,
        act => {
            state = held_up(state, act);
            match (body(&mut state), act) {
                (Ok(()), Some(Act::FailAfter(status))) => status,
                (Ok(()), _) => Status::SUCCESS,
                (Err(Stop::With(Status::INVALID_VALUE)), _) => INVALID_INPUT,
                (Err(Stop::With(status)), _) => status,
                (Err(Stop::Again(_)), _) => OUT_OF_MEMORY,
            }
        }
    }
}

fn program(state: &mut State, handle: u64) -> Answer<&mut Program> {
    state.programs.get_mut(&handle).ok_or(INVALID_PROGRAM.into())
}

macro_rules! exports {
    ($($name:ident($($arg:ident: $ty:ty),*) => $body:expr;)*) => {$(
        // SAFETY: the name is the compiler's own, and this library is loaded in its place, into a scope of its own.
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $ty),*) -> Status {
            call(stringify!($name), |state| $body(state $(, $arg)*))
        }
    )*};
}

exports! {
    nvrtcVersion(major: Out<c_int>, minor: Out<c_int>) => version;
    nvrtcGetNumSupportedArchs(out: Out<c_int>) => |state: &mut State, out: Out<c_int>| {
        out.set(c_int::try_from(state.options.nvrtc_archs.len()).unwrap_or_default())
    };
    nvrtcGetSupportedArchs(out: Places<c_int>) => |state: &mut State, out: Places<c_int>| {
        out.fill(&state.options.nvrtc_archs)
    };
    nvrtcCreateProgram(out: Out<u64>, source: Text, name: Text, count: c_int, headers: List<Text>, names: List<Text>) => create;
    nvrtcDestroyProgram(handle: Out<u64>) => destroy;
    nvrtcAddNameExpression(handle: u64, expression: Text) => add_name;
    nvrtcCompileProgram(handle: u64, count: c_int, options: List<Text>) => |state, handle, count, options| {
        compile_program(state, handle, count, options, Dialect::Cuda)
    };
    nvrtcGetLoweredName(handle: u64, expression: Text, out: Out<usize>) => lowered_name;
    nvrtcGetCUBINSize(handle: u64, out: Out<usize>) => code_size;
    nvrtcGetCUBIN(handle: u64, out: Places<u8>) => code;
    nvrtcGetPTXSize(handle: u64, out: Out<usize>) => |state, handle, out: Out<usize>| {
        out.set(program(state, handle)?.ptx.len() + 1)
    };
    nvrtcGetPTX(handle: u64, out: Chars) => |state, handle, out| all(out, &program(state, handle)?.ptx);
    nvrtcGetProgramLogSize(handle: u64, out: Out<usize>) => log_size;
    nvrtcGetProgramLog(handle: u64, out: Chars) => log;
}

pub(super) fn version(state: &mut State, major: Out<c_int>, minor: Out<c_int>) -> Answer {
    let (first, second) = state.options.nvrtc_version;
    major.set(first)?;
    minor.set(second)
}

pub(super) fn create(
    state: &mut State,
    out: Out<u64>,
    source: Text,
    name: Text,
    count: c_int,
    headers: List<Text>,
    names: List<Text>,
) -> Answer {
    let count = usize::try_from(count).map_err(|_| Stop::from(INVALID_INPUT))?;
    let names = names.take(count)?.into_iter().map(Text::read).collect::<Answer<Vec<_>>>()?;
    let texts = headers.take(count)?.into_iter().map(Text::read).collect::<Answer<Vec<_>>>()?;
    let headers = Headers { texts: names.into_iter().zip(texts).collect(), folders: Vec::new() };
    let program = Program { source: source.read()?, name: name.read()?, headers, ..Program::default() };
    state.programs_made += 1;
    let handle = state.programs_made;
    state.programs.insert(handle, program);
    out.set(handle)
}

pub(super) fn destroy(state: &mut State, handle: Out<u64>) -> Answer {
    state.programs.remove(&handle.get()?).map(drop).ok_or(INVALID_PROGRAM)?;
    handle.set(0)
}

pub(super) fn add_name(state: &mut State, handle: u64, expression: Text) -> Answer {
    let expression = expression.read()?;
    program(state, handle)?.expressions.push(expression);
    Ok(())
}

pub(super) fn compile_program(
    state: &mut State,
    handle: u64,
    count: c_int,
    options: List<Text>,
    dialect: Dialect,
) -> Answer {
    let count = usize::try_from(count).map_err(|_| Stop::from(INVALID_INPUT))?;
    let options = options.take(count)?.into_iter().map(Text::read).collect::<Answer<Vec<_>>>()?;
    let archs = state.options.nvrtc_archs.clone();
    compile(program(state, handle)?, &options, &archs, dialect)
}

pub(super) fn lowered_name(state: &mut State, handle: u64, expression: Text, out: Out<usize>) -> Answer {
    let expression = expression.read()?;
    let lowered = program(state, handle)?.lowered.get(&expression).ok_or(NAME_NOT_VALID)?;
    out.set(lowered.as_ptr().expose_provenance())
}

pub(super) fn code_size(state: &mut State, handle: u64, out: Out<usize>) -> Answer {
    out.set(program(state, handle)?.cubin.len())
}

pub(super) fn code(state: &mut State, handle: u64, out: Places<u8>) -> Answer {
    out.fill(&program(state, handle)?.cubin)
}

pub(super) fn log_size(state: &mut State, handle: u64, out: Out<usize>) -> Answer {
    out.set(program(state, handle)?.log.len() + 1)
}

pub(super) fn log(state: &mut State, handle: u64, out: Chars) -> Answer {
    all(out, &program(state, handle)?.log)
}

/// Whose compiler is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dialect {
    Cuda,
    /// Options as clang has them, and code objects.
    Hip,
}

impl Dialect {
    /// Options that change nothing of what is made here.
    const fn ignored(self) -> &'static [&'static str] {
        match self {
            Self::Cuda => {
                &["--std=", "--define-macro=", "--use_fast_math", "--generate-line-info", "--maxrregcount="]
            }
            Self::Hip => &["-std=", "-D", "-ffast-math", "-gline-tables-only"],
        }
    }

    const fn folder(self) -> &'static str {
        match self {
            Self::Cuda => "--include-path=",
            Self::Hip => "-I",
        }
    }
}

/// Room for several values, of which the caller has asked how many there are.
pub(super) type Places<T> = Out<T>;

fn all(out: Chars, text: &str) -> Answer {
    out.write(text, c_int::try_from(text.len() + 1).unwrap_or(c_int::MAX))
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn nvrtcGetErrorString(status: Status) -> *const c_char {
    const NAMES: &[&CStr] = &[
        c"NVRTC_SUCCESS",
        c"NVRTC_ERROR_OUT_OF_MEMORY",
        c"NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
        c"NVRTC_ERROR_INVALID_INPUT",
        c"NVRTC_ERROR_INVALID_PROGRAM",
        c"NVRTC_ERROR_INVALID_OPTION",
        c"NVRTC_ERROR_COMPILATION",
        c"NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
        c"NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
        c"NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
        c"NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
    ];
    let name = usize::try_from(status.0).ok().and_then(|number| NAMES.get(number));
    name.unwrap_or(&c"NVRTC_ERROR unknown").as_ptr()
}

fn compile(program: &mut Program, options: &[String], archs: &[c_int], dialect: Dialect) -> Answer {
    let mut wanted = None;
    for option in options {
        if let Some(folder) = option.strip_prefix(dialect.folder()) {
            program.headers.folders.push(folder.to_owned());
        } else if let Some(arch) = option.strip_prefix("--gpu-architecture=") {
            if dialect == Dialect::Hip {
                if !arch.starts_with("gfx") {
                    program.log = format!("error: invalid target ID '{arch}'\n");
                    return Err(INVALID_OPTION.into());
                }
                continue;
            }
            wanted = ["sm_", "compute_"].iter().find_map(|kind| {
                let number = arch.strip_prefix(kind)?.trim_end_matches('a').parse().ok()?;
                archs.contains(&number).then_some((number.unsigned_abs(), *kind == "sm_"))
            });
            if wanted.is_none() {
                "nvrtc: error: invalid value for --gpu-architecture (-arch)\n".clone_into(&mut program.log);
                return Err(INVALID_OPTION.into());
            }
        } else if !dialect.ignored().iter().any(|known| option.starts_with(known)) {
            program.log = format!("nvrtc: error: unrecognized option {option} found\n");
            return Err(INVALID_OPTION.into());
        }
    }
    let found = match kernels(&program.name, &program.source, &program.headers) {
        Ok(found) => found,
        Err(log) => {
            program.log = log;
            return Err(COMPILATION.into());
        }
    };
    let mut entries = BTreeMap::new();
    for kernel in found.iter().filter(|kernel| !kernel.is_template) {
        let name = if kernel.is_extern { kernel.name.clone() } else { lowered(&kernel.name, None) };
        entries.insert(name, kernel.parameters.clone());
    }
    for expression in &program.expressions {
        let (name, arguments) = match expression.split_once('<') {
            Some((name, arguments)) => (name.trim(), Some(arguments.trim_end_matches('>'))),
            None => (expression.trim(), None),
        };
        let kernel =
            found.iter().find(|kernel| kernel.name == name && kernel.is_template == arguments.is_some());
        let Some(kernel) = kernel else {
            program.log = format!("{}: error: name expression \"{expression}\" is not valid\n", program.name);
            return Err(COMPILATION.into());
        };
        let lowered = if kernel.is_extern { kernel.name.clone() } else { lowered(name, arguments) };
        let text = CString::new(lowered.clone()).map_err(|_| Stop::from(INVALID_INPUT))?;
        program.lowered.insert(expression.clone(), text);
        entries.insert(lowered, kernel.parameters.clone());
    }
    let (arch, is_machine_code) = wanted.unwrap_or((52, false));
    program.ptx = ptx(arch, &entries);
    if dialect == Dialect::Hip {
        program.cubin = cubin::code_object(&program.ptx);
    } else if is_machine_code {
        program.cubin = cubin::made(arch, &program.ptx);
    }
    if program.source.contains("#warning") {
        program.log = format!("{}: warning: #warning directive\n", program.name);
    }
    Ok(())
}

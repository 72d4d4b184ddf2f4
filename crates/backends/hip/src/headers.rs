//! The table held against AMD's own headers and library, where there are some: tests that `cargo xtask hip` runs, and that are ignored elsewhere.
//!
//! A file in C is made of the table, with an assertion for each row that the header's function has just the table's type; and one for each number and place that is
//! used. A C compiler says which is wrong.

use core::fmt::Write as _;
use core::mem::offset_of;
use std::path::PathBuf;
use std::process::Command;

use wakeline_core::ErrorCode;
use wakeline_mapped::Opened;

use crate::error::BACKEND;
use crate::load::NAMES;
use crate::sys::{
    ARCH_NAME_AT_R0000, ARCH_NAME_AT_R0600, ARCH_NAME_BYTES, NUMBERS, PROPERTIES_BYTES, Symbols,
    hipKernelNodeParams,
};
use crate::{Caps, Hip};

/// What there is no declaration of before HIP 6, and what is declared by another name there.
const SINCE_6: &[&str] =
    &["hipStreamGetDevice", "hipModuleLaunchCooperativeKernel", "hipGetDevicePropertiesR0600"];

/// What libraries lack that are in use, by their major version: all of it is bridged, or a capability that is not there.
const LACKS: &[(&str, &[&str])] = &[
    (
        ".so.5",
        &[
            "hipGetDevicePropertiesR0600",
            "hipStreamGetDevice",
            "hipLaunchHostFunc",
            "hipModuleLaunchCooperativeKernel",
        ],
    ),
    (".so.6", &[]),
    (".so.7", &[]),
];

/// The C type of an argument or a result as the table has it in Rust.
fn c_type(rust: &str) -> String {
    let rust = rust.trim();
    if let Some(of) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(of));
    }
    if let Some(of) = rust.strip_prefix("*const ") {
        return format!("const {} *", c_type(of));
    }
    match rust {
        "c_int" => "int",
        "c_uint" => "unsigned int",
        "c_char" => "char",
        "c_void" => "void",
        "u8" => "unsigned char",
        "u16" => "unsigned short",
        "u64" => "uint64_t",
        "usize" => "size_t",
        named => named,
    }
    .to_owned()
}

/// What a node launches, by the header's names and where each is in the table's type.
const LAUNCH: &[(&str, usize)] = &[
    ("blockDim", offset_of!(hipKernelNodeParams, block)),
    ("extra", offset_of!(hipKernelNodeParams, extra)),
    ("func", offset_of!(hipKernelNodeParams, function)),
    ("gridDim", offset_of!(hipKernelNodeParams, grid)),
    ("kernelParams", offset_of!(hipKernelNodeParams, parameters)),
    ("sharedMemBytes", offset_of!(hipKernelNodeParams, shared_bytes)),
];

/// Kinds of nodes, whose numbers libraries count in two ways, see `graphs.rs`: the name, and the numbers that mean it by the first way and by the second. What only one of them has is not here.
const NODES: &[(&str, u32, u32)] = &[
    ("Kernel", 1, 0),
    ("Memcpy", 2, 1),
    ("Memset", 3, 2),
    ("Host", 4, 3),
    ("Graph", 5, 4),
    ("Empty", 6, 5),
    ("WaitEvent", 7, 6),
    ("EventRecord", 8, 7),
    ("MemcpyFromSymbol", 10, 12),
    ("MemcpyToSymbol", 11, 13),
];

/// The file.
fn text() -> String {
    let mut text = "#define __HIP_PLATFORM_AMD__ 1\n#include <stddef.h>\n#include <stdint.h>\n#include <hip/hip_runtime_api.h>\n".to_owned();
    let mut add = |line: &str| writeln!(text, "{line}").unwrap();
    for (name, result, arguments) in Symbols::PROTOTYPES {
        let arguments: Vec<_> = arguments.iter().map(|argument| c_type(argument)).collect();
        let (result, arguments) = (c_type(result), arguments.join(", "));
        let is_new = SINCE_6.contains(name);
        if is_new {
            add("#if HIP_VERSION_MAJOR >= 6");
        }
        // The macro that gives another name for it would give that of the assertion's words as well.
        add(&format!(
            "_Static_assert(__builtin_types_compatible_p(__typeof__(&{name}), {result} (*)({arguments})), \"{name}\");"
        ));
        if is_new {
            add("#endif");
        }
    }
    for (name, number) in NUMBERS {
        add(&format!("_Static_assert((unsigned long long){name} == {number}ull, \"{name}\");"));
    }
    for (field, at) in LAUNCH {
        add(&format!("_Static_assert(offsetof(hipKernelNodeParams, {field}) == {at}, \"{field}\");"));
    }
    let bytes = size_of::<hipKernelNodeParams>();
    add(&format!("_Static_assert(sizeof(hipKernelNodeParams) == {bytes}, \"hipKernelNodeParams\");"));
    for (node, from_one, from_zero) in NODES {
        let node = format!("hipGraphNodeType{node}");
        add(&format!(
            "_Static_assert({node} == (hipGraphNodeTypeEmpty == 6 ? {from_one} : {from_zero}), \"{node}\");"
        ));
    }
    add("_Static_assert((uintptr_t)hipStreamPerThread == 2, \"hipStreamPerThread\");");
    add(&format!(
        "_Static_assert(sizeof(hipDeviceProp_t) <= {PROPERTIES_BYTES}, \"the room of properties\");"
    ));
    add("#if HIP_VERSION_MAJOR >= 6");
    add("_Static_assert((uintptr_t)hipStreamLegacy == 1, \"hipStreamLegacy\");");
    add(&format!(
        "_Static_assert(offsetof(hipDeviceProp_t, gcnArchName) == {ARCH_NAME_AT_R0600}, \"R0600\");"
    ));
    add("#else");
    add(&format!(
        "_Static_assert(offsetof(hipDeviceProp_t, gcnArchName) == {ARCH_NAME_AT_R0000}, \"R0000\");"
    ));
    add("#endif");
    add(&format!(
        "_Static_assert(sizeof(((hipDeviceProp_t *)0)->gcnArchName) == {ARCH_NAME_BYTES}, \"gcnArchName\");"
    ));
    text
}

/// Whether a C compiler takes the file; what it says.
fn compiles(text: &str) -> (bool, String) {
    // tidy: allow(env) a test needs a folder, and headers may be in another than the system's
    let (folder, headers) = (std::env::temp_dir(), std::env::var_os("TEST_HIP_HEADERS"));
    let path = folder.join(format!("wakeline-hip-headers-{}.c", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-fsyntax-only", "-Werror=implicit-function-declaration"]);
    compiler.args(headers.map(|headers| format!("-I{}", PathBuf::from(headers).display())));
    let output = compiler.arg(&path).output().unwrap();
    std::fs::remove_file(path).unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
#[ignore = "needs HIP's headers: cargo xtask hip"]
fn real_every_prototype_and_number_is_that_of_the_header() {
    let (fine, said) = compiles(&text());
    assert!(fine, "{said}");
    // It can fail: a wrong argument, a wrong number.
    let wrong = [
        (
            "hipError_t (*)(hipStream_t, hipEvent_t, unsigned int)",
            "hipError_t (*)(hipStream_t, hipEvent_t, int *)",
        ),
        ("(unsigned long long)hipErrorNotReady == 600ull", "(unsigned long long)hipErrorNotReady == 601ull"),
        ("(hipGraphNodeTypeEmpty == 6 ? 1 : 0)", "(hipGraphNodeTypeEmpty == 6 ? 0 : 1)"),
        ("(hipKernelNodeParams, func) == ", "(hipKernelNodeParams, gridDim) == "),
    ];
    for (right, wrong) in wrong {
        let text = text();
        assert!(text.contains(right), "{right}");
        let (fine, said) = compiles(&text.replace(right, wrong));
        assert!(!fine && said.contains("static assertion failed"), "{wrong}: {said}");
    }
}

#[test]
#[ignore = "needs HIP's library: cargo xtask hip"]
fn real_the_library_has_every_function_but_those_that_are_bridged() {
    let library = Opened::open(BACKEND, None, NAMES).unwrap();
    let lacks: Vec<_> = Symbols::ROWS
        .iter()
        .map(|row| row.exported)
        .filter(|name| library.exported(name).is_none())
        .collect();
    let (_, may) = LACKS.iter().find(|(version, _)| library.name().ends_with(version)).unwrap();
    assert_eq!(lacks, *may, "{}", library.name());
    // SAFETY: no function of the table is called.
    let (_, caps) = unsafe { Symbols::find(|wanted| library.exported(wanted.exported)) }.unwrap();
    assert!(
        caps.contains(
            Caps::STORE_WORDS
                | Caps::GRAPHS
                | Caps::GRAPH_NODES
                | Caps::GRAPH_CHANGES
                | Caps::KERNEL_NAMES
                | Caps::MEMORY_POOLS
                | Caps::CALLBACKS
        ),
        "{caps:?}"
    );
    println!("{} lacks {lacks:?}", library.name());
}

#[test]
#[ignore = "needs HIP's library: cargo xtask hip"]
fn real_a_machine_without_a_device_gets_a_typed_error() {
    match Hip::load() {
        Ok(hip) => println!("there is a device: {hip:?}"),
        Err(error) => {
            assert_eq!(error.code(), ErrorCode::NoDevice, "{error}");
            assert!(error.to_string().contains("(100)") || error.to_string().contains("(101)"), "{error}");
            println!("{error}");
        }
    }
}

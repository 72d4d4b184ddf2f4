//! The table held against the library's own header, where there is one: a test that is ignored elsewhere.
//!
//! A file in C is made of the table, with an assertion for each function that the header's has just the table's type, and one for each number and place that is used. A C
//! compiler says which is wrong.

use core::fmt::Write as _;
use core::mem::offset_of;
use std::path::Path;
use std::process::Command;

use wakeline_ops::port::{Number, Reduce, UNIQUE_ID_BYTES};

use super::sys::{Functions, IN_PROGRESS, RawConfig, SUCCESS, VERSION_LEAST, raw_number, raw_reduce};

/// Where a header is looked for: Debian's, AMD's, and one that was put there by hand, of a wheel of `nvidia-nccl` say.
const HEADERS: &[&str] = &["/usr/include/nccl.h", "/usr/include/rccl/rccl.h", "/usr/local/include/nccl.h"];

/// What NVIDIA's header needs of its toolkit's.
const RUNTIME: &str = "typedef struct CUstream_st *cudaStream_t;\ntypedef struct CUevent_st *cudaEvent_t;\n";

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
        "c_char" => "char",
        "c_void" => "void",
        "usize" => "size_t",
        "RawResult" => "ncclResult_t",
        "RawNumber" => "ncclDataType_t",
        "RawReduce" => "ncclRedOp_t",
        "RawComm" => "ncclComm_t",
        "RawStream" => "STREAM",
        "RawId" => "ncclUniqueId",
        "RawConfig" => "ncclConfig_t",
        named => named,
    }
    .to_owned()
}

fn numbers() -> Vec<(&'static str, i64)> {
    let mut numbers = vec![
        ("ncclSuccess", SUCCESS.into()),
        ("ncclInProgress", IN_PROGRESS.into()),
        ("NCCL_UNIQUE_ID_BYTES", i64::try_from(UNIQUE_ID_BYTES).unwrap()),
        ("NCCL_VERSION(2, 10, 0)", VERSION_LEAST.into()),
    ];
    let called = |number| match number {
        Number::I8 => "ncclInt8",
        Number::U8 => "ncclUint8",
        Number::I32 => "ncclInt32",
        Number::U32 => "ncclUint32",
        Number::I64 => "ncclInt64",
        Number::U64 => "ncclUint64",
        Number::F16 => "ncclFloat16",
        Number::Bf16 => "ncclBfloat16",
        Number::F32 => "ncclFloat32",
        Number::F64 => "ncclFloat64",
    };
    numbers.extend(Number::ALL.map(|number| (called(number), raw_number(number).into())));
    let reductions = [
        ("ncclSum", Reduce::Sum),
        ("ncclProd", Reduce::Prod),
        ("ncclMin", Reduce::Min),
        ("ncclMax", Reduce::Max),
        ("ncclAvg", Reduce::Avg),
    ];
    numbers.extend(reductions.map(|(called, how)| (called, raw_reduce(how).into())));
    numbers
}

/// The file.
fn text(header: &str) -> String {
    let mut text = format!("#include <stddef.h>\n#include \"{header}\"\n");
    let mut add = |line: &str| writeln!(text, "{line}").unwrap();
    add(
        "#ifdef __HIP_PLATFORM_AMD__\n#define STREAM hipStream_t\n#else\n#define STREAM cudaStream_t\n#endif",
    );
    for (name, result, arguments) in Functions::PROTOTYPES {
        let arguments: Vec<_> = arguments.iter().map(|argument| c_type(argument)).collect();
        let (result, arguments) = (c_type(result), arguments.join(", "));
        add(&format!(
            "_Static_assert(__builtin_types_compatible_p(__typeof__(&{name}), {result} (*)({arguments})), \"{name}\");"
        ));
    }
    for (name, number) in numbers() {
        add(&format!("_Static_assert((long long)({name}) == {number}ll, \"{name}\");"));
    }
    for (name, at) in RawConfig::PLACES {
        add(&format!("_Static_assert(offsetof(ncclConfig_t, {name}) == {at}, \"{name}\");"));
    }
    let least = size_of::<RawConfig>();
    add(&format!(
        "_Static_assert(sizeof(ncclConfig_t) >= {least}, \"what is handed in is a beginning of it\");"
    ));
    let (magic, undefined) = (RawConfig::nonblocking().magic(), i32::MIN);
    add("static ncclConfig_t config = NCCL_CONFIG_INITIALIZER;");
    add(&format!(
        "int main(void) {{ return config.magic != {magic}u || config.cgaClusterSize != {undefined}; }}"
    ));
    text
}

#[test]
#[ignore = "needs a header of NCCL or RCCL, and a C compiler"]
fn real_prototypes_and_numbers_are_those_of_the_header() {
    let header = HEADERS.iter().find(|header| Path::new(header).is_file());
    let header =
        header.expect("a header: of Debian's libnccl-dev or librccl-dev, or copied to /usr/local/include");
    // tidy: allow(env) a folder for temporary files
    let folder = std::env::temp_dir().join(format!("wakeline-nccl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("table.c"), folder.join("table"));
    std::fs::write(&source, text(header)).unwrap();
    std::fs::write(folder.join("cuda_runtime.h"), RUNTIME).unwrap();
    for name in ["cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h"] {
        std::fs::write(folder.join(name), "").unwrap();
    }
    let is_amd = header.contains("rccl");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-std=gnu11", "-Wall", "-Werror", "-Wno-unused", "-I"])
        .arg(&folder)
        .arg("-o")
        .arg(&program);
    if is_amd {
        compiler.arg("-D__HIP_PLATFORM_AMD__=1");
    }
    // Nothing of the library is called: addresses are looked at by their types alone.
    let done = compiler.arg(&source).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(Command::new(&program).status().unwrap().success(), "the configuration's numbers");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_configuration_is_that_of_2_14_and_says_so() {
    let places = [offset_of!(RawConfig, size), offset_of!(RawConfig, blocking)];
    assert_eq!((size_of::<RawConfig>(), places), (24, [0, 16]));
    assert_eq!(RawConfig::nonblocking().magic(), 0xcafe_beef);
}

#[test]
fn numbers_are_told_apart() {
    let mut all: Vec<_> = Number::ALL.map(raw_number).to_vec();
    all.sort_unstable();
    assert_eq!(all, (0..10).collect::<Vec<_>>());
}

//! Kernels from CUDA C: by the stand-in's compiler, which can be made to fail; and by NVRTC, where this machine has it.
#![cfg(all(feature = "compile", target_os = "linux", target_pointer_width = "64"))]
#![allow(unsafe_code, reason = "images are loaded by unsafe calls")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use core::error::Error as _;
use std::fs;
use std::path::{Path, PathBuf};

use common::{clean, fake, loaded};
use wakeline_core::{Error, ErrorCode};
use wakeline_cuda::{
    Arch, CompileOptions, Compiled, Compiler, Cuda, HeaderPlaces, KernelCache, LOG_BYTES_MAX, Module, Nvrtc,
};
use wakeline_fake_driver::{Act, Fake, Rule, Status};

const SAXPY: &str = r#"
extern "C" __global__ void saxpy(float *z, float a, const float *x, const float *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = a * x[i] + y[i];
}
"#;

const H200: Arch = Arch::new(9, 0);

/// A folder of a test's own, gone with this value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("compiles-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Another process would have the same: a cache and a compiler of its own.
fn another(fake: &Fake, folder: &Folder) -> (Compiler, KernelCache) {
    let cache = KernelCache::at(&folder.0).unwrap();
    (Compiler::at(fake.path()).cached(&cache), cache)
}

fn compiled(compiler: &Compiler, source: &str) -> Result<Compiled, Error> {
    compiler.compile(source, H200, &CompileOptions::new())
}

/// The system's NVRTC. Says so where there is none.
fn nvrtc() -> Option<Nvrtc> {
    Nvrtc::load().inspect_err(|error| println!("skipped: no NVRTC: {error}")).ok()
}

#[test]
fn a_source_becomes_a_module_with_its_kernels() {
    let (fake, cuda) = loaded();
    let context = cuda.context(0).unwrap();
    let compiler = Compiler::at(fake.path());
    let options = CompileOptions::new().instance("scale<float>").instance("plain");
    let source = format!(
        "{SAXPY}template <typename T> __global__ void scale(T *x, T by) {{}}\n__global__ void plain(double d, short s) {{}}"
    );
    let module = Module::from_source(&context, &compiler, &source, &options).unwrap();
    for (name, bytes) in [("saxpy", &[8, 4, 8, 8, 4][..]), ("scale<float>", &[8, 4]), ("plain", &[8, 2])] {
        let kernel = module.function(name).unwrap();
        assert_eq!(kernel.parameters().unwrap().as_deref(), Some(bytes), "{name}");
        kernel.takes(bytes).unwrap();
        let error = kernel.takes(&[8, 8]).unwrap_err();
        assert_eq!((error.code(), &error.args()[0][..]), (ErrorCode::KernelMismatch, name));
        assert_eq!(error.args()[2], "2 argument(s) of [8, 8] bytes");
    }
    assert!(module.function("scale<double>").is_err());
    assert_eq!(fake.live().programs, 0);
    drop(module);
    drop(context);
    clean(&fake);
}

#[test]
fn what_a_driver_cannot_tell_of_a_kernel_is_taken_on_trust() {
    let (fake, cuda) = loaded();
    fake.rule(Rule::new("cuFuncGetParamInfo", Act::Fail(Status::NOT_SUPPORTED)));
    let context = cuda.context(0).unwrap();
    let module =
        Module::from_source(&context, &Compiler::at(fake.path()), SAXPY, &CompileOptions::new()).unwrap();
    let kernel = module.function("saxpy").unwrap();
    assert_eq!(kernel.parameters().unwrap(), None);
    kernel.takes(&[1]).unwrap();
}

#[test]
fn a_source_that_does_not_compile_is_an_error_with_the_log() {
    let fake = fake(|_| ());
    let compiler = Compiler::at(fake.path());
    let options = CompileOptions::new().name("broken.cu");
    let error = compiler.compile("\n#error out of luck\n", H200, &options).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CompileFailed);
    assert_eq!(error.args()[..3], ["cuda", "broken.cu", "NVRTC_ERROR_COMPILATION"]);
    assert!(
        error.args()[3].starts_with("broken.cu(2): catastrophic error: #error directive: out of luck"),
        "{error}"
    );
    // Much of it.
    let much = "#error over and over\n".repeat(2_000);
    let error = compiled(&compiler, &much).unwrap_err();
    let log = &error.args()[3];
    assert!(log.len() < LOG_BYTES_MAX + 60 && log.contains("[cut here: 16384 of "), "{}", log.len());
    assert!(
        compiled(&compiler, "zero\0inside").unwrap_err().args()[3].contains("the source has a zero byte")
    );
    let error = compiler.compile(SAXPY, H200, &CompileOptions::new().other("--bogus")).unwrap_err();
    assert_eq!(
        error.args()[2..],
        ["NVRTC_ERROR_INVALID_OPTION", "nvrtc: error: unrecognized option --bogus found"]
    );
    let error = compiler.compile(SAXPY, H200, &CompileOptions::new().instance("none<int>")).unwrap_err();
    assert!(error.args()[3].contains("name expression \"none<int>\" is not valid"), "{error}");
    assert_eq!(fake.live().programs, 0);
}

#[test]
fn every_call_of_the_compiler_that_fails_is_told_and_nothing_is_left() {
    let fake = fake(|_| ());
    let compiler = Compiler::at(fake.path());
    let options = CompileOptions::new().instance("f<int>");
    let source = "template <typename T> __global__ void f(T *x) {}";
    compiler.compile(source, H200, &options).unwrap();
    for call in [
        "nvrtcCreateProgram",
        "nvrtcAddNameExpression",
        "nvrtcCompileProgram",
        "nvrtcGetLoweredName",
        "nvrtcGetCUBINSize",
        "nvrtcGetCUBIN",
    ] {
        fake.rule(Rule::new(call, Act::Fail(Status(1))).times(1));
        let error = compiler.compile(source, H200, &options).unwrap_err();
        assert_eq!(
            (error.code(), &error.args()[2][..]),
            (ErrorCode::CompileFailed, "NVRTC_ERROR_OUT_OF_MEMORY"),
            "{call}"
        );
        assert!(
            call == "nvrtcCompileProgram"
                || call.starts_with("nvrtcGetCUBIN")
                || error.args()[3].contains(call),
            "{error}"
        );
        assert_eq!(fake.live().programs, 0, "{call}");
        compiler.compile(source, H200, &options).unwrap();
    }
    for call in ["nvrtcVersion", "nvrtcGetNumSupportedArchs", "nvrtcGetSupportedArchs"] {
        fake.rule(Rule::new(call, Act::Fail(Status(11))).times(1));
        let error = Nvrtc::load_from(fake.path()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::CompilerMissing);
        assert!(error.args()[2].ends_with(&format!("fails in {call} (11)")), "{error}");
    }
    // A log that cannot be had is none.
    fake.rule(Rule::new("nvrtcGetProgramLogSize", Act::Fail(Status(11))));
    assert_eq!(compiled(&compiler, "#error x").unwrap_err().code(), ErrorCode::CompileFailed);
}

#[test]
fn a_header_is_found_in_a_text_or_a_folder_or_missed_by_name() {
    let fake = fake(|_| ());
    let folder = Folder::new("headers");
    let compiler = Compiler::at(fake.path()).headers(HeaderPlaces::new().folder(folder.0.join("more")));
    let source = format!("#include \"own.h\"\n#include <of_no_toolkit.h>\n{SAXPY}");
    let options = CompileOptions::new().name("half.cu").header("own.h", "").include(&folder.0);
    let error = compiler.compile(&source, H200, &options).unwrap_err();
    assert_eq!(error.code(), ErrorCode::HeaderMissing);
    assert_eq!(error.args()[..3], ["cuda", "half.cu", "of_no_toolkit.h"]);
    let looked = &error.args()[3];
    for place in [folder.0.clone(), folder.0.join("more"), "/usr/local/cuda/include".into()] {
        assert!(looked.contains(&*place.to_string_lossy()), "{looked}");
    }
    assert!(error.source().unwrap().to_string().contains("half.cu(2): catastrophic error"), "{error:?}");
    fs::create_dir(folder.0.join("more")).unwrap();
    fs::write(folder.0.join("more/of_no_toolkit.h"), "").unwrap();
    compiler.compile(&source, H200, &options).unwrap();
}

#[test]
fn an_older_compiler_gives_the_newest_text_and_a_newer_one_says_what_it_knows() {
    let fake = fake(|options| options.nvrtc_archs = vec![80, 86]);
    let compiler = Compiler::at(fake.path());
    let ptx = compiled(&compiler, SAXPY).unwrap();
    assert!(ptx.image().is_none() && ptx.text().unwrap().contains(".target sm_86"));
    assert!(compiler.compile(SAXPY, Arch::new(8, 0), &CompileOptions::new()).unwrap().image().is_some());
    let error = compiler.compile(SAXPY, Arch::new(7, 5), &CompileOptions::new()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ArchUnsupported);
    assert_eq!(error.args()[2..], ["7.5", "8.0, 8.6"]);
    // The driver compiles it further.
    let context = Cuda::load_from(fake.path()).unwrap().context(0).unwrap();
    let module = Module::from_source(&context, &compiler, SAXPY, &CompileOptions::new()).unwrap();
    module.function("saxpy").unwrap().takes(&[8, 4, 8, 8, 4]).unwrap();
}

#[test]
fn an_image_that_is_cut_or_for_another_device_never_gets_to_the_driver() {
    let (fake, cuda) = loaded();
    let context = cuda.context(0).unwrap();
    let compiler = Compiler::at(fake.path());
    let whole = compiled(&compiler, SAXPY).unwrap();
    let whole = whole.image().unwrap();
    for len in 0..whole.len() {
        // SAFETY: what is cut is not handed to the driver.
        let error = unsafe { Module::from_image(&context, &whole[..len]) }.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidImage, "{len}: {error}");
    }
    let other = compiler.compile(SAXPY, Arch::new(8, 0), &CompileOptions::new()).unwrap();
    for error in [
        // SAFETY: a compiler made it.
        unsafe { Module::from_image(&context, other.image().unwrap()) }.unwrap_err(),
        Module::from_compiled(&context, &other).unwrap_err(),
    ] {
        assert_eq!(error.code(), ErrorCode::InvalidImage);
        assert!(error.args()[1].contains("compiled for 8.0, and the device is of 9.0"), "{error}");
    }
    assert_eq!(fake.calls("cuModuleLoadDataEx"), 0);
    // SAFETY: a compiler made it.
    let module = unsafe { Module::from_image(&context, whole) }.unwrap();
    module.function("saxpy").unwrap();
    assert_eq!(fake.calls("cuModuleLoadDataEx"), 1);
}

#[test]
fn what_one_process_compiles_another_loads_without_the_compiler() {
    let fake = fake(|_| ());
    let folder = Folder::new("shared");
    let (first, cache) = another(&fake, &folder);
    let made = compiled(&first, SAXPY).unwrap();
    assert_eq!(compiled(&first, SAXPY).unwrap(), made);
    assert_eq!((cache.stats().misses, cache.stats().memory_hits), (1, 1));
    assert_eq!(fake.calls("nvrtcCompileProgram"), 1);
    // As another process: what is in memory is not there.
    fake.clear_log();
    let (second, cache) = another(&fake, &folder);
    assert_eq!(compiled(&second, SAXPY).unwrap(), made);
    assert_eq!((cache.stats().disk_hits, cache.stats().misses), (1, 0));
    assert_eq!((fake.calls("nvrtcVersion"), fake.calls("nvrtcCompileProgram")), (0, 0));
    // All that it is made from is part of its name.
    let options = CompileOptions::new;
    for (source, device, options) in [
        (format!("{SAXPY} "), H200, options()),
        (SAXPY.to_owned(), Arch::new(8, 0), options()),
        (SAXPY.to_owned(), H200, options().as_ptx()),
        (SAXPY.to_owned(), H200, options().fast_math()),
        (SAXPY.to_owned(), H200, options().define("A", "1")),
        (SAXPY.to_owned(), H200, options().define("A", "2")),
        (SAXPY.to_owned(), H200, options().name("b.cu")),
        (SAXPY.to_owned(), H200, options().header("a.h", "")),
        (SAXPY.to_owned(), H200, options().instance("saxpy")),
    ] {
        let before = fake.calls("nvrtcCompileProgram");
        for _ in 0..2 {
            second.compile(&source, device, &options).unwrap();
        }
        assert_eq!(fake.calls("nvrtcCompileProgram"), before + 1, "{options:?}");
    }
    // Another release of the compiler, which has another file. The first one's facts are of another.
    let newer = common::fake(|options| options.nvrtc_version = (13, 2));
    let (third, cache) = another(&newer, &folder);
    assert_eq!(compiled(&third, SAXPY).unwrap(), made);
    assert_eq!((newer.calls("nvrtcCompileProgram"), cache.stats().misses), (1, 1));
}

#[test]
fn a_header_that_changes_is_compiled_anew() {
    let fake = fake(|_| ());
    let folder = Folder::new("changes");
    let (own, cache_folder) = (folder.0.join("own.h"), Folder::new("changes-cache"));
    let options = CompileOptions::new().include(&folder.0);
    let source = format!("#include \"own.h\"\n{SAXPY}");
    for (text, kernels) in [("", 0), ("extern \"C\" __global__ void other() {}", 1)] {
        fs::write(&own, text).unwrap();
        fake.clear_log();
        for compilations in [1, 1] {
            let (compiler, _) = another(&fake, &cache_folder);
            let ptx = compiler.compile(&source, H200, &options.clone().as_ptx()).unwrap();
            assert_eq!(ptx.text().unwrap().matches("other(").count(), kernels);
            assert_eq!(fake.calls("nvrtcCompileProgram"), compilations);
        }
    }
    // A name that a macro makes: nobody knows what it is made from.
    let (compiler, cache) = another(&fake, &cache_folder);
    let source = "#define OWN \"own.h\"\n#ifdef NOT\n#include OWN\n#endif\n";
    let _ = compiler.compile(source, H200, &options);
    assert_eq!((cache.stats().unkept, cache.stats().misses), (1, 0));
}

/// Compiles with a cache, changes what the folders hold and compiles as another process: how often it was compiled again.
fn compiled_after(name: &str, start: &str, setup: impl Fn(&Path) -> Vec<PathBuf>, change: &str) -> u64 {
    let fake = fake(|_| ());
    let (folder, kept) = (Folder::new(name), Folder::new(&format!("{name}-cache")));
    let options = setup(&folder.0).into_iter().fold(CompileOptions::new(), CompileOptions::include);
    let source = format!("{start}\n{SAXPY}");
    another(&fake, &kept).0.compile(&source, H200, &options).unwrap();
    let before = fake.calls("nvrtcCompileProgram");
    fs::write(folder.0.join(change), "#define A 2\n").unwrap();
    another(&fake, &kept).0.compile(&source, H200, &options).unwrap();
    fake.calls("nvrtcCompileProgram") - before
}

#[test]
fn a_header_that_changes_is_compiled_anew_however_it_is_included() {
    let one = |root: &Path| {
        fs::write(root.join("a.h"), "#define A 1\n").unwrap();
        vec![root.to_owned()]
    };
    let ways = [
        "#include <a.h>",
        "# /* it */ include <a.h>",
        "%:include <a.h>",
        "#\x0cinclude <a.h>",
        "#\x0binclude <a.h>",
    ];
    for start in ways {
        assert_eq!(compiled_after("ways", start, one, "a.h"), 1, "{start:?}");
    }
    // One that is not included is not read.
    assert_eq!(compiled_after("ways", "", one, "a.h"), 0);
    let two = |root: &Path| {
        let folders = ["first", "second"].map(|folder| root.join(folder));
        for folder in &folders {
            fs::create_dir(folder).unwrap();
        }
        fs::write(folders[0].join("a.h"), "# include_next <a.h>\n").unwrap();
        fs::write(folders[1].join("a.h"), "#define A 1\n").unwrap();
        folders.to_vec()
    };
    assert_eq!(compiled_after("next", "#include <a.h>", two, "second/a.h"), 1);
}

#[test]
fn what_was_made_while_a_header_changed_is_not_kept() {
    let fake = fake(|_| ());
    let (folder, kept) = (Folder::new("meanwhile"), Folder::new("meanwhile-cache"));
    let own = folder.0.join("own.h");
    let (old, new) = ("", "extern \"C\" __global__ void other() {}");
    fs::write(&own, old).unwrap();
    let options = CompileOptions::new().include(&folder.0).as_ptx();
    let source = format!("#include \"own.h\"\n{SAXPY}");
    let (compiler, cache) = another(&fake, &kept);
    let kernels = |made: &Compiled| made.text().unwrap().matches("other(").count();
    fake.rule(Rule::new("nvrtcCompileProgram", Act::Block).times(1));
    std::thread::scope(|scope| {
        let made = scope.spawn(|| compiler.compile(&source, H200, &options).unwrap());
        common::until("the compiler is asked", || fake.blocked() == 1);
        fs::write(&own, new).unwrap();
        fake.release();
        assert_eq!(kernels(&made.join().unwrap()), 1);
    });
    assert_eq!((cache.stats().misses, cache.stats().unkept), (1, 1));
    // What it was made from is back: what was made of the other is not taken for it.
    fs::write(&own, old).unwrap();
    for compiler in [&compiler, &another(&fake, &kept).0] {
        assert_eq!(kernels(&compiler.compile(&source, H200, &options).unwrap()), 0);
    }
    assert_eq!((cache.stats().misses, cache.stats().unkept), (2, 1));
    assert_eq!(fake.calls("nvrtcCompileProgram"), 2);
}

#[test]
fn a_damaged_entry_is_compiled_again() {
    let fake = fake(|_| ());
    let folder = Folder::new("damaged");
    let made = compiled(&another(&fake, &folder).0, SAXPY).unwrap();
    let files = || fs::read_dir(&folder.0).unwrap().flatten().map(|entry| entry.path());
    let entry = files().find(|path| path.extension().is_some_and(|kind| kind == "kernel")).unwrap();
    let facts = files().find(|path| path.extension().is_some_and(|kind| kind == "compiler")).unwrap();
    for (path, len) in [(&entry, 100), (&entry, 0), (&facts, 20)] {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_len(len).unwrap();
        let (compiler, cache) = another(&fake, &folder);
        assert_eq!(compiled(&compiler, SAXPY).unwrap(), made);
        assert_eq!(cache.stats().corrupt, 1);
        let (compiler, cache) = another(&fake, &folder);
        assert_eq!(compiled(&compiler, SAXPY).unwrap(), made);
        assert_eq!((cache.stats().corrupt, cache.stats().disk_hits), (0, 1));
    }
    // A folder that is gone keeps nothing, and fails nothing.
    let (compiler, cache) = another(&fake, &folder);
    fs::remove_dir_all(&folder.0).unwrap();
    assert_eq!(compiled(&compiler, SAXPY).unwrap(), made);
    assert!(cache.stats().failed > 0, "{cache:?}");
}

/// The rest is by the compiler itself.
#[test]
fn nvrtc_compiles_for_every_architecture_that_it_knows() {
    let Some(nvrtc) = nvrtc() else { return };
    let (fake, cuda) = loaded();
    let context = cuda.context(0).unwrap();
    let compiler = Compiler::at(nvrtc.path());
    println!("{nvrtc:?}");
    for arch in nvrtc.archs() {
        let made = compiler.compile(SAXPY, arch, &CompileOptions::new()).unwrap();
        let cubin = made.image().unwrap();
        for len in [0, 3, 63, 64, cubin.len() / 2, cubin.len() - 1] {
            // SAFETY: what is cut is not handed to the driver.
            let error = unsafe { Module::from_image(&context, &cubin[..len]) }.unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidImage, "{arch} {len}: {error}");
        }
        if !H200.runs(arch) {
            // SAFETY: it is for another device, so it is not handed to the driver.
            let error = unsafe { Module::from_image(&context, cubin) }.unwrap_err();
            assert!(
                error.args()[1].contains(&format!("compiled for {arch}, and the device is of 9.0")),
                "{error}"
            );
        }
        let text = compiler.compile(SAXPY, arch, &CompileOptions::new().as_ptx()).unwrap();
        assert!(text.text().unwrap().contains(&format!(".target sm_{}", arch.number())), "{arch}");
    }
    assert_eq!(fake.calls("cuModuleLoadDataEx"), 0);
    // Of architectures that nobody knows yet.
    let newest = *nvrtc.archs().last().unwrap();
    let made = compiler.compile(SAXPY, Arch::new(99, 0), &CompileOptions::new()).unwrap();
    assert!(made.text().unwrap().contains(&format!(".target sm_{}", newest.number())));
}

#[test]
fn nvrtc_says_what_is_wrong_with_a_source() {
    let Some(nvrtc) = nvrtc() else { return };
    let compiler = Compiler::at(nvrtc.path());
    let options = CompileOptions::new().name("bad.cu");
    let error = compiler.compile("__device__ int f() { return y; }\n", H200, &options).unwrap_err();
    assert_eq!((error.code(), &error.args()[2][..]), (ErrorCode::CompileFailed, "NVRTC_ERROR_COMPILATION"));
    assert!(error.args()[3].starts_with("bad.cu(1): error: identifier \"y\" is undefined"), "{error}");
    let error = compiler.compile("#include \"gone.h\"\n", H200, &options).unwrap_err();
    assert_eq!((error.code(), &error.args()[2][..]), (ErrorCode::HeaderMissing, "gone.h"));
    // Nothing is included from where the program happens to be: cargo runs tests in the package's folder.
    assert!(fs::exists("Cargo.toml").unwrap());
    let error = compiler.compile("#include \"Cargo.toml\"\n", H200, &options).unwrap_err();
    assert_eq!(error.code(), ErrorCode::HeaderMissing, "{error}");
    let error = compiler.compile(SAXPY, H200, &CompileOptions::new().other("--bogus")).unwrap_err();
    assert_eq!(error.args()[2], "NVRTC_ERROR_INVALID_OPTION");
}

#[test]
fn nvrtc_makes_instances_of_templates_and_finds_headers() {
    let Some(nvrtc) = nvrtc() else { return };
    let folder = Folder::new("nvrtc-cache");
    let source = "#include <own.h>\ntemplate <typename T, int N> __global__ void scale(T *x) { x[threadIdx.x] *= N * SCALE; }";
    let options =
        CompileOptions::new().header("own.h", "#define SCALE 3\n").instance("scale<float, 4>").as_ptx();
    let cache = KernelCache::at(&folder.0).unwrap();
    let compiler = Compiler::at(nvrtc.path()).cached(&cache);
    let made = compiler.compile(source, H200, &options).unwrap();
    assert!(format!("{made:?}").contains("(\"scale<float, 4>\", \"_Z5scaleIfLi4EEvPT_\")"), "{made:?}");
    // The toolkit's own, where they are beside the compiler or in a place that is looked in.
    let half = "#include <cuda_fp16.h>\nextern \"C\" __global__ void twice(__half *x) { x[threadIdx.x] = x[threadIdx.x] + x[threadIdx.x]; }";
    match compiler.compile(half, H200, &CompileOptions::new()) {
        Ok(made) => {
            // As another process: by what the headers hold.
            let cache = KernelCache::at(&folder.0).unwrap();
            let start = std::time::Instant::now();
            let found = Compiler::at(nvrtc.path())
                .cached(&cache)
                .compile(half, H200, &CompileOptions::new())
                .unwrap();
            println!("with the headers of half numbers, kept: {:?}", start.elapsed());
            assert_eq!((found, cache.stats().disk_hits, cache.stats().misses), (made, 1, 0));
        }
        Err(error) => {
            assert_eq!(
                (error.code(), &error.args()[2][..]),
                (ErrorCode::HeaderMissing, "cuda_fp16.h"),
                "{error}"
            );
            println!("skipped: no headers of the toolkit: {error}");
        }
    }
    let start = std::time::Instant::now();
    let found = Compiler::at(nvrtc.path())
        .cached(&KernelCache::at(&folder.0).unwrap())
        .compile(source, H200, &options);
    println!("kept: {:?}", start.elapsed());
    assert_eq!(found.unwrap(), made);
}

#[test]
fn what_has_a_way_of_its_own_is_refused() {
    let fake = Fake::new().unwrap();
    for option in
        ["-I/usr", "--include-path=/usr", "--pre-include=a.h", "-arch=sm_80", "--gpu-architecture=sm_80"]
    {
        let options = CompileOptions::new().other(option);
        let error = Compiler::at(fake.path()).compile(SAXPY, H200, &options).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidSetting);
        assert_eq!(error.args()[1], option);
    }
}

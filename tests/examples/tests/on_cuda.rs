//! The examples that use a GPU, as their user meets them: without one, and on a stand-in for the driver.
//!
//! The stand-in is put into a folder under the name that the system's loader looks for; a child process finds it there.

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "tests")]

#[path = "../../../examples/tests/common/mod.rs"]
mod common;

use std::fs;
use std::path::PathBuf;

use common::{example, run, scratch};
use serde_json::Value;
use wakeline_fake_driver::Fake;

/// A folder with a driver's library in it.
struct Driver(PathBuf);

impl Driver {
    fn stand_in(name: &str) -> Self {
        let fake = Fake::new().expect("the stand-in is built with the tests");
        let folder = scratch(name);
        fs::create_dir_all(&folder).expect("there is room for a folder");
        fs::copy(fake.path(), folder.join("libcuda.so.1")).expect("there is room for the library");
        Self(folder)
    }

    /// A folder without one: also where this machine has a GPU, the loader's first look is there, and its error ends the search.
    fn none(name: &str) -> Self {
        let folder = scratch(name);
        fs::create_dir_all(&folder).expect("there is room for a folder");
        fs::write(folder.join("libcuda.so.1"), "no library").expect("there is room for a small file");
        Self(folder)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn cuda_wait_prints_what_the_wait_did() {
    let driver = Driver::stand_in("cuda-wait");
    for plan in
        ["block", "poll", "flag:park_us=50,backstop_us=1000", "flag:park_us=50,backstop_us=1000+trust"]
    {
        let ran = run(example("cuda_wait").args([plan, "2000"]).env("LD_LIBRARY_PATH", &driver.0));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stdout.contains("completion by word"), "{ran:?}");
        assert!(ran.stdout.contains(plan) && ran.stdout.contains("Done("), "{ran:?}");
    }
}

#[test]
fn cuda_wait_without_a_gpu_says_so() {
    let driver = Driver::none("no-gpu");
    let ran = run(example("cuda_wait").env("LD_LIBRARY_PATH", &driver.0));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("no CUDA device") && ran.stderr.contains("libcuda.so.1"), "{ran:?}");
    assert!(ran.stdout.is_empty(), "{ran:?}");
}

#[test]
fn cuda_wait_tells_what_is_wrong_with_its_arguments() {
    for (arguments, says) in [
        (["flag", "1"], "column 5"),
        (["poll", "x"], "`x` is no number"),
        (["poll", "10000001"], "`10000001` is no"),
    ] {
        let ran = run(example("cuda_wait").args(arguments));
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(says), "{ran:?}");
    }
}

#[test]
fn decode_loop_plays_its_steps_on_a_gpu() {
    let driver = Driver::stand_in("decode-loop");
    for workload in ["decode-graph", "decode-eager"] {
        let records = scratch(&format!("{workload}.jsonl"));
        let mut command = example("decode_loop");
        command.args([
            "--device",
            "cuda",
            "--workload",
            workload,
            "--steps",
            "16",
            "--seconds",
            "2",
            "--json",
        ]);
        let ran = run(command.arg(&records).env("LD_LIBRARY_PATH", &driver.0));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stdout.contains("on a GPU") && ran.stdout.contains("completion by word"), "{ran:?}");
        assert!(!ran.stdout.contains("itself stored late"), "{ran:?}");
        let text = fs::read_to_string(&records).expect("it wrote records");
        let _ = fs::remove_file(&records);
        let records: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(records.len(), 4, "{text}");
        for record in records {
            assert_eq!(record["waits"], 16, "{record}");
            assert!(
                record["device"].as_str().is_some_and(|device| device.contains("completion by word")),
                "{record}"
            );
        }
    }
}

#[test]
fn decode_loop_falls_back_only_where_it_was_told_that_it_may() {
    let driver = Driver::none("auto");
    let loop_on = |device: &str| {
        let mut command = example("decode_loop");
        command.args(["--device", device, "--workload", "decode-eager", "--steps", "8", "--seconds", "1"]);
        run(command.env("LD_LIBRARY_PATH", &driver.0))
    };
    let auto = loop_on("auto");
    assert_eq!(auto.code, Some(0), "{auto:?}");
    assert!(auto.stderr.contains("on a simulated device") && auto.stdout.contains("simulated"), "{auto:?}");
    let cuda = loop_on("cuda");
    assert_eq!(cuda.code, Some(3), "{cuda:?}");
    assert!(cuda.stderr.contains("libcuda.so.1"), "{cuda:?}");
}

#[test]
fn device_ops_gives_the_same_on_both_devices() {
    let driver = Driver::stand_in("device-ops");
    for device in [None, Some("cuda")] {
        let mut command = example("device_ops");
        command.args(["--numbers", "1001"]).args(device.map(|device| format!("--device={device}")));
        let ran = run(command.env("LD_LIBRARY_PATH", &driver.0));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stdout.contains("over 1001 numbers is 3010007, as it should be"), "{ran:?}");
        assert!(ran.stdout.contains("leaked: 0"), "{ran:?}");
        assert_eq!(ran.stdout.contains("without a runtime bound: 13"), device.is_some(), "{ran:?}");
    }
}

#[test]
fn device_ops_reads_its_settings_strictly() {
    let driver = Driver::stand_in("device-ops-settings");
    let with = |name: &str, value: &str| {
        run(example("device_ops").arg("--device=cuda").env("LD_LIBRARY_PATH", &driver.0).env(name, value))
    };
    let ran = with("WAKELINE_PLAN", "flag:park_us=100,backstop_us=2000");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for (name, value) in [("WAKELINE_PLAN", "pol"), ("WAKELINE_STRICT", "maybe"), ("WAKELINE_STRIKT", "1")] {
        let ran = with(name, value);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains(name) && ran.stdout.is_empty(), "{ran:?}");
    }
}

#[test]
fn device_ops_without_a_gpu_says_so() {
    let driver = Driver::none("device-ops-none");
    let ran = run(example("device_ops").arg("--device=cuda").env("LD_LIBRARY_PATH", &driver.0));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("libcuda.so.1"), "{ran:?}");
}

#[test]
fn pipeline_gives_the_same_on_a_gpu() {
    let driver = Driver::stand_in("pipeline");
    let svg = scratch("pipeline-cuda.svg");
    let mut command = example("pipeline");
    command.args(["--device", "cuda", "--batches", "6", "--svg"]).arg(&svg);
    let ran = run(command.env("LD_LIBRARY_PATH", &driver.0));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.starts_with("6 batches on a GPU, as they should be\n"), "{ran:?}");
    assert!(ran.stdout.contains("leaked: 0"), "{ran:?}");
    let drawn = fs::read_to_string(&svg).expect("it drew");
    let _ = fs::remove_file(&svg);
    assert_eq!(drawn.matches("<title>").count(), 6 * 7, "{drawn}");
    let none = Driver::none("pipeline-none");
    let ran = run(example("pipeline").arg("--device=cuda").env("LD_LIBRARY_PATH", &none.0));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("libcuda.so.1"), "{ran:?}");
}

#[test]
fn saxpy_gives_the_same_on_both_devices_from_cuda_c_and_from_ptx() {
    let driver = Driver::stand_in("saxpy");
    let library = driver.0.join("libcuda.so.1");
    let caches = scratch("saxpy-caches");
    let ran = run(example("saxpy").args(["--numbers", "1001"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("the simulated device: 1001 numbers, as they should be"), "{ran:?}");
    let on_cuda = |nvrtc: Option<&PathBuf>| {
        let mut command = example("saxpy");
        command.args(["--device=cuda", "--numbers", "1001"]).env("LD_LIBRARY_PATH", &driver.0);
        command.env("XDG_CACHE_HOME", &caches);
        if let Some(nvrtc) = nvrtc {
            command.env("WAKELINE_NVRTC", nvrtc);
        }
        run(&mut command)
    };
    // The stand-in is a compiler, too; the second run has its kernel from the first.
    for _ in 0..2 {
        let ran = on_cuda(Some(&library));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stdout.contains("a GPU: 1001 numbers, as they should be"), "{ran:?}");
        assert!(ran.stdout.contains("from CUDA C"), "{ran:?}");
    }
    let kept = fs::read_dir(caches.join("wakeline/kernels")).expect("a cache").flatten();
    let kept: Vec<_> = kept.map(|entry| entry.path().extension().map(ToOwned::to_owned)).collect();
    assert_eq!(kept.iter().filter(|kind| kind.as_deref() == Some("kernel".as_ref())).count(), 1, "{kept:?}");
    // Names that the loader looks for are no libraries here, so there is no compiler, also where this machine has one.
    for name in ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"] {
        fs::write(driver.0.join(name), "no library").expect("there is room for a small file");
    }
    let ran = on_cuda(None);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("as they should be") && ran.stdout.contains("from PTX"), "{ran:?}");
    let _ = fs::remove_dir_all(&caches);
}

#[test]
fn saxpy_without_a_gpu_or_with_a_wrong_setting_says_so() {
    let driver = Driver::none("saxpy-none");
    let ran = run(example("saxpy").arg("--device=cuda").env("LD_LIBRARY_PATH", &driver.0));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("libcuda.so.1"), "{ran:?}");
    let driver = Driver::stand_in("saxpy-settings");
    let mut command = example("saxpy");
    let ran =
        run(command.arg("--device=cuda").env("LD_LIBRARY_PATH", &driver.0).env("WAKELINE_NVRTC", "/no/such"));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("WAKELINE_NVRTC") && ran.stderr.contains("/no/such"), "{ran:?}");
}

#[test]
fn mlp_graph_gives_the_same_on_both_devices_and_draws_its_graph() {
    let driver = Driver::stand_in("mlp-graph");
    let drawing = driver.0.join("graph.svg");
    let ran = run(example("mlp_graph").args(["--passes", "3", "--svg"]).arg(&drawing));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("by a tiled kernel of ours: 6 passes as they should be; 4 nodes"), "{ran:?}");
    let drawn = fs::read_to_string(&drawing).expect("a drawing");
    assert!(drawn.contains("matmul") || drawn.matches("<rect").count() == 4, "{drawn}");
    // Names that the loader looks for are no libraries here, so there is no cuBLAS, also where this machine has one.
    for name in ["libcublas.so.13", "libcublas.so.12"] {
        fs::write(driver.0.join(name), "no library").expect("there is room for a small file");
    }
    let mut command = example("mlp_graph");
    command.args(["--device=cuda", "--size=small", "--passes", "3"]).env("LD_LIBRARY_PATH", &driver.0);
    command
        .env("XDG_CACHE_HOME", driver.0.join("cache"))
        .env("WAKELINE_NVRTC", driver.0.join("libcuda.so.1"));
    let ran = run(&mut command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("a GPU: products by a tiled kernel of ours: 6 passes as they"), "{ran:?}");
    assert!(ran.stdout.contains("no products by cuBLAS: libcublas.so.13"), "{ran:?}");
}

//! Awaited all-reduces beside the library's own, on the stand-in; and the program without GPUs.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod without_gpu;

use std::process::Command;

use wakeline_benches::ranks::sums;
use wakeline_cuda::{Cuda, CudaDevice, Nccl};
use wakeline_fake_driver::Fake;
use wakeline_std::on_a_thread;

fn ranks(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ranks"));
    command.args(args);
    command
}

#[test]
fn both_arms_sum_and_have_their_records_and_nothing_is_left() {
    let fake = Fake::new().unwrap();
    fake.configure(|options| options.devices = 3);
    let cuda = Cuda::load_from(fake.path()).unwrap();
    let nccl = Nccl::load_from(fake.path(), on_a_thread).unwrap();
    let records = sums("a stand-in", &nccl, CudaDevice::all(&cuda).unwrap(), 64 << 10, 3).unwrap();
    assert_eq!(records.iter().map(|record| record.arm).collect::<Vec<_>>(), ["spin", "await"]);
    for record in &records {
        assert_eq!((record.ranks, record.rounds, record.bytes), (3, 3, 64 << 10), "{record:?}");
        assert!(record.p50_ns > 0 && record.p50_ns <= record.p99_ns && record.cpu_ns > 0, "{record:?}");
        assert!(record.ratio.as_ref().unwrap().mean > 0.0, "{record:?}");
    }
    // A warm one and three of each arm, of three ranks.
    assert_eq!(fake.calls("ncclAllReduce"), 2 * 4 * 3);
    let start = std::time::Instant::now();
    while fake.live().communicators > 0 {
        assert!(start.elapsed().as_secs() < 20, "{:?}", fake.live());
        std::thread::yield_now();
    }
    assert_eq!(fake.violations(), Vec::<String>::new());
}

#[test]
fn with_fewer_than_two_gpus_it_says_so_and_ends_with_code_3() {
    let mut none = ranks(&[]);
    without_gpu::hide_driver(&mut none);
    let fake = Fake::new().unwrap();
    let driver = fake.path().to_str().unwrap();
    for (mut command, says) in [(none, "no CUDA device"), (ranks(&["--driver", driver]), "1 GPU, of 2")] {
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.starts_with("skipped: ") && said.contains(says), "{said}");
    }
    let refused = ranks(&["--mib", "0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

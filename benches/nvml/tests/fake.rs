//! The counter, read from the stand-in for the driver's libraries.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use wakeline_fake_driver::Fake;
use wakeline_nvml::{Absent, EnergyCounter, Gpu};

#[test]
fn a_counter_rises_whichever_way_its_gpu_is_found() {
    let fake = Fake::new().unwrap();
    for gpu in [Gpu::Index(0), Gpu::Uuid("GPU-fa4e0000-0000-0000-0000-000000000000".to_owned())] {
        let counter = EnergyCounter::open(Some(fake.path()), &gpu).unwrap();
        let before = counter.millijoules().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        // 100 W for at least 20 ms.
        assert!(counter.millijoules().unwrap() >= before + 2_000, "{gpu:?}");
    }
}

#[test]
fn what_is_not_there_is_an_error_and_no_number() {
    let fake = Fake::new().unwrap();
    let no_such_gpu = EnergyCounter::open(Some(fake.path()), &Gpu::Index(99)).unwrap_err();
    assert!(
        matches!(no_such_gpu, Absent::Call { call: "nvmlDeviceGetHandleByIndex_v2", .. }),
        "{no_such_gpu}"
    );
    let no_identity = EnergyCounter::open(Some(fake.path()), &Gpu::Uuid("GPU-\0".to_owned())).unwrap_err();
    assert!(matches!(no_identity, Absent::Call { status: 2, .. }), "{no_identity}");
    for library in ["no/such/libnvidia-ml.so.1", "libm.so.6"] {
        let absent = EnergyCounter::open(Some(Path::new(library)), &Gpu::Index(0)).unwrap_err();
        assert!(matches!(absent, Absent::Library(_)), "{library}: {absent}");
    }
}

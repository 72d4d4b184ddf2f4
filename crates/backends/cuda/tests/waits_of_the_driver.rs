//! The driver's own waits, which waits of ours are measured beside. On the fake, and on the machine's own device where there is one.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(unsafe_code, reason = "what tests share calls the driver itself")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use common::{clean, loaded};
use wakeline_core::{Nanos, Status};
use wakeline_cuda::{Calls, Caps, Cuda, Schedule, kernels::Kernels};

const LENGTH: Duration = Duration::from_millis(3);

fn on_each(test: impl Fn(&Cuda)) {
    let (fake, cuda) = loaded();
    test(&cuda);
    clean(&fake);
    match Cuda::load() {
        Ok(cuda) => test(&cuda),
        Err(error) => println!("skipped: no CUDA device: {error}"),
    }
}

#[test]
fn each_returns_once_the_work_is_done_and_not_before() {
    on_each(|cuda| {
        let context = cuda.context(0).unwrap();
        let stream = context.stream().unwrap();
        let kernels = Kernels::load(&context).unwrap();
        for blocking in [false, true] {
            let make = if blocking { Calls::blocking } else { Calls::new };
            let calls = make(&context, &stream).unwrap();
            for way in 0..3 {
                let start = Instant::now();
                kernels.occupy(&stream, Nanos::from_nanos(LENGTH.as_nanos().try_into().unwrap())).unwrap();
                match way {
                    0 => calls.synchronize_stream().unwrap(),
                    1 => {
                        calls.record().unwrap();
                        calls.synchronize_event().unwrap();
                        assert_eq!(calls.query_event().unwrap(), Status::Done);
                    }
                    _ => {
                        let (tell, told) = channel();
                        calls.call_host(move || tell.send(()).unwrap()).unwrap();
                        told.recv_timeout(Duration::from_secs(10)).unwrap();
                    }
                }
                // The device's clock may be a little faster than this one.
                assert!(start.elapsed() > LENGTH * 9 / 10, "blocking: {blocking}, way {way}");
            }
            calls.synchronize_stream().unwrap();
        }
    });
}

#[test]
fn how_they_wait_is_changed_for_a_context_and_set_back() {
    on_each(|cuda| {
        let context = cuda.context(0).unwrap();
        let stream = context.stream().unwrap();
        if !cuda.caps().contains(Caps::CONTEXT_FLAGS) {
            return println!("skipped: this driver cannot change the flags of a context");
        }
        let calls = Calls::new(&context, &stream).unwrap();
        let before = calls.schedule(Schedule::Spin).unwrap();
        assert_eq!(calls.schedule(Schedule::Yield).unwrap(), Schedule::Spin);
        assert_eq!(calls.schedule(Schedule::Block).unwrap(), Schedule::Yield);
        assert_eq!(calls.schedule(before).unwrap(), Schedule::Block);
        assert_eq!(calls.schedule(before).unwrap(), before);
        calls.synchronize_stream().unwrap();
    });
}

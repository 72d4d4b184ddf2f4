//! A library that lacks one function, for each that is used: what needs it says so, and everything else works.

use std::time::Duration;

use wakeline_core::{Error, ErrorCode, Inline, Nanos, Wait, WaitPlan, drive, run_inline};
use wakeline_fake_driver::Fake;
use wakeline_mapped::work::AFFINE;
use wakeline_ops::port::Shape;
use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin};
use wakeline_std::{ParkPolicy, Point, StdClock, StdIdle, StdPark, Watcher, block_on};
use wakeline_tensor::{KernelArg, Tensor, launch};

use crate::kernels::Kernels;
use crate::sys::Symbols;
use crate::{Hip, HipDevice, HipStream, Loader, Ordinal};

const LEN: usize = 16;

fn waits(stream: &HipStream, plan: &str) -> Result<(), Error> {
    let clock = StdClock::new();
    let idle = StdIdle::new(clock);
    let park = StdPark::new(&idle, ParkPolicy::default());
    let plan: WaitPlan = plan.parse()?;
    let mut port = stream.port()?;
    run_inline(drive(Wait::new(&plan), &mut port, &Inline::new(clock, &idle, &park), None))??;
    Ok(())
}

/// Waits, behind work where there are kernels.
fn lines(hip: &Hip) -> Result<(), Error> {
    let context = hip.context(0)?;
    let stream = context.stream()?;
    let kernels = Kernels::load(&context);
    for plan in
        ["poll", "block", "flag:park_us=50,backstop_us=1000", "flag:park_us=50,backstop_us=1000+trust"]
    {
        if let Ok(kernels) = &kernels {
            // Where that is what is missing, the point is one of no work.
            drop(kernels.occupy(&stream, Nanos::from_micros(500)));
        }
        waits(&stream, plan)?;
    }
    drop((stream, kernels));
    context.close(Duration::from_secs(5)).map(drop)
}

/// Numbers that go to the device, through a kernel and back.
fn operations(hip: &Hip) -> Result<Vec<u32>, Error> {
    let device = HipDevice::new(hip, Ordinal(0))?;
    let module = <Hip as wakeline_mapped::driver::KernelDriver>::kernels(device.context())?;
    let affine = module.function(AFFINE)?;
    let watcher = Watcher::new()?;
    let tender = watcher.handle().tender(&Point::new("lacking"));
    let runtime = Runtime::new(device, &StreamPoolRoundRobin::new(2)?, tender)?;
    let op = Tensor::from_host(vec![3_u32; LEN]).then(move |tensor| {
        let words = [LEN as u64, 2, 1].map(KernelArg::word);
        let args: Vec<_> = [KernelArg::write(&tensor)].into_iter().chain(words).collect();
        // SAFETY: the kernel takes an address, a count and two numbers, and writes so many numbers there.
        let step = unsafe { launch(affine, Shape::new([1; 3], [64, 1, 1]), args) };
        step.then(move |()| tensor.to_host())
    });
    let numbers = block_on(op.on(&runtime));
    drop(runtime);
    watcher.close(Watcher::CLOSE)?;
    numbers
}

#[test]
fn each_function_may_be_missing() {
    let mut refused = Vec::new();
    for row in Symbols::ROWS {
        let fake = Fake::new().unwrap();
        let hip = match Loader::new().path(fake.path()).without([row.exported]).load() {
            Ok(hip) => hip,
            Err(error) => {
                assert_eq!((error.code(), &*error.args()[2]), (ErrorCode::SymbolMissing, row.exported));
                continue;
            }
        };
        let mut says_so = |error: Error| {
            let said = error.to_string();
            assert!(
                said.contains("has no such function") || said.contains("no pools of memory"),
                "{}: {error}",
                row.exported
            );
            refused.push(row.exported);
        };
        match (lines(&hip), operations(&hip)) {
            (lines, Ok(numbers)) => {
                assert_eq!(numbers, [7; LEN], "{}", row.exported);
                lines.unwrap();
            }
            (Ok(()), Err(error)) => says_so(error),
            (Err(error), Err(_)) => panic!("{}: nothing can be awaited: {error}", row.exported),
        }
        assert!(fake.violations().is_empty(), "{}: {:?}", row.exported, fake.violations());
        assert_eq!(hip.census().counts().drop_failures, 0, "{}", row.exported);
    }
    // What operations need at least; waits need none of it.
    for needed in ["hipMallocAsync", "hipModuleLoadData", "hipMemcpyHtoDAsync"] {
        assert!(refused.contains(&needed), "{needed}: {refused:?}");
    }
    for bridged in ["hipStreamGetDevice", "hipLaunchHostFunc", "hipStreamWriteValue64", "hipGraphGetNodes"] {
        assert!(!refused.contains(&bridged), "{bridged}: {refused:?}");
    }
}

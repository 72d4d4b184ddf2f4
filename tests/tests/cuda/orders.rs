//! What was written before a point is seen after its wait.

use wakeline_mapped::{DeviceBuffer, HostBuffer};
use wakeline_std::{Point, Watcher, block_on};
use wakeline_tests::driver_tests;
use wakeline_tests::rig::Rig;
use wakeline_tests::vendor::Vendor;

use crate::waiting::{PLANS, plan, wait};

driver_tests![
    Both: ten_thousand_points_show_what_was_copied_before_them,
        points_of_several_streams_at_once_show_each_its_own_copies;
];

const POINTS: usize = 10_000;
const BYTES: usize = 4_096;

/// How many points one is awaited on another thread for.
const WATCHED_EACH: usize = 8;

/// A byte that neither the last copy nor the one before it had.
fn byte(number: usize) -> u8 {
    u8::try_from(number % 251).unwrap()
}

fn ten_thousand_points_show_what_was_copied_before_them<D: Vendor>(rig: &Rig<D>) {
    let (context, stream) = (rig.context(), rig.stream());
    let watcher = Watcher::new().unwrap();
    let point = Point::new("copies");
    let (device, host) =
        (DeviceBuffer::new(context, BYTES).unwrap(), HostBuffer::new(context, BYTES).unwrap());
    let plans = PLANS.map(plan);
    for number in 0..POINTS {
        // SAFETY: the stream is alive; each fill is behind the copy before it, and the buffers are kept until all is done.
        unsafe { device.fill(stream.raw(), byte(number)) }.unwrap();
        // SAFETY: as above; the host's is read after the wait.
        unsafe { device.copy_to(stream.raw(), &host) }.unwrap();
        let mut port = stream.port().unwrap();
        let index = number / WATCHED_EACH % PLANS.len();
        if number % WATCHED_EACH == 0 {
            block_on(watcher.wait(port, &plans[index], &point)).unwrap();
        } else {
            wait(PLANS[index], &mut port).unwrap();
        }
        let stale = host.as_slice().iter().position(|found| *found != byte(number));
        assert_eq!(stale, None, "copy {number}, {}", PLANS[index]);
    }
}

fn points_of_several_streams_at_once_show_each_its_own_copies<D: Vendor>(rig: &Rig<D>) {
    const STREAMS: usize = 4;
    const ROUNDS: usize = 250;
    std::thread::scope(|scope| {
        for lane in 0..STREAMS {
            scope.spawn(move || {
                let (context, stream) = (rig.context(), rig.stream());
                let device = DeviceBuffer::new(context, BYTES).unwrap();
                let hosts = [(); 2].map(|()| HostBuffer::new(context, BYTES).unwrap());
                for round in 0..ROUNDS {
                    let numbers = [0, 1].map(|half| (lane * ROUNDS + round) * 2 + half);
                    let mut ports = Vec::new();
                    for (host, number) in hosts.iter().zip(numbers) {
                        // SAFETY: the stream is alive; its work is in order, and the buffers are kept until all is done.
                        unsafe { device.fill(stream.raw(), byte(number)) }.unwrap();
                        // SAFETY: as above; the host's is read after the wait.
                        unsafe { device.copy_to(stream.raw(), host) }.unwrap();
                        ports.push(stream.armed_port().unwrap());
                    }
                    for ((host, number), port) in hosts.iter().zip(numbers).zip(&mut ports) {
                        wait(PLANS[3 + round % 4], port).unwrap();
                        assert!(host.as_slice().iter().all(|found| *found == byte(number)), "copy {number}");
                    }
                }
            });
        }
    });
}

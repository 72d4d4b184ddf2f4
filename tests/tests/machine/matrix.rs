//! The fault matrix of several devices: each call of the driver that a program over two of them makes, as each of its failures.
//!
//! Each row has devices that are new, since a fault is one of theirs. The first turns of each call are among the usual tests; all of them are behind
//! `--ignored every_row`.

use wakeline_core::Error;
use wakeline_fake_driver::{Fake, FaultEnds, PeerAccess};
use wakeline_mapped::work::AFFINE;
use wakeline_mapped::{Function, OpDevice, OpDeviceConfig, Ordinal};
use wakeline_ops::{DeviceOp, Machine, RuntimeConfig, StreamPoolRoundRobin, zip};
use wakeline_std::{Point, Watcher, block_on};
use wakeline_tensor::Tensor;
use wakeline_tests::every_call::{Extent, Ran, each_call_fails};
use wakeline_tests::machine_rig::{Several, VendorMachine};
use wakeline_tests::machine_tests;
use wakeline_tests::ops_rig::{PLAN, affine, poll_once, until};
use wakeline_tests::rig::FAKE_FAULT;

machine_tests![
    FakesLeaving: a_failure_of_each_call_over_two_devices_is_an_error_or_counted;
    FakesLong: every_row_over_two_devices_that_reach_each_other,
        every_row_over_two_devices_that_do_not;
];

const LEN: usize = 16;

/// Two devices.
struct Pair<'p, D: Several> {
    machine: &'p Machine<OpDevice<D>>,
    kernels: Vec<Function<D>>,
}

impl<D: Several> Pair<'_, D> {
    /// Numbers that are made on one device, copied to the other, changed there, copied back while both go on, and placed work.
    fn runs(&self) -> Result<Vec<u32>, Error> {
        self.machine.link_all()?;
        let [here, there] = [0, 1].map(|device| self.machine.site(device).map(|site| site.runtime().clone()));
        let (here, there) = (here?, there?);
        let first = block_on(Tensor::<u32, OpDevice<D>>::from_host(vec![5; LEN]).on(&here))?;
        let mut changed = affine(self.kernels[0].clone(), &first, 2, 1).on(&here);
        let _ = poll_once(&mut changed);
        // Behind the change, which the other device waits for.
        let second = block_on(first.to_device().on(&there))?;
        let written = block_on(affine(self.kernels[1].clone(), &second, 3, 0).on(&there));
        written?;
        let target = block_on(Tensor::<u32, OpDevice<D>>::full(LEN, 0).on(&here))?;
        let back = block_on(second.send_to(target).on(&here))?;
        let mut dropped = second.to_device().on(&here);
        let _ = poll_once(&mut dropped);
        drop(dropped);
        let both = block_on(zip!(back.to_host(), first.to_host()).on(&here))?;
        let mut numbers = both.0;
        numbers.extend(both.1);
        // By whichever has less to do.
        let placed = self.machine.run(|_| Tensor::<u32, OpDevice<D>>::full(LEN, 7).then(|it| it.to_host()));
        numbers.extend(block_on(placed)?);
        Ok(numbers)
    }
}

/// Two devices of this stand-in, a watcher, a machine and the program on it, all of it let go; the result.
fn whole<D: Several>(fake: &Fake) -> Result<Vec<u32>, Error> {
    let driver = D::load_from(fake.path())?;
    let ordinals: Vec<_> = (0..driver.devices()).map(Ordinal).collect();
    let devices = OpDevice::those(&driver, &ordinals, &OpDeviceConfig::default())?;
    let kernel = |device: &OpDevice<D>| D::kernels(device.context())?.function(AFFINE);
    let kernels = devices.iter().map(kernel).collect::<Result<Vec<_>, _>>()?;
    let watcher = Watcher::new()?;
    let tender = watcher.handle().tender(&Point::new("row"));
    let config = RuntimeConfig::default().plan(PLAN.parse()?);
    let machine = Machine::with_config(devices, &StreamPoolRoundRobin::new(2)?, tender, config)?;
    let result = Pair { machine: &machine, kernels }.runs();
    for site in machine.sites() {
        until("flights end", || site.runtime().counts().in_flight() == 0);
    }
    drop(machine);
    watcher.close(Watcher::CLOSE)?;
    result
}

fn rows<D: Several>(name: &str, extent: Extent, peers: PeerAccess) {
    let fake = Fake::new().unwrap();
    let run = |wrong| {
        // Of the row before, also where it broke a device.
        fake.reset();
        fake.configure(|options| {
            options.fault_delay_us = u64::try_from(FAKE_FAULT.as_micros()).unwrap();
            options.fault_ends = FaultEnds::Context;
            D::prepare(options);
            options.devices = 2;
            options.peer_access = peers;
        });
        Ran::on(&fake, wrong, || whole::<D>(&fake))
    };
    // The change that nobody awaits is not heard of where it fails.
    let right = [(33, 11), (15, 5)].map(|(back, first)| [[back; LEN], [first; LEN], [7; LEN]].concat());
    let rows = each_call_fails(name, extent, &right, run);
    assert!(rows > 150, "{rows} rows");
}

fn a_failure_of_each_call_over_two_devices_is_an_error_or_counted<D: Several>(_: &VendorMachine<D>) {
    rows::<D>("two devices", Extent::Part, PeerAccess::Granted);
}

fn every_row_over_two_devices_that_reach_each_other<D: Several>(_: &VendorMachine<D>) {
    rows::<D>("two devices that reach each other", Extent::Every, PeerAccess::Granted);
}

fn every_row_over_two_devices_that_do_not<D: Several>(_: &VendorMachine<D>) {
    rows::<D>("two devices that do not", Extent::Every, PeerAccess::Refused);
}

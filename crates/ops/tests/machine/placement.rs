//! On which device operations run.

use wakeline_core::{Clock, ErrorCode, Nanos};
use wakeline_ops::{
    ByKey, DEVICES_MAX, DeviceLoads, DeviceOp, InTurn, LeastBusy, Machine, Placement, SingleStream, value,
};
use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};

use crate::common::{CONFIG, poll_once};
use crate::{Machines, busy};

const SIZES: [usize; 4] = [1, 2, 8, 64];

/// How many operations each device gets, on the average.
const EACH: usize = 40;

/// Runs so many at a time that take as long as the work says, and how many each device got. All of it takes as long as one device needs for its part.
fn spread(devices: usize, placement: impl Placement, us: impl Fn(usize) -> u64) -> Vec<u64> {
    let rig = Machines::with(devices, &CONFIG, &SingleStream);
    let machine = rig.machine.placed_by(placement);
    let start = rig.watcher.now();
    let mut flying = Vec::new();
    let mut work = 0;
    for number in 0..devices * EACH {
        let us = us(number);
        work += us;
        let mut future = machine.run(move |_| busy(us)).keyed(us);
        assert!(poll_once(&mut future).is_pending());
        flying.push(future);
    }
    for future in flying {
        rig.run(future).unwrap();
    }
    let took = rig.watcher.now().since(start).as_micros();
    let even = work / devices as u64;
    assert!(took >= even && took <= even + even / 20 + 1_000, "{devices} devices: {took} us of {even}");
    rig.assert_clean();
    rig.placed()
}

fn assert_even(placed: &[u64]) {
    let off = |count: u64| count.abs_diff(EACH as u64) * 20;
    assert!(placed.iter().all(|&count| off(count) <= EACH as u64), "within 5 % of even: {placed:?}");
}

#[test]
fn work_is_spread_evenly_in_turn_whatever_the_number_of_devices() {
    for devices in SIZES {
        assert_even(&spread(devices, InTurn::new(), |_| 100));
    }
}

#[test]
fn work_is_spread_evenly_by_what_is_in_flight_whatever_the_number_of_devices() {
    for devices in SIZES {
        assert_even(&spread(devices, LeastBusy::new(), |_| 100));
    }
}

#[test]
fn long_and_short_work_is_spread_so_that_all_devices_end_together_once_it_is_known_how_long_it_takes() {
    for devices in [2, 8] {
        let rig = Machines::with(devices, &CONFIG, &SingleStream);
        for site in rig.machine.sites() {
            for us in [1_000, 100] {
                for _ in 0..3 {
                    rig.run(busy(us).on(site.runtime()).keyed(us)).unwrap();
                }
            }
        }
        let machine = rig.machine.placed_by(LeastBusy::new());
        let start = rig.watcher.now();
        // In turn, one device would get all long ones.
        let flying: Vec<_> = (0..devices * EACH)
            .map(|number| {
                let us = if number % devices == 0 { 1_000 } else { 100 };
                let mut future = machine.run(move |_| busy(us)).keyed(us);
                assert!(poll_once(&mut future).is_pending());
                future
            })
            .collect();
        for future in flying {
            rig.run(future).unwrap();
        }
        let took = rig.watcher.now().since(start).as_micros();
        let work = EACH * 1_000 + EACH * (devices - 1) * 100;
        let even = (work / devices) as u64;
        assert!(took <= even + 1_000, "{devices} devices: {took} us, {even} at best");
        rig.assert_clean();
    }
}

#[test]
fn of_two_devices_of_different_speeds_each_gets_as_much_as_it_can_do() {
    let rig = Machines::with(2, &CONFIG, &SingleStream);
    let machine = rig.machine.placed_by(LeastBusy::new());
    // The second takes three times as long.
    let run = |rounds: usize| {
        let flying: Vec<_> = (0..rounds)
            .map(|_| {
                let mut future = machine.run(|site| busy(if site.number() == 1 { 300 } else { 100 }));
                assert!(poll_once(&mut future).is_pending());
                future
            })
            .collect();
        for future in flying {
            rig.run(future).unwrap();
        }
    };
    run(16);
    let (before, start) = (rig.placed(), rig.watcher.now());
    run(400);
    let took = rig.watcher.now().since(start);
    let placed: Vec<_> = rig.placed().iter().zip(before).map(|(now, before)| now - before).collect();
    assert!((295..=305).contains(&placed[0]), "three in four: {placed:?}");
    assert!(took <= Nanos::from_micros(30_900), "{took}: 30 ms at best, 60 in turn");
    rig.assert_clean();
}

#[test]
fn a_device_on_which_one_took_very_long_once_is_tried_again() {
    let rig = Machines::with(2, &CONFIG, &SingleStream);
    let machine = rig.machine.placed_by(LeastBusy::new());
    // What it begins with: a thousand times as long.
    rig.run(busy(100_000).on(rig.on(0))).unwrap();
    rig.run(busy(100).on(rig.on(1))).unwrap();
    for _ in 0..10 {
        let flying: Vec<_> = (0..40)
            .map(|_| {
                let mut future = machine.run(|_| busy(100));
                assert!(poll_once(&mut future).is_pending());
                future
            })
            .collect();
        for future in flying {
            rig.run(future).unwrap();
        }
    }
    let placed = rig.placed();
    assert!(placed[0] >= 100, "{placed:?}");
    rig.assert_clean();
}

#[test]
fn a_key_stays_where_it_is_and_moves_only_where_its_device_goes_out() {
    let rig = Machines::new(8);
    let machine = rig.machine.placed_by(ByKey);
    let of = |key: u64| rig.run(machine.run(|site| value(site.number())).keyed(key)).unwrap();
    let before: Vec<_> = (0..400).map(of).collect();
    assert_eq!((0..400).map(of).collect::<Vec<_>>(), before);
    for device in 0..8 {
        let count = before.iter().filter(|&&its| its == device).count();
        assert!((25..=75).contains(&count), "{count} of 400 keys on one of 8");
    }
    rig.machine.site(3).unwrap().take_out();
    for (key, &before) in (0..400).zip(&before) {
        let now = of(key);
        assert!(now != 3 && (before == 3 || now == before), "key {key}: {before}, {now}");
    }
    rig.machine.site(3).unwrap().put_in().unwrap();
    assert_eq!((0..400).map(of).collect::<Vec<_>>(), before, "they come back");
}

#[test]
fn a_placement_of_the_users_is_told_what_is_in_flight_and_may_name_any_number() {
    let rig = Machines::new(3);
    let fewest = |loads: &DeviceLoads<'_>| {
        let fewest = loads.all_in().min_by_key(|&device| loads.in_flight(device));
        // Counts from 0 again.
        fewest.unwrap_or(0) + 3 * loads.devices()
    };
    let machine = rig.machine.placed_by(fewest);
    let mut flying: Vec<_> = [500, 20, 300].map(|us| machine.run(move |_| busy(us))).into();
    for future in &mut flying {
        assert!(poll_once(future).is_pending());
    }
    rig.run(busy(50).on(rig.on(0))).unwrap();
    assert_eq!(rig.run(machine.run(|site| value(site.number()))).unwrap(), 1, "the others are at work");
    for future in flying {
        rig.run(future).unwrap();
    }
    assert_eq!(rig.placed(), [1, 2, 1]);
    rig.assert_clean();
}

#[test]
fn nothing_is_placed_before_it_is_polled_and_nothing_runs_that_is_dropped_before() {
    let rig = Machines::new(2);
    let bound = [(); 3].map(|()| rig.machine.run(|_| busy(10)));
    drop(bound);
    assert_eq!(rig.placed(), [0, 0]);
    let mut polled = rig.machine.run(|_| busy(10));
    assert!(poll_once(&mut polled).is_pending());
    drop(polled);
    assert_eq!(rig.placed(), [1, 0]);
    let late = rig.machine.run(|_| busy(1_000)).timeout(Nanos::from_micros(10));
    assert_eq!(rig.run(late).unwrap_err().code(), ErrorCode::Timeout);
    let mut over = rig.machine.run(|site| value(site.number()));
    assert_eq!(rig.run(&mut over).unwrap(), 0);
    assert_eq!(rig.run(over).unwrap_err().code(), ErrorCode::PolledAfterEnd);
    rig.assert_clean();
}

#[test]
fn what_makes_no_machine_is_told() {
    let watcher_of = |device: &SimDevice| VirtualWatcher::new(device);
    let make = || SimDevice::new(VirtualTime::new(), SimConfig::exact()).unwrap();
    let (one, other) = (make(), make());
    let watcher = watcher_of(&one);
    let apart = Machine::new([one.clone(), other], &SingleStream, watcher.clone()).unwrap_err();
    assert_eq!((apart.code(), apart.args().len()), (ErrorCode::DevicesApart, 2));
    let none = Machine::<SimDevice>::new([], &SingleStream, watcher.clone()).unwrap_err();
    assert_eq!(none.code(), ErrorCode::InvalidLimit);
    let many = vec![one.clone(); DEVICES_MAX + 1];
    assert_eq!(
        Machine::new(many, &SingleStream, watcher.clone()).unwrap_err().code(),
        ErrorCode::InvalidLimit
    );
    let machine = Machine::new([one], &SingleStream, watcher).unwrap();
    assert_eq!(machine.site(1).unwrap_err().code(), ErrorCode::InvalidLimit);
    assert_eq!(machine.link(0, 1).unwrap_err().code(), ErrorCode::InvalidLimit);
    machine.site(0).unwrap().take_out();
    let out = machine.place(0).unwrap_err();
    assert_eq!((out.code(), &*out.args()[0]), (ErrorCode::DevicesOut, "1"));
}

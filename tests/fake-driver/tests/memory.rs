//! Memory in the order of streams, and what is found of its misuse.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod raw;

use raw::{Driver, KERNELS, NON_BLOCKING};
use wakeline_fake_driver::{Fake, Status};

/// Keeps a stream busy for some milliseconds.
fn busy(driver: &Driver, stream: u64) {
    assert_eq!(driver.run(c"occupy", stream, &[20_000_000]), Status::SUCCESS);
}

/// An event behind what is enqueued in one stream, waited for in another.
fn order(driver: &Driver, from: u64, to: u64) {
    let event = driver.event_create(2).unwrap();
    assert_eq!(driver.event_record(event, from), Status::SUCCESS);
    assert_eq!(driver.wait_event(to, event, 0), Status::SUCCESS);
    assert_eq!(driver.event_destroy(event), Status::SUCCESS);
}

fn two_streams(driver: &Driver) -> [u64; 2] {
    [(); 2].map(|()| driver.stream_create(NON_BLOCKING).unwrap())
}

#[test]
fn what_another_stream_uses_must_be_allocated_before() {
    for ordered in [true, false] {
        let fake = Fake::new().unwrap();
        let driver = Driver::ready(&fake);
        let [one, other] = two_streams(&driver);
        busy(&driver, one);
        let memory = driver.alloc_async(64, one).unwrap();
        if ordered {
            order(&driver, one, other);
        }
        assert_eq!(driver.fill(memory, 7, 64, other), Status::SUCCESS);
        assert_eq!(driver.stream_synchronize(other), Status::SUCCESS);
        let said = fake.violations();
        assert_eq!(said.len(), usize::from(!ordered), "{said:?}");
        assert!(said.iter().all(|said| said.contains("used before it was allocated")), "{said:?}");
    }
}

#[test]
fn what_is_used_after_its_free_or_freed_twice_is_a_violation_and_no_fault() {
    let fake = Fake::new().unwrap();
    let driver = Driver::ready(&fake);
    let [one, other] = two_streams(&driver);
    let [first, second] = [(); 2].map(|()| driver.alloc_async(64, one).unwrap());
    assert_eq!(driver.stream_synchronize(one), Status::SUCCESS);
    // Enqueued before it is freed, and done after.
    busy(&driver, other);
    assert_eq!(driver.copy(first, second, 64, other), Status::SUCCESS);
    assert_eq!(driver.free_async(first, one), Status::SUCCESS);
    assert_eq!(driver.stream_synchronize(other), Status::SUCCESS);
    assert_eq!(driver.fill(first, 1, 64, one), Status::INVALID_VALUE);
    busy(&driver, one);
    assert_eq!(driver.free_async(second, one), Status::SUCCESS);
    assert_eq!(driver.free_async(second, one), Status::SUCCESS);
    assert_eq!(driver.stream_synchronize(one), Status::SUCCESS);
    assert_eq!(driver.free_async(second, one), Status::INVALID_VALUE);
    let said = fake.violations();
    let ends = ["which is freed", "is freed", "was freed before its turn", "is freed already"];
    assert_eq!(said.len(), ends.len(), "{said:?}");
    assert!(said.iter().zip(ends).all(|(said, end)| said.ends_with(end)), "{said:?}");
    assert_eq!(driver.stream_query(one), Status::SUCCESS, "the context is well");
}

#[test]
fn a_kernel_changes_numbers_in_its_turn() {
    let fake = Fake::new().unwrap();
    let driver = Driver::ready(&fake);
    let stream = driver.stream_create(NON_BLOCKING).unwrap();
    let memory = driver.alloc_async(16, stream).unwrap();
    assert_eq!(driver.fill(memory, 1, 16, stream), Status::SUCCESS);
    let (factor, addend) = (3, u64::from(u32::MAX) << 32 | 7);
    assert_eq!(driver.run(c"affine", stream, &[memory, 3, factor, addend]), Status::SUCCESS);
    let mut host = [0_u32; 4];
    let address = host.as_mut_ptr().expose_provenance() as u64;
    assert_eq!(driver.to_host(address, memory, 16, stream), Status::SUCCESS);
    let changed = 0x0101_0101 * 3 + 7;
    assert_eq!(host, [changed, changed, changed, 0x0101_0101], "by their low halves");
    assert!(fake.violations().is_empty(), "{:?}", fake.violations());
    // Beyond what it has: as on a device.
    assert_eq!(driver.run(c"affine", stream, &[memory, 5, 1, 0]), Status::SUCCESS);
    raw::until("the fault", || driver.stream_query(stream) == Status::ILLEGAL_ADDRESS);
    assert_eq!(KERNELS.to_str().map(|text| text.contains("affine")), Ok(true));
}

#[test]
fn a_devices_pool_knows_what_it_is_to_keep() {
    let fake = Fake::new().unwrap();
    fake.configure(|options| options.devices = 2);
    let driver = Driver::ready(&fake);
    let [first, second] = [0, 1].map(|device| driver.default_pool(device).unwrap());
    assert_ne!(first, second);
    assert_eq!(driver.default_pool(2), Err(Status::INVALID_DEVICE));
    let mut value = 1 << 20;
    assert_eq!(driver.set_pool_attribute(first, 4, &raw mut value), Status::SUCCESS);
    for (pool, kept) in [(first, 1 << 20), (second, 0)] {
        assert_eq!(driver.get_pool_attribute(pool, 4, &raw mut value), Status::SUCCESS);
        assert_eq!(value, kept);
    }
    assert_eq!(driver.get_pool_attribute(first, 9, &raw mut value), Status::INVALID_VALUE);
    // What it has is what was allocated: it keeps nothing else, so that there is nothing to trim.
    let memory = driver.alloc(4_096).unwrap();
    assert_eq!(driver.get_pool_attribute(first, 5, &raw mut value), Status::SUCCESS);
    assert_eq!(value, 4_096);
    assert_eq!(driver.trim_pool(first, 0), Status::SUCCESS);
    assert_eq!(driver.trim_pool(12, 0), Status::INVALID_VALUE);
    assert_eq!(driver.free(memory), Status::SUCCESS);
    assert_eq!(driver.get_pool_attribute(12, 4, &raw mut value), Status::INVALID_VALUE);
    assert_eq!((fake.release_threshold(0), fake.release_threshold(1)), (1 << 20, 0));
}

//! A process that has no file descriptor left: alone in its program, for the limit is of all of it.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::File;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wakeline_core::{Clock, ErrorCode, Idle, Nanos};
use wakeline_std::StdClock;
use wakeline_uring::UringIdle;

#[test]
fn without_descriptors_a_ring_is_an_error_and_with_some_again_it_is_made() {
    let clock = StdClock::new();
    if let Err(error) = UringIdle::new(clock) {
        // No rings on this machine: then the error is of that, and its text says so.
        assert_eq!(error.code(), ErrorCode::Backend, "{error}");
        println!("skipped: {error}");
        return;
    }
    let before = getrlimit(Resource::Nofile);
    let lowest = std::os::fd::AsRawFd::as_raw_fd(&File::open("/dev/null").unwrap());
    let none = u64::try_from(lowest).unwrap();
    setrlimit(Resource::Nofile, Rlimit { current: Some(none), maximum: before.maximum }).unwrap();
    let refused = UringIdle::new(clock);
    setrlimit(Resource::Nofile, before).unwrap();
    let error = refused.err().unwrap();
    assert_eq!(error.code(), ErrorCode::Backend);
    assert!(error.to_string().contains("io_uring_setup"), "{error}");

    let host = UringIdle::new(clock).unwrap();
    let until = clock.now() + Nanos::from_millis(1);
    host.idle(Some(until));
    assert!(clock.now() + Nanos::from_millis(1) >= until);
}

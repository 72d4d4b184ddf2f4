//! The probe on this machine, and the park where it finds something.
//!
//! Where it finds nothing, the instructions are shown to be there and out of reach: `disassembly.rs`.
#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use core::cell::Cell;

use wakeline_core::{Clock, ErrorCode, HostLine, Instant, Nanos, Park, Seq, Slot, Wake};
use wakeline_std::{ParkPolicy, StdClock, StdIdle, StdPark, TscRate};
use wakeline_wordwait::{Features, NO_LINE_US_MAX, WAIT_US_MAX, WordWait};

fn tsc_rate() -> Option<u64> {
    TscRate::measure(StdClock::new(), TscRate::LENGTH).map(TscRate::ticks_per_2_32_ns)
}

/// Every park that this machine has; says so where it has none.
fn parks() -> Vec<WordWait<StdClock>> {
    let kinds = [Features::UMWAIT, Features::MWAITX, Features::WFET, Features::WFE];
    let probe = |kind| WordWait::probe_among(StdClock::new(), tsc_rate, kind);
    kinds
        .into_iter()
        .filter_map(|kind| match probe(kind) {
            Ok(park) => {
                println!("{}: parking with it", park.kind());
                Some(park)
            }
            Err(error) => {
                println!("{kind:?}: {error}");
                assert_eq!(error.code(), ErrorCode::ParkFallback);
                assert!(
                    !Features::detected().contains(kind) || tsc_rate().is_none(),
                    "{kind:?} is there and was not taken"
                );
                None
            }
        })
        .collect()
}

/// A virtual machine hid the bit, and the instruction was executed all the same.
#[test]
fn case_44_what_is_not_there_or_not_allowed_gives_no_capability() {
    let detected = Features::detected();
    let asked = Cell::new(false);
    let probe = |allowed| {
        let rate = || {
            asked.set(true);
            tsc_rate()
        };
        WordWait::probe_among(StdClock::new(), rate, allowed)
    };
    for denied in [Features::empty(), !detected] {
        let error = probe(denied).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ParkFallback);
    }
    assert!(!asked.get(), "a rate was measured for nothing");
    if detected.is_empty() {
        let error = WordWait::probe(StdClock::new(), tsc_rate).unwrap_err();
        println!("{error}");
        assert_eq!(error.args()[0], probe(Features::all()).unwrap_err().args()[0]);
    }
}

/// There is nothing that could say yes in the processor's place.
#[test]
fn case_44_no_variable_of_the_environment_is_looked_at() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let mut files = 0;
    for folder in [folder.to_owned(), format!("{folder}/arch")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                files += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                for word in ["env!", "env::", "getenv", "environ("] {
                    assert!(!text.contains(word), "{} says {word}", path.display());
                }
            }
        }
    }
    assert!(files >= 8, "only {files} files were read");
}

#[test]
fn a_counter_without_a_constant_rate_gives_no_capability() {
    for rate in [None, Some(0)] {
        let probed = WordWait::probe(StdClock::new(), || rate);
        // aarch64 tells the rate itself.
        if cfg!(not(target_arch = "aarch64")) {
            assert_eq!(probed.unwrap_err().code(), ErrorCode::ParkFallback);
        }
    }
}

/// A wake without a store was reported as done.
#[test]
fn case_50_a_park_without_a_store_ends_at_its_deadline_and_is_not_reached() {
    let clock = StdClock::new();
    let line = HostLine::new();
    for park in parks() {
        let until = clock.now() + Nanos::from_millis(5);
        assert_eq!(park.park(Some(&line), until, || false), Wake::Woke, "{}", park.kind());
        assert!(clock.now() >= until, "{} ended early", park.kind());
        assert_eq!(park.park(Some(&line), Instant::ORIGIN, || false), Wake::Woke);
    }
}

#[test]
fn a_store_of_another_thread_ends_a_park() {
    let clock = StdClock::new();
    for park in parks() {
        let line = HostLine::new();
        let slot = Slot::ALL[7]; // the far end: the monitor covers the line
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for seq in 1..=200 {
                    clock.sleep_until(clock.now() + Nanos::from_micros(50));
                    line.store(slot, Seq::new(seq));
                }
            });
            for seq in 1..=200 {
                let until = clock.now() + Nanos::from_millis(10_000);
                let reached = || line.load(slot).reached(Seq::new(seq));
                assert_eq!(park.park(Some(&line), until, reached), Wake::Reached, "{}", park.kind());
            }
        });
    }
}

#[test]
fn a_park_on_several_lines_looks_for_a_bounded_time() {
    let clock = StdClock::new();
    for park in parks() {
        let looks = Cell::new(0_u32);
        let look = || {
            looks.set(looks.get() + 1);
            false
        };
        let start = clock.now();
        assert_eq!(park.park(None, Instant::MAX, look), Wake::Woke);
        assert!(looks.get() > 0 && clock.now().since(start) >= Nanos::from_micros(NO_LINE_US_MAX));
        assert_eq!(park.park(None, Instant::MAX, || true), Wake::Reached);
    }
    const { assert!(NO_LINE_US_MAX <= WAIT_US_MAX) };
}

/// The host's park works with whatever the probe said.
#[test]
fn the_host_parks_by_it_or_says_why_not() {
    let clock = StdClock::new();
    let probed = WordWait::probe(clock, tsc_rate);
    let there = probed.is_ok();
    let park = StdPark::new(StdIdle::new(clock), ParkPolicy::default()).with_word_wait(probed);
    assert_eq!(park.warning().is_none(), there);
    let line = HostLine::new();
    let until = clock.now() + Nanos::from_millis(2);
    assert_eq!(park.park(Some(&line), until, || false), Wake::Woke);
    assert!(clock.now() >= until);
    assert_eq!(park.park(Some(&line), until, || true), Wake::Reached);
}

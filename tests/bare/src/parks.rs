//! What is tried: each instruction by itself, and the park that is made of them.
#![allow(unsafe_code, reason = "a name that the boot code calls")]

use core::fmt::Write;

use wakeline_core::{Clock, CompletionLine, Instant, Nanos, Park, Seq, Slot, Wake};
use wakeline_wordwait::WordWait;

use crate::arch::{Detected, Hardware};
use crate::features::Features;
use crate::machine::{LINE, Serial, Ticks, end, quiet, start_second, store_after, stored, ticks};
use crate::park::Instructions;

/// How long a wait is that a deadline ends, ticks.
const DEADLINE: u64 = 50_000;

/// After how many ticks the second processor stores.
const STORE: u64 = 200_000;

/// How long a wait is that a store is to end: none that is missed would end the run.
const LONG: u64 = 50_000_000;

/// What a wait may take beyond what it should: the emulator counts instructions, and runs the processors in turns.
const SLACK: u64 = 30_000;

/// What a wait that waits for nothing takes at most.
const AT_ONCE: u64 = 5_000;

/// A tick is a nanosecond.
const RATE: u64 = 1 << 32;

const NEAR: Slot = Slot::ALL[0];
/// The other end of the line.
const FAR: Slot = Slot::ALL[7];

fn tell(kind: &str, case: &str, asked: u64, took: u64, ok: bool) {
    // The serial line takes everything.
    let _ = writeln!(
        Serial,
        "{{\"kind\":\"{kind}\",\"case\":\"{case}\",\"asked_ticks\":{asked},\"took_ticks\":{took},\"ok\":{ok}}}"
    );
}

/// How many ticks `what` takes.
fn timed(what: impl FnOnce()) -> u64 {
    let start = ticks();
    what();
    ticks() - start
}

// SAFETY: no other function has the name.
#[unsafe(no_mangle)]
extern "C" fn bare_main() -> ! {
    quiet();
    let second = start_second();
    tell("none", "second processor", 0, 0, second);
    let detected = Detected::ask();
    let mut seq = 0;
    for (feature, name) in [(Features::UMWAIT, "umwait"), (Features::MWAITX, "mwaitx")] {
        match Hardware::choose(&detected, feature) {
            Some(hardware) => {
                instructions(name, hardware, &mut seq);
                parks(name, feature, &mut seq);
            }
            // Hidden, it is never executed: an instruction that is not there would end the run.
            None => tell(name, "hidden", 0, 0, WordWait::probe_among(Ticks, rate, of(feature)).is_err()),
        }
    }
    let _ = writeln!(Serial, "DONE");
    end()
}

fn rate() -> Option<u64> {
    Some(RATE)
}

/// The same bits, of the crate itself.
fn of(feature: Features) -> wakeline_wordwait::Features {
    wakeline_wordwait::Features::from_bits_truncate(feature.bits())
}

/// The instructions one by one.
fn instructions(name: &str, hardware: Hardware, seq: &mut u64) {
    let line: &CompletionLine = &LINE;
    let took = timed(|| {
        let until = hardware.ticks() + DEADLINE;
        hardware.arm(line);
        hardware.wait(until);
    });
    tell(name, "armed, ended by the deadline", DEADLINE, took, (DEADLINE..DEADLINE + SLACK).contains(&took));

    let took = timed(|| hardware.wait(hardware.ticks() + DEADLINE));
    tell(name, "unarmed, comes back at once", DEADLINE, took, took < AT_ONCE);

    let took = timed(|| {
        hardware.arm(line);
        hardware.wait(hardware.ticks().saturating_sub(1));
    });
    tell(name, "armed, its deadline has passed", 0, took, took < AT_ONCE);

    for (slot, case) in [(NEAR, "woken by a store"), (FAR, "woken by a store at the end of the line")] {
        *seq += 1;
        store_after(slot, *seq, STORE);
        let mut seen = false;
        let took = timed(|| {
            let until = hardware.ticks() + LONG;
            hardware.arm(line);
            if LINE.load(slot) != Seq::new(*seq) {
                hardware.wait(until);
            }
            seen = LINE.load(slot) == Seq::new(*seq);
        });
        tell(name, case, STORE, took, seen && (STORE / 2..STORE + SLACK).contains(&took));
        stored();
    }

    // A store between the arming and the wait is not slept through.
    *seq += 1;
    hardware.arm(line);
    store_after(NEAR, *seq, 0);
    stored();
    let took = timed(|| hardware.wait(hardware.ticks() + DEADLINE));
    tell(name, "stored before the wait", 0, took, took < AT_ONCE);
}

/// The park of the crate, made by its probe.
fn parks(name: &str, feature: Features, seq: &mut u64) {
    let Ok(park) = WordWait::probe_among(Ticks, rate, of(feature)) else {
        return tell(name, "probe", 0, 0, false);
    };
    let line: &CompletionLine = &LINE;

    // Longer than one wait of the hardware, which is bounded: several, and the clock decides.
    let length = 250_000;
    let mut wake = Wake::Reached;
    let took = timed(|| wake = park.park(Some(line), Ticks.now() + Nanos::from_nanos(length), || false));
    let ok = wake == Wake::Woke && (length..length + SLACK).contains(&took);
    tell(name, "park ended by its deadline", length, took, ok);

    let took = timed(|| wake = park.park(Some(line), Instant::ORIGIN, || false));
    tell(name, "park whose time is up", 0, took, wake == Wake::Woke && took < AT_ONCE);

    for (slot, case) in
        [(NEAR, "park ended by a store"), (FAR, "park ended by a store at the end of the line")]
    {
        *seq += 1;
        let target = Seq::new(*seq);
        store_after(slot, *seq, STORE);
        let until = Ticks.now() + Nanos::from_nanos(LONG);
        let took = timed(|| wake = park.park(Some(line), until, || line.load(slot).reached(target)));
        tell(name, case, STORE, took, wake == Wake::Reached && (STORE / 2..STORE + SLACK).contains(&took));
        stored();
    }
    let reached = line.load(FAR).reached(Seq::new(*seq));
    let took = timed(|| wake = park.park(Some(line), Instant::MAX, || reached));
    tell(name, "park on a word that is there", 0, took, wake == Wake::Reached && took < AT_ONCE);
}

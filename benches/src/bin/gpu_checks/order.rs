//! Check `order`: who awaits a point reads what the work before it wrote.
//!
//! A buffer of the device is filled with another byte each time and copied to the host; the host reads all of it after the await. That this can find
//! anything is seen first: what is read before the await is stale.

use std::io::Write;

use serde::Serialize;
use wakeline_benches::gpu::{Failure, Gpu, Host, PLANS, TRUSTED, learned};
use wakeline_core::{Error, Nanos, WaitPlan};
use wakeline_cuda::Readback;

use crate::args::Check;
use crate::output::{Output, Verdict};
use crate::own::{LOST, Own, joined, share};

/// How much is copied at a time.
const SIZES: [(&str, usize); 2] = [("4 KiB", 4 << 10), ("4 MiB", 4 << 20)];

/// How many threads copy and read at once, each on a stream of its own.
const THREADS: u64 = 4;

/// How long the copy is held up whose bytes are read too early.
const HELD_UP: Nanos = Nanos::from_millis(100);

/// Bytes come again after so many copies: a prime, so that what is stale is never taken for new.
const BYTES: u64 = 251;

/// What was seen.
#[derive(Clone, Copy, Default, Debug, Serialize)]
struct Seen {
    bytes: usize,
    /// Of the copy that was read too early.
    control_stale_bytes: usize,
    stale_copies: u64,
    stale_bytes: u64,
}

pub(crate) fn order(output: &mut Output<impl Write>, gpu: &Gpu, copies: u64) -> Result<(), Failure> {
    let own = Own::new(gpu)?;
    for (name, bytes) in SIZES {
        let control_stale_bytes = control(&own, bytes)?;
        let threads = std::thread::scope(|scope| {
            let copy = |index| {
                scope.spawn({
                    let own = &own;
                    move || copy_and_read(own, bytes, share(copies, index, THREADS))
                })
            };
            joined((0..THREADS).map(copy).collect())
        })?;
        let stale_copies = threads.iter().map(|(copies, _)| copies).sum();
        let stale_bytes = threads.iter().map(|(_, bytes)| bytes).sum();
        let seen = Seen { bytes, control_stale_bytes, stale_copies, stale_bytes };
        output.tell(Verdict {
            check: Check::Order,
            name: format!("copies of {name}"),
            count: copies,
            broken: broken(&seen),
            detail: seen,
        })?;
    }
    Ok(())
}

fn broken(seen: &Seen) -> Option<String> {
    if seen.stale_copies > 0 {
        return Some(format!("{} copies had stale bytes after the await", seen.stale_copies));
    }
    (seen.control_stale_bytes == 0).then(|| {
        "bytes that were read before the await were not stale: stale ones would not be found".to_owned()
    })
}

/// How many bytes are stale before the await.
fn control(own: &Own, bytes: usize) -> Result<usize, Error> {
    let stream = own.context.stream()?;
    let readback = Readback::new(&stream, bytes)?;
    own.kernels.occupy(&stream, HELD_UP)?;
    readback.launch(1)?;
    let stale = readback.stale_bytes(1);
    let plan: WaitPlan = TRUSTED.parse()?;
    Host::Inline.wait(&plan, stream.armed_port()?, &learned(&plan, HELD_UP), LOST)?;
    Ok(stale)
}

/// Copies, awaits and reads so often: in how many copies how many bytes were stale.
fn copy_and_read(own: &Own, bytes: usize, copies: u64) -> Result<(u64, u64), Error> {
    // Those that watch the word or ask; a nap would only take longer.
    let plans = [TRUSTED, PLANS[3], PLANS[1]];
    let plans = plans.map(str::parse::<WaitPlan>);
    let plans = plans.into_iter().collect::<Result<Vec<_>, _>>()?;
    let point = learned(&WaitPlan::poll(), Nanos::ZERO);
    let stream = own.context.stream()?;
    let readback = Readback::new(&stream, bytes)?;
    let (mut stale_copies, mut stale_bytes) = (0, 0);
    for (number, plan) in (0..copies).zip(plans.iter().cycle()) {
        let byte = u8::try_from(number % BYTES + 1).unwrap_or(u8::MAX);
        readback.launch(byte)?;
        Host::Inline.wait(plan, stream.armed_port()?, &point, LOST)?;
        let stale = readback.stale_bytes(byte) as u64;
        stale_copies += u64::from(stale > 0);
        stale_bytes += stale;
    }
    Ok((stale_copies, stale_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_bytes_do_not_hold_and_neither_does_a_control_without_any() {
        let good = Seen { bytes: 8, control_stale_bytes: 8, ..Seen::default() };
        assert_eq!(broken(&good), None);
        let stale = Seen { stale_copies: 2, stale_bytes: 9, ..good };
        assert!(broken(&stale).unwrap().starts_with("2 copies had stale bytes"));
        let blind = Seen { control_stale_bytes: 0, ..good };
        assert!(broken(&blind).unwrap().contains("would not be found"));
    }
}

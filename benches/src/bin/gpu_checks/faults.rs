//! Check `faults`: a kernel that faults ends the waits of its context with the right cause, and those of no other context.
//!
//! Each fault is in a context of its own. Beside the wait a thread asks the driver all the time, by calls of its own: when the driver first tells is when a
//! wait can know. Two backstops later it must. A bystander in another context goes on waiting throughout.

use std::io::Write;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use wakeline_benches::gpu::{BACKSTOP_US, Failure, Gpu, Host, PLANS, learned};
use wakeline_core::{Clock, Error, ErrorCode, Instant, Nanos, WaitPlan};
use wakeline_cuda::kernels::Fault;
use wakeline_cuda::{Calls, CuStream};
use wakeline_std::StdClock;

use crate::args::{Check, fault_name};
use crate::output::{Output, Verdict};
use crate::own::{LOST, Own};

/// What plans that predict expect: something that is over long before the driver tells.
const EXPECTED: Nanos = Nanos::from_millis(2);

/// Between two questions of who asks all the time.
const ASKS: Duration = Duration::from_micros(20);

/// How long the bystander's kernels take, and how long it rests in between.
const BYSTANDER: Nanos = Nanos::from_micros(100);
const RESTS: Duration = Duration::from_millis(1);

/// How many of the bystander's waits must have ended after each fault, and within which time.
const GOES_ON: u64 = 2;

/// Which fault meets which wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) fault: Fault,
    pub(crate) host: Host,
    pub(crate) plan: &'static str,
}

/// What was seen, from the launch of the kernel that faults on.
#[derive(Clone, Debug, Serialize)]
struct Seen {
    fault: &'static str,
    host: &'static str,
    plan: &'static str,
    /// When the driver first told who asked all the time, and with which status.
    driver_us: i64,
    driver_status: i32,
    /// When the wait told.
    wait_us: i64,
    /// How much later that is; below zero where the wait knew first.
    late_us: i64,
    said: String,
}

const fn status(fault: Fault) -> i32 {
    match fault {
        Fault::Trap => 719,
        Fault::IllegalAddress => 700,
        Fault::Assert => 710,
    }
}

/// Waits in a context where nothing is wrong, all the time.
#[derive(Default)]
struct Bystander {
    ends: AtomicBool,
    waits: AtomicU64,
    longest_us: AtomicU64,
}

pub(crate) fn faults(
    output: &mut Output<impl Write>,
    gpu: &Gpu,
    rows: &[Row],
    slack: Nanos,
) -> Result<(), Failure> {
    let own = Own::new(gpu)?;
    let bystander = Bystander::default();
    let (checked, bystanding) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| bystander.wait_on(&own));
        let checked = rows.iter().try_for_each(|row| {
            let seen = meet(gpu, *row)?;
            let goes_on = bystander.goes_on();
            output.tell(Verdict {
                check: Check::Faults,
                name: format!("{}, {}, {}", fault_name(row.fault), row.host.name(), row.plan),
                count: 1,
                broken: broken(&seen.0, row.fault, slack).or(seen.1).or(goes_on),
                detail: seen.0,
            })?;
            Ok::<_, Failure>(())
        });
        bystander.ends.store(true, Ordering::Relaxed);
        (checked, waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    checked?;
    output.tell(Verdict {
        check: Check::Faults,
        name: "the waits of another context".to_owned(),
        count: bystander.waits.load(Ordering::Relaxed),
        broken: bystanding.err().map(|error| error.to_string()),
        detail: Longest { longest_us: bystander.longest_us.load(Ordering::Relaxed) },
    })?;
    Ok(())
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Longest {
    longest_us: u64,
}

fn broken(seen: &Seen, fault: Fault, slack: Nanos) -> Option<String> {
    let status = status(fault);
    if seen.driver_status != status {
        return Some(format!("the driver told of {} and not of {status}", seen.driver_status));
    }
    if !seen.said.contains(&format!("({status})")) {
        return Some(format!("the wait ended with another cause: {}", seen.said));
    }
    let most = Nanos::from_micros(2 * BACKSTOP_US) + slack;
    let late = Nanos::from_micros(seen.late_us.max(0).unsigned_abs());
    (late > most).then(|| format!("the wait told {late} after the driver, which is not within {most}"))
}

/// Has a kernel fault and waits for it. What was seen; and what else is wrong.
fn meet(gpu: &Gpu, row: Row) -> Result<(Seen, Option<String>), Error> {
    let Row { fault, host, plan: text } = row;
    let plan: WaitPlan = text.parse()?;
    let (victim, clock, begins) = (Own::new(gpu)?, StdClock::new(), Barrier::new(2));
    let stream = victim.context.stream()?;
    let point = learned(&plan, EXPECTED);
    let (told, wait) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| first_told(&victim, &stream, clock, &begins));
        begins.wait();
        let wait = (|| {
            let launched = clock.now();
            victim.kernels.fault(&stream, fault)?;
            let result = host.wait(&plan, stream.port()?, &point, LOST);
            Ok::<_, Error>((launched, clock.now(), result))
        })();
        (asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), wait)
    });
    let (launched, known, result) = wait?;
    let (told_at, driver_status) = told?;
    let said = match &result {
        Ok(report) => format!("no error: {:?}", report.end),
        Err(error) => error.to_string(),
    };
    let us = |at: Instant| i64::try_from(at.since(launched).as_micros()).unwrap_or(i64::MAX);
    let seen = Seen {
        fault: fault_name(fault),
        host: host.name(),
        plan: text,
        driver_us: us(told_at),
        driver_status,
        wait_us: us(known),
        late_us: us(known) - us(told_at),
        said,
    };
    let after = match (victim.context.health(), stream.port()) {
        (Err(health), Err(port)) => {
            let is_cause = |error: &Error| error.to_string().contains(&format!("({})", status(fault)));
            (!is_cause(&health) || !is_cause(&port))
                .then(|| format!("later another cause is told: {health}; {port}"))
        }
        _ => Some("the context counts as sound after the fault".to_owned()),
    };
    Ok((seen, after))
}

/// Asks the driver until it tells of a fault: when that was, and with which status.
fn first_told(
    victim: &Own,
    stream: &CuStream,
    clock: StdClock,
    begins: &Barrier,
) -> Result<(Instant, i32), Error> {
    let calls = Calls::new(&victim.context, stream);
    begins.wait();
    let calls = calls?;
    let end = clock.now() + LOST;
    while clock.now() < end {
        if let Err(error) = calls.query_stream() {
            return Ok((clock.now(), error.status));
        }
        let next = clock.now() + Nanos::from_nanos(ASKS.as_nanos().try_into().unwrap_or(u64::MAX));
        while clock.now() < next {
            core::hint::spin_loop();
        }
    }
    Err(Error::new(
        ErrorCode::Backend,
        [&"gpu_checks", &"waiting for the driver to tell of a fault", &"it never does"],
    ))
}

impl Bystander {
    fn wait_on(&self, own: &Own) -> Result<(), Error> {
        let plan: WaitPlan = PLANS[3].parse()?;
        let (stream, point) = (own.context.stream()?, learned(&plan, BYSTANDER));
        while !self.ends.load(Ordering::Relaxed) {
            own.kernels.occupy(&stream, BYSTANDER)?;
            let report = Host::Inline.wait(&plan, stream.port()?, &point, LOST)?;
            self.longest_us.fetch_max(report.elapsed.as_micros(), Ordering::Relaxed);
            self.waits.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(RESTS);
        }
        own.context.health()
    }

    /// That its waits go on; else what is wrong.
    fn goes_on(&self) -> Option<String> {
        let (clock, before) = (StdClock::new(), self.waits.load(Ordering::Relaxed));
        let end = clock.now() + LOST;
        while clock.now() < end {
            if self.waits.load(Ordering::Relaxed) >= before + GOES_ON {
                return None;
            }
            std::thread::sleep(RESTS);
        }
        Some("the waits of another context do not go on".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_cause_no_error_and_a_late_one_do_not_hold() {
        let good = Seen {
            fault: "trap",
            host: "inline",
            plan: "poll",
            driver_us: 340_000,
            driver_status: 719,
            wait_us: 341_000,
            late_us: 1_000,
            said: "cuda: cuStreamQuery failed: CUDA_ERROR_LAUNCH_FAILED (719)".to_owned(),
        };
        let judge = |seen: &Seen| broken(seen, Fault::Trap, Nanos::from_millis(1));
        assert_eq!(judge(&good), None);
        assert_eq!(judge(&Seen { late_us: -50, ..good.clone() }), None);
        assert_eq!(judge(&Seen { late_us: 5_000, ..good.clone() }), None);
        assert!(judge(&Seen { late_us: 5_001, ..good.clone() }).unwrap().contains("not within 5.000 ms"));
        assert!(judge(&Seen { driver_status: 700, ..good.clone() }).unwrap().contains("of 700"));
        assert!(
            judge(&Seen { said: "no error: Done".to_owned(), ..good }).unwrap().contains("another cause")
        );
    }
}

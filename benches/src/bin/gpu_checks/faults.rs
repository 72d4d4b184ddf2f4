//! Check `faults`: a kernel that faults ends every wait of its context with the right cause, soon after the driver tells.
//!
//! Each fault meets a host in a process of its own, where `meets.rs` has a wait under each plan: driver 580 ends all contexts of a process that faults, on all
//! devices, and gives it no new one. Here, in the process beside it, a bystander goes on waiting throughout.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use wakeline_benches::gpu::{BACKSTOP_US, Failure, Gpu, Host, PLANS, learned};
use wakeline_core::{Clock, Error, Nanos, WaitPlan};
use wakeline_cuda::kernels::Fault;
use wakeline_std::StdClock;

use crate::args::{Check, fault_name};
use crate::child::Child;
use crate::meets::{Row, Seen};
use crate::output::{Output, Verdict};
use crate::own::{LOST, Own};

/// How long the bystander's kernels take, and how long it rests in between.
const BYSTANDER: Nanos = Nanos::from_micros(100);
const RESTS: Duration = Duration::from_millis(1);

/// How many of the bystander's waits must have ended after each fault, and within which time.
const GOES_ON: u64 = 2;

pub(crate) const fn status(fault: Fault) -> i32 {
    match fault {
        Fault::Trap => 719,
        Fault::IllegalAddress => 700,
        Fault::Assert => 710,
    }
}

/// Waits in a process where nothing is wrong, all the time.
#[derive(Default)]
struct Bystander {
    ends: AtomicBool,
    waits: AtomicU64,
    longest_us: AtomicU64,
}

pub(crate) fn faults(
    output: &mut Output<impl Write>,
    gpu: &Gpu,
    driver: Option<&Path>,
    rows: &[Row],
    slack: Nanos,
) -> Result<(), Failure> {
    let own = Own::new(gpu)?;
    let bystander = Bystander::default();
    let (checked, bystanding) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| bystander.wait_on(&own));
        let checked = rows.iter().try_for_each(|row| {
            let seen = meet(row, driver)?;
            let goes_on = bystander.goes_on();
            for (plan, seen) in row.plans.iter().zip(seen) {
                output.tell(Verdict {
                    check: Check::Faults,
                    name: format!("{}, {}, {plan}", fault_name(row.fault), row.host.name()),
                    count: 1,
                    broken: broken(&seen, row.fault, slack).or_else(|| goes_on.clone()),
                    detail: seen,
                })?;
            }
            Ok::<_, Failure>(())
        });
        bystander.ends.store(true, Ordering::Relaxed);
        (checked, waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    checked?;
    output.tell(Verdict {
        check: Check::Faults,
        name: "the waits of another process".to_owned(),
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

/// What another process sees of it, a plan each.
fn meet(row: &Row, driver: Option<&Path>) -> Result<Vec<Seen>, Failure> {
    let ended = Child::start(&["--meet", &row.to_string()], driver)?.end()?;
    let said = ended.said.map_err(|why| Failure::Broken(format!("{row}: {why}")))?;
    let seen: Vec<Seen> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if seen.len() == row.plans.len() {
        return Ok(seen);
    }
    Err(Failure::Broken(format!("{row}: {} of {} waits were told of: {said}", seen.len(), row.plans.len())))
}

/// Has another process meet it, and says what is wrong with what that has seen.
pub(crate) fn judged(row: &Row, driver: Option<&Path>, slack: Nanos) -> Result<Option<String>, Failure> {
    let told = match meet(row, driver) {
        Err(Failure::Broken(why)) => return Ok(Some(why)),
        told => told?,
    };
    let wrong = |(plan, seen): (&&str, &Seen)| {
        broken(seen, row.fault, slack).map(|why| format!("{}, {plan}: {why}", row.host.name()))
    };
    Ok(row.plans.iter().zip(&told).find_map(wrong))
}

fn broken(seen: &Seen, fault: Fault, slack: Nanos) -> Option<String> {
    let status = status(fault);
    let cause = format!("({status})");
    if seen.driver_status != status {
        return Some(format!("the driver told of {} and not of {status}", seen.driver_status));
    }
    if !seen.said.contains(&cause) {
        return Some(format!("the wait ended with another cause: {}", seen.said));
    }
    if let Some(other) = [&seen.health, &seen.port].into_iter().find(|said| !said.contains(&cause)) {
        return Some(format!("later another cause is told: {other}"));
    }
    if seen.beside != crate::meets::GOES_ON && !seen.beside.contains(&cause) {
        return Some(format!("a wait of another context ended with another cause: {}", seen.beside));
    }
    let most = Nanos::from_micros(2 * BACKSTOP_US) + slack;
    let late = Nanos::from_micros(seen.late_us.max(0).unsigned_abs());
    (late > most).then(|| format!("the wait told {late} after the driver, which is not within {most}"))
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
        Some("the waits of another process do not go on".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_cause_no_error_and_a_late_one_do_not_hold() {
        let said = "cuda: cuStreamQuery failed: CUDA_ERROR_LAUNCH_FAILED (719)".to_owned();
        let good = Seen {
            fault: "trap".to_owned(),
            host: "inline".to_owned(),
            plan: "poll".to_owned(),
            driver_us: 340_000,
            driver_last_us: 340_000,
            driver_status: 719,
            wait_us: 341_000,
            late_us: 1_000,
            health: said.clone(),
            port: said.clone(),
            beside: crate::meets::GOES_ON.to_owned(),
            said,
        };
        let judge = |seen: &Seen| broken(seen, Fault::Trap, Nanos::from_millis(1));
        assert_eq!(judge(&good), None);
        assert_eq!(judge(&Seen { late_us: -50, ..good.clone() }), None);
        assert_eq!(judge(&Seen { late_us: 5_000, ..good.clone() }), None);
        assert!(judge(&Seen { late_us: 5_001, ..good.clone() }).unwrap().contains("not within 5.000 ms"));
        assert!(judge(&Seen { driver_status: 700, ..good.clone() }).unwrap().contains("of 700"));
        let sound = || "no error: Done".to_owned();
        assert!(judge(&Seen { said: sound(), ..good.clone() }).unwrap().contains("another cause"));
        assert!(judge(&Seen { health: sound(), ..good.clone() }).unwrap().contains("later another cause"));
        assert!(judge(&Seen { port: sound(), ..good.clone() }).unwrap().contains("later another cause"));
        assert_eq!(judge(&Seen { beside: good.said.clone(), ..good.clone() }), None);
        assert!(judge(&Seen { beside: sound(), ..good }).unwrap().contains("of another context"));
    }
}

//! The part of check `faults` that a process of its own does: a kernel faults, and a wait under each plan meets it.
//!
//! Beside the waits threads ask the driver all the time, by calls of their own: when it has told each of them is when a wait can know. Two backstops later it must.

use core::fmt;
use core::str::FromStr;
use std::io::{self, Write as _};
use std::sync::Barrier;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wakeline_benches::gpu::{Failure, Gpu, Host, PLANS, learned};
use wakeline_core::{Clock, Error, ErrorCode, Instant, Nanos, Report, WaitPlan};
use wakeline_cuda::kernels::Fault;
use wakeline_cuda::{Calls, CuStream};
use wakeline_std::StdClock;

use crate::args::fault_name;
use crate::own::{LOST, Own, joined};

/// What plans that predict expect: something that is over long before the driver tells.
const EXPECTED: Nanos = Nanos::from_millis(2);

/// Between two questions of who asks all the time.
const ASKS: Duration = Duration::from_micros(20);

/// What runs before the kernel that faults: for as long as hosts take to be made (a process's table of files grows slowly, where it has many threads).
const BEFORE: Nanos = Nanos::from_millis(100);

/// How many threads ask.
const ASKING: usize = 4;

/// How long the other context's kernel takes.
const BESIDE: Nanos = Nanos::from_millis(1);

/// What is said of another context that the fault did not end.
pub(crate) const GOES_ON: &str = "goes on";

/// Which fault meets which waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) fault: Fault,
    pub(crate) host: Host,
    pub(crate) plans: Vec<&'static str>,
}

/// As an argument: the fault, the host, and the plans by their numbers.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", fault_name(self.fault), self.host.name())?;
        let numbers = self.plans.iter().filter_map(|plan| PLANS.iter().position(|text| text == plan));
        numbers.into_iter().try_for_each(|number| write!(f, "/{number}"))
    }
}

impl FromStr for Row {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no fault, host and numbers of plans, as in `trap/inline/0`");
        let mut parts = text.split('/');
        let mut part = || parts.next().unwrap_or_default();
        let (fault, host) = (part(), part());
        let fault = Fault::ALL.into_iter().find(|one| fault_name(*one) == fault).ok_or_else(wrong)?;
        let host = Host::ALL.into_iter().find(|one| one.name() == host).ok_or_else(wrong)?;
        let plan = |number: &str| number.parse().ok().and_then(|number: usize| PLANS.get(number).copied());
        let plans = parts.map(|number| plan(number).ok_or_else(wrong)).collect::<Result<Vec<_>, _>>()?;
        if plans.is_empty() { Err(wrong()) } else { Ok(Self { fault, host, plans }) }
    }
}

/// What was seen of one wait, from the launch of the kernel that faults on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) fault: String,
    pub(crate) host: String,
    pub(crate) plan: String,
    /// When the driver first told one of those who asked all the time, when the last of them, and with which status.
    pub(crate) driver_us: i64,
    pub(crate) driver_last_us: i64,
    pub(crate) driver_status: i32,
    /// When the wait told.
    pub(crate) wait_us: i64,
    /// How much later than the last that is; below zero where the wait knew before.
    pub(crate) late_us: i64,
    pub(crate) said: String,
    /// What the context's health and a new point are said to be afterwards.
    pub(crate) health: String,
    pub(crate) port: String,
    /// How a wait of another context of the process ends afterwards.
    pub(crate) beside: String,
}

/// Has a kernel fault and waits for it under each plan at once. Prints what was seen.
pub(crate) fn meet(gpu: &Gpu, row: &Row) -> Result<(), Failure> {
    let (victim, other, clock) = (Own::new(gpu)?, Own::new(gpu)?, StdClock::new());
    let stream = victim.context.stream()?;
    let elsewhere = other.context.stream()?;
    wait_beside(&other, &elsewhere)?;
    let begins = Barrier::new(row.plans.len() + ASKING + 1);
    let (launched, told, waits) = std::thread::scope(|scope| {
        let asking: Vec<_> =
            (0..ASKING).map(|_| scope.spawn(|| first_told(&victim, &stream, clock, &begins))).collect();
        let wait = |plan: &'static str| {
            let (begins, stream) = (&begins, &stream);
            scope.spawn(move || {
                begins.wait();
                let plan: WaitPlan = plan.parse()?;
                let point = learned(&plan, EXPECTED);
                let result = stream.port().and_then(|port| row.host.wait(&plan, port, &point, LOST));
                Ok::<_, Error>((clock.now(), result))
            })
        };
        let waiting: Vec<_> = row.plans.iter().map(|plan| wait(plan)).collect();
        let launched = clock.now();
        let before = victim.kernels.occupy(&stream, BEFORE);
        let fault = before.and_then(|()| victim.kernels.fault(&stream, row.fault));
        begins.wait();
        Ok::<_, Error>((fault.map(|()| launched)?, joined(asking)?, joined(waiting)?))
    })?;
    let first = told.iter().min().copied().unwrap_or((launched, 0));
    let last = told.iter().max().copied().unwrap_or((launched, 0));
    let us = |at: Instant| i64::try_from(at.since(launched).as_micros()).unwrap_or(i64::MAX);
    let health = said(victim.context.health());
    let port = said(stream.port().map(drop));
    let beside =
        wait_beside(&other, &elsewhere).map_or_else(|error| error.to_string(), |_| GOES_ON.to_owned());
    for (plan, (known, result)) in row.plans.iter().zip(waits) {
        let seen = Seen {
            fault: fault_name(row.fault).to_owned(),
            host: row.host.name().to_owned(),
            plan: (*plan).to_owned(),
            driver_us: us(first.0),
            driver_last_us: us(last.0),
            driver_status: first.1,
            wait_us: us(known),
            late_us: us(known) - us(last.0),
            said: said(result),
            health: health.clone(),
            port: port.clone(),
            beside: beside.clone(),
        };
        writeln!(io::stdout(), "{}", serde_json::to_string(&seen).map_err(io::Error::from)?)?;
    }
    Ok(())
}

fn said<T: fmt::Debug>(result: Result<T, Error>) -> String {
    result.map_or_else(|error| error.to_string(), |value| format!("no error: {value:?}"))
}

fn wait_beside(other: &Own, stream: &CuStream) -> Result<Report, Error> {
    let plan: WaitPlan = PLANS[3].parse()?;
    other.kernels.occupy(stream, BESIDE)?;
    Host::Inline.wait(&plan, stream.port()?, &learned(&plan, BESIDE), LOST)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_they_are_written_and_others_are_refused() {
        for plans in [vec![PLANS[0]], vec![PLANS[6], PLANS[2]], PLANS.to_vec()] {
            let row = Row { fault: Fault::Assert, host: Host::TokioLocal, plans };
            assert_eq!(row.to_string().parse(), Ok(row));
        }
        for text in
            ["", "trap", "trap/inline", "trap/inline/7", "trap/inline/x", "bug/inline/0", "trap/here/0"]
        {
            assert!(text.parse::<Row>().unwrap_err().starts_with(&format!("`{text}` is no fault, host")));
        }
    }
}

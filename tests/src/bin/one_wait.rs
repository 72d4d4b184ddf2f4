//! One wait in real time for work that takes longer than its deadline, in a process that a test suspends meanwhile.
//!
//! Takes a plan and the deadline in milliseconds; says `waiting`, then how long the wait took in milliseconds.

use std::process::ExitCode;

use wakeline_core::{Clock, Error, ErrorCode, Inline, Nanos, Wait, WaitPlan, drive, run_inline};
use wakeline_sim::{RealTime, SimConfig, SimDevice};
use wakeline_std::{ParkPolicy, StdClock, StdIdle, StdPark};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [plan, deadline_ms] = &args[..] else {
        eprintln!("usage: one_wait PLAN DEADLINE_MS");
        return ExitCode::from(2);
    };
    let result =
        deadline_ms.parse().map_err(|error| format!("`{deadline_ms}`: {error}")).and_then(|deadline_ms| {
            wait(plan, Nanos::from_millis(deadline_ms)).map_err(|error| error.to_string())
        });
    match result {
        Ok(took) => {
            println!("{}", took.as_micros() / 1_000);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// How long a wait took that its deadline ends.
fn wait(plan: &str, deadline: Nanos) -> Result<Nanos, Error> {
    let plan: WaitPlan = plan.parse()?;
    let clock = StdClock::new();
    let sleep = |length: Nanos| std::thread::sleep(std::time::Duration::from_nanos(length.as_nanos()));
    let device = SimDevice::new(RealTime::new(clock, sleep), SimConfig::default())?;
    let stream = device.stream()?;
    stream.launch(Nanos::from_millis(60_000))?;
    let idle = StdIdle::new(clock);
    let park = StdPark::new(&idle, ParkPolicy::default());
    println!("waiting");
    let start = clock.now();
    let wait = Wait::new(&plan).predicted(Some(Nanos::from_millis(60_000))).deadline(Some(start + deadline));
    match run_inline(drive(wait, &mut stream.point(), &Inline::new(clock, &idle, &park), None))? {
        Err(error) if error.code() == ErrorCode::Timeout => Ok(clock.now().since(start)),
        Err(error) => Err(error),
        Ok(report) => {
            Err(Error::new(ErrorCode::Backend, [&"one_wait", &"drive", &format!("{:?}", report.end)]))
        }
    }
}

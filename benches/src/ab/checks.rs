//! Whether the machine is fit to be measured on: looked at before and after, and reported, not hidden.

use std::fs;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use wakeline_core::{Clock, Nanos};
use wakeline_std::StdClock;
use wakeline_std::usage::process_cpu_time;

use super::schema::Check;
use crate::{Quantiles, Tail};

/// How often a thread is woken by another to see how late it is.
const WAKES: usize = 100;

/// How long that one sleeps before.
const SLEEP: Duration = Duration::from_millis(1);

/// How late, at p99, a woken thread of a quiet machine is at most, microseconds: idle processors were seen to take up to 90.
const WAKE_US_MAX: u64 = 200;

/// How much of the processors others may take, in percent.
const OTHERS_PERCENT_MAX: f64 = 5.0;

/// How much of the time the hypervisor may keep a processor from us, in percent.
const STEAL_PERCENT_MAX: f64 = 1.0;

/// By how much the speed of a loop, or a processor's frequency, may differ between the beginning and the end, in percent.
const SPEED_PERCENT_MAX: f64 = 3.0;

/// By how much the clock that steps are measured by and the wall clock may come apart, parts in a million, and besides.
const APART_PPM_MAX: f64 = 200.0;
const APART_NS_MAX: f64 = 2_000_000.0;

/// How long the loop runs whose speed is looked at: the fastest of some.
const LOOP_ROUNDS: u32 = 1_000_000;
const LOOPS: u32 = 12;

/// The hottest that a sensor may say it is, in degrees.
const CELSIUS_MAX: f64 = 95.0;

/// What a run begins with, to be compared with at its end.
#[derive(Debug)]
pub struct Before {
    began: Instant,
    wall: SystemTime,
    cpu: Option<Nanos>,
    times: Option<Times>,
    loop_ns: u64,
    mhz: Option<f64>,
    throttled: Option<u64>,
    cpus: usize,
}

/// Looks at the machine before a run, which has so many processors: 300 ms. What was found, and what to compare with [`after`].
pub fn before(cpus: usize) -> (Vec<Check>, Before) {
    let mut checks = Vec::new();
    let times = Times::now();
    checks.extend(quiet());
    checks.extend(Times::now().zip(times).map(|(now, before)| steal(now.since(before))));
    checks.extend(load(cpus));
    checks.extend(clock_source());
    checks.extend(thermal());
    let (loop_ns, mhz, throttled) = (loop_ns(), mhz(), throttled());
    let (cpu, times) = (process_cpu_time(), Times::now());
    (
        checks,
        Before { began: Instant::now(), wall: SystemTime::now(), cpu, times, loop_ns, mhz, throttled, cpus },
    )
}

/// Looks at the machine after a run: what moved and who else was there.
pub fn after(before: &Before) -> Vec<Check> {
    let mut checks = Vec::new();
    let took = before.began.elapsed();
    if let Some((now, then)) = Times::now().zip(before.times) {
        let times = now.since(then);
        checks.push(steal(times));
        let own = process_cpu_time().zip(before.cpu).map(|(now, then)| now - then);
        checks.extend(own.map(|own| others(times, own)));
    }
    checks.extend(before.wall.elapsed().ok().map(|wall| clocks(took, wall)));
    checks.push(speed(before.loop_ns, loop_ns()));
    checks.extend(before.mhz.zip(mhz()).map(|(then, now)| frequency(then, now)));
    checks.extend(before.throttled.zip(throttled()).map(|(then, now)| Check {
        name: "throttling".to_owned(),
        good: now == then,
        found: format!("the processors were slowed down {} times for heat", now.saturating_sub(then)),
    }));
    checks.extend(thermal());
    checks.extend(quiet());
    checks.extend(load(before.cpus));
    checks
}

/// How late a plain thread is that another wakes after a short sleep.
fn quiet() -> Option<Check> {
    let late = woken()?;
    let us = |ns: u64| real(ns) / 1e3;
    Some(Check {
        name: "quiet".to_owned(),
        good: late.p99_ns <= WAKE_US_MAX * 1_000,
        found: format!(
            "a thread that another wakes is {:.1} us late (p50), {:.1} us (p99); fit to measure up to {WAKE_US_MAX} us (p99)",
            us(late.p50_ns),
            us(late.p99_ns)
        ),
    })
}

fn woken() -> Option<Quantiles> {
    let clock = StdClock::new();
    let (tell, told) = mpsc::sync_channel(1);
    let waker = std::thread::Builder::new().name("bench-waker".to_owned()).spawn(move || {
        for _ in 0..WAKES {
            std::thread::sleep(SLEEP);
            if tell.send(clock.now()).is_err() {
                return;
            }
        }
    });
    let waker = waker.ok()?;
    let mut late = Tail::new();
    while let Ok(at) = told.recv() {
        late.record(clock.now().since(at).as_nanos());
    }
    // It sends nothing any more: it has ended, or is about to.
    waker.join().ok()?;
    Some(late.quantiles())
}

fn load(cpus: usize) -> Option<Check> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let load: f64 = text.split_whitespace().next()?.parse().ok()?;
    let half = u32::try_from(cpus).map_or(f64::MAX, f64::from) / 2.0;
    Some(Check {
        name: "load".to_owned(),
        good: load <= half,
        found: format!("{load:.2} threads ran or wanted to in the last minute, on {cpus} processors"),
    })
}

/// The time of all processors together, as Linux counts it, in ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Times {
    busy: u64,
    stolen: u64,
    all: u64,
}

impl Times {
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// `cpu  user nice system idle iowait irq softirq steal ..`
    fn parse(text: &str) -> Option<Self> {
        let numbers: Option<Vec<u64>> = text
            .lines()
            .next()?
            .strip_prefix("cpu ")?
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect();
        let [user, nice, system, idle, waits, interrupt, soft, stolen, ..] = numbers?[..] else {
            return None;
        };
        let busy = user + nice + system + interrupt + soft;
        Some(Self { busy, stolen, all: busy + idle + waits + stolen })
    }

    const fn since(self, before: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(before.busy),
            stolen: self.stolen.saturating_sub(before.stolen),
            all: self.all.saturating_sub(before.all),
        }
    }
}

fn steal(times: Times) -> Check {
    let percent = 100.0 * real(times.stolen) / real(times.all.max(1));
    Check {
        name: "steal".to_owned(),
        good: percent <= STEAL_PERCENT_MAX,
        found: format!("the hypervisor kept {percent:.2} % of the processors' time from us"),
    }
}

/// What others used, by the ticks of all and our own clock.
fn others(times: Times, own: Nanos) -> Check {
    // How long a tick is does not matter: all processors together have passed `all` of them.
    let own_ticks = real(own.as_nanos()) / 1e9 * TICKS_PER_S;
    let percent = (100.0 * (real(times.busy) - own_ticks) / real(times.all.max(1))).max(0.0);
    Check {
        name: "others".to_owned(),
        good: percent <= OTHERS_PERCENT_MAX,
        found: format!("other processes took {percent:.1} % of the processors' time"),
    }
}

/// Linux shows times in hundredths of a second, on every machine.
const TICKS_PER_S: f64 = 100.0;

fn clock_source() -> Option<Check> {
    let name = wakeline_measure::clock_source()?;
    // Those that are read without a system call.
    let fast = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];
    Some(Check {
        name: "clock source".to_owned(),
        good: fast.contains(&name.as_str()),
        found: format!("time is read from `{name}`"),
    })
}

fn clocks(steady: Duration, wall: Duration) -> Check {
    let apart = (wall.as_secs_f64() - steady.as_secs_f64()).abs() * 1e9;
    Check {
        name: "clocks".to_owned(),
        good: apart <= APART_NS_MAX + steady.as_secs_f64() * 1e3 * APART_PPM_MAX,
        found: format!(
            "the wall clock and the steady one came apart by {:.3} ms in {:.1} s",
            apart / 1e6,
            steady.as_secs_f64()
        ),
    }
}

/// What a fixed loop takes at its fastest, which is by the processor's speed.
fn loop_ns() -> u64 {
    let one = || {
        let start = Instant::now();
        let mut state = 1_u64;
        for _ in 0..LOOP_ROUNDS {
            // Each round needs what the one before made.
            state = core::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    };
    (0..LOOPS).map(|_| one()).min().unwrap_or(0)
}

fn speed(then_ns: u64, now_ns: u64) -> Check {
    let percent = 100.0 * (real(now_ns) / real(then_ns.max(1)) - 1.0);
    Check {
        name: "speed".to_owned(),
        good: percent.abs() <= SPEED_PERCENT_MAX,
        found: format!("a fixed loop took {percent:+.1} % of its time more at the end than at the beginning"),
    }
}

/// The mean frequency that the processors are said to have.
fn mhz() -> Option<f64> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let all: Vec<f64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("cpu MHz")?.split_once(':')?.1.trim().parse().ok())
        .collect();
    #[expect(clippy::cast_precision_loss, reason = "a number of processors")]
    let count = all.len() as f64;
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / count)
}

fn frequency(then: f64, now: f64) -> Check {
    let percent = 100.0 * (now / then - 1.0);
    Check {
        name: "frequency".to_owned(),
        good: percent.abs() <= SPEED_PERCENT_MAX,
        found: format!(
            "{then:.0} MHz at the beginning, {now:.0} MHz at the end, on average over the processors"
        ),
    }
}

/// The sum of what a file says of each processor.
fn throttled() -> Option<u64> {
    let cpus = fs::read_dir("/sys/devices/system/cpu").ok()?.flatten();
    let counts = cpus.filter_map(|cpu| {
        let text = fs::read_to_string(cpu.path().join("thermal_throttle/core_throttle_count")).ok()?;
        text.trim().parse::<u64>().ok()
    });
    counts.reduce(|sum, one| sum + one)
}

/// The hottest sensor.
fn thermal() -> Option<Check> {
    let zones = fs::read_dir("/sys/class/thermal").ok()?.flatten();
    let degrees = zones.filter_map(|zone| {
        let text = fs::read_to_string(zone.path().join("temp")).ok()?;
        text.trim().parse::<f64>().ok().map(|thousandths| thousandths / 1e3)
    });
    let hottest = degrees.reduce(f64::max)?;
    Some(Check {
        name: "temperature".to_owned(),
        good: hottest <= CELSIUS_MAX,
        found: format!("the hottest sensor says {hottest:.0} degrees"),
    })
}

#[expect(clippy::cast_precision_loss, reason = "an f64 is exact to 2^53 nanoseconds, 104 days")]
fn real(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_linux_are_read_and_others_told_from_us() {
        let text = "cpu  100 10 40 800 20 5 5 40 0 0\ncpu0 1 2 3\n";
        let times = Times::parse(text).unwrap();
        assert_eq!(times, Times { busy: 160, stolen: 40, all: 1_020 });
        assert_eq!(Times::parse("cpu 1 2 3"), None);
        assert_eq!(Times::parse("intr 1"), None);
        // 100 of 160 busy ticks are ours: 60 of 1,020 are others'.
        let check = others(times, Nanos::from_millis(1_000));
        assert!(!check.good && check.found.contains("took 5.9 %"), "{check:?}");
        assert!(others(times, Nanos::from_millis(1_600)).good);
        assert!(!steal(times).good && steal(Times { stolen: 1, ..times }).good);
    }

    #[test]
    fn clocks_and_speeds_that_move_are_told() {
        let steady = Duration::from_secs(100);
        assert!(clocks(steady, steady + Duration::from_millis(15)).good);
        assert!(!clocks(steady, Duration::from_millis(99_960)).good);
        assert!(speed(1_000, 1_020).good && !speed(1_000, 1_040).good && !speed(1_000, 960).good);
        assert!(frequency(2_000.0, 2_050.0).good && !frequency(2_000.0, 2_200.0).good);
    }

    #[test]
    fn a_run_has_checks_before_and_after() {
        let (checks, before) = before(2);
        assert!(checks.iter().any(|check| check.name == "quiet"), "{checks:?}");
        let after = after(&before);
        for name in ["clocks", "speed"] {
            assert!(after.iter().any(|check| check.name == name), "{after:?}");
        }
        if cfg!(target_os = "linux") {
            assert!(after.iter().any(|check| check.name == "others"), "{after:?}");
        }
    }
}

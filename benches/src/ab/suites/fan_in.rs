//! Suite `fan-in`: many flights that end one after the other, and whoever waits for all of them.

use std::rc::Rc;

use tokio::task::{JoinSet, LocalSet};
use wakeline_core::{
    Clock, CompletionPort, Error, ErrorCode, Inline, Instant, Nanos, Status, Wait, WaitPlan, Wake, drive,
    run_inline,
};
use wakeline_std::usage::thread_cpu_time;
use wakeline_std::{ParkPolicy, Point, StdClock, StdIdle, StdPark};

use crate::ab::arms::{Arm, Host, Way};
use crate::ab::device::Device;
use crate::ab::rounds::{Turn, quantity};
use crate::ab::session::{Named, Output, Setup, real, since};
use crate::draws::Draws;
use crate::gpu::Failure;

/// How long after that the first flight ends, and how long it is from there to the last, at least: no more end in a second than one thread
/// can be told of.
const FIRST: Nanos = Nanos::from_millis(5);
const SPAN: Nanos = Nanos::from_millis(20);
const SPAN_EACH_NS: u64 = 25_000;

/// What a launch takes, and arming a flight and having it watched, roughly: the ends begin when all of that is done for all.
const LAUNCH_NS: u64 = 24_000;

/// Up to how many flights an arm takes part: a thread each is for few, and a runtime's thread is not for thousands.
const THREADS_MAX: usize = 64;
const LOCAL_MAX: usize = 1_024;

/// Up to how many flights each has a point of its own; more share one, since a point takes 57 KiB.
const POINTS_MAX: usize = 64;

/// All flights of a turn.
type Flights<D> = Vec<<D as Device>::Flight>;

pub(super) fn measure<D: Device>(
    setup: &Setup<'_, D>,
    output: &mut Output,
    named: &Named,
    flights: usize,
) -> Result<(), Failure> {
    let fits = |arm: &Arm| match (&arm.way, arm.host()) {
        (Way::Spin | Way::StatusSpin, _) | (Way::Plan(..), Host::Watcher) => true,
        (Way::Raw(_) | Way::Operation(_), _) | (_, Host::Inline) => false,
        (_, Host::TokioLocal) => flights <= LOCAL_MAX,
        (_, Host::Threads) => flights <= THREADS_MAX,
    };
    let Some(chosen) = setup.choose(&["spin"], fits) else {
        output.passes_over(named);
        return Ok(());
    };
    let lanes = setup.device.lanes(flights)?;
    let count = if flights > POINTS_MAX { 1 } else { flights };
    let new = |arm: &Arm| (0..count).map(|_| Point::new(&arm.name)).collect();
    let points: Vec<Vec<Point>> = chosen.arms.iter().map(new).collect();
    setup.rounds(output, named, &chosen, |index, round| {
        let arm = &chosen.arms[index];
        let mut draws = Draws::new(setup.extent.seed, flights as u64 ^ (round << 20));
        let clock = setup.device.clock();
        let first = clock.now() + Nanos::from_nanos(LAUNCH_NS * flights as u64) + FIRST;
        let span = SPAN.as_nanos().max(SPAN_EACH_NS * flights as u64);
        let (mut waits, mut landed) = (Vec::with_capacity(flights), Vec::with_capacity(flights));
        // In the order of their ends, at random, and so that each lane's are.
        let mut after: Vec<u64> = (0..flights).map(|_| draws.between(0, span)).collect();
        after.sort_unstable();
        for (number, after) in after.into_iter().enumerate() {
            let lane = &lanes[number % lanes.len()];
            let (flight, witness) = setup.device.fly(lane, first + Nanos::from_nanos(after))?;
            waits.push(flight);
            landed.push(witness);
        }
        let (told, meters) = setup.metered(arm, || await_all(setup, arm, waits, &points[index]))?;
        let mut turn = Turn::new();
        let waiting = match told.waiting {
            Waiting::Here => meters.thread,
            Waiting::Threads(cpu) => cpu,
        };
        meters.tell(&mut turn, flights as u64, waiting);
        turn.set(quantity::THROUGHPUT, Some(real(flights as u64) / meters.took.as_secs_f64()));
        let late = told
            .at
            .iter()
            .zip(&landed)
            .map(|(told, landed)| Ok::<_, Error>(since(*told, setup.device.landed(landed, *told)?)));
        turn.late(late.collect::<Result<_, _>>()?);
        Ok(turn)
    })
}

/// When each flight's end was known.
struct Told {
    at: Vec<Instant>,
    waiting: Waiting,
}

/// Whose CPU time counts.
enum Waiting {
    /// This thread's.
    Here,
    /// That of the arm's own threads, which is this, where the system tells.
    Threads(Option<Nanos>),
}

fn await_all<D: Device>(
    setup: &Setup<'_, D>,
    arm: &Arm,
    flights: Flights<D>,
    points: &[Point],
) -> Result<Told, Error> {
    let clock = setup.device.clock();
    let own = |at| Told { at, waiting: Waiting::Here };
    match &arm.way {
        Way::Plan(bands, host) => {
            let plan = bands.choose(1);
            match host {
                Host::Watcher => watched(setup, plan, flights, points).map(own),
                Host::TokioLocal => locally(setup, plan, flights, points).map(own),
                Host::Threads | Host::Inline => by_threads(setup, plan, flights),
            }
        }
        Way::StatusSpin => scan(clock, flights, |flight| Ok(flight.query()? == Status::Done)).map(own),
        Way::Spin | Way::Raw(_) | Way::Operation(_) => {
            let mut flights = flights;
            for flight in &mut flights {
                flight.arm()?;
            }
            scan(clock, flights, |flight| Ok(flight.poll() == Wake::Reached)).map(own)
        }
    }
}

/// Looks at every flight that is left, again and again.
fn scan<F>(
    clock: StdClock,
    flights: Vec<F>,
    mut over: impl FnMut(&mut F) -> Result<bool, Error>,
) -> Result<Vec<Instant>, Error> {
    let mut told = vec![Instant::ORIGIN; flights.len()];
    let mut left: Vec<(usize, F)> = flights.into_iter().enumerate().collect();
    while !left.is_empty() {
        let mut index = 0;
        while let Some((number, flight)) = left.get_mut(index) {
            if over(flight)? {
                told[*number] = clock.now();
                left.swap_remove(index);
            } else {
                index += 1;
            }
        }
        core::hint::spin_loop();
    }
    Ok(told)
}

fn point(points: &[Point], number: usize) -> Point {
    points[number % points.len()].clone()
}

fn lost(error: tokio::task::JoinError) -> Error {
    Error::new(ErrorCode::Backend, [&"bench", &"running a task", &error]).with_source(error)
}

/// A task each on this thread's runtime, woken by the watcher.
fn watched<D: Device>(
    setup: &Setup<'_, D>,
    plan: &WaitPlan,
    flights: Flights<D>,
    points: &[Point],
) -> Result<Vec<Instant>, Error> {
    let clock = setup.device.clock();
    let mut told = vec![Instant::ORIGIN; flights.len()];
    setup.hosts.runtime().block_on(async {
        let mut tasks = JoinSet::new();
        for (number, flight) in flights.into_iter().enumerate() {
            let wait = setup.hosts.watcher().wait(flight, plan, &point(points, number)).early_wake(false);
            tasks.spawn(async move { wait.await.map(|_| (number, clock.now())) });
        }
        while let Some(task) = tasks.join_next().await {
            let (number, at) = task.map_err(lost)??;
            told[number] = at;
        }
        Ok(told)
    })
}

/// A task each on this thread's runtime, which watches by itself.
fn locally<D: Device>(
    setup: &Setup<'_, D>,
    plan: &WaitPlan,
    flights: Flights<D>,
    points: &[Point],
) -> Result<Vec<Instant>, Error> {
    let clock = setup.device.clock();
    let mut told = vec![Instant::ORIGIN; flights.len()];
    let tasks = LocalSet::new();
    let mut waits = Vec::with_capacity(flights.len());
    for (number, mut flight) in flights.into_iter().enumerate() {
        let (local, point, plan) = (Rc::clone(setup.hosts.local()), point(points, number), *plan);
        waits.push(tasks.spawn_local(async move {
            let wait = Wait::new(&plan).expecting(point.forecast(&plan));
            let result = drive(wait, &mut flight, &*local, None).await;
            let known = clock.now();
            point.observe(&result);
            result.map(|_| (number, known))
        }));
    }
    setup.hosts.runtime().block_on(tasks.run_until(async {
        for wait in waits {
            let (number, at) = wait.await.map_err(lost)??;
            told[number] = at;
        }
        Ok(told)
    }))
}

/// A thread each, which sleeps in the plan's wait. Starting the threads is not counted as theirs.
fn by_threads<D: Device>(setup: &Setup<'_, D>, plan: &WaitPlan, flights: Flights<D>) -> Result<Told, Error> {
    let clock = setup.device.clock();
    let waits = std::thread::scope(|scope| {
        let threads: Vec<_> = flights
            .into_iter()
            .map(|mut flight| {
                scope.spawn(move || {
                    let idle = StdIdle::new(clock);
                    let park = StdPark::new(&idle, ParkPolicy::default());
                    let before = thread_cpu_time();
                    let host = Inline::new(clock, &idle, &park);
                    run_inline(drive(Wait::new(plan), &mut flight, &host, None))??;
                    let known = clock.now();
                    let used = thread_cpu_time().zip(before).map(|(now, then)| now - then);
                    Ok::<_, Error>((known, used))
                })
            })
            .collect();
        let ended = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| {
                Err(Error::new(ErrorCode::Backend, [&"bench", &"waiting on a thread", &"it panicked"]))
            })
        });
        ended.collect::<Result<Vec<_>, _>>()
    })?;
    let cpu = waits.iter().try_fold(Nanos::ZERO, |sum, (_, used)| used.map(|used| sum + used));
    Ok(Told { at: waits.into_iter().map(|(at, _)| at).collect(), waiting: Waiting::Threads(cpu) })
}

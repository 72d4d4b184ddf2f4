//! Whole programs: devices, streams, tasks on a runtime, whoever sees their points to their ends, and whatever can go wrong, all in one
//! virtual time and from one seed.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | what is drawn, the end of a program |
//! | `world.rs` | the time and all that happens in it; what holds at every moment |
//! | `event.rs` | what happens to a program from outside: tasks are aborted, watchers shut down, devices fault, the clock jumps |
//! | `workers.rs` | a simulated runtime of several workers: seeded, in virtual time |
//! | `executor.rs` | the same tasks on our executor |
//! | `task.rs` | a task: which steps it takes, and how they wait |
//! | `steps.rs` | the steps whose waits are judged by their time; all others are those of [`mod@swarm`] |
//! | `judge.rs` | what a wait may come to, and by when |
//!
//! What is judged:
//!
//! 1. no wait ends well before its work is done, where no store lies to a wait that trusts words;
//! 2. every wait ends within its bound: its deadline, the end of its work and what its plan may sleep, by what was known when it was submitted, or miss, the call of its token;
//! 3. the device saw no misuse: no use of memory that was freed, no conflicting accesses without an order, no host at memory in use;
//! 4. what a flight keeps is dropped once, and not before its work is done or its device has failed;
//! 5. no word ever goes backwards;
//! 6. what began has ended: flights, tended points, functions of the host, registrations; and what was leaked is counted.

mod event;
mod executor;
mod judge;
mod steps;
mod task;
mod workers;
mod world;

use std::rc::Rc;

use wakeline_core::{Clock, Nanos};
use wakeline_ops::{LeastLoaded, Runtime, StreamPoolRoundRobin};
use wakeline_sim::{Faults, SimConfig, SimDevice, VirtualHost, VirtualTime, VirtualWatcher};

use crate::dice::Dice;
use crate::faults::{honest, kept, swarm};
use crate::script::Script;
use crate::swarm::{self, How, STRICT, TRUSTING, WATCHING, WATCHING_STRICT};
use world::{Place, World};

/// Of as many devices a program is at most.
const DEVICES_MAX: u64 = 4;

/// As many tasks it has in most cases, and in some.
const TASKS_MAX: u64 = 10;
const MANY_TASKS_MAX: u64 = 60;

/// As many streams of no runtime its devices have in some cases, each.
const RAW_STREAMS_MAX: u64 = 200;

/// What a program came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Waits that were judged by their time.
    pub judged: u64,
    /// Those of them that ended well.
    pub done: u64,
    /// Flights of all runtimes.
    pub flights: u64,
    /// Those that were leaked, and counted.
    pub leaked: u64,
    /// Points that were tended without a runtime.
    pub tended: u64,
    /// Polls of tasks.
    pub polls: u64,
    /// Devices that were well at the end.
    pub well: u64,
    /// Streams, of runtimes and of none.
    pub streams: u64,
}

/// Runs the program of a seed.
///
/// # Errors
///
/// What promise was broken.
///
/// # Panics
///
/// The same, where it was found within a step.
pub fn run(seed: u64, script: &Script) -> Result<Summary, String> {
    let mut dice = Dice::of_part(seed, u64::MAX);
    let Some(world) = set_up(seed, &mut dice, script) else { return Ok(Summary::default()) };
    let world = Rc::new(world);
    let tasks = if dice.one_in(8) { 1 + dice.below(MANY_TASKS_MAX) } else { 1 + dice.below(TASKS_MAX) };
    event::draw(&world, tasks);
    script.note(|| format!("{tasks} tasks"));
    let polls =
        if dice.one_in(4) { executor::run(&world, tasks)? } else { workers::run(&world, tasks, &mut dice)? };
    end(&world, polls)
}

/// The devices, their runtimes and watchers. `None` where a device failed before there was anything to judge.
fn set_up<'s>(seed: u64, dice: &mut Dice, script: &'s Script) -> Option<World<'s>> {
    let time = VirtualTime::new();
    let devices = 1 + dice.below(DEVICES_MAX);
    // One watcher for all, or one for each.
    let one_watcher = dice.one_in(2);
    let mut set_ups = Vec::new();
    for number in 0..devices {
        let strict = dice.one_in(2);
        let how = match (strict, dice.one_in(3)) {
            (true, true) => STRICT,
            (true, false) => WATCHING_STRICT,
            (false, true) => TRUSTING,
            (false, false) => WATCHING,
        };
        let seed = seed ^ number << 56;
        let faults = match dice.below(4) {
            0 => Faults::none(),
            _ if strict => swarm(seed),
            _ => honest(seed),
        };
        let faults = kept(&faults, u32::try_from(number).unwrap_or(0), script);
        script.note(|| format!("device {number}: {how:?}, {faults:?}"));
        let config = SimConfig { faults, ..swarm::config(seed, dice) };
        set_ups.push((how, SimDevice::new(time.clone(), config).ok()?, dice.clone()));
        dice.below(2);
    }
    // Where any task is to watch, all of one watcher's are.
    let watcher = |devices: &[(How, SimDevice, Dice)]| {
        let (_, first, _) = &devices[0];
        let host = VirtualHost::new(first);
        let host = devices[1..].iter().fold(host, |host, (_, device, _)| host.and(device));
        let watcher = VirtualWatcher::on(host);
        watcher.let_tasks_watch(devices.iter().any(|(how, ..)| how.watches));
        watcher
    };
    let watchers: Vec<_> =
        if one_watcher { vec![watcher(&set_ups)] } else { set_ups.chunks(1).map(watcher).collect() };
    let mut places = Vec::new();
    for (number, (how, device, mut own)) in set_ups.into_iter().enumerate() {
        let watcher = if one_watcher { 0 } else { number };
        places.push(place(how, device, &watchers[watcher], &mut own)?);
    }
    Some(World::new(seed, script, time, places, watchers))
}

fn place(how: How, device: SimDevice, watcher: &VirtualWatcher, dice: &mut Dice) -> Option<Place> {
    let streams = if dice.one_in(8) { 1 + dice.place(64) } else { 1 + dice.place(6) };
    let config = how.config(dice);
    let policy = StreamPoolRoundRobin::new(streams).ok()?;
    let first = Runtime::with_config(device.clone(), &policy, watcher.clone(), config).ok()?;
    let mut runtimes = vec![first];
    let mut all = streams;
    while dice.one_in(3) && runtimes.len() < 4 {
        let streams = 1 + dice.place(64);
        runtimes.push(runtimes[0].with_policy(&LeastLoaded::new(streams).ok()?).ok()?);
        all += streams;
    }
    let raw = if dice.one_in(6) { dice.below(RAW_STREAMS_MAX) } else { dice.below(4) };
    let mut streams = Vec::new();
    for _ in 0..raw {
        // A device that faults here has fewer.
        streams.extend(device.stream().ok());
    }
    all += streams.len();
    Some(Place::new(how, device, watcher.clone(), runtimes, streams, all))
}

/// Lets everything end that can, and looks at what is left.
fn end(world: &Rc<World<'_>>, polls: u64) -> Result<Summary, String> {
    world.pool.borrow_mut().clear();
    world.run_out()?;
    let mut summary = Summary { polls, ..world.summary.get() };
    if Dice::of_part(world.seed, u64::MAX - 1).one_in(2) {
        world.close_all();
    }
    for watcher in &world.watchers {
        if watcher.pending() > 0 {
            return Err(format!("a watcher has {} points left", watcher.pending()));
        }
    }
    for (number, place) in world.places.iter().enumerate() {
        let mut alive = 0;
        let counts = place.runtime().counts();
        if swarm::is_clean(&place.device, place.runtime(), swarm::graphs::BUFFERS, place.forgotten.get()) {
            summary.well += 1;
        }
        alive += place.owners.alive();
        if alive > counts.owners_leaked {
            let leaked = counts.owners_leaked;
            return Err(format!(
                "device {number}: {alive} owners are left, and {leaked} were counted as leaked"
            ));
        }
        summary.flights += counts.begun;
        summary.leaked += counts.leaked;
        summary.streams += place.streams as u64;
    }
    let (tended, told) = world.tended.counts();
    if tended != told {
        return Err(format!("of {tended} tended points {told} were told of"));
    }
    summary.tended = tended;
    world.whole()?;
    debug_assert!(world.time.now().since(wakeline_core::Instant::ORIGIN) < Nanos::MAX);
    Ok(summary)
}

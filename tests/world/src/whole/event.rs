//! What happens to a program from outside, at any moment.

use wakeline_core::{Clock, Instant, Nanos};
use wakeline_sim::TimeLine;

use super::world::World;
use crate::dice::Dice;
use crate::script::Part;

/// A program has at most so many.
const EVENTS_MAX: u32 = 8;

/// The longest jump of the clock.
const JUMP_NS_MAX: u64 = 20_000_000;

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A task is dropped, wherever it waits.
    Abort(usize),
    /// All are, as when a runtime is dropped.
    AbortAll,
    /// A task is polled for no reason.
    Stir(usize),
    /// Those who see points to their ends are shut down.
    ShutDown,
    /// A device faults.
    Fault(usize),
    /// The clock jumps.
    Jump(Nanos),
}

/// Draws those of a program.
pub(crate) fn draw(world: &World<'_>, tasks: u64) {
    let mut events = Vec::new();
    let tasks = usize::try_from(tasks).unwrap_or(1);
    for number in 0..EVENTS_MAX {
        let mut dice = Dice::of_part(world.seed ^ 0xE7E7, number.into());
        // By its power of two first: most of a program is over soon.
        let magnitude = 1_u64 << (8 + dice.below(16));
        let at = Instant::from_nanos(magnitude + dice.below(magnitude));
        let event = match dice.below(64) {
            0..=9 => Event::Abort(dice.place(tasks)),
            10 => Event::AbortAll,
            11..=24 => Event::Stir(dice.place(tasks)),
            25 => Event::ShutDown,
            26 => Event::Fault(dice.place(world.places.len())),
            27..=30 => Event::Jump(Nanos::from_nanos(dice.below(JUMP_NS_MAX))),
            _ => continue,
        };
        if world.script.runs(Part::Event(number)) {
            events.push((at, event));
        }
    }
    events.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    *world.events.borrow_mut() = events;
}

impl World<'_> {
    /// Has happen what is due.
    pub(crate) fn events_due(&self) {
        loop {
            let due = {
                let mut events = self.events.borrow_mut();
                let due = events.last().is_some_and(|(at, _)| *at <= self.now());
                if due { events.pop() } else { None }
            };
            let Some((_, event)) = due else { return };
            self.note(|| format!("{event:?}"));
            self.happens(event);
        }
    }

    fn happens(&self, event: Event) {
        let tasks = self.tasks.borrow().clone();
        match event {
            Event::Abort(task) => {
                if let Some(task) = tasks.get(task) {
                    task.aborted.set(true);
                    task.stir();
                }
            }
            Event::AbortAll => {
                for task in tasks {
                    task.aborted.set(true);
                    task.stir();
                }
            }
            Event::Stir(task) => {
                if let Some(task) = tasks.get(task) {
                    task.stir();
                }
            }
            Event::ShutDown => self.close_all(),
            Event::Fault(place) => self.places[place].device.inject_fault(),
            // Nobody waited for it: it counts as a call.
            Event::Jump(by) => self.time.pass(self.time.now() + by),
        }
    }
}

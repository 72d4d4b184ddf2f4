//! A task: which steps it takes, and how they wait.

use std::rc::Rc;

use wakeline_core::{Error, Nanos, yield_once};

use super::executor::Waits;
use super::world::{Place, World};
use crate::dice::Dice;
use crate::script::Part;
use crate::swarm;
use crate::swarm::graphs::Graphs;
use crate::swarm::program::Program;

/// As many steps a task has in most cases, and in some.
const STEPS_MAX: u64 = 10;
const MANY_STEPS_MAX: u64 = 40;

/// The way of a task among many.
pub(crate) struct Way<'s> {
    pub(crate) world: Rc<World<'s>>,
    /// Where it can wait for bare points: on our executor.
    pub(crate) waits: Option<Waits<'s>>,
}

impl<'s> Way<'s> {
    pub(crate) fn new(world: Rc<World<'s>>) -> Self {
        Self { world, waits: None }
    }

    pub(crate) fn on_reactor(world: Rc<World<'s>>, waits: Waits<'s>) -> Self {
        Self { world, waits: Some(waits) }
    }
}

impl swarm::Way for Way<'_> {
    async fn wait<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        Ok(future.await)
    }

    async fn moment(&self) {
        yield_once().await;
    }

    fn turn(&self) -> bool {
        self.world.turn()
    }

    /// The others go on.
    async fn left_closed(&self, _: Nanos) {}

    fn note(&self, line: impl FnOnce() -> String) {
        self.world.note(line);
    }

    /// Where there is no gate that only others would open.
    fn may_block(&self) -> bool {
        self.world.places.iter().all(|place| place.device.gates() == 0)
    }
}

/// A task of a program.
pub(crate) struct Task<'s> {
    pub(crate) world: Rc<World<'s>>,
    pub(crate) graphs: Graphs<Way<'s>>,
    pub(crate) place: usize,
    pub(crate) dice: Dice,
}

/// Runs the task of this number.
pub(crate) async fn run(way: Way<'_>, number: usize) {
    let world = Rc::clone(&way.world);
    let part = u32::try_from(number).unwrap_or(u32::MAX);
    let own = world.seed ^ (u64::from(part) + 1) << 32;
    let mut dice = Dice::of_part(own, u64::MAX);
    let place = dice.place(world.places.len());
    let its = &world.places[place];
    let runtime = its.a_runtime(dice.below(8)).clone();
    let mut program = Program::new(way, its.device.clone(), runtime);
    program.forgotten = Rc::clone(&its.forgotten);
    let mut task = Task { world: Rc::clone(&world), graphs: Graphs::new(program), place, dice };
    let steps = if task.dice.one_in(8) { MANY_STEPS_MAX } else { STEPS_MAX };
    let steps = 1 + task.dice.below(steps);
    for step in 0..u32::try_from(steps).unwrap_or(1) {
        if world.script.runs(Part::Step(part, step)) {
            task.dice = Dice::of_part(own, step.into());
            world.note(|| format!("task {part}, step {step}, on device {place}"));
            task.step(step).await;
        }
    }
    world.note(|| format!("task {part} ends"));
}

impl<'s> Task<'s> {
    pub(crate) fn its(&self) -> &Place {
        &self.world.places[self.place]
    }

    pub(crate) fn way(&self) -> &Way<'s> {
        &self.graphs.program.way
    }
}

//! All kinds of programs, by name.

use std::fmt;
use std::ops::AddAssign;
use std::str::FromStr;

use wakeline_sim::Faults;

use crate::caught::caught;
use crate::dice::Dice;
use crate::faults::{honest, kept, swarm};
use crate::script::Script;
use crate::swarm::{self, STRICT, TRUSTING, WATCHING, WATCHING_STRICT};
use crate::{waits, whole};

/// A kind of programs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Bare waits by every plan, inline and on our executor.
    Waits,
    /// One task of all operations that compose.
    Swarm,
    /// The same with graphs.
    Graphs,
    /// Trees of operations on the same few buffers.
    Trees,
    /// Several devices, many tasks, whatever can go wrong.
    Whole,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Waits, Self::Swarm, Self::Graphs, Self::Trees, Self::Whole];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waits => "waits",
            Self::Swarm => "swarm",
            Self::Graphs => "graphs",
            Self::Trees => "trees",
            Self::Whole => "whole",
        }
    }

    /// How many programs of it there are a seed: those of bare waits are small.
    pub const fn programs(self) -> u64 {
        match self {
            Self::Waits => 5,
            Self::Swarm | Self::Graphs | Self::Trees | Self::Whole => 1,
        }
    }

    /// Runs one program.
    ///
    /// # Errors
    ///
    /// What promise was broken.
    pub fn run(self, seed: u64, script: &Script) -> Result<Total, String> {
        caught(|| match self {
            Self::Waits => waits::run(seed, script).map(|summary| Total {
                programs: 1,
                waits: summary.waits,
                done: summary.done,
                ..Total::default()
            }),
            Self::Swarm | Self::Graphs | Self::Trees => Ok(self.swarm(seed, script)),
            Self::Whole => whole::run(seed, script).map(|summary| Total {
                programs: 1,
                waits: summary.judged + summary.tended,
                done: summary.done,
                flights: summary.flights,
                leaked: summary.leaked,
                streams: summary.streams,
                polls: summary.polls,
            }),
        })
    }

    fn swarm(self, seed: u64, script: &Script) -> Total {
        let mut dice = Dice::of_part(seed, u64::MAX - 3);
        let how = [STRICT, TRUSTING, WATCHING, WATCHING_STRICT][dice.place(4)];
        let faults = match dice.below(8) {
            0 => Faults::none(),
            1 => Faults { fault_at_call: Some(1 + dice.below(200)), ..Faults::none() },
            _ if how.is_strict() => swarm(seed),
            _ => honest(seed),
        };
        let faults = kept(&faults, 0, script);
        script.note(|| format!("{how:?}, {faults:?}"));
        match self {
            Self::Graphs => drop(swarm::run_with_graphs(seed, &faults, how, script)),
            Self::Trees => drop(swarm::run_with_trees(seed, &faults, how, script)),
            _ => drop(swarm::run(seed, &faults, how, script)),
        }
        Total { programs: 1, ..Total::default() }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = Self::ALL.map(Self::name).join(", ");
        let named = Self::ALL.into_iter().find(|kind| kind.name() == text);
        named.ok_or_else(|| format!("`{text}` is no kind of program: write one of {all}"))
    }
}

/// What programs came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Total {
    /// Programs.
    pub programs: u64,
    /// Waits that were judged by the truth.
    pub waits: u64,
    /// Those of them that ended well.
    pub done: u64,
    /// Flights of whole programs.
    pub flights: u64,
    /// Those that were leaked, and counted.
    pub leaked: u64,
    /// Streams of whole programs.
    pub streams: u64,
    /// Polls of their tasks.
    pub polls: u64,
}

impl AddAssign for Total {
    fn add_assign(&mut self, other: Self) {
        self.programs += other.programs;
        self.waits += other.waits;
        self.done += other.done;
        self.flights += other.flights;
        self.leaked += other.leaked;
        self.streams += other.streams;
        self.polls += other.polls;
    }
}

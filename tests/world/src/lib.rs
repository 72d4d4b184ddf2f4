//! Whole programs on simulated devices: drawn from a seed, run in virtual time, judged against what really happened, and made
//! smaller when they fail.
//!
//! | here | what |
//! |---|---|
//! | `whole/` | several devices, hundreds of streams, tasks on a simulated runtime of many workers or on our executor, whatever can go wrong, and a judge of each wait |
//! | `swarm/` | the steps that such a task is made of; and programs of one task that runs them on the spot |
//! | `waits.rs` | programs of bare waits by every plan, inline and on our executor |
//! | `probe.rs` | ports and hosts that count the time which calls and late wakes take |
//! | `script.rs` | which parts of a program are run, and what it did: by this it is made smaller |
//! | `shrink.rs` | a failing program with as few parts as still fail |
//! | `kinds.rs` | all kinds of programs, by name |
//! | `caught.rs` | panics as errors |
//! | `dice.rs`, `faults.rs` | numbers from a seed, faults from one |
//! | `bin/worlds.rs` | runs many seeds; `cargo xtask soak` calls it |
//!
//! A program is deterministic: the same seed and the same parts give the same run. To add to what programs do, add a step to
//! `swarm/` (it is drawn in programs of one task and in whole ones alike) or to `whole/steps.rs`.

pub mod caught;
pub mod dice;
pub mod faults;
pub mod kinds;
pub mod probe;
pub mod script;
pub mod shrink;
pub mod swarm;
pub mod waits;
pub mod whole;

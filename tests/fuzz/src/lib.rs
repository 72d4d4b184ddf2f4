//! Hostile text for what wakeline reads: plans, bands, values and names of settings, traces.
//!
//! Inputs are made from a seed: committed ones and those that were told something new are cut, joined, repeated, and have words and numbers of
//! the format put into them. What counts as new is what the reader said, numbers left out: no instrumentation is needed, and it runs with
//! the stable compiler. A target says of an input whether all that is promised of it holds; a panic is a failure as well.
//!
//! | file | what |
//! |---|---|
//! | `targets.rs` | what is read, and what holds of any input |
//! | `mutate.rs` | inputs from other inputs |
//! | `run.rs` | many of them |
//! | `corpus/` | the inputs that it begins with, a folder for each target |
//! | `bin/fuzz.rs` | `cargo xtask fuzz` |
//!
//! The descriptions of kernels are types, and PTX and other images go to the driver as they are, so there is nothing of those to be read.

pub mod mutate;
pub mod run;
pub mod targets;

//! A/B runs: what is measured, how it is kept, how it is shown. `cargo xtask bench` is the program.
//!
//! | here | what |
//! |---|---|
//! | [`schema`] | the lines of a run's file |
//! | [`rounds`] | arms that take turns, from measured turns to cells |
//! | [`args`], [`run`] | what is asked for; a run from its first line to its last |
//! | [`arms`], [`hosts`] | ways of waiting by their names; who runs them |
//! | [`device`] | what work runs on: a simulated device or a GPU |
//! | [`suites`], [`session`] | what is measured, case by case; a run under way |
//! | [`checks`] | whether the machine is fit to be measured on |
//! | [`energy`] | what the GPU and the processors have used, where the machine tells |
//! | [`report`] | `bench report`: runs as a table and as a page, compared, and guarded in CI |
//! | [`selftest`] | whether the method finds what is there, and nothing else |

pub mod args;
pub mod arms;
pub mod checks;
pub mod device;
pub mod energy;
pub mod hosts;
pub mod report;
pub mod rounds;
pub mod run;
pub mod schema;
pub mod selftest;
pub mod session;
pub mod suites;

//! The Metal backend on a fake of Metal's calls.
//!
//! | file | what |
//! |---|---|
//! | `hosts.rs` | the script that all backends pass, on every host |
//! | `shapes.rs` | what was seen to go wrong with Metal, one test each |
//! | `matrix.rs` | every fault, under every plan, on three hosts |

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod hosts;
mod matrix;
mod shapes;

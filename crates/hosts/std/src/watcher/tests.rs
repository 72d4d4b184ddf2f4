//! A shard in played time: no threads, no clock but the test's, every turn at an instant of its choice.
//!
//! | file | what |
//! |---|---|
//! | `stage.rs` | the shard, its leader played by hand, tasks |
//! | `ports.rs` | the time, ports that say what a test wants |
//! | `waits.rs` | single waits from start to end |
//! | `contexts.rs` | the drivers: in turn, at once after a failure, late |
//! | `early.rs` | early wakes |
//! | `late.rs` | those who may be told late, and how a leader passes the time |
//! | `leaving.rs` | what abandoned flights and a closed watcher leave behind |
//! | `programs.rs` | random programs against a model |

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not seen to be tests where they are none for loom"
)]

mod contexts;
mod early;
mod late;
mod leaving;
mod ports;
mod programs;
mod stage;
mod waits;

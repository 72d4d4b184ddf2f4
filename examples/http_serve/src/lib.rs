//! An HTTP server that batches requests to a device: how an inference server stands on wakeline.
//!
//! ```text
//!   axum ──► http ──► batcher ──► model ──► wakeline: operation, stream, word, watcher
//!    ▲        │          │          │
//!    │        └ metrics ◄┴── cpu ◄──┘
//!   serve: the socket, and the end of all of it
//! ```
//!
//! | file | what |
//! |---|---|
//! | `args.rs` | what it is told |
//! | `serve.rs` | its life, and how it ends |
//! | `http.rs` | requests and answers |
//! | `batcher.rs` | batches |
//! | `model.rs` | a batch as one operation on a device |
//! | `device.rs` | the devices |
//! | `metrics.rs`, `histogram.rs`, `cpu.rs` | what is counted, and what the waiting costs |
//! | `error.rs` | what can go wrong |
//! | `page/` | the page |

pub mod args;
pub mod batcher;
pub mod cpu;
pub mod device;
pub mod error;
pub mod histogram;
mod http;
pub mod metrics;
pub mod model;
pub mod serve;

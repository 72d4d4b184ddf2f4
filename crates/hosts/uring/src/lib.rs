//! The `io_uring` host of wakeline, for Linux: one thread waits for device work and for its own I/O in one place.
//!
//! | here | what for |
//! |---|---|
//! | [`Probe`] | whether there is a ring to be had here, and [`caps`](Probe::caps) for [`resolve`](wakeline_core::resolve) |
//! | `UringIdle` | an [`Idle`](wakeline_core::Idle) that sleeps in the ring, and your I/O as futures or entries |
//! | [`StdPark`](wakeline_std::StdPark) | `StdPark::new(&ring, policy)`: words watched while the ring carries I/O |
//!
//! On other systems there is [`Probe`] alone, which says so.
//!
//! ```
//! # #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
//! # fn main() {
//! use wakeline_core::{Clock, Idle, Nanos};
//! use wakeline_std::StdClock;
//! use wakeline_uring::{Probe, UringIdle};
//!
//! if let Some(why) = Probe::run().why_not() {
//!     return println!("skipped: no io_uring: {why}");
//! }
//! let clock = StdClock::new();
//! let ring = UringIdle::new(clock).unwrap();
//! let until = clock.now() + Nanos::from_millis(2);
//! ring.idle(Some(until)); // to the moment, since nobody rings
//! assert!(clock.now() >= until);
//! let bell = ring.bell();
//! let ringer = std::thread::spawn(move || bell.wake());
//! ring.idle(None); // until the ring
//! # ringer.join().unwrap();
//! # }
//! # #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
//! # fn main() {}
//! ```
//!
//! Invariants: no static, no environment, no driver call, no thread, no timer slack set. Unsafe code is in `ring/sys.rs` alone.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
extern crate alloc;

mod probe;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod ring;

pub use probe::Probe;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub use ring::{
    Accept, Close, Completion, Leaks, Op, Operation, RETRY_US, Raw, SUBMIT_US_MAX, Transfer,
    USER_DATA_RESERVED, UringIdle, UringLimits, UringStats,
};

/// The crate whose entries are pushed.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub use io_uring;

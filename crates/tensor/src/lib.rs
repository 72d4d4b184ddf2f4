//! Tensors for wakeline: numbers in memory of a device, made, copied, cut up and read back by device operations.
//!
//! A tensor is a name of memory, with a shape. What is done to it are lazy operations of `wakeline-ops`, ordered on the device by what they read and write.
//!
//! | you want | look at |
//! |---|---|
//! | a tensor | [`Tensor::zeros`], [`ones`](Tensor::ones), [`full`](Tensor::full), [`eye`](Tensor::eye), [`arange`](Tensor::arange), [`linspace`](Tensor::linspace), [`uninit`](Tensor::uninit) |
//! | random numbers | [`Tensor::rand`], [`Tensor::randn`] |
//! | numbers of the host | [`Tensor::from_host`], [`Tensor::from_shaped`], [`Tensor::overwrite`] |
//! | its numbers on the host | [`Tensor::to_host`] |
//! | to send and fetch them as fast as the bus | [`PinnedBuffer`], with [`Tensor::overwrite_from`] and [`Tensor::fetch_into`] |
//! | many numbers, with little pinned memory | [`Tensor::send_in_chunks`], [`Tensor::fetch_in_chunks`] |
//! | to copy it | [`Tensor::dup`], [`Tensor::copy_to`], [`Tensor::copy_into`] |
//! | a copy of it on another device | [`Tensor::to_device`], [`Tensor::send_to`] |
//! | to write a part of it, in place | [`Tensor::view_mut`] |
//! | another shape, parts of it | [`Tensor::reshape`], [`Tensor::slice`], [`Tensor::select`], [`Tensor::permute`] |
//! | one of memory that another library has allocated | [`Tensor::from_foreign`], [`Tensor::give_back`] |
//! | kernels on it | [`kernel!`], [`typed`]; [`launch()`], [`Tensor::span`] |
//! | tiles of it, for kernels that write | [`IntoPartition::partition`], [`TensorOp::partition`] |
//! | how much memory there is, and bounds of it | [`Pools`], of the device |
//! | what a tensor can be of | [`Element`], [`Number`], [`Float`] |
//!
//! ```
//! use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin};
//! use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
//! use wakeline_tensor::Tensor;
//!
//! let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
//! let watcher = VirtualWatcher::new(&device); // a program in real time has that of `wakeline-std`
//! let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), watcher.clone())?;
//! let doubled = Tensor::from_host(vec![1_u32, 2, 3])
//!     .then(|tensor| tensor.to_host())
//!     .map_host(|numbers| numbers.iter().map(|number| number * 2).collect::<Vec<_>>());
//! assert_eq!(watcher.run(doubled.on(&runtime))??, [2, 4, 6]);
//! # Ok::<(), wakeline_core::Error>(())
//! ```
//!
//! Invariants:
//! 1. Device memory is touched by operations alone, each behind what it conflicts with; it is freed when nobody names it and nothing in flight uses it.
//! 2. What is written by an operation that takes a tensor, or a partition, is named by nobody else; what is in flight does not count as a name.
//! 3. Memory of the host that a device reads or writes is pinned, belongs to the flight, and is read by the host only once the copy has landed.
//! 4. A shape whose bytes cannot be counted makes no tensor; nothing here overflows.
//! 5. No backend, thread, driver or environment is known here.

mod across;
mod block;
mod chunks;
mod collective;
mod copy;
mod create;
mod dims;
mod element;
mod enqueue;
mod foreign;
mod generate;
mod host;
mod kernel;
mod layout;
mod lend;
mod partition;
mod pinned;
mod plan;
mod random;
mod tensor;
mod tensor_op;
pub mod typed;
mod view;
mod view_mut;

pub use across::{SendTo, ToDevice};
pub use block::Span;
pub use chunks::{CHUNK_BYTES, CHUNKS_AT_A_TIME};
pub use collective::CollectiveElement;
pub use copy::{CopyInto, CopyTo, Dup};
pub use create::{Eye, Full, Uninit};
pub use dims::{Dims, RANK_MAX};
pub use element::{Element, ElementSize, Number};
pub use generate::Generated;
pub use host::{FromHost, HostCopy, Overwrite, ToHost};
pub use kernel::{KernelArg, Launch, launch, set_kernel};
pub use lend::{Lent, LentFuture};
pub use partition::{IntoPartition, Partition, Tile};
pub use pinned::{FetchInto, InFlight, OverwriteFrom, PinnedBuffer};
pub use plan::COPY_CALLS_MAX;
pub use random::Float;
pub use tensor::Tensor;
pub use tensor_op::{Partitioned, Reshaped, TensorOp};
pub use typed::{LaunchConfig, THREADS_DEFAULT};
pub use view_mut::{OverwriteInto, ViewMut};
#[doc(inline)]
pub use wakeline_ops::port::{PoolUse, Pools};

//! What safe code must not be able to say. Each of these has the compiler refuse it, with the error that is named.
//!
//! A tensor that an operation writes is given away for as long as the operation is, and comes back with its output:
//!
//! ```compile_fail,E0382
//! use wakeline_ops::DeviceOp;
//! use wakeline_tensor::Tensor;
//! use wakeline_sim::SimDevice;
//! fn twice(from: Tensor<u8, SimDevice>, target: Tensor<u8, SimDevice>) {
//!     let copy = from.copy_to(target);
//!     let read = target.to_host(); // it is being written
//! }
//! ```
//!
//! Memory of the host goes in by value. Borrowed, it could be gone before the device has read it, however the future ends:
//!
//! ```compile_fail,E0308
//! use wakeline_tensor::Tensor;
//! use wakeline_sim::SimDevice;
//! fn send(bytes: &[u8]) -> impl Sized {
//!     Tensor::<u8, SimDevice>::from_host(bytes)
//! }
//! ```
//!
//! Nor can an operation carry a borrow along:
//!
//! ```compile_fail,E0521
//! use wakeline_ops::{DeviceOp, Runtime, value};
//! use wakeline_sim::SimDevice;
//! fn carry(runtime: &Runtime<SimDevice>, bytes: &[u8]) -> impl Sized {
//!     value::<SimDevice, _>(bytes).on(runtime)
//! }
//! ```
//!
//! or a closure that it runs later, when the device is done:
//!
//! ```compile_fail,E0597
//! use wakeline_ops::{DeviceOp, Runtime, value};
//! use wakeline_sim::SimDevice;
//! fn later(runtime: &Runtime<SimDevice>) {
//!     let mut out = 0;
//!     let out_ref = &mut out;
//!     let future = value::<SimDevice, _>(1).map_host(move |n| *out_ref = n).on(runtime);
//!     std::mem::forget(future);
//! }
//! ```
//!
//! What is let go on another thread must be able to go there. A value of a chain:
//!
//! ```compile_fail,E0599
//! use std::rc::Rc;
//! use wakeline_ops::{DeviceOp, Runtime, value};
//! use wakeline_sim::SimDevice;
//! fn share(runtime: &Runtime<SimDevice>) -> impl Sized {
//!     value::<SimDevice, _>(Rc::new(1)).on(runtime)
//! }
//! ```
//!
//! what a closure has:
//!
//! ```compile_fail,E0277
//! use std::rc::Rc;
//! use wakeline_ops::{DeviceOp, value};
//! use wakeline_sim::SimDevice;
//! let shared = Rc::new(1);
//! let op = value::<SimDevice, _>(1).map(move |n| n + *shared);
//! ```
//!
//! and what a submission keeps, or a shared one that could not be shared:
//!
//! ```compile_fail,E0277
//! use std::cell::Cell;
//! use std::sync::Arc;
//! fn keep(submission: &mut wakeline_ops::Submission<wakeline_sim::SimDevice>, shared: &Arc<Cell<u8>>) {
//!     submission.retain_shared(shared);
//! }
//! ```
//!
//! A future is polled by one task at a time, and is no copy of itself:
//!
//! ```compile_fail,E0599
//! use wakeline_ops::{DeviceOp, Runtime, value};
//! use wakeline_sim::SimDevice;
//! fn both(runtime: &Runtime<SimDevice>) -> impl Sized {
//!     value::<SimDevice, _>(1).on(runtime).clone()
//! }
//! ```
//!
//! A closure that executes another operation is handed in by who gives their word for it:
//!
//! ```compile_fail,E0133
//! use wakeline_ops::{DeviceOp, Runtime, value};
//! use wakeline_sim::SimDevice;
//! fn nest(runtime: Runtime<SimDevice>) -> impl Sized {
//!     value::<SimDevice, _>(1).then_unchecked(move |n| value(value(n).on(&runtime).sync().ok()))
//! }
//! ```
//!
//! What many are to have must be able to be shared:
//!
//! ```compile_fail,E0277
//! use std::cell::Cell;
//! use wakeline_ops::{DeviceOp, value};
//! use wakeline_sim::SimDevice;
//! let op = value::<SimDevice, _>(Cell::new(1)).shared();
//! ```
//!
//! and what only one can have is had once:
//!
//! ```compile_fail,E0599
//! use wakeline_ops::{DeviceOp, unzip, zip};
//! use wakeline_tensor::Tensor;
//! use wakeline_sim::SimDevice;
//! let (one, other) = unzip!(zip!(Tensor::<u8, SimDevice>::full(1, 1), 2_u8));
//! let twice = one.clone();
//! ```
//!
//! A kernel is launched by who gives their word for it:
//!
//! ```compile_fail,E0133
//! use wakeline_ops::port::Shape;
//! use wakeline_tensor::{Launch, launch};
//! use wakeline_sim::{SimDevice, SimKernel};
//! fn run(kernel: SimKernel, shape: Shape) -> Launch<SimDevice> {
//!     launch(kernel, shape, [])
//! }
//! ```
//!
//! A launch of a graph gives nothing on the host, so what is read there cannot be recorded in one:
//!
//! ```compile_fail,E0271
//! use wakeline_ops::{DeviceOp, Stream};
//! use wakeline_sim::SimDevice;
//! use wakeline_tensor::Tensor;
//! fn record(tensor: &Tensor<u8, SimDevice>, stream: &Stream<SimDevice>) {
//!     let graph = tensor.to_host().graph_on(stream);
//! }
//! ```

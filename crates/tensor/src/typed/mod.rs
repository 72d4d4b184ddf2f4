//! Typed launchers: a kernel's signature, written once, checked by the compiler at each call.
//!
//! ```
//! use std::sync::Arc;
//! use wakeline_core::Nanos;
//! use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin};
//! use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
//! use wakeline_tensor::{IntoPartition, Tensor, kernel};
//!
//! kernel! {
//!     /// `z = a * x + y`, of `n` numbers.
//!     struct Saxpy(out z: [f32], a: f32, in x: [f32], in y: [f32], n: u32)
//!     where n as usize <= z.len(), n as usize <= x.len(), n as usize <= y.len();
//! }
//!
//! let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
//! let watcher = VirtualWatcher::new(&device);
//! let runtime = Runtime::new(device.clone(), &StreamPoolRoundRobin::default(), watcher.clone())?;
//! // On a simulated device a kernel is a closure over slices. On others:
//! // let saxpy = unsafe { Saxpy::bind(&device, module.function("saxpy")?) }?;
//! let saxpy = Saxpy::on_host(&device, Nanos::from_micros(20), |z, a, x, y, n| {
//!     for i in 0..n as usize {
//!         z[i] = a * x[i] + y[i];
//!     }
//! })?;
//!
//! // Arguments that are owned, shared, or still to be made: the launch is an operation as any, and gives back what went in.
//! let x = Arc::new(Tensor::ones(100).on(&runtime).sync()?);
//! let op = saxpy.call(Tensor::zeros(100), 2.0, Arc::clone(&x), Tensor::full(100, 0.5), 100);
//! let (z, a, _, y, n) = watcher.run(op.on(&runtime))??;
//! assert_eq!((a, n), (2.0, 100));
//!
//! // Some of them borrowed: a block for each tile of 32, written in place.
//! let mut z = z;
//! let tiles = (&mut z).partition([32])?;
//! watcher.run(saxpy.call(tiles, 1.5, &*x, &y, 100).on(&runtime))??;
//! assert_eq!(watcher.run(z.to_host().on(&runtime))??, [2.0; 100]);
//!
//! // What does not fit is refused when it is submitted.
//! let error = watcher.run(saxpy.call(z, 1.5, x, y, 101).on(&runtime))?.unwrap_err();
//! assert!(error.to_string().contains("asks for `n as usize <= z.len()`"));
//! # Ok::<(), wakeline_core::Error>(())
//! ```
//!
//! What is unsafe is to bind foreign code to a signature, once: it is the promise that the code keeps to it. Launches are safe from there on.

mod arg;
mod call;
mod config;
mod input;
mod named;
mod parameter;
mod scalar;
mod sealed;

pub use arg::{Arg, Args, Borrow, Borrowed, Kind, Nothing, Owned, Stays};
pub use call::{Borrowing, BorrowingFuture, Bound, Call, CallOf, Holds};
pub use config::{LaunchConfig, THREADS_DEFAULT};
pub use input::{Input, Inputs, Passing, Place, Reading, Tiles, Writing};
pub use named::{Extent, Named, Reads, Writes};
pub use parameter::{Broken, By, In, Out, Parameter, Parameters, Signature};
pub use scalar::Scalar;

#[doc(hidden)]
pub use wakeline_core::{Error, Nanos};
#[doc(hidden)]
pub use wakeline_ops::port::{HostKernels, Launch};

/// Declares a typed launcher: a type of this name, of which a value is a kernel that is bound to this signature.
///
/// A parameter is a tensor (`[T]`) that is read (`in`), written (`out`) or both (`inout`), or a number. The kernel takes, in this order, the address of the first
/// number of each tensor and the value of each number; no length, unless it is a parameter of its own. Up to 12.
///
/// Behind `where` are conditions, in Rust: over the numbers, and for tensors over `len()`, `is_empty()` and `shape()`, see
/// [`Extent`](crate::typed::Extent). A launch for which one does not hold is refused when it is submitted, as
/// [`InvalidArguments`](wakeline_core::ErrorCode::InvalidArguments). They are what lets the code trust lengths that it is handed.
///
/// The type has
///
/// - `unsafe fn bind(device, kernel) -> Result<Self, Error>`: binds a kernel of a device. Where the device can tell, it is looked at whether the kernel takes as many
///   arguments, as long as these: [`KernelMismatch`](wakeline_core::ErrorCode::KernelMismatch). What the caller promises is
///   [`Bound::new`](crate::typed::Bound::new)'s: the code keeps to the signature, on any number of blocks of up to [`THREADS_DEFAULT`] threads.
/// - `fn on_host(device, length, code) -> Result<Self, Error>`: a closure over slices in place of a kernel, on a device that is simulated. It is called once a launch, with the numbers
///   of each tensor and no others. A closure that panics faults the device: whoever awaits the launch is told which kernel's it was, and with what message.
/// - `fn call(&self, ..)`: a launch, lazily; takes for each parameter what [`Arg`](crate::typed::Arg) says. Where nothing is borrowed it is an operation,
///   [`Call`](crate::typed::Call), else a [`Borrowing`](crate::typed::Borrowing), which is awaited or run as one. Either gives a tuple of what went in.
/// - `unsafe fn with(&self, config) -> Self`: the same with other blocks, threads and ways to launch: [`LaunchConfig`]. The promise is that the code does with that too.
///
/// ```
/// use wakeline_tensor::kernel;
/// kernel! { pub struct Fill(out x: [u32], number: u32); }
/// kernel! {
///     /// Rows of `x` by those of `y`.
///     pub(crate) struct Scale(inout x: [f64], in y: [f64]) where x.shape().len() == 2, y.len() == x.shape()[0];
/// }
/// # type _Used<D> = (Fill<D>, Scale<D>);
/// ```
///
/// What does not fit a parameter does not compile. A tensor that others have, to be written:
///
/// ```compile_fail,E0277
/// # use std::sync::Arc;
/// # use wakeline_sim::SimDevice;
/// # use wakeline_tensor::{Tensor, kernel};
/// # kernel! { struct Fill(out x: [u32], number: u32); }
/// fn fill(fill: &Fill<SimDevice>, shared: Arc<Tensor<u32, SimDevice>>) {
///     let _ = fill.call(shared, 1);
/// }
/// ```
///
/// one of other numbers:
///
/// ```compile_fail,E0277
/// # use wakeline_sim::SimDevice;
/// # use wakeline_tensor::{Tensor, kernel};
/// # kernel! { struct Fill(out x: [u32], number: u32); }
/// fn fill(fill: &Fill<SimDevice>, tensor: Tensor<f32, SimDevice>) {
///     let _ = fill.call(tensor, 1);
/// }
/// ```
///
/// a number of another type:
///
/// ```compile_fail,E0277
/// # use wakeline_sim::SimDevice;
/// # use wakeline_tensor::{Tensor, kernel};
/// # kernel! { struct Fill(out x: [u32], number: u32); }
/// fn fill(fill: &Fill<SimDevice>, tensor: Tensor<u32, SimDevice>) {
///     let _ = fill.call(tensor, 1_u64);
/// }
/// ```
///
/// which a literal without a point is too, where the number is an `f32`:
///
/// ```compile_fail,E0277
/// # use wakeline_sim::SimDevice;
/// # use wakeline_tensor::{Tensor, kernel};
/// # kernel! { struct Scale(inout x: [f32], by: f32); }
/// fn scale(scale: &Scale<SimDevice>, tensor: Tensor<f32, SimDevice>) {
///     let _ = scale.call(tensor, 2);
/// }
/// ```
///
/// too few:
///
/// ```compile_fail,E0061
/// # use wakeline_sim::SimDevice;
/// # use wakeline_tensor::{Tensor, kernel};
/// # kernel! { struct Fill(out x: [u32], number: u32); }
/// fn fill(fill: &Fill<SimDevice>, tensor: Tensor<u32, SimDevice>) {
///     let _ = fill.call(tensor);
/// }
/// ```
///
/// one that is borrowed, to be read while it is written:
///
/// ```compile_fail,E0502
/// # use wakeline_sim::SimDevice;
/// # use wakeline_tensor::{Tensor, kernel};
/// # kernel! { struct Add(inout x: [u32], in y: [u32]); }
/// fn add(add: &Add<SimDevice>, mut tensor: Tensor<u32, SimDevice>) {
///     let _ = add.call(&mut tensor, &tensor);
/// }
/// ```
///
/// and one that goes away while its launch is awaited, or a binding without the promise:
///
/// ```compile_fail,E0505
/// # use wakeline_ops::Runtime;
/// # use wakeline_sim::SimDevice;
/// # use wakeline_tensor::{Tensor, kernel};
/// # kernel! { struct Fill(out x: [u32], number: u32); }
/// fn fill(fill: &Fill<SimDevice>, runtime: &Runtime<SimDevice>, mut tensor: Tensor<u32, SimDevice>) {
///     let future = fill.call(&mut tensor, 1).on(runtime);
///     drop(tensor);
///     drop(future);
/// }
/// ```
///
/// ```compile_fail,E0133
/// # use wakeline_sim::{SimDevice, SimKernel};
/// # use wakeline_tensor::{Tensor, kernel};
/// # kernel! { struct Fill(out x: [u32], number: u32); }
/// fn bind(device: &SimDevice, kernel: SimKernel) {
///     let _ = Fill::bind(device, kernel);
/// }
/// ```
///
/// Nor does a declaration that is none, and the compiler says how it is written: a tensor without brackets, or without a word for its use,
///
/// ```compile_fail
/// wakeline_tensor::kernel! { struct Fill(in x: f32); }
/// ```
///
/// ```compile_fail
/// wakeline_tensor::kernel! { struct Fill(x: [f32]); }
/// ```
///
/// one that does not end,
///
/// ```compile_fail
/// wakeline_tensor::kernel! { struct Fill(out x: [f32], n: u32) where n as usize <= x.len() }
/// ```
///
/// and too many parameters, or none:
///
/// ```compile_fail
/// wakeline_tensor::kernel! {
///     struct Many(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8, i: u8, j: u8, k: u8, l: u8, m: u8);
/// }
/// ```
///
/// ```compile_fail
/// wakeline_tensor::kernel! { struct Nothing(); }
/// ```
#[macro_export]
macro_rules! kernel {
    ($(#[$meta:meta])* $visible:vis struct $name:ident($($parameters:tt)*) $(where $($condition:expr),+ $(,)?)?;) => {
        $crate::kernel! {
            @parameters [$(#[$meta])* $visible struct $name] [$($($condition),+)?] [] $($parameters)*
        }
    };
    (
        @parameters $head:tt $conditions:tt
        [$a:tt $b:tt $c:tt $d:tt $e:tt $f:tt $g:tt $h:tt $i:tt $j:tt $k:tt $l:tt $m:tt] $($rest:tt)*
    ) => {
        ::core::compile_error!("a kernel has at most 12 parameters");
    };
    (@parameters $head:tt $conditions:tt [$($done:tt)*] in $parameter:ident: [$element:ty] $(, $($rest:tt)*)?) => {
        $crate::kernel! {
            @parameters $head $conditions [$($done)* {$parameter: $crate::typed::In<$element>}] $($($rest)*)?
        }
    };
    (@parameters $head:tt $conditions:tt [$($done:tt)*] out $parameter:ident: [$element:ty] $(, $($rest:tt)*)?) => {
        $crate::kernel! {
            @parameters $head $conditions [$($done)* {$parameter: $crate::typed::Out<$element>}] $($($rest)*)?
        }
    };
    (@parameters $head:tt $conditions:tt [$($done:tt)*] inout $parameter:ident: [$element:ty] $(, $($rest:tt)*)?) => {
        $crate::kernel! {
            @parameters $head $conditions [$($done)* {$parameter: $crate::typed::Out<$element>}] $($($rest)*)?
        }
    };
    (@parameters $head:tt $conditions:tt $done:tt $parameter:ident: [$($element:tt)*] $($rest:tt)*) => {
        ::core::compile_error!("a tensor is written `in x: [f32]`, `out x: [f32]` or `inout x: [f32]`");
    };
    (@parameters $head:tt $conditions:tt [$($done:tt)*] $parameter:ident: $number:ty $(, $($rest:tt)*)?) => {
        $crate::kernel! {
            @parameters $head $conditions [$($done)* {$parameter: $crate::typed::By<$number>}] $($($rest)*)?
        }
    };
    (
        @parameters
        [$(#[$meta:meta])* $visible:vis struct $name:ident]
        [$($condition:expr),*]
        [$({$parameter:ident: $kind:ty})+]
    ) => {
        $(#[$meta])*
        $visible struct $name<D: $crate::typed::Launch>($crate::typed::Bound<D, Self>);

        impl<D: $crate::typed::Launch> $name<D> {
            /// Binds a kernel of this device to this signature.
            ///
            /// # Errors
            ///
            /// `KernelMismatch`: it takes other arguments, where the device can tell; or the device's fault.
            ///
            /// # Safety
            ///
            /// The kernel is of the device. Launched with arguments for which the conditions of this signature hold, on any number of blocks of up to 256 threads, it
            /// touches no memory but theirs and its own, within their lengths, and writes only what is written by this signature.
            #[allow(dead_code)]
            $visible unsafe fn bind(
                device: &D,
                kernel: <D as $crate::typed::Launch>::Kernel,
            ) -> ::core::result::Result<Self, $crate::typed::Error> {
                // SAFETY: as the caller says.
                unsafe { $crate::typed::Bound::new(device, kernel, ::core::stringify!($name)) }.map(Self)
            }

            /// A closure in place of a kernel, on a device that is simulated: called once a launch, which takes so long, with the numbers of each tensor and no
            /// others. A closure that panics faults the device, with its message.
            ///
            /// # Errors
            ///
            /// The device's fault.
            #[allow(dead_code)]
            $visible fn on_host(
                device: &D,
                length: $crate::typed::Nanos,
                code: impl Fn($(<$kind as $crate::typed::Parameter>::Host<'_>),+) + Send + Sync + 'static,
            ) -> ::core::result::Result<Self, $crate::typed::Error>
            where
                D: $crate::typed::HostKernels,
            {
                $crate::typed::Bound::on_host(
                    device,
                    ::core::stringify!($name),
                    length,
                    move |($($parameter,)+)| code($($parameter),+),
                )
                .map(Self)
            }

            /// The same, launched so.
            ///
            /// # Safety
            ///
            /// What `bind` asks for holds of the kernel as this launches it; where it may overlap the kernel in front, it waits for that before it touches
            /// anything. Of a closure all of that holds.
            #[allow(dead_code)]
            #[must_use]
            $visible unsafe fn with(&self, config: $crate::LaunchConfig) -> Self {
                // SAFETY: as the caller says.
                Self(unsafe { self.0.with(config) })
            }

            /// A launch on these arguments, which gives them back.
            #[allow(dead_code, non_camel_case_types, clippy::too_many_arguments, clippy::type_complexity)]
            $visible fn call<$($parameter: $crate::typed::Arg<$kind, D>),+>(
                &self,
                $($parameter: $parameter),+
            ) -> $crate::typed::CallOf<($($kind,)+), D, ($($parameter,)+)> {
                self.0.call(($($parameter,)+))
            }
        }

        impl<D: $crate::typed::Launch> $crate::typed::Signature for $name<D> {
            type Parameters = ($($kind,)+);

            #[allow(unused_variables, dead_code)]
            fn holds(
                ($($parameter,)+): <($($kind,)+) as $crate::typed::Parameters>::Seen<'_>,
            ) -> ::core::option::Option<$crate::typed::Broken> {
                const NAMES: &[&::core::primitive::str] = &[$(::core::stringify!($parameter)),+];
                $(if !($condition) {
                    let condition = ::core::stringify!($condition);
                    return ::core::option::Option::Some($crate::typed::Broken { condition, names: NAMES });
                })*
                ::core::option::Option::None
            }
        }

        impl<D: $crate::typed::Launch> ::core::clone::Clone for $name<D> {
            fn clone(&self) -> Self {
                Self(self.0.clone())
            }
        }

        impl<D: $crate::typed::Launch> ::core::fmt::Debug for $name<D> {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Debug::fmt(&self.0, f)
            }
        }
    };
    (@parameters $head:tt $conditions:tt []) => {
        ::core::compile_error!("a kernel has at least one parameter");
    };
    (@parameters $head:tt $conditions:tt $done:tt $($rest:tt)*) => {
        ::core::compile_error!(
            "a tensor is written `in x: [f32]`, `out x: [f32]` or `inout x: [f32]`, a number `x: f32`, with a comma between two"
        );
    };
    ($(#[$meta:meta])* $visible:vis struct $name:ident($($parameters:tt)*) $(where $($condition:expr),+ $(,)?)?) => {
        ::core::compile_error!("a declaration ends with `;`");
    };
    ($($other:tt)*) => {
        ::core::compile_error!("a kernel is declared as `struct Name(out z: [f32], in x: [f32], n: u32) where n as usize <= z.len();`");
    };
}

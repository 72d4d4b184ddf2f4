//! Operations: what a device is to do, not done yet.

// `async_on` is declared unsafe; nothing unsafe is done here.
#![allow(unsafe_code)]

use wakeline_core::Error;

use crate::future::DeviceFuture;
use crate::map::{Map, MapHost};
use crate::policy::SchedulingPolicy;
use crate::port::Device;
use crate::runtime::Runtime;
use crate::stream::Stream;
use crate::submission::Submission;
use crate::then::Then;

/// Something that a device is to do, lazily: nothing is submitted until it is awaited or run.
///
/// | | runs where | waits |
/// |---|---|---|
/// | `op.on(&runtime).await` | in the next stream of the runtime | as a future |
/// | `op.await` | the same, of the runtime bound here by [`Runtime::scope`] | as a future |
/// | `op.sync()`, `op.on(&runtime).sync()` | the same | on the spot |
/// | [`sync_on`](Self::sync_on) | in that stream | on the spot |
/// | [`async_on`](Self::async_on) | in that stream | not at all |
///
/// One of your own implements [`execute`](Self::execute) and [`finish`](Self::finish), and names itself to
/// [`device_op!`](crate::device_op) so that it can be awaited:
///
/// ```
/// use wakeline_core::{Error, Nanos};
/// use wakeline_ops::{DeviceOp, Runtime, SingleStream, Submission, device_op};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
///
/// /// Keeps a simulated stream busy.
/// struct Busy(Nanos);
/// impl DeviceOp for Busy {
///     type Device = SimDevice;
///     type Pending = Nanos;
///     type Output = Nanos;
///     fn execute(self, submission: &mut Submission<SimDevice>) -> Result<Nanos, Error> {
///         submission.stream().raw().launch(self.0)?;
///         Ok(self.0)
///     }
///     fn finish(length: Nanos) -> Result<Nanos, Error> {
///         Ok(length)
///     }
/// }
/// device_op!([] Busy);
///
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let watcher = VirtualWatcher::new(&device);
/// let runtime = Runtime::new(device, &SingleStream, watcher.clone())?;
/// let length = watcher.run(runtime.scope(async { Busy(Nanos::from_millis(3)).await }))??;
/// assert_eq!(length, Nanos::from_millis(3));
/// # Ok::<(), Error>(())
/// ```
pub trait DeviceOp:
    IntoFuture<Output = Result<<Self as DeviceOp>::Output, Error>> + Send + Sized + 'static
{
    /// The device that it is for.
    type Device: Device;
    /// What submission gives, while the device has done nothing yet: names of its things, which may be used further in the same stream.
    type Pending: Send + 'static;
    /// What completion gives. The same as [`Pending`](Self::Pending) where nothing is left to do on the host.
    type Output;

    /// Enqueues the work and returns; called once, by whoever runs the operation.
    ///
    /// MUST NOT wait for the device, and MUST [retain](Submission::retain) all that the work touches. What was enqueued before it
    /// fails or panics still runs.
    ///
    /// # Errors
    ///
    /// Whatever made a call of the device fail.
    fn execute(self, submission: &mut Submission<Self::Device>) -> Result<Self::Pending, Error>;

    /// Makes the result, on the host, when the device is done. Never called where the device is not. MUST NOT wait for the device.
    ///
    /// # Errors
    ///
    /// Where the result cannot be had.
    fn finish(pending: Self::Pending) -> Result<<Self as DeviceOp>::Output, Error>;

    /// Goes on with an operation made of this one's output, in the same stream. The closure runs at submission, over names of what the
    /// device is still to make; it cannot follow what is read on the host.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream, Tensor};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let watcher = VirtualWatcher::new(&device);
    /// let runtime = Runtime::new(device, &SingleStream, watcher.clone())?;
    /// let op = Tensor::full(3, 5_u8).then(|tensor| tensor.to_host());
    /// assert_eq!(watcher.run(op.on(&runtime))??, [5, 5, 5]);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    fn then<N, F>(self, next: F) -> Then<Self, F>
    where
        Self: DeviceOp<Output = <Self as DeviceOp>::Pending>,
        N: DeviceOp<Device = Self::Device>,
        F: FnOnce(Self::Pending) -> N + Send + 'static,
    {
        Then::new(self, next)
    }

    /// Changes the output at submission, as the closure of [`then`](Self::then) does.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream, Tensor};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
    /// let (tensor, len) = Tensor::full(3, 5_u8).map(|tensor| (tensor, 3)).on(&runtime).sync()?;
    /// assert_eq!(tensor.len(), len);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    fn map<R, F>(self, change: F) -> Map<Self, F>
    where
        Self: DeviceOp<Output = <Self as DeviceOp>::Pending>,
        R: Send + 'static,
        F: FnOnce(Self::Pending) -> R + Send + 'static,
    {
        Map::new(self, change)
    }

    /// Changes the result on the host, when the device is done. The closure runs where the operation is awaited.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream, Tensor};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
    /// let sum = Tensor::from_host(vec![1_u32, 2, 3]).then(|tensor| tensor.to_host()).map_host(|all| all.iter().sum());
    /// let sum: u32 = sum.on(&runtime).sync()?;
    /// assert_eq!(sum, 6);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// What is read on the host cannot be handed on in the stream:
    ///
    /// ```compile_fail,E0271
    /// use wakeline_ops::{DeviceOp, value};
    /// use wakeline_sim::SimDevice;
    /// let op = value::<SimDevice, _>(1).map_host(|n| n + 1).then(|n| value(n));
    /// ```
    fn map_host<R, F>(self, change: F) -> MapHost<Self, F>
    where
        R: Send + 'static,
        F: FnOnce(<Self as DeviceOp>::Output) -> R + Send + 'static,
    {
        MapHost::new(self, change)
    }

    /// Binds it to a runtime: await what this gives, or call its [`sync`](DeviceFuture::sync). Submits nothing.
    fn on(self, runtime: &Runtime<Self::Device>) -> DeviceFuture<Self> {
        DeviceFuture::on(self, runtime)
    }

    /// Binds it to the runtime bound here, and has `policy` choose among its streams; see [`DeviceFuture::schedule`].
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream, StreamPoolRoundRobin, Tensor};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let watcher = VirtualWatcher::new(&device);
    /// let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), watcher.clone())?;
    /// // All in the first of its streams.
    /// let ones = watcher.run(runtime.scope(async {
    ///     let ones: Tensor<u8, SimDevice> = Tensor::full(4, 1).schedule(&SingleStream).await?;
    ///     ones.to_host().schedule(&SingleStream).await
    /// }))??;
    /// assert_eq!(ones, [1; 4]);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    fn schedule(self, policy: &impl SchedulingPolicy) -> DeviceFuture<Self> {
        DeviceFuture::ambient(self).schedule(policy)
    }

    /// Runs it in the next stream of the runtime bound here, and waits on the spot; see [`Runtime::enter`].
    ///
    /// Blocks the thread for as long as the device takes, without a bound: await it in an async task.
    ///
    /// # Errors
    ///
    /// [`NoRuntime`](wakeline_core::ErrorCode::NoRuntime) where none is bound; else as [`DeviceFuture`].
    fn sync(self) -> Result<<Self as DeviceOp>::Output, Error> {
        DeviceFuture::ambient(self).sync()
    }

    /// Runs it in this stream and waits on the spot. Blocks as [`sync`](Self::sync).
    ///
    /// # Errors
    ///
    /// As [`DeviceFuture`].
    fn sync_on(self, stream: &Stream<Self::Device>) -> Result<<Self as DeviceOp>::Output, Error> {
        crate::future::sync_on(self, stream)
    }

    /// Runs it in this stream and waits for nothing. What it keeps still lives until the device is done.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream, Tensor, port::Priority};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
    /// let stream = runtime.stream(Priority::Normal)?;
    /// // SAFETY: the tensor is used in the same stream only, by operations that order themselves.
    /// let tensor = unsafe { Tensor::full(2, 9_u8).async_on(&stream) }?;
    /// assert_eq!(tensor.to_host().sync_on(&stream)?, [9, 9]);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Whatever made the submission fail.
    ///
    /// # Safety
    ///
    /// What it gives is not done yet: until it is, neither the host nor work of another stream may touch what it names, unless
    /// something orders that behind it.
    unsafe fn async_on(self, stream: &Stream<Self::Device>) -> Result<Self::Pending, Error> {
        let mut submission = Submission::new(stream.clone(), stream.lane().admit_anyway());
        let pending = submission.run(self)?;
        submission.fly();
        Ok(pending)
    }
}

/// Lets an operation be awaited: implements [`IntoFuture`] for a type that implements [`DeviceOp`].
///
/// Takes the type's generics in brackets, as after `impl`, then the type, then its bounds if it has any.
///
/// ```
/// # use wakeline_core::Error;
/// use wakeline_ops::port::Device;
/// use wakeline_ops::{DeviceOp, Submission, device_op};
/// # struct Nothing<D>(core::marker::PhantomData<fn() -> D>);
/// # impl<D: Device> DeviceOp for Nothing<D> {
/// #     type Device = D;
/// #     type Pending = ();
/// #     type Output = ();
/// #     fn execute(self, _: &mut Submission<D>) -> Result<(), Error> { Ok(()) }
/// #     fn finish(_: ()) -> Result<(), Error> { Ok(()) }
/// # }
/// device_op!([D] Nothing<D> where D: Device);
/// ```
#[macro_export]
macro_rules! device_op {
    ([$($generics:tt)*] $op:ty $(where $($bounds:tt)*)?) => {
        impl<$($generics)*> ::core::future::IntoFuture for $op
        $(where $($bounds)*)?
        {
            type Output = ::core::result::Result<<Self as $crate::DeviceOp>::Output, $crate::Error>;
            type IntoFuture = $crate::DeviceFuture<Self>;

            fn into_future(self) -> $crate::DeviceFuture<Self> {
                $crate::DeviceFuture::ambient(self)
            }
        }
    };
}

//! Operations: what a device is to do, not done yet.

// `async_on` is declared unsafe; nothing unsafe is done here.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::task::{Context, Poll};
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode};

use crate::boxed::{Boxed, BoxedHost};
use crate::future::DeviceFuture;
use crate::graph::Graph;
use crate::lock::Submits;
use crate::map::{FirstOf, InArc, LastOf, Map, MapHost};
use crate::policy::SchedulingPolicy;
use crate::port::{Device, Graphs};
use crate::runtime::Runtime;
use crate::shared::Shared;
use crate::small::{AndThenWithContext, Inspect, ThenUnchecked, UnwrapArc};
use crate::stream::Stream;
use crate::submission::Submission;
use crate::then::Then;
use crate::unzip::{Part, Sequence, Tuple};
use crate::zip::InOneStream;

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

    /// Whether it can be submitted now: asked by a poll right before [`execute`](Self::execute), which comes whether or not it was asked.
    ///
    /// Where it cannot, MUST have the task woken when that may have changed, and MUST NOT have it wait for anything but other submissions. What
    /// wraps an operation asks that one. Provided: it can.
    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        let _ = context;
        Poll::Ready(())
    }

    /// How many entries of its stream's queue it takes at least, as far as that is known before it is submitted: launches, copies, events that are recorded, waits for other streams.
    /// A poll submits it once there is room for that, and its task waits until then; what it turns out to need besides is seen to as it goes, see
    /// [`ENTRIES_MAX`](crate::ENTRIES_MAX). What wraps an operation adds up. Provided: one.
    fn entries(&self) -> u32 {
        1
    }

    /// What tells apart operations of this type that take different times, where nobody says so by [`keyed`](DeviceFuture::keyed). Provided: nothing does.
    fn kind_key(&self) -> u64 {
        0
    }

    /// Goes on with an operation made of this one's output, in the same stream. The closure runs at submission, over names of what the
    /// device is still to make; it cannot follow what is read on the host, and executes no operation by itself: that is
    /// [`NestedExecution`](wakeline_core::ErrorCode::NestedExecution), here and in every closure that runs at submission. Costs no allocation, as all
    /// combinators that do not say otherwise.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
    /// use wakeline_tensor::Tensor;
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
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
    /// use wakeline_tensor::Tensor;
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
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
    /// use wakeline_tensor::Tensor;
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

    /// Looks at the output at submission, as the closure of [`then`](Self::then) does.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin};
    /// use wakeline_tensor::Tensor;
    /// # use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// # let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// # let runtime = Runtime::new(device.clone(), &StreamPoolRoundRobin::default(), VirtualWatcher::new(&device))?;
    /// let op = Tensor::full(3, 5_u8).inspect(|tensor| println!("{} numbers to come", tensor.len()));
    /// assert_eq!(op.then(|tensor| tensor.to_host()).on(&runtime).sync()?, [5, 5, 5]);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    fn inspect<F>(self, look: F) -> Inspect<Self, F>
    where
        F: FnOnce(&Self::Pending) + Send + 'static,
    {
        Inspect(self, look)
    }

    /// Puts the output in an [`Arc`], so that several operations can have it. Costs that allocation.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin, zip};
    /// use wakeline_tensor::Tensor;
    /// # use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// # let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// # let runtime = Runtime::new(device.clone(), &StreamPoolRoundRobin::default(), VirtualWatcher::new(&device))?;
    /// let twice = Tensor::full(2, 5_u8).arc().then(|tensor| {
    ///     let again = Arc::clone(&tensor);
    ///     zip!(tensor.to_host(), again.to_host())
    /// });
    /// assert_eq!(twice.on(&runtime).sync()?, (vec![5, 5], vec![5, 5]));
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    fn arc(self) -> InArc<Self>
    where
        Self: DeviceOp<Output = <Self as DeviceOp>::Pending, Pending: Sync>,
    {
        self.map(Arc::new)
    }

    /// Takes the output out of its [`Arc`] at submission: where others have it too, [`ArcShared`](wakeline_core::ErrorCode::ArcShared).
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin};
    /// use wakeline_tensor::Tensor;
    /// # use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// # let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// # let runtime = Runtime::new(device.clone(), &StreamPoolRoundRobin::default(), VirtualWatcher::new(&device))?;
    /// let tensor: Tensor<u8, _> = Tensor::full(2, 5).arc().unwrap_arc().on(&runtime).sync()?;
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    fn unwrap_arc<T>(self) -> UnwrapArc<Self, T>
    where
        Self: DeviceOp<Pending = Arc<T>>,
        T: Send + Sync + 'static,
    {
        UnwrapArc(self, PhantomData)
    }

    /// Forgets its type, so that operations of several types can be in one place. What it gives can be used further. Costs an allocation.
    ///
    /// ```
    /// use wakeline_ops::{Boxed, DeviceOp, Runtime, StreamPoolRoundRobin, all, value};
    /// use wakeline_tensor::Tensor;
    /// # use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// # let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// # let runtime = Runtime::new(device.clone(), &StreamPoolRoundRobin::default(), VirtualWatcher::new(&device))?;
    /// let ops: Vec<Boxed<SimDevice, Tensor<u8, SimDevice>>> =
    ///     vec![Tensor::full(1, 1).boxed(), Tensor::from_host(vec![2]).boxed()];
    /// let reads = all(ops.into_iter().map(|op| op.then(|tensor| tensor.to_host())));
    /// assert_eq!(reads.on(&runtime).sync()?, [[1], [2]]);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// A chain that is made of boxes link by link, each behind a [`then`](Self::then), is as many calls deep when it is submitted: 50 to 150 bytes of stack a link as released, about 330 in a debug
    /// build, so that tens of thousands of links overflow a thread's stack of 2 MiB, which ends the process. A loop that awaits, or [`all`](crate::all) for what needs no order, has no such depth.
    fn boxed(self) -> Boxed<Self::Device, Self::Pending>
    where
        Self: DeviceOp<Output = <Self as DeviceOp>::Pending>,
    {
        Boxed::new(self)
    }

    /// The same of one whose output is made on the host. Costs an allocation, and one more where it is submitted.
    ///
    /// ```
    /// use wakeline_ops::{BoxedHost, DeviceOp, Runtime, StreamPoolRoundRobin, value};
    /// use wakeline_tensor::Tensor;
    /// # use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// # let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// # let runtime = Runtime::new(device.clone(), &StreamPoolRoundRobin::default(), VirtualWatcher::new(&device))?;
    /// let read: BoxedHost<SimDevice, Vec<u8>> = Tensor::full(1, 1).then(|tensor| tensor.to_host()).boxed_host();
    /// assert_eq!(read.on(&runtime).sync()?, [1]);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    fn boxed_host(self) -> BoxedHost<Self::Device, <Self as DeviceOp>::Output>
    where
        <Self as DeviceOp>::Output: 'static,
    {
        BoxedHost::new(self)
    }

    /// The first of what it gives: of a tuple, or of a vector that may be empty. The others are dropped at submission, and live until the device is done with them.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin, all, zip};
    /// use wakeline_tensor::Tensor;
    /// # use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// # let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// # let runtime = Runtime::new(device.clone(), &StreamPoolRoundRobin::default(), VirtualWatcher::new(&device))?;
    /// assert_eq!(zip!(1_u8, "x").first().on(&runtime).sync()?, 1);
    /// assert_eq!(all([1_u8, 2, 3]).last().on(&runtime).sync()?, Some(3));
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    fn first(self) -> FirstOf<Self>
    where
        Self: DeviceOp<Output = <Self as DeviceOp>::Pending, Pending: Sequence>,
    {
        self.map(Sequence::first)
    }

    /// The last of it, as [`first`](Self::first).
    fn last(self) -> LastOf<Self>
    where
        Self: DeviceOp<Output = <Self as DeviceOp>::Pending, Pending: Sequence>,
    {
        self.map(Sequence::last)
    }

    /// Makes an operation for each part of the tuple that it gives: also by [`unzip!`](crate::unzip).
    ///
    /// The whole is submitted once, with the first of them that is run; the others come behind it on the device, whichever streams they run in, and have its
    /// failure. What nobody runs has nothing happen; a part that nobody takes is dropped with the last of them. Costs an allocation.
    fn unzip(self) -> <Self::Pending as Tuple>::Parts<Self>
    where
        Self: DeviceOp<Output = <Self as DeviceOp>::Pending, Pending: Tuple>,
    {
        <Self::Pending as Tuple>::parts(&Part::new(self))
    }

    /// Makes an operation that can be cloned and is submitted once, with the first of its clones that is run. All of them give its output, in one [`Arc`].
    ///
    /// Clones that run in other streams come behind its work on the device. A failure to submit it is that of all. While one thread submits it, polls of others pend; who
    /// comes to it in the midst of a submission, from a closure say, waits for that thread's calls, a tenth of a second at most, and errs then
    /// ([`SharedBusy`](wakeline_core::ErrorCode::SharedBusy)). Within its own execution it is
    /// [`SharedReentered`](wakeline_core::ErrorCode::SharedReentered). Costs two allocations, and an event.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin, zip};
    /// use wakeline_tensor::Tensor;
    /// # use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// # let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// # let runtime = Runtime::new(device.clone(), &StreamPoolRoundRobin::default(), VirtualWatcher::new(&device))?;
    /// let weights = Tensor::from_host(vec![1_u8, 2, 3]).shared();
    /// let reads = zip!(
    ///     weights.clone().then(|weights| weights.to_host()),
    ///     weights.clone().map(|weights| weights.len()),
    /// );
    /// assert_eq!(reads.on(&runtime).sync()?, (vec![1, 2, 3], 3));
    /// assert_eq!(weights.then(|weights| weights.to_host()).on(&runtime).sync()?, [1, 2, 3]); // not sent again
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    fn shared(self) -> Shared<Self>
    where
        Self: DeviceOp<Output = <Self as DeviceOp>::Pending, Pending: Sync>,
    {
        Shared::new(self)
    }

    /// Keeps all of it in the stream that it is run in: what [`zip!`](crate::zip) and [`all`](crate::all) would give other streams too.
    ///
    /// For branches so short that an event and a wait for each cost more than they gain.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin, zip};
    /// use wakeline_tensor::Tensor;
    /// # use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// # let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// # let runtime = Runtime::new(device.clone(), &StreamPoolRoundRobin::default(), VirtualWatcher::new(&device))?;
    /// let both = zip!(Tensor::full(1, 1_u8), Tensor::full(1, 2_u8)).in_one_stream();
    /// both.on(&runtime).sync()?;
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    fn in_one_stream(self) -> InOneStream<Self> {
        InOneStream::new(self)
    }

    /// As [`then`](Self::then), with a closure that also has the submission: its stream, its device, what it keeps. See
    /// [`with_context`](crate::with_context).
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin};
    /// use wakeline_tensor::Tensor;
    /// # use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// # let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// # let runtime = Runtime::new(device.clone(), &StreamPoolRoundRobin::default(), VirtualWatcher::new(&device))?;
    /// let op = Tensor::full(2, 5_u8).and_then_with_context(|submission, tensor| {
    ///     submission.retain("until the device is done");
    ///     Ok(tensor.to_host())
    /// });
    /// assert_eq!(op.on(&runtime).sync()?, [5, 5]);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    fn and_then_with_context<N, F>(self, next: F) -> AndThenWithContext<Self, F>
    where
        Self: DeviceOp<Output = <Self as DeviceOp>::Pending>,
        N: DeviceOp<Device = Self::Device>,
        F: FnOnce(&mut Submission<Self::Device>, Self::Pending) -> Result<N, Error> + Send + 'static,
    {
        AndThenWithContext(self, next)
    }

    /// As [`then`](Self::then), and operations may be executed in the closure, which is
    /// [`NestedExecution`](wakeline_core::ErrorCode::NestedExecution) there.
    ///
    /// ```
    /// use wakeline_core::ErrorCode;
    /// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin, value};
    /// # use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// # let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// # let runtime = Runtime::new(device.clone(), &StreamPoolRoundRobin::default(), VirtualWatcher::new(&device))?;
    /// let other = runtime.clone();
    /// let nested = value(20).then(move |n| value(value(n + 1).on(&other).sync().map_err(|error| error.code())));
    /// assert_eq!(nested.on(&runtime).sync()?, Err(ErrorCode::NestedExecution));
    /// let other = runtime.clone();
    /// // SAFETY: the one within uses nothing of the one around it.
    /// let nested = unsafe { value(20).then_unchecked(move |n| value(value(n + 1).on(&other).sync().ok())) };
    /// assert_eq!(nested.on(&runtime).sync()?, Some(21));
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// What the closure executes does not use what this operation gives, or what it was given by others that are being submitted, but where something orders that
    /// behind what they have enqueued so far.
    unsafe fn then_unchecked<N, F>(self, next: F) -> ThenUnchecked<Self, F>
    where
        Self: DeviceOp<Output = <Self as DeviceOp>::Pending>,
        N: DeviceOp<Device = Self::Device>,
        F: FnOnce(Self::Pending) -> N + Send + 'static,
    {
        ThenUnchecked(self, next)
    }

    /// Records it in a graph, to be launched again and again, by default in this stream; see [`Graph`]. Nothing of it runs now.
    ///
    /// # Errors
    ///
    /// As [`Graph::scope`].
    fn graph_on(self, stream: &Stream<Self::Device>) -> Result<Graph<Self::Device, Self::Pending>, Error>
    where
        Self: DeviceOp<Device: Graphs, Output = <Self as DeviceOp>::Pending>,
    {
        Graph::capture(stream, self)
    }

    /// The same, with the next stream of the runtime bound here; see [`Runtime::enter`].
    ///
    /// # Errors
    ///
    /// As [`graph_on`](Self::graph_on); [`NoRuntime`](wakeline_core::ErrorCode::NoRuntime) where none is bound.
    fn graph(self) -> Result<Graph<Self::Device, Self::Pending>, Error>
    where
        Self: DeviceOp<Device: Graphs, Output = <Self as DeviceOp>::Pending>,
    {
        let runtime = crate::ambient::current().ok_or_else(|| Error::new(ErrorCode::NoRuntime, []))?;
        self.graph_on(&Runtime::next_stream(&runtime, None)?)
    }

    /// Binds it to a runtime: await what this gives, or call its [`sync`](DeviceFuture::sync). Submits nothing.
    fn on(self, runtime: &Runtime<Self::Device>) -> DeviceFuture<Self> {
        DeviceFuture::on(self, runtime)
    }

    /// Binds it to the runtime bound here, and has `policy` choose among its streams; see [`DeviceFuture::schedule`].
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream, StreamPoolRoundRobin};
    /// use wakeline_tensor::Tensor;
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
        crate::future::sync_on(self, stream, None)
    }

    /// Runs it in this stream and waits for nothing. What it keeps still lives until the device is done.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream, port::Priority};
    /// use wakeline_tensor::Tensor;
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
        let submits = Submits::lock()?;
        let mut submission = Submission::new(stream.clone(), stream.lane().admit_anyway(1));
        let pending = submission.run_anyway(self)?;
        drop(submits);
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

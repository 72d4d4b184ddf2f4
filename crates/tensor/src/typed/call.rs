//! A kernel that is bound to a signature, and its launch.

// What binds a kernel is declared unsafe, and what launches it rests on that.
#![allow(unsafe_code)]

use core::fmt::{self, Write as _};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::task::{Context, Poll};

use smallvec::SmallVec;
use wakeline_core::{Error, ErrorCode, Nanos};
use wakeline_ops::port::{self, Arg as PortArg, HostKernels, Promise};
use wakeline_ops::{DeviceFuture, DeviceOp, Runtime, Stream, Submission, Touch, device_op};

use super::arg::{Args, Borrowed, Kind, Owned};
use super::config::LaunchConfig;
use super::input::{Inputs, Place};
use super::parameter::{Broken, Parameters, Signature};
use crate::lend::{Lent, LentFuture};

/// How many arguments there are at most, but for the lengths that a kernel of the host is handed.
const ARGS_MAX: usize = 12;

/// A kernel, bound to a signature. Clones are the same kernel.
pub struct Bound<D: port::Launch, S> {
    kernel: D::Kernel,
    name: &'static str,
    config: LaunchConfig,
    /// Whether it is handed how long each argument is, behind all of them.
    takes_lengths: bool,
    signature: PhantomData<fn() -> S>,
}

impl<D: port::Launch, S: Signature> Bound<D, S> {
    /// Binds a kernel to a signature.
    ///
    /// # Errors
    ///
    /// As [`port::Launch::takes`].
    ///
    /// # Safety
    ///
    /// The kernel is of the device. Launched with arguments of the types of the signature for which its conditions hold, as [`LaunchConfig::new`] says, which is on any number
    /// of blocks of up to [`THREADS_DEFAULT`](crate::THREADS_DEFAULT) threads, it touches no memory but theirs and its own, within their lengths, and writes only what the
    /// signature says is written.
    pub unsafe fn new(device: &D, kernel: D::Kernel, name: &'static str) -> Result<Self, Error> {
        device.takes(&kernel, S::Parameters::BYTES)?;
        Ok(Self { kernel, name, config: LaunchConfig::new(), takes_lengths: false, signature: PhantomData })
    }

    /// A kernel of the host, which does what `code` says, bound to a signature. It is safe code, which works on copies of what it is handed: of each tensor its
    /// numbers and no others, of which those are handed back that the signature says are written. So it touches nothing else.
    ///
    /// A closure that panics faults the device; the fault names the kernel and says with what.
    ///
    /// # Errors
    ///
    /// As [`port::Launch::takes`].
    pub fn on_host(
        device: &D,
        name: &'static str,
        length: Nanos,
        code: impl Fn(<S::Parameters as Parameters>::Host<'_>) + Send + Sync + 'static,
    ) -> Result<Self, Error>
    where
        D: HostKernels,
    {
        // Launches of it hand over the lengths behind the arguments.
        let lengths = S::Parameters::BYTES.iter().map(|_| size_of::<u64>());
        let takes: Vec<usize> = S::Parameters::BYTES.iter().copied().chain(lengths).collect();
        let kernel = D::host_kernel(name, length, &takes, move |args| {
            let mut held = S::Parameters::load(args);
            code(S::Parameters::lend(&mut held));
            S::Parameters::store(held, args);
        });
        device.takes(&kernel, &takes)?;
        Ok(Self { kernel, name, config: LaunchConfig::new(), takes_lengths: true, signature: PhantomData })
    }

    /// The same, launched so.
    ///
    /// # Safety
    ///
    /// What [`new`](Self::new) asks for holds of the kernel as this launches it: it does with that many blocks, threads and bytes of shared memory, and where
    /// it [overlaps](LaunchConfig::overlapping) the kernel in front it waits for that before it touches anything. Of a kernel of the host all of that holds.
    #[must_use]
    pub unsafe fn with(&self, config: LaunchConfig) -> Self {
        Self { config, ..self.clone() }
    }

    /// A launch on these arguments.
    #[inline]
    pub fn call<A: Args<S::Parameters, D>>(&self, args: A) -> CallOf<S::Parameters, D, A> {
        let (inputs, stays) = args.part();
        let Self { kernel, name, config, takes_lengths, .. } = self;
        let (kernel, takes_lengths) = (kernel.clone(), *takes_lengths);
        let call = Call { kernel, name, config: *config, takes_lengths, inputs, holds: S::holds };
        <A::Kind as Kind>::make(call, stays)
    }
}

impl<D: port::Launch, S> Clone for Bound<D, S> {
    fn clone(&self) -> Self {
        let Self { name, config, takes_lengths, signature, .. } = *self;
        Self { kernel: self.kernel.clone(), name, config, takes_lengths, signature }
    }
}

impl<D: port::Launch, S> fmt::Debug for Bound<D, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound")
            .field("name", &self.name)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Which condition of a signature does not hold, if any.
pub type Holds<P> = for<'a> fn(<P as Parameters>::Seen<'a>) -> Option<Broken>;

/// What a launch of these arguments is: a [`Call`], or, where some of them are borrowed, a [`Borrowing`].
pub type CallOf<P, D, A> = <<A as Args<P, D>>::Kind as Kind>::Launch<P, D, A>;

/// An operation that launches a kernel, and gives back what it was handed.
///
/// What its arguments are to be given by is submitted first, in the same stream and in their order; then it is looked at whether the conditions hold; then
/// the kernel is launched. Costs as much as [`launch`](crate::launch()), which checks nothing: no allocation where up to three different tensors are
/// among its arguments, and two for more of these.
#[must_use = "an operation does nothing until it is awaited or run"]
pub struct Call<D: port::Launch, I: Inputs<D>> {
    kernel: D::Kernel,
    name: &'static str,
    config: LaunchConfig,
    takes_lengths: bool,
    inputs: I,
    holds: Holds<I::Parameters>,
}

impl<D: port::Launch, I: Inputs<D>> DeviceOp for Call<D, I> {
    type Device = D;
    type Pending = I::Kept;
    type Output = I::Kept;

    /// # Errors
    ///
    /// Besides what the device says, and what an argument is given by:
    /// - [`InvalidArguments`](ErrorCode::InvalidArguments): a condition does not hold.
    /// - [`TensorShared`](ErrorCode::TensorShared): what is written is named by others.
    /// - [`InvalidShape`](ErrorCode::InvalidShape): a view whose numbers do not lie row by row.
    /// - [`LaunchUnsupported`](ErrorCode::LaunchUnsupported): tiles along more than three dimensions.
    #[inline]
    fn execute(self, submission: &mut Submission<D>) -> Result<I::Kept, Error> {
        let Self { kernel, name, config, takes_lengths, inputs, holds } = self;
        let pending = inputs.execute(submission)?;
        I::alone(&pending)?;
        if let Some(broken) = holds(I::seen(&pending)) {
            return Err(refused::<I::Parameters>(name, broken, &I::seen(&pending)));
        }
        let shape = config.shape(I::tiles(&pending).as_ref()).map_err(|rank| too_many(name, rank))?;
        if let Some(shape) = shape {
            // Never dropped here: where a panic comes out of the launch, nobody knows whether it was enqueued.
            let kernel = ManuallyDrop::new(kernel);
            let launched = launch::<D, I>(submission, &kernel, shape, &pending, takes_lengths);
            submission.retain(ManuallyDrop::into_inner(kernel));
            launched?;
        }
        Ok(I::keep(pending))
    }

    #[inline]
    fn finish(kept: I::Kept) -> Result<I::Kept, Error> {
        Ok(kept)
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.inputs.poll_ready(context)
    }

    /// Those of what gives its arguments, the launch, and the event behind it where there are tensors.
    fn entries(&self) -> u32 {
        let inputs = self.inputs.entries();
        // There is one event behind all of it.
        let launch = if I::Parameters::HAS_TENSORS && inputs == 0 { 2 } else { 1 };
        inputs.saturating_add(launch)
    }
}

device_op!([D, I] Call<D, I> where D: port::Launch, I: Inputs<D>);

/// Launches a kernel of which the caller sees to it that it lives until that is done.
#[inline]
fn launch<D: port::Launch, I: Inputs<D>>(
    submission: &mut Submission<D>,
    kernel: &D::Kernel,
    shape: port::Shape,
    pending: &I::Pending,
    takes_lengths: bool,
) -> Result<(), Error> {
    let mut touches: SmallVec<[Touch<'_, D>; ARGS_MAX]> = SmallVec::new();
    let mut args: SmallVec<[PortArg<'_, D::Buffer>; ARGS_MAX]> = SmallVec::new();
    I::places(pending, |place| {
        args.push(match place {
            Place::Word(word) => PortArg::Word(word),
            Place::Read(span) => {
                touches.push(span.storage.read());
                PortArg::Read(span.at())
            }
            Place::Write(span) => {
                touches.push(span.storage.write());
                PortArg::Write(span.at())
            }
        });
    });
    if takes_lengths {
        I::places(pending, |place| {
            args.push(PortArg::Word(match place {
                Place::Word(_) => 0,
                Place::Read(span) | Place::Write(span) => span.len_bytes as u64,
            }));
        });
    }
    submission.touch(&touches, |device, stream| {
        // SAFETY: the submission keeps kernel and buffers until this is done, and `touch` orders what else uses the buffers. The arguments are of the types
        // of the signature, whose conditions hold, so that the kernel does with them what it says: whoever bound it has promised that.
        let promise = unsafe { Promise::new() };
        device.launch(stream, kernel, shape, &args, promise)
    })
}

#[cold]
fn refused<P: Parameters>(name: &str, broken: Broken, seen: &P::Seen<'_>) -> Error {
    let (mut names, mut shown) = (broken.names.iter(), String::new());
    P::each_seen(seen, |value| {
        let comma = if shown.is_empty() { "" } else { ", " };
        // Writing to a string says nothing.
        let _ = write!(shown, "{comma}{}: {value:?}", names.next().unwrap_or(&"?"));
    });
    Error::new(ErrorCode::InvalidArguments, [&name, &broken.condition, &shown])
}

#[cold]
fn too_many(name: &str, rank: usize) -> Error {
    let how = format!("with a block for each tile along {rank} dimensions (`{name}`)");
    let why = "blocks have three: cut the tensor along fewer, or say how many blocks there are to be by `LaunchConfig::blocks`";
    Error::new(ErrorCode::LaunchUnsupported, [&"kernel", &how, &why])
}

impl<D: port::Launch, I: Inputs<D>> fmt::Debug for Call<D, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("name", &self.name).field("config", &self.config).finish_non_exhaustive()
    }
}

impl Kind for Owned {
    type And<K: Kind> = K;
    type Launch<P: Parameters, D: port::Launch, A: Args<P, D>> = Call<D, A::Inputs>;

    #[inline]
    fn make<P: Parameters, D: port::Launch, A: Args<P, D>>(
        call: Call<D, A::Inputs>,
        _: A::Stays,
    ) -> Call<D, A::Inputs> {
        call
    }
}

impl Kind for Borrowed {
    type And<K: Kind> = Self;
    type Launch<P: Parameters, D: port::Launch, A: Args<P, D>> = Borrowing<P, D, A>;

    #[inline]
    fn make<P: Parameters, D: port::Launch, A: Args<P, D>>(
        call: Call<D, A::Inputs>,
        stays: A::Stays,
    ) -> Borrowing<P, D, A> {
        Borrowing { lent: Lent::new(call, stays) }
    }
}

/// A [`Call`] of which some arguments are borrowed, which come back with the others.
///
/// It is run as any operation, but is none: operations own what they work with, for they may be run by somebody else and outlive everybody.
#[must_use = "an operation does nothing until it is awaited or run"]
pub struct Borrowing<P: Parameters, D: port::Launch, A: Args<P, D>> {
    lent: Lent<Call<D, A::Inputs>, A::Stays>,
}

impl<P: Parameters, D: port::Launch, A: Args<P, D>> Borrowing<P, D, A> {
    /// As [`DeviceOp::on`].
    pub fn on(self, runtime: &Runtime<D>) -> BorrowingFuture<P, D, A> {
        BorrowingFuture { future: self.lent.on(runtime) }
    }

    /// As [`DeviceOp::sync`].
    ///
    /// # Errors
    ///
    /// As [`Call`]'s.
    pub fn sync(self) -> Result<A::Back, Error> {
        self.lent.sync().map(|(kept, stays)| A::back(kept, stays))
    }

    /// As [`DeviceOp::sync_on`].
    ///
    /// # Errors
    ///
    /// As [`Call`]'s.
    pub fn sync_on(self, stream: &Stream<D>) -> Result<A::Back, Error> {
        self.lent.sync_on(stream).map(|(kept, stays)| A::back(kept, stays))
    }
}

impl<P: Parameters, D: port::Launch, A: Args<P, D>> IntoFuture for Borrowing<P, D, A>
where
    Call<D, A::Inputs>: IntoFuture<IntoFuture = DeviceFuture<Call<D, A::Inputs>>>,
{
    type Output = Result<A::Back, Error>;
    type IntoFuture = BorrowingFuture<P, D, A>;

    fn into_future(self) -> BorrowingFuture<P, D, A> {
        BorrowingFuture { future: self.lent.into_future() }
    }
}

impl<P: Parameters, D: port::Launch, A: Args<P, D>> fmt::Debug for Borrowing<P, D, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Borrowing").finish_non_exhaustive()
    }
}

/// The future of a [`Borrowing`]. Where it fails, the borrows just end.
#[must_use = "futures do nothing unless polled"]
pub struct BorrowingFuture<P: Parameters, D: port::Launch, A: Args<P, D>> {
    future: LentFuture<Call<D, A::Inputs>, A::Stays>,
}

impl<P: Parameters, D: port::Launch, A: Args<P, D>> BorrowingFuture<P, D, A> {
    /// As [`DeviceFuture::sync`].
    ///
    /// # Errors
    ///
    /// As [`Call`]'s.
    pub fn sync(self) -> Result<A::Back, Error> {
        self.future.sync().map(|(kept, stays)| A::back(kept, stays))
    }
}

impl<P: Parameters, D: port::Launch, A: Args<P, D>> Future for BorrowingFuture<P, D, A> {
    type Output = Result<A::Back, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.future).poll(context);
        polled.map(|output| output.map(|(kept, stays)| A::back(kept, stays)))
    }
}

impl<P: Parameters, D: port::Launch, A: Args<P, D>> fmt::Debug for BorrowingFuture<P, D, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BorrowingFuture").finish_non_exhaustive()
    }
}

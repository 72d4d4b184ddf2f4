//! A kernel that is bound to a signature, and its launch.

// What binds a kernel is declared unsafe, and what launches it rests on that.
#![allow(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};

use std::sync::Arc;

use smallvec::SmallVec;
use wakeline_core::{Error, ErrorCode, Nanos};
use wakeline_ops::port::{self, Arg as PortArg, HostKernels, Promise};
use wakeline_ops::{DeviceFuture, DeviceOp, Runtime, Stream, Submission, Touch, device_op};

use super::arg::{Args, Borrowed, Kind, Owned};
use super::input::{Inputs, Place};
use super::parameter::{Parameters, Signature};
use super::plan::Plan;
use crate::block::Span;
use crate::lend::{Lent, LentFuture};

/// How many arguments are kept without an allocation.
const ARGS_INLINE: usize = 8;

/// A kernel, bound to a signature. Clones are the same kernel.
pub struct Bound<D: port::Launch, S> {
    kernel: D::Kernel,
    name: &'static str,
    plan: Plan,
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
    /// The kernel is of the device. Launched with arguments of the types of the signature for which its conditions hold, as [`Plan::new`] says, which is on any number
    /// of blocks of up to [`THREADS_DEFAULT`](crate::THREADS_DEFAULT) threads, it touches no memory but theirs and its own, within their lengths, and writes only what the
    /// signature says is written.
    pub unsafe fn new(device: &D, kernel: D::Kernel, name: &'static str) -> Result<Self, Error> {
        device.takes(&kernel, S::Parameters::BYTES)?;
        Ok(Self { kernel, name, plan: Plan::new(), signature: PhantomData })
    }

    /// A kernel of the host, which does what `code` says, bound to a signature. It is safe code, of which copies are made and handed back, so it touches nothing else.
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
        let kernel = D::host_kernel(length, S::Parameters::BYTES, move |args| {
            let mut held = S::Parameters::load(args);
            code(S::Parameters::lend(&mut held));
            S::Parameters::store(held, args);
        });
        // SAFETY: the kernel reads its arguments into memory of its own, and writes back, within their lengths, those that the signature says are written.
        unsafe { Self::new(device, kernel, name) }
    }

    /// The same, launched so.
    ///
    /// # Safety
    ///
    /// What [`new`](Self::new) asks for holds of the kernel as this plan launches it: it does with that many blocks, threads and bytes of shared memory, and where
    /// it [overlaps](Plan::overlapping) the kernel in front it waits for that before it touches anything. Of a kernel of the host all of that holds.
    #[must_use]
    pub unsafe fn with(&self, plan: Plan) -> Self {
        Self { plan, ..self.clone() }
    }

    /// A launch on these arguments.
    pub fn call<A: Args<S::Parameters, D>>(&self, args: A) -> CallOf<S::Parameters, D, A> {
        let (inputs, stays) = args.part();
        let Self { kernel, name, plan, .. } = self;
        let call = Call { kernel: kernel.clone(), name, plan: *plan, inputs, holds: S::holds };
        <A::Kind as Kind>::make(call, stays)
    }
}

impl<D: port::Launch, S> Clone for Bound<D, S> {
    fn clone(&self) -> Self {
        Self { kernel: self.kernel.clone(), name: self.name, plan: self.plan, signature: PhantomData }
    }
}

impl<D: port::Launch, S> fmt::Debug for Bound<D, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("name", &self.name).field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// Which condition of a signature does not hold, if any.
pub type Holds<P> = for<'a> fn(<P as Parameters>::Seen<'a>) -> Option<&'static str>;

/// What a launch of these arguments is: a [`Call`], or, where some of them are borrowed, a [`Borrowing`].
pub type CallOf<P, D, A> = <<A as Args<P, D>>::Kind as Kind>::Launch<P, D, A>;

/// An operation that launches a kernel, and gives back what it was handed.
///
/// What its arguments are to be given by is submitted first, in the same stream and in their order; then it is looked at whether the conditions hold; then
/// the kernel is launched. Costs as much as [`launch`](crate::launch()), which checks nothing: no allocation for up to eight arguments of which up to three are different
/// tensors, and two for more of these.
#[must_use = "an operation does nothing until it is awaited or run"]
pub struct Call<D: port::Launch, I: Inputs<D>> {
    kernel: D::Kernel,
    name: &'static str,
    plan: Plan,
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
    fn execute(self, submission: &mut Submission<D>) -> Result<I::Kept, Error> {
        let Self { kernel, name, plan, inputs, holds } = self;
        let pending = inputs.execute(submission)?;
        I::alone(&pending)?;
        if let Some(condition) = holds(I::seen(&pending)) {
            return Err(refused(name, condition, &I::seen(&pending)));
        }
        let mut places: SmallVec<[Place<'_, D>; ARGS_INLINE]> = SmallVec::new();
        I::places(&pending, |place| places.push(place));
        let written = places.iter().find_map(|place| match place {
            Place::Write(_, tiles) => Some(tiles),
            _ => None,
        });
        let shape = plan.shape(written).map_err(|rank| too_many(name, rank))?;
        if let Some(shape) = shape {
            submission.retain(kernel.clone());
            let touches: SmallVec<[Touch<'_, D>; ARGS_INLINE]> = places
                .iter()
                .enumerate()
                .filter_map(|(at, place)| match place {
                    Place::Word(_) => None,
                    // Once for each: every use is kept by the flight.
                    Place::Read(span) if reads(places.get(..at), span) => None,
                    Place::Read(span) => Some(span.storage.read()),
                    Place::Write(span, _) => Some(span.storage.write()),
                })
                .collect();
            submission.touch(&touches, |device, stream| {
                let args: SmallVec<[PortArg<'_, D::Buffer>; ARGS_INLINE]> = places
                    .iter()
                    .map(|place| match place {
                        Place::Word(word) => PortArg::Word(*word),
                        Place::Read(span) => PortArg::Read(span.at()),
                        Place::Write(span, _) => PortArg::Write(span.at()),
                    })
                    .collect();
                // SAFETY: the submission keeps kernel and buffers until this is done, and `touch` orders what else uses the buffers. The arguments are of the types
                // of the signature, whose conditions hold, so that the kernel does with them what it says: whoever bound it has promised that.
                let promise = unsafe { Promise::new() };
                device.launch(stream, &kernel, shape, &args, promise)
            })?;
        }
        drop(places);
        Ok(I::keep(pending))
    }

    fn finish(kept: I::Kept) -> Result<I::Kept, Error> {
        Ok(kept)
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.inputs.poll_ready(context)
    }
}

device_op!([D, I] Call<D, I> where D: port::Launch, I: Inputs<D>);

/// Whether the memory of a span is read at one of these places.
fn reads<D: port::Launch>(places: Option<&[Place<'_, D>]>, span: &Span<'_, D>) -> bool {
    let same = |place: &Place<'_, D>| match place {
        Place::Read(other) => Arc::ptr_eq(other.storage, span.storage),
        _ => false,
    };
    places.unwrap_or_default().iter().any(same)
}

#[cold]
fn refused(name: &str, condition: &str, seen: &dyn fmt::Debug) -> Error {
    Error::new(ErrorCode::InvalidArguments, [&name, &condition, &format_args!("{seen:?}")])
}

#[cold]
fn too_many(name: &str, rank: usize) -> Error {
    let how = format!("with a block for each tile along {rank} dimensions (`{name}`)");
    let why = "blocks have three: cut the tensor along fewer, or say how many blocks there are to be by `Plan::blocks`";
    Error::new(ErrorCode::LaunchUnsupported, [&"kernel", &how, &why])
}

impl<D: port::Launch, I: Inputs<D>> fmt::Debug for Call<D, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("name", &self.name).field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl Kind for Owned {
    type And<K: Kind> = K;
    type Launch<P: Parameters, D: port::Launch, A: Args<P, D>> = Call<D, A::Inputs>;

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

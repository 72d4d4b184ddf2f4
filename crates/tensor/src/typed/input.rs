//! Inputs of a launch: for each parameter the operation that gives what is handed in, and how the kernel uses that.

use core::fmt;
use core::marker::PhantomData;
use core::task::{Context, Poll};

use wakeline_core::Error;
use wakeline_ops::port::Memory;
use wakeline_ops::{DeviceOp, Submission};

use super::named::{Extent, Reads, Writes};
use super::parameter::{By, In, Out, Parameter, Parameters};
use super::scalar::Scalar;
use super::sealed::Sealed;
use crate::block::Span;
use crate::dims::Dims;
use crate::element::Element;

/// What a kernel is handed at one place.
#[derive(Debug)]
pub enum Place<'a, D: Memory> {
    /// A number.
    Word(u64),
    /// A tensor that it reads.
    Read(Span<'a, D>),
    /// A tensor that it writes, and may read.
    Write(Span<'a, D>),
}

/// How a tensor that is written is cut.
#[derive(Clone, Debug)]
pub struct Tiles<'a> {
    /// How many there are along each dimension, where it is cut.
    pub(super) grid: Option<Dims>,
    pub(super) tile: Option<&'a Dims>,
    /// How many numbers it has.
    pub(super) len: usize,
}

/// One parameter's input.
pub trait Input<D: Memory>: Sealed + Send + 'static {
    /// The parameter.
    type Parameter: Parameter;
    /// What was handed in, while the kernel is being launched.
    type Pending: Send + 'static;
    /// What of it goes back.
    type Kept: Send + 'static;

    /// Has it given.
    ///
    /// # Errors
    ///
    /// What the operation says that gives it; that it cannot be handed to a kernel.
    fn execute(self, submission: &mut Submission<D>) -> Result<Self::Pending, Error>;

    /// As [`DeviceOp::poll_ready`].
    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()>;

    /// As [`DeviceOp::entries`].
    fn entries(&self) -> u32;

    /// That nobody else sees it change, where it is written. Asked when all inputs are there.
    ///
    /// # Errors
    ///
    /// [`TensorShared`](wakeline_core::ErrorCode::TensorShared).
    #[inline]
    fn alone(pending: &Self::Pending) -> Result<(), Error> {
        let _ = pending;
        Ok(())
    }

    /// What the kernel is handed.
    fn place(pending: &Self::Pending) -> Place<'_, D>;

    /// How it is cut, where it is written.
    #[inline]
    fn tiles(pending: &Self::Pending) -> Option<Tiles<'_>> {
        let _ = pending;
        None
    }

    /// What a condition sees.
    fn seen(pending: &Self::Pending) -> <Self::Parameter as Parameter>::Seen<'_>;

    /// What goes back.
    fn keep(pending: Self::Pending) -> Self::Kept;
}

macro_rules! inputs {
    ($($(#[$doc:meta])* $name:ident)+) => {$(
        $(#[$doc])*
        pub struct $name<T, O> {
            op: O,
            of: PhantomData<fn() -> T>,
        }

        impl<T, O> $name<T, O> {
            pub(super) const fn new(op: O) -> Self {
                Self { op, of: PhantomData }
            }
        }

        impl<T, O> Sealed for $name<T, O> {}

        impl<T, O> fmt::Debug for $name<T, O> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )+};
}

inputs! {
    /// A tensor that is read.
    Reading
    /// A tensor that is written, and may be read.
    Writing
    /// A number.
    Passing
}

/// What an input says of its operation.
macro_rules! waits {
    () => {
        fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
            self.op.poll_ready(context)
        }

        fn entries(&self) -> u32 {
            self.op.entries()
        }
    };
}

/// What an input that is a tensor does, whether it is written or not.
macro_rules! of_a_tensor {
    ($device:ident) => {
        #[inline]
        fn execute(self, submission: &mut Submission<$device>) -> Result<Self::Pending, Error> {
            let pending = self.op.execute(submission)?;
            pending.plain()?;
            Ok(pending)
        }

        #[inline]
        fn seen(pending: &Self::Pending) -> Extent<'_> {
            pending.extent()
        }

        #[inline]
        fn keep(pending: Self::Pending) -> Self::Kept {
            pending.keep()
        }

        waits!();
    };
}

impl<T, D, O> Input<D> for Reading<T, O>
where
    T: Element,
    D: Memory,
    O: DeviceOp<Device = D, Output = <O as DeviceOp>::Pending, Pending: Reads<T, D>>,
{
    type Parameter = In<T>;
    type Pending = <O as DeviceOp>::Pending;
    type Kept = <<O as DeviceOp>::Pending as Reads<T, D>>::Kept;

    of_a_tensor!(D);
    #[inline]
    fn place(pending: &Self::Pending) -> Place<'_, D> {
        Place::Read(pending.span())
    }
}

impl<T, D, O> Input<D> for Writing<T, O>
where
    T: Element,
    D: Memory,
    O: DeviceOp<Device = D, Output = <O as DeviceOp>::Pending, Pending: Writes<T, D>>,
{
    type Parameter = Out<T>;
    type Pending = <O as DeviceOp>::Pending;
    type Kept = <<O as DeviceOp>::Pending as Reads<T, D>>::Kept;

    of_a_tensor!(D);
    #[inline]
    fn alone(pending: &Self::Pending) -> Result<(), Error> {
        pending.alone()
    }

    #[inline]
    fn place(pending: &Self::Pending) -> Place<'_, D> {
        Place::Write(pending.span())
    }

    #[inline]
    fn tiles(pending: &Self::Pending) -> Option<Tiles<'_>> {
        Some(Tiles { grid: pending.grid(), tile: pending.tile(), len: pending.extent().len() })
    }
}

impl<T, D, O> Input<D> for Passing<T, O>
where
    T: Scalar + fmt::Debug,
    D: Memory,
    O: DeviceOp<Device = D, Pending = T, Output = T>,
{
    type Parameter = By<T>;
    type Pending = T;
    type Kept = T;

    #[inline]
    fn execute(self, submission: &mut Submission<D>) -> Result<T, Error> {
        self.op.execute(submission)
    }

    waits!();

    #[inline]
    fn place(number: &T) -> Place<'_, D> {
        Place::Word(number.word())
    }

    #[inline]
    fn seen(number: &T) -> T {
        *number
    }

    #[inline]
    fn keep(number: T) -> T {
        number
    }
}

/// The inputs of all parameters: a tuple of 1 to 12.
pub trait Inputs<D: Memory>: Sealed + Send + 'static {
    /// The parameters.
    type Parameters: Parameters;
    /// What was handed in.
    type Pending: Send + 'static;
    /// What of it goes back.
    type Kept: Send + 'static;

    /// As [`Input::execute`], in their order.
    ///
    /// # Errors
    ///
    /// As there.
    fn execute(self, submission: &mut Submission<D>) -> Result<Self::Pending, Error>;
    /// As [`Input::poll_ready`].
    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()>;
    /// As [`Input::entries`], of all.
    fn entries(&self) -> u32;
    /// As [`Input::alone`].
    ///
    /// # Errors
    ///
    /// As there.
    fn alone(pending: &Self::Pending) -> Result<(), Error>;
    /// As [`Input::place`], each in turn.
    fn places<'a>(pending: &'a Self::Pending, each: impl FnMut(Place<'a, D>));
    /// As [`Input::tiles`], of the first that is written.
    fn tiles(pending: &Self::Pending) -> Option<Tiles<'_>>;
    /// As [`Input::seen`].
    fn seen(pending: &Self::Pending) -> <Self::Parameters as Parameters>::Seen<'_>;
    /// As [`Input::keep`].
    fn keep(pending: Self::Pending) -> Self::Kept;
}

macro_rules! tuples {
    ($($input:ident $index:tt),+) => {
        impl<D: Memory, $($input: Input<D>),+> Inputs<D> for ($($input,)+) {
            type Parameters = ($($input::Parameter,)+);
            type Pending = ($($input::Pending,)+);
            type Kept = ($($input::Kept,)+);

            #[inline]
            fn execute(self, submission: &mut Submission<D>) -> Result<Self::Pending, Error> {
                Ok(($(self.$index.execute(submission)?,)+))
            }

            fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
                $(if self.$index.poll_ready(context).is_pending() {
                    return Poll::Pending;
                })+
                Poll::Ready(())
            }

            fn entries(&self) -> u32 {
                0_u32$(.saturating_add(self.$index.entries()))+
            }

            #[inline]
            fn alone(pending: &Self::Pending) -> Result<(), Error> {
                $($input::alone(&pending.$index)?;)+
                Ok(())
            }

            #[inline]
            fn places<'a>(pending: &'a Self::Pending, mut each: impl FnMut(Place<'a, D>)) {
                $(each($input::place(&pending.$index));)+
            }

            #[inline]
            fn tiles(pending: &Self::Pending) -> Option<Tiles<'_>> {
                None$(.or_else(|| $input::tiles(&pending.$index)))+
            }

            #[inline]
            fn seen(pending: &Self::Pending) -> <Self::Parameters as Parameters>::Seen<'_> {
                ($($input::seen(&pending.$index),)+)
            }

            #[inline]
            fn keep(pending: Self::Pending) -> Self::Kept {
                ($($input::keep(pending.$index),)+)
            }
        }
    };
}

tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, E 3);
tuples!(A 0, B 1, C 2, E 3, F 4);
tuples!(A 0, B 1, C 2, E 3, F 4, G 5);
tuples!(A 0, B 1, C 2, E 3, F 4, G 5, H 6);
tuples!(A 0, B 1, C 2, E 3, F 4, G 5, H 6, I 7);
tuples!(A 0, B 1, C 2, E 3, F 4, G 5, H 6, I 7, J 8);
tuples!(A 0, B 1, C 2, E 3, F 4, G 5, H 6, I 7, J 8, K 9);
tuples!(A 0, B 1, C 2, E 3, F 4, G 5, H 6, I 7, J 8, K 9, L 10);
tuples!(A 0, B 1, C 2, E 3, F 4, G 5, H 6, I 7, J 8, K 9, L 10, M 11);

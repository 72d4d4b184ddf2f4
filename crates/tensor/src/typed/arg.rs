//! What can be handed in for a parameter: owned, shared, borrowed, cut into tiles, or still to be made by an operation.
//!
//! An operation owns what it works with. So what is handed in is taken apart: an [`Input`], which goes into the operation, and what stays with whoever awaits it,
//! a borrow or nothing. Where nothing stays for any of the arguments, the launch is an operation as any; else it is awaited or run, and gives the borrows back.

use core::fmt;

use wakeline_ops::port::{self, Memory};
use wakeline_ops::{DeviceOp, Gives, Giving, Value, value};

use super::input::{Input, Inputs, Passing, Reading, Writing};
use super::named::{Named, Reads, Writes};
use super::parameter::{By, In, Out, Parameter, Parameters};
use super::scalar::Scalar;
use crate::element::Element;
use crate::partition::Partition;
use crate::tensor::Tensor;

/// What can be handed in for a parameter: `P` is [`In`], [`Out`] or [`By`].
///
/// | parameter | takes |
/// |---|---|
/// | `in x: [T]` | `Tensor<T>`, `Arc<Tensor<T>>`, `&Tensor<T>`, `Partition<Tensor<T>>`, an operation that gives one of the owned ones |
/// | `out x: [T]`, `inout x: [T]` | `Tensor<T>`, `&mut Tensor<T>`, `Partition<Tensor<T>>`, `Partition<&mut Tensor<T>>`, an operation that gives one of the owned ones |
/// | `x: T` | `T`, an operation that gives one |
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be handed to a kernel for the parameter `{P}`",
    note = "what is read is a `Tensor`, an `Arc` of one, `&Tensor`, a `Partition`, or an operation that gives an owned one",
    note = "what is written is a `Tensor`, `&mut Tensor`, a `Partition` of one of these, or an operation that gives an owned one; never one that is shared",
    note = "what is a number takes a value of exactly that type (`2.0`, not `2`, for an `f32`), or an operation that gives one"
)]
pub trait Arg<P: Parameter, D: Memory> {
    /// What goes into the operation.
    type Input: Input<D, Parameter = P>;
    /// What stays.
    type Stays: Stays + Unpin;
    /// What whoever handed it in gets back: what that was, or what the operation gave that was.
    type Back;

    /// Takes it apart.
    fn part(self) -> (Self::Input, Self::Stays);

    /// Puts it together again.
    fn back(kept: <Self::Input as Input<D>>::Kept, stays: Self::Stays) -> Self::Back;
}

/// Nothing stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nothing;

/// A borrow stays.
#[derive(Debug)]
pub struct Borrow<B>(B);

/// What of an argument stays with whoever awaits the launch.
pub trait Stays {
    /// Whether that is nothing: [`Owned`] or [`Borrowed`].
    type Kind: Kind;
}

impl Stays for Nothing {
    type Kind = Owned;
}

impl<B> Stays for Borrow<B> {
    type Kind = Borrowed;
}

/// Whether a launch has all that it works with.
pub trait Kind {
    /// Whether two have.
    type And<K: Kind>: Kind;
    /// What a launch of these arguments is.
    type Launch<P: Parameters, D: port::Launch, A: Args<P, D>>;

    /// Makes it.
    fn make<P: Parameters, D: port::Launch, A: Args<P, D>>(
        call: super::call::Call<D, A::Inputs>,
        stays: A::Stays,
    ) -> Self::Launch<P, D, A>;
}

/// It has.
#[derive(Debug)]
pub struct Owned;

/// Some of it is borrowed.
#[derive(Debug)]
pub struct Borrowed;

/// All arguments of a launch: a tuple of 1 to 12, for a tuple of parameters.
pub trait Args<P: Parameters, D: Memory> {
    /// What goes into the operation.
    type Inputs: Inputs<D, Parameters = P>;
    /// What stays.
    type Stays: Unpin;
    /// Whether that is nothing.
    type Kind: Kind;
    /// What comes back.
    type Back;

    /// As [`Arg::part`].
    fn part(self) -> (Self::Inputs, Self::Stays);

    /// As [`Arg::back`].
    fn back(kept: <Self::Inputs as Inputs<D>>::Kept, stays: Self::Stays) -> Self::Back;
}

macro_rules! tuples {
    // Whether any of them stays.
    (@kind $first:ident $p:ident) => { <<$first as Arg<$p, D>>::Stays as Stays>::Kind };
    (@kind $first:ident $p:ident, $($next:ident $q:ident),+) => {
        <<<$first as Arg<$p, D>>::Stays as Stays>::Kind as Kind>::And<tuples!(@kind $($next $q),+)>
    };
    ($($arg:ident $p:ident $index:tt),+) => {
        impl<D: Memory, $($p: Parameter,)+ $($arg: Arg<$p, D>),+> Args<($($p,)+), D> for ($($arg,)+) {
            type Inputs = ($($arg::Input,)+);
            type Stays = ($($arg::Stays,)+);
            type Kind = tuples!(@kind $($arg $p),+);
            type Back = ($($arg::Back,)+);

            #[inline]
            fn part(self) -> (Self::Inputs, Self::Stays) {
                let parts = ($(self.$index.part(),)+);
                (($(parts.$index.0,)+), ($(parts.$index.1,)+))
            }

            #[inline]
            fn back(kept: <Self::Inputs as Inputs<D>>::Kept, stays: Self::Stays) -> Self::Back {
                ($($arg::back(kept.$index, stays.$index),)+)
            }
        }
    };
}

tuples!(A1 P1 0);
tuples!(A1 P1 0, A2 P2 1);
tuples!(A1 P1 0, A2 P2 1, A3 P3 2);
tuples!(A1 P1 0, A2 P2 1, A3 P3 2, A4 P4 3);
tuples!(A1 P1 0, A2 P2 1, A3 P3 2, A4 P4 3, A5 P5 4);
tuples!(A1 P1 0, A2 P2 1, A3 P3 2, A4 P4 3, A5 P5 4, A6 P6 5);
tuples!(A1 P1 0, A2 P2 1, A3 P3 2, A4 P4 3, A5 P5 4, A6 P6 5, A7 P7 6);
tuples!(A1 P1 0, A2 P2 1, A3 P3 2, A4 P4 3, A5 P5 4, A6 P6 5, A7 P7 6, A8 P8 7);
tuples!(A1 P1 0, A2 P2 1, A3 P3 2, A4 P4 3, A5 P5 4, A6 P6 5, A7 P7 6, A8 P8 7, A9 P9 8);
tuples!(A1 P1 0, A2 P2 1, A3 P3 2, A4 P4 3, A5 P5 4, A6 P6 5, A7 P7 6, A8 P8 7, A9 P9 8, A10 P10 9);
tuples!(A1 P1 0, A2 P2 1, A3 P3 2, A4 P4 3, A5 P5 4, A6 P6 5, A7 P7 6, A8 P8 7, A9 P9 8, A10 P10 9, A11 P11 10);
tuples!(A1 P1 0, A2 P2 1, A3 P3 2, A4 P4 3, A5 P5 4, A6 P6 5, A7 P7 6, A8 P8 7, A9 P9 8, A10 P10 9, A11 P11 10, A12 P12 11);

/// What is given at submission.
type Pending<X> = <<X as Giving>::Op as DeviceOp>::Pending;

macro_rules! tensors {
    ($($parameter:ident $input:ident $is:ident;)*) => {$(
        // What cannot be handed in is told as that, and not as what is no operation.
        #[diagnostic::do_not_recommend]
        impl<T, D, X> Arg<$parameter<T>, D> for X
        where
            T: Element,
            D: Memory,
            X: Giving<Device = D>,
            X::Op: DeviceOp<Device = D, Output = Pending<X>, Pending: $is<T, D>>,
        {
            type Input = $input<T, X::Op>;
            type Stays = Nothing;
            type Back = <Pending<X> as Reads<T, D>>::Kept;

            #[inline]
            fn part(self) -> (Self::Input, Nothing) {
                ($input::new(self.into_giving()), Nothing)
            }

            #[inline]
            fn back(kept: Self::Back, _: Nothing) -> Self::Back {
                kept
            }
        }
    )*};
}

tensors! { In Reading Reads; Out Writing Writes; }

#[diagnostic::do_not_recommend]
impl<T, D, X> Arg<By<T>, D> for X
where
    T: Scalar + fmt::Debug,
    D: Memory,
    X: Gives<T, D>,
{
    type Input = Passing<T, X::Op>;
    type Stays = Nothing;
    type Back = T;

    #[inline]
    fn part(self) -> (Self::Input, Nothing) {
        (Passing::new(self.into_op_of()), Nothing)
    }

    #[inline]
    fn back(kept: T, _: Nothing) -> T {
        kept
    }
}

macro_rules! owned {
    ($($owned:ty => $p:ident $input:ident;)+) => {$(
        impl<T: Element, D: Memory> Arg<$p<T>, D> for $owned {
            type Input = $input<T, Value<D, Self>>;
            type Stays = Nothing;
            type Back = Self;

            #[inline]
            fn part(self) -> (Self::Input, Nothing) {
                ($input::new(value(self)), Nothing)
            }

            #[inline]
            fn back(kept: Self, _: Nothing) -> Self {
                kept
            }
        }
    )+};
}

owned! {
    Tensor<T, D> => In Reading;
    Tensor<T, D> => Out Writing;
    Partition<Tensor<T, D>> => In Reading;
    Partition<Tensor<T, D>> => Out Writing;
}

macro_rules! borrows {
    ($($lifetime:lifetime $borrow:ty => $p:ident $input:ident $named:ident;)+) => {$(
        impl<$lifetime, T: Element, D: Memory> Arg<$p<T>, D> for $borrow {
            type Input = $input<T, Value<D, Named<D>>>;
            type Stays = Borrow<Self>;
            type Back = Self;

            #[inline]
            fn part(self) -> (Self::Input, Borrow<Self>) {
                ($input::new(value(Named::$named(&self))), Borrow(self))
            }

            #[inline]
            fn back((): (), stays: Borrow<Self>) -> Self {
                stays.0
            }
        }
    )+};
}

borrows! {
    'a &'a Tensor<T, D> => In Reading of;
    'a &'a mut Tensor<T, D> => Out Writing of;
    'a Partition<&'a mut Tensor<T, D>> => Out Writing of_tiles;
    'a Partition<&'a mut Tensor<T, D>> => In Reading of_tiles;
}

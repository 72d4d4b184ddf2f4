//! Parameters of a signature: what a kernel takes for each, what conditions see of it, and what a kernel of the host is called with.

use core::fmt;
use core::marker::PhantomData;

use wakeline_ops::port::HostArgs;

use super::named::Extent;
use super::scalar::Scalar;
use super::sealed::Sealed;
use crate::element::Element;

/// A parameter that is read: `in x: [T]`.
#[derive(Debug)]
pub struct In<T>(PhantomData<fn() -> T>);

impl<T> Sealed for In<T> {}

/// A parameter that is written: `out x: [T]`; and one that is read before: `inout x: [T]`.
#[derive(Debug)]
pub struct Out<T>(PhantomData<fn() -> T>);

impl<T> Sealed for Out<T> {}

/// A parameter that is a number: `x: T`.
#[derive(Debug)]
pub struct By<T>(PhantomData<fn() -> T>);

impl<T> Sealed for By<T> {}

/// [`In`], [`Out`] or [`By`].
pub trait Parameter: Sealed + 'static {
    /// How many bytes the kernel takes for it.
    const BYTES: usize;
    /// Whether it is a tensor.
    const IS_TENSOR: bool;
    /// What a condition sees of what was handed in.
    type Seen<'a>: fmt::Debug;
    /// What a kernel of the host is called with.
    type Host<'a>;
    /// That, owned.
    type Held;

    /// Reads it for a kernel of the host; of a tensor so many bytes.
    fn load(args: &impl HostArgs, place: usize, len_bytes: u64) -> Self::Held;

    /// Lends it to that.
    fn lend(held: &mut Self::Held) -> Self::Host<'_>;

    /// Writes it back, where it is written.
    fn store(held: Self::Held, args: &mut impl HostArgs, place: usize);
}

/// The numbers of so many bytes of a buffer, which goes on to the end of its memory.
fn numbers<T: Element>(args: &impl HostArgs, place: usize, len_bytes: u64) -> Vec<T> {
    let bytes = args.bytes(place);
    let bytes = usize::try_from(len_bytes).ok().and_then(|len| bytes.get(..len)).unwrap_or(bytes);
    let mut numbers = vec![T::ZERO; bytes.len() / T::BYTES.max(1)];
    // What reads says nothing.
    let _ = T::read(&mut numbers, |out| {
        out.iter_mut().zip(bytes).for_each(|(out, byte)| *out = *byte);
        Ok(())
    });
    numbers
}

impl<T: Element> Parameter for In<T> {
    const BYTES: usize = size_of::<u64>();
    const IS_TENSOR: bool = true;
    type Seen<'a> = Extent<'a>;
    type Host<'a> = &'a [T];
    type Held = Vec<T>;

    fn load(args: &impl HostArgs, place: usize, len_bytes: u64) -> Vec<T> {
        numbers(args, place, len_bytes)
    }

    fn lend(held: &mut Vec<T>) -> &[T] {
        held
    }

    fn store(_: Vec<T>, _: &mut impl HostArgs, _: usize) {}
}

impl<T: Element> Parameter for Out<T> {
    const BYTES: usize = size_of::<u64>();
    const IS_TENSOR: bool = true;
    type Seen<'a> = Extent<'a>;
    type Host<'a> = &'a mut [T];
    type Held = Vec<T>;

    fn load(args: &impl HostArgs, place: usize, len_bytes: u64) -> Vec<T> {
        numbers(args, place, len_bytes)
    }

    fn lend(held: &mut Vec<T>) -> &mut [T] {
        held
    }

    fn store(held: Vec<T>, args: &mut impl HostArgs, place: usize) {
        let out = args.bytes_mut(place).iter_mut();
        out.zip(T::bytes(&held)).for_each(|(out, byte)| *out = *byte);
    }
}

impl<T: Scalar + fmt::Debug> Parameter for By<T> {
    const BYTES: usize = <T as Scalar>::BYTES;
    const IS_TENSOR: bool = false;
    type Seen<'a> = T;
    type Host<'a> = T;
    type Held = T;

    fn load(args: &impl HostArgs, place: usize, _: u64) -> T {
        T::of_word(args.word(place))
    }

    fn lend(held: &mut T) -> T {
        *held
    }

    fn store(_: T, _: &mut impl HostArgs, _: usize) {}
}

/// All parameters of a signature: a tuple of 1 to 12.
pub trait Parameters: Sealed + 'static {
    /// As [`Parameter::BYTES`], of each.
    const BYTES: &'static [usize];
    /// Whether any of them is a tensor.
    const HAS_TENSORS: bool;
    /// As [`Parameter::Seen`].
    type Seen<'a>: fmt::Debug;
    /// As [`Parameter::Host`].
    type Host<'a>;
    /// As [`Parameter::Held`].
    type Held;

    /// Says what conditions see, of one after another.
    fn each_seen(seen: &Self::Seen<'_>, each: impl FnMut(&dyn fmt::Debug));

    /// As [`Parameter::load`], from the first place on. Behind all of them there is a word for each: how many bytes it has, where it is a tensor.
    fn load(args: &impl HostArgs) -> Self::Held;

    /// As [`Parameter::lend`].
    fn lend(held: &mut Self::Held) -> Self::Host<'_>;

    /// As [`Parameter::store`].
    fn store(held: Self::Held, args: &mut impl HostArgs);
}

macro_rules! tuples {
    ($($parameter:ident $index:tt),+) => {
        impl<$($parameter: Parameter),+> Parameters for ($($parameter,)+) {
            const BYTES: &'static [usize] = &[$($parameter::BYTES),+];
            const HAS_TENSORS: bool = $($parameter::IS_TENSOR)||+;
            type Seen<'a> = ($($parameter::Seen<'a>,)+);
            type Host<'a> = ($($parameter::Host<'a>,)+);
            type Held = ($($parameter::Held,)+);

            fn each_seen(seen: &Self::Seen<'_>, mut each: impl FnMut(&dyn fmt::Debug)) {
                $(each(&seen.$index);)+
            }

            fn load(args: &impl HostArgs) -> Self::Held {
                ($($parameter::load(args, $index, args.word(Self::BYTES.len() + $index)),)+)
            }

            fn lend(held: &mut Self::Held) -> Self::Host<'_> {
                ($($parameter::lend(&mut held.$index),)+)
            }

            fn store(held: Self::Held, args: &mut impl HostArgs) {
                $($parameter::store(held.$index, args, $index);)+
            }
        }
    };
}

tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);

/// What [`kernel!`](crate::kernel) declares.
pub trait Signature: 'static {
    /// Its parameters, in their order.
    type Parameters: Parameters;

    /// Which of its conditions does not hold, if any.
    fn holds(seen: <Self::Parameters as Parameters>::Seen<'_>) -> Option<Broken>;
}

/// A condition of a signature that does not hold.
#[derive(Clone, Copy, Debug)]
pub struct Broken {
    /// The condition, as it was written.
    pub condition: &'static str,
    /// The names of the parameters, in their order.
    pub names: &'static [&'static str],
}

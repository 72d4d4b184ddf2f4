//! The parts of what gives a tuple or a vector.

use core::fmt;
use core::task::{Context, Poll};
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode};

use crate::device_op;
use crate::once::Once;
use crate::op::DeviceOp;
use crate::submission::Submission;

/// Makes several operations of one that gives a tuple: see [`DeviceOp::unzip`](crate::DeviceOp::unzip).
///
/// ```
/// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin, unzip, zip};
/// use wakeline_tensor::Tensor;
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let watcher = VirtualWatcher::new(&device);
/// let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), watcher.clone())?;
/// let (ones, twos) = unzip!(zip!(Tensor::full(2, 1_u8), Tensor::full(2, 2_u8)));
/// assert_eq!(watcher.run(twos.then(|twos| twos.to_host()).on(&runtime))??, [2, 2]);
/// assert_eq!(watcher.run(ones.then(|ones| ones.to_host()).on(&runtime))??, [1, 1]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[macro_export]
macro_rules! unzip {
    ($op:expr) => {
        $crate::DeviceOp::unzip($op)
    };
}

/// What has a first and a last: a tuple of 2 to 12, or a vector, which may be empty.
pub trait Sequence {
    /// The first.
    type First: Send + 'static;
    /// The last.
    type Last: Send + 'static;

    /// The first, without the others.
    fn first(self) -> Self::First;

    /// The last, without the others.
    fn last(self) -> Self::Last;
}

impl<T: Send + 'static> Sequence for Vec<T> {
    type First = Option<T>;
    type Last = Option<T>;

    fn first(self) -> Option<T> {
        self.into_iter().next()
    }

    fn last(mut self) -> Option<T> {
        self.pop()
    }
}

/// A tuple of 2 to 12, for [`DeviceOp::unzip`](crate::DeviceOp::unzip).
pub trait Tuple: Send + Sized + 'static {
    /// Each part, until somebody takes it.
    type Slots: Send + 'static;
    /// What gives each part.
    type Parts<O: DeviceOp<Pending = Self>>;

    /// Puts each part in its place.
    fn into_slots(self) -> Self::Slots;

    /// All parts of the operation that this is one of.
    fn parts<O: DeviceOp<Pending = Self>>(one: &Part<O, 0>) -> Self::Parts<O>;
}

/// A tuple that has a part of that number, counted from 0.
pub trait Has<const N: usize>: Tuple {
    /// That part.
    type Item: Send + 'static;

    /// Takes it, unless somebody has.
    fn take(slots: &mut Self::Slots) -> Option<Self::Item>;
}

/// What gives the part of that number of what `O` gives; see [`unzip!`](crate::unzip).
#[must_use = "an operation does nothing until it is awaited or run"]
pub struct Part<O: DeviceOp<Pending: Tuple>, const N: usize> {
    once: Arc<Once<O, <O::Pending as Tuple>::Slots>>,
}

impl<O: DeviceOp<Pending: Tuple>, const N: usize> Part<O, N> {
    pub(crate) fn new(op: O) -> Self {
        Self { once: Arc::new(Once::new(op)) }
    }

    fn other<const M: usize>(&self) -> Part<O, M> {
        Part { once: Arc::clone(&self.once) }
    }
}

impl<O: DeviceOp<Pending: Has<N>>, const N: usize> DeviceOp for Part<O, N> {
    type Device = O::Device;
    type Pending = <O::Pending as Has<N>>::Item;
    type Output = <O::Pending as Has<N>>::Item;

    fn execute(self, submission: &mut Submission<O::Device>) -> Result<Self::Pending, Error> {
        let part = self.once.execute(submission, Tuple::into_slots, <O::Pending as Has<N>>::take)?;
        // Never: there is one of each number.
        part.ok_or_else(|| Error::new(ErrorCode::PolledAfterEnd, []))
    }

    fn finish(part: Self::Pending) -> Result<Self::Pending, Error> {
        Ok(part)
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.once.poll_ready(context)
    }
}

device_op!([O, const N: usize] Part<O, N> where O: DeviceOp<Pending: Has<N>>);

impl<O: DeviceOp<Pending: Tuple>, const N: usize> fmt::Debug for Part<O, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("number", &N).finish_non_exhaustive()
    }
}

macro_rules! tuples {
    // One part at a time: all parts, what is left of them.
    (@has [$($all:ident)+]) => {};
    (@has [$($all:ident)+] $part:ident $index:tt $(, $next:ident $after:tt)*) => {
        impl<$($all: Send + 'static),+> Has<$index> for ($($all,)+) {
            type Item = $part;

            fn take(slots: &mut Self::Slots) -> Option<$part> {
                slots.$index.take()
            }
        }
        tuples!(@has [$($all)+] $($next $after),*);
    };
    ($first:ident $last:ident $end:tt: $($part:ident $index:tt),+) => {
        impl<$($part: Send + 'static),+> Sequence for ($($part,)+) {
            type First = $first;
            type Last = $last;

            fn first(self) -> $first {
                self.0
            }

            fn last(self) -> $last {
                self.$end
            }
        }

        impl<$($part: Send + 'static),+> Tuple for ($($part,)+) {
            type Slots = ($(Option<$part>,)+);
            type Parts<Op: DeviceOp<Pending = Self>> = ($(Part<Op, $index>,)+);

            fn into_slots(self) -> Self::Slots {
                ($(Some(self.$index),)+)
            }

            fn parts<Op: DeviceOp<Pending = Self>>(one: &Part<Op, 0>) -> Self::Parts<Op> {
                ($(one.other::<$index>(),)+)
            }
        }

        tuples!(@has [$($part)+] $($part $index),+);
    };
}

tuples!(A B 1: A 0, B 1);
tuples!(A C 2: A 0, B 1, C 2);
tuples!(A D 3: A 0, B 1, C 2, D 3);
tuples!(A E 4: A 0, B 1, C 2, D 3, E 4);
tuples!(A F 5: A 0, B 1, C 2, D 3, E 4, F 5);
tuples!(A G 6: A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples!(A H 7: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
tuples!(A I 8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuples!(A J 9: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuples!(A K 10: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuples!(A L 11: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);

//! Operations that need nothing of each other, as one: of a tuple, of a vector.

use core::fmt;
use core::task::{Context, Poll};

use wakeline_core::Error;

use crate::device_op;
use crate::fork::Branches;
use crate::into_op::IntoDeviceOp;
use crate::op::DeviceOp;
use crate::port::Device;
use crate::submission::Submission;

/// Makes one operation of 2 to 12, whose output is a tuple of theirs. They need nothing of each other, so they run at a time, where the
/// runtime's policy gives them different streams: see [`Zip`].
///
/// Takes values where an operation is expected, as [`IntoDeviceOp`] says.
///
/// ```
/// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin, zip};
/// use wakeline_tensor::Tensor;
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let watcher = VirtualWatcher::new(&device);
/// let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), watcher.clone())?;
/// let both = zip!(Tensor::from_host(vec![1_u8, 2]), Tensor::full(2, 0), "a copy")
///     .then(|(from, to, name)| zip!(from.copy_to(to).then(|tensor| tensor.to_host()), name));
/// assert_eq!(watcher.run(both.on(&runtime))??, (vec![1, 2], "a copy"));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[macro_export]
macro_rules! zip {
    ($first:expr, $($next:expr),+ $(,)?) => {
        $crate::Zip::of(($crate::IntoDeviceOp::into_op($first), $($crate::IntoDeviceOp::into_op($next),)+))
    };
}

/// Several operations as one: see [`zip!`](crate::zip).
///
/// They are submitted in their order, and what conflicts among them runs in it. The first runs in the stream of the whole; the runtime's policy is
/// asked for the stream of each other. That one waits, on the device, for what the whole has enqueued before, if anything; and what comes behind the whole waits
/// for all of them. There is one flight: all that any of them keeps lives until all are done. All of it stays in one stream
/// - by [`in_one_stream`](DeviceOp::in_one_stream),
/// - where it runs in a stream that was named, or by [`DeviceOp::schedule`],
/// - where the policy gives no other, and for branches for which no other stream has room.
///
/// Where one fails, those behind it are not submitted; those in front of it run.
///
/// Costs an event and a wait for each branch that enqueues something in another stream, as much again where something is in front, and no allocation.
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Clone, Copy, Debug)]
pub struct Zip<T>(T);

impl<T> Zip<T> {
    /// Of a tuple of operations.
    pub const fn of(ops: T) -> Self {
        Self(ops)
    }
}

macro_rules! zips {
    ($count:literal: $($op:ident $index:tt),+) => {
        impl<D: Device, $($op: DeviceOp<Device = D>),+> DeviceOp for Zip<($($op,)+)> {
            type Device = D;
            type Pending = ($($op::Pending,)+);
            type Output = ($(<$op as DeviceOp>::Output,)+);

            fn execute(self, submission: &mut Submission<D>) -> Result<Self::Pending, Error> {
                let mut branches = Branches::new(submission, $count)?;
                let pending = ($(branches.run(self.0.$index)?,)+);
                branches.join()?;
                Ok(pending)
            }

            fn finish(pending: Self::Pending) -> Result<<Self as DeviceOp>::Output, Error> {
                Ok(($(<$op as DeviceOp>::finish(pending.$index)?,)+))
            }

            fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
                $(if self.0.$index.poll_ready(context).is_pending() {
                    return Poll::Pending;
                })+
                Poll::Ready(())
            }

            fn entries(&self) -> u32 {
                0_u32$(.saturating_add(self.0.$index.entries()))+
            }
        }

        device_op!([D, $($op),+] Zip<($($op,)+)> where D: Device, $($op: DeviceOp<Device = D>),+);
    };
}

zips!(2: A 0, B 1);
zips!(3: A 0, B 1, C 2);
zips!(4: A 0, B 1, C 2, E 3);
zips!(5: A 0, B 1, C 2, E 3, F 4);
zips!(6: A 0, B 1, C 2, E 3, F 4, G 5);
zips!(7: A 0, B 1, C 2, E 3, F 4, G 5, H 6);
zips!(8: A 0, B 1, C 2, E 3, F 4, G 5, H 6, I 7);
zips!(9: A 0, B 1, C 2, E 3, F 4, G 5, H 6, I 7, J 8);
zips!(10: A 0, B 1, C 2, E 3, F 4, G 5, H 6, I 7, J 8, K 9);
zips!(11: A 0, B 1, C 2, E 3, F 4, G 5, H 6, I 7, J 8, K 9, L 10);
zips!(12: A 0, B 1, C 2, E 3, F 4, G 5, H 6, I 7, J 8, K 9, L 10, M 11);

/// A vector of operations as one, whose output is a vector of theirs in their order. As [`Zip`], of any number: their streams are those that
/// the runtime's policy says, as often as there are operations.
///
/// All are submitted at once, those beyond [`ENTRIES_MAX`](crate::ENTRIES_MAX) as room comes, for which the thread waits on the spot. [`Runtime::join_all`](crate::Runtime::join_all) awaits them a few at a time. Of operations of different types make
/// [`boxed`](DeviceOp::boxed) ones.
///
/// Costs an allocation for the operations, one for what they give, one more where that is finished on the host, and else as much as a zip; more than eight cost some for
/// their streams.
///
/// ```
/// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin, all};
/// use wakeline_tensor::Tensor;
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let watcher = VirtualWatcher::new(&device);
/// let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), watcher.clone())?;
/// let reads = all((0..3).map(|n| Tensor::full(2, n as u8).then(|tensor| tensor.to_host())));
/// assert_eq!(watcher.run(reads.on(&runtime))??, [[0, 0], [1, 1], [2, 2]]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub fn all<D: Device, O: IntoDeviceOp<D>>(ops: impl IntoIterator<Item = O>) -> All<O::Op> {
    All { ops: ops.into_iter().map(IntoDeviceOp::into_op).collect() }
}

/// See [`all`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Clone)]
pub struct All<O> {
    ops: Vec<O>,
}

impl<O: DeviceOp> DeviceOp for All<O> {
    type Device = O::Device;
    type Pending = Vec<O::Pending>;
    type Output = Vec<<O as DeviceOp>::Output>;

    fn execute(self, submission: &mut Submission<O::Device>) -> Result<Self::Pending, Error> {
        let mut branches = Branches::new(submission, self.ops.len())?;
        let pending: Result<_, Error> = self.ops.into_iter().map(|op| branches.run(op)).collect();
        let pending = pending?;
        branches.join()?;
        Ok(pending)
    }

    fn finish(pending: Self::Pending) -> Result<<Self as DeviceOp>::Output, Error> {
        pending.into_iter().map(O::finish).collect()
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.ops.iter().all(|op| op.poll_ready(context).is_ready()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    fn entries(&self) -> u32 {
        self.ops.iter().fold(0, |entries, op| entries.saturating_add(op.entries()))
    }
}

device_op!([O] All<O> where O: DeviceOp);

impl<O> fmt::Debug for All<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("All").field("len", &self.ops.len()).finish()
    }
}

/// See [`DeviceOp::in_one_stream`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Clone, Copy, Debug)]
pub struct InOneStream<O>(O);

impl<O> InOneStream<O> {
    pub(crate) const fn new(op: O) -> Self {
        Self(op)
    }
}

impl<O: DeviceOp> DeviceOp for InOneStream<O> {
    type Device = O::Device;
    type Pending = O::Pending;
    type Output = <O as DeviceOp>::Output;

    fn execute(self, submission: &mut Submission<O::Device>) -> Result<O::Pending, Error> {
        // A panic ends the submission, in which nothing branches any more.
        let elsewhere = submission.elsewhere.take();
        let recorded_so = submission.record_in_one_stream(true);
        let pending = self.0.execute(submission);
        submission.elsewhere = elsewhere;
        submission.record_in_one_stream(recorded_so);
        pending
    }

    fn finish(pending: O::Pending) -> Result<<O as DeviceOp>::Output, Error> {
        O::finish(pending)
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_ready(context)
    }

    fn entries(&self) -> u32 {
        self.0.entries()
    }
}

device_op!([O] InOneStream<O> where O: DeviceOp);

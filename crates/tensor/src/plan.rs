//! How one layout is copied to another: in as few calls as there can be, each of rows that are alike.

use smallvec::SmallVec;
use wakeline_core::{Error, within};
use wakeline_ops::port::Rows;

use crate::layout::Layout;

/// How many calls of the device one copy of a view takes at most. Each takes a place in the queue of its stream, which has room for many submissions of a few.
pub const COPY_CALLS_MAX: usize = 64;

/// How far apart the rows of one call may be, in bytes: what devices take.
pub(crate) const PITCH_BYTES_MAX: usize = i32::MAX.unsigned_abs() as usize;

/// A dimension of both: how long, and how far two neighbours are apart, in bytes.
#[derive(Clone, Copy, Debug)]
struct Axis {
    len: usize,
    from: usize,
    to: usize,
}

/// The calls by which all numbers are copied, with offsets from the first number of each side on.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) rows: Rows,
    loops: SmallVec<[Axis; 4]>,
}

impl Plan {
    /// For two layouts of one shape, with numbers of so many bytes.
    pub(crate) fn new(from: &Layout, to: &Layout, bytes_each: usize) -> Self {
        debug_assert_eq!(from.dims(), to.dims());
        let nothing = Rows { len: 0, count: 0, from_pitch: 0, to_pitch: 0 };
        if from.count() == 0 {
            return Self { rows: nothing, loops: SmallVec::new() };
        }
        let mut axes: SmallVec<[Axis; 4]> = SmallVec::new();
        for (axis, len) in from.dims().iter().copied().enumerate().filter(|(_, len)| *len > 1) {
            let next =
                Axis { len, from: from.strides()[axis] * bytes_each, to: to.strides()[axis] * bytes_each };
            match axes.last_mut() {
                // One behind the other on both sides: two dimensions are one.
                Some(last) if last.from == next.from * len && last.to == next.to * len => {
                    *last = Axis { len: last.len * len, ..next };
                }
                _ => axes.push(next),
            }
        }
        let mut len = bytes_each;
        if let Some(last) = axes.last().filter(|last| last.from == bytes_each && last.to == bytes_each) {
            len *= last.len;
            axes.pop();
        }
        // The longest of the others, so that there are as few calls as there can be.
        let fits = |axis: &&Axis| axis.from.max(axis.to) <= PITCH_BYTES_MAX;
        let longest = axes.iter().filter(fits).map(|axis| axis.len).max();
        let rows = match longest.and_then(|len| axes.iter().position(|axis| axis.len == len && fits(&axis))) {
            Some(at) => {
                let Axis { len: count, from, to } = axes.remove(at);
                Rows { len, count, from_pitch: from, to_pitch: to }
            }
            None => Rows { len, count: 1, from_pitch: len, to_pitch: len },
        };
        Self { rows, loops: axes }
    }

    /// How many calls it takes; saturates.
    pub(crate) fn calls(&self) -> usize {
        if self.rows.count == 0 {
            return 0;
        }
        self.loops.iter().fold(1, |calls: usize, axis| calls.saturating_mul(axis.len))
    }

    /// That there are few enough.
    pub(crate) fn bounded(self) -> Result<Self, Error> {
        within("the number of calls by which a view is copied", self.calls(), 0, COPY_CALLS_MAX)?;
        Ok(self)
    }

    /// Calls `call` with both offsets of each, and stops at the first error.
    pub(crate) fn each<E>(&self, mut call: impl FnMut(usize, usize) -> Result<(), E>) -> Result<(), E> {
        for number in 0..self.calls() {
            let (mut rest, mut from, mut to) = (number, 0, 0);
            for axis in self.loops.iter().rev() {
                let index = rest % axis.len;
                rest /= axis.len;
                from += index * axis.from;
                to += index * axis.to;
            }
            call(from, to)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dims::Dims;
    use proptest::prelude::*;

    /// A layout by a few random steps from a whole one, in memory of so many numbers.
    fn layouts() -> impl Strategy<Value = (Layout, usize)> {
        let dims = proptest::collection::vec(0_usize..6, 0..5);
        (dims, proptest::collection::vec((0_u8..3, any::<[prop::sample::Index; 4]>()), 0..5)).prop_map(
            |(dims, steps)| {
                let mut layout = Layout::rows(Dims::from(dims), 1).unwrap();
                let memory = layout.count();
                for (what, [axis, a, b, c]) in steps {
                    let rank = layout.dims().rank();
                    if rank == 0 {
                        continue;
                    }
                    let axis = axis.index(rank);
                    let len = layout.dims()[axis];
                    layout = match what {
                        0 => {
                            let (a, b) = (a.index(len + 1), b.index(len + 1));
                            layout.sliced(axis, a.min(b)..a.max(b), c.index(3) + 1).unwrap()
                        }
                        1 if len > 0 => layout.selected(axis, a.index(len)).unwrap(),
                        1 => layout,
                        _ => {
                            let mut order: Vec<usize> = (0..rank).collect();
                            order.swap(axis, a.index(rank));
                            layout.permuted(&order).unwrap()
                        }
                    };
                }
                (layout, memory)
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// Each number arrives where it belongs, and nothing is touched beside.
        #[test]
        fn a_plan_copies_each_number_once_to_its_place((from, memory) in layouts(), bytes in 1_usize..5) {
            let to = Layout::rows(from.dims().clone(), bytes).unwrap();
            for (one, other) in [(&from, &to), (&to, &from)] {
                let plan = Plan::new(one, other, bytes);
                let source: Vec<u32> = (1..).take(memory.max(to.count()) * bytes).collect();
                let mut target = vec![0; source.len()];
                let Rows { len, count, from_pitch, to_pitch } = plan.rows;
                plan.each(|from, to| {
                    for row in 0..count {
                        for byte in 0..len {
                            let at = one.offset() * bytes + from + row * from_pitch + byte;
                            let room = &mut target[other.offset() * bytes + to + row * to_pitch + byte];
                            assert_eq!(*room, 0, "written once");
                            *room = source[at];
                        }
                    }
                    Ok::<_, ()>(())
                }).unwrap();
                let mut wanted = vec![0; source.len()];
                for (from, to) in one.places().zip(other.places()) {
                    for byte in 0..bytes {
                        wanted[(other.offset() + to) * bytes + byte] = source[(one.offset() + from) * bytes + byte];
                    }
                }
                prop_assert_eq!(target, wanted);
                prop_assert!(count <= 1 || from_pitch.min(to_pitch) >= len, "{:?}", plan);
            }
        }

        /// What lies row by row takes one call, of one row.
        #[test]
        fn what_has_no_gaps_is_one_row((from, _) in layouts(), bytes in 1_usize..5) {
            let to = Layout::rows(from.dims().clone(), bytes).unwrap();
            let plan = Plan::new(&from, &to, bytes);
            if from.is_contiguous() && from.count() > 0 {
                prop_assert_eq!((plan.calls(), plan.rows.count, plan.rows.len), (1, 1, from.count() * bytes));
            }
            prop_assert_eq!(from.extent() >= from.count(), true);
            prop_assert!(from.places().max().is_none_or(|last| last + 1 == from.extent()));
        }
    }
}

//! Views and copies of them, against the same done on the host.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

#[path = "../../ops/tests/common/mod.rs"]
mod common;

use common::Rig;
use proptest::prelude::*;
use proptest::sample::Index;
use wakeline_core::ErrorCode;
use wakeline_ops::DeviceOp;
use wakeline_sim::SimDevice;
use wakeline_tensor::{COPY_CALLS_MAX, Tensor};

/// What a view does, on the host: numbers by their places.
#[derive(Clone, Debug)]
struct Model {
    dims: Vec<usize>,
    numbers: Vec<u32>,
}

impl Model {
    fn new(dims: Vec<usize>) -> Self {
        let len = dims.iter().product();
        Self { dims, numbers: (1..).take(len).collect() }
    }

    /// Each number that is at `index` of the result, by what index it had.
    fn by(&self, dims: Vec<usize>, from: impl Fn(&[usize]) -> Vec<usize>) -> Self {
        let mut numbers = Vec::new();
        let count: usize = dims.iter().product();
        for mut rest in 0..count {
            let mut index = vec![0; dims.len()];
            for axis in (0..dims.len()).rev() {
                index[axis] = rest % dims[axis];
                rest /= dims[axis];
            }
            let at = from(&index).iter().zip(&self.dims).fold(0, |at, (index, len)| at * len + index);
            numbers.push(self.numbers[at]);
        }
        Self { dims, numbers }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Slice(Index, Index, Index, usize),
    Select(Index, Index),
    Swap(Index, Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let any = any::<Index>;
    let step = prop_oneof![
        3 => (any(), any(), any(), 1_usize..4).prop_map(|(a, b, c, d)| Step::Slice(a, b, c, d)),
        1 => (any(), any()).prop_map(|(a, b)| Step::Select(a, b)),
        2 => (any(), any()).prop_map(|(a, b)| Step::Swap(a, b)),
    ];
    proptest::collection::vec(step, 0..5)
}

type Numbers = Tensor<u32, SimDevice>;

fn apply(tensor: &Numbers, model: &Model, step: &Step) -> (Numbers, Model) {
    let rank = model.dims.len();
    if rank == 0 {
        return (tensor.clone(), model.clone());
    }
    match step {
        Step::Slice(axis, a, b, step) => {
            let axis = axis.index(rank);
            let len = model.dims[axis];
            let (a, b) = (a.index(len + 1), b.index(len + 1));
            let (start, end) = (a.min(b), a.max(b));
            let mut dims = model.dims.clone();
            dims[axis] = (end - start).div_ceil(*step);
            let sliced = model.by(dims, |index| {
                let mut index = index.to_vec();
                index[axis] = start + index[axis] * step;
                index
            });
            (tensor.stepped(axis, start..end, *step).unwrap(), sliced)
        }
        Step::Select(axis, at) => {
            let axis = axis.index(rank);
            if model.dims[axis] == 0 {
                return (tensor.clone(), model.clone());
            }
            let at = at.index(model.dims[axis]);
            let mut dims = model.dims.clone();
            dims.remove(axis);
            let selected = model.by(dims, |index| {
                let mut index = index.to_vec();
                index.insert(axis, at);
                index
            });
            (tensor.select(axis, at).unwrap(), selected)
        }
        Step::Swap(a, b) => {
            let mut order: Vec<usize> = (0..rank).collect();
            order.swap(a.index(rank), b.index(rank));
            let dims = order.iter().map(|axis| model.dims[*axis]).collect();
            let permuted = model.by(dims, |index| {
                let mut from = vec![0; rank];
                order.iter().zip(index).for_each(|(axis, index)| from[*axis] = *index);
                from
            });
            (tensor.permute(&order).unwrap(), permuted)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_view_reads_copies_and_is_written_as_the_host_says(
        dims in proptest::collection::vec(0_usize..5, 0..4),
        steps in steps(),
    ) {
        let rig = Rig::new();
        let mut model = Model::new(dims.clone());
        let whole = rig.run(Tensor::from_shaped(dims, model.numbers.clone()).on(&rig.runtime)).unwrap();
        let mut view = whole.clone();
        for step in &steps {
            (view, model) = apply(&view, &model, step);
        }
        prop_assert_eq!(view.shape(), &model.dims[..]);
        prop_assert_eq!(&rig.run(view.to_host().on(&rig.runtime)).unwrap(), &model.numbers);
        let copy = rig.run(view.dup().on(&rig.runtime)).unwrap();
        prop_assert!(copy.is_contiguous());
        prop_assert_eq!(&rig.run(copy.to_host().on(&rig.runtime)).unwrap(), &model.numbers);
        // Written in place: only its own numbers change.
        let before = rig.run(whole.to_host().on(&rig.runtime)).unwrap();
        drop(whole);
        let other: Vec<u32> = model.numbers.iter().map(|number| number + 10_000).collect();
        let shape = view.shape().to_vec();
        let source = rig.run(Tensor::from_shaped(shape, other.clone()).on(&rig.runtime)).unwrap();
        let view = rig.run(source.copy_to(view).on(&rig.runtime)).unwrap();
        prop_assert_eq!(&rig.run(view.to_host().on(&rig.runtime)).unwrap(), &other);
        let view = rig.run(view.overwrite(model.numbers.clone()).on(&rig.runtime)).unwrap();
        prop_assert_eq!(&rig.run(view.to_host().on(&rig.runtime)).unwrap(), &model.numbers);
        drop((before, copy, source, view));
        rig.assert_clean();
    }
}

#[test]
fn a_view_of_too_many_pieces_is_read_by_the_host_and_not_copied_by_the_device() {
    let rig = Rig::new();
    let len = COPY_CALLS_MAX + 1;
    let table =
        rig.run(Tensor::arange(0_u32, 1, len * len).on(&rig.runtime)).unwrap().reshape([len, len]).unwrap();
    let turned = table.transpose().unwrap();
    let at = |at: usize| u32::try_from(at % len * len + at / len).unwrap();
    let wanted: Vec<u32> = (0..len * len).map(at).collect();
    assert_eq!(rig.run(turned.to_host().on(&rig.runtime)).unwrap(), wanted);
    let error = rig.run(turned.dup().on(&rig.runtime)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidLimit);
    assert!(error.to_string().contains("65, but must be from 0 to 64"), "{error}");
    // One dimension less of it takes as many calls as there may be.
    let part = turned.slice(0, ..COPY_CALLS_MAX).unwrap();
    let copy = rig.run(part.dup().on(&rig.runtime)).unwrap();
    assert_eq!(rig.run(copy.to_host().on(&rig.runtime)).unwrap(), wanted[..COPY_CALLS_MAX * len]);
    drop((table, turned, part, copy));
    rig.assert_clean();
}

#[test]
fn what_a_view_is_not_is_told_with_the_shape_and_what_would_be_right() {
    let rig = Rig::new();
    let table: Numbers = rig.run(Tensor::zeros([2, 3]).on(&rig.runtime)).unwrap();
    let wrong = [
        (table.slice(2, ..).unwrap_err(), "shape [2, 3]: it has no dimension 2: there are 2, counted from 0"),
        (table.slice(1, 1..5).unwrap_err(), "shape [2, 3]: there is no 1..5 along dimension 1: it is 3 long"),
        (table.slice(1, ..=usize::MAX).unwrap_err(), "it is 3 long"),
        (table.stepped(0, .., 0).unwrap_err(), "must be at least 1, but is 0"),
        (
            table.select(0, 2).unwrap_err(),
            "shape [2, 3]: there is no 2 along dimension 0: it is 2 long, counted from 0",
        ),
        (table.permute(&[0, 0]).unwrap_err(), "[0, 0] is no order of its 2 dimension(s): name each once"),
        (table.select(0, 0).unwrap().transpose().unwrap_err(), "two are needed"),
        (
            table.transpose().unwrap().reshape(6).unwrap_err(),
            "its numbers do not lie row by row; copy it first (`dup`)",
        ),
        (table.clone().reshape([4, 2]).unwrap_err(), "shape [4, 2]: it has 8 number(s), but [2, 3] has 6"),
    ];
    for (error, text) in wrong {
        assert_eq!(error.code(), ErrorCode::InvalidShape);
        assert!(error.to_string().contains(text), "{error} where {text} was wanted");
    }
    drop(table);
    rig.assert_clean();
}

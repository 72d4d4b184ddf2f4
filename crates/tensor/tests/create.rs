//! Tensors as they are made: of every element, of no number, of more than there can be.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

#[path = "../../ops/tests/common/mod.rs"]
mod common;

use common::Rig;
use half::{bf16, f16};
use proptest::prelude::*;
use wakeline_core::ErrorCode;
use wakeline_ops::{DeviceOp, all};
use wakeline_sim::SimDevice;
use wakeline_tensor::{Dims, Element, Float, Number, Pools, Tensor};

fn back<T: Element>(
    rig: &Rig,
    op: impl DeviceOp<Device = SimDevice, Pending = Tensor<T, SimDevice>, Output = Tensor<T, SimDevice>>,
) -> Vec<T> {
    rig.run(op.then(|tensor| tensor.to_host()).on(&rig.runtime)).unwrap()
}

fn made_of<T: Number + PartialEq + std::fmt::Debug>(rig: &Rig, some: T) {
    assert_eq!(back(rig, Tensor::<T, _>::zeros(5)), [T::ZERO; 5]);
    assert_eq!(back(rig, Tensor::<T, _>::ones([2, 3])), [T::ONE; 6]);
    assert_eq!(back(rig, Tensor::full([], some)), [some]);
    assert_eq!(back(rig, Tensor::full([3, 1], some)), [some; 3]);
    assert_eq!(back(rig, Tensor::full([3, 0, 7], some)), []);
    // More than is sent at first, where numbers are sent; and no multiple of it.
    assert_eq!(back(rig, Tensor::full(20_001, some)), vec![some; 20_001]);
    assert_eq!(back(rig, Tensor::from_host(vec![some, T::ONE, T::ZERO])), [some, T::ONE, T::ZERO]);
    assert_eq!(back(rig, Tensor::from_host(Vec::<T>::new())), []);
    let steps =
        |len: usize| -> Vec<T> { (0..len).map(|index| T::ZERO.nth(T::ONE, index).unwrap()).collect() };
    assert_eq!(back(rig, Tensor::arange(T::ZERO, T::ONE, 100)), steps(100));
    assert_eq!(back(rig, Tensor::<T, _>::eye(2, 2)), [T::ONE, T::ZERO, T::ZERO, T::ONE]);
    assert_eq!(back(rig, Tensor::<T, _>::eye(3, 1)), [T::ONE, T::ZERO, T::ZERO]);
    assert_eq!(back(rig, Tensor::<T, _>::eye(0, 4)), []);
}

#[test]
fn tensors_of_every_element_are_made_and_come_back() {
    let rig = Rig::new();
    made_of::<u8>(&rig, 0x12);
    made_of::<u16>(&rig, 0x1234);
    made_of::<u32>(&rig, 0x1234_5678);
    made_of::<u64>(&rig, 0x1234_5678_9abc_def0);
    made_of::<i8>(&rig, -3);
    made_of::<i16>(&rig, -300);
    made_of::<i32>(&rig, -70_000);
    made_of::<i64>(&rig, -5_000_000_000);
    made_of::<f32>(&rig, 1.5e-7);
    made_of::<f64>(&rig, 1.0 / 3.0);
    made_of::<f16>(&rig, f16::from_f32(0.1));
    made_of::<bf16>(&rig, bf16::from_f32(0.1));
    assert_eq!(back(&rig, Tensor::from_host(vec![true, false, true])), [true, false, true]);
    assert_eq!(back(&rig, Tensor::full(3, true)), [true; 3]);
    assert_eq!(back(&rig, Tensor::<bool, _>::zeros(2)), [false; 2]);
    rig.assert_clean();
}

#[test]
fn what_is_filled_is_not_sent_and_what_is_sent_is_little() {
    let rig = Rig::new();
    let made: Tensor<f32, SimDevice> = rig.run(Tensor::full([1_000, 1_000], 1.5).on(&rig.runtime)).unwrap();
    assert_eq!(
        rig.device.pinned_pool().high_water_bytes,
        0,
        "a number of four bytes is filled in by the device"
    );
    drop(made);
    let made: Tensor<f64, SimDevice> =
        rig.run(Tensor::full([1_000, 1_000], 1.5e-9).on(&rig.runtime)).unwrap();
    assert_eq!(rig.device.pinned_pool().high_water_bytes, 64 << 10);
    drop(made);
    rig.assert_clean();
}

#[test]
fn nothing_is_made_of_a_shape_that_cannot_be_and_the_error_is_the_operations() {
    let rig = Rig::new();
    let codes = [
        rig.run(Tensor::<f64, SimDevice>::zeros([1 << 30, 1 << 31]).on(&rig.runtime)).unwrap_err(),
        rig.run(Tensor::<f64, SimDevice>::uninit(usize::MAX).on(&rig.runtime)).unwrap_err(),
        rig.run(Tensor::<f32, SimDevice>::rand(vec![2; 70], 1).on(&rig.runtime)).unwrap_err(),
        rig.run(Tensor::<u8, SimDevice>::eye(usize::MAX, 2).on(&rig.runtime)).unwrap_err(),
        rig.run(Tensor::<_, SimDevice>::from_shaped([2, 2], vec![1_u8, 2, 3]).on(&rig.runtime)).unwrap_err(),
    ];
    assert!(codes.iter().all(|error| error.code() == ErrorCode::InvalidShape), "{codes:?}");
    assert!(codes[4].to_string().contains("it has 4 number(s), but 3 were handed in"), "{}", codes[4]);
    rig.assert_clean();
}

#[test]
fn a_sequence_that_leaves_its_range_is_an_error_that_says_how_long_it_may_be() {
    let rig = Rig::new();
    let error = rig.run(Tensor::<_, SimDevice>::arange(250_u8, 2, 4).on(&rig.runtime)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidLimit);
    assert!(
        error.to_string().contains("sequence of u8") && error.to_string().contains("from 0 to 3"),
        "{error}"
    );
    assert_eq!(back(&rig, Tensor::arange(250_u8, 2, 3)), [250, 252, 254]);
    assert_eq!(back(&rig, Tensor::arange(i64::MIN, i64::MAX, 3)), [i64::MIN, -1, i64::MAX - 1]);
    assert_eq!(back(&rig, Tensor::arange(5_i32, -2, 4)), [5, 3, 1, -1]);
    rig.assert_clean();
}

#[test]
fn a_line_begins_and_ends_where_it_is_said() {
    let rig = Rig::new();
    let line = back(&rig, Tensor::<f64, _>::linspace(0.1, 0.7, 1_001));
    assert_eq!((line[0].to_bits(), line[1_000].to_bits()), (0.1_f64.to_bits(), 0.7_f64.to_bits()));
    assert!(line.windows(2).all(|two| two[0] < two[1]));
    assert_eq!(back(&rig, Tensor::<f16, _>::linspace(2.0, 9.0, 1)), [f16::from_f32(2.0)]);
    assert_eq!(back(&rig, Tensor::<f32, _>::linspace(2.0, 9.0, 0)), []);
    // Where the ends are infinite, or too far apart for their difference, too.
    assert_eq!(back(&rig, Tensor::<f64, _>::linspace(3.5, f64::INFINITY, 1)), [3.5]);
    let infinite = back(&rig, Tensor::<f64, _>::linspace(0.0, f64::INFINITY, 3));
    assert_eq!(infinite, [0.0, f64::INFINITY, f64::INFINITY]);
    assert_eq!(back(&rig, Tensor::<f64, _>::linspace(-f64::MAX, f64::MAX, 2)), [-f64::MAX, f64::MAX]);
    let both = back(&rig, Tensor::<f32, _>::linspace(f64::NEG_INFINITY, f64::INFINITY, 2));
    assert_eq!(both, [f32::NEG_INFINITY, f32::INFINITY]);
    rig.assert_clean();
}

fn alike<T: Float + PartialEq + std::fmt::Debug>(rig: &Rig, dims: &Dims, seed: u64) {
    let len = dims.numbers(T::BYTES).unwrap();
    for normal in [false, true] {
        let make = |dims: &Dims| {
            if normal { Tensor::<T, SimDevice>::randn(dims, seed) } else { Tensor::rand(dims, seed) }
        };
        let numbers = back(rig, make(dims));
        assert_eq!(numbers, back(rig, make(&Dims::from(len))), "whatever the shape");
        // A longer tensor begins with the same numbers.
        let longer = back(rig, make(&Dims::from(len + 700)));
        assert_eq!(numbers[..], longer[..len]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_numbers_are_those_of_their_seed_and_place(a in 1_usize..40, b in 1_usize..40, seed in any::<u64>()) {
        let (rig, dims) = (Rig::new(), Dims::from([a, b]));
        alike::<f32>(&rig, &dims, seed);
        alike::<f64>(&rig, &dims, seed);
        alike::<f16>(&rig, &dims, seed);
        alike::<bf16>(&rig, &dims, seed);
        rig.assert_clean();
    }
}

/// Written down once, so that no later version gives others.
#[test]
fn random_numbers_are_the_same_in_every_version() {
    let rig = Rig::new();
    // The first block of seed 0 is the generator's known answer: 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
    let words = [0x6627_e8d5_u32, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
    let uniform = words.map(|word| f64::from(word >> 8) / f64::from(1 << 24));
    let got: Vec<f64> = back(&rig, Tensor::<f32, _>::rand(4, 0)).into_iter().map(f64::from).collect();
    assert_eq!(got, uniform);
    // Of another program, by the formula in the documentation.
    let wanted =
        [-0.665_374_867_807_348_6, 1.036_023_808_655_465, -1.433_889_180_653_738_4, 0.423_278_181_244_452_7];
    let normal = back(&rig, Tensor::<f64, _>::randn(4, 42));
    assert!(normal.iter().zip(wanted).all(|(got, wanted)| (got - wanted).abs() < 1e-14), "{normal:?}");
    rig.assert_clean();
}

#[test]
fn many_are_made_at_a_time_in_several_streams() {
    let rig = Rig::new();
    let ops = (0..20_u64).map(|seed| Tensor::<f32, _>::rand(100, seed).then(|tensor| tensor.to_host()));
    let read = rig.run(all(ops.collect::<Vec<_>>()).on(&rig.runtime)).unwrap();
    for (seed, numbers) in (0..).zip(read) {
        assert_eq!(numbers, back(&rig, Tensor::<f32, _>::rand(100, seed)));
    }
    rig.assert_clean();
}

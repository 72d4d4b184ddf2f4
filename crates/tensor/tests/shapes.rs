//! Shapes: what can be counted is, and what cannot is told with what is too long.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use wakeline_core::ErrorCode;
use wakeline_tensor::{Dims, RANK_MAX};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_shape_has_as_many_numbers_as_wide_arithmetic_says_or_is_an_error(
        dims in proptest::collection::vec(prop_oneof![0_usize..5, any::<usize>(), Just(1 << 31), Just(usize::MAX)], 0..6),
        bytes in prop_oneof![Just(1_usize), Just(2), Just(4), Just(8)],
    ) {
        let wanted = if dims.contains(&0) {
            Some(0)
        } else {
            dims.iter().try_fold(1_u128, |product, len| product.checked_mul(*len as u128))
        };
        let wanted = wanted.filter(|count| *count <= isize::MAX as u128 / bytes as u128);
        let shape = Dims::from(dims.clone());
        match (shape.numbers(bytes), wanted) {
            (Ok(count), Some(wanted)) => prop_assert_eq!(count as u128, wanted),
            (Err(error), None) => {
                prop_assert_eq!(error.code(), ErrorCode::InvalidShape);
                prop_assert_eq!(error.args()[0].clone(), format!("{dims:?}"));
            }
            (got, wanted) => prop_assert!(false, "{:?} where {:?} was wanted", got, wanted),
        }
    }
}

#[test]
fn an_error_of_a_shape_says_where_it_overflows_and_what_there_may_be() {
    let error = Dims::from([2, 1 << 40, 1 << 40]).numbers(4).unwrap_err();
    assert_eq!(
        error.to_string(),
        "shape [2, 1099511627776, 1099511627776]: with dimension 2 it has more numbers than memory can hold: at most 2305843009213693951 of 4 byte(s) each"
    );
    let error = Dims::from(vec![1; RANK_MAX + 1]).numbers(1).unwrap_err();
    assert!(error.to_string().contains("17 dimensions, but there may be at most 16"), "{error}");
    assert_eq!(Dims::from(vec![1; RANK_MAX]).numbers(1).unwrap(), 1);
    assert_eq!(Dims::default().numbers(8).unwrap(), 1, "the shape of one number");
    assert_eq!(Dims::from([usize::MAX, 0, usize::MAX]).numbers(8).unwrap(), 0);
}

//! Picking rows of a trace in stretches that are spread evenly over it.

/// Whether row `index` of `of` is among the `count` that are picked: `of` is cut into equal sections, and the first rows of each
/// are picked, `stretch` of them or a few more. Without enough for one stretch there is a shorter one at the beginning.
///
/// Fewer than `count` are picked where it does not divide by the number of sections.
///
/// ```
/// use wakeline_examples::stretches::picks;
/// let picked: Vec<u64> = (0..12).filter(|row| picks(*row, 12, 6, 3)).collect();
/// assert_eq!(picked, [0, 1, 2, 6, 7, 8]);
/// ```
pub fn picks(index: u64, of: u64, count: u64, stretch: u64) -> bool {
    if count >= of {
        return true;
    }
    let sections = sections(count, stretch);
    let section = u128::from(index) * u128::from(sections) / u128::from(of);
    let start = (section * u128::from(of)).div_ceil(sections.into());
    u128::from(index) - start < u128::from(count / sections)
}

fn sections(count: u64, stretch: u64) -> u64 {
    count.checked_div(stretch).unwrap_or(0).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRETCH: u64 = 32;

    fn picked(of: u64, count: u64) -> Vec<u64> {
        (0..of).filter(|index| picks(*index, of, count, STRETCH)).collect()
    }

    #[test]
    fn what_is_picked_is_spread_in_stretches() {
        for (of, count) in [(2_400, 600), (400, 33), (100, 7), (7, 7), (5, 9), (1_126, 1_000)] {
            let picked = picked(of, count);
            let (number, sections) = (picked.len() as u64, sections(count, STRETCH));
            assert!(number <= count && number + sections > count.min(of), "{of} {count}: {number}");
            let breaks = picked.windows(2).filter(|pair| pair[1] != pair[0] + 1).count() as u64;
            assert!(breaks < sections, "{of} {count}: {breaks} breaks");
        }
    }

    #[test]
    fn stretches_begin_at_equal_distances() {
        assert_eq!(picked(300, 96), [0..32, 100..132, 200..232].into_iter().flatten().collect::<Vec<_>>());
    }

    #[test]
    fn the_longest_trace_and_no_stretch_at_all_are_fine() {
        assert!(picks(0, u64::MAX, 64, STRETCH) && !picks(u64::MAX - 1, u64::MAX, 64, STRETCH));
        assert!(picks(0, 10, 2, 0) && !picks(2, 10, 2, 0) && !picks(0, 10, 0, STRETCH));
    }
}

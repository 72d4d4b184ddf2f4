//! The hot path in nanoseconds, by divan: `cargo bench -p wakeline-benches`. Times of one machine; the guard is the instruction
//! counts of `cargo xtask instructions`.

use wakeline_benches::micro::CASES;

/// How often a case runs in a sample, so that its start does not count.
const RUNS: u32 = 1_000;

fn main() {
    divan::main();
}

#[divan::bench(args = CASES.map(|(name, _)| name))]
fn hot_path(bencher: divan::Bencher<'_, '_>, name: &str) {
    let case = CASES.iter().find(|(case, _)| *case == name).map(|(_, case)| case);
    bencher.counter(divan::counter::ItemsCount::new(RUNS)).bench(|| case.map(|case| case(RUNS.into())));
}

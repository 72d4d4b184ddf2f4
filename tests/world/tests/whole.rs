//! Whole programs from seeds, as many as fit into a test; `cargo xtask soak` runs more.

use wakeline_world::kinds::{Kind, Total};
use wakeline_world::script::{Part, Script};
use wakeline_world::shrink;

#[test]
fn whole_programs_keep_every_promise() {
    let mut total = Total::default();
    for seed in 0..600 {
        match Kind::Whole.run(seed, &Script::all()) {
            Ok(one) => total += one,
            Err(broken) => {
                panic!("seed {seed}: {broken}; cargo xtask soak --seeds 1 --seed {seed} --kind whole")
            }
        }
    }
    let Total { programs, waits, done, flights, leaked, streams, polls } = total;
    let drawn = programs == 600 && waits > 10_000 && done > waits / 8 && polls > flights / 4;
    let mixed = (flights / 50..flights / 2).contains(&leaked) && streams > 20 * programs;
    assert!(drawn && mixed, "the draw has become one-sided: {total:?}");
}

#[test]
fn a_program_is_the_same_every_time() {
    for kind in Kind::ALL {
        for seed in 0..40 {
            let run = || {
                let script = Script::traced(None);
                let result = kind.run(seed, &script);
                (result, script.ran(), script.lines())
            };
            assert_eq!(run(), run(), "{kind}, seed {seed}");
        }
    }
}

#[test]
fn parts_that_are_left_out_change_no_draw_of_others() {
    for seed in 0..40 {
        let script = Script::traced(None);
        Kind::Whole.run(seed, &script).unwrap();
        let faults = script.ran().into_iter().filter(|part| matches!(part, Part::Fault(..))).collect();
        let alone = Script::traced(Some(faults));
        Kind::Whole.run(seed, &alone).unwrap();
        let devices = |script: &Script| -> Vec<String> {
            script.lines().into_iter().filter(|line| line.starts_with("device ")).collect()
        };
        if script.lines().len() < wakeline_world::script::LINES_MAX {
            assert_eq!(devices(&alone), devices(&script), "seed {seed}");
        }
    }
}

#[test]
fn what_holds_is_not_made_smaller() {
    assert!(shrink::shrink(Kind::Whole, 1, None).is_none());
}

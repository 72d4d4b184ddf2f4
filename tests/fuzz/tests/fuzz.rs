//! Hostile inputs, as many as fit into a test; `cargo xtask fuzz` reads more.

use wakeline_fuzz::run;
use wakeline_fuzz::targets::Target;

#[test]
fn what_is_promised_of_any_input_holds() {
    for target in Target::ALL {
        let corpus = run::begin(&run::corpus(target)).unwrap();
        assert!(corpus.len() > 3, "{}: what it begins with", target.name());
        let outcome = run::run(target, corpus, 20_000, 1);
        assert_eq!(outcome.broken, None, "{}", target.name());
        assert!(outcome.told >= 8, "{}: {} different things told", target.name(), outcome.told);
    }
}

#[test]
fn a_seed_gives_the_same_inputs_every_time() {
    for target in Target::ALL {
        let corpus = || run::begin(&run::corpus(target)).unwrap();
        assert_eq!(run::run(target, corpus(), 2_000, 7), run::run(target, corpus(), 2_000, 7));
    }
}

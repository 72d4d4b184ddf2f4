//! Nothing but the tests in `tests/`, of the examples on a stand-in for the driver: beside the examples, whoever runs one would build the
//! stand-in first. They run what `cargo test --workspace` has built; by themselves: `cargo build --examples`, then `cargo test -p wakeline-examples-tests`.

#![forbid(unsafe_code)]

//! Tests over several crates of wakeline.

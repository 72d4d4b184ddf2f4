//! Benchmarks of wakeline.

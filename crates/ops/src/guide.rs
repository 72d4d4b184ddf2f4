//! How to do what takes more than one page of this crate.

/// How to write a policy.
#[doc = include_str!("../docs/policies.md")]
pub mod policies {}

//! What the examples of wakeline share.
//!
//! | module | what |
//! |---|---|
//! | [`stretches`] | picks rows in stretches that are spread evenly |
//! | [`tokens`] | a tokeniser: real work for a host to do while it waits |

#![forbid(unsafe_code)]

pub mod stretches;
pub mod tokens;

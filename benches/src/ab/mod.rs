//! A/B runs: what is measured, how it is kept, how it is shown.
//!
//! | here | what |
//! |---|---|
//! | [`schema`] | the lines of a run's file |

pub mod schema;

//! A/B runs: what is measured, how it is kept, how it is shown.
//!
//! | here | what |
//! |---|---|
//! | [`schema`] | the lines of a run's file |
//! | [`report`] | `bench report`: runs as a table and as a page, compared, and guarded in CI |

pub mod report;
pub mod schema;

//! What is made of runs' files: a table, a page, what changed from one to another, whether a condition holds.
//!
//! | here | what |
//! |---|---|
//! | [`RunFile`] | reads one |
//! | [`table()`] | shows it in a terminal |
//! | [`page()`] | shows runs and their comparisons as one self-contained HTML page |
//! | [`Comparison`] | what changed from one run to another; by [`Difference`], Welch's interval |
//! | [`Condition`] | `--fail-if`: guards a ratio or a count |
//! | [`main_report`] | the program over all of them |
//!
//! Nothing here measures: it reads files of the [`schema`](super::schema), whoever wrote them, and trusts no text in them.

mod compare;
mod condition;
mod digits;
mod limits;
mod names;
mod page;
mod program;
mod read;
mod table;
mod welch;

pub use compare::{Comparison, ROUNDS_MIN, Row, Verdict, Why};
pub use condition::{Condition, Judged, Outcome, ParseError, Quantity, Test, Unjudged};
pub use names::COUNTS;
pub use page::page;
pub(in crate::ab) use program::is_same;
pub use program::{USAGE, main_report};
pub use read::{KNOWN, ReadError, ReadFault, RunFile};
pub use table::table;
pub use welch::Difference;

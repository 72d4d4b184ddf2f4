//! The rules, a file a subject. Each takes the project and returns what it found; none stops at the first.

pub(crate) mod arrows;
pub(crate) mod docs;
pub(crate) mod error_codes;
pub(crate) mod files;
pub(crate) mod knows;
pub(crate) mod links;
pub(crate) mod table;
pub(crate) mod unsafe_code;
pub(crate) mod words;

use super::finding::Finding;
use super::project::Project;

/// Where the arrows and the places of unsafe code are written down.
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// All rules.
pub(crate) const ALL: &[fn(&Project) -> Vec<Finding>] = &[
    arrows::check,
    docs::check,
    error_codes::check,
    files::check,
    knows::check,
    links::check,
    table::check,
    unsafe_code::check,
    words::check,
];

//! What is made of an A/B run's file: the table, the page, comparisons, conditions, and the program over them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod compare;
mod condition;
mod foreign;
mod page;
mod program;
mod synthetic;
mod table;

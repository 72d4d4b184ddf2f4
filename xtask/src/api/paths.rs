//! Paths as a user writes them. Of a type of another package rustdoc tells the module that it stands in, which may be private: a file that is moved
//! there would read as a break here.

use std::collections::BTreeSet;

/// The path that a line is about: the first in it, without arguments.
pub(crate) fn of(line: &str) -> Option<&str> {
    line.split(ENDS).map(|word| word.trim_end_matches(':')).find(|word| word.contains("::"))
}

/// What a path ends at.
const ENDS: [char; 8] = ['(', ')', '<', '>', ' ', ',', '{', '='];

/// `line` with each path of a private module as the public one of the same name, where there is one.
pub(crate) fn publicly(line: &str, public: &BTreeSet<String>) -> String {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find("wakeline") {
        text.push_str(&rest[..start]);
        let path = &rest[start..];
        let end = path.find(|c| !is_path(c)).unwrap_or(path.len());
        text.push_str(&shorter(&path[..end], public));
        rest = &path[end..];
    }
    text + rest
}

/// The nearest public path: modules are left out from the right.
fn shorter(path: &str, public: &BTreeSet<String>) -> String {
    let mut modules: Vec<&str> = path.split("::").collect();
    let Some(name) = modules.pop() else { return path.to_owned() };
    while !modules.is_empty() {
        let candidate = format!("{}::{name}", modules.join("::"));
        if public.contains(&candidate) {
            return candidate;
        }
        modules.pop();
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_other_packages_have_the_paths_that_users_write() {
        let public = ["wakeline_core::WaitPlan", "wakeline_ops::port::Part", "wakeline_ops::Part"];
        let public = public.map(str::to_owned).into();
        let line = "pub fn wakeline_std::wait(&wakeline_core::plan::WaitPlan) -> wakeline_ops::port::parts::Part<wakeline_ops::own::Part>";
        let wanted = "pub fn wakeline_std::wait(&wakeline_core::WaitPlan) -> wakeline_ops::port::Part<wakeline_ops::Part>";
        assert_eq!(publicly(line, &public), wanted);
        assert_eq!(
            publicly("impl Clone for wakeline_ops::own::Hidden", &public),
            "impl Clone for wakeline_ops::own::Hidden"
        );
        assert_eq!(of("pub const fn w::copy::Plan::pieces(&self) -> usize"), Some("w::copy::Plan::pieces"));
        assert_eq!(of("pub w::Dup::0: w::Tensor<T>"), Some("w::Dup::0"));
        assert_eq!(of("#[non_exhaustive] pub struct w::A"), Some("w::A"));
    }
}

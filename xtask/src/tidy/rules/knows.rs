//! What each crate may know: no platform in the core, no driver in a host, no thread in a backend, no environment
//! outside the facade. Code for tests is free of all but the environment.

use std::collections::BTreeSet;

use crate::tidy::finding::{Finding, Rule};
use crate::tidy::items::Item;
use crate::tidy::project::Project;
use crate::tidy::source::{Line, find_words, has_word, is_word};

const CORE: &str = "crates/core/src/";
const CORE_ROOT: &str = "crates/core/src/lib.rs";
const BACKENDS: &str = "crates/backends/";

/// Where the environment may be read: the facade, for settings and its compiler, and the development tasks.
const READS_ENV: &[&str] = &["crates/wakeline/", "xtask/"];

/// Crates in which no driver may be named.
const DRIVERLESS: &[&str] = &["crates/core/", "crates/hosts/", "crates/ops/", "crates/tensor/"];

/// Words that name a driver or its maker, alone or inside an identifier.
const DRIVER_WORDS: &[&str] =
    &["cuda", "cudart", "hip", "hsa", "libcuda", "metal", "nvidia", "nvml", "rocm", "vulkan"];

/// What the identifiers of a driver's interface begin with, before a capital letter.
const DRIVER_PREFIXES: &[&str] = &["cu", "hip", "MTL"];

pub(crate) fn check(project: &Project) -> Vec<Finding> {
    let mut findings = core_root(project);
    findings.extend(core(project));
    findings.extend(statics(project));
    findings.extend(environment(project));
    findings.extend(drivers(project));
    findings.extend(threads(project));
    findings
}

fn core_root(project: &Project) -> Vec<Finding> {
    let wanted = [(Rule::NoStd, "#![no_std]"), (Rule::ForbidUnsafe, "#![forbid(unsafe_code)]")];
    let lines = project.sources.get(CORE_ROOT).map_or(&[][..], |source| &source.lines);
    let absent = wanted.iter().filter(|(_, what)| !lines.iter().any(|line| line.code.trim() == *what));
    absent
        .map(|(rule, what)| Finding::file(CORE_ROOT, *rule, format!("`{what}` is missing"), "add it"))
        .collect()
}

fn core(project: &Project) -> Vec<Finding> {
    let ports: BTreeSet<&str> =
        project.sources_in(&[CORE]).flat_map(|(_, source)| &source.items).filter_map(trait_name).collect();
    let mut findings = Vec::new();
    for (path, source) in project.sources_in(&[CORE]) {
        for (number, line) in source.shipped_lines() {
            if has_word(&line.code, "std::") || has_word(&line.code, "extern crate std") {
                let right = "the core has core and alloc; what needs more belongs into a host";
                findings.push(Finding::at(path, number, Rule::CoreStd, "the core uses std", right));
            }
            let objects = find_words(&line.code, "dyn").map(|at| object_trait(&line.code[at..]));
            for port in objects.filter(|name| ports.contains(name)) {
                let right = "take it as a type parameter: the compiler sees through a wait down to the load of the word";
                findings.push(Finding::at(
                    path,
                    number,
                    Rule::CoreDyn,
                    format!("`dyn {port}` in the core"),
                    right,
                ));
            }
        }
    }
    findings
}

/// The name of a trait that is declared here.
fn trait_name(item: &Item) -> Option<&str> {
    let head = item.bare_head();
    let after = head[find_words(head, "trait").next()? + "trait".len()..].trim_start();
    Some(after.split(|c| !is_word(c)).next().unwrap_or(after))
}

/// The `Error` of `dyn core::error::Error + ..`.
fn object_trait(from_dyn: &str) -> &str {
    let after = from_dyn["dyn".len()..].trim_start();
    let path = after.split(|c| !is_word(c) && c != ':').next().unwrap_or("");
    path.rsplit("::").next().unwrap_or(path)
}

fn statics(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in project.sources_in(&[CORE, BACKENDS]) {
        for (number, line) in source.shipped_lines() {
            let is_item =
                |at: usize| !line.code[..at].ends_with('\'') && line.code[at..].starts_with("static ");
            let is_static =
                find_words(&line.code, "static").any(is_item) || has_word(&line.code, "thread_local!");
            if is_static {
                let right =
                    "keep it in a value that the user owns; the loaded library alone may be process-wide";
                findings.push(Finding::at(path, number, Rule::Static, "process-wide state", right));
            }
        }
    }
    findings
}

fn environment(project: &Project) -> Vec<Finding> {
    let elsewhere = |(path, _): &(&str, _)| !READS_ENV.iter().any(|folder| path.starts_with(folder));
    let mut findings = Vec::new();
    for (path, source) in project.sources_in(&[""]).filter(elsewhere) {
        // Programs may read their arguments; libraries may not.
        let library = path.starts_with("crates/");
        for (number, line) in source.numbered_lines() {
            if has_word(&line.code, "getenv") || reads_environment(&line.code, library) {
                let right = "take it as a value; variables are read in the facade (crates/wakeline) only";
                findings.push(Finding::at(path, number, Rule::Env, "reads the process's environment", right));
            }
        }
    }
    findings
}

/// Whether the code names something of `std::env` that is not allowed there. `env!(..)` is of the build, and fine.
fn reads_environment(code: &str, library: bool) -> bool {
    if library && find_words(code, "std::env").any(|at| !code[at..].starts_with("std::env!")) {
        return true;
    }
    let names_variable =
        |word: &str| ["var", "set_var", "remove_var"].iter().any(|start| word.starts_with(start));
    find_words(code, "env::").any(|at| {
        let mut words = code[at + "env::".len()..].split(|c| !is_word(c)).filter(|word| !word.is_empty());
        let in_braces = code[at + "env::".len()..].starts_with('{');
        library || words.next().is_some_and(names_variable) || (in_braces && words.any(names_variable))
    })
}

fn drivers(project: &Project) -> Vec<Finding> {
    let right = "ask through a port; drivers are named in crates/backends and in the facade";
    let mut findings = Vec::new();
    for (path, source) in project.sources_in(DRIVERLESS) {
        for (number, line) in source.shipped_lines() {
            if let Some(name) = driver_in(line) {
                findings.push(Finding::at(
                    path,
                    number,
                    Rule::DriverName,
                    format!("names the driver `{name}`"),
                    right,
                ));
            }
        }
    }
    for package in &project.packages {
        let manifest = format!("{}/Cargo.toml", package.folder());
        if !DRIVERLESS.iter().any(|folder| manifest.starts_with(folder)) {
            continue;
        }
        for dependency in package.dependencies.iter().filter(|dependency| is_driver(&dependency.name)) {
            let wrong = format!("depends on the driver's crate `{}`", dependency.name);
            findings.push(Finding::file(&manifest, Rule::DriverName, wrong, right));
        }
    }
    findings
}

fn driver_in(line: &Line) -> Option<&str> {
    let texts = std::iter::once(&line.code).chain(&line.strings);
    texts.flat_map(|text| text.split(|c| !is_word(c))).find(|word| is_driver(word))
}

fn is_driver(name: &str) -> bool {
    let is_type = |rest: &str| rest.starts_with(char::is_lowercase);
    let is_call = |rest: &str| rest.starts_with(char::is_uppercase) && rest.contains(char::is_lowercase);
    name.strip_prefix("CU").is_some_and(is_type)
        || DRIVER_PREFIXES.iter().any(|prefix| name.strip_prefix(prefix).is_some_and(is_call))
        || words(name).iter().any(|word| DRIVER_WORDS.contains(&word.as_str()))
}

/// The words of an identifier in any case, in small letters.
fn words(name: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut after_small = false;
    for c in name.chars() {
        let starts = c == '_' || c == '-' || (c.is_uppercase() && after_small);
        if starts {
            all.push(String::new());
        }
        after_small = c.is_lowercase() || c.is_numeric();
        if let Some(last) = all.last_mut().filter(|_| is_word(c) && c != '_') {
            last.extend(c.to_lowercase());
        }
    }
    all
}

fn threads(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in project.sources_in(&[BACKENDS]) {
        for (number, line) in source.shipped_lines() {
            let spawns = ["thread::spawn", "thread::Builder", "thread::scope"];
            if let Some(what) = spawns.iter().find(|what| has_word(&line.code, what)) {
                let right = "a host drives it on a thread of the host";
                findings.push(Finding::at(
                    path,
                    number,
                    Rule::Spawn,
                    format!("a backend uses `{what}`"),
                    right,
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(path: &str, text: &str) -> Vec<String> {
        let root = (CORE_ROOT, "//! x\n#![no_std]\n#![forbid(unsafe_code)]\n");
        check(&Project::planted(&[root, (path, text)]))
            .iter()
            .map(|f| format!("{}:{}", f.rule, f.line.unwrap_or(0)))
            .collect()
    }

    #[test]
    fn the_core_root_must_forbid() {
        let found = check(&Project::planted(&[(CORE_ROOT, "//! #![no_std]\n")]));
        let rules: Vec<Rule> = found.iter().map(|finding| finding.rule).collect();
        assert_eq!(rules, [Rule::NoStd, Rule::ForbidUnsafe]);
    }

    #[test]
    fn the_core_knows_no_platform() {
        let path = "crates/core/src/a.rs";
        assert_eq!(
            said(
                path,
                "use std::fmt;\nfn f(p: &dyn port::Park) {}\nstatic A: u8 = 0;\npub trait Park<T> {}\n"
            ),
            ["core-std:1", "core-dyn:2", "static:3"]
        );
        assert_eq!(said(path, "extern crate std;\nthread_local! {}\n"), ["core-std:1", "static:2"]);
        let fine = "// std::fmt, dyn Park\nfn f(a: &'static str) -> &(dyn core::error::Error + 'static) { \"std::\" }\n";
        assert!(said(path, fine).is_empty());
        assert!(said(path, "#[cfg(test)]\nmod tests {\n    use std::fmt;\n}\n").is_empty());
    }

    #[test]
    fn variables_are_read_in_the_facade_only() {
        for path in ["crates/hosts/std/src/a.rs", "examples/a.rs", "tests/src/a.rs"] {
            assert_eq!(said(path, "let a = std::env::var(\"A\");\n"), ["env:1"], "{path}");
            assert_eq!(said(path, "use std::env::{args, var_os};\n"), ["env:1"], "{path}");
        }
        let args = "use std::env;\nlet a = env::args();\nlet b = env!(\"CARGO_PKG_NAME\");\n";
        assert!(said("examples/a.rs", args).is_empty());
        assert_eq!(said("crates/backends/sim/src/a.rs", args), ["env:1", "env:2"]);
        assert!(said("crates/wakeline/src/a.rs", "std::env::var(\"A\")").is_empty());
        assert_eq!(
            said("crates/hosts/std/src/a.rs", "#[cfg(test)]\nmod tests {\n    env::set_var(a, b);\n}\n"),
            ["env:3"]
        );
    }

    #[test]
    fn hosts_name_no_driver() {
        let path = "crates/hosts/std/src/a.rs";
        assert_eq!(
            said(path, "use wakeline_cuda::A;\nf(\"libcuda.so\");\nlet a: HipPort;\n"),
            ["driver-name:1", "driver-name:2", "driver-name:3"]
        );
        assert_eq!(
            said(path, "cuStreamQuery();\nMTLSharedEvent;\nCUstream;\n"),
            ["driver-name:1", "driver-name:2", "driver-name:3"]
        );
        assert!(said(path, "// cuda\nlet ship = current; CURRENT; whip(CUTOFF)\n").is_empty());
        assert!(said("crates/backends/cuda/src/a.rs", "cuStreamQuery();\n").is_empty());
    }

    #[test]
    fn backends_spawn_nothing_and_keep_nothing() {
        let path = "crates/backends/sim/src/a.rs";
        assert_eq!(
            said(path, "std::thread::spawn(f);\nthread::Builder::new().spawn(f);\n"),
            ["spawn:1", "spawn:2"]
        );
        assert_eq!(said(path, "static LIBRARY: A = B;\n"), ["static:1"]);
        assert!(said(path, "#[test]\nfn t() {\n    std::thread::spawn(f);\n}\n").is_empty());
        assert!(said("crates/hosts/std/src/a.rs", "std::thread::spawn(f);\n").is_empty());
    }
}

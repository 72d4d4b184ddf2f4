//! What the fake's compiler knows of CUDA C: kernels by their names and parameters, headers, and `#error`. All else is left out.

use core::fmt::Write as _;
use std::collections::BTreeMap;
use std::path::Path;

/// A kernel of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Kernel {
    pub(super) name: String,
    /// The bytes of its parameters.
    pub(super) parameters: Vec<usize>,
    pub(super) is_template: bool,
    pub(super) is_extern: bool,
}

/// Headers by the names that they are included by, and the folders of others.
#[derive(Debug, Default)]
pub(super) struct Headers {
    pub(super) texts: BTreeMap<String, String>,
    pub(super) folders: Vec<String>,
}

/// The kernels of a source and its headers.
///
/// # Errors
///
/// What the compiler says, in the words of NVRTC.
pub(super) fn kernels(name: &str, source: &str, headers: &Headers) -> Result<Vec<Kernel>, String> {
    let mut errors = String::new();
    let mut kernels = Vec::new();
    read(name, source, headers, &mut errors, &mut kernels, 0);
    if errors.is_empty() { Ok(kernels) } else { Err(errors) }
}

/// No header is followed deeper than that.
const DEPTH_MAX: u32 = 16;

fn read(
    name: &str,
    source: &str,
    headers: &Headers,
    errors: &mut String,
    kernels: &mut Vec<Kernel>,
    depth: u32,
) {
    for (number, line) in source.lines().enumerate() {
        let mut fails = |what: &str| _ = write!(errors, "{name}({}): {what}\n  {line}\n\n", number + 1);
        let line = line.trim();
        if let Some(said) = line.strip_prefix("#error") {
            fails(&format!("catastrophic error: #error directive:{said}"));
        }
        if let Some(included) = line.strip_prefix("#include") {
            let included = included.trim().trim_matches(['"', '<', '>']);
            let found = headers.texts.get(included).cloned().or_else(|| {
                let paths = headers.folders.iter().map(|folder| Path::new(folder).join(included));
                paths.into_iter().find_map(|path| std::fs::read_to_string(path).ok())
            });
            match found {
                Some(text) if depth < DEPTH_MAX => read(included, &text, headers, errors, kernels, depth + 1),
                _ => fails(&format!("catastrophic error: cannot open source file \"{included}\"")),
            }
        }
    }
    let mut start = 0;
    for (at, word) in source.match_indices("__global__") {
        let before = source.get(start..at).unwrap_or_default();
        let before = before.rsplit(['}', ';']).next().unwrap_or_default();
        let after = source.get(at + word.len()..).unwrap_or_default();
        let Some((head, rest)) = after.split_once('(') else { continue };
        let list = rest.split(')').next().unwrap_or_default();
        kernels.push(Kernel {
            name: head.split_whitespace().next_back().unwrap_or_default().to_owned(),
            parameters: list.split(',').filter(|one| !one.trim().is_empty()).map(bytes_of).collect(),
            is_template: before.contains("template"),
            is_extern: before.contains("extern \"C\""),
        });
        start = at + word.len();
    }
}

/// The bytes of a parameter by its type. One that is not known, of a template say, is a word.
fn bytes_of(parameter: &str) -> usize {
    if parameter.contains('*') {
        return 8;
    }
    let has = |names: &[&str]| parameter.split_whitespace().any(|word| names.contains(&word));
    if has(&["double", "long", "size_t", "uint64_t", "int64_t"]) {
        8
    } else if has(&["short", "half", "__half", "uint16_t", "int16_t"]) {
        2
    } else if has(&["char", "bool", "uint8_t", "int8_t"]) {
        1
    } else {
        4
    }
}

/// What the module calls a kernel, or an instance of one.
pub(super) fn lowered(kernel: &str, arguments: Option<&str>) -> String {
    let Some(arguments) = arguments else { return format!("_Z{}{kernel}v", kernel.len()) };
    let arguments: String =
        arguments.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("_Z{}{kernel}I{arguments}Ev", kernel.len())
}

/// A text in PTX with these entries.
pub(super) fn ptx(arch: u32, entries: &BTreeMap<String, Vec<usize>>) -> String {
    let mut text = format!(".version 8.0\n.target sm_{arch}\n.address_size 64\n");
    for (name, parameters) in entries {
        let list: Vec<_> = parameters
            .iter()
            .enumerate()
            .map(|(index, bytes)| format!("\n  .param .b{} {name}_param_{index}", bytes * 8))
            .collect();
        let _ = write!(text, ".visible .entry {name}({}\n)\n{{\n  ret;\n}}\n", list.join(","));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_headers_and_errors_are_read() {
        let mut headers = Headers::default();
        headers
            .texts
            .insert("a.h".to_owned(), "extern \"C\" __global__ void in_it(double d) {}\n".to_owned());
        let source = "#include \"a.h\"\ntemplate <typename T> __global__ void each(T *x, unsigned short s) {}\n\
            extern \"C\" __global__ void saxpy(float *z, float a, const float *x, unsigned n) {}";
        let found = kernels("k.cu", source, &headers).unwrap();
        let told = |kernel: &Kernel| {
            (kernel.name.clone(), kernel.parameters.clone(), kernel.is_template, kernel.is_extern)
        };
        assert_eq!(
            found.iter().map(told).collect::<Vec<_>>(),
            [
                ("in_it".to_owned(), vec![8], false, true),
                ("each".to_owned(), vec![8, 2], true, false),
                ("saxpy".to_owned(), vec![8, 4, 8, 4], false, true),
            ]
        );
        let failed = kernels("k.cu", "\n#error no\n#include <gone.h>\n", &headers).unwrap_err();
        assert!(failed.starts_with("k.cu(2): catastrophic error: #error directive: no\n"), "{failed}");
        assert!(
            failed.contains("k.cu(3): catastrophic error: cannot open source file \"gone.h\""),
            "{failed}"
        );
    }
}

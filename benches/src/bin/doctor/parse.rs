//! Reading what systems and tools print. Whatever is not there or not as expected is `None`, never a guess.

/// A file's text, `None` where it is not there or not for us.
pub(crate) fn read(path: &str) -> Option<String> {
    String::from_utf8(std::fs::read(path).ok()?).ok()
}

/// What `/proc/cpuinfo` says of the first processor, and how many there are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CpuInfo {
    pub(crate) model: Option<String>,
    pub(crate) vendor: Option<String>,
    pub(crate) processors: Option<usize>,
    flags: Option<Vec<String>>,
}

impl CpuInfo {
    pub(crate) fn parse(text: &str) -> Self {
        let fields = || {
            text.lines()
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.trim(), value.trim()))
        };
        let first = |names: &[&str]| {
            let mut found = fields().filter(|(name, value)| names.contains(name) && !value.is_empty());
            found.next().map(|(_, value)| value.to_owned())
        };
        let processors = fields().filter(|(name, value)| *name == "processor" && is_number(value)).count();
        Self {
            model: first(&["model name", "Model", "cpu model"]).or_else(|| arm_model(&first)),
            vendor: first(&["vendor_id"]),
            processors: (processors > 0).then_some(processors),
            flags: first(&["flags", "Features"])
                .map(|flags| flags.split_whitespace().map(str::to_owned).collect()),
        }
    }

    /// Whether the kernel lists this flag; `None` where it lists none at all.
    pub(crate) fn has_flag(&self, flag: &str) -> Option<bool> {
        Some(self.flags.as_ref()?.iter().any(|listed| listed == flag))
    }
}

/// Arm kernels print numbers in place of a name.
fn arm_model(first: &impl Fn(&[&str]) -> Option<String>) -> Option<String> {
    let (implementer, part) = (first(&["CPU implementer"])?, first(&["CPU part"])?);
    Some(format!("Arm implementer {implementer}, part {part}"))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The names in `current_clocksource` or `available_clocksource`; `None` where there is none.
pub(crate) fn clock_sources(text: &str) -> Option<Vec<String>> {
    let names: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    (!names.is_empty()).then_some(names)
}

/// A line of `ldconfig -p`: a library that the loader finds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cached {
    pub(crate) name: String,
    /// What is in the brackets: `libc6,x86-64`.
    pub(crate) kind: String,
    pub(crate) path: String,
}

/// The libraries in the output of `ldconfig -p`: `libcuda.so.1 (libc6,x86-64) => /lib/libcuda.so.1`.
pub(crate) fn ldconfig(text: &str) -> Vec<Cached> {
    let parse = |line: &str| {
        let (left, path) = line.split_once(" => ")?;
        let (name, kind) = left.trim().split_once(" (")?;
        let kind = kind.trim_end().strip_suffix(')')?;
        let [name, kind, path] = [name, kind, path.trim()].map(str::to_owned);
        Some(Cached { name, kind, path })
    };
    text.lines().filter_map(parse).collect()
}

/// The version in a library's file name, `535.104.05` of `libcuda.so.535.104.05`; `None` where there is only the number
/// of the interface.
pub(crate) fn version(file: &str) -> Option<&str> {
    let (_, version) = file.split_once(".so.")?;
    let parts: Vec<&str> = version.split('.').collect();
    let numbers = parts.iter().all(|part| is_number(part.split('-').next().unwrap_or(part)));
    (parts.len() > 1 && numbers).then_some(version)
}

/// A field of `/proc/driver/nvidia/gpus/*/information`: `Model:  NVIDIA H200`.
pub(crate) fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let mut found = fields.filter(|(left, _)| left.trim() == name).map(|(_, value)| value.trim());
    found.next().filter(|value| !value.is_empty())
}

/// The version in `/proc/driver/nvidia/version`: the first word that is numbers with dots between them.
pub(crate) fn driver_version(text: &str) -> Option<&str> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    line.split_whitespace().find(|word| word.contains('.') && word.split('.').all(is_number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel name\t: AMD EPYC\n\
                       flags\t\t: fpu vme constant_tsc nonstop_tsc hypervisor\nbugs\t\t: spectre_v1\npower management:\n\n\
                       processor\t: 1\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC\nflags\t\t: fpu\n";
    const ARM: &str = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd evtstrm wfxt\nCPU implementer\t: 0x41\n\
                       CPU architecture: 8\nCPU part\t: 0xd40\n\nprocessor\t: 1\n";

    #[test]
    fn the_first_x86_processor_is_read_and_all_are_counted() {
        let cpu = CpuInfo::parse(X86);
        assert_eq!(cpu.model.as_deref(), Some("AMD EPYC"));
        assert_eq!(cpu.vendor.as_deref(), Some("AuthenticAMD"));
        assert_eq!(cpu.processors, Some(2));
        assert_eq!(cpu.has_flag("nonstop_tsc"), Some(true));
        assert_eq!(cpu.has_flag("tsc"), Some(false), "whole words only");
    }

    #[test]
    fn an_arm_processor_is_named_by_its_numbers() {
        let cpu = CpuInfo::parse(ARM);
        assert_eq!(cpu.model.as_deref(), Some("Arm implementer 0x41, part 0xd40"));
        assert_eq!(cpu.vendor, None);
        assert_eq!(cpu.processors, Some(2));
        assert_eq!(cpu.has_flag("wfxt"), Some(true));
    }

    #[test]
    fn what_is_not_there_is_unknown() {
        for text in ["", "\n\n", "flags\n", "processor:\nmodel name:\nflags:\n"] {
            let cpu = CpuInfo::parse(text);
            assert_eq!(cpu, CpuInfo::default(), "{text:?}");
            assert_eq!(cpu.has_flag("hypervisor"), None);
        }
        assert_eq!(read("/no/such/file"), None);
    }

    #[test]
    fn clock_sources_are_words() {
        assert_eq!(clock_sources("tsc kvm-clock acpi_pm \n").unwrap(), ["tsc", "kvm-clock", "acpi_pm"]);
        assert_eq!(clock_sources("kvm-clock\n").unwrap(), ["kvm-clock"]);
        assert_eq!(clock_sources(" \n"), None);
    }

    #[test]
    fn the_loaders_cache_is_read() {
        let text = "523 libs found in cache `/etc/ld.so.cache'\n\
                    \tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1\n\
                    \tlibcuda.so.1 (libc6) => /lib/i386-linux-gnu/libcuda.so.1\n\
                    \tlibpthread.so.0 (libc6,x86-64, OS ABI: Linux 3.2.0) => /lib/libpthread.so.0\n\
                    \tbroken => nowhere\nCache generated by: ldconfig (Debian GLIBC 2.36) stable release 2.36\n";
        let found = ldconfig(text);
        let shown: Vec<[&str; 3]> = found.iter().map(|lib| [&*lib.name, &*lib.kind, &*lib.path]).collect();
        assert_eq!(
            shown,
            [
                ["libcuda.so.1", "libc6,x86-64", "/lib/x86_64-linux-gnu/libcuda.so.1"],
                ["libcuda.so.1", "libc6", "/lib/i386-linux-gnu/libcuda.so.1"],
                ["libpthread.so.0", "libc6,x86-64, OS ABI: Linux 3.2.0", "/lib/libpthread.so.0"],
            ]
        );
        assert!(ldconfig("").is_empty());
    }

    #[test]
    fn versions_are_in_names() {
        for (file, expected) in [
            ("libcuda.so.535.104.05", Some("535.104.05")),
            ("libamdhip64.so.6.2.60204-139", Some("6.2.60204-139")),
            ("libcuda.so.1", None),
            ("libcuda.so", None),
            ("libcuda.so.x.y", None),
            ("", None),
        ] {
            assert_eq!(version(file), expected, "{file}");
        }
    }

    #[test]
    fn nvidias_files_are_read() {
        let information =
            "Model: \t\t NVIDIA H200\nIRQ:   \t\t 57\nGPU UUID: \t GPU-0\nVideo BIOS: \t ??\nBus Type:\n";
        assert_eq!(field(information, "Model"), Some("NVIDIA H200"));
        assert_eq!(field(information, "Bus Type"), None);
        assert_eq!(field(information, "None such"), None);
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs)\nGCC version:  gcc 12.2.0\n";
        assert_eq!(driver_version(open), Some("570.86.15"));
        let closed =
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n";
        assert_eq!(driver_version(closed), Some("535.104.05"));
        assert_eq!(driver_version("GCC version:  gcc 12.2.0\n"), None);
    }
}

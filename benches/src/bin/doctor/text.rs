//! The report for people: aligned, plain, at most 100 columns wide.

use std::fmt::Write;

use wakeline_benches::Quantiles;

use crate::park::WordPark;
use crate::report::{Executor, Report};
use crate::timers::{Late, Timers};

const WIDTH: usize = 100;
const INDENT: usize = 2;
/// The column at which values begin.
const VALUES: usize = 22;

const UNKNOWN: &str = "unknown";

/// The page so far.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn section(&mut self, title: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(title);
        self.text.push('\n');
    }

    /// A label and its value, which goes on below itself.
    fn line(&mut self, label: &str, value: &str) {
        let head = format!("{:INDENT$}{label:<width$}", "", width = VALUES - INDENT);
        wrap(&mut self.text, &head, value);
    }

    /// What stands in for what the line above lacks.
    fn instead(&mut self, value: &str) {
        self.line("  instead", value);
    }

    /// What to do about the line above.
    fn advise(&mut self, value: &str) {
        self.line("  to do", value);
    }

    fn raw(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }
}

/// Words of `value` behind `head`, within the width; later lines are indented as far as the head is long.
fn wrap(text: &mut String, head: &str, value: &str) {
    let indent = head.chars().count();
    let mut column = indent;
    text.push_str(head);
    let mut fresh = true;
    for word in value.split_whitespace() {
        let length = word.chars().count();
        if !fresh && column + 1 + length > WIDTH {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', indent));
            (column, fresh) = (indent, true);
        }
        if !fresh {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
        fresh = false;
    }
    text.push('\n');
}

/// Nanoseconds in microseconds, with as many digits as mean something.
pub(crate) fn us(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{}.{:02} us", ns / 1_000, ns % 1_000 / 10),
        10_000..100_000 => format!("{}.{} us", ns / 1_000, ns % 1_000 / 100),
        _ => format!("{} us", ns / 1_000),
    }
}

fn ns_or_us(ns: u64) -> String {
    if ns < 1_000 { format!("{ns} ns") } else { us(ns) }
}

fn or_unknown<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string())
}

fn yes_or_no(value: Option<bool>) -> &'static str {
    match value {
        Some(true) => "yes",
        Some(false) => "no",
        None => UNKNOWN,
    }
}

/// The whole report.
pub(crate) fn page(report: &Report) -> String {
    let mut page = Page::default();
    machine(&mut page, report);
    park(&mut page, &report.park);
    timers(&mut page, &report.timers);
    ring(&mut page, report);
    page.section("Executors");
    for executor in &report.executors {
        granted(&mut page, executor);
    }
    page.line("", "(by what the kernel and the processor allow)");
    gpu(&mut page, report);
    cuda(&mut page, report);
    hip(&mut page, report);
    default_runtime(&mut page, report);
    page.line("Metal", report.metal.text());
    settings(&mut page, report);
    page.section("What to do next");
    if report.next.is_empty() {
        page.raw("  nothing: all of it is there");
    }
    for (index, step) in report.next.iter().enumerate() {
        wrap(&mut page.text, &format!("  {}. ", index + 1), step);
    }
    page.text
}

fn machine(page: &mut Page, report: &Report) {
    let machine = &report.machine;
    page.section("Machine");
    page.line("processor", &format!("{} ({})", or_unknown(machine.cpu.as_ref()), machine.arch));
    let (online, usable) = (or_unknown(machine.cpus_online), or_unknown(machine.cpus_usable));
    page.line("processors", &format!("{online} online, {usable} for this process"));
    let hint = machine.is_virtual_hint.as_ref().map_or(String::new(), |hint| format!(": {hint}"));
    page.line("virtual machine", &format!("{}{hint}", yes_or_no(machine.is_virtual)));
    page.line("system", &format!("{}, kernel {}", machine.os, or_unknown(machine.kernel.as_ref())));
    let available = machine.clock_sources_available.as_ref().map(|names| names.join(", "));
    let source = or_unknown(machine.clock_source.as_ref());
    let read = machine.clock_read_ns;
    page.line(
        "clock source",
        &format!("{source}; {read} ns a reading; there are: {}", or_unknown(available)),
    );
    let (constant, nonstop) = (yes_or_no(machine.tsc_constant), yes_or_no(machine.tsc_nonstop));
    let rate = match (machine.tsc_mhz, machine.tsc_error_ppm_max) {
        (Some(mhz), Some(ppm)) => format!("{mhz} MHz, within {ppm} ppm"),
        _ => format!("rate {UNKNOWN}"),
    };
    page.line("TSC", &format!("{rate}; constant: {constant}, nonstop: {nonstop}"));
}

fn park(page: &mut Page, park: &WordPark) {
    page.section("Park on a word");
    match (&park.hardware_kind, &park.hardware_why_not) {
        (Some(kind), _) => page.line("in hardware", &format!("yes, by `{kind}`")),
        (None, why) => {
            page.line("in hardware", &format!("no: {}", or_unknown(why.as_ref())));
            page.instead(&park.in_use);
        }
    }
    if park.hardware_kind.is_some() {
        page.line("in use", &park.in_use);
    }
    let first = if park.hardware_kind.is_some() { "in hardware" } else { "spinning" };
    page.line("store to wake", &latency(park.store_to_wake_in_use, first));
    page.line("", &latency(park.store_to_wake_nap_slack_1_ns, "in naps, timer slack 1 ns"));
    page.line("", &latency(park.store_to_wake_nap_slack_as_given, "in naps, timer slack as given"));
    if !park.threads_apart {
        page.line("", "(both threads shared one processor: these are the scheduler's figures)");
    }
}

fn latency(quantiles: Option<Quantiles>, how: &str) -> String {
    match quantiles {
        Some(Quantiles { p50_ns, p99_ns, count, .. }) => {
            format!("p50 {}, p99 {} {how} ({count} stores)", us(p50_ns), us(p99_ns))
        }
        None => format!("{UNKNOWN} {how}"),
    }
}

fn timers(page: &mut Page, timers: &Timers) {
    page.section("Timers");
    page.line("resolution", &timers.resolution_ns.map_or_else(|| UNKNOWN.to_owned(), ns_or_us));
    let given = timers.slack_ns.map_or_else(|| UNKNOWN.to_owned(), |ns| format!("{} as given", ns_or_us(ns)));
    if timers.slack_can_be_set {
        page.line("timer slack", &format!("{given}; a thread can set its own to 1 ns"));
    } else {
        page.line("timer slack", &format!("{given}; cannot be set here"));
        page.instead("sleeps end as late as in the column \"as given\"; take the margin from it");
    }
    page.line(
        "sleeps end late by",
        "p50, p90, p99 in us (few sleeps: p99 is the latest); margin_us for `+predict`",
    );
    page.raw("      sleep |         slack 1 ns         |       slack as given       |  margin_us | sleeps");
    for row in &timers.oversleep {
        let late = |late: Option<Late>| match late {
            Some(Late { p50_ns, p90_ns, p99_ns, .. }) => {
                [p50_ns, p90_ns, p99_ns].iter().fold(String::new(), |mut line, ns| {
                    let tenths = ns / 100;
                    let shown = format!("{}.{}", tenths / 10, tenths % 10);
                    // Writing to a string cannot fail.
                    let _ = write!(line, "{shown:>9}");
                    line
                })
            }
            None => format!("{UNKNOWN:>27}"),
        };
        let length = match row.length_us {
            us if us % 1_000 == 0 => format!("{} ms", us / 1_000),
            us => format!("{us} us"),
        };
        page.raw(&format!(
            "  {length:>9} |{} |{} | >= {:>7} | {:>6}",
            late(row.slack_1_ns),
            late(Some(row.slack_as_given)),
            row.margin_us_min,
            row.slack_as_given.samples
        ));
    }
}

fn ring(page: &mut Page, report: &Report) {
    let ring = &report.io_uring;
    page.section("io_uring");
    let sysctl = or_unknown(ring.sysctl_disabled);
    match (ring.works, &ring.why_not) {
        (Some(true), _) => page.line("io_uring_setup", &format!("works (io_uring_disabled: {sysctl})")),
        (works, why) => {
            let why = or_unknown(why.as_ref());
            page.line("io_uring_setup", &format!("{}: {why}", yes_or_no(works)));
            page.instead("executors idle on timers and a bell of their own");
        }
    }
}

fn granted(page: &mut Page, executor: &Executor) {
    if executor.requested == executor.granted {
        let naps = if executor.warnings.iter().any(crate::report::Coded::is_park_fallback) {
            "runs; parks without hardware"
        } else {
            "runs"
        };
        page.line(&executor.requested, naps);
    } else {
        page.line(&executor.requested, "cannot run here");
        page.instead(&executor.granted);
    }
    for warning in &executor.warnings {
        page.line("  warning", &format!("{}: {}", warning.code, warning.text));
    }
}

fn gpu(page: &mut Page, report: &Report) {
    let gpu = &report.gpu;
    page.section("GPU libraries and devices (by their files; nothing is loaded)");
    if !gpu.loader_cache_read {
        page.line("loader's cache", "unknown: `ldconfig -p` tells nothing; usual folders are looked at");
    }
    for library in &gpu.libraries {
        let version = library.version.as_ref().map_or(String::new(), |version| format!(", {version}"));
        let said = match (&library.path, library.found_by_loader) {
            (Some(path), Some(true)) => format!("{path}{version}"),
            (Some(path), Some(false)) => format!("{path}{version}, where the loader does not look"),
            (Some(path), None) => format!("{path}{version}; whether the loader looks there is unknown"),
            (None, None) => "not in the usual folders".to_owned(),
            (None, _) => "not found".to_owned(),
        };
        let label = library.what;
        page.line(label, &format!("{}: {said}", library.name));
        if library.found_by_loader == Some(false) && library.path.is_some() {
            page.advise("add its folder to /etc/ld.so.conf.d or LD_LIBRARY_PATH");
        }
    }
    page.line("NVIDIA's driver", gpu.nvidia_driver.as_deref().unwrap_or("not loaded, or not shown here"));
    let list = |names: &[String]| if names.is_empty() { "none found".to_owned() } else { names.join(", ") };
    page.line("devices", &list(&gpu.devices));
    page.line("device nodes", &list(&gpu.device_nodes));
    if gpu.devices.is_empty() && gpu.device_nodes.is_empty() {
        page.instead("the simulated device");
    }
}

fn cuda(page: &mut Page, report: &Report) {
    let driver = &report.cuda;
    page.section("CUDA (the driver is asked)");
    match (&driver.version, &driver.error) {
        (Some(version), _) => page.line("driver", &format!("speaks CUDA {version}")),
        (None, Some(error)) => page.line("driver", &error.text),
        (None, None) => page.line("driver", "unknown"),
    }
    if !driver.lacks.is_empty() {
        page.line("it lacks", &driver.lacks.join(", "));
    }
    for (number, gpu) in driver.devices.iter().enumerate() {
        let name = or_unknown(gpu.name.as_ref());
        let capability =
            gpu.compute_capability.as_ref().map_or(String::new(), |text| format!(", capability {text}"));
        let memory = gpu.memory_bytes.map_or(String::new(), |bytes| format!(", {} GiB", bytes >> 30));
        page.line(&format!("device {number}"), &format!("{name}{capability}{memory}"));
        let says = match gpu.stores_words {
            Some(true) => "it says that its streams store words",
            Some(false) => "it says that its streams store no words",
            None => "unknown whether its streams store words",
        };
        let tried = match &gpu.completion {
            Some(path) => format!("tried out: completion by {path}"),
            None => "not tried out".to_owned(),
        };
        page.line("  words", &format!("{says}; {tried}"));
        for warning in &gpu.warnings {
            page.line("  warning", &format!("{}: {}", warning.code, warning.text));
        }
    }
}

fn hip(page: &mut Page, report: &Report) {
    let hip = &report.hip;
    page.section("HIP (the library is asked)");
    match (&hip.version, &hip.library, &hip.error) {
        (Some(version), Some(library), _) => page.line("library", &format!("{library}, of HIP {version}")),
        (_, _, Some(error)) => page.line("library", &error.text),
        _ => page.line("library", "unknown"),
    }
    if !hip.lacks.is_empty() {
        page.line("it lacks", &hip.lacks.join(", "));
    }
    for (number, gpu) in hip.devices.iter().enumerate() {
        let arch = gpu.arch.as_ref().map_or(String::new(), |text| format!(", {text}"));
        let memory = gpu.memory_bytes.map_or(String::new(), |bytes| format!(", {} GiB", bytes >> 30));
        page.line(&format!("device {number}"), &format!("{}{arch}{memory}", or_unknown(gpu.name.as_ref())));
        let tried = match &gpu.completion {
            Some(path) => format!("tried out: completion by {path}"),
            None => "not tried out".to_owned(),
        };
        page.line("  words", &tried);
        for warning in &gpu.warnings {
            page.line("  warning", &format!("{}: {}", warning.code, warning.text));
        }
    }
}

fn default_runtime(page: &mut Page, report: &Report) {
    let driver = &report.cuda;
    let made = match (&driver.default_runtime, &driver.default_runtime_error) {
        (Some(made), _) => made.clone(),
        (None, Some(error)) => format!("none: {}", error.text),
        (None, None) if driver.version.is_some() => "not tried".to_owned(),
        (None, None) => "none: there is no driver".to_owned(),
    };
    page.line("default runtime", &made);
}

fn settings(page: &mut Page, report: &Report) {
    page.section("Settings (environment)");
    match (&report.settings.values, &report.settings.error) {
        (Some(values), _) => {
            for setting in values {
                let default = if setting.is_default { " (as by default)" } else { "" };
                page.line(setting.name, &format!("{}{default}", setting.value));
            }
        }
        (None, error) => {
            page.line("error", &or_unknown(error.as_ref()));
            page.advise(&format!("correct it; there are: {}", report.settings.names.join(", ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_within_the_width_and_lose_no_word() {
        let words = "neither io_uring nor a word wait ".repeat(12);
        let mut page = Page::default();
        page.line("label", &words);
        assert!(page.text.lines().all(|line| line.chars().count() <= WIDTH), "{}", page.text);
        assert!(page.text.lines().skip(1).all(|line| line.starts_with(&" ".repeat(VALUES))));
        let shown: Vec<&str> = page.text.split_whitespace().skip(1).collect();
        assert_eq!(shown, words.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn microseconds_have_the_digits_that_mean_something() {
        for (ns, shown) in [(0, "0.00 us"), (289, "0.28 us"), (10_540, "10.5 us"), (1_234_567, "1234 us")] {
            assert_eq!(us(ns), shown);
        }
    }
}

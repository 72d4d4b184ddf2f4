//! What to do next: at most five lines, the most useful first, each only where it applies.

use crate::report::Report;
use crate::text::us;

/// As many lines as are worth reading.
const STEPS_MAX: usize = 5;

/// How much later sleeps end with the given slack, from which it is worth setting, nanoseconds.
const SLACK_WORTH_NS: u64 = 10_000;

/// What a clock may cost a reading before another is worth a thought, nanoseconds.
const CLOCK_READ_NS_GOOD: u64 = 150;

/// The step that the margin is told for, microseconds.
const STEP_US: u64 = 5_000;

/// The steps that apply.
pub(crate) fn steps(report: &Report) -> Vec<String> {
    let all = [
        report.settings.error.as_ref().map(|error| format!("Correct the environment: {error}.")),
        (!report.release)
            .then(|| "Build with --release: these figures are those of a debug build.".to_owned()),
        slack(report),
        margin(report),
        hardware(report),
        libraries(report),
        ring(report),
        clock(report),
        one_processor(report),
        no_device(report),
    ];
    all.into_iter().flatten().take(STEPS_MAX).collect()
}

fn slack(report: &Report) -> Option<String> {
    let row = report.timers.oversleep.iter().find(|row| row.length_us == STEP_US)?;
    let (given, least) = (row.slack_as_given.p50_ns, row.slack_1_ns?.p50_ns);
    (given > least + SLACK_WORTH_NS).then(|| {
        format!(
            "Set the timer slack of your own waiting threads to 1 ns (`TimerSlack::set`): sleeps of 5 ms end {} late \
             in place of {} (p50).",
            us(least),
            us(given)
        )
    })
}

fn margin(report: &Report) -> Option<String> {
    let row = report.timers.oversleep.iter().find(|row| row.length_us == STEP_US)?;
    let slack = if row.slack_1_ns.is_some() { ", with a slack of 1 ns" } else { "" };
    let firmer = if report.quick { " Without --quick the figure is firmer." } else { "" };
    Some(format!(
        "For steps of about 5 ms wait with `+predict`, `margin_us` at least {}{slack}, plus how far your steps end \
         before their median (p99).{firmer}",
        row.margin_us_min
    ))
}

fn hardware(report: &Report) -> Option<String> {
    if report.park.hardware_kind.is_some() || report.machine.is_virtual != Some(true) {
        return None;
    }
    let bit = match (report.machine.arch, report.machine.cpu_vendor.as_deref()) {
        ("x86_64", Some("GenuineIntel")) => "WAITPKG (`umwait`)",
        ("x86_64", Some("AuthenticAMD")) => "MONITORX (`mwaitx`), or WAITPKG where the processor has it",
        ("x86_64", _) => "WAITPKG or MONITORX",
        ("aarch64", _) => "WFXT (`wfet`)",
        _ => return None,
    };
    Some(format!(
        "Ask the host of this virtual machine to show {bit}: a park then watches its word in a low-power state."
    ))
}

fn libraries(report: &Report) -> Option<String> {
    let gpu = &report.gpu;
    let outside =
        gpu.libraries.iter().find(|library| library.found_by_loader == Some(false) && library.path.is_some());
    if gpu.has_node("nvidia") && !gpu.loads("libcuda") {
        return Some(match outside.filter(|library| library.name.starts_with("libcuda")) {
            Some(library) => tell_loader(library.path.as_deref().unwrap_or(library.name)),
            None => "There is an NVIDIA device, but no libcuda.so.1: install the driver's user-mode part, or start \
                     the container with it."
                .to_owned(),
        });
    }
    if gpu.has_node("kfd") && !gpu.loads("libamdhip64") {
        return Some(match outside.filter(|library| library.name.starts_with("libamdhip64")) {
            Some(library) => tell_loader(library.path.as_deref().unwrap_or(library.name)),
            None => "There is an AMD device, but no libamdhip64: install the HIP runtime of ROCm.".to_owned(),
        });
    }
    if gpu.device_nodes.is_empty() && (gpu.loads("libcuda") || gpu.loads("libamdhip64")) {
        return Some(
            "There is a GPU library, but no device: give this container or machine its devices.".to_owned(),
        );
    }
    None
}

fn tell_loader(path: &str) -> String {
    format!("Tell the loader of {path}: a file in /etc/ld.so.conf.d and `ldconfig`, or LD_LIBRARY_PATH.")
}

fn ring(report: &Report) -> Option<String> {
    if report.io_uring.works != Some(false) {
        return None;
    }
    Some(match report.io_uring.sysctl_disabled {
        Some(1..) => "Allow io_uring, if you mean to use it: `sysctl kernel.io_uring_disabled=0`.".to_owned(),
        _ => "Allow io_uring, if you mean to use it: in the sandbox's seccomp profile, or by a newer kernel."
            .to_owned(),
    })
}

fn clock(report: &Report) -> Option<String> {
    let machine = &report.machine;
    let source = machine.clock_source.as_deref()?;
    let has_tsc = machine.tsc_mhz.is_some() && machine.tsc_nonstop == Some(true);
    (source != "tsc" && has_tsc && machine.clock_read_ns > CLOCK_READ_NS_GOOD).then(|| {
        format!(
            "The clock `{source}` takes {} ns to read: `tsc`, where the system trusts it, takes a fraction.",
            machine.clock_read_ns
        )
    })
}

fn one_processor(report: &Report) -> Option<String> {
    (report.machine.cpus_usable == Some(1)).then(|| {
        "With one processor, whoever spins keeps others from it: spin briefly (`ParkPolicy::new`) or use `block`."
            .to_owned()
    })
}

fn no_device(report: &Report) -> Option<String> {
    report.gpu.device_nodes.is_empty().then(|| {
        "See what waiting costs on a simulated device: `cargo run --release --example decode_loop`."
            .to_owned()
    })
}

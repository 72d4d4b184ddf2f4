//! The processor, the system and its clock.

use serde::Serialize;
use wakeline::{Clock, Nanos};
use wakeline_std::{StdClock, TscRate};

use crate::parse::{self, CpuInfo};

/// How often the clock is read to learn what a reading costs.
const CLOCK_READS: u64 = 10_000;

/// What a DMI product or vendor says of virtual machines, in small letters.
const VIRTUAL_NAMES: [&str; 9] = [
    "kvm",
    "qemu",
    "vmware",
    "virtualbox",
    "xen",
    "hvm",
    "amazon ec2",
    "google compute engine",
    "virtual machine",
];

/// What the program runs on.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: Option<String>,
    pub(crate) cpu_vendor: Option<String>,
    pub(crate) arch: &'static str,
    /// How many processors the system has running.
    pub(crate) cpus_online: Option<usize>,
    /// How many this process may use: affinity and quotas count.
    pub(crate) cpus_usable: Option<usize>,
    pub(crate) is_virtual: Option<bool>,
    /// What says so.
    pub(crate) is_virtual_hint: Option<String>,
    pub(crate) os: &'static str,
    pub(crate) kernel: Option<String>,
    pub(crate) clock_source: Option<String>,
    pub(crate) clock_sources_available: Option<Vec<String>>,
    /// What one reading of the clock costs, in the mean.
    pub(crate) clock_read_ns: u64,
    pub(crate) tsc_constant: Option<bool>,
    pub(crate) tsc_nonstop: Option<bool>,
    pub(crate) tsc_mhz: Option<u64>,
    pub(crate) tsc_error_ppm_max: Option<u32>,
}

impl Machine {
    /// Asks the system; what it does not tell is `None`.
    pub(crate) fn ask() -> Self {
        let cpu = parse::read("/proc/cpuinfo").map(|text| CpuInfo::parse(&text)).unwrap_or_default();
        let (is_virtual, is_virtual_hint) = virtual_machine(&cpu);
        let clock_source = |name: &str| {
            parse::read(&format!("/sys/devices/system/clocksource/clocksource0/{name}"))
                .and_then(|text| parse::clock_sources(&text))
        };
        let clock = StdClock::new();
        let tsc = TscRate::measure(clock, TscRate::LENGTH);
        Self {
            arch: std::env::consts::ARCH,
            cpus_online: cpu.processors,
            cpus_usable: std::thread::available_parallelism().ok().map(Into::into),
            is_virtual,
            is_virtual_hint,
            os: std::env::consts::OS,
            kernel: parse::read("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
            clock_source: clock_source("current_clocksource").and_then(|names| names.into_iter().next()),
            clock_sources_available: clock_source("available_clocksource"),
            clock_read_ns: clock_read(clock).as_nanos(),
            tsc_constant: cpu.has_flag("constant_tsc"),
            tsc_nonstop: cpu.has_flag("nonstop_tsc"),
            tsc_mhz: tsc.map(TscRate::mhz),
            tsc_error_ppm_max: tsc.map(TscRate::error_ppm_max),
            cpu: cpu.model,
            cpu_vendor: cpu.vendor,
        }
    }
}

/// The least of a few means, so that a preemption does not count.
fn clock_read(clock: StdClock) -> Nanos {
    let mean = || {
        let start = clock.now();
        for _ in 0..CLOCK_READS {
            std::hint::black_box(clock.now());
        }
        Nanos::from_nanos(clock.now().since(start).as_nanos() / CLOCK_READS)
    };
    mean().min(mean()).min(mean())
}

/// Whether it is a virtual machine, and what says so.
fn virtual_machine(cpu: &CpuInfo) -> (Option<bool>, Option<String>) {
    if let Some(kind) = parse::read("/sys/hypervisor/type") {
        return (Some(true), Some(format!("/sys/hypervisor/type says {}", kind.trim())));
    }
    let dmi = |name: &str| parse::read(&format!("/sys/class/dmi/id/{name}"));
    for said in [dmi("product_name"), dmi("sys_vendor")].into_iter().flatten() {
        let small = said.trim().to_lowercase();
        if VIRTUAL_NAMES.iter().any(|name| small.contains(name)) {
            return (Some(true), Some(format!("the firmware says {}", said.trim())));
        }
    }
    match cpu.has_flag("hypervisor") {
        Some(true) => (Some(true), Some("CPUID's hypervisor bit".to_owned())),
        // A processor of another kind has no such bit, so that its absence means nothing there.
        Some(false) if cfg!(target_arch = "x86_64") => {
            (Some(false), Some("CPUID's hypervisor bit is off".to_owned()))
        }
        _ => (None, None),
    }
}

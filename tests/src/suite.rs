//! What runs a suite of trials: each on stand-ins and, where there is one, on a device.

use std::process::Command;

use libtest_mimic::{Arguments, Failed, Trial};

/// The argument that says that this process is there for one test alone.
const OWN_PROCESS: &str = "--own-process";

/// The argument that leaves out what may leave something behind: for whoever looks for leaks.
const NO_LEAVING: &str = "--no-leaving";

/// Devices that trials want, and that may be absent.
pub(crate) struct Devices {
    what: &'static str,
    /// Why there are none.
    absent: Option<String>,
    skipped: u32,
}

impl Devices {
    pub(crate) const fn new(what: &'static str, absent: Option<String>) -> Self {
        Self { what, absent, skipped: 0 }
    }
}

/// The trials of a suite, and the arguments that it was started with.
pub(crate) struct Suite {
    arguments: Arguments,
    /// Whether this process is there for one trial alone.
    alone: bool,
    /// Whether those that leave something behind are left out.
    no_leaving: bool,
    left_out: u32,
    trials: Vec<Trial>,
}

impl Suite {
    pub(crate) fn from_args() -> Self {
        let (own, words): (Vec<_>, Vec<_>) = std::env::args().partition(|word| word == OWN_PROCESS);
        let (without, words): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| word == NO_LEAVING);
        let arguments = Arguments::from_iter(words);
        Self {
            arguments,
            alone: !own.is_empty(),
            no_leaving: !without.is_empty(),
            left_out: 0,
            trials: Vec::new(),
        }
    }

    /// One that may leave something behind, where `leaves`.
    pub(crate) fn add(&mut self, trial: Trial, leaves: bool) {
        if leaves && self.no_leaving {
            self.left_out += u32::from(!trial.has_ignored_flag());
        } else {
            self.trials.push(trial);
        }
    }

    /// One that wants a device, and is ignored and counted where there is none. One that leaves a device behind that is of no use to others has a process of its own.
    pub(crate) fn add_on(
        &mut self,
        devices: &mut Devices,
        name: String,
        leaves: bool,
        run: impl FnOnce() -> Result<(), Failed> + Send + 'static,
    ) {
        let (is_absent, elsewhere) = (devices.absent.is_some(), leaves && !self.alone);
        devices.skipped += u32::from(is_absent);
        let full = name.clone();
        let trial = Trial::test(name, move || if elsewhere { in_own_process(&full) } else { run() });
        self.trials.push(trial.with_ignored_flag(is_absent));
    }

    /// Says what is skipped and left out, and why, and runs the rest; does not return.
    pub(crate) fn run(self, all: impl IntoIterator<Item = Devices>) -> ! {
        if self.left_out > 0 {
            println!("left out: {} tests, which may leave something behind", self.left_out);
        }
        for Devices { what, absent, skipped } in all {
            if let Some(why) = absent {
                eprintln!("skipped: no {what}: {skipped} tests are ignored ({why})");
            }
        }
        libtest_mimic::run(&self.arguments, self.trials).exit()
    }
}

/// Runs this program again for the one test of this name.
fn in_own_process(name: &str) -> Result<(), Failed> {
    let mut again = Command::new(std::env::current_exe()?);
    // Said so, they are there from the start: else a fault's kernel may stand behind busy ones, in a queue that is theirs too, until those are done.
    again.env("CUDA_DEVICE_MAX_CONNECTIONS", "8");
    let output = again.args([OWN_PROCESS, "--exact", name, "--test-threads", "1"]).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && said.contains("1 passed") {
        return Ok(());
    }
    Err(format!("{}: {said}{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

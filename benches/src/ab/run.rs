//! A run, from its first line to its last.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use wakeline_core::{Error, Nanos};
use wakeline_std::TimerSlack;

use super::args::{Args, Kind, Task, USAGE};
use super::arms::{Catalogue, margin};
use super::checks;
use super::device::{CudaBench, Device, RawWay, SimBench};
use super::energy::Energy;
use super::hosts::{Hosts, Line as HostLine};
use super::report::{Comparison, RunFile, is_same, main_report, page, table};
use super::schema::{Check, Line, Order, Run, VERSION};
use super::selftest;
use super::session::{Output, Setup, Ways, at};
use super::suites::{Case, Suite, cases};
use crate::Apart;
use crate::Environment;
use crate::Quantiles;
use crate::gpu::{Failure, Gpu, finish, texts};
use crate::plain;

/// What the file of a run is called.
pub const FILE: &str = "run.jsonl";

/// What its page is called.
pub const PAGE: &str = "report.html";

/// The ways of waiting of other libraries, for work on a GPU.
pub trait Peers {
    /// Opens the GPU, by the driver at `driver` or else the system's; called once.
    ///
    /// # Errors
    ///
    /// [`Failure::NoGpu`] where there is none.
    fn open(&self, driver: Option<&Path>) -> Result<CudaBench, Failure> {
        CudaBench::open(driver)
    }

    /// Those that wait for work on this device, which they may hold on to.
    ///
    /// # Errors
    ///
    /// What a library says.
    fn ways<'d>(&self, device: &'d CudaBench) -> Result<Vec<Box<dyn RawWay + 'd>>, Error>;
}

/// No other libraries.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPeers;

impl Peers for NoPeers {
    fn ways<'d>(&self, _device: &'d CudaBench) -> Result<Vec<Box<dyn RawWay + 'd>>, Error> {
        Ok(Vec::new())
    }
}

/// Ways beside a device's own, for any device.
trait More<D> {
    fn ways<'d>(&self, device: &'d D) -> Result<Vec<Box<dyn RawWay + 'd>>, Error>;
}

struct Of<'p, P>(&'p P);

impl<P: Peers> More<CudaBench> for Of<'_, P> {
    fn ways<'d>(&self, device: &'d CudaBench) -> Result<Vec<Box<dyn RawWay + 'd>>, Error> {
        self.0.ways(device)
    }
}

/// No library waits for a simulated device.
impl More<SimBench> for NoPeers {
    fn ways<'d>(&self, _device: &'d SimBench) -> Result<Vec<Box<dyn RawWay + 'd>>, Error> {
        Ok(Vec::new())
    }
}

/// The program of this name, with what the words behind it ask for.
pub fn main(name: &str, words: impl Iterator<Item = OsString>, peers: &impl Peers) -> ExitCode {
    let mut words = words.peekable();
    if words.next_if(|word| word == "report").is_some() {
        return main_report(words);
    }
    finish(name, texts(words).map_err(Failure::Usage).and_then(|words| bench(words.into_iter(), peers)))
}

fn bench(words: impl Iterator<Item = String>, peers: &impl Peers) -> Result<(), Failure> {
    let args = Args::parse(words).map_err(Failure::Usage)?;
    match args.task {
        Task::Help => Ok(writeln!(io::stdout(), "{USAGE}")?),
        Task::SelfTest => self_test(),
        Task::Run | Task::List => on_device(&args, peers),
    }
}

fn on_device(args: &Args, peers: &impl Peers) -> Result<(), Failure> {
    let gpu = || peers.open(args.driver.as_deref());
    let sim = || Ok(SimBench::start(args.seed)?);
    match args.device {
        Kind::Cuda => open(args, gpu, &Of(peers), CudaBench::names),
        Kind::Sim => open(args, sim, &NoPeers, |_| Vec::new()),
        // Only looked for here: its threads belong on the processors that `open` gives them.
        Kind::Auto => match Gpu::open(args.driver.as_deref()) {
            Ok(_) => open(args, gpu, &Of(peers), CudaBench::names),
            Err(Failure::NoGpu(error)) => {
                let why = plain(&error.to_string());
                writeln!(io::stderr(), "no CUDA device, so the device is simulated: {why}")?;
                open(args, sim, &NoPeers, |_| Vec::new())
            }
            Err(failure) => Err(failure),
        },
    }
}

fn open<D: Device>(
    args: &Args,
    device: impl FnOnce() -> Result<D, Failure>,
    more: &impl More<D>,
    identities: impl FnOnce(&D) -> Vec<wakeline_nvml::Gpu>,
) -> Result<(), Failure> {
    // While this thread may still be on all processors.
    let environment = Environment::of_this_thread(args.seed);
    // The watcher's threads, the driver's and what plays a device are on other processors than this thread.
    let (started, apart) = Apart::from(|| {
        let device = device()?;
        let hosts = Hosts::start(device.clock())?;
        Ok::<_, Failure>((device, hosts))
    });
    let (device, hosts) = started?;
    let mut ways = device.ways()?;
    ways.extend(more.ways(&device)?);
    let named: Vec<_> = ways.iter().map(|way| (way.name().to_owned(), way.family().to_owned())).collect();
    if args.task == Task::List {
        let catalogue = Catalogue::new(Nanos::ZERO, named)?;
        return Ok(list::<D>(args, &catalogue)?);
    }
    let energy = Energy::find(&identities(&device), args.nvml.as_deref()).map_err(Failure::Usage)?;
    let ways = Ways(ways);
    let on = On { device: &device, hosts: &hosts, ways: &ways, energy: &energy, apart: apart.as_ref() };
    let result = measure(args, &on, named, environment);
    drop(ways);
    hosts.close()?;
    result
}

/// An earlier run, where one was named: of these cases one at least.
fn earlier(args: &Args, cases: &[Case]) -> Result<Option<RunFile>, Failure> {
    let Some(path) = &args.baseline else { return Ok(None) };
    let earlier = RunFile::load(path).map_err(|error| Failure::Usage(format!("`--baseline`: {error}")))?;
    let has = |case: &Case| {
        earlier.cells.iter().any(|cell| cell.suite == case.suite.name() && cell.case == case.name)
    };
    if cases.iter().any(has) {
        return Ok(Some(earlier));
    }
    let (path, suites) = (path.display(), earlier.suites().join(", "));
    Err(Failure::Usage(format!(
        "`--baseline {path}` has none of the cases to run, so nothing could be compared; it has cases of {suites}"
    )))
}

/// What is measured on.
struct On<'o, D: Device> {
    device: &'o D,
    hosts: &'o Hosts<HostLine<D>>,
    ways: &'o Ways<'o>,
    energy: &'o Energy,
    apart: Option<&'o Apart>,
}

fn measure<D: Device>(
    args: &Args,
    on: &On<'_, D>,
    named: Vec<(String, String)>,
    environment: Environment,
) -> Result<(), Failure> {
    let On { device, hosts, ways, energy, .. } = *on;
    let start = Instant::now();
    // All that may be wrong with what is asked for is told before anything is measured.
    let cases = args.cases().map_err(Failure::Usage)?;
    let earlier = earlier(args, &cases)?;
    let list = args.arms.as_deref();
    let wrong = |unknown: super::arms::UnknownArm| Failure::Usage(unknown.to_string());
    Catalogue::new(Nanos::ZERO, named.clone())?.choose(list).map_err(wrong)?;
    let out = args.out();
    if let Some(baseline) = &args.baseline
        && is_same(baseline, &out.join(FILE))
    {
        let path = baseline.display();
        let message = format!("`--baseline {path}` is where this run would be written: give another `--out`");
        return Err(Failure::Usage(message));
    }
    fs::create_dir_all(&out).map_err(|error| at(&out, &error))?;
    // That of an earlier run is not this one's, should it not come to its end.
    let page = out.join(PAGE);
    if let Err(error) = fs::remove_file(&page)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(at(&page, &error).into());
    }
    let mut output = Output::new(&out.join(FILE))?;

    // From here on, so that the threads of others have what they always have.
    let slack = TimerSlack::set(TimerSlack::LEAST);
    let margin = margin(device.clock())?;
    let catalogue = Catalogue::new(margin, named)?;
    let arms = catalogue.choose(list).map_err(wrong)?;
    let (mut found, before) = checks::before(environment.cpus);
    found.extend(notes(on, margin));
    let about = device.about();
    let environment = Environment {
        timer_slack_ns: TimerSlack::of_this_thread().map(Nanos::as_nanos),
        commit: args.commit.clone(),
        driver: about.driver,
        gpu: about.gpu,
        ..environment
    };
    output.write(&Line::Run(Run {
        schema: VERSION,
        command: args.words.clone(),
        quick: args.quick,
        device: D::KIND.to_owned(),
        suites: Suite::ALL
            .iter()
            .filter(|suite| cases.iter().any(|case| case.suite == **suite))
            .map(|suite| suite.name().to_owned())
            .collect(),
        environment,
        order: Order::Balanced,
        checks: found,
    }))?;
    let setup =
        Setup { device, hosts, ways, energy, arms: &arms, all: catalogue.arms(), extent: args.extent() };
    for case in &cases {
        case.measure(&setup, &mut output)?;
    }
    drop(slack);
    let mut checks = checks::after(&before);
    checks.extend(device.own_lateness().map(lateness));
    output.end(start.elapsed(), checks)?;
    output.done();
    show(&out, earlier)
}

/// Prints the run that was written to this folder, and makes its page.
fn show(out: &Path, earlier: Option<RunFile>) -> Result<(), Failure> {
    let path = out.join(FILE);
    let this = RunFile::load(&path).map_err(|error| Failure::Broken(error.to_string()))?;
    let comparison = earlier.as_ref().map(|earlier| Comparison::of(earlier, &this));
    let tables = [Some(table(&this)), comparison.as_ref().map(Comparison::table)];
    let files: Vec<_> = earlier.into_iter().chain([this]).collect();
    let picture = out.join(PAGE);
    // First, for nobody may read the rest.
    fs::write(&picture, page(&files, comparison.as_slice())).map_err(|error| at(&picture, &error))?;
    let mut stdout = io::stdout().lock();
    for table in tables.into_iter().flatten() {
        writeln!(stdout, "{table}")?;
    }
    let [record, page] = [&path, &picture].map(|path| plain(&path.display().to_string()));
    writeln!(stdout, "record     {record}\npage       {page}")?;
    Ok(())
}

/// What a reader has to know of how it was measured.
fn notes<D: Device>(on: &On<'_, D>, margin: Nanos) -> Vec<Check> {
    let On { device, hosts, energy, apart, .. } = *on;
    let check = |name: &str, good, found: String| Check { name: name.to_owned(), good, found };
    let mut checks = vec![
        check(
            "build",
            !cfg!(debug_assertions),
            if cfg!(debug_assertions) { "without optimisation" } else { "with optimisation" }.to_owned(),
        ),
        check(
            "threads",
            apart.is_some(),
            apart.map_or_else(
                || "all threads share the processors: latencies are also those of the scheduler".to_owned(),
                |apart| {
                    format!("the waiting thread has processor {} to itself, the others the rest", apart.cpu())
                },
            ),
        ),
        check("margin", true, format!("plans that sleep wake {} us early", margin.as_micros())),
        check("energy", true, energy.told()),
        check(
            "word wait",
            true,
            hosts.park_warning().unwrap_or_else(|| "words are waited for in hardware".to_owned()),
        ),
    ];
    if let Some(uncertainty) = device.about().uncertainty {
        let found = format!("the ends of work are known to within {uncertainty}, the same for all arms");
        checks.push(check("ends", true, found));
    }
    checks
}

/// How late what plays a device was by itself, microseconds, at p99 at most.
const OWN_LATE_US_MAX: u64 = 100;

fn lateness(late: Quantiles) -> Check {
    let us = |ns: u64| super::session::real(ns) / 1e3;
    Check {
        name: "device".to_owned(),
        good: late.p99_ns <= OWN_LATE_US_MAX * 1_000,
        found: format!(
            "what plays the device stored words {:.1} us late (p50), {:.1} us (p99), which latencies are without",
            us(late.p50_ns),
            us(late.p99_ns)
        ),
    }
}

fn list<D: Device>(args: &Args, catalogue: &Catalogue) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for suite in Suite::ALL {
        writeln!(out, "{:<8} {}", suite.name(), suite.what())?;
        for case in cases(args.quick).iter().filter(|case| case.suite == suite) {
            writeln!(out, "           {}", case.path())?;
        }
    }
    writeln!(out, "arms of the device `{}` (those with a * are run by default)", D::KIND)?;
    for arm in catalogue.arms() {
        let star = if arm.default { '*' } else { ' ' };
        let suite = if arm.waits() { "" } else { ", in `ops`" };
        writeln!(out, "  {star} {:<35} {}{suite}", arm.name, arm.family)?;
    }
    Ok(())
}

fn self_test() -> Result<(), Failure> {
    let found = selftest::run(selftest::work);
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "arms that are the same differed in {} of {} tries (at most {} may)",
        found.false_alarms,
        selftest::TRIES,
        selftest::FALSE_ALARMS_MAX
    )?;
    let percent = 100.0 * selftest::SLOWER;
    match found.slower {
        Some(ratio) => writeln!(
            out,
            "an arm that is {percent} % slower was measured as {:+.2} % ±{:.2} %",
            100.0 * (ratio.mean - 1.0),
            100.0 * ratio.half_width.unwrap_or(f64::NAN)
        )?,
        None => writeln!(out, "an arm that is {percent} % slower could not be measured")?,
    }
    if found.good() {
        return Ok(());
    }
    Err(Failure::Broken("the method does not hold on this machine now".to_owned()))
}

//! One row: a program, and what the driver does wrong in it.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use wakeline_core::{Error, ErrorCode, Nanos};
use wakeline_fake_driver::{Act, Fake, Rule, cuda_name};
use wakeline_mapped::{Context, ContextConfig, Kernels, Ordinal, Stream};

use super::extras::Extras;
use super::judge;
use super::program::{Program, Script, Stage, Step};
use crate::waiting::{PLANS, wait};

/// A row that has not ended by then hangs.
const HANGS: Duration = Duration::from_secs(30);

/// How often a stage is set before a machine counts as one on which none can be: a probe of host functions, which is given 100 ms, may find nobody to call them on a busy one.
const STAGES_MAX: usize = 5;

/// How long a call is held up before it is let go.
const HELD_UP: Duration = Duration::from_millis(20);

/// Which of the calls of one name a rule acts on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum When {
    First,
    Second,
    /// The one in the middle.
    Middle,
    Always,
    /// From the one in the middle on.
    FromMiddle,
}

impl When {
    pub(super) const ALL: [Self; 5] =
        [Self::First, Self::Second, Self::Middle, Self::Always, Self::FromMiddle];

    /// How many calls pass first, of so many; `None` where another one means the same.
    pub(super) const fn skips(self, calls: u64) -> Option<u64> {
        match self {
            Self::First | Self::Always => Some(0),
            Self::Second if calls >= 2 => Some(1),
            Self::Middle if calls >= 4 => Some(calls / 2),
            Self::FromMiddle if calls >= 2 => Some(calls / 2),
            _ => None,
        }
    }

    pub(super) const fn is_once(self) -> bool {
        matches!(self, Self::First | Self::Second | Self::Middle)
    }
}

/// What the driver does wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wrong {
    /// The exported name of the call.
    pub(super) call: String,
    pub(super) when: When,
    pub(super) skips: u64,
    pub(super) act: Act,
}

impl Wrong {
    /// The function's name, as errors give it.
    pub(super) fn name(&self) -> &str {
        self.call.split("_v").next().unwrap_or_default()
    }

    /// CUDA's name of the function.
    pub(super) fn of_cuda(&self) -> &str {
        cuda_name(&self.call).unwrap_or_else(|| self.name())
    }

    pub(super) const fn status(&self) -> Option<i32> {
        match self.act {
            Act::Fail(status) | Act::FailAfter(status) => Some(status.0),
            _ => None,
        }
    }

    fn rule(&self) -> Rule {
        let rule = Rule::new(self.call.clone(), self.act).skip(self.skips);
        if self.when.is_once() { rule.times(1) } else { rule }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub(super) program: Program,
    pub(super) wrong: Wrong,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wrong { call, when, skips, act } = &self.wrong;
        write!(f, "{:?}: {when:?} (after {skips}) {call}: {act:?}", self.program)
    }
}

/// What came of a program.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// How often the rule acted.
    pub(super) hits: u64,
    /// The driver's calls, by name, in the program itself.
    pub(super) calls: BTreeMap<String, u64>,
    /// What should not be.
    pub(super) problems: Vec<String>,
}

/// Runs a program on a thread of its own, within a time. The stand-in is as new before, and to be given up where it hangs.
pub(super) fn run<D: Extras>(
    fake: &Arc<Fake>,
    program: Program,
    wrong: Option<Wrong>,
) -> Result<Outcome, String> {
    let (tell, told) = mpsc::channel();
    let fake = Arc::clone(fake);
    let thread = std::thread::Builder::new().name("row".to_owned()).spawn(move || {
        let performed = (0..STAGES_MAX).find_map(|_| perform::<D>(&fake, program, wrong.as_ref()));
        let _ = tell.send(performed);
    });
    let thread = thread.map_err(|error| error.to_string())?;
    match told.recv_timeout(HANGS) {
        Ok(outcome) => {
            thread.join().map_err(|_| "a panic at the end".to_owned())?;
            outcome.ok_or_else(|| "no stage can be set: nobody calls host functions in time".to_owned())
        }
        Err(mpsc::RecvTimeoutError::Timeout) => Err("it hangs".to_owned()),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let panic = thread.join().err().and_then(|panic| {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                text.or_else(|| panic.downcast_ref::<String>().cloned())
            });
            Err(format!("a panic: {}", panic.unwrap_or_default()))
        }
    }
}

/// Another context of the process, which nothing may happen to.
struct Bystander<D: Extras> {
    stream: Stream<D>,
    kernels: Kernels<D>,
    context: Context<D>,
}

impl<D: Extras> Bystander<D> {
    fn new(driver: &D) -> Self {
        let context = driver.context_beside(&ContextConfig::default()).unwrap();
        let kernels = Kernels::load(&context).unwrap();
        let bystander = Self { stream: context.stream().unwrap(), kernels, context };
        // What it makes for its first wait is there to the end.
        bystander.goes_on().unwrap();
        bystander
    }

    fn goes_on(&self) -> Result<(), String> {
        works(&self.kernels, &self.stream).map_err(|error| format!("another context does not go on: {error}"))
    }
}

fn works<D: Extras>(kernels: &Kernels<D>, stream: &Stream<D>) -> Result<(), Error> {
    for text in [PLANS[3], PLANS[5]] {
        kernels.occupy(stream, Nanos::from_micros(20))?;
        wait(text, &mut stream.port()?)?;
    }
    Ok(())
}

/// None where the machine was too busy for the stage, on which nothing was wrong yet.
fn perform<D: Extras>(fake: &Fake, program: Program, wrong: Option<&Wrong>) -> Option<Outcome> {
    fake.reset();
    let driver = D::load_from(fake.path()).unwrap();
    let bystander = Bystander::new(&driver);
    // SAFETY: the bystander's context is there to the end.
    unsafe { driver.set_current(bystander.context.raw()) }.unwrap();
    // Keeps the primary context, so that what is left in it can be seen.
    driver.retain(Ordinal(0)).unwrap();
    let before = fake.live();
    let stage = match Stage::set(driver.clone(), program) {
        Err(error) if error.code() == ErrorCode::CompletionRefused => return None,
        stage => stage.unwrap(),
    };
    let counted_before = driver.counts();
    fake.clear_log();

    let rule = wrong.map(|wrong| fake.rule(wrong.rule()));
    let is_honest = !matches!(wrong, Some(Wrong { act: Act::DropEffect, .. }));
    let script = let_go(fake, wrong, || Script::run(fake, &stage, program, is_honest));
    let mut outcome = Outcome { hits: rule.map_or(0, |rule| fake.hits(rule)), ..Outcome::default() };
    fake.clear_rules();
    let Script { steps, wrong: mut problems, .. } = script;
    // Its log is long.
    if wrong.is_none() {
        for call in fake.log() {
            *outcome.calls.entry(call.name).or_default() += 1;
        }
    }

    problems.extend(judge::thread(&driver, bystander.context.raw(), wrong));
    problems.extend(after(&stage, program, &steps, wrong));
    problems.extend(bystander.goes_on().err());
    problems.extend(settled(&stage.context, is_honest));
    drop(stage);
    let counted = judge::since(&driver.counts(), &counted_before);
    problems.extend(judge::steps::<D>(&steps, program, wrong));
    problems.extend(judge::told::<D>(fake, &steps, &counted, wrong));
    problems.extend(judge::left(fake, &before, &counted, (program, wrong)));
    problems.extend(fake.violations().into_iter().map(|text| format!("the driver was misused: {text}")));

    drop(bystander);
    // SAFETY: retained above, and nothing of the context is in use but what is leaked.
    unsafe { driver.release(Ordinal(0)) }.unwrap();
    outcome.problems = problems;
    Some(outcome)
}

/// Runs this while somebody lets calls go that a rule blocks.
fn let_go<T>(fake: &Fake, wrong: Option<&Wrong>, run: impl FnOnce() -> T) -> T {
    if !wrong.is_some_and(|wrong| wrong.act == Act::Block) {
        return run();
    }
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                if fake.blocked() > 0 {
                    std::thread::sleep(HELD_UP);
                    fake.release();
                }
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let value = run();
        ended.store(true, Ordering::Relaxed);
        value
    })
}

/// Whether the context is as it should be when the driver works again: broken with the first cause, or as good as new.
fn after<D: Extras>(
    stage: &Stage<D>,
    program: Program,
    steps: &[Step],
    wrong: Option<&Wrong>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let is_others = matches!(program, Program::Load | Program::Context(..));
    let sticky = wrong.and_then(Wrong::status).is_some_and(judge::is_sticky::<D>);
    let first =
        steps.iter().filter_map(|step| step.error.as_ref()).find(|error| error.code() == ErrorCode::Backend);
    if let Some(first) = first.filter(|_| sticky && !is_others) {
        let first = first.to_string();
        for error in [stage.context.stream().err(), stage.context.health().err()] {
            let told = error.map(|error| error.to_string());
            if told.as_ref() != Some(&first) {
                problems.push(format!("it failed with {first:?}, and later with {told:?}"));
            }
        }
    } else {
        let again = stage.context.stream().and_then(|stream| works(&stage.kernels, &stream));
        // A drop that asks whether work is left may be the first to hear of a fault: that breaks the context as well.
        let is_its_own = |error: &Error| sticky && wrong.is_some_and(|wrong| judge::names(error, wrong));
        let errors = [again.err(), stage.context.health().err()].into_iter().flatten();
        problems.extend(
            errors
                .filter(|error| !is_its_own(error))
                .map(|error| format!("the context does not go on: {error}")),
        );
    }
    problems
}

/// Waits until all stores have landed.
fn settled<D: Extras>(context: &Context<D>, is_honest: bool) -> Option<String> {
    let start = std::time::Instant::now();
    while is_honest && context.slots().settling > 0 {
        if start.elapsed() > Duration::from_secs(2) {
            return Some(format!("stores never land: {:?}", context.slots()));
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    None
}

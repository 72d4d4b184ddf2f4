//! The scripted programs: what a user of a driver does, one step after the other, each with its outcome.
//!
//! No program stops at a failed step: it tries once more where that can help, does what can still be done, and lets go of everything.

use std::time::{Duration, Instant as Wall};

use wakeline_core::{CompletionPort, Error, ErrorCode, Nanos, Strictness};
use wakeline_fake_driver::Fake;
use wakeline_mapped::work::OCCUPY;
use wakeline_mapped::{
    CompletionPath, Context, ContextConfig, DeviceBuffer, Graph, HostBuffer, Kernels, Ordinal, Stream,
};

use super::extras::Extras;
use super::hosts::Host;
use crate::waiting::{PLANS, plan};

/// How long the work is that is waited for.
pub(super) const WORK: Nanos = Nanos::from_micros(300);

/// How long a store is tried out at the start.
const PROBE_MS: u64 = 100;

/// How long a closing waits.
const CLOSING: Duration = Duration::from_millis(100);

/// How long the stand-in may take to do what is enqueued.
const DRAINED: Duration = Duration::from_secs(5);

/// What is waited for, and who stores its word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    Word,
    Callback,
    Poll,
    /// A running kernel stores the word.
    Kernel,
    Timed,
}

impl Of {
    const fn path(self) -> CompletionPath {
        match self {
            Self::Callback => CompletionPath::Callback,
            Self::Poll => CompletionPath::Poll,
            Self::Word | Self::Kernel | Self::Timed => CompletionPath::Word,
        }
    }
}

/// How a context comes to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Made {
    Primary,
    Created,
    /// As `Created`, without fallbacks.
    Strict,
    /// By somebody else.
    Foreign,
}

/// A scripted program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Program {
    /// Loading the driver, and asking about devices.
    Load,
    /// A context from its making to its end, once closed and once dropped.
    Context(Made, CompletionPath),
    /// Waits on this host under the plan of this number in `PLANS`, and points that nobody waits for.
    Wait(Host, usize, Of),
    /// Streams of others, and default streams.
    Foreign,
    /// Whether the context is sound, and binding it.
    Health,
    Module,
    /// Buffers and copies.
    Memory,
    /// A capture and its launches.
    Graph,
    /// A stream whose points know when they ended, from its making to its end.
    Timed,
    /// Steps of given lengths.
    Steps,
}

impl Program {
    /// Whether a kernel stores the word.
    pub(super) const fn stores_by_kernel(self) -> bool {
        matches!(self, Self::Wait(_, _, Of::Kernel))
    }

    /// How many modules stay in its context until that goes: those of kernels. `None` where it loads some itself.
    pub(super) const fn modules_kept(self) -> Option<u64> {
        match self {
            Self::Wait(_, _, Of::Timed) => Some(2),
            Self::Context(..) | Self::Timed | Self::Steps => None,
            _ => Some(1),
        }
    }
}

/// What is there before the program begins, made by a driver that works.
pub(super) struct Stage<D: Extras> {
    /// A stream by another owner in the context that the program uses.
    theirs: Stream<D>,
    timed: Option<D::Timed>,
    pub(super) kernels: Kernels<D>,
    /// The context that the program uses: the primary one.
    pub(super) context: Context<D>,
    pub(super) driver: D,
}

impl<D: Extras> Stage<D> {
    /// [`CompletionRefused`](wakeline_core::ErrorCode::CompletionRefused) on a machine that is too busy to call host functions.
    pub(super) fn set(driver: D, program: Program) -> Result<Self, Error> {
        let completion = if let Program::Wait(_, _, of) = program { of.path() } else { CompletionPath::Word };
        let config = ContextConfig { completion, strictness: Strictness::Strict, ..ContextConfig::default() };
        let context = Context::primary(&driver, Ordinal(0), &config)?;
        let kernels = Kernels::load(&context).unwrap();
        let other = Context::primary(&driver, Ordinal(0), &ContextConfig::default()).unwrap();
        let theirs = other.stream().unwrap();
        let timed = if matches!(program, Program::Wait(_, _, Of::Timed)) { D::timed(&context) } else { None };
        Ok(Self { theirs, timed, kernels, context, driver })
    }
}

/// One step of a program.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) what: &'static str,
    /// Why it failed, or its warning.
    pub(super) error: Option<Error>,
    pub(super) took: Duration,
}

/// A program under way.
pub(super) struct Script<'s, D: Extras> {
    pub(super) fake: &'s Fake,
    stage: &'s Stage<D>,
    /// Whether the driver does what it says it has done.
    is_honest: bool,
    pub(super) steps: Vec<Step>,
    /// What must never be, whatever the driver does.
    pub(super) wrong: Vec<String>,
}

impl<'s, D: Extras> Script<'s, D> {
    pub(super) fn run(fake: &'s Fake, stage: &'s Stage<D>, program: Program, is_honest: bool) -> Self {
        let mut script = Self { fake, stage, is_honest, steps: Vec::new(), wrong: Vec::new() };
        match program {
            Program::Load => D::load_program(&mut script),
            Program::Context(made, completion) => {
                script.context(made, completion, true);
                script.context(made, completion, false);
            }
            Program::Wait(host, number, Of::Kernel) => script.kernel_waits(host, PLANS[number]),
            Program::Wait(host, number, _) => script.waits(host, PLANS[number]),
            Program::Foreign => script.foreign(),
            Program::Health => script.health(),
            Program::Module => script.module(),
            Program::Memory => script.memory(),
            Program::Graph => script.graph(),
            Program::Timed => D::timed_program(&mut script),
            Program::Steps => D::steps_program(&mut script),
        }
        script.drain();
        script
    }

    pub(super) fn step<T>(
        &mut self,
        what: &'static str,
        run: impl FnOnce(&'s Stage<D>) -> Result<T, Error>,
    ) -> Option<T> {
        let start = Wall::now();
        let result = run(self.stage);
        let took = start.elapsed();
        let (value, error) = match result {
            Ok(value) => (Some(value), None),
            Err(error) => (None, Some(error)),
        };
        self.steps.push(Step { what, error, took });
        value
    }

    /// Tries a second time where it fails.
    pub(super) fn again<T>(
        &mut self,
        what: &'static str,
        run: impl Fn(&'s Stage<D>) -> Result<T, Error>,
    ) -> Option<T> {
        self.step(what, &run).or_else(|| self.step(what, &run))
    }

    /// Until nothing that was enqueued can still happen: then buffers, words and kernels may go, whatever has failed.
    pub(super) fn drain(&mut self) {
        let start = Wall::now();
        while self.fake.live().queued > 0 {
            if start.elapsed() > DRAINED {
                self.wrong.push(format!("still enqueued: {:?}", self.fake.live()));
                return;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    pub(super) fn occupied(&mut self, stream: &Stream<D>) -> Option<Wall> {
        self.occupied_by(&self.stage.kernels, stream)
    }

    /// Work, and when it was launched.
    fn occupied_by(&mut self, kernels: &Kernels<D>, stream: &Stream<D>) -> Option<Wall> {
        let launched = Wall::now();
        self.step("occupy", |_| kernels.occupy(stream, WORK)).map(|()| launched)
    }

    /// Waits, and sees that it does not end before the work that was launched.
    pub(super) fn wait<P>(
        &mut self,
        host: Host,
        text: &str,
        (port, of_kernel): (P, bool),
        launched: Option<Wall>,
    ) where
        P: CompletionPort + Send + 'static,
        P::Line: Send + Sync + 'static,
    {
        let ended = self.step("wait", |_| host.wait(&plan(text), of_kernel, port)).is_some();
        let is_early = launched.is_some_and(|at| at.elapsed() < Duration::from_nanos(WORK.as_nanos()));
        if ended && is_early && self.is_honest {
            self.wrong.push(format!("a wait ended before its work, after {:?}", self.steps.last()));
        }
    }

    fn context(&mut self, made: Made, completion: CompletionPath, closes: bool) {
        let strictness = if made == Made::Strict { Strictness::Strict } else { Strictness::Fallback };
        let config =
            ContextConfig { completion, strictness, probe_ms_max: PROBE_MS, ..ContextConfig::default() };
        let context = self.again("context", |stage| match made {
            Made::Primary => Context::primary(&stage.driver, Ordinal(0), &config),
            Made::Created | Made::Strict => stage.driver.context_beside(&config),
            Made::Foreign => {
                // SAFETY: the stage's context is there until the program has ended.
                unsafe { Context::from_raw(&stage.driver, stage.context.raw().as_ptr(), &config) }
            }
        });
        let Some(context) = context else { return };
        for warning in context.warnings() {
            let error = Some(warning.clone());
            self.steps.push(Step { what: "warning", error, took: Duration::ZERO });
        }
        let kernels = self.again("kernels", |_| Kernels::load(&context));
        let stream = self.again("stream", |_| context.stream());
        if let Some(stream) = &stream {
            for text in [PLANS[3], PLANS[5]] {
                let launched = kernels.as_ref().and_then(|kernels| self.occupied_by(kernels, stream));
                if let Some(port) = self.again("armed port", |_| stream.armed_port()) {
                    self.wait(Host::Inline, text, (port, false), launched);
                }
            }
        }
        self.step("health", |_| context.health());
        self.drain();
        drop((stream, kernels));
        if closes {
            self.step("close", |_| context.close(CLOSING));
        }
    }

    fn waits(&mut self, host: Host, text: &str) {
        let stage = self.stage;
        let stream = match &stage.timed {
            Some(timed) => Some(D::stream_of(timed)),
            None => self.again("stream", |stage| stage.context.stream()),
        };
        let Some(stream) = stream else { return };
        for _ in 0..2 {
            let launched = self.occupied(&stream);
            if let Some(timed) = &stage.timed {
                D::wait_timed(self, host, text, timed, launched);
            } else if let Some(port) = self.step("port", |_| stream.port()) {
                self.wait(host, text, (port, false), launched);
            }
        }
        let _ = self.occupied(&stream);
        let one = self.step("port", |_| stream.port());
        let other = self.step("armed port", |_| stream.armed_port());
        drop((one, other));
        self.drain();
    }

    fn kernel_waits(&mut self, host: Host, text: &str) {
        let Some(stream) = self.again("stream", |stage| stage.context.stream()) else { return };
        let Some(word) = self.again("kernel word", |stage| stage.context.kernel_word()) else { return };
        for _ in 0..2 {
            let number = word.reads().next();
            let launched = Wall::now();
            let stored =
                self.step("store", |stage| stage.kernels.store_word(&stream, &word, number.get(), WORK));
            if let Some(port) = self.step("kernel port", |_| word.port(&stream, number)) {
                // What was not launched is never stored: that is for the one who launches to see.
                if stored.is_some() {
                    self.wait(host, text, (port, true), Some(launched));
                }
            }
            self.drain();
        }
        // SAFETY: all kernels have ended, and no other is launched.
        unsafe { word.retire() };
    }

    fn foreign(&mut self) {
        let raws = [self.stage.theirs.raw().as_ptr(), core::ptr::null_mut()];
        for raw in raws.into_iter().chain([1, 2].map(core::ptr::without_provenance_mut)) {
            let stream = self.again("foreign stream", |stage| {
                // SAFETY: the stage has the one, and the others stand for streams that are always there.
                unsafe { Stream::from_raw(&stage.context, raw) }
            });
            let Some(stream) = stream else { continue };
            for text in [PLANS[3], PLANS[6]] {
                let launched = self.occupied(&stream);
                if let Some(port) = self.step("port", |_| stream.port()) {
                    self.wait(Host::Inline, text, (port, false), launched);
                }
            }
            self.drain();
        }
    }

    fn health(&mut self) {
        for _ in 0..2 {
            self.step("health", |stage| stage.context.health());
            self.step("bind", |stage| stage.context.bind().map(drop));
        }
    }

    fn module(&mut self) {
        let Some(stream) = self.again("stream", |stage| stage.context.stream()) else { return };
        for _ in 0..2 {
            let Some(module) = self.again("module", |stage| D::module(&stage.context)) else {
                return;
            };
            let Some(function) = self.again("function", |_| module.function(OCCUPY)) else { continue };
            let (launched, ns) = (Wall::now(), WORK.as_nanos());
            let launched = self.step("launch", |_| {
                // SAFETY: the stream is alive and of the context; the kernel takes one u64 and touches no memory. The module stays until all
                // is drained.
                unsafe { function.launch(stream.raw(), 1, 1, 0, [&ns]) }.map(|()| launched)
            });
            if let Some(port) = self.step("port", |_| stream.port()) {
                self.wait(Host::Inline, PLANS[3], (port, false), launched);
            }
            self.drain();
        }
    }

    fn memory(&mut self) {
        const BYTES: usize = 8_192;
        let Some(stream) = self.again("stream", |stage| stage.context.stream()) else { return };
        for byte in [7, 9] {
            let buffers = (
                self.again("host buffer", |stage| HostBuffer::new(&stage.context, BYTES)),
                self.again("host buffer", |stage| HostBuffer::new(&stage.context, BYTES)),
                self.again("device buffer", |stage| DeviceBuffer::new(&stage.context, BYTES)),
            );
            let (Some(mut from), Some(to), Some(device)) = buffers else { continue };
            from.as_mut_slice().fill(byte);
            // SAFETY: the stream is alive and of the context; the buffers are neither used nor dropped before all is drained.
            let filled = self.step("fill", |_| unsafe { device.fill(stream.raw(), 1) });
            // SAFETY: as above.
            let up = self.step("copy up", |_| unsafe { device.copy_from(stream.raw(), &from) });
            // SAFETY: as above.
            let down = self.step("copy down", |_| unsafe { device.copy_to(stream.raw(), &to) });
            let port = self.step("port", |_| stream.port());
            let all = filled.and(up).and(down).is_some() && port.is_some();
            if let Some(port) = port {
                self.wait(Host::Inline, PLANS[6], (port, false), None);
            }
            let ended = self.steps.last().is_some_and(|step| step.what == "wait" && step.error.is_none());
            self.drain();
            if all && ended && self.is_honest && to.as_slice() != from.as_slice() {
                self.wrong.push("copied bytes are stale".to_owned());
            }
        }
    }

    fn graph(&mut self) {
        let Some(stream) = self.again("stream", |stage| stage.context.stream()) else { return };
        let graph = self.again("capture", |stage| {
            Graph::capture(&stream, stage.kernels.clone(), |kernels| kernels.occupy(&stream, WORK))
        });
        if let Some(mut graph) = graph {
            for _ in 0..2 {
                let launched = Wall::now();
                // SAFETY: the stream is alive; the graph stays until all is drained.
                let done = self.step("launch", |_| unsafe { graph.launch(stream.raw()) });
                if let Some(port) = self.step("port", |_| stream.port()) {
                    self.wait(Host::Inline, PLANS[3], (port, false), done.map(|()| launched));
                }
            }
            self.drain();
        }
        // A capture whose work fails.
        self.step("capture in vain", |stage| {
            let given_up = |_: &Kernels<D>| Err(Error::new(ErrorCode::PendedInline, []));
            match Graph::capture(&stream, stage.kernels.clone(), given_up) {
                Err(error) if error.code() == ErrorCode::PendedInline => Ok(()),
                other => other.map(drop),
            }
        });
        if let Some(port) = self.again("port", |_| stream.port()) {
            self.wait(Host::Inline, PLANS[3], (port, false), None);
        }
    }
}

//! What the programs do that is each vendor's own: loading and devices, modules, and what CUDA alone has.

use std::time::Instant as Wall;

use wakeline_core::Error;
use wakeline_cuda::kernels::{PTX, TimedSteps};
use wakeline_cuda::{Attribute, Cuda, Loader, TimedStream};
use wakeline_hip::{CompileOptions, Compiler, Hip, kernels};
use wakeline_mapped::{Context, Module, Ordinal, Stream};
use wakeline_std::StdClock;
use wakeline_tests::vendor::Vendor;

use super::hosts::Host;
use super::program::{Script, WORK};
use crate::waiting::PLANS;

/// A vendor, with what is its own.
pub(super) trait Extras: Vendor {
    /// A stream whose points know when they ended.
    type Timed: Send + Sync + 'static;

    /// Whether there are such streams, and steps of given lengths.
    const HAS_TIMES: bool;

    /// Whether the drop of a stream asks if it is idle.
    const DROPS_ASK: bool = Self::STREAM_DESTROY_WAITS;

    /// How many rows the usual tests run.
    const PART: usize;

    fn timed(context: &Context<Self>) -> Option<Self::Timed>;

    fn stream_of(timed: &Self::Timed) -> Stream<Self>;

    /// Waits for a point of it, behind work that was launched.
    fn wait_timed(
        script: &mut Script<'_, Self>,
        host: Host,
        text: &str,
        timed: &Self::Timed,
        launched: Option<Wall>,
    );

    /// The module of kernels.
    fn module(context: &Context<Self>) -> Result<Module<Self>, Error>;

    /// Loads the library, and asks about devices.
    fn load_program(script: &mut Script<'_, Self>);

    fn timed_program(script: &mut Script<'_, Self>);

    fn steps_program(script: &mut Script<'_, Self>);
}

impl Extras for Cuda {
    type Timed = TimedStream<StdClock>;

    const HAS_TIMES: bool = true;

    const PART: usize = 1_500;

    fn timed(context: &Context<Self>) -> Option<Self::Timed> {
        Some(TimedStream::new(&context.stream().unwrap(), StdClock::new()).unwrap())
    }

    fn stream_of(timed: &Self::Timed) -> Stream<Self> {
        timed.stream().clone()
    }

    fn wait_timed(
        script: &mut Script<'_, Self>,
        host: Host,
        text: &str,
        timed: &Self::Timed,
        launched: Option<Wall>,
    ) {
        if let Some(port) = script.step("timed port", |_| timed.port()) {
            script.wait(host, text, (port, false), launched);
        }
    }

    fn module(context: &Context<Self>) -> Result<Module<Self>, Error> {
        Module::from_ptx(context, PTX)
    }

    fn load_program(script: &mut Script<'_, Self>) {
        let path = script.fake.path();
        script.again("load by exported names", |_| Loader::new().path(path).without_proc_address().load());
        let Some(cuda) = script.again("load", |_| Self::load_from(path)) else { return };
        let Some(device) = script.again("device", |_| cuda.device(Ordinal(0))) else { return };
        for _ in 0..2 {
            script.step("name", |_| device.name());
            script.step("uuid", |_| device.uuid());
            script.step("attribute", |_| device.attribute(Attribute::MULTIPROCESSORS));
            script.step("capability", |_| device.compute_capability());
            script.step("stores", |_| device.stores_words());
            script.step("maps", |_| device.maps_host_memory());
            script.step("memory", |_| device.total_memory());
            script.step("active", |_| device.primary_context_is_active());
        }
    }

    fn timed_program(script: &mut Script<'_, Self>) {
        let Some(stream) = script.again("stream", |stage| stage.context.stream()) else { return };
        let timed = script.again("timed stream", |_| TimedStream::new(&stream, StdClock::new()));
        let Some(timed) = timed else { return script.drain() };
        for _ in 0..2 {
            let launched = script.occupied(&stream);
            Self::wait_timed(script, Host::Inline, PLANS[4], &timed, launched);
        }
        script.drain();
    }

    fn steps_program(script: &mut Script<'_, Self>) {
        let Some(stream) = script.again("stream", |stage| stage.context.stream()) else { return };
        let steps = script.again("steps", |_| TimedSteps::new(&stream, StdClock::new()));
        let Some(steps) = steps else { return script.drain() };
        for graphed in [false, true] {
            let before = Wall::now();
            let launched = script.step("launch a step", |_| steps.launch(WORK, graphed));
            if let Some(port) = script.step("port", |_| stream.port()) {
                script.wait(Host::Inline, PLANS[3], (port, false), launched.map(|_| before));
            }
            script.drain();
            if let Some(launched) = launched {
                script.step("ended", |_| steps.ended(launched));
            }
        }
        script.drain();
    }
}

impl Extras for Hip {
    type Timed = ();

    const HAS_TIMES: bool = false;

    const PART: usize = 700;

    fn timed(_: &Context<Self>) -> Option<()> {
        None
    }

    fn stream_of((): &()) -> Stream<Self> {
        unreachable!("it makes none")
    }

    fn wait_timed(_: &mut Script<'_, Self>, _: Host, _: &str, (): &(), _: Option<Wall>) {}

    fn module(context: &Context<Self>) -> Result<Module<Self>, Error> {
        let compiler = Compiler::at(context.driver().library());
        Module::from_source(context, &compiler, kernels::SOURCE, &CompileOptions::new())
    }

    fn load_program(script: &mut Script<'_, Self>) {
        use wakeline_hip::Attribute;
        let path = script.fake.path();
        let Some(hip) = script.again("load", |_| Self::load_from(path)) else { return };
        let Some(device) = script.again("device", |_| hip.device(Ordinal(0))) else { return };
        for _ in 0..2 {
            script.step("name", |_| device.name());
            script.step("arch", |_| device.arch());
            script.step("attribute", |_| device.attribute(Attribute::MULTIPROCESSORS));
            script.step("waits", |_| device.waits_for_words());
            script.step("maps", |_| device.maps_host_memory());
            script.step("memory", |_| device.total_memory());
        }
    }

    fn timed_program(_: &mut Script<'_, Self>) {}

    fn steps_program(_: &mut Script<'_, Self>) {}
}

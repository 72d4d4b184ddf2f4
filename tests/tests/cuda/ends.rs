//! How processes end, and what a fork's child is told: this program runs again as another process for it.

use std::future::Future;
use std::pin::pin;
use std::process::{Child, Command, ExitStatus};
use std::task::{Context as Task, Waker};
use std::time::{Duration, Instant as Wall};

use wakeline_core::{CompletionPort, ErrorCode, Seq};
use wakeline_cuda::{Cuda, TimedStream};
use wakeline_fake_driver::Fake;
use wakeline_hip::Hip;
use wakeline_mapped::{CompletionPath, Context, ContextConfig, Kernels, Ordinal, Port, Stream};
use wakeline_std::{Point, StdClock, Watcher, block_on};
use wakeline_tests::driver_tests;
use wakeline_tests::rig::Rig;
use wakeline_tests::vendor::Vendor;
use wakeline_tokio::TokioWatcher;

use crate::waiting::{PLANS, ms, plan, wait};

driver_tests![
    Both: case_25_a_process_ends_well_with_waits_in_flight;
    @cuda Fake: a_forks_child_is_told_so;
];

/// What an argument that has this program be a child begins with. Behind it: the driver, and what is to be done.
const CHILD: &str = "--child=";

/// How many of them run at once. On a GPU one: a process that keeps it busy keeps others from it.
const fn at_once<D: Vendor>(rig: &Rig<D>) -> usize {
    if rig.is_fake() { 4 } else { 1 }
}

/// A process that has not ended by then hangs.
const HANGS: Duration = Duration::from_secs(30);

/// Longer than any of this takes.
const LONG_MS: u64 = 40_000;

/// The child's part, if this process is one: its exit code.
pub(crate) fn child() -> Option<i32> {
    let argument = std::env::args().nth(1)?;
    let (driver, part) = argument.strip_prefix(CHILD)?.split_once(':')?;
    let fake = [Cuda::ON.0, Hip::ON.0].contains(&driver).then(|| Fake::new().unwrap());
    if [Hip::ON.0, Hip::ON.1].contains(&driver) {
        return Some(ends_with_waits(&loaded::<Hip>(fake.as_ref()), part.parse().unwrap()));
    }
    let cuda = loaded::<Cuda>(fake.as_ref());
    Some(match part.parse() {
        Ok(way) => ends_with_waits(&cuda, way),
        Err(_) => forks(&cuda),
    })
}

fn loaded<D: Vendor>(fake: Option<&Fake>) -> D {
    fake.map_or_else(D::load, |fake| D::load_from(fake.path())).unwrap()
}

fn start<D: Vendor>(rig: &Rig<D>, part: &str) -> Child {
    let driver = if rig.is_fake() { D::ON.0 } else { D::ON.1 };
    let program = std::env::current_exe().unwrap();
    let mut child = Command::new(program);
    // A GPU runs nothing new in a queue that it shares with work that is not done, and has eight where nothing is said: fewer than there are streams here.
    child.env("CUDA_DEVICE_MAX_CONNECTIONS", "32");
    child.arg(format!("{CHILD}{driver}:{part}")).spawn().unwrap()
}

fn end_of(mut child: Child, what: &str) -> ExitStatus {
    let start = Wall::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > HANGS {
            child.kill().unwrap();
            panic!("a process hangs as it ends: {what}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Processes crashed as they ended: the driver went first, or threads still waited.
fn case_25_a_process_ends_well_with_waits_in_flight<D: Vendor>(rig: &Rig<D>) {
    let ways: Vec<_> = (0..D::EXITS).collect();
    for ways in ways.chunks(at_once(rig)) {
        let children: Vec<_> = ways.iter().map(|way| (way, start(rig, &way.to_string()))).collect();
        for (way, child) in children {
            let status = end_of(child, &way.to_string());
            assert_eq!(status.code(), Some(0), "way {way}: {status}");
        }
    }
}

/// A stream that is occupied for longer than the process lives.
fn busy<D: Vendor>(context: &Context<D>, kernels: &Kernels<D>) -> Stream<D> {
    let stream = context.stream().unwrap();
    kernels.occupy(&stream, ms(LONG_MS)).unwrap();
    stream
}

/// Has waits under way on threads, on a watcher and on a runtime, and ends: by `exit`, or by letting go of everything.
fn ends_with_waits<D: Vendor>(driver: &D, way: usize) -> i32 {
    let completion = if way % 4 < 2 { CompletionPath::Word } else { CompletionPath::Callback };
    let config = ContextConfig { completion, ..ContextConfig::default() };
    let context = driver.own_context(&config).unwrap();
    let kernels = Kernels::load(&context).unwrap();
    for text in PLANS {
        let mut port = busy(&context, &kernels).port().unwrap();
        std::thread::spawn(move || wait(text, &mut port));
    }
    let watcher = Watcher::new().unwrap();
    let point = Point::new("end");
    let port = |armed: bool| -> Port<D> {
        let stream = busy(&context, &kernels);
        if armed { stream.armed_port().unwrap() } else { stream.port().unwrap() }
    };
    let mut begun = pin!(watcher.wait(port(true), &plan(PLANS[way % PLANS.len()]), &point));
    assert!(begun.as_mut().poll(&mut Task::from_waker(Waker::noop())).is_pending());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build().unwrap();
    let handle = TokioWatcher::new(&watcher);
    for text in PLANS {
        let (handle, port) = (handle.clone(), port(false));
        runtime.spawn(async move { handle.wait(port, &plan(text), &Point::new("end")).await });
    }
    // One that has ended, so that all of them have begun.
    let stream = context.stream().unwrap();
    kernels.occupy(&stream, ms(1)).unwrap();
    block_on(watcher.wait(stream.port().unwrap(), &plan(PLANS[3]), &point)).unwrap();
    std::thread::sleep(Duration::from_millis(u64::try_from(way).unwrap() % 5));
    if way.is_multiple_of(2) {
        std::process::exit(0);
    }
    // A blocking wait holds up its thread, which no runtime can end.
    runtime.shutdown_background();
    0
}

/// The driver does not work in a fork's child: every way to use it says so.
fn a_forks_child_is_told_so(rig: &Rig<Cuda>) {
    let status = end_of(start(rig, "fork"), "a fork");
    assert_eq!(status.code(), Some(0), "the number of what was not told: {status}");
}

/// Forks; says which of the child's answers was another than that it was forked off, counted from 1.
fn forks(cuda: &Cuda) -> i32 {
    let context = Context::create(cuda, Ordinal(0), &ContextConfig::default()).unwrap();
    let kernels = Kernels::load(&context).unwrap();
    let stream = context.stream().unwrap();
    let word = context.kernel_word().unwrap();
    context.health().unwrap();
    let (mut bare, mut other) = (stream.port().unwrap(), stream.port().unwrap());
    let mut armed = stream.armed_port().unwrap();
    let timed = TimedStream::new(&stream, StdClock::new()).unwrap();
    let stamped = timed.port().unwrap();
    let given = context.kernel_word().unwrap();
    given.address();
    // SAFETY: no other thread of this process holds a lock that the child needs: those of the driver's library are not touched there.
    let process = unsafe { libc::fork() };
    if process == 0 {
        let raw = stream.raw().as_ptr();
        let codes = [
            context.stream().err(),
            context.kernel_word().err(),
            context.health().err(),
            context.bind().err(),
            stream.port().err(),
            stream.armed_port().err(),
            word.port(&stream, word.reads()).err(),
            kernels.occupy(&stream, ms(1)).err(),
            timed.port().err(),
            bare.query().err(),
            bare.arm().err(),
            wait(PLANS[0], &mut bare).err(),
            wait(PLANS[1], &mut bare).err(),
            wait(PLANS[3], &mut other).err(),
            wait(PLANS[5], &mut other).err(),
            wait(PLANS[5], &mut armed).err(),
            // SAFETY: the stream is the parent's, and no call is made of it.
            unsafe { Stream::from_raw(&context, raw) }.err(),
            context.clone().close(Duration::ZERO).err(),
        ];
        let codes = codes.map(|error| error.map(|error| error.code()));
        let wrong = codes.iter().position(|code| *code != Some(ErrorCode::Forked));
        // Neither hangs nor crashes, though the pages of words are not there.
        word.set(Seq::new(1));
        assert_eq!(stamped.ended(), None);
        // SAFETY: no kernel was launched that stores it.
        unsafe { given.retire_behind(&stream) };
        drop((bare, other, armed, stamped, timed, word, kernels, stream, context));
        // SAFETY: it ends the process, without what the parent does at its end.
        unsafe { libc::_exit(wrong.map_or(0, |index| i32::try_from(index).unwrap() + 1)) };
    }
    let mut status = 0;
    // SAFETY: `status` is a number's room, and the child this process's.
    let waited = unsafe { libc::waitpid(process, &raw mut status, 0) };
    assert_eq!(waited, process);
    drop((bare, other, armed, stamped, timed, given, kernels));
    // The parent goes on.
    context.health().unwrap();
    wait(PLANS[5], &mut stream.port().unwrap()).unwrap();
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 99 }
}

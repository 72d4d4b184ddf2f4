//! Check `exits`: a process that ends with waits in flight ends well.
//!
//! The program runs itself, some of it at a time: each child keeps the device busy, has something wait for it in one of several ways, and ends.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use wakeline_benches::gpu::{Failure, Gpu, Host, PLANS, TRUSTED, learned};
use wakeline_core::{Nanos, WaitPlan};
use wakeline_cuda::{CudaPort, synchronize};
use wakeline_std::{Point, Watcher};
use wakeline_tokio::TokioWatcher;

use crate::args::Check;
use crate::child::{Child, NAP};
use crate::output::{Output, Verdict};
use crate::own::{LOST, Own};

/// How long the device is busy in a child: longer than the child takes to end.
const BUSY: Nanos = Nanos::from_millis(2_000);

/// How long a child waits before it ends, so that its waits are under way.
const SETTLES: Duration = Duration::from_millis(30);

/// How many children there are at a time, at most.
const CHILDREN_MAX: usize = 8;

/// What is in flight when the process ends, and how it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leaving {
    /// `main` returns while another thread waits.
    Thread,
    /// The same by `exit`, while one waits under each plan.
    Exit,
    /// `main` returns while a watcher waits for a thread.
    Watcher,
    /// `exit` while a watcher waits for tasks of a tokio runtime.
    Tokio,
    /// `main` returns while another thread is in the driver's own wait.
    Driver,
    /// `main` returns when all was dropped, and the device goes on.
    Dropped,
    /// `main` returns, and ports, a stream and a watcher were forgotten.
    Forgotten,
}

impl Leaving {
    pub(crate) const ALL: [Self; 7] =
        [Self::Thread, Self::Exit, Self::Watcher, Self::Tokio, Self::Driver, Self::Dropped, Self::Forgotten];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Exit => "exit",
            Self::Watcher => "watcher",
            Self::Tokio => "tokio",
            Self::Driver => "driver",
            Self::Dropped => "dropped",
            Self::Forgotten => "forgotten",
        }
    }
}

/// The child's part: has something in flight and ends.
pub(crate) fn leave(leaving: Leaving, gpu: &Gpu) -> Result<(), Failure> {
    let own = Own::new(gpu)?;
    let stream = own.context.stream()?;
    own.kernels.occupy(&stream, BUSY)?;
    let watcher = Watcher::new()?;
    let trusted: WaitPlan = TRUSTED.parse()?;
    match leaving {
        Leaving::Thread => wait_elsewhere(PLANS[3], stream.armed_port()?),
        Leaving::Exit => {
            for text in PLANS {
                wait_elsewhere(text, stream.armed_port()?);
            }
            std::thread::sleep(SETTLES);
            std::process::exit(0);
        }
        Leaving::Watcher => {
            let wait = watcher.wait(stream.port()?, &trusted, &Point::new("exit"));
            std::thread::spawn(move || too_early(wakeline_std::block_on(wait).is_ok()));
        }
        Leaving::Tokio => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
            let tokio = TokioWatcher::new(&watcher);
            for _ in 0..8 {
                let wait = tokio.wait(stream.port()?, &trusted, &Point::new("exit"));
                runtime.spawn(async move { too_early(wait.await.is_ok()) });
            }
            std::thread::sleep(SETTLES);
            std::process::exit(0);
        }
        Leaving::Driver => {
            let stream = stream.clone();
            std::thread::spawn(move || too_early(synchronize(&stream).is_ok()));
        }
        Leaving::Dropped => drop((stream.armed_port()?, stream.port()?)),
        Leaving::Forgotten => {
            core::mem::forget((stream.armed_port()?, stream.port()?, stream.clone()));
            core::mem::forget(watcher.wait(stream.port()?, &trusted, &Point::new("exit")));
            core::mem::forget(watcher);
        }
    }
    std::thread::sleep(SETTLES);
    Ok(())
}

fn wait_elsewhere(text: &'static str, port: CudaPort) {
    std::thread::spawn(move || {
        let ended = text
            .parse::<WaitPlan>()
            .and_then(|plan| Host::Inline.wait(&plan, port, &learned(&plan, Nanos::from_millis(20)), LOST));
        too_early(ended.is_ok());
    });
}

/// A wait that ends well before its process does was not in flight: then nothing was checked. One that fails meanwhile says that the driver is gone.
fn too_early(well: bool) {
    if well {
        std::process::exit(4);
    }
}

/// What was seen.
#[derive(Clone, Copy, Debug, Serialize)]
struct Seen {
    longest_ms: u64,
}

pub(crate) fn exits(
    output: &mut Output<impl Write>,
    driver: Option<&Path>,
    exits: u64,
) -> Result<(), Failure> {
    for (index, leaving) in (0..).zip(Leaving::ALL) {
        let children = crate::own::share(exits, index, Leaving::ALL.len() as u64);
        if children == 0 {
            continue;
        }
        let (failed, longest) = run_children(leaving, driver, children)?;
        output.tell(Verdict {
            check: Check::Exits,
            name: leaving.name().to_owned(),
            count: children,
            broken: failed.first().map(|first| format!("{} failed, the first: {first}", failed.len())),
            detail: Seen { longest_ms: u64::try_from(longest.as_millis()).unwrap_or(u64::MAX) },
        })?;
    }
    Ok(())
}

/// What became of those that failed, and how long the slowest took.
fn run_children(
    leaving: Leaving,
    driver: Option<&Path>,
    children: u64,
) -> Result<(Vec<String>, Duration), Failure> {
    let at_once = std::thread::available_parallelism().map_or(1, Into::into).min(CHILDREN_MAX);
    let (mut left, mut running, mut failed) = (children, Vec::new(), Vec::new());
    let mut longest = Duration::ZERO;
    while left > 0 || !running.is_empty() {
        while left > 0 && running.len() < at_once {
            running.push(Child::start(&["--leave", leaving.name()], driver)?);
            left -= 1;
        }
        let mut still = Vec::new();
        for mut child in running {
            match child.look()? {
                None => still.push(child),
                Some(ended) => {
                    longest = longest.max(ended.took);
                    failed.extend(ended.said.err());
                }
            }
        }
        running = still;
        std::thread::sleep(NAP);
    }
    Ok((failed, longest))
}

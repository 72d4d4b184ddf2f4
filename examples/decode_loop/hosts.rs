//! The hosts that wait for the same steps, and what each needs.

use std::fmt;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use tokio::runtime::{Builder, Runtime};
use wakeline::{Error, ErrorCode, ExecutorKind, LineRef, Strictness, resolve};
use wakeline_std::{ParkPolicy, StdClock, Watcher, WatcherConfig};
use wakeline_tokio::{TokioLocal, TokioWatcher};
use wakeline_uring::Probe;

use crate::Failure;

/// Who waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Host {
    /// The measuring thread, by itself.
    Std,
    /// A task of that thread, for which a watcher watches.
    Watcher,
    /// A task of a tokio runtime with several threads, for which a watcher watches.
    Tokio,
    /// A task of a tokio runtime of one thread, which watches.
    TokioLocal,
    /// A task of an executor that sleeps in an `io_uring`.
    Uring,
}

impl Host {
    pub(crate) const ALL: [Self; 5] = [Self::Std, Self::Watcher, Self::Tokio, Self::TokioLocal, Self::Uring];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Std => "std",
            Self::Watcher => "watcher",
            Self::Tokio => "tokio",
            Self::TokioLocal => "tokio-local",
            Self::Uring => "uring",
        }
    }

    /// What waits, for people.
    pub(crate) const fn what(self) -> &'static str {
        match self {
            Self::Std => "the measuring thread waits by itself",
            Self::Watcher => "it sleeps in `block_on`; a watcher's thread watches, and wakes it early",
            Self::Tokio => "a task of a `multi_thread` runtime of tokio, which that watcher wakes early",
            Self::TokioLocal => "a task of a `current_thread` runtime of tokio, which watches by itself",
            Self::Uring => "a task of an executor that sleeps in an io_uring",
        }
    }

    /// Whether several threads wait, so that the clock of one does not tell what that takes.
    pub(crate) const fn has_threads(self) -> bool {
        matches!(self, Self::Watcher | Self::Tokio)
    }
}

/// What `--host` names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    One(Host),
    All,
}

impl ValueEnum for Named {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::One(Host::Std),
            Self::One(Host::Watcher),
            Self::One(Host::Tokio),
            Self::One(Host::TokioLocal),
            Self::One(Host::Uring),
            Self::All,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::One(host) => PossibleValue::new(host.name()).help(host.what()),
            Self::All => PossibleValue::new("all").help("all of these"),
        })
    }
}

/// A host that cannot run here, and why.
#[derive(Clone, Debug)]
pub(crate) struct LeftOut {
    host: Host,
    warning: Error,
    why: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, warning, why } = self;
        // What the warning says would run instead does not here.
        let lack = warning.args().get(1).map_or("it cannot run here", |lack| lack);
        write!(f, "warning: the host `{}` is left out: {}: {lack}: {why}", host.name(), warning.code())
    }
}

/// The hosts that were asked for, each once and in that order, but for those that cannot run here.
pub(crate) fn choose(named: &[Named]) -> Result<(Vec<Host>, Vec<LeftOut>), Failure> {
    let mut hosts: Vec<Host> = Vec::new();
    let asked = named.iter().flat_map(|named| match named {
        Named::One(host) => std::slice::from_ref(host),
        Named::All => &Host::ALL,
    });
    for host in asked {
        if !hosts.contains(host) {
            hosts.push(*host);
        }
    }
    if named.is_empty() {
        hosts.push(Host::Std);
    }
    let mut left_out = Vec::new();
    if hosts.contains(&Host::Uring)
        && let Some(left) = without_ring(&Probe::run())?
    {
        hosts.retain(|host| *host != Host::Uring);
        left_out.push(left);
    }
    Ok((hosts, left_out))
}

/// The warning where there is no ring.
fn without_ring(probe: &Probe) -> Result<Option<LeftOut>, Failure> {
    let declared = resolve(ExecutorKind::IoUring, Strictness::Fallback, &probe.caps())?;
    if declared.granted() == ExecutorKind::IoUring {
        return Ok(None);
    }
    let fell = declared.warnings().iter().find(|warning| warning.code() == ErrorCode::ExecutorFallback);
    let why = probe.why_not().unwrap_or_default().to_owned();
    Ok(fell.map(|warning| LeftOut { host: Host::Uring, warning: warning.clone(), why }))
}

/// What the hosts consist of, where they were asked for.
pub(crate) struct Waiters<L> {
    pub(crate) watcher: Option<Watcher>,
    pub(crate) tokio: Option<(Runtime, TokioWatcher)>,
    pub(crate) local: Option<(TokioLocal<L>, Runtime)>,
    pub(crate) ring: Option<Ring>,
}

impl<L: LineRef> Waiters<L> {
    /// To be called before this thread is kept to one processor: the threads that are started here may run on any.
    pub(crate) fn start(hosts: &[Host], clock: StdClock, policy: ParkPolicy) -> Result<Self, Failure> {
        let has = |host| hosts.contains(&host);
        let watcher = (has(Host::Watcher) || has(Host::Tokio))
            .then(|| Watcher::with(WatcherConfig::default().park(policy)))
            .transpose()?;
        let tokio = match &watcher {
            Some(watcher) if has(Host::Tokio) => {
                let runtime = Builder::new_multi_thread().enable_all().build();
                Some((runtime.map_err(|error| no_runtime(&error))?, TokioWatcher::new(watcher)))
            }
            _ => None,
        };
        let local = || {
            let runtime = Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| no_runtime(&error))?;
            let local = runtime.block_on(async { TokioLocal::new(clock, policy) })?;
            Ok::<_, Failure>((local, runtime))
        };
        let local = has(Host::TokioLocal).then(local).transpose()?;
        let ring = has(Host::Uring).then(|| ring(clock)).transpose()?;
        Ok(Self { watcher, tokio, local, ring })
    }

    /// Ends their threads.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let Self { watcher, tokio, .. } = self;
        drop(tokio);
        watcher.map_or(Ok(()), |watcher| watcher.close(Watcher::CLOSE))?;
        Ok(())
    }
}

fn no_runtime(error: &std::io::Error) -> Error {
    Error::new(ErrorCode::Backend, [&"tokio", &"making a runtime", error])
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) type Ring = wakeline_uring::UringIdle;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn ring(clock: StdClock) -> Result<Ring, Error> {
    Ring::new(clock)
}

/// Never there.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) type Ring = wakeline_std::StdIdle;

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn ring(_: StdClock) -> Result<Ring, Error> {
    Err(Error::new(ErrorCode::Backend, [&"io_uring", &"io_uring_setup", &"not here"]))
}

//! Gates: work that is enqueued ahead and starts when the host says so.
//!
//! ```text
//!   waits ──its operation is submitted──► closed ──open, by its handle──────────────► open: what is behind it runs
//!     │                                     ├─handle dropped───────────────────────►┤
//!     │                                     ├─deadline, told by who tends──────────►┤ those who await what is behind are told
//!     │                                     └─who tends is gone, submission failed──►┤
//!     └──open, before it is submitted────────────────────────────────────────────────┘
//! ```
//!
//! Invariants: a word that a stream waits for is opened, whatever becomes of its handle, its flight, the runtime, the device or who tends; it is kept until the
//! flight that waits for it has ended.

use core::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Wake, Waker};

use wakeline_core::{Error, ErrorCode, Instant, Nanos, within};

use crate::device_op;
use crate::op::DeviceOp;
use crate::port::Gates;
use crate::room::ClosedGates;
use crate::runtime::Core;
use crate::submission::{Submission, Verdict};
use crate::sync::Lock;

/// The longest time for which a gate may be made to stay closed.
pub const GATE_MS_MAX: u64 = 10_000;

/// A gate that is opened by hand, and the operation that waits for it on the device: what is composed behind that is enqueued at once and starts when the gate is opened,
/// by a store of the host, with no launch in between.
///
/// It stays closed for at most `closed` from its submission on: then whoever tends the runtime's points opens it. Whoever awaits what is behind it is told:
/// [`GateTimedOut`](ErrorCode::GateTimedOut), and [`GateDropped`](ErrorCode::GateDropped) where its handle was dropped, though that has run. So nothing stays closed, whoever
/// forgets about it.
///
/// Until it is opened all that is enqueued behind it waits: what this operation composes, later operations of the same stream, and what conflicts with those. So submit
/// in the order in which the gates are opened: whoever waits for a result before opening a gate that the result is behind, in a stream that both use, waits until the deadline.
/// On an NVIDIA H200 a fault of the device was told only when no stream waited for a word any more: by the deadline at most.
/// Costs four allocations and an entry in the queue of times of who tends, until that time. Opening it is a store under a lock of its own, behind which who tends is told,
/// and woken where it sleeps.
///
/// ```
/// use std::pin::pin;
/// use std::task::{Context, Waker};
/// use wakeline_core::Nanos;
/// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin, gate};
/// use wakeline_tensor::Tensor;
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let watcher = VirtualWatcher::new(&device);
/// let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), watcher.clone())?;
/// let (gate, opened) = gate(Nanos::from_millis(50))?;
/// let step = opened.then(|()| Tensor::full(2, 7_u8)).then(|tensor| tensor.to_host());
/// let mut step = pin!(step.on(&runtime));
/// // The first poll enqueues all of it; most often that is a task's.
/// assert!(step.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
/// gate.open()?;
/// assert_eq!(watcher.run(step)??, [7, 7]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidLimit`](ErrorCode::InvalidLimit) for no time, and for more than [`GATE_MS_MAX`]. The operation errs where the device has no gates.
pub fn gate<D: Gates>(closed: Nanos) -> Result<(Gate<D>, GateOp<D>), Error> {
    let closed = within(
        "how long a gate stays closed",
        closed,
        Nanos::from_nanos(1),
        Nanos::from_millis(GATE_MS_MAX),
    )?;
    let inner = Arc::new(Inner { phase: Lock::new(Phase::Waits), shut: OnceLock::new(), closed });
    Ok((Gate(Arc::clone(&inner)), GateOp(inner)))
}

/// Opens a gate. Dropping it does so as well, and is told to whoever awaits what is behind; see [`gate`].
#[must_use = "dropping it opens the gate"]
pub struct Gate<D: Gates>(Arc<Inner<D>>);

/// Waits for a gate on the device; see [`gate`].
#[must_use = "an operation does nothing until it is awaited or run"]
pub struct GateOp<D: Gates>(Arc<Inner<D>>);

struct Inner<D: Gates> {
    phase: Lock<Phase>,
    /// Set before a stream waits for it.
    shut: OnceLock<Shut<D>>,
    closed: Nanos,
}

/// What there is of it once it is closed.
struct Shut<D: Gates> {
    /// Its flight keeps it, so that it is given back though the handle is forgotten.
    word: Weak<D::Word>,
    gates: Arc<ClosedGates>,
    number: u64,
    core: Weak<Core<D>>,
}

impl<D: Gates> Shut<D> {
    fn open(&self) {
        if let Some(word) = self.word.upgrade() {
            D::open(&word);
        }
        self.gates.open(self.number);
        // Behind the store, which is what counts.
        if let Some(core) = self.core.upgrade() {
            core.tender.attend();
        }
    }
}

#[derive(Clone, Copy)]
enum Phase {
    Waits,
    /// Since then.
    Closed(Instant),
    Open(By),
}

/// Who opened it.
#[derive(Clone, Copy)]
enum By {
    Hand,
    Drop,
    /// After so long.
    Deadline(Nanos),
    /// Nobody is there any more who would at the deadline.
    NoTender,
}

impl By {
    fn outcome(self) -> Result<(), Error> {
        match self {
            Self::Hand => Ok(()),
            Self::Drop => Err(Error::new(ErrorCode::GateDropped, [])),
            Self::Deadline(after) => Err(Error::new(ErrorCode::GateTimedOut, [&after])),
            Self::NoTender => Err(Error::new(ErrorCode::WatcherClosed, [])),
        }
    }
}

impl<D: Gates> Inner<D> {
    /// Opens it, the first time that it is called; who did.
    fn open(&self, by: By) -> By {
        {
            let mut phase = self.phase.lock();
            if let Phase::Open(before) = *phase {
                return before;
            }
            *phase = Phase::Open(by);
        }
        if let Some(shut) = self.shut.get() {
            shut.open();
        }
        by
    }

    fn opened(&self) -> Option<By> {
        match *self.phase.lock() {
            Phase::Open(by) => Some(by),
            Phase::Waits | Phase::Closed(_) => None,
        }
    }
}

impl<D: Gates> Verdict for Inner<D> {
    fn verdict(&self) -> Result<(), Error> {
        self.opened().map_or(Ok(()), By::outcome)
    }
}

impl<D: Gates> Gate<D> {
    /// Opens it: what waits for it starts within microseconds. Where it was not submitted yet it never closes.
    ///
    /// # Errors
    ///
    /// [`GateTimedOut`](ErrorCode::GateTimedOut) where its time was over, and [`WatcherClosed`](ErrorCode::WatcherClosed) where who tends was closed: it
    /// had been opened before.
    pub fn open(self) -> Result<(), Error> {
        self.0.open(By::Hand).outcome()
    }

    /// Whether it is open, by whomever.
    pub fn is_open(&self) -> bool {
        self.0.opened().is_some()
    }
}

impl<D: Gates> Drop for Gate<D> {
    fn drop(&mut self) {
        self.0.open(By::Drop);
    }
}

impl<D: Gates> DeviceOp for GateOp<D> {
    type Device = D;
    type Pending = ();
    type Output = ();

    fn execute(self, submission: &mut Submission<D>) -> Result<(), Error> {
        submission.not_recorded(
            &"a wait for a gate, which opens once,",
            &"have the launch of the graph come behind it: `opened.then(|()| graph.launch())`",
        )?;
        let inner = self.0;
        submission.hear(Arc::clone(&inner) as Arc<dyn Verdict>);
        if inner.opened().is_some() {
            return Ok(());
        }
        let stream = submission.stream().clone();
        let (device, core) = (stream.device(), stream.core());
        let word = Arc::new(device.word()?);
        // Whatever comes, the word stays until the work behind is done.
        submission.retain_shared(&word);
        let number = core.gates.close(stream.lane());
        let (gates, weak) = (Arc::clone(&core.gates), Arc::downgrade(&word));
        let shut = inner.shut.get_or_init(|| Shut { word: weak, gates, number, core: Arc::downgrade(core) });
        let now = core.tender.now();
        let is_open = {
            let mut phase = inner.phase.lock();
            let is_open = matches!(*phase, Phase::Open(_));
            if !is_open {
                *phase = Phase::Closed(now);
            }
            is_open
        };
        if is_open {
            // Whoever opened it had nothing to open yet, or has opened this.
            shut.open();
            return Ok(());
        }
        let (gate, at) = (Arc::downgrade(&inner), now + inner.closed);
        let alarm = Arc::new(Alarm { gate, core: Arc::downgrade(core), at });
        core.tender.alarm(at, &Waker::from(alarm));
        device.wait_open(stream.raw(), &word).inspect_err(|_| {
            // It may have been enqueued all the same.
            inner.open(By::Hand);
        })
    }

    fn finish((): ()) -> Result<(), Error> {
        Ok(())
    }
}

device_op!([D] GateOp<D> where D: Gates);

/// Opens a gate at its deadline, or as soon as nobody is there any more who would tell of that. Keeps neither it nor the runtime.
struct Alarm<D: Gates> {
    gate: Weak<Inner<D>>,
    core: Weak<Core<D>>,
    at: Instant,
}

impl<D: Gates> Wake for Alarm<D> {
    fn wake(self: Arc<Self>) {
        let (Some(gate), Some(core)) = (self.gate.upgrade(), self.core.upgrade()) else { return };
        let now = core.tender.now();
        let Phase::Closed(since) = *gate.phase.lock() else { return };
        if now < self.at {
            let at = self.at;
            core.tender.alarm(at, &Waker::from(self));
        } else {
            gate.open(By::Deadline(now.since(since)));
        }
    }
}

impl<D: Gates> Drop for Alarm<D> {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.upgrade() {
            gate.open(By::NoTender);
        }
    }
}

impl<D: Gates> fmt::Debug for Gate<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}

impl<D: Gates> fmt::Debug for GateOp<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateOp").finish_non_exhaustive()
    }
}

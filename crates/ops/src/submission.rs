//! A submission: one operation's work while it is being enqueued, and what that work needs to live.

use core::cell::Cell;
use core::fmt;
use std::sync::Arc;

use wakeline_core::Error;

use crate::counts::Counters;
use crate::events::Place;
use crate::graph::Recording;
use crate::lane::Permit;
use crate::machine::Settled;
use crate::op::DeviceOp;
use crate::owner::{Owner, Owners};
use crate::port::Device;
use crate::runtime::Runtime;
use crate::stream::Stream;

/// Where an operation enqueues its work; see [`DeviceOp::execute`](crate::DeviceOp::execute).
///
/// Whatever the work touches must be [retained](Self::retain): it then lives until the device is done, also when the rest of the
/// submission fails or panics, or nobody awaits it any more.
pub struct Submission<D: Device> {
    pub(crate) stream: Stream<D>,
    pub(crate) owners: Owners,
    pub(crate) permit: Option<Permit>,
    /// What it keeps is let go or somebody else's to see to.
    pub(crate) departed: bool,
    /// Its number among all flights.
    pub(crate) number: u64,
    /// Whose streams its branches may run in; `None` where all stays in its own.
    pub(crate) elsewhere: Option<Runtime<D>>,
    /// Streams of it in which branches are that are not joined yet, and the homes of those; one bit each.
    pub(crate) at_work: u64,
    /// Whether its stream was asked for, and so may have work of it, or comes behind some that does.
    pub(crate) touched: Cell<bool>,
    /// The place behind what others may have to come behind, of what it has enqueued in its stream.
    pub(crate) open: Option<Place>,
    /// How many entries it has enqueued in its stream, and how many it may without asking for more; see [`room`](Self::room).
    pub(crate) entered: Cell<u32>,
    pub(crate) budget: u32,
    /// Who has a say in its result once its work is done.
    pub(crate) verdicts: Verdicts,
    /// It waits for the host at a gate.
    pub(crate) held: bool,
    /// What it enqueues becomes part of a graph, and does not run.
    pub(crate) recording: Option<Box<Recording<D>>>,
}

/// What somebody has to say of work that is done.
pub(crate) trait Verdict: Send + Sync {
    fn verdict(&self) -> Result<(), Error>;

    /// Of one that doubts what another device has brought: what that has come to, and a name of the device.
    fn doubt(&self) -> Option<(&Settled, *const ())> {
        None
    }
}

/// Those who have one, the last first. A word where there is none, as nearly always.
pub(crate) type Verdicts = Option<Box<Told>>;

pub(crate) struct Told {
    by: Arc<dyn Verdict>,
    before: Verdicts,
}

/// All of them, the last first.
pub(crate) fn all(verdicts: &Verdicts) -> impl Iterator<Item = &Arc<dyn Verdict>> {
    core::iter::successors(verdicts.as_deref(), |told| told.before.as_deref()).map(|told| &told.by)
}

/// What all of them say.
#[inline]
pub(crate) fn judge(verdicts: &Verdicts) -> Result<(), Error> {
    let mut next = verdicts;
    while let Some(told) = next {
        told.by.verdict()?;
        next = &told.before;
    }
    Ok(())
}

impl<D: Device> Submission<D> {
    /// Counts it among the flights.
    #[inline]
    pub(crate) fn new(stream: Stream<D>, permit: Permit) -> Self {
        let number = stream.core().fleet.counters.begin();
        // One is for the store behind it; there is one at least.
        let budget = permit.entries().wrapping_sub(1);
        Self {
            stream,
            owners: Owners::new(),
            permit: Some(permit),
            departed: false,
            number,
            elsewhere: None,
            at_work: 0,
            touched: Cell::new(false),
            open: None,
            entered: Cell::new(0),
            budget,
            verdicts: None,
            held: false,
            recording: None,
        }
    }

    /// One that is no flight: what it enqueues does not run.
    pub(crate) fn uncounted(stream: Stream<D>) -> Self {
        Self {
            stream,
            owners: Owners::new(),
            permit: None,
            departed: true,
            number: 0,
            elsewhere: None,
            at_work: 0,
            touched: Cell::new(false),
            open: None,
            entered: Cell::new(0),
            budget: u32::MAX,
            verdicts: None,
            held: false,
            recording: None,
        }
    }

    /// Has an operation enqueue its work, unless the stream takes none: then nothing of it is enqueued, and it is over.
    ///
    /// # Errors
    ///
    /// Why the stream takes none, or what the operation says.
    #[inline]
    pub(crate) fn run<O: DeviceOp<Device = D>>(&mut self, op: O) -> Result<O::Pending, Error> {
        if let Err(error) = self.stream.device().ready(self.stream.raw()) {
            self.refuse();
            return Err(error);
        }
        self.goes_behind_all();
        op.execute(self)
    }

    /// The same for one that was admitted whether or not there was room, which is waited for.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and where there is no room and it cannot be waited for.
    pub(crate) fn run_anyway<O: DeviceOp<Device = D>>(&mut self, op: O) -> Result<O::Pending, Error> {
        let ready = self.stream.device().ready(self.stream.raw());
        if let Err(error) = ready.and_then(|()| self.room(op.entries())) {
            self.refuse();
            return Err(error);
        }
        self.goes_behind_all();
        op.execute(self)
    }

    /// What it enqueues from now on is behind all that is in its stream: at its end that is over, whether or not anybody has seen it.
    #[inline]
    fn goes_behind_all(&mut self) {
        if self.stream.lane().has_unseen() {
            self.take_unseen();
        }
    }

    #[cold]
    fn take_unseen(&mut self) {
        if let Some(permit) = &mut self.permit {
            permit.take_unseen();
        }
    }

    #[cold]
    fn refuse(&mut self) {
        self.departed = true;
        self.abandon();
        let fleet = &self.stream.core().fleet;
        fleet.let_go(&mut self.owners);
        Counters::add(&fleet.counters.refused, 1);
        self.permit = None;
        fleet.drains.ended(&fleet.counters);
    }

    /// The stream in which the work is enqueued. Whoever has asked for it is taken to have enqueued something: one entry of the stream's queue for each time. Who
    /// enqueues more asks for [`room`](Self::room).
    #[inline]
    pub fn stream(&self) -> &Stream<D> {
        self.touched.set(true);
        self.enter(1);
        &self.stream
    }

    /// The device.
    pub fn device(&self) -> &D {
        self.stream.device()
    }

    /// Keeps `owner` until the work of this submission is done. Costs no allocation for the first four owners of a submission, where each is
    /// no larger than four words and not aligned to more than one.
    ///
    /// It is let go by whoever sees the work end, another thread most likely, and at a time that nobody knows. So what it borrows or
    /// shares with one thread only cannot be kept:
    ///
    /// ```compile_fail,E0521
    /// fn keep(submission: &mut wakeline_ops::Submission<wakeline_sim::SimDevice>, bytes: &[u8]) {
    ///     submission.retain(bytes);
    /// }
    /// ```
    ///
    /// ```compile_fail,E0277
    /// fn keep(submission: &mut wakeline_ops::Submission<wakeline_sim::SimDevice>, shared: std::rc::Rc<u8>) {
    ///     submission.retain(shared);
    /// }
    /// ```
    #[inline]
    pub fn retain(&mut self, owner: impl Send + 'static) {
        self.owners.push(Owner::new(owner));
    }

    /// Runs `part` of it, and says who had a say in that.
    pub(crate) fn heard_in<R>(&mut self, part: impl FnOnce(&mut Self) -> R) -> (R, Vec<Arc<dyn Verdict>>) {
        let before = self.verdicts.take();
        let result = part(self);
        let mut heard = Vec::new();
        let mut next = self.verdicts.as_ref();
        while let Some(told) = next {
            heard.push(Arc::clone(&told.by));
            next = told.before.as_ref();
        }
        self.verdicts = before;
        for by in heard.iter().rev() {
            self.hear(Arc::clone(by));
        }
        (result, heard)
    }

    /// Lets `by`, a gate, have a say in the result.
    pub(crate) fn hear(&mut self, by: Arc<dyn Verdict>) {
        self.held = true;
        self.judge_by(by);
    }

    /// The same for whoever does not hold it up.
    pub(crate) fn judge_by(&mut self, by: Arc<dyn Verdict>) {
        let before = self.verdicts.take();
        self.verdicts = Some(Box::new(Told { by, before }));
    }

    /// The same for what is shared.
    #[inline]
    pub fn retain_shared<T: Send + Sync + 'static>(&mut self, owner: &Arc<T>) {
        self.retain(Arc::clone(owner));
    }
}

/// Where an operation failed or panicked half way: what it keeps lives on until what it did enqueue is done.
impl<D: Device> Drop for Submission<D> {
    #[inline]
    fn drop(&mut self) {
        if !self.departed {
            self.fly();
        }
    }
}

impl<D: Device> fmt::Debug for Submission<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission").field("owners", &self.owners.len()).finish_non_exhaustive()
    }
}

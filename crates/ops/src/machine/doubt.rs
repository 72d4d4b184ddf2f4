//! What is in memory whose contents came from another device, when that one faults.
//!
//! A device's fault ends all of its own work with an error. What another device did behind that work ends as any: so whoever came behind asks, and so does whoever
//! uses what that has written.
//!
//! ```text
//!   copied from another device ──► (1) open ──landed──► the other is well ──► (2) good: forgotten by who looks next
//!                                     │                 it has faulted ─────► (3) bad: the operation fails with that fault,
//!                                     │                                           and so does each that uses the memory
//!                                     └── who uses what was written meanwhile has the same doubt
//! ```
//!
//! It is settled when the work has landed, by a look at the other device's health: a fault that comes later says nothing of what was copied before.

use std::sync::{Arc, OnceLock};

use wakeline_core::Error;

use crate::port::Device;
use crate::runtime::Core;
use crate::submission::{Submission, Verdict, all};

/// Whether a device was well until what came from it had arrived.
struct Doubt<D: Device> {
    source: Arc<Core<D>>,
    settled: Settled,
}

/// What a doubt has come to, once it has.
pub(crate) type Settled = OnceLock<Result<(), Error>>;

/// Those of some memory. Most often there are none, which is a word. What a submission has of them is among who has a say in its result.
pub(crate) type Doubts = Option<Box<Those>>;

/// Few.
pub(crate) struct Those(Vec<Arc<dyn Verdict>>);

impl<D: Device> Doubt<D> {
    fn settle(&self) -> &Result<(), Error> {
        self.settled.get_or_init(|| self.source.device.health())
    }
}

impl<D: Device> Verdict for Doubt<D> {
    fn verdict(&self) -> Result<(), Error> {
        // Settled by now, but where the flight's owners were shared with another.
        self.settle().clone()
    }

    fn doubt(&self) -> Option<(&Settled, *const ())> {
        Some((&self.settled, Arc::as_ptr(&self.source).cast()))
    }
}

/// An owner of the flight that brings memory over: let go when that has landed.
struct Settles<D: Device>(Arc<Doubt<D>>);

impl<D: Device> Drop for Settles<D> {
    fn drop(&mut self) {
        self.0.settle();
    }
}

fn settled(doubt: &Arc<dyn Verdict>) -> Option<&Result<(), Error>> {
    doubt.doubt().and_then(|(settled, _)| settled.get())
}

fn is(one: &Arc<dyn Verdict>, other: &Arc<dyn Verdict>) -> bool {
    core::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

impl<D: Device> Submission<D> {
    /// Those that it has.
    fn doubts(&self) -> Vec<Arc<dyn Verdict>> {
        all(&self.verdicts).filter(|by| by.doubt().is_some()).cloned().collect()
    }

    /// What it does comes behind work of another device.
    pub(crate) fn comes_from(&mut self, source: &Arc<Core<D>>) {
        let its = Arc::as_ptr(source).cast();
        let known = |by: &Arc<dyn Verdict>| {
            by.doubt().is_some_and(|(settled, source)| source == its && settled.get().is_none())
        };
        if all(&self.verdicts).any(known) {
            return;
        }
        let doubt = Arc::new(Doubt { source: Arc::clone(source), settled: OnceLock::new() });
        self.retain(Settles(Arc::clone(&doubt)));
        self.judge_by(doubt);
    }

    /// It uses memory with these doubts, of which those are left that are still open.
    ///
    /// # Errors
    ///
    /// What is in that memory is what a device has left that faulted.
    #[cold]
    pub(crate) fn shares(&mut self, doubts: &mut Doubts) -> Result<(), Error> {
        let before = doubts.take().map(|doubts| doubts.0).unwrap_or_default();
        let (good, open): (Vec<_>, Vec<_>) =
            before.into_iter().partition(|doubt| matches!(settled(doubt), Some(Ok(()))));
        // The last who has one may be the last who has its device: not dropped here, where memory is locked.
        self.retain(good);
        let mut bad = Ok(());
        for doubt in open {
            match settled(&doubt) {
                Some(Err(error)) => bad = Err(error.clone()),
                _ if all(&self.verdicts).any(|own| is(own, &doubt)) => {}
                _ => self.judge_by(Arc::clone(&doubt)),
            }
            add(doubts, doubt);
        }
        bad
    }

    /// What it has written has the doubts that it has.
    #[cold]
    pub(crate) fn hands_on<'d>(&self, written: impl Iterator<Item = &'d mut Doubts>) {
        let own = self.doubts();
        if own.is_empty() {
            return;
        }
        for doubts in written {
            for doubt in &own {
                let has = |doubts: &Doubts| doubts.iter().flat_map(|those| &those.0).any(|it| is(it, doubt));
                if !has(doubts) {
                    add(doubts, Arc::clone(doubt));
                }
            }
        }
    }
}

fn add(doubts: &mut Doubts, doubt: Arc<dyn Verdict>) {
    doubts.get_or_insert_with(|| Box::new(Those(Vec::new()))).0.push(doubt);
}

//! Storing a word by a host function, where streams cannot.

use core::ffi::c_void;
use core::ptr::NonNull;
use std::collections::VecDeque;

use wakeline_core::Seq;

use crate::census::count;
use crate::driver::{LineDriver, RawStream};
use crate::error::CallError;
use crate::pool::Place;
use crate::sync::Lock;

/// What a host function is called with.
#[derive(Debug)]
struct Store {
    place: Place,
    seq: Seq,
}

/// What the host functions of a stream are called with, in their order, until their numbers have landed.
///
/// It is freed here and not by the function: one that became part of a graph is called again and again.
#[derive(Debug, Default)]
pub(crate) struct Callbacks {
    under_way: Lock<VecDeque<(Seq, Owned)>>,
}

/// An allocation of this module's.
#[derive(Debug)]
struct Owned(NonNull<Store>);

// SAFETY: it is an allocation of plain values, which the function only reads.
unsafe impl Send for Owned {}

impl Callbacks {
    /// Enqueues the store of `seq`. One allocation, freed some points after it has landed; after a fault it may never be.
    ///
    /// # Safety
    ///
    /// The context of `stream` is bound, both are alive, and the page of `place` stays until the number has landed.
    pub(crate) unsafe fn enqueue<D: LineDriver>(
        &self,
        driver: &D,
        stream: RawStream,
        place: Place,
        seq: Seq,
    ) -> Result<(), CallError> {
        let data = NonNull::from(Box::leak(Box::new(Store { place, seq })));
        // SAFETY: the context is bound and the stream alive; the allocation stays until the function has done its last, or for good.
        let result = unsafe { driver.call_host(stream, run, data.as_ptr().cast()) };
        match &result {
            Ok(()) => {
                count(&driver.census().callbacks_made);
                let mut under_way = self.under_way.lock();
                under_way.push_back((seq, Owned(data)));
                // SAFETY: the page is there, says the caller.
                unsafe { free_landed(&mut under_way, place) };
            }
            // SAFETY: it was leaked above, and the driver says that it has not enqueued it.
            Err(error) if error.enqueued_nothing() => drop(unsafe { Box::from_raw(data.as_ptr()) }),
            // The call may have been enqueued all the same, in a graph even: the allocation is not taken back. Some bytes are lost then.
            Err(_) => {}
        }
        result
    }

    /// Never frees what the function of this number is called with: nobody knows when it is called last.
    pub(crate) fn keep(&self, seq: Seq) {
        self.under_way.lock().retain(|(number, _)| *number != seq);
    }

    /// Frees what it can; the rest stays for good. No other number will be enqueued.
    ///
    /// # Safety
    ///
    /// The page of `place` is there.
    pub(crate) unsafe fn end(&self, place: Place) {
        let mut under_way = self.under_way.lock();
        // SAFETY: as the caller says.
        unsafe { free_landed(&mut under_way, place) };
    }
}

/// # Safety
///
/// The page of `place` is there.
unsafe fn free_landed(under_way: &mut VecDeque<(Seq, Owned)>, place: Place) {
    // SAFETY: as the caller says.
    let word = unsafe { place.word() };
    while under_way.front().is_some_and(|(seq, _)| word.reached(*seq)) {
        let Some((_, Owned(data))) = under_way.pop_front() else { return };
        // SAFETY: it was leaked in `enqueue`; its function's last act was the store that is seen here, or that of a later one.
        drop(unsafe { Box::from_raw(data.as_ptr()) });
    }
}

/// Runs on a thread of the driver's: no lock, no driver call, nothing that can panic or free anything.
///
/// # Safety
///
/// `data` is that of [`Callbacks::enqueue`], and is there.
unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: as the caller says; nobody writes to it.
    let store = unsafe { &*data.cast::<Store>() };
    let (place, seq) = (store.place, store.seq);
    // The last thing of all: from here on the page and what it was called with may go.
    // SAFETY: the page stays until this number has landed.
    unsafe { place.store(seq) };
}

//! Storing a word by a host function, where streams cannot.

use core::ffi::c_void;

use wakeline_core::{CompletionLine, Seq};

use crate::census::count;
use crate::driver::{LineDriver, RawStream};
use crate::error::CallError;
use crate::pool::Place;

struct Store {
    place: Place,
    seq: Seq,
}

/// Enqueues the store of `seq`. One allocation, freed when the function runs; after a fault it may never.
///
/// # Safety
///
/// The context of `stream` is bound, both are alive, and the page of `place` stays until the number has landed.
pub(crate) unsafe fn enqueue<D: LineDriver>(
    driver: &D,
    stream: RawStream,
    place: Place,
    seq: Seq,
) -> Result<(), CallError> {
    let data = Box::into_raw(Box::new(Store { place, seq }));
    // SAFETY: the context is bound and the stream alive; the function takes the box, once.
    let result = unsafe { driver.call_host(stream, run, data.cast()) };
    // Where it failed the box is not taken back: the call may have been enqueued all the same. Some bytes are lost then.
    if result.is_ok() {
        count(&driver.census().callbacks_made);
    }
    result
}

/// Runs on a thread of the driver's: no lock, no driver call, nothing that can panic or free a page.
///
/// # Safety
///
/// `data` is the box of [`enqueue`], and this the one call for it.
unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: it is the box of `enqueue`, and the driver calls once.
    let store = unsafe { Box::from_raw(data.cast::<Store>()) };
    // SAFETY: the page stays until this number has landed.
    let line: &CompletionLine = unsafe { store.place.line().as_ref() };
    // The last thing of all: from here on the page may go.
    line.store(store.place.slot(), store.seq);
}

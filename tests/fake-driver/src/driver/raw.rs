//! The memory of the simulated devices, which is the host's: the only place where it is touched.
//!
//! Whoever calls has made sure that an address is within an allocation that lives, or has it from the user, who promised
//! the driver as much. Words are stored and loaded atomically, since a host thread watches them meanwhile.
#![allow(unsafe_code)]

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::alloc::{self, Layout};

/// Allocations begin at a page.
const ALIGN_BYTES: usize = 4_096;

/// What a freed page reads as.
const POISON: u64 = 0xdead_face_dead_face;

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, ALIGN_BYTES)
        .ok()
        .filter(|layout| layout.size() > 0)
        .map(|layout| layout.pad_to_align())
}

/// Zeroed memory, which a fork's child does not have, as it has no pinned memory of a driver's.
pub(super) fn allocate(bytes: usize) -> Option<u64> {
    let layout = layout(bytes)?;
    // SAFETY: the layout is not of size 0.
    let start = unsafe { alloc::alloc_zeroed(layout) };
    if start.is_null() {
        return None;
    }
    inherited(start, layout, false);
    Some(start.expose_provenance() as u64)
}

/// Whether a fork's child has it.
fn inherited(start: *mut u8, layout: Layout, yes: bool) {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};
        let advice = if yes { Advice::LinuxDoFork } else { Advice::LinuxDontFork };
        // SAFETY: whole pages of an allocation that lives; this process keeps them as they are.
        let _ = unsafe { madvise(start.cast(), layout.size(), advice) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, layout, yes);
}

/// Gives back what [`allocate`] gave for so many bytes, once.
pub(super) fn free(start: u64, bytes: usize) {
    if let Some(layout) = layout(bytes) {
        // Others get the memory next.
        inherited(at(start), layout, true);
        // SAFETY: `pages` keeps each allocation with its length, and takes it out of its books before this.
        unsafe { alloc::dealloc(at(start), layout) }
    }
}

#[allow(clippy::cast_possible_truncation)] // The library is for 64 bits only.
fn at(address: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut(address as usize)
}

fn word<'a>(address: u64) -> &'a AtomicU64 {
    // SAFETY: the address is a multiple of 8, within an allocation that lives or is kept, as the callers made sure under the
    // lock; the reference does not outlive their call.
    unsafe { AtomicU64::from_ptr(at(address).cast()) }
}

/// Stores behind everything that was written before.
pub(super) fn store(address: u64, value: u64) {
    word(address).store(value, Ordering::Release);
}

pub(super) fn load(address: u64) -> u64 {
    word(address).load(Ordering::Acquire)
}

pub(super) fn copy(to: u64, from: u64, bytes: usize) {
    // SAFETY: both ends are within allocations that live. What the user's threads do there meanwhile is a race with the
    // device, which the user promised to avoid.
    unsafe { ptr::copy(at(from).cast_const(), at(to), bytes) }
}

/// Reads memory of the user's.
pub(super) fn read(from: u64, bytes: usize) -> Vec<u8> {
    let mut read = vec![0; bytes];
    // SAFETY: the user promised so many bytes there, for the length of the call; the vector is new.
    unsafe { ptr::copy_nonoverlapping(at(from).cast_const(), read.as_mut_ptr(), bytes) };
    read
}

/// Writes memory of the user's, or the device's.
pub(super) fn write(to: u64, bytes: &[u8]) {
    // SAFETY: the user promised so many bytes there until the call returns, or the allocation lives.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at(to), bytes.len()) }
}

pub(super) fn fill(to: u64, value: [u8; 4], bytes: usize) {
    let [first, rest @ ..] = value;
    if rest == [first; 3] {
        // SAFETY: the bytes are within an allocation that lives.
        unsafe { ptr::write_bytes(at(to), first, bytes) }
    } else {
        write(to, &value.into_iter().cycle().take(bytes).collect::<Vec<_>>());
    }
}

/// The words of an allocation that is kept: it is padded to whole pages.
fn words(start: u64, bytes: usize) -> impl Iterator<Item = &'static AtomicU64> {
    let len = bytes.div_ceil(size_of::<u64>()) as u64;
    (0..len).map(move |index| word(start + index * size_of::<u64>() as u64))
}

/// Marks freed memory. Word by word: a host thread may still look at it, wrongly.
pub(super) fn poison(start: u64, bytes: usize) {
    words(start, bytes).for_each(|word| word.store(POISON, Ordering::Relaxed));
}

/// Whether nobody has written since.
pub(super) fn is_poisoned(start: u64, bytes: usize) -> bool {
    words(start, bytes).all(|word| word.load(Ordering::Relaxed) == POISON)
}

//! Which process this is, known by one load: what is made in a process is of no use in one that was forked off.
//!
//! A number stands in a page that the kernel hands to a fork's child empty (`MADV_WIPEONFORK`, Linux 4.14), however that was forked; the child then puts its
//! own there. Where there is no such page the system is asked each time, which costs 0.1 us and more.

#[cfg(all(target_os = "linux", not(miri)))]
use std::sync::OnceLock;
#[cfg(all(target_os = "linux", not(miri)))]
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of this process, which no other has while both live.
#[inline]
pub(crate) fn id() -> u32 {
    #[cfg(all(target_os = "linux", not(miri)))]
    if let Some(page) = page() {
        return match page.load(Ordering::Relaxed) {
            0 => renew(page),
            id => id,
        };
    }
    std::process::id()
}

/// The first to ask in this process.
#[cfg(all(target_os = "linux", not(miri)))]
#[cold]
fn renew(page: &AtomicU32) -> u32 {
    let id = std::process::id();
    page.store(id, Ordering::Relaxed);
    id
}

/// The page, if there is one. Stays for as long as the process.
#[cfg(all(target_os = "linux", not(miri)))]
#[inline]
fn page() -> Option<&'static AtomicU32> {
    // tidy: allow(static) it is of the process that it tells of, and there is one
    static PAGE: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();
    *PAGE.get_or_init(new_page)
}

#[cfg(all(target_os = "linux", not(miri)))]
fn new_page() -> Option<&'static AtomicU32> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    // One number: the kernel rounds up to a page.
    let bytes = size_of::<AtomicU32>();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at a place of the kernel's choice: it overlays nothing.
    let page = unsafe { mmap_anonymous(core::ptr::null_mut(), bytes, access, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the mapping was made just now, private and anonymous as the advice wants; it changes what a child finds there and nothing else.
    if unsafe { madvise(page, bytes, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: nobody has seen it. That it stays where this fails harms nobody.
        let _ = unsafe { munmap(page, bytes) };
        return None;
    }
    // SAFETY: the page is aligned to more than a number, readable and writable, filled with zeros, which are a number, and never unmapped.
    Some(unsafe { AtomicU32::from_ptr(page.cast()) })
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_the_number_of_the_process_each_time() {
        for _ in 0..3 {
            assert_eq!(super::id(), std::process::id());
        }
    }
}

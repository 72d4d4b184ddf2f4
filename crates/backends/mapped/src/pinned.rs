//! Memory of the host that devices copy from and to, by size classes, recycled.
//!
//! To pin memory is slow, and a driver may wait for the device to give it back. So a block that was used goes to its context's
//! pool, and back to the driver when the context goes; before, only where the pool's bound would stop somebody else.
//!
//! Invariants:
//! 1. A block has one owner: a value, or the pool.
//! 2. No drop gives a block back to the driver but that of the context.
//! 3. All blocks together have at most as many bytes as the context was made for.

use core::fmt;
use core::ptr::NonNull;
use std::collections::BTreeMap;
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode};

use crate::bound::Bound;
use crate::context::Context;
use crate::driver::{LineDriver, RawPage};
use crate::inner::Inner;

/// The length of the shortest block, in bytes. Lengths of longer ones rise by a quarter of a power of two: at most a fifth is left over.
pub const PINNED_BLOCK_BYTES_MIN: usize = 4_096;

/// Blocks of a context that no value owns.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// By their lengths; the one given back last is taken first.
    kept: BTreeMap<usize, Vec<RawPage>>,
    /// Of those.
    kept_bytes: usize,
    /// Of all blocks there are, owned and kept.
    bytes: usize,
    /// The most that were owned at a time.
    high_water_bytes: usize,
    /// How many bytes there may be.
    most: usize,
}

// SAFETY: blocks are addresses; the pool never goes through them.
unsafe impl Send for Blocks {}

/// What a request for a block comes to.
enum Found {
    /// One that was used before.
    Block(RawPage),
    /// There is room for another.
    Room,
    /// There is once these, each so long, were given back to the driver.
    RoomBehind(Vec<(usize, RawPage)>),
    /// There is none.
    Full,
}

impl Blocks {
    pub(crate) fn new(most: usize) -> Self {
        Self { kept: BTreeMap::new(), kept_bytes: 0, bytes: 0, high_water_bytes: 0, most }
    }

    fn find(&mut self, class: usize) -> Found {
        let found = self.find_any(class);
        self.high_water_bytes = self.high_water_bytes.max(self.bytes - self.kept_bytes);
        found
    }

    fn find_any(&mut self, class: usize) -> Found {
        if let Some(block) = self.kept.get_mut(&class).and_then(Vec::pop) {
            self.kept_bytes -= class;
            return Found::Block(block);
        }
        if self.bytes.saturating_add(class) <= self.most {
            self.bytes += class;
            return Found::Room;
        }
        if (self.bytes - self.kept_bytes).saturating_add(class) > self.most {
            return Found::Full;
        }
        let surplus = self.surplus(self.most - class);
        self.bytes += class;
        Found::RoomBehind(surplus)
    }

    /// Takes some that are kept, the longest first, until no more than so many bytes are left of all.
    fn surplus(&mut self, most: usize) -> Vec<(usize, RawPage)> {
        let mut surplus = Vec::new();
        while self.bytes > most {
            let Some((longest, mut blocks)) = self.kept.pop_last() else { break };
            if let Some(block) = blocks.pop() {
                self.bytes -= longest;
                self.kept_bytes -= longest;
                surplus.push((longest, block));
                self.kept.insert(longest, blocks);
            }
        }
        surplus
    }

    fn keep(&mut self, class: usize, block: RawPage) {
        self.kept_bytes += class;
        self.kept.entry(class).or_default().push(block);
    }

    /// Takes all that are kept, for good.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = RawPage> + use<> {
        self.bytes -= core::mem::take(&mut self.kept_bytes);
        core::mem::take(&mut self.kept).into_values().flatten()
    }

    fn usage(&self) -> PinnedUse {
        let Self { bytes, kept_bytes, high_water_bytes, most, .. } = *self;
        PinnedUse { bytes, kept_bytes, high_water_bytes, limit_bytes: most }
    }
}

/// How much pinned memory of the host a context has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PinnedUse {
    /// All of it.
    pub bytes: usize,
    /// What of it waits in the pool.
    pub kept_bytes: usize,
    /// The most that did not at a time.
    pub high_water_bytes: usize,
    /// How much there may be; see [`Context::limit_pinned`].
    pub limit_bytes: usize,
}

/// The length of the blocks for so many bytes.
fn class(len: usize) -> Option<usize> {
    let len = len.max(PINNED_BLOCK_BYTES_MIN);
    let step = (len.checked_next_power_of_two()? / 8).max(PINNED_BLOCK_BYTES_MIN);
    len.checked_next_multiple_of(step).filter(|class| *class <= isize::MAX.unsigned_abs())
}

/// Pinned memory of the host, which goes back to its context's pool when it is dropped: that must be after the device is done with it.
///
/// Dropping it calls no driver and waits for nothing.
pub struct Pinned<D: LineDriver> {
    context: Arc<Inner<D>>,
    /// With the length of its class; none for a value without a byte.
    block: Option<(usize, RawPage)>,
    len: usize,
}

// SAFETY: it owns its memory, which any thread may use.
unsafe impl<D: LineDriver> Send for Pinned<D> {}
// SAFETY: of a shared one the memory is touched by unsafe methods alone, whose callers see to the order.
unsafe impl<D: LineDriver> Sync for Pinned<D> {}

impl<D: LineDriver> Pinned<D> {
    /// Memory of so many bytes; what is in it is anything. Where the pool has a block, costs a lock; else pins memory, which is slow and may
    /// wait for the device.
    ///
    /// # Errors
    ///
    /// - [`OutOfMemory`](ErrorCode::OutOfMemory): so much would be more than the
    ///   [`pinned_bytes_max`](crate::ContextConfig::pinned_bytes_max) of the context, or the driver has not that much.
    /// - [`Forked`](ErrorCode::Forked), [`ContextClosed`](ErrorCode::ContextClosed), the context's fault, or whatever made a call fail.
    pub fn new(context: &Context<D>, len: usize) -> Result<Self, Error> {
        let context = context.inner();
        context.open()?;
        if len == 0 {
            return Ok(Self { context: Arc::clone(context), block: None, len });
        }
        let full = || {
            let PinnedUse { bytes, kept_bytes, limit_bytes, .. } = context.pinned.lock().usage();
            let used = bytes - kept_bytes;
            let why = format!("there may be at most {limit_bytes} bytes of it, of which {used} are in use");
            Error::new(ErrorCode::OutOfMemory, [&D::NAME, &"pinned", &len, &why])
        };
        let class = class(len).ok_or_else(full)?;
        let found = context.pinned.lock().find(class);
        let surplus = match found {
            Found::Block(block) => {
                return Ok(Self { context: Arc::clone(context), block: Some((class, block)), len });
            }
            Found::Full => return Err(full()),
            Found::Room => Vec::new(),
            Found::RoomBehind(surplus) => surplus,
        };
        match context.pin(class, surplus) {
            Ok(block) => Ok(Self { context: Arc::clone(context), block: Some((class, block)), len }),
            Err(error) => {
                context.pinned.lock().bytes -= class;
                Err(error)
            }
        }
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where host and device see it: the first byte. Of a value without a byte it dangles.
    pub fn start(&self) -> NonNull<u8> {
        self.block.map_or(NonNull::dangling(), |(_, block)| block.host.cast())
    }

    /// Reads its bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](ErrorCode::InvalidLimit): there are fewer; [`Forked`](ErrorCode::Forked).
    ///
    /// # Safety
    ///
    /// Nothing writes them meanwhile, the device neither.
    pub unsafe fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        // A fork's child does not have it.
        self.context.original()?;
        let start = self.at(offset, out.len())?;
        // SAFETY: the memory is that long and has values since it was pinned; nobody writes it, says the caller; `out` is another.
        unsafe { start.copy_to_nonoverlapping(NonNull::from(&mut *out).cast(), out.len()) };
        Ok(())
    }

    /// Writes its bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// As [`read_at`](Self::read_at).
    ///
    /// # Safety
    ///
    /// Nothing reads or writes them meanwhile, the device neither.
    pub unsafe fn write_at(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        self.context.original()?;
        let start = self.at(offset, from.len())?;
        // SAFETY: the memory is that long; nobody else touches it, says the caller; `from` is another.
        unsafe { start.copy_from_nonoverlapping(NonNull::from(from).cast(), from.len()) };
        Ok(())
    }

    /// Where its byte at `offset` is, that so many are from there on.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](ErrorCode::InvalidLimit): there are fewer.
    pub fn at(&self, offset: usize, len: usize) -> Result<NonNull<u8>, Error> {
        wakeline_core::within("the end of a copy, in bytes,", offset.saturating_add(len), 0, self.len)?;
        // SAFETY: the offset is within the memory, or right behind its last byte.
        Ok(unsafe { self.start().add(offset) })
    }
}

impl<D: LineDriver> Drop for Pinned<D> {
    fn drop(&mut self) {
        // Another thread of the parent may have held the lock when a child was forked off.
        if self.context.forked() {
            return;
        }
        if let Some((class, block)) = self.block {
            self.context.pinned.lock().keep(class, block);
        }
    }
}

impl<D: LineDriver> fmt::Debug for Pinned<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("backend", &D::NAME).field("len", &self.len).finish_non_exhaustive()
    }
}

impl<D: LineDriver> Context<D> {
    /// How much pinned memory of the host it has.
    pub fn pinned(&self) -> PinnedUse {
        if self.inner().forked() { PinnedUse::default() } else { self.inner().pinned.lock().usage() }
    }

    /// From now on it has at most so many bytes of it. What is in use beyond that stays.
    pub fn limit_pinned(&self, bytes_max: usize) {
        if !self.inner().forked() {
            self.inner().pinned.lock().most = bytes_max;
        }
    }

    /// Gives the driver back what nobody uses, the longest blocks first, until there are no more than so many bytes. May wait for the device.
    ///
    /// # Errors
    ///
    /// As [`Pinned::new`]; nothing is given back then.
    pub fn trim_pinned(&self, keep_bytes: usize) -> Result<(), Error> {
        let inner = self.inner();
        inner.open()?;
        let surplus = inner.pinned.lock().surplus(keep_bytes);
        if surplus.is_empty() {
            return Ok(());
        }
        inner.unpin(surplus).map(drop)
    }
}

impl<D: LineDriver> Inner<D> {
    /// Gives `surplus` back to the driver and pins a block. Without a lock: it may wait for the device.
    fn pin(&self, class: usize, surplus: Vec<(usize, RawPage)>) -> Result<RawPage, Error> {
        let bound = self.unpin(surplus)?;
        // SAFETY: the context is bound, and each class is a multiple of the shortest block.
        let block = unsafe { self.driver.page_alloc(class) }
            .map_err(|error| self.no_memory("pinned", class, error))?;
        drop(bound);
        let start: NonNull<u8> = block.host.cast();
        // SAFETY: the memory is that long and new. From here on its bytes have values.
        unsafe { start.write_bytes(0, class) };
        Ok(block)
    }
}

impl<D: LineDriver> Inner<D> {
    /// Gives these back to the driver. Where the context cannot be bound for that they are kept.
    fn unpin(&self, surplus: Vec<(usize, RawPage)>) -> Result<Bound<'_, D>, Error> {
        let bound = match self.bind() {
            Ok(bound) => bound,
            Err(error) => {
                let mut blocks = self.pinned.lock();
                for (class, block) in surplus {
                    blocks.bytes += class;
                    blocks.keep(class, block);
                }
                return Err(error);
            }
        };
        for (_, block) in surplus {
            // SAFETY: the context is bound; it was pinned here, nobody owns it, and what used it was done before it was given back.
            if let Err(error) = unsafe { self.driver.page_free(block) } {
                self.failed_in_drop(&error);
            }
        }
        Ok(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u64) -> RawPage {
        RawPage { host: NonNull::dangling(), device: number }
    }

    #[test]
    fn classes_are_whole_blocks_and_leave_a_fifth_over_at_most() {
        assert_eq!(
            [0, 1, 4_096, 4_097, 20_000].map(|len| class(len).unwrap()),
            [4_096, 4_096, 4_096, 8_192, 20_480]
        );
        for len in (1..200_000).step_by(37).chain([1 << 30, (1 << 30) + 1, 3 << 33]) {
            let class = class(len).unwrap();
            assert!(class >= len && class.is_multiple_of(PINNED_BLOCK_BYTES_MIN), "{len}");
            assert!(len < 8 * PINNED_BLOCK_BYTES_MIN || (class - len) * 4 <= len, "{len}: {class}");
            assert_eq!(super::class(class), Some(class), "a class is its own");
        }
        assert_eq!(class(usize::MAX), None);
    }

    #[test]
    fn a_block_is_given_again_and_others_make_room_where_the_bound_would_stop_one() {
        let mut blocks = Blocks::new(16_384);
        assert!(matches!(blocks.find(8_192), Found::Room));
        assert!(matches!(blocks.find(4_096), Found::Room));
        assert!(matches!(blocks.find(8_192), Found::Full), "all is owned");
        blocks.keep(8_192, block(1));
        blocks.keep(4_096, block(2));
        assert!(matches!(blocks.find(4_096), Found::Block(RawPage { device: 2, .. })));
        let Found::RoomBehind(surplus) = blocks.find(12_288) else { panic!("the longer one goes") };
        assert_eq!(
            surplus.iter().map(|(class, block)| (*class, block.device)).collect::<Vec<_>>(),
            [(8_192, 1)]
        );
        let usage = PinnedUse { bytes: 16_384, kept_bytes: 0, high_water_bytes: 16_384, limit_bytes: 16_384 };
        assert_eq!(blocks.usage(), usage);
    }

    #[test]
    fn a_trim_takes_the_longest_that_nobody_owns() {
        let mut blocks = Blocks::new(1 << 20);
        let classes = [4_096, 8_192, 4_096, 12_288];
        assert!(classes.iter().all(|class| matches!(blocks.find(*class), Found::Room)));
        // All but the second.
        for (number, class) in (0..).zip(classes).filter(|(number, _)| *number != 1) {
            blocks.keep(class, block(number));
        }
        let trimmed: Vec<_> = blocks.surplus(13_000).into_iter().map(|(class, _)| class).collect();
        assert_eq!(trimmed, [12_288, 4_096]);
        assert_eq!((blocks.usage().bytes, blocks.usage().kept_bytes), (12_288, 4_096));
        assert_eq!(blocks.surplus(0).len(), 1, "the owned one stays");
        assert_eq!((blocks.usage().bytes, blocks.usage().kept_bytes), (8_192, 0));
    }
}

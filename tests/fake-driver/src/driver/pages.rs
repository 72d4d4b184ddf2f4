//! The books of all memory: what lives, what was freed, and whether an access is to the one or the other.
//!
//! Freed pages are poisoned and kept for a while. So what still writes to them is seen, and hurts nobody.

use std::collections::{BTreeMap, VecDeque};

use super::op::Source;
use super::raw;
use super::stream::Point;
use crate::wire::Live;

/// How much freed memory is kept before the oldest of it is given back.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// The same in allocations: each is a mapping of its own, of which Linux lets a process have 65,530, and a test may have several stand-ins.
const KEPT_MAX: usize = 2_048;

#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) context: u64,
    pub(super) bytes: usize,
    pub(super) is_pinned: bool,
    /// Where in a stream's order it begins to be there.
    pub(super) from: Option<Point>,
}

#[derive(Debug, Default)]
pub(super) struct Pages {
    live: BTreeMap<u64, Page>,
    /// Poisoned: the start and the bytes.
    kept: VecDeque<(u64, usize)>,
    kept_bytes: usize,
}

impl Pages {
    /// New memory of that context; none if the host has no more.
    pub(super) fn allocate(&mut self, page: Page) -> Option<u64> {
        let start = raw::allocate(page.bytes)?;
        self.live.insert(start, page);
        Some(start)
    }

    /// Frees an allocation. Gives back the start of one that was kept and has been written to since it was freed.
    pub(super) fn free(&mut self, start: u64) -> Option<u64> {
        let page = self.live.remove(&start)?;
        raw::poison(start, page.bytes);
        self.kept.push_back((start, page.bytes));
        self.kept_bytes += page.bytes;
        let mut written = None;
        while self.kept_bytes > KEPT_BYTES_MAX || self.kept.len() > KEPT_MAX {
            let Some((start, bytes)) = self.kept.pop_front() else { break };
            if !raw::is_poisoned(start, bytes) {
                written = Some(start);
            }
            self.kept_bytes -= bytes;
            raw::free(start, bytes);
        }
        written
    }

    /// The kept pages that were written to since they were freed; they are poisoned anew.
    pub(super) fn written_after_free(&self) -> Vec<u64> {
        let written = self.kept.iter().filter(|(start, bytes)| !raw::is_poisoned(*start, *bytes));
        let repoisoned = written.map(|(start, bytes)| {
            raw::poison(*start, *bytes);
            *start
        });
        repoisoned.collect()
    }

    pub(super) fn set_beginning(&mut self, start: u64, from: Option<Point>) {
        if let Some(page) = self.live.get_mut(&start) {
            page.from = from;
        }
    }

    /// Where in a stream's order the memory at an address begins to be there.
    pub(super) fn begins(&self, address: u64) -> Option<Point> {
        let (start, page) = self.live.range(..=address).next_back()?;
        page.from.filter(|_| is_within(*start, page.bytes, address, 1))
    }

    pub(super) fn at(&self, start: u64) -> Option<Page> {
        self.live.get(&start).copied()
    }

    pub(super) fn of(&self, context: u64) -> Vec<u64> {
        let its = self.live.iter().filter(|(_, page)| page.context == context);
        its.map(|(start, _)| *start).collect()
    }

    /// Whose the memory at an address is.
    pub(super) fn owner(&self, address: u64) -> Option<u64> {
        let (start, page) = self.live.range(..=address).next_back()?;
        is_within(*start, page.bytes, address, 1).then_some(page.context)
    }

    /// Whether all of these bytes are in one allocation that lives.
    pub(super) fn holds(&self, address: u64, bytes: usize) -> bool {
        let before = self.live.range(..=address).next_back();
        before.is_some_and(|(start, page)| is_within(*start, page.bytes, address, bytes))
    }

    pub(super) fn is_pinned(&self, address: u64) -> bool {
        let before = self.live.range(..=address).next_back();
        before.is_some_and(|(start, page)| page.is_pinned && is_within(*start, page.bytes, address, 1))
    }

    pub(super) fn was_freed(&self, address: u64) -> bool {
        self.kept.iter().any(|(start, bytes)| is_within(*start, *bytes, address, 1))
    }

    /// These say whether the memory was there; else they do nothing.
    pub(super) fn store(&self, address: u64, value: u64) -> bool {
        let there = address.is_multiple_of(8) && self.holds(address, 8);
        if there {
            raw::store(address, value);
        }
        there
    }

    pub(super) fn load(&self, address: u64) -> Option<u64> {
        (address.is_multiple_of(8) && self.holds(address, 8)).then(|| raw::load(address))
    }

    pub(super) fn copy(&self, to: u64, from: &Source, bytes: usize) -> bool {
        if !self.holds(to, bytes) {
            return false;
        }
        match from {
            Source::Staged(staged) => raw::write(to, staged),
            Source::At(from) if self.holds(*from, bytes) => raw::copy(to, *from, bytes),
            Source::At(_) => return false,
        }
        true
    }

    pub(super) fn fill(&self, to: u64, value: [u8; 4], bytes: usize) -> bool {
        let there = self.holds(to, bytes);
        if there {
            raw::fill(to, value, bytes);
        }
        there
    }

    /// Each `u32` of it becomes itself times `factor` plus `addend`.
    pub(super) fn affine(&self, address: u64, bytes: usize, factor: u32, addend: u32) -> bool {
        let there = bytes == 0 || self.holds(address, bytes);
        if there && bytes > 0 {
            let mut numbers = raw::read(address, bytes);
            for number in numbers.chunks_exact_mut(size_of::<u32>()) {
                let mut word = [0; size_of::<u32>()];
                word.copy_from_slice(number);
                let result = u32::from_ne_bytes(word).wrapping_mul(factor).wrapping_add(addend);
                number.copy_from_slice(&result.to_ne_bytes());
            }
            raw::write(address, &numbers);
        }
        there
    }

    /// Of so many numbers, each at `to` becomes `factor` times the one at `from`, plus the one at `plus`.
    pub(super) fn saxpy(&self, to: u64, factor: f32, from: u64, plus: u64, count: usize) -> bool {
        let bytes = count * size_of::<f32>();
        let there = bytes == 0 || [to, from, plus].into_iter().all(|address| self.holds(address, bytes));
        if there && bytes > 0 {
            let number = |bytes: &[u8]| f32::from_ne_bytes(bytes.try_into().unwrap_or_default());
            let (from, plus) = (raw::read(from, bytes), raw::read(plus, bytes));
            let both = from.chunks_exact(size_of::<f32>()).zip(plus.chunks_exact(size_of::<f32>()));
            let all: Vec<u8> =
                both.flat_map(|(x, y)| factor.mul_add(number(x), number(y)).to_ne_bytes()).collect();
            raw::write(to, &all);
        }
        there
    }

    /// So many numbers.
    fn floats(&self, from: u64, count: usize) -> Option<Vec<f32>> {
        let bytes = count * size_of::<f32>();
        let number = |bytes: &[u8]| f32::from_ne_bytes(bytes.try_into().unwrap_or_default());
        let read = (count == 0 || self.holds(from, bytes)).then(|| raw::read(from, bytes))?;
        Some(read.chunks_exact(size_of::<f32>()).map(number).collect())
    }

    /// The product of matrices of `m` by `k` and `k` by `n` numbers, row by row.
    pub(super) fn matmul(&self, to: u64, first: u64, second: u64, [m, k, n]: [usize; 3]) -> bool {
        let factors = (self.floats(first, m * k), self.floats(second, k * n));
        let (Some(first), Some(second)) = factors else { return false };
        let sum = |row: &[f32], column: usize| {
            let both = row.iter().zip(second.iter().skip(column).step_by(n.max(1)));
            both.map(|(one, other)| one * other).sum::<f32>()
        };
        let rows = first.chunks_exact(k.max(1)).flat_map(|row| (0..n).map(move |column| (row, column)));
        let all: Vec<u8> = rows.flat_map(|(row, column)| sum(row, column).to_ne_bytes()).collect();
        let there = self.holds(to, all.len());
        if there {
            raw::write(to, &all);
        }
        there
    }

    /// Adds `bias` to each row.
    pub(super) fn add_bias(&self, to: u64, bias: u64, [rows, columns]: [usize; 2], relu: bool) -> bool {
        let (Some(y), Some(bias)) = (self.floats(to, rows * columns), self.floats(bias, columns)) else {
            return false;
        };
        let least = if relu { 0.0 } else { f32::MIN };
        let both = y.iter().zip(bias.iter().cycle());
        let all: Vec<u8> = both.flat_map(|(y, bias)| (y + bias).max(least).to_ne_bytes()).collect();
        raw::write(to, &all);
        true
    }

    pub(super) fn live(&self) -> Live {
        let mut live = Live::default();
        for page in self.live.values() {
            let (count, bytes) = if page.is_pinned {
                (&mut live.pinned_pages, &mut live.pinned_bytes)
            } else {
                (&mut live.device_allocations, &mut live.device_bytes)
            };
            *count += 1;
            *bytes += page.bytes as u64;
        }
        live
    }
}

/// Whether `bytes` at `address` are within `len` bytes at `start`.
pub(super) fn is_within(start: u64, len: usize, address: u64, bytes: usize) -> bool {
    let from = address.checked_sub(start);
    let to = from.and_then(|from| from.checked_add(bytes as u64));
    to.is_some_and(|to| to <= len as u64)
}

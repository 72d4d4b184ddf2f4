//! Launching kernels of known names, without an `unsafe` of the caller's: work of a given length, stores, and faults on purpose.

use wakeline_core::{Error, Nanos};

use crate::context::Context;
use crate::driver::KernelDriver;
use crate::function::Function;
use crate::kernel::KernelWord;
use crate::stream::Stream;

/// Busy for `ns`: `(ns)`. Any grid and block.
pub const OCCUPY: &str = "occupy";

/// Busy until the device's time is `at`: `(at)`. One thread.
pub const OCCUPY_UNTIL: &str = "occupy_until";

/// Busy for `ns`, then a fence and a store of `value`: `(address, value, ns)`. One thread.
pub const STORE_WORD: &str = "store_word";

/// Stores the device's time: `(address)`. One thread.
pub const STAMP: &str = "stamp";

/// Each of `count` `u32` becomes itself times `factor` plus `addend`, by their low halves: `(address, count, factor, addend)`. Any grid and block in
/// one dimension.
pub const AFFINE: &str = "affine";

/// Ends in a trap.
pub const TRAP: &str = "traps";

/// Stores where nothing is mapped.
pub const ILLEGAL_ADDRESS: &str = "illegal_address";

/// Fails an assertion.
pub const ASSERT_FAILS: &str = "assert_fails";

/// The kernels, loaded into a context. Clones are handles of one module.
#[derive(Debug)]
pub struct Kernels<D: KernelDriver> {
    occupy: Function<D>,
    occupy_until: Function<D>,
    store_word: Function<D>,
    stamp: Function<D>,
    trap: Function<D>,
    illegal_address: Function<D>,
    assert_fails: Function<D>,
}

/// What a kernel does wrong, on purpose. It breaks its context for good.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// A trap: a failed launch (719 of CUDA and HIP).
    Trap,
    /// A store where nothing is: an illegal address (700).
    IllegalAddress,
    /// An assertion that fails (710).
    Assert,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Trap, Self::IllegalAddress, Self::Assert];
}

impl<D: KernelDriver> Clone for Kernels<D> {
    fn clone(&self) -> Self {
        Self {
            occupy: self.occupy.clone(),
            occupy_until: self.occupy_until.clone(),
            store_word: self.store_word.clone(),
            stamp: self.stamp.clone(),
            trap: self.trap.clone(),
            illegal_address: self.illegal_address.clone(),
            assert_fails: self.assert_fails.clone(),
        }
    }
}

impl<D: KernelDriver> Kernels<D> {
    /// Loads them, which may compile them. Takes milliseconds. They stay loaded until their context is gone.
    ///
    /// # Errors
    ///
    /// As [`KernelDriver::kernels`].
    pub fn load(context: &Context<D>) -> Result<Self, Error> {
        let module = D::kernels(context)?;
        Ok(Self {
            occupy: module.function(OCCUPY)?,
            occupy_until: module.function(OCCUPY_UNTIL)?,
            store_word: module.function(STORE_WORD)?,
            stamp: module.function(STAMP)?,
            trap: module.function(TRAP)?,
            illegal_address: module.function(ILLEGAL_ADDRESS)?,
            assert_fails: module.function(ASSERT_FAILS)?,
        })
    }

    /// Occupies `stream` for so long, at most 60 s; one thread of the device.
    ///
    /// # Errors
    ///
    /// As [`Function::launch`]; [`ForeignStream`](wakeline_core::ErrorCode::ForeignStream) for a stream of another context.
    pub fn occupy(&self, stream: &Stream<D>, length: Nanos) -> Result<(), Error> {
        self.occupy.belongs_with(stream)?;
        let ns = length.as_nanos();
        // SAFETY: the stream is alive and of this context; the kernel takes a u64 and touches no memory.
        unsafe { self.occupy.launch(stream.raw(), 1, 1, 0, [&ns]) }
    }

    /// Occupies `stream` until the device's clock shows `at`, in nanoseconds, but for 60 s at most: however late it begins.
    ///
    /// # Errors
    ///
    /// As [`occupy`](Self::occupy).
    pub fn occupy_until(&self, stream: &Stream<D>, at: u64) -> Result<(), Error> {
        self.occupy_until.belongs_with(stream)?;
        // SAFETY: as in `occupy`.
        unsafe { self.occupy_until.launch(stream.raw(), 1, 1, 0, [&at]) }
    }

    /// Stores `value` into the word, after so long.
    ///
    /// # Errors
    ///
    /// As [`occupy`](Self::occupy).
    pub fn store_word(
        &self,
        stream: &Stream<D>,
        word: &KernelWord<D>,
        value: u64,
        after: Nanos,
    ) -> Result<(), Error> {
        self.store_word.belongs_with(stream)?;
        word.belongs_with(stream)?;
        let (address, ns) = (word.address(), after.as_nanos());
        // SAFETY: the stream is alive and of this context. The kernel takes three u64 and stores at the address, which is that of a word that is
        // given to others only when its owner has said, by `retire`, that no kernel stores into it.
        unsafe { self.store_word.launch(stream.raw(), 1, 1, 0, [&address, &value, &ns]) }
    }

    /// Stores the device's time into the word as the first thing that it does, in nanoseconds, with no fence: says when it began, and nothing of what else
    /// was written. The word's number only ever rises so.
    ///
    /// # Errors
    ///
    /// As [`occupy`](Self::occupy).
    pub fn stamp_word(&self, stream: &Stream<D>, word: &KernelWord<D>) -> Result<(), Error> {
        self.stamp.belongs_with(stream)?;
        word.belongs_with(stream)?;
        let address = word.address();
        // SAFETY: as in `store_word`; the kernel takes one u64.
        unsafe { self.stamp.launch(stream.raw(), 1, 1, 0, [&address]) }
    }

    /// Breaks the context of `stream`.
    ///
    /// # Errors
    ///
    /// As [`occupy`](Self::occupy).
    pub fn fault(&self, stream: &Stream<D>, fault: Fault) -> Result<(), Error> {
        let kernel = match fault {
            Fault::Trap => &self.trap,
            Fault::IllegalAddress => &self.illegal_address,
            Fault::Assert => &self.assert_fails,
        };
        kernel.belongs_with(stream)?;
        // SAFETY: the stream is alive and of this context; the kernel takes nothing and writes nowhere that anything is.
        unsafe { kernel.launch(stream.raw(), 1, 1, 0, []) }
    }
}

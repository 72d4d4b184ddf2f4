//! Launching the kernels, without an `unsafe` of the caller's.

use wakeline_core::{Error, Nanos};

use crate::function::Function;
use crate::kernels;
use crate::module::Module;
use crate::wait::{CuStream, CudaContext, CudaKernelWord};

/// The kernels, loaded into a context. Clones are handles of one module.
#[derive(Clone, Debug)]
pub struct Kernels {
    occupy: Function,
    occupy_until: Function,
    store_word: Function,
    stamp: Function,
    trap: Function,
    illegal_address: Function,
    assert_fails: Function,
}

/// What a kernel does wrong, on purpose. It breaks its context for good.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// A trap: `CUDA_ERROR_LAUNCH_FAILED` (719).
    Trap,
    /// A store where nothing is: `CUDA_ERROR_ILLEGAL_ADDRESS` (700).
    IllegalAddress,
    /// An assertion that fails: `CUDA_ERROR_ASSERT` (710).
    Assert,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Trap, Self::IllegalAddress, Self::Assert];
}

impl Kernels {
    /// Loads them; the driver compiles them. Takes milliseconds. They stay loaded until their context is gone.
    ///
    /// # Errors
    ///
    /// As [`Module::from_ptx`].
    pub fn load(context: &CudaContext) -> Result<Self, Error> {
        let module = Module::for_good(context, kernels::PTX)?;
        Ok(Self {
            occupy: module.function(kernels::OCCUPY)?,
            occupy_until: module.function(kernels::OCCUPY_UNTIL)?,
            store_word: module.function(kernels::STORE_WORD)?,
            stamp: module.function(kernels::STAMP)?,
            trap: module.function(kernels::TRAP)?,
            illegal_address: module.function(kernels::ILLEGAL_ADDRESS)?,
            assert_fails: module.function(kernels::ASSERT_FAILS)?,
        })
    }

    /// Occupies `stream` for so long, at most 60 s; one thread of the device.
    ///
    /// # Errors
    ///
    /// As [`Function::launch`]; [`ForeignStream`](wakeline_core::ErrorCode::ForeignStream) for a stream of another context.
    pub fn occupy(&self, stream: &CuStream, length: Nanos) -> Result<(), Error> {
        self.occupy.belongs_with(stream)?;
        let ns = length.as_nanos();
        // SAFETY: the stream is alive and of this context; the kernel takes a u64 and touches no memory.
        unsafe { self.occupy.launch(stream.raw(), 1, 1, 0, [&ns]) }
    }

    /// Occupies `stream` until the device's clock shows `at`, in nanoseconds, but for 60 s at most: however late it begins. See
    /// [`TimedStream::on_device`](crate::TimedStream::on_device).
    ///
    /// # Errors
    ///
    /// As [`occupy`](Self::occupy).
    pub fn occupy_until(&self, stream: &CuStream, at: u64) -> Result<(), Error> {
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
        stream: &CuStream,
        word: &CudaKernelWord,
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
    pub fn stamp_word(&self, stream: &CuStream, word: &CudaKernelWord) -> Result<(), Error> {
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
    pub fn fault(&self, stream: &CuStream, fault: Fault) -> Result<(), Error> {
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

impl Function {
    /// That `stream` is of this function's context.
    pub(crate) fn belongs_with(&self, stream: &CuStream) -> Result<(), Error> {
        let (own, other) = (self.module().context().raw(), stream.context().raw());
        if own == other {
            return Ok(());
        }
        let code = wakeline_core::ErrorCode::ForeignStream;
        Err(Error::new(code, [&crate::error::BACKEND, &stream.raw(), &other, &own]))
    }
}

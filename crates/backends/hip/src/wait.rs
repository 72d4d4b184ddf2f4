//! HIP's names of what is shared with other drivers: contexts, streams, points and words, and work: modules, graphs, memory.

use wakeline_core::Error;
use wakeline_mapped::driver::Ordinal;
use wakeline_mapped::{Context, ContextConfig, KernelWord, MappedLine, Port, Stream};

use crate::hip::Hip;

/// A device, with the completion lines of its streams.
pub type HipContext = Context<Hip>;

/// A stream whose points can be awaited: one of ours, or any live `hipStream_t` by [`from_raw`](Stream::from_raw).
pub type HipStream = Stream<Hip>;

/// One awaited point of a [`HipStream`].
pub type HipPort = Port<Hip>;

/// A handle of a line that a device stores into.
pub type HipLine = MappedLine<Hip>;

/// A word that a running kernel stores.
pub type HipKernelWord = KernelWord<Hip>;

/// A module of kernels, from a code object.
///
/// ```no_run
/// use wakeline_core::ErrorCode;
/// use wakeline_hip::{Hip, Module};
/// let context = Hip::load()?.context(0)?;
/// // SAFETY: it is none, which is found out before the library is asked.
/// let error = unsafe { Module::from_image(&context, b"\x7fELF") }.unwrap_err();
/// assert_eq!(error.code(), ErrorCode::InvalidImage);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub type Module = wakeline_mapped::Module<Hip>;

/// A kernel of a loaded module, which it keeps loaded.
pub type Function = wakeline_mapped::Function<Hip>;

/// Captured work that can be launched as one, and `K`: what it needs to stay alive.
pub type Graph<K = ()> = wakeline_mapped::Graph<Hip, K>;

/// Memory of the device.
pub type DeviceBuffer = wakeline_mapped::DeviceBuffer<Hip>;

/// Memory of the host that the device can reach.
pub type HostBuffer = wakeline_mapped::HostBuffer<Hip>;

/// A buffer of the device that is filled with a byte and copied to the host, again and again.
pub type Readback = wakeline_mapped::Readback<Hip>;

impl Hip {
    /// The context of a device, which it shares with all else in the process; as [`Context::primary`] with the default configuration.
    ///
    /// # Errors
    /// As [`Context::primary`].
    pub fn context(&self, device: u32) -> Result<HipContext, Error> {
        Context::primary(self, Ordinal(device), &ContextConfig::default())
    }
}

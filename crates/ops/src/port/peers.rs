//! Several devices: what one has to do with another.

use wakeline_core::Error;

use super::{At, Memory, Promise};

/// How memory gets from one device to another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Link {
    /// The device copies it by itself: [`Peers::copy_peer`].
    Direct,
    /// By way of pinned memory of the host: the driver does not let the one reach the other.
    Staged,
}

/// A device that gets along with others of its type.
///
/// Of devices [of one driver](Self::beside) the following MUST hold besides what the other ports say: a stream can [wait](super::Device::wait) for an event of
/// another's, which was recorded in a stream of that; and pinned memory of one can be the source of an [upload](Memory::upload) to another. Where a device faults,
/// streams of others that wait for an event of it SHOULD go on once the fault is known: what they see of memory is nobody's promise then, and whoever comes behind it
/// asks the first device's [health](super::Device::health).
pub trait Peers: Memory {
    /// Whether the two are of one driver, or parts of one simulated machine. MUST NOT make a call that waits.
    fn beside(&self, other: &Self) -> bool;

    /// How memory of `from`, of the same driver, gets here. Has whatever that needs set up, once: access to each other's memory where the driver grants it. What it refuses
    /// is [`Link::Staged`] and no error. MAY wait for both devices. Asked once for each two of a machine, before the first copy.
    ///
    /// # Errors
    ///
    /// The fault of either device.
    fn link(&self, from: &Self) -> Result<Link, Error>;

    /// Copies `len` bytes from a buffer of another device to one of this, in a stream of this. Only where their [`link`](Self::link) is direct.
    ///
    /// # Errors
    ///
    /// As [`Memory::fill`].
    ///
    /// # Promise
    ///
    /// As [`Memory::copy`].
    fn copy_peer(
        &self,
        stream: &Self::Stream,
        from: (&Self, At<'_, Self::Buffer>),
        to: At<'_, Self::Buffer>,
        len: usize,
        promise: Promise,
    ) -> Result<(), Error>;
}

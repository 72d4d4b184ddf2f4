//! What the runtimes of a machine's devices share.

use core::fmt;
use std::sync::{Arc, OnceLock};

use wakeline_core::Error;

use crate::port::{Device, Link, Peers, Priority};
use crate::runtime::Core;
use crate::stream::Stream;

/// Held by the streams of a machine's runtimes, and by the machine.
pub(crate) struct Kin<D: Device> {
    devices: usize,
    /// How memory gets from the one to the other: by the number of the one that it goes to, then of the one that it comes from.
    links: Box<[OnceLock<Link>]>,
    /// A stream of each device, for what leaves it by way of the host. It holds none of this.
    ferries: Box<[OnceLock<Stream<D>>]>,
}

impl<D: Device> Kin<D> {
    pub(crate) fn new(devices: usize) -> Arc<Self> {
        let links = (0..devices * devices).map(|_| OnceLock::new()).collect();
        let ferries = (0..devices).map(|_| OnceLock::new()).collect();
        Arc::new(Self { devices, links, ferries })
    }

    /// How memory of one device gets to another.
    pub(crate) fn link(&self, to: &Core<D>, from: &Core<D>) -> Result<Link, Error>
    where
        D: Peers,
    {
        let place = self.links.get(to.number * self.devices + from.number);
        if let Some(link) = place.and_then(OnceLock::get) {
            return Ok(*link);
        }
        // Two threads may both ask, and are told the same.
        let link = to.device.link(&from.device)?;
        Ok(place.map_or(link, |place| *place.get_or_init(|| link)))
    }

    /// The stream of a device in which memory leaves it.
    pub(crate) fn ferry(&self, core: &Arc<Core<D>>) -> Result<Stream<D>, Error> {
        let place = self.ferries.get(core.number);
        if let Some(stream) = place.and_then(OnceLock::get) {
            return Ok(stream.clone());
        }
        let stream = Stream::new(core, Priority::Normal, None)?;
        Ok(place.map_or_else(|| stream.clone(), |place| place.get_or_init(|| stream.clone()).clone()))
    }
}

impl<D: Device> fmt::Debug for Kin<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kin").field("links", &self.links).finish_non_exhaustive()
    }
}

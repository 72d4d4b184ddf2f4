//! Simulated devices [beside](SimDevice::beside) each other, as the devices of one machine.

use wakeline_core::Error;
use wakeline_ops::port::{At, Link, Peers, Promise};

use crate::access::SimMemory;
use crate::device::SimDevice;
use crate::ops::sim_at;
use crate::time::TimeLine;

impl<T: TimeLine + Send + Sync + 'static> Peers for SimDevice<T> {
    fn beside(&self, other: &Self) -> bool {
        self.machine() == other.machine()
    }

    /// Direct where both have [`peer_access`](crate::SimConfig::peer_access).
    fn link(&self, from: &Self) -> Result<Link, Error> {
        [self, from].into_iter().find_map(Self::health).map_or(Ok(()), Err)?;
        let reaches = self.with(|state| state.reaches(from.number()));
        Ok(if reaches { Link::Direct } else { Link::Staged })
    }

    fn copy_peer(
        &self,
        stream: &Self::Stream,
        (_, from): (&Self, At<'_, SimMemory>),
        to: At<'_, SimMemory>,
        len: usize,
        _: Promise,
    ) -> Result<(), Error> {
        stream.copy_peer(sim_at(from), sim_at(to), len)
    }
}

//! What work runs on, as the suites see it: a simulated device, or a GPU.
//!
//! | file | what |
//! |---|---|
//! | `sim.rs` | [`SimBench`]: a simulated device in real time, played by a thread of its own |
//! | `cuda.rs` | [`CudaBench`]: a GPU, and the driver's own ways of waiting for it |

mod cuda;
mod sim;

pub use cuda::CudaBench;
pub use sim::SimBench;

use wakeline_core::{CompletionPort, Error, Instant, Nanos};
use wakeline_std::StdClock;

use crate::Quantiles;
use crate::ops::Operations;

/// What a device is, for records.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct About {
    /// The GPU's name.
    pub gpu: Option<String>,
    /// The driver's.
    pub driver: Option<String>,
    /// To within how much the true ends of work are known, the same for all arms.
    pub uncertainty: Option<Nanos>,
}

/// A device that suites run on. All of its methods are called on the measuring thread.
pub trait Device: Sized {
    /// The point behind what was launched last.
    type Port: CompletionPort<Line: Send + Sync + 'static> + Send + 'static;
    /// Who knows when a piece of work truly ended.
    type Launched;
    /// A stream for one of many flights.
    type Lane;
    /// The point behind a flight.
    type Flight: CompletionPort<Line = <Self::Port as CompletionPort>::Line> + Send + 'static;
    /// Who knows when a flight truly ended.
    type Landed;

    /// `sim` or `cuda`.
    const KIND: &'static str;

    /// What it is.
    fn about(&self) -> About;

    /// The clock that its times are on.
    fn clock(&self) -> StdClock;

    /// CPU time of the thread that plays it; zero for a real one.
    fn own_cpu(&self) -> Nanos;

    /// Whether [`ended`](Self::ended) costs next to nothing, so that it may be asked between two steps of a server.
    fn tells_ends_freely(&self) -> bool;

    /// Launches work of this length. The work before has ended.
    ///
    /// # Errors
    ///
    /// What the device says.
    fn launch(&self, length: Nanos) -> Result<Self::Launched, Error>;

    /// The point behind what was launched last.
    ///
    /// # Errors
    ///
    /// What the device says.
    fn port(&self) -> Result<Self::Port, Error>;

    /// When the work truly ended, for who came to know it at `known` by the last [`port`](Self::port), if by any. To be asked right after
    /// that. Where what plays a device was held up, and stored a word late that the other waited for, that is the device's lateness and not the
    /// other's: a real one needs no processor.
    ///
    /// # Errors
    ///
    /// What the device says, or it has not ended.
    fn ended(&self, launched: &Self::Launched, known: Instant) -> Result<Instant, Error>;

    /// Operations of the layer above waits on it, where it has their port; for the suite `ops`.
    fn operations(&self) -> Option<&dyn Operations> {
        None
    }

    /// How late the device itself was so far, where it may be.
    fn own_lateness(&self) -> Option<Quantiles>;

    /// Its driver's own ways of waiting, for the thread that calls this.
    ///
    /// # Errors
    ///
    /// What the device says.
    fn ways(&self) -> Result<Vec<Box<dyn RawWay + '_>>, Error>;

    /// Streams for so many flights: as many, or fewer that take several each.
    ///
    /// # Errors
    ///
    /// What the device says.
    fn lanes(&self, flights: usize) -> Result<Vec<Self::Lane>, Error>;

    /// Launches a flight that ends at `end`, or as soon as those before it in the lane have; armed where later ones would delay it.
    ///
    /// # Errors
    ///
    /// What the device says.
    fn fly(&self, lane: &Self::Lane, end: Instant) -> Result<(Self::Flight, Self::Landed), Error>;

    /// When the flight truly ended, as [`ended`](Self::ended). To be asked when it is known to have.
    ///
    /// # Errors
    ///
    /// What the device says, or it has not ended.
    fn landed(&self, landed: &Self::Landed, known: Instant) -> Result<Instant, Error>;
}

/// The family of what is a driver's own.
pub const RAW: &str = "raw";

/// A way of waiting on the calling thread that is not wakeline's.
pub trait RawWay {
    /// Its name: `sync-spin`, ..
    fn name(&self) -> &'static str;

    /// [`RAW`] for a driver's, a peer's name and version for a library's.
    fn family(&self) -> &'static str {
        RAW
    }

    /// Whether other threads of the process wait for it as well, so that this one's CPU time is not all that it takes.
    fn has_threads(&self) -> bool {
        false
    }

    /// Called before some waits of it, and after what others set up was undone.
    ///
    /// # Errors
    ///
    /// What the driver says.
    fn begin(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Waits for all that was launched.
    ///
    /// # Errors
    ///
    /// What the driver says.
    fn wait(&self) -> Result<(), Error>;

    /// Undoes what [`begin`](Self::begin) did.
    ///
    /// # Errors
    ///
    /// What the driver says.
    fn end(&self) -> Result<(), Error> {
        Ok(())
    }
}

//! What plays the recorded steps: a simulated device, or a real one.
//!
//! | file | what |
//! |---|---|
//! | `sim.rs` | the simulated device, in real time, and the thread that drives it |
//! | `cuda.rs` | a GPU |

pub(crate) mod cuda;
pub(crate) mod sim;

use wakeline::{CompletionPort, Instant, Nanos};

use crate::Failure;
use crate::meter::Meter;
use crate::steps::Step;

/// A device that steps are played on.
pub(crate) trait Device {
    type Stream: Stream;

    /// Where steps are launched, one after the other.
    fn stream(&self) -> &Self::Stream;

    /// What it is, for people; `None` for a simulated one.
    fn name(&self) -> Option<&str>;

    /// What its own thread, where it has one, takes of the process's CPU time.
    fn meter(&self) -> &Meter;

    /// Ends its thread, and tells of a panic there.
    fn close(self) -> Result<(), Failure>;
}

/// A stream of such a device. A clone names the same one.
pub(crate) trait Stream: Clone + Send + Sync + 'static {
    type Port: CompletionPort<Line: Send + Sync + 'static> + Send + 'static;
    /// Who knows when the step truly ended.
    type Witness: Send;

    /// Launches a step; the point behind it.
    fn launch(&self, step: &Step) -> Result<(Self::Port, Self::Witness), Failure>;

    /// What was true of a step that was waited for.
    fn truth(&self, witness: &Self::Witness) -> Result<Truth, Failure>;
}

/// What the handle of a line is in the ports of a device.
pub(crate) type Line<D> = <<<D as Device>::Stream as Stream>::Port as CompletionPort>::Line;

/// When a step ended, whatever whoever waited for it noticed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Truth {
    pub(crate) ended: Instant,
    /// By how much later than it should the device stored the word, where it is known to be late by itself.
    pub(crate) store_late: Option<Nanos>,
}

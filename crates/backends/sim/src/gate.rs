//! Gates: words that streams wait for, until the host opens them.

use core::fmt;

use wakeline_core::Error;

use crate::device::SimDevice;
use crate::memory::Misuse;
use crate::state::Call;
use crate::stream::SimStream;
use crate::table::Key;
use crate::time::{TimeLine, VirtualTime};

/// A word of a [`SimDevice`] that streams wait for until the host opens it, for good. Closed at first.
///
/// Dropping it opens it as well. While a wait for it is enqueued and not over that is a [`Misuse`]: the word of a real device would be gone.
///
/// ```
/// use wakeline_core::{CompletionPort, Instant, Nanos, Status};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::exact())?;
/// let (stream, gate) = (device.stream()?, device.gate()?);
/// stream.wait_open(&gate)?;
/// stream.launch(Nanos::from_micros(20))?;
/// let mut point = stream.point();
/// device.time().clock().advance(Nanos::from_millis(1));
/// assert_eq!(point.query()?, Status::Pending);
/// gate.open();
/// assert_eq!(point.block(Some(Instant::from_nanos(1_020_000)))?, Status::Done);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub struct SimGate<T: TimeLine = VirtualTime> {
    device: SimDevice<T>,
    key: Key,
}

impl<T: TimeLine> SimGate<T> {
    /// Opens it: streams that wait for it go on. Makes no driver call, as a store of the host.
    pub fn open(&self) {
        let now = self.device.now();
        let ((), bell) = self.device.enqueue(|state| {
            state.turn(now);
            state.open_gate(self.key);
        });
        bell.ring();
    }
}

impl<T: TimeLine> Drop for SimGate<T> {
    fn drop(&mut self) {
        let now = self.device.now();
        let ((), bell) = self.device.enqueue(|state| {
            state.turn(now);
            state.drop_gate(self.key);
        });
        bell.ring();
    }
}

impl<T: TimeLine> fmt::Debug for SimGate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimGate").field("key", &self.key).finish_non_exhaustive()
    }
}

impl<T: TimeLine> SimDevice<T> {
    /// A gate, closed.
    ///
    /// # Errors
    ///
    /// The device's fault.
    pub fn gate(&self) -> Result<SimGate<T>, Error> {
        let now = self.now();
        let key = self.with(|state| {
            state.begin(Call::Other("gate"), now);
            state.health()?;
            Ok::<_, Error>(state.new_gate())
        })?;
        Ok(SimGate { device: self.clone(), key })
    }
}

impl<T: TimeLine> SimStream<T> {
    /// Has what is enqueued from now on wait until the gate is open.
    ///
    /// # Errors
    ///
    /// The device's fault, [`Backend`](wakeline_core::ErrorCode::Backend) when the queue is full and for a gate of another device.
    pub fn wait_open(&self, gate: &SimGate<T>) -> Result<(), Error> {
        self.call("wait_open", |state| {
            if gate.device.context() != self.device().context() {
                return Err(state.misused("wait_open", Misuse::Foreign));
            }
            state.enqueue_gate(self.key(), gate.key)
        })
    }
}

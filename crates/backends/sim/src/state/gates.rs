//! The part of the engine in which streams wait for the host.

use alloc::vec::Vec;

use wakeline_core::{Error, Instant};

use super::{Call, State, What};
use crate::memory::Misuse;
use crate::table::Key;

/// A word that streams wait for.
#[derive(Debug, Default)]
pub(super) struct Gate {
    open: bool,
    /// How many waits for it are enqueued and not over.
    waits: u64,
    /// Streams that have come to one.
    waiters: Vec<Key>,
}

impl State {
    /// How many there are.
    pub(crate) fn gates_in_use(&mut self) -> usize {
        self.gates.values_mut().count()
    }

    /// How many hold up something.
    pub(crate) fn gates_closed(&mut self) -> usize {
        let well = self.fault.is_none();
        self.gates.values_mut().filter(|gate| well && !gate.open && gate.waits > 0).count()
    }

    pub(crate) fn new_gate(&mut self) -> Key {
        self.gates.insert(Gate::default())
    }

    pub(crate) fn enqueue_gate(&mut self, stream: Key, gate: Key) -> Result<(), Error> {
        self.forbid_captured("wait_open", stream)?;
        self.check_room(stream, Call::Other("wait_open"))?;
        let faulted = self.fault.is_some();
        let Some(queue) = self.streams.get_mut(stream) else { return Ok(()) };
        if faulted {
            queue.push_in_vain();
            return Ok(());
        }
        queue.push_gate(gate);
        if let Some(gate) = self.gates.get_mut(gate) {
            gate.waits += 1;
        }
        self.step(stream, self.now);
        self.turn(self.now);
        Ok(())
    }

    /// The stream has come to a wait for the gate.
    pub(super) fn wait_for_gate(&mut self, stream: Key, gate: Key, at: Instant) {
        match self.gates.get_mut(gate) {
            Some(gate) if !gate.open => gate.waiters.push(stream),
            gate => {
                if let Some(gate) = gate {
                    gate.waits -= 1;
                }
                self.schedule(at, What::WorkEnds(stream));
            }
        }
    }

    /// The host opens it, for good.
    pub(crate) fn open_gate(&mut self, gate: Key) {
        let Some(gate) = self.gates.get_mut(gate) else { return };
        gate.open = true;
        let waiters = core::mem::take(&mut gate.waiters);
        gate.waits -= waiters.len() as u64;
        for stream in waiters {
            // After a fault nothing happens any more.
            if self.fault.is_none() {
                self.schedule(self.now, What::WorkEnds(stream));
            }
        }
        self.turn(self.now);
    }

    /// Nobody has it any more.
    pub(crate) fn drop_gate(&mut self, gate: Key) {
        self.open_gate(gate);
        if let Some(gate) = self.gates.remove(gate)
            && gate.waits > 0
            && self.fault.is_none()
        {
            self.buffers.misuse(Misuse::WordInUse { waits: gate.waits });
        }
    }
}

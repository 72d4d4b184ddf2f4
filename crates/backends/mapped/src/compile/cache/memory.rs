//! Entries in memory: as many bytes of them as there may be, the ones used last.

use std::collections::HashMap;
use std::sync::Arc;

use crate::compile::key::Key;
use crate::compile::made::Made;

pub(super) struct Memory {
    /// With the number of its last use.
    entries: HashMap<Key, (Arc<Made>, u64)>,
    bytes: u64,
    bytes_max: u64,
    uses: u64,
}

impl Memory {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { entries: HashMap::new(), bytes: 0, bytes_max, uses: 0 }
    }

    pub(super) fn get(&mut self, key: &Key) -> Option<Arc<Made>> {
        self.uses += 1;
        let (compiled, used) = self.entries.get_mut(key)?;
        *used = self.uses;
        Some(Arc::clone(compiled))
    }

    pub(super) fn put(&mut self, key: Key, compiled: &Arc<Made>) {
        let bytes = compiled.bytes();
        if bytes > self.bytes_max {
            return;
        }
        self.uses += 1;
        if let Some((before, _)) = self.entries.insert(key, (Arc::clone(compiled), self.uses)) {
            self.bytes -= before.bytes();
        }
        self.bytes += bytes;
        while self.bytes > self.bytes_max {
            let oldest = self.entries.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key);
            let Some((gone, _)) = oldest.and_then(|oldest| self.entries.remove(&oldest)) else { return };
            self.bytes -= gone.bytes();
        }
    }
}

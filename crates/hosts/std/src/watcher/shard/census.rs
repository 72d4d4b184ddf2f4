//! What a shard holds, for tests.

use super::Core;

/// How much of everything there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in super::super) struct Census {
    pub(in super::super) entries: usize,
    pub(in super::super) armed: usize,
    pub(in super::super) hot: usize,
    pub(in super::super) times: usize,
    pub(in super::super) contexts: usize,
    pub(in super::super) asks: usize,
    pub(in super::super) errands: usize,
}

impl Core {
    /// Counts all there is, those who have left out of it.
    pub(in super::super) fn census(&mut self) -> Census {
        self.tidy();
        let entries = self.entries.iter().flatten();
        assert_eq!(entries.clone().filter(|entry| entry.watched).count(), self.lines.armed());
        assert_eq!(entries.clone().filter(|entry| entry.watched && entry.exact).count(), self.hot);
        assert_eq!(entries.clone().filter(|entry| entry.context.is_some()).count(), self.contexts.flights());
        assert_eq!(
            self.free.len() + entries.clone().count(),
            self.entries.len(),
            "a number is lost or used twice"
        );
        Census {
            entries: entries.count(),
            armed: self.lines.armed(),
            hot: self.hot,
            times: self.sharp.len() + self.blunt.len(),
            contexts: self.contexts.flights(),
            asks: self.asks.len(),
            errands: self.errands.len(),
        }
    }
}

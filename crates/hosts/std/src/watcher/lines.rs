//! The words of a shard, over lines of any kind.

use core::any::{Any, TypeId};

use wakeline_core::{CompletionLine, LineRef, MemoryDescriptor};

use crate::words::WordSet;

/// The armed words of a shard: a [`WordSet`] a kind of line, each looked at by one virtual call.
#[derive(Default)]
pub(super) struct Lines {
    /// Few: one a backend.
    sets: Vec<(TypeId, Box<dyn LineSet>)>,
    armed: usize,
}

/// The lines of one kind.
trait LineSet: Any + Send {
    fn scan(&mut self, reached: &mut Vec<u32>);
    fn any_reached(&self) -> bool;
    fn lone_line(&self) -> Option<&CompletionLine>;
    fn is_empty(&self) -> bool;
    fn as_any(&mut self) -> &mut dyn Any;
}

impl<L: LineRef + Send + 'static> LineSet for WordSet<L> {
    fn scan(&mut self, reached: &mut Vec<u32>) {
        Self::scan(self, reached);
    }

    fn any_reached(&self) -> bool {
        Self::any_reached(self)
    }

    fn lone_line(&self) -> Option<&CompletionLine> {
        Self::lone_line(self)
    }

    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl Lines {
    /// How many registrations there are.
    pub(super) fn armed(&self) -> usize {
        self.armed
    }

    /// Whether a look would find any.
    pub(super) fn any_reached(&self) -> bool {
        self.sets.iter().any(|(_, set)| set.any_reached())
    }

    /// The line of all words, where it is one.
    pub(super) fn lone_line(&self) -> Option<&CompletionLine> {
        let mut sets = self.sets.iter().filter(|(_, set)| !set.is_empty());
        let line = sets.next()?.1.lone_line();
        line.filter(|_| sets.next().is_none())
    }

    /// Watches a word for the flight of this number.
    pub(super) fn add<L: LineRef + Send + 'static>(&mut self, word: &MemoryDescriptor<L>, flight: u32) {
        if let Some(set) = self.set() {
            set.add(word, flight);
            self.armed += 1;
        }
    }

    /// Watches it no longer; it was added and has not been reached.
    pub(super) fn remove<L: LineRef + Send + 'static>(&mut self, word: &MemoryDescriptor<L>, flight: u32) {
        if self.set().is_some_and(|set| set.remove(word, flight)) {
            self.armed -= 1;
        }
    }

    /// Looks at every word and takes out the flights whose word is reached.
    #[inline]
    pub(super) fn scan(&mut self, reached: &mut Vec<u32>) {
        let before = reached.len();
        for (_, set) in &mut self.sets {
            set.scan(reached);
        }
        self.armed -= reached.len() - before;
    }

    fn set<L: LineRef + Send + 'static>(&mut self) -> Option<&mut WordSet<L>> {
        let kind = TypeId::of::<L>();
        let place = self.sets.iter().position(|(its, _)| *its == kind).unwrap_or_else(|| {
            self.sets.push((kind, Box::new(WordSet::<L>::default())));
            self.sets.len() - 1
        });
        // Never `None`: a set stands under the kind of its lines.
        self.sets[place].1.as_any().downcast_mut()
    }
}

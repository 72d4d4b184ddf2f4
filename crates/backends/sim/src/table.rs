//! A table whose entries are named by keys that never come back.
//!
//! Queues and events name streams and points by key. An entry may go while its key is still about; the key
//! then finds nothing, even after the place was taken by another entry.

use alloc::vec::Vec;

/// Names one entry for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    index: usize,
    generation: u64,
}

#[derive(Debug)]
pub(crate) struct Table<V> {
    places: Vec<Place<V>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Place<V> {
    generation: u64,
    value: Option<V>,
}

impl<V> Table<V> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: V) -> Key {
        if let Some(index) = self.free.pop()
            && let Some(place) = self.places.get_mut(index)
        {
            place.value = Some(value);
            return Key { index, generation: place.generation };
        }
        self.places.push(Place { generation: 0, value: Some(value) });
        Key { index: self.places.len() - 1, generation: 0 }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&V> {
        let place = self.places.get(key.index)?;
        if place.generation == key.generation { place.value.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut V> {
        let place = self.places.get_mut(key.index)?;
        if place.generation == key.generation { place.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<V> {
        let place = self.places.get_mut(key.index)?;
        if place.generation != key.generation {
            return None;
        }
        let value = place.value.take()?;
        place.generation += 1;
        self.free.push(key.index);
        Some(value)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> {
        let there = self.places.iter().enumerate().filter(|(_, place)| place.value.is_some());
        there.map(|(index, place)| Key { index, generation: place.generation })
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.places.iter_mut().filter_map(|place| place.value.as_mut())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_a_removed_entry_finds_nothing_though_its_place_is_taken() {
        let mut table = Table::new();
        let old = table.insert('a');
        assert_eq!(table.remove(old), Some('a'));
        let new = table.insert('b');
        assert_eq!(new.index, old.index);
        assert_eq!((table.get(old), table.get(new)), (None, Some(&'b')));
        assert_eq!(table.get_mut(old), None);
        assert_eq!(table.remove(old), None);
    }
}

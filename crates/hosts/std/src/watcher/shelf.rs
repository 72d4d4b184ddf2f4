//! Memory of flights that are over, for flights to come.

use core::any::{Any, TypeId};
use std::sync::Arc;

use super::sync::Lock;

/// How much of one kind is kept at most; about 900 bytes each.
const KEPT_MAX: usize = 1_024;

/// Flights of one type.
type Kept = Vec<Arc<dyn Any + Send + Sync>>;

/// Flights that are over, by their type. Each is held by nobody else.
#[derive(Default)]
pub(super) struct Shelf {
    /// Few: one a type of port.
    kinds: Lock<Vec<(TypeId, Kept)>>,
}

impl Shelf {
    /// One of this type, if there is one.
    pub(super) fn take<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let kind = TypeId::of::<T>();
        let mut kinds = self.kinds.lock();
        let (_, kept) = kinds.iter_mut().find(|(its, _)| *its == kind)?;
        kept.pop()?.downcast().ok()
    }

    /// Keeps one that nobody else holds, unless there are many. It must hold nothing of others, since it may be dropped here.
    pub(super) fn put<T: Any + Send + Sync>(&self, over: Arc<T>) {
        let kind = TypeId::of::<T>();
        let mut kinds = self.kinds.lock();
        let place = kinds.iter().position(|(its, _)| *its == kind).unwrap_or_else(|| {
            kinds.push((kind, Vec::new()));
            kinds.len() - 1
        });
        let kept = &mut kinds[place].1;
        if kept.len() < KEPT_MAX {
            kept.push(over);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_its_own_and_is_kept_within_the_bound() {
        let shelf = Shelf::default();
        (0..2_000_u32).for_each(|n| shelf.put(Arc::new(n)));
        shelf.put(Arc::new("text"));
        assert_eq!(shelf.take::<&str>().as_deref(), Some(&"text"));
        assert!(shelf.take::<&str>().is_none() && shelf.take::<u64>().is_none());
        assert_eq!(core::iter::from_fn(|| shelf.take::<u32>()).count(), KEPT_MAX);
    }
}

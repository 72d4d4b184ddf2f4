//! Points by name: what their waits did, shared by any number of threads.
//!
//! | here | what |
//! |---|---|
//! | `point.rs` | [`Point`]: learns from the waits of one name, and counts them |
//! | `snapshot.rs` | [`Snapshot`]: plain data, for people and programs |
//! | `prometheus.rs` | the same as text for Prometheus |
//!
//! Invariants: a point's lock is held for its own arithmetic only, never while a waker or code of the user's runs; a thread
//! that panics elsewhere leaves no point unusable; once a point is made, recording allocates nothing but a new window where a
//! plan changes it.

mod point;
mod prometheus;
mod snapshot;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wakeline_core::{Error, ErrorCode};

pub use point::Point;
pub use snapshot::{Counts, Metric, MetricKind, PointSnapshot, Snapshot, Spread, WAIT_BOUNDS_NS};

#[cfg(feature = "tracing")]
pub(crate) use point::end_name;

/// The most points that [`Points`] may be made for.
pub const NAMED_POINTS_MAX: usize = 1 << 12;

/// Points by their names, shared: a clone is another handle to the same points.
///
/// A point stays for as long as the registry does: what it counted is not lost while nobody waits, and a handle always is the
/// one that its name gives. So names are to be few and known before, of readback points say, and never made of numbers of requests.
///
/// Memory: nothing up front; each point about 57 KiB, see [`Point`].
///
/// ```
/// use wakeline_core::ErrorCode;
/// use wakeline_std::Points;
/// let points = Points::new(2)?;
/// let sample = points.point("sample")?;
/// sample.abandoned();
/// assert_eq!(points.point("sample")?.snapshot().counts.abandoned, 1); // the same point
/// points.point("logits")?;
/// assert_eq!(points.point("a third").unwrap_err().code(), ErrorCode::PointsFull);
/// let names: Vec<_> = points.snapshot().points.into_iter().map(|point| point.name).collect();
/// assert_eq!(names, ["logits", "sample"]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Points {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    points_max: usize,
    by_name: Mutex<BTreeMap<Arc<str>, Point>>,
}

impl Points {
    /// A registry for up to `points_max` points.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidLimit`] unless `points_max` is from 1 to [`NAMED_POINTS_MAX`].
    pub fn new(points_max: usize) -> Result<Self, Error> {
        if !(1..=NAMED_POINTS_MAX).contains(&points_max) {
            return Err(Error::new(
                ErrorCode::InvalidLimit,
                [&"points_max", &points_max, &1, &NAMED_POINTS_MAX],
            ));
        }
        Ok(Self { shared: Arc::new(Shared { points_max, by_name: Mutex::default() }) })
    }

    /// The point of this name, made at its first use. Any text is a name.
    ///
    /// Takes the registry's lock and looks the name up, about 55 ns among 100; a new point is about 25 us, most of it fresh memory. Ask
    /// once and keep the handle, rather than before each wait.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::PointsFull`] for a new name where there are `points_max` others. None makes room: its handles may be in use,
    /// and its counts would go back to 0 unnoticed.
    pub fn point(&self, name: &str) -> Result<Point, Error> {
        let mut by_name = self.lock();
        if let Some(point) = by_name.get(name) {
            return Ok(point.clone());
        }
        if by_name.len() >= self.shared.points_max {
            return Err(Error::new(ErrorCode::PointsFull, [&name, &self.shared.points_max]));
        }
        let point = Point::new(name);
        by_name.insert(point.shared_name(), point.clone());
        Ok(point)
    }

    /// What all points did until now, in the order of their names. Each point is consistent in itself; waits may end between
    /// two of them.
    ///
    /// Cost: about 25 us a point, 2 us of them under its lock.
    pub fn snapshot(&self) -> Snapshot {
        let points: Vec<_> = self.lock().values().cloned().collect();
        Snapshot { points: points.iter().map(Point::snapshot).collect(), metrics: Vec::new() }
    }

    /// Whoever panicked while holding the lock did so before anything was changed.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Point>> {
        self.shared.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_checked() {
        for points_max in [0, NAMED_POINTS_MAX + 1] {
            assert_eq!(Points::new(points_max).unwrap_err().code(), ErrorCode::InvalidLimit);
        }
        assert!(Points::new(NAMED_POINTS_MAX).is_ok());
    }

    #[test]
    fn a_full_registry_refuses_new_names_and_keeps_the_old_ones() {
        let points = Points::new(1).unwrap();
        drop(points.point("a").unwrap());
        let error = points.point("b").unwrap_err();
        assert_eq!((error.code(), error.args()), (ErrorCode::PointsFull, &["b".into(), "1".into()][..]));
        points.clone().point("a").unwrap().abandoned();
        assert_eq!(points.snapshot().points[0].counts.abandoned, 1);
    }

    #[test]
    fn threads_that_ask_for_a_name_share_its_point() {
        let points = Points::new(4).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1_000).for_each(|_| points.point("shared").unwrap().abandoned()));
            }
        });
        let snapshot = points.snapshot();
        assert_eq!((snapshot.points.len(), snapshot.points[0].counts.abandoned), (1, 4_000));
    }
}

//! The part of the engine that knows of points.

use wakeline_core::{Instant, Nanos, Status};

use super::State;
use crate::dice::Draw;
use crate::event::{Point, Truth};
use crate::table::Key;

impl State {
    pub(crate) fn new_point(&mut self, stream: Key) -> Key {
        let (works, ended_at, stuck) = match self.streams.get_mut(stream) {
            Some(queue) => {
                let stuck = queue.dice.happens(Draw::StuckPoint, self.faults.stuck_ppm);
                let (works, ended_at) = queue.place_of_point();
                (works, ended_at, stuck)
            }
            None => (0, None, false),
        };
        self.counts.stuck += u64::from(stuck);
        let truth = Truth { ended_at, ..Truth::default() };
        let key = self.points.insert(Point { truth, stream, works, stuck, handles: 1 });
        if ended_at.is_none()
            && let Some(queue) = self.streams.get_mut(stream)
        {
            queue.await_point(works, key);
        }
        key
    }

    pub(crate) fn release_point(&mut self, key: Key) {
        let Some(point) = self.points.get_mut(key) else { return };
        point.handles -= 1;
        if point.handles > 0 {
            return;
        }
        let (stream, works) = (point.stream, point.works);
        self.points.remove(key);
        if let Some(queue) = self.streams.get_mut(stream) {
            queue.forget_point(works, key);
        }
    }

    /// What the driver says about a point now.
    pub(crate) fn status(&self, key: Key) -> Status {
        match self.known_done_at(key) {
            Some(at) if at <= self.now => Status::Done,
            _ => Status::Pending,
        }
    }

    /// When the driver begins to say that the point is done, where its end is known.
    pub(crate) fn known_done_at(&self, key: Key) -> Option<Instant> {
        let point = self.points.get(key).filter(|point| !point.stuck)?;
        Some(point.truth.ended_at? + Nanos::from_nanos(self.config.confirm_lag_ns))
    }
}

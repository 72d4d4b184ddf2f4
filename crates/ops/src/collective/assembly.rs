//! Which parts of ranks go together: for whoever hands them to a library in one go, and for simulated ranks.
//!
//! Each rank's parts are taken in their order. One of all ranks goes once all have come to it; those between two once both ends have, and with them whatever else
//! those ends do at the same time. So a thread that hands in the parts of several ranks one after another never waits for itself.

use std::collections::VecDeque;

use wakeline_core::{Error, ErrorCode};

use crate::port::{Kind, Number};

/// What others must know of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signature {
    /// What is done.
    pub kind: Kind,
    /// Of what.
    pub number: Number,
    /// Of how many.
    pub count: usize,
}

impl Signature {
    /// What the other end of it is, as the rank there has it.
    const fn other_end(&self, own: usize) -> Option<Self> {
        let kind = match self.kind {
            Kind::Send(_) => Kind::Receive(own),
            Kind::Receive(_) => Kind::Send(own),
            _ => return None,
        };
        Some(Self { kind, ..*self })
    }
}

/// Parts of one rank that go at one time.
type Waiting<T> = VecDeque<(Vec<Signature>, T)>;

/// What the ranks of a process have been handed and did not do yet.
#[derive(Debug)]
pub struct Assembly<T> {
    /// The rank of each seat.
    ranks: Vec<usize>,
    waiting: Vec<Waiting<T>>,
}

impl<T> Assembly<T> {
    /// Of these ranks, by their seats.
    pub fn new(ranks: Vec<usize>) -> Self {
        let waiting = ranks.iter().map(|_| VecDeque::new()).collect();
        Self { ranks, waiting }
    }

    /// The rank in this seat has come to this.
    pub fn push(&mut self, seat: usize, parts: Vec<Signature>, what: T) {
        if let Some(waiting) = self.waiting.get_mut(seat) {
            waiting.push_back((parts, what));
        }
    }

    /// What goes together next, with its seats; none while ranks are missing.
    ///
    /// # Errors
    ///
    /// [`InvalidCollective`](ErrorCode::InvalidCollective): ranks do different things at one place of their order, or the two ends of what goes from one to another are not alike. Nothing is taken.
    pub fn take_next(&mut self) -> Result<Option<Vec<(usize, T)>>, Error> {
        for seat in 0..self.ranks.len() {
            if let Some(seats) = self.together(seat)? {
                let take = |seat: usize| {
                    let (_, what) = self.waiting.get_mut(seat)?.pop_front()?;
                    Some((seat, what))
                };
                return Ok(Some(seats.into_iter().filter_map(take).collect()));
            }
        }
        Ok(None)
    }

    /// All that is left, of nobody any more.
    pub fn drain(&mut self) -> Vec<T> {
        self.waiting.iter_mut().flat_map(|waiting| waiting.drain(..)).map(|(_, what)| what).collect()
    }

    fn front(&self, seat: usize) -> Option<&[Signature]> {
        self.waiting.get(seat)?.front().map(|(parts, _)| &**parts)
    }

    fn rank(&self, seat: usize) -> usize {
        self.ranks.get(seat).copied().unwrap_or(usize::MAX)
    }

    /// The seats that go together with what is first in this one, if all have come.
    fn together(&self, seat: usize) -> Result<Option<Vec<usize>>, Error> {
        let Some(front) = self.front(seat) else { return Ok(None) };
        if front.iter().all(|part| part.kind.peer().is_some()) {
            return self.between(seat);
        }
        let mut all = Vec::new();
        for other in 0..self.ranks.len() {
            let Some(its) = self.front(other) else { return Ok(None) };
            if its.iter().any(|part| part.kind.peer().is_some()) {
                // It is to come to this one later.
                return Ok(None);
            }
            if its != front {
                return Err(self.differ(seat, other));
            }
            all.push(other);
        }
        Ok(Some(all))
    }

    /// The seats that exchange with this one, and with those. What goes from one to another is as many parts at both ends, in one order.
    fn between(&self, seat: usize) -> Result<Option<Vec<usize>>, Error> {
        let mut seats = vec![seat];
        let mut at = 0;
        while let Some(&one) = seats.get(at) {
            at += 1;
            let front = self.front(one).unwrap_or_default();
            for part in front {
                // Of another process: its library's to see to.
                let peer = part.kind.peer();
                let Some(other) = self.ranks.iter().position(|rank| Some(*rank) == peer) else { continue };
                let Some(end) = part.other_end(self.rank(one)) else { continue };
                let its = self.front(other).unwrap_or_default().iter().filter(|its| its.kind == end.kind);
                let mut own = front.iter().filter(|own| own.kind == part.kind);
                let mut its = its.peekable();
                if its.peek().is_none() {
                    // It is to come to this one later.
                    return Ok(None);
                }
                let fits = |(own, its): (Option<&Signature>, Option<&Signature>)| match (own, its) {
                    (Some(own), Some(its)) => own.number == its.number && own.count == its.count,
                    _ => false,
                };
                loop {
                    match (own.next(), its.next()) {
                        (None, None) => break,
                        ends if fits(ends) => {}
                        (own, its) => return Err(self.ends_differ((one, own), (other, its), part.kind)),
                    }
                }
                if !seats.contains(&other) {
                    seats.push(other);
                }
            }
        }
        Ok(Some(seats))
    }

    #[cold]
    fn ends_differ(
        &self,
        (one, own): (usize, Option<&Signature>),
        (other, its): (usize, Option<&Signature>),
        kind: Kind,
    ) -> Error {
        let shown = |seat: usize, part: Option<&Signature>| {
            let rank = self.rank(seat);
            part.map_or_else(
                || format!("rank {rank}: none"),
                |part| format!("rank {rank}: {:?} of {} {:?}", part.kind, part.count, part.number),
            )
        };
        let wrong =
            format!("its two ends are not of the same numbers ({}; {})", shown(one, own), shown(other, its));
        Error::new(ErrorCode::InvalidCollective, [&kind.name(), &wrong])
    }

    #[cold]
    fn differ(&self, one: usize, other: usize) -> Error {
        let shown = |seat: usize| {
            let part = self.front(seat).and_then(<[_]>::first);
            part.map_or_else(String::new, |part| {
                format!("rank {}: {:?} of {} {:?}", self.rank(seat), part.kind, part.count, part.number)
            })
        };
        let what = self.front(one).and_then(<[_]>::first).map_or("a collective", |part| part.kind.name());
        let wrong = format!("ranks come to it with different ones ({}; {})", shown(one), shown(other));
        Error::new(ErrorCode::InvalidCollective, [&what, &wrong])
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::port::Reduce;

    fn part(kind: Kind) -> Vec<Signature> {
        vec![Signature { kind, number: Number::F32, count: 4 }]
    }

    fn seats(assembly: &mut Assembly<&'static str>) -> Vec<usize> {
        // Ranks that do not agree take none, which no test here expects.
        let next = assembly.take_next().ok().flatten();
        next.unwrap_or_default().into_iter().map(|(seat, _)| seat).collect()
    }

    #[test]
    fn one_of_all_ranks_goes_once_all_have_come_and_in_their_order() {
        let mut assembly = Assembly::new(vec![0, 1, 2]);
        let sum = Kind::AllReduce(Reduce::Sum);
        assembly.push(0, part(sum), "a");
        assembly.push(0, part(Kind::AllGather), "b");
        assembly.push(1, part(sum), "a");
        assert_eq!(assembly.take_next().unwrap(), None);
        assembly.push(2, part(sum), "a");
        assert_eq!(assembly.take_next().unwrap(), Some(vec![(0, "a"), (1, "a"), (2, "a")]));
        assert_eq!(assembly.take_next().unwrap(), None);
        assert_eq!(assembly.drain(), ["b"]);
    }

    #[test]
    fn ends_of_an_exchange_go_once_both_have_come_and_others_are_not_waited_for() {
        let mut assembly = Assembly::new(vec![0, 1, 2]);
        assembly.push(0, part(Kind::Send(1)), "to");
        assert_eq!(seats(&mut assembly), []);
        assembly.push(1, part(Kind::Receive(0)), "from");
        assert_eq!(seats(&mut assembly), [0, 1]);
        // A ring needs all three.
        let ring =
            |rank: usize| [part(Kind::Send((rank + 1) % 3)), part(Kind::Receive((rank + 2) % 3))].concat();
        assembly.push(1, ring(1), "ring");
        assembly.push(0, ring(0), "ring");
        assert_eq!(seats(&mut assembly), []);
        assembly.push(2, ring(2), "ring");
        assert_eq!(seats(&mut assembly), [0, 1, 2]);
        // Of another process's rank nothing is known here.
        assembly.push(2, part(Kind::Send(7)), "away");
        assert_eq!(seats(&mut assembly), [2]);
    }

    #[test]
    fn ends_of_an_exchange_that_are_not_alike_are_told_and_not_handed_over() {
        let of = |kind, count| Signature { kind, number: Number::F32, count };
        let (to, from) = (Kind::Send(1), Kind::Receive(0));
        let cases = [
            (vec![of(to, 4)], vec![of(from, 8)], "rank 0: Send(1) of 4 F32; rank 1: Receive(0) of 8 F32"),
            // A library would wait for the other end of the second, or take the one for the other.
            (vec![of(to, 4), of(to, 4)], vec![of(from, 4)], "rank 0: Send(1) of 4 F32; rank 1: none"),
            (vec![of(to, 4), of(to, 8)], vec![of(from, 8), of(from, 4)], "rank 1: Receive(0) of 8 F32"),
        ];
        for (sends, receives, says) in cases {
            let mut assembly = Assembly::new(vec![0, 1]);
            assembly.push(0, sends, "to");
            assert_eq!(assembly.take_next().unwrap(), None);
            assembly.push(1, receives, "from");
            let error = assembly.take_next().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidCollective);
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(assembly.drain().len(), 2);
        }
        let mut assembly = Assembly::new(vec![0, 1]);
        assembly.push(0, vec![of(to, 4), of(to, 8)], "to");
        assembly.push(1, vec![of(from, 4), of(from, 8)], "from");
        assert_eq!(seats(&mut assembly), [0, 1]);
    }

    #[test]
    fn ranks_that_do_different_things_at_one_place_are_told_and_nothing_is_taken() {
        let mut assembly = Assembly::new(vec![4, 5]);
        assembly.push(0, part(Kind::Broadcast(4)), "");
        assembly.push(1, part(Kind::Broadcast(5)), "");
        let error = assembly.take_next().unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidCollective);
        assert!(error.to_string().contains("rank 5: Broadcast(5) of 4 F32"), "{error}");
        assert_eq!(assembly.drain().len(), 2);
    }
}

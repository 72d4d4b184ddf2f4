//! A decode server, as far as it knows no clock and no device: requests come, form batches, and get a token a step.
//!
//! ```text
//!   arrivals ──► waiting ──► active (at most so many rows) ──► done
//!                    admit()           │ step: one token for each row
//!                                      └──► a step's length is by its rows and by how many joined it
//! ```

use alloc::collections::VecDeque;
use core::fmt;

use wakeline_core::Nanos;

use crate::ab::session::real;
use crate::draws::Draws;

/// What a step takes, on the lines of recorded steps of an H200: 4.6 ms for few rows, 5.8 for 64, and more for each row that joins.
const STEP_NS: u64 = 4_500_000;
const ROW_NS: u64 = 20_000;
const JOIN_NS: u64 = 150_000;

/// By how much steps spread around that: the standard deviation, and what is cut off.
const SPREAD: f64 = 0.002;
const SPREAD_MOST: f64 = 0.006;

/// How many tokens a request wants.
const TOKENS: [u64; 2] = [8, 24];

/// The most rows of a step.
pub(super) const ROWS_MAX: u64 = 64;

/// How many steps a turn has under a closed loop, and how long requests arrive for under a Poisson load.
const STEPS: u64 = 32;
const ARRIVES_FOR: Nanos = Nanos::from_millis(200);

/// How the requests come.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Load {
    /// So many clients, each with a next request as soon as it has its answer.
    Closed { batch: u64 },
    /// At random, with so many being served on average.
    Poisson { rows: u64 },
}

impl Load {
    pub(super) const fn closed(batch: u64) -> Self {
        Self::Closed { batch }
    }

    pub(super) const fn poisson(rows: u64) -> Self {
        Self::Poisson { rows }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed { batch } => write!(f, "batch {batch}, closed loop"),
            Self::Poisson { rows } => write!(f, "{rows} rows on average, poisson"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Request {
    arrives: Nanos,
    tokens: u64,
}

/// What is to be launched next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub(super) rows: u64,
    /// How many of them are new.
    pub(super) joined: u64,
    pub(super) length: Nanos,
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Step(Step),
    /// Nobody is there until then.
    Idle(Nanos),
    Over,
}

/// The server. Times are from the beginning of the turn.
#[derive(Debug)]
pub(super) struct Server {
    load: Load,
    draws: Draws,
    /// Those that have not arrived yet.
    coming: VecDeque<Request>,
    active: Vec<Request>,
    steps: u64,
    tokens: u64,
    answered: u64,
    latency_ns: u64,
}

impl Server {
    /// A turn of a round: the same for the same seed and round.
    pub(super) fn new(load: Load, seed: u64, round: u64) -> Self {
        let mut draws = Draws::new(seed, 0x5e7e ^ (round << 16));
        let mut coming = VecDeque::new();
        match load {
            Load::Closed { batch } => {
                // They are in the midst of their answers, as after a while, and not all at their beginning.
                coming.extend(
                    (0..batch).map(|_| Request { arrives: Nanos::ZERO, tokens: draws.between(1, TOKENS[1]) }),
                );
            }
            Load::Poisson { rows } => {
                // By Little's law: as many are there as come while one is served.
                let mean_tokens = real(TOKENS[0] + TOKENS[1]) / 2.0;
                let served_s = mean_tokens * real(STEP_NS + ROW_NS * rows) / 1e9;
                let mut at_s = 0.0;
                loop {
                    at_s += draws.until_next(real(rows) / served_s);
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "some seconds at most"
                    )]
                    let arrives = Nanos::from_nanos((at_s * 1e9) as u64);
                    if arrives > ARRIVES_FOR {
                        break;
                    }
                    coming.push_back(Request { arrives, tokens: draws.between(TOKENS[0], TOKENS[1]) });
                }
            }
        }
        Self { load, draws, coming, active: Vec::new(), steps: 0, tokens: 0, answered: 0, latency_ns: 0 }
    }

    /// What is to be done at `now`.
    pub(super) fn next(&mut self, now: Nanos) -> Next {
        if matches!(self.load, Load::Closed { .. }) && self.steps == STEPS {
            return Next::Over;
        }
        let room = ROWS_MAX.saturating_sub(self.active.len() as u64);
        let mut joined = 0;
        while joined < room && self.coming.front().is_some_and(|request| request.arrives <= now) {
            self.active.extend(self.coming.pop_front());
            joined += 1;
        }
        if self.active.is_empty() {
            return self.coming.front().map_or(Next::Over, |request| Next::Idle(request.arrives));
        }
        // Those of the first step of a closed loop have long joined.
        if self.steps == 0 && matches!(self.load, Load::Closed { .. }) {
            joined = 0;
        }
        let rows = self.active.len() as u64;
        let ns = real(STEP_NS + ROW_NS * rows + JOIN_NS * joined);
        let factor = 1.0 + (SPREAD * self.draws.normal()).clamp(-SPREAD_MOST, SPREAD_MOST);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some milliseconds")]
        let length = Nanos::from_nanos((ns * factor) as u64);
        Next::Step(Step { rows, joined, length })
    }

    /// A step has ended at `now`: each row has a token more.
    pub(super) fn stepped(&mut self, now: Nanos) {
        self.steps += 1;
        self.tokens += self.active.len() as u64;
        let mut left = Vec::with_capacity(self.active.len());
        for request in self.active.drain(..) {
            if request.tokens > 1 {
                left.push(Request { tokens: request.tokens - 1, ..request });
                continue;
            }
            self.answered += 1;
            self.latency_ns += (now - request.arrives).as_nanos();
            if matches!(self.load, Load::Closed { .. }) {
                let tokens = self.draws.between(TOKENS[0], TOKENS[1]);
                self.coming.push_back(Request { arrives: now, tokens });
            }
        }
        self.active = left;
    }

    /// How many tokens were made.
    pub(super) const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// How long requests took on average, from their arrival to their last token; `None` under a closed loop, where it is by the throughput.
    pub(super) fn request_ns(&self) -> Option<f64> {
        let open = matches!(self.load, Load::Poisson { .. }) && self.answered > 0;
        open.then(|| real(self.latency_ns) / real(self.answered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a turn in which nothing takes any time but the steps: their rows, and how long all took.
    fn played(load: Load, round: u64) -> (Vec<Step>, Server, Nanos) {
        let mut server = Server::new(load, 7, round);
        let (mut now, mut steps) = (Nanos::ZERO, Vec::new());
        loop {
            match server.next(now) {
                Next::Over => return (steps, server, now),
                Next::Idle(until) => {
                    assert!(until > now);
                    now = until;
                }
                Next::Step(step) => {
                    now = now + step.length;
                    server.stepped(now);
                    steps.push(step);
                }
            }
        }
    }

    #[test]
    fn a_closed_loop_keeps_its_batch_and_makes_a_token_a_row() {
        for batch in [4, 64] {
            let (steps, server, _) = played(Load::closed(batch), 1);
            assert_eq!(steps.len() as u64, STEPS);
            assert!(steps.iter().all(|step| step.rows == batch), "{steps:?}");
            assert_eq!((server.tokens(), server.request_ns()), (STEPS * batch, None));
            assert!(steps[0].joined == 0 && steps.iter().any(|step| step.joined > 0), "{steps:?}");
        }
    }

    #[test]
    fn steps_take_what_their_rows_and_those_that_join_take() {
        let (steps, ..) = played(Load::closed(16), 2);
        for step in steps {
            let expected = STEP_NS + ROW_NS * step.rows + JOIN_NS * step.joined;
            let off = (real(step.length.as_nanos()) / real(expected) - 1.0).abs();
            assert!(off <= SPREAD_MOST + 1e-6, "{step:?}");
        }
    }

    #[test]
    fn a_poisson_load_has_the_rows_that_it_is_named_by_and_everybody_is_answered() {
        let (mut rows, mut count) = (0, 0);
        for round in 0..40 {
            let requests = Server::new(Load::poisson(16), 7, round).coming.len() as u64;
            let (steps, server, took) = played(Load::poisson(16), round);
            assert_eq!(server.answered, requests);
            assert!(took > Nanos::from_millis(100) && server.request_ns().unwrap() > 1e6);
            // In its midst: before, it fills, and after, it drains.
            let middle = &steps[steps.len() / 3..steps.len() / 2];
            rows += middle.iter().map(|step| step.rows).sum::<u64>();
            count += middle.len() as u64;
        }
        let mean = real(rows) / real(count);
        assert!((11.0..21.0).contains(&mean), "{mean}");
    }

    #[test]
    fn a_round_is_the_same_load_for_every_arm_and_another_is_not() {
        let lengths = |round| played(Load::poisson(8), round).0;
        assert_eq!(lengths(3), lengths(3));
        assert_ne!(lengths(3), lengths(4));
    }
}

//! One wait, for a picture: what the thread did and when, beside when the work ended.

use core::cell::RefCell;
use core::task::Waker;

use wakeline_core::{
    Arming, Clock, CompletionLine, CompletionPort, ContextKey, Error, Idle, Inline, Instant,
    MemoryDescriptor, Nanos, Park, Status, Wait, Wake, drive, run_inline,
};
use wakeline_std::{Point, StdClock};

use crate::ab::arms::{Arm, Host, Way};
use crate::ab::device::Device;
use crate::ab::schema::{Line, Span, Timeline};
use crate::ab::session::{Named, Setup};

/// How many spans a timeline has at most: of more, those in the middle are left out.
const SPANS_MAX: usize = 64;

/// What happened, from when to when.
type Seen = (&'static str, Instant, Instant);

/// Writes down what passes by.
struct Trace {
    clock: StdClock,
    seen: RefCell<Vec<Seen>>,
}

impl Trace {
    fn span<T>(&self, what: &'static str, run: impl FnOnce() -> T) -> T {
        let from = self.clock.now();
        let result = run();
        self.seen.borrow_mut().push((what, from, self.clock.now()));
        result
    }
}

/// An idle, a park or a port that is traced.
struct Traced<'t, T> {
    inner: T,
    trace: &'t Trace,
}

impl<I: Idle> Idle for Traced<'_, I> {
    fn idle(&self, until: Option<Instant>) {
        self.trace.span("sleep", || self.inner.idle(until));
    }

    fn bell(&self) -> Waker {
        self.inner.bell()
    }

    fn turn(&self) {
        self.inner.turn();
    }
}

impl<P: Park> Park for Traced<'_, P> {
    fn park(&self, line: Option<&CompletionLine>, until: Instant, ready: impl FnMut() -> bool) -> Wake {
        self.trace.span("watch", || self.inner.park(line, until, ready))
    }
}

impl<P: CompletionPort> CompletionPort for Traced<'_, P> {
    type Line = P::Line;

    fn query(&mut self) -> Result<Status, Error> {
        self.trace.span("query", || self.inner.query())
    }

    fn block(&mut self, until: Option<Instant>) -> Result<Status, Error> {
        self.trace.span("block", || self.inner.block(until))
    }

    fn arm(&mut self) -> Result<Arming, Error> {
        self.trace.span("arm", || self.inner.arm())
    }

    fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>> {
        self.inner.descriptor()
    }

    fn context(&self) -> Option<ContextKey> {
        self.inner.context()
    }

    fn ended(&self) -> Option<Instant> {
        self.inner.ended()
    }
}

/// One more wait of the arm, by what its point has learned.
pub(super) fn draw<D: Device>(
    setup: &Setup<'_, D>,
    named: &Named,
    arm: &Arm,
    point: &Point,
    length: Nanos,
) -> Result<Line, Error> {
    let clock = setup.device.clock();
    let trace = Trace { clock, seen: RefCell::default() };
    let began = clock.now();
    let launched = trace.span("launch", || setup.device.launch(length))?;
    let known = match &arm.way {
        Way::Plan(bands, Host::Inline) => {
            let (plan, idle) = (bands.choose(1), setup.hosts.idle());
            let host = Inline::new(
                clock,
                Traced { inner: idle, trace: &trace },
                Traced { inner: setup.hosts.park(idle), trace: &trace },
            );
            let mut port = Traced { inner: setup.device.port()?, trace: &trace };
            let wait = Wait::new(plan).expecting(point.forecast(plan));
            run_inline(drive(wait, &mut port, &host, None))??;
            clock.now()
        }
        way => {
            // What a watcher's or a runtime's thread does meanwhile is not seen from here.
            let what = match way {
                Way::Spin => "watch",
                Way::StatusSpin => "query",
                _ => "wait",
            };
            let waiter = setup.waiter();
            trace.span(what, || setup.hosts.run(arm.host(), waiter.wait(arm, 1, point))?)?.at
        }
    };
    let ended = setup.device.ended(&launched, known)?;
    let mut seen = trace.seen.into_inner();
    seen.push(("ended", ended, ended));
    seen.push(("woken", known, known));
    Ok(Line::Timeline(Timeline {
        suite: named.label.suite.to_owned(),
        case: named.label.case.clone(),
        arm: arm.name.clone(),
        spans: spans(seen, began),
    }))
}

/// As the schema has them: in the order of time, and not too many.
fn spans(mut seen: Vec<Seen>, began: Instant) -> Vec<Span> {
    seen.sort_by_key(|(_, from, to)| (*from, *to));
    merge(&mut seen);
    if seen.len() > SPANS_MAX {
        seen.drain(SPANS_MAX / 2..seen.len() - SPANS_MAX / 2);
    }
    let after = |at: Instant| at.since(began).as_nanos();
    seen.into_iter()
        .map(|(what, from, to)| Span { what: what.to_owned(), from_ns: after(from), to_ns: after(to) })
        .collect()
}

/// Calls of one kind right behind each other are one stretch: a `poll` makes thousands.
fn merge(seen: &mut Vec<Seen>) {
    const APART: Nanos = Nanos::from_micros(2);
    seen.dedup_by(|(what, from, to), (last, _, last_to)| {
        let same = what == last && from.since(*last_to) <= APART;
        if same {
            *last_to = (*to).max(*last_to);
        }
        same
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_in_order_merged_and_counted_from_the_launch() {
        let at = |us: u64| Instant::from_nanos(us * 1_000);
        let seen = vec![
            ("query", at(12), at(13)),
            ("launch", at(10), at(12)),
            ("query", at(14), at(15)),
            ("sleep", at(15), at(40)),
            ("query", at(41), at(42)),
        ];
        let spans = spans(seen, at(10));
        let told: Vec<_> = spans.iter().map(|span| (span.what.as_str(), span.from_ns, span.to_ns)).collect();
        let expected = [
            ("launch", 0, 2_000),
            ("query", 2_000, 5_000),
            ("sleep", 5_000, 30_000),
            ("query", 31_000, 32_000),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn many_spans_lose_their_middle() {
        let at = |us: u64| Instant::from_nanos(us * 1_000);
        let seen: Vec<Seen> = (0..500).map(|n| ("watch", at(n * 10), at(n * 10 + 1))).collect();
        let spans = spans(seen, at(0));
        assert_eq!((spans.len(), spans[0].from_ns, spans[SPANS_MAX - 1].from_ns), (SPANS_MAX, 0, 4_990_000));
    }
}

//! Random programs over a shard, judged by what is known of each flight: its word, its driver, its bounds.

use std::sync::Arc;

use proptest::prelude::*;
use wakeline_core::{Authority, CancelToken, Clock, ErrorCode, Instant, Nanos};

use super::stage::{Line, NAP, PREDICT, STRICT, Spec, Stage, TRUST, Task, line, us, word};

const BACKSTOP: Nanos = Nanos::from_millis(1);

/// The most flights of a program, so of a context: with so many a turn comes within two milliseconds.
const FLIGHTS_MAX: usize = 24;

/// What becomes of a word, from when the work is done, in microseconds.
#[derive(Clone, Copy, Debug)]
enum Store {
    After(u64),
    Before(u64),
    Lost,
    /// The stream stores no words.
    None,
}

/// One flight; times are microseconds, after its start where they are moments.
#[derive(Clone, Debug)]
struct Deal {
    /// After the one before.
    starts: u64,
    plan: usize,
    done: Option<u64>,
    store: Store,
    fails: Option<u64>,
    late: u64,
    early_wake: bool,
    prediction: Option<u64>,
    context: Option<u64>,
    deadline: Option<u64>,
    cancel: Option<(u64, bool)>,
    abandon: Option<u64>,
    runs_after: u64,
    query_takes: u64,
}

fn any_deal() -> impl Strategy<Value = Deal> {
    let store = prop_oneof![
        6 => (0_u64..60).prop_map(Store::After), 1 => (1_u64..3_000).prop_map(Store::Before),
        1 => Just(Store::Lost), 1 => Just(Store::None),
    ];
    let moment = || 0_u64..12_000;
    let rarely = |moment: core::ops::Range<u64>| prop::option::weighted(0.1, moment);
    let work = (0_u64..1_500, 0_usize..6, prop::option::weighted(0.95, moment()), store, rarely(0..12_000));
    let asked = (
        prop::sample::select(vec![0_u64, 0, 100, 700]),
        any::<bool>(),
        prop::option::weighted(0.7, moment()),
        prop::option::weighted(0.7, 0_u64..2),
        prop::option::weighted(0.2, moment()),
    );
    let else_ = (
        prop::option::weighted(0.1, (moment(), any::<bool>())),
        rarely(0..12_000),
        0_u64..80,
        prop::sample::select(vec![1_u64, 1, 1, 30]),
    );
    (work, asked, else_).prop_map(
        |(
            (starts, plan, done, store, fails),
            (late, early_wake, prediction, context, deadline),
            (cancel, abandon, runs_after, query_takes),
        )| Deal {
            starts,
            plan,
            done,
            store,
            fails,
            late,
            early_wake,
            prediction,
            context,
            deadline,
            cancel,
            abandon,
            runs_after,
            query_takes,
        },
    )
}

/// What is known of a flight.
#[derive(Debug)]
struct Known {
    deal: Deal,
    trusted: bool,
    started: Instant,
    done: Instant,
    stored: Instant,
    fails: Instant,
    deadline: Instant,
    cancelled: Instant,
    abandoned: Instant,
    /// It ends by then.
    bound: Instant,
}

fn after(start: Instant, micros: Option<u64>) -> Instant {
    micros.map_or(Instant::MAX, |micros| start + us(micros))
}

impl Known {
    fn new(deal: &Deal, started: Instant, flights: usize) -> Self {
        let done = after(started, deal.done);
        let flag = deal.plan < 4;
        let stored = match deal.store {
            _ if !flag || deal.done.is_none() => Instant::MAX,
            Store::After(late) => done + us(late),
            Store::Before(early) => (done - us(early)).max(started),
            Store::Lost | Store::None => Instant::MAX,
        };
        let mut known = Self {
            deal: deal.clone(),
            trusted: matches!(deal.plan, 2 | 3) && !matches!(deal.store, Store::None),
            started,
            done,
            stored,
            fails: after(started, deal.fails),
            deadline: after(started, deal.deadline),
            cancelled: after(started, deal.cancel.map(|(when, _)| when)),
            abandoned: after(started, deal.abandon),
            bound: Instant::MAX,
        };
        known.bound = known.bound_of(flights);
        known
    }

    /// A turn in which all are asked, and what else takes a moment.
    fn bound_of(&self, flights: usize) -> Instant {
        let deal = &self.deal;
        let turn = us(31 * flights as u64 + 100);
        let late = us(deal.late);
        let predicts = matches!(deal.plan, 1 | 3 | 4);
        let landing = match deal.prediction {
            Some(prediction) if predicts => self.started + us(prediction),
            _ => self.started,
        };
        let answers = self.done.min(self.fails);
        let backstop = BACKSTOP + late + turn + Nanos::from_millis(2);
        let natural = match (deal.plan, deal.store) {
            (4 | 5, _) => answers.max(landing) + turn,
            (_, Store::None) => answers.max(landing) + NAP + late + turn + turn,
            _ if self.trusted && self.stored < Instant::MAX => self.stored.max(landing) + late + NAP + turn,
            _ if self.trusted => answers.max(landing) + backstop + backstop + backstop,
            (_, Store::After(_)) if self.stored < Instant::MAX => {
                self.stored.max(landing) + late + NAP + turn + turn
            }
            _ => answers.max(landing) + backstop + backstop,
        };
        let last_ask = if self.trusted { Nanos::ZERO } else { Nanos::from_millis(1) };
        let deadline = self.deadline + last_ask + turn;
        let looked =
            if deal.cancel.is_some_and(|(_, rings)| rings) { Nanos::ZERO } else { Nanos::from_millis(1) };
        natural.min(deadline).min(self.cancelled + looked + turn) + us(deal.runs_after + 20)
    }

    /// Whether what the task got is what it may get, and not too late.
    fn judge(&self, task: &Task, closed_at: Instant) -> Result<(), TestCaseError> {
        let Some((when, outcome)) = task.ended() else {
            prop_assert!(self.abandoned < Instant::MAX, "it never ended: {self:?}");
            return Ok(());
        };
        match &outcome {
            Ok(report) if report.authority == Authority::Driver => {
                prop_assert!(when >= self.done, "{self:?}");
            }
            Ok(_) => prop_assert!(self.trusted && when >= self.stored, "{self:?}"),
            Err(ErrorCode::Timeout) => prop_assert!(when >= self.deadline, "{self:?}"),
            Err(ErrorCode::Cancelled) => prop_assert!(when >= self.cancelled, "{self:?}"),
            Err(ErrorCode::Backend) => prop_assert!(when >= self.fails, "{self:?}"),
            Err(ErrorCode::StoreLost) => {
                prop_assert!(
                    self.trusted && when >= self.done + BACKSTOP,
                    "{when:?}, {:?}, {self:?}",
                    task.driver.queries()
                );
                prop_assert!(self.stored > self.done + BACKSTOP, "{self:?}");
            }
            Err(ErrorCode::WatcherClosed) => prop_assert!(when >= closed_at, "{self:?}"),
            Err(other) => prop_assert!(false, "{other:?}: {self:?}"),
        }
        let seen = || format!("{outcome:?} at {when:?}, asked at {:?}: {self:?}", task.driver.queries());
        prop_assert!(when <= self.bound.max(self.started), "{}", seen());
        let wakes = task.wakes().len();
        let early = usize::from(self.deal.early_wake && matches!(self.deal.plan, 1 | 3));
        prop_assert!(wakes <= 1 + 2 * early, "{wakes} wakes: {self:?}");
        prop_assert!(wakes > 0 || when == self.started, "it knew by itself: {self:?}");
        Ok(())
    }
}

fn play(deals: &[Deal]) -> Result<(), TestCaseError> {
    let stage = Stage::new();
    let lines: Vec<Line> = (0..deals.len().div_ceil(8)).map(|_| line()).collect();
    let predicted = format!("{STRICT}{PREDICT}");
    let both = format!("{STRICT}{PREDICT}+trust");
    let polling = format!("poll{PREDICT}");
    let plans = [STRICT, &predicted, TRUST, &both, &polling, "block"];
    let mut flights = Vec::new();
    for (each, deal) in deals.iter().enumerate() {
        stage.run(stage.time.now() + us(deal.starts));
        let known = Known::new(deal, stage.time.now(), deals.len());
        let token =
            deal.cancel.map(|(_, rings)| if rings { stage.ringing_token() } else { CancelToken::new() });
        let word = word(&lines[each / 8], each % 8);
        if known.stored < Instant::MAX {
            stage.store_at(known.stored, &word);
        }
        let task = stage.fly(&Spec {
            word: (deal.plan < 4 && !matches!(deal.store, Store::None)).then_some(word),
            context: deal.context,
            deadline: known.deadline,
            cancel: token.clone(),
            late: us(deal.late),
            early_wake: deal.early_wake,
            prediction: deal.prediction.map(us),
            done_at: known.done,
            fails_at: known.fails,
            runs_after: us(deal.runs_after),
            ..Spec::new(plans[deal.plan])
        });
        task.driver.takes(us(deal.query_takes));
        if let Some(token) = token {
            stage.when(known.cancelled, move || token.cancel());
        }
        if known.abandoned < Instant::MAX {
            let (task, there) = (Arc::downgrade(&task), Arc::downgrade(&stage));
            stage.when(known.abandoned, move || {
                task.upgrade().unwrap().abandon();
                there.upgrade().unwrap().shard.lock().census();
            });
        }
        flights.push((known, task));
    }
    stage.run(stage.time.now() + us(25_000));
    let closed_at = stage.time.now();
    for (known, task) in &flights {
        prop_assert!(!task.is_forgotten(), "it is over and was not told: {known:?}");
    }
    stage.close();
    stage.run(closed_at + us(200));
    for (known, task) in &flights {
        known.judge(task, closed_at)?;
    }
    stage.assert_empty();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Every flight ends within its bounds, none before its word or its driver says so, each task is told once, and nothing is left.
    #[test]
    fn every_flight_ends_as_it_may_and_when_it_must(deals in prop::collection::vec(any_deal(), 1..=FLIGHTS_MAX)) {
        play(&deals)?;
    }
}

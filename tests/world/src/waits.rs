//! One simulated program of waits, drawn from a seed and judged against what really happened.
//!
//! A seed draws a device with a swarm of faults, streams, plans, deadlines, a token, futures that are dropped, and an inline run or an
//! executor. Each wait is judged when it ends:
//!
//! 1. under the driver's authority, never `Ok` before the work is done; under the word's, never without the word;
//! 2. not lost: an end well comes within one backstop (a trusted one within three: two queries find a lost store) of the
//!    end of the work, plus the time that calls and late wakes took; a time-out at its deadline plus that;
//!    a cancellation within its bound plus that;
//! 3. a failure only where the device failed, a lost store only where stores go astray;
//! 4. a reactor that is empty afterwards.
//!
//! A wait that hangs, be it that it goes on and on at one moment, is a failure as well and no hang of the soak: see [`crate::probe`].

use core::cell::{Cell, RefCell};
use core::pin::pin;
use core::task::Poll;

use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use wakeline_core::{
    Authority, CANCEL_NS_MAX, CancelToken, Clock, CompletionPort, Error, ErrorCode, Executor, Inline,
    Instant, Mode, Nanos, Outcome, PointTable, Reactor, Report, Timer, Wait, WaitPlan, Watch, drive_at,
    run_inline,
};
use wakeline_sim::{Faults, SimConfig, SimDevice, SimStream, VirtualHost, VirtualTime};

use crate::faults::kept;
use crate::probe::{Probe, Probed, within_bounds};
use crate::script::{Part, Script};

/// What a program of waits came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Waits begun.
    pub waits: u64,
    /// Those that ended well.
    pub done: u64,
    /// Those that ended with an error that had its cause.
    pub failed: u64,
    /// Those whose future was dropped.
    pub dropped: u64,
}

impl core::ops::AddAssign for Summary {
    fn add_assign(&mut self, other: Self) {
        self.waits += other.waits;
        self.done += other.done;
        self.failed += other.failed;
        self.dropped += other.dropped;
    }
}

/// The plans that are drawn; texts, so that a failing one can be read.
const PLANS: [&str; 10] = [
    "block",
    "poll",
    "poll+predict:margin_us=30,min_sleep_us=50,max_sleep_us=5000,window=4",
    "flag:park_us=20,backstop_us=200",
    "flag:park_us=100,backstop_us=1000",
    "flag:park_us=50,backstop_us=500+predict:margin_us=40,min_sleep_us=100,max_sleep_us=20000,window=8",
    "flag:park_us=50,backstop_us=500+trust",
    "flag:park_us=50,backstop_us=500+predict:margin_us=0,min_sleep_us=1,max_sleep_us=2000,window=1+trust",
    "poll+adapt:late_pct=2,guard_us=5,min_sleep_us=20,max_sleep_us=5000,window=16",
    "flag:park_us=50,backstop_us=500+adapt:late_pct=1,guard_us=0,min_sleep_us=10,max_sleep_us=20000,window=64+trust",
];

const STREAMS_MAX: u32 = 6;
const WAITS_MAX: u32 = 6;

struct Draw(Pcg32);

impl Draw {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.0.next_u32() as usize % all.len()]
    }

    fn below(&mut self, bound: u32) -> u32 {
        // The bias of a remainder does not matter here.
        self.0.next_u32() % bound
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// A length of work: often tiny, sometimes long.
    fn length(&mut self) -> Nanos {
        let scale = self.one_of(&[20_000, 500_000, 6_000_000]);
        Nanos::from_nanos(u64::from(self.below(scale)))
    }
}

/// What every wait of a program shares.
struct Program<'h, 'p> {
    device: SimDevice,
    config: SimConfig,
    probe: &'p Probe<'h>,
    token: Option<CancelToken>,
    table: RefCell<PointTable<usize>>,
    summary: Cell<Summary>,
}

/// One wait, as drawn.
#[derive(Debug)]
struct Drawn {
    plan: WaitPlan,
    length: Nanos,
    deadline: Option<Nanos>,
    /// Dropped after this many polls that pended.
    drop_after: Option<u32>,
}

/// Runs the program of one seed.
///
/// # Errors
///
/// What promise was broken, by which wait.
pub fn run(seed: u64, script: &Script) -> Result<Summary, String> {
    within_bounds(|| program(seed, script))?
}

fn program(seed: u64, script: &Script) -> Result<Summary, String> {
    let mut draw = Draw(Pcg32::seed_from_u64(seed));
    let mut faults = if draw.one_in(4) { Faults::none() } else { Faults::swarm(seed) };
    if draw.one_in(2) {
        faults = faults.survivable();
    }
    let fatal = faults != faults.survivable();
    let faults = kept(&faults, 0, script);
    let config = SimConfig {
        seed,
        query_ns: 100 + u64::from(draw.below(2_000)),
        confirm_lag_ns: u64::from(draw.below(10_000)),
        faults,
        ..SimConfig::default()
    };
    let text = |error: Error| error.to_string();
    let device = SimDevice::new(VirtualTime::new(), config).map_err(text)?;
    let host = VirtualHost::new(&device);
    let token = draw.one_in(4).then(CancelToken::new);
    let probe = Probe::new(&host, token.clone().map(|token| (1 + u64::from(draw.below(60)), token)));
    let inline = draw.one_in(3);
    let mut streams = Vec::new();
    for key in 0..=draw.below(STREAMS_MAX) {
        // A device that faults at this call has no program to judge.
        let Ok(stream) = device.stream() else { return Ok(Summary::default()) };
        let mut waits = Vec::new();
        for number in 0..=draw.below(WAITS_MAX) {
            // A block keeps the whole executor waiting, so it is drawn for inline runs alone.
            let plan = draw.one_of(if inline { &PLANS } else { &PLANS[1..] });
            let wait = Drawn {
                plan: plan.parse().map_err(text)?,
                length: draw.length(),
                deadline: (fatal || draw.one_in(3)).then(|| draw.length() + draw.length()),
                drop_after: draw.one_in(8).then(|| draw.below(4)),
            };
            if script.runs(Part::Step(key, number)) {
                script.note(|| format!("stream {key}, wait {number}: {wait:?}"));
                waits.push(wait);
            }
        }
        streams.push((stream, waits));
    }
    let program = Program {
        device,
        config,
        probe: &probe,
        token,
        table: RefCell::new(PointTable::new(4).map_err(text)?),
        summary: Cell::new(Summary::default()),
    };
    if inline {
        let inline = Inline::new(&probe, &probe, &probe);
        for (key, (stream, waits)) in streams.iter().enumerate() {
            run_inline(program.waits(&inline, key, stream, waits)).map_err(text)??;
        }
    } else {
        let reactor = Reactor::new(&probe);
        let mut executor = Executor::new(&reactor, &probe, &probe, streams.len()).map_err(text)?;
        for (key, (stream, waits)) in streams.iter().enumerate() {
            executor.spawn(program.waits(&reactor, key, stream, waits)).map_err(text)?;
        }
        let mut broken = None;
        executor.run(|_, result| broken = broken.take().or(result.err())).map_err(text)?;
        if let Some(broken) = broken {
            return Err(broken);
        }
        if reactor.registered() != 0 {
            return Err(format!("{} registration(s) left behind", reactor.registered()));
        }
    }
    Ok(program.summary.get())
}

impl<'h, 'p> Program<'h, 'p> {
    /// The waits of one stream, one after the other.
    async fn waits<H>(&self, host: &H, key: usize, stream: &SimStream, waits: &[Drawn]) -> Result<(), String>
    where
        H: Clock + Timer + Watch<Probed<'p, 'h>>,
    {
        for (number, drawn) in waits.iter().enumerate() {
            if self.probe.call(|| stream.launch(drawn.length)).is_err() {
                // Only a fault refuses a launch here; what it does to waits is seen by those under way.
                return self
                    .device
                    .health()
                    .map(|_| ())
                    .ok_or_else(|| "a launch failed without a fault".into());
            }
            self.probe.begin(key, number, &drawn.plan);
            let judged = self.wait(host, key, stream, drawn).await;
            self.probe.end(key);
            judged.map_err(|broken| format!("stream {key}, wait {number} by `{}`: {broken}", drawn.plan))?;
        }
        Ok(())
    }

    async fn wait<H>(&self, host: &H, key: usize, stream: &SimStream, drawn: &Drawn) -> Result<(), String>
    where
        H: Clock + Timer + Watch<Probed<'p, 'h>>,
    {
        let start = host.now();
        let injected = self.probe.injected();
        let deadline = drawn.deadline.map(|length| start + length);
        let point = stream.point();
        let witness = point.witness();
        let mut port = Probed::new(point, self.probe);
        let wait = Wait::new(&drawn.plan).deadline(deadline);
        let result = {
            let driven = drive_at(&self.table, key, wait, &mut port, host, self.token.as_ref());
            let mut driven = pin!(driven);
            let mut polls_left = drawn.drop_after;
            core::future::poll_fn(|context| match driven.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending if polls_left == Some(0) => Poll::Ready(None),
                Poll::Pending => {
                    polls_left = polls_left.map(|left| left - 1);
                    Poll::Pending
                }
            })
            .await
        };
        let mut summary = self.summary.get();
        summary.waits += 1;
        match &result {
            None => summary.dropped += 1,
            Some(Ok(_)) => summary.done += 1,
            Some(Err(_)) => summary.failed += 1,
        }
        self.summary.set(summary);
        let end = End {
            start,
            now: host.now(),
            deadline,
            injected: self.probe.injected() - injected,
            truth: witness.truth(),
            word: port.descriptor().map(wakeline_core::MemoryDescriptor::reached),
        };
        match result {
            None => Ok(()),
            Some(Ok(report)) => self.judge_done(&report, &end),
            Some(Err(error)) => self.judge_error(&drawn.plan, &error, &end),
        }
    }

    fn judge_done(&self, report: &Report, end: &End) -> Result<(), String> {
        let faults = self.config.faults;
        let ended = end.truth.ended_at.filter(|at| *at <= end.now);
        let driver = report.authority == Authority::Driver;
        if !driver && end.word != Some(true) {
            return Err(format!("Ok without the word: {end:?}"));
        }
        let word_lies = faults.early_store.ppm > 0 || faults.swapped_store_ppm > 0;
        let Some(ended) = ended else {
            return if driver || !word_lies {
                Err(format!("Ok before the work was done: {end:?}"))
            } else {
                Ok(())
            };
        };
        let done = match end.truth.landed_at {
            Some(landed) if !driver => ended.max(landed),
            _ => ended + Nanos::from_nanos(self.config.confirm_lag_ns),
        };
        let (base, slack) = match (report.outcome(), report.plan.mode()) {
            // It slept too long, which its plan bounds.
            (Some(Outcome::Late), _) => match (report.plan.predict(), report.plan.adapt()) {
                (Some(predict), _) => (done.max(end.start + predict.max_sleep()), Nanos::ZERO),
                (None, adapt) => (done, adapt.map_or(Nanos::ZERO, |adapt| adapt.max_sleep())),
            },
            // It slept, and then the word was not there though the work was done: a store that is late or lost.
            (_, Mode::Flag { backstop, .. }) if driver && report.sleeps > 0 => {
                let slept = report.plan.predict().map_or(Nanos::ZERO, |predict| predict.max_sleep());
                (done.max(end.start + slept), backstop)
            }
            (_, Mode::Flag { backstop, .. }) if driver => (done, backstop),
            (_, Mode::Flag { backstop, .. }) => (done, backstop + backstop + backstop),
            (_, Mode::Block) => (done, Nanos::from_nanos(self.config.block_ns)),
            (_, Mode::Poll) => (done, Nanos::ZERO),
        };
        end.within(base.max(end.start), slack, "a good end")
    }

    fn judge_error(&self, plan: &WaitPlan, error: &Error, end: &End) -> Result<(), String> {
        let faults = self.config.faults;
        match error.code() {
            ErrorCode::Timeout => match end.deadline {
                Some(deadline) if end.now >= deadline => {
                    end.within(deadline.max(end.start), Nanos::ZERO, "a time-out")
                }
                _ => Err(format!("a time-out before its deadline: {end:?}")),
            },
            ErrorCode::Cancelled => match self.probe.cancelled_at() {
                Some(at) => end.within(at.max(end.start), Nanos::from_nanos(CANCEL_NS_MAX), "a cancellation"),
                None => Err("cancelled by nobody".into()),
            },
            ErrorCode::StoreLost => {
                let astray = [faults.lost_store_ppm, faults.late_store.ppm, faults.deferred_store_ppm];
                let astray = astray.iter().any(|ppm| *ppm > 0);
                // A device that has faulted stores no more, and for a while answers as if nothing were.
                let dies = faults.fault_at.is_some() || faults.fault_at_call.is_some();
                let astray = astray || dies && end.truth.landed_at.is_none();
                // Virtual time stores only when the device is turned, which may be after the last look of the wait.
                let unseen = end.word != Some(true) || end.truth.stored_at.is_some_and(|at| at >= end.now);
                if plan.authority() == Authority::Word && astray && unseen {
                    Ok(())
                } else {
                    Err(format!("a store was called lost for no reason: {end:?}"))
                }
            }
            ErrorCode::Backend if self.device.health().is_some() => Ok(()),
            _ => Err(format!("an error without its cause: {error}")),
        }
    }
}

/// How a wait ended, for the judge.
#[derive(Debug)]
struct End {
    start: Instant,
    now: Instant,
    deadline: Option<Instant>,
    /// Time that calls and late wakes took between start and end.
    injected: Nanos,
    truth: wakeline_sim::Truth,
    word: Option<bool>,
}

impl End {
    fn within(&self, base: Instant, slack: Nanos, what: &str) -> Result<(), String> {
        let bound = base + slack + self.injected;
        if self.now <= bound {
            return Ok(());
        }
        Err(format!("{what} {} after its bound: {self:?}", self.now.since(bound)))
    }
}

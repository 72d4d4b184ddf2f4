//! The waits: a port whose work ends at a moment, in one of some ways, and what has to come of it.
#![allow(clippy::panic, clippy::missing_panics_doc, reason = "what goes wrong is a trap")]

use alloc::rc::Rc;
use core::cell::Cell;

use wakeline_core::{
    Arming, CancelToken, Clock, CompletionLine, CompletionPort, Error, ErrorCode, HostLine, Idle, Inline,
    Instant, ManualClock, MemoryDescriptor, Nanos, Outcome, Park, Seq, Slot, Status, Wait, WaitPlan, Wake,
    drive, run_inline,
};

/// Every kind of plan.
const PLANS: [&str; 6] = [
    "block",
    "poll",
    "flag:park_us=50,backstop_us=400",
    "flag:park_us=50,backstop_us=400+trust",
    "flag:park_us=50,backstop_us=400+predict:margin_us=40,min_sleep_us=50,max_sleep_us=20000,window=4",
    "flag:park_us=50,backstop_us=400+adapt:late_pct=2,guard_us=20,min_sleep_us=50,max_sleep_us=5000,window=8+trust",
];

/// When the work ends.
const WORK: Nanos = Nanos::from_micros(1_500);

/// What a driver call takes.
const CALL: Nanos = Nanos::from_nanos(300);

/// What becomes of the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Script {
    /// It ends, and its word is stored.
    Ends,
    /// It ends, and its word never comes.
    LosesItsStore,
    /// It fails when it should end.
    Fails,
    /// It never ends; the deadline does.
    Never,
    /// It never ends; the token does.
    Cancelled,
}

const SCRIPTS: [Script; 5] =
    [Script::Ends, Script::LosesItsStore, Script::Fails, Script::Never, Script::Cancelled];

/// How many waits [`run_all`] runs.
pub const WAITS: u32 = 30;

/// The device, and the host whose waiting lets its time pass.
struct Machine {
    clock: ManualClock,
    line: Rc<HostLine>,
    script: Script,
    stores: Cell<bool>,
}

impl Machine {
    /// Lets time pass; what is due happens.
    fn pass(&self, until: Instant) {
        self.clock.advance_to(until);
        let due = self.clock.now() >= Instant::ORIGIN + WORK;
        if due && self.stores.get() && self.script == Script::Ends {
            self.line.store(Slot::ALL[0], Seq::new(1));
        }
    }

    fn status(&self) -> Result<Status, Error> {
        self.pass(self.clock.now() + CALL);
        let due = self.clock.now() >= Instant::ORIGIN + WORK;
        match self.script {
            Script::Ends | Script::LosesItsStore if due => Ok(Status::Done),
            Script::Fails if due => Err(Error::new(ErrorCode::Backend, [&"script", &"query", &"it failed"])),
            _ => Ok(Status::Pending),
        }
    }
}

impl Clock for Machine {
    fn now(&self) -> Instant {
        self.clock.now()
    }
}

impl Idle for Machine {
    fn idle(&self, until: Option<Instant>) {
        self.pass(until.unwrap_or(Instant::MAX));
    }

    fn bell(&self) -> core::task::Waker {
        core::task::Waker::noop().clone()
    }
}

impl Park for Machine {
    fn park(&self, _: Option<&CompletionLine>, until: Instant, mut ready: impl FnMut() -> bool) -> Wake {
        if ready() {
            return Wake::Reached;
        }
        // To the end of the work, where that comes first: a store is seen as it lands.
        let end = Instant::ORIGIN + WORK;
        self.pass(if self.clock.now() < end { until.min(end) } else { until });
        if ready() { Wake::Reached } else { Wake::Woke }
    }
}

/// A point of it.
struct Port<'m> {
    machine: &'m Machine,
    word: Option<MemoryDescriptor<Rc<HostLine>>>,
}

impl CompletionPort for Port<'_> {
    type Line = Rc<HostLine>;

    fn query(&mut self) -> Result<Status, Error> {
        self.machine.status()
    }

    fn block(&mut self, until: Option<Instant>) -> Result<Status, Error> {
        let now = self.machine.clock.now();
        let end = Instant::ORIGIN + WORK;
        // To the end of the work, or, where that does not come, to the deadline.
        let until = until.unwrap_or(Instant::MAX);
        self.machine.pass(if now < end { until.min(end) } else { until });
        self.machine.status()
    }

    fn arm(&mut self) -> Result<Arming, Error> {
        self.machine.pass(self.machine.clock.now() + CALL);
        self.machine.stores.set(true);
        self.word = Some(MemoryDescriptor::new(Rc::clone(&self.machine.line), Slot::ALL[0], Seq::new(1)));
        Ok(Arming::Armed)
    }

    fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>> {
        self.word.as_ref()
    }
}

/// Runs every script under every plan; panics where one ends otherwise than it should.
pub fn run_all() -> u32 {
    let mut ended = 0;
    for script in SCRIPTS {
        for text in PLANS {
            run(script, text);
            ended += 1;
        }
    }
    ended
}

fn run(script: Script, text: &str) {
    let Ok(plan) = text.parse::<WaitPlan>() else { panic!("{text} is no plan") };
    let machine = Machine {
        clock: ManualClock::new(),
        line: Rc::new(HostLine::new()),
        script,
        stores: Cell::new(false),
    };
    let token = CancelToken::new();
    let deadline = Instant::ORIGIN + Nanos::from_millis(20);
    let mut wait = Wait::new(&plan).deadline(Some(deadline));
    if plan.predict().is_some() {
        wait = wait.predicted(Some(WORK));
    }
    if script == Script::Cancelled {
        token.cancel();
    }
    let mut port = Port { machine: &machine, word: None };
    let inline = Inline::new(&machine, &machine, &machine);
    let Ok(end) = run_inline(drive(wait, &mut port, &inline, Some(&token))) else {
        panic!("{text}: it pended in {script:?}")
    };
    let code = end.as_ref().err().map(Error::code);
    let trusts = text.ends_with("+trust");
    match script {
        Script::Ends => {
            let outcome = end.ok().and_then(|report| report.outcome());
            let expected = match text {
                "block" => Outcome::Blocked,
                _ if trusts => Outcome::Trusted,
                _ => Outcome::Parked,
            };
            assert_eq!(outcome, Some(expected), "{text}");
            let late = machine.now().since(Instant::ORIGIN + WORK);
            assert!(late <= Nanos::from_micros(2), "{text}: late");
        }
        Script::LosesItsStore if trusts => assert_eq!(code, Some(ErrorCode::StoreLost), "{text}"),
        Script::LosesItsStore => {
            assert_eq!(code, None, "{text}");
            assert!(machine.now() <= Instant::ORIGIN + WORK + Nanos::from_micros(410), "{text}: late");
        }
        Script::Fails => assert_eq!(code, Some(ErrorCode::Backend), "{text}"),
        Script::Never => {
            assert_eq!(code, Some(ErrorCode::Timeout), "{text}");
            assert!(machine.now() >= deadline, "{text}: early");
        }
        Script::Cancelled => assert_eq!(code, Some(ErrorCode::Cancelled), "{text}"),
    }
}

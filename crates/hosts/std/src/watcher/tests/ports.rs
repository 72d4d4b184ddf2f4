//! The played time, and ports whose driver says what a test wants.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use wakeline_core::{
    Arming, Clock, CompletionPort, ContextKey, Error, ErrorCode, Instant, MemoryDescriptor, Nanos, Status,
};

use super::stage::Line;

/// The played time.
#[derive(Clone, Debug)]
pub(super) struct Time(Arc<AtomicU64>);

impl Time {
    pub(super) fn new(at: Instant) -> Self {
        Self(Arc::new(AtomicU64::new(at.as_nanos())))
    }

    /// Never backwards.
    pub(super) fn pass_to(&self, at: Instant) {
        self.0.fetch_max(at.as_nanos(), Ordering::Relaxed);
    }
}

impl Clock for Time {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

pub(super) type Deed = Box<dyn FnOnce() + Send>;

/// What the driver knows of a point.
pub(super) struct Driver {
    time: Time,
    done_at: AtomicU64,
    fails_at: AtomicU64,
    /// How long a query takes.
    takes: AtomicU64,
    /// When it was asked.
    queries: Mutex<Vec<Instant>>,
    /// What happens while it is being asked.
    meanwhile: Mutex<Option<Deed>>,
    drops: AtomicUsize,
}

impl Driver {
    pub(super) fn new(time: &Time, done_at: Instant, fails_at: Instant) -> Self {
        Self {
            time: time.clone(),
            done_at: AtomicU64::new(done_at.as_nanos()),
            fails_at: AtomicU64::new(fails_at.as_nanos()),
            takes: AtomicU64::new(1_000),
            queries: Mutex::default(),
            meanwhile: Mutex::default(),
            drops: AtomicUsize::new(0),
        }
    }

    /// When it says something else than that the work is pending.
    pub(super) fn answers_at(&self) -> Instant {
        let (done, fails) = (self.done_at.load(Ordering::Relaxed), self.fails_at.load(Ordering::Relaxed));
        Instant::from_nanos(done.min(fails))
    }
    pub(super) fn takes(&self, time: Nanos) {
        self.takes.store(time.as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn meanwhile(&self, deed: impl FnOnce() + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some(Box::new(deed));
    }

    pub(super) fn queries(&self) -> Vec<Instant> {
        self.queries.lock().unwrap().clone()
    }

    /// How often its port was let go.
    pub(super) fn drops(&self) -> usize {
        self.drops.load(Ordering::Relaxed)
    }

    fn says(&self) -> Result<Status, Error> {
        let now = self.time.now().as_nanos();
        if now >= self.fails_at.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorCode::Backend, [&"played", &"query", &"as the test wants"]));
        }
        Ok(if now >= self.done_at.load(Ordering::Relaxed) { Status::Done } else { Status::Pending })
    }
}

pub(super) struct Port {
    driver: Arc<Driver>,
    word: Option<MemoryDescriptor<Line>>,
    context: Option<ContextKey>,
}

impl Port {
    pub(super) fn new(
        driver: Arc<Driver>,
        word: Option<MemoryDescriptor<Line>>,
        context: Option<ContextKey>,
    ) -> Self {
        Self { driver, word, context }
    }
}

impl CompletionPort for Port {
    type Line = Line;

    fn query(&mut self) -> Result<Status, Error> {
        let driver = &self.driver;
        driver.queries.lock().unwrap().push(driver.time.now());
        driver.time.pass_to(driver.time.now() + Nanos::from_nanos(driver.takes.load(Ordering::Relaxed)));
        let deed = driver.meanwhile.lock().unwrap().take();
        if let Some(deed) = deed {
            deed();
        }
        driver.says()
    }

    /// Its helper is played to come back when it would.
    fn block(&mut self, _: Option<Instant>) -> Result<Status, Error> {
        self.driver.says()
    }

    fn arm(&mut self) -> Result<Arming, Error> {
        Ok(if self.word.is_some() { Arming::Armed } else { Arming::Unsupported })
    }

    fn descriptor(&self) -> Option<&MemoryDescriptor<Line>> {
        self.word.as_ref()
    }

    fn context(&self) -> Option<ContextKey> {
        self.context
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.driver.drops.fetch_add(1, Ordering::Relaxed);
    }
}

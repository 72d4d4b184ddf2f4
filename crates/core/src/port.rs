//! The ports: what the core asks of a backend and of a host.
//!
//! | port | who supplies it | what for |
//! |---|---|---|
//! | [`CompletionPort`] | a backend, one value a point | ask, block, store, look and park on the awaited point |
//! | [`Clock`] | a host | the time |
//! | [`Timer`] | a host or its reactor | sleep to a moment, or just let others run, as a future |
//! | [`Idle`] | a host | put this thread to sleep until a moment or a ring |
//! | [`Park`] | a host or `wordwait` | watch words from this thread |
//! | [`Watch`] | a reactor or a watcher thread | watch a word, as a future |
//! | [`Tend`] | a watcher thread, or who plays one | see a point to its end for somebody who may never ask again |
//! | [`Turn`] | a simulated device | be driven by a host's thread |
//!
//! All are used through generics, never as trait objects. Each method lists what an implementer MUST do.

use core::task::{Context, Waker};

use crate::error::Error;
use crate::line::{CompletionLine, LineRef, MemoryDescriptor};
use crate::lookout::{Lookout, Watched};
use crate::plan::WaitPlan;
use crate::time::{Instant, Nanos};
use crate::wait::Report;

/// What a driver says about a point.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// All work of the point is done and its results may be read.
    Done,
    /// Not yet.
    Pending,
}

/// Why a watch or a park came back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wake {
    /// The word has reached its sequence number.
    Reached,
    /// The time is up, somebody rang, or for no reason at all: look again.
    Woke,
}

/// Whether a store of the completion word was enqueued.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arming {
    /// It was: the word will reach the sequence number behind the point's work.
    Armed,
    /// This stream or device cannot store words; nothing was enqueued.
    Unsupported,
}

/// Which device context a point belongs to: points with one key fault together.
///
/// A number that the backend chooses, unique among all backends of the process while the context lives; the address of
/// something that lives as long will do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ContextKey(u64);

impl ContextKey {
    /// The key with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The address of `context`, which lives as long as the context does, stays where it is and is not of size 0.
    pub fn of<T>(context: &T) -> Self {
        Self(core::ptr::from_ref(context).addr() as u64)
    }
}

/// One awaited point of a stream: all the work that was enqueued before the value was made.
///
/// A value serves one wait. The awaited point is fixed when the value is made or armed; work enqueued behind
/// it by others never delays it.
///
/// The smallest backend there is, whose device is another thread and its driver an atomic flag:
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use wakeline_core::{Arming, HostLine, CompletionPort, Error, Instant, MemoryDescriptor, Seq, Slot, Status};
///
/// struct Job {
///     done: Arc<AtomicBool>,
///     word: MemoryDescriptor<Arc<HostLine>>,
/// }
///
/// impl CompletionPort for Job {
///     type Line = Arc<HostLine>;
///     fn query(&mut self) -> Result<Status, Error> {
///         Ok(if self.done.load(Ordering::Acquire) { Status::Done } else { Status::Pending })
///     }
///     fn block(&mut self, until: Option<Instant>) -> Result<Status, Error> {
///         match until {
///             // A real driver sleeps here.
///             None => Ok(loop {
///                 if let Status::Done = self.query()? {
///                     break Status::Done;
///                 }
///                 std::thread::yield_now();
///             }),
///             Some(_) => Err(Error::new(wakeline_core::ErrorCode::BlockUnbounded, [&"job"])),
///         }
///     }
///     fn arm(&mut self) -> Result<Arming, Error> {
///         Ok(Arming::Armed) // the job stores the word by itself
///     }
///     fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>> {
///         Some(&self.word)
///     }
/// }
///
/// let (line, done) = (Arc::new(HostLine::new()), Arc::new(AtomicBool::new(false)));
/// let word = MemoryDescriptor::new(Arc::clone(&line), Slot::ALL[0], Seq::new(1));
/// let mut job = Job { done: Arc::clone(&done), word };
/// let device = std::thread::spawn(move || {
///     done.store(true, Ordering::Release); // the work is done ..
///     line.store(Slot::ALL[0], Seq::new(1)); // .. and only then its word says so
/// });
/// assert_eq!(job.block(None)?, Status::Done);
/// # device.join().unwrap();
/// # Ok::<(), Error>(())
/// ```
pub trait CompletionPort {
    /// What keeps the completion line alive; a clone goes wherever the word is watched.
    type Line: LineRef;

    /// Asks the driver whether the point is done.
    ///
    /// MUST NOT say [`Status::Done`] before all work of the point is done and visible to the host, and MUST
    /// fail once the device is faulted, whatever the word says. May take long (400 ms were seen behind another
    /// thread's synchronize), but MUST NOT wait for the point.
    ///
    /// # Errors
    ///
    /// The device's fault, or whatever made the call fail.
    fn query(&mut self) -> Result<Status, Error>;

    /// Blocks this thread until the point is done or `until` has come.
    ///
    /// MUST return within a scheduling delay of `until`; may return [`Status::Pending`] early. `None` waits
    /// without bound. [`Status::Done`] binds as in [`query`](Self::query).
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query); [`ErrorCode::BlockUnbounded`](crate::ErrorCode::BlockUnbounded) where the
    /// driver offers no bounded wait and `until` is `Some`: it MUST NOT block then.
    fn block(&mut self, until: Option<Instant>) -> Result<Status, Error>;

    /// Enqueues the store of the completion word behind the point's work.
    ///
    /// MUST hold the stream's submission lock from taking the sequence number to the enqueue of the store, so
    /// that numbers land in order; MUST NOT wait for the device. Called at most once a wait.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query). A stream that cannot store words says [`Arming::Unsupported`] instead.
    fn arm(&mut self) -> Result<Arming, Error>;

    /// The word to watch: `Some` once the point is armed, or from the start where the device's own code stores it.
    fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>>;

    /// The context that the point belongs to, `None` where the backend knows of none.
    ///
    /// A watcher of many points asks one of a context now and then for all of them, and all at once when one has failed.
    /// MUST NOT call the driver.
    fn context(&self) -> Option<ContextKey> {
        None
    }

    /// When the point's work ended, where the device told: on the time line of the host's [`Clock`]. `None`, as provided, elsewhere.
    ///
    /// A wait asks this once, when it has ended well; a point's residual is then exact even where it was noticed late. MUST NOT call the driver.
    fn ended(&self) -> Option<Instant> {
        None
    }

    /// Touches what the next submission from this thread is going to need, the driver's code and data above all, so that it finds them in the
    /// processor's caches. By `+warm` a wait calls this when it has slept, and a moment before its end is expected. Provided: does nothing.
    ///
    /// MUST NOT wait for the device, nor enqueue anything in the point's own stream. A failure is nobody's: what is submitted next shows it.
    fn warm(&mut self) {}

    /// Looks at the word once. MUST NOT call the driver; costs a load.
    fn poll(&self) -> Wake {
        match self.descriptor() {
            Some(word) if word.reached() => Wake::Reached,
            _ => Wake::Woke,
        }
    }

    /// Parks this thread on the word until it is reached or `until` has come; MUST look at the word before
    /// sleeping and MUST return within a scheduling delay of `until`. May wake early.
    fn park<P: Park>(&self, park: &P, until: Instant) -> Wake {
        match self.descriptor() {
            Some(word) => park.park(Some(word.line()), until, || word.reached()),
            None => park.park(None, until, || false),
        }
    }
}

/// A monotonic clock.
pub trait Clock {
    /// The time now. MUST NOT go backwards; MUST NOT block or allocate. Called several times a wait.
    fn now(&self) -> Instant;
}

impl<C: Clock + ?Sized> Clock for &C {
    fn now(&self) -> Instant {
        (**self).now()
    }
}

/// Sleeping, as a future.
pub trait Timer {
    /// Resolves once `at` has come, on the time line of the host's [`Clock`].
    ///
    /// MUST resolve within a scheduling delay of `at`, at once where `at` has passed; may resolve early. Dropping
    /// the future MUST take the timer back.
    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()>;

    /// Lets other ready work of this thread run, then resolves.
    ///
    /// MUST NOT wait for time to pass; resolves at once where there is no other work to run. A wait that polls a
    /// status does this between any two queries.
    fn yield_now(&self) -> impl Future<Output = ()>;
}

/// Putting the thread of an executor to sleep.
pub trait Idle {
    /// Sleeps until `until` has come (`None`: for as long as nobody rings) or the [`bell`](Self::bell) rings.
    ///
    /// MUST return at once when the bell rang since the last call ended; MUST return within a scheduling delay of
    /// `until`; may wake early, for a signal say.
    fn idle(&self, until: Option<Instant>);

    /// What ends an idle call of this thread, from any thread.
    ///
    /// Ringing MUST NOT block, allocate or call back; a ring between two idle calls MUST end the next one.
    fn bell(&self) -> Waker;

    /// Delivers what this thread waits for besides words, moments and rings: completions of I/O, say. Nothing by default.
    ///
    /// MUST NOT block, and MUST cost next to nothing where nothing has come. Calls wakers, unlike a [`Park`] on it: an
    /// executor calls this between any two polls and after each park, while nothing is borrowed.
    fn turn(&self) {}
}

impl<I: Idle + ?Sized> Idle for &I {
    fn idle(&self, until: Option<Instant>) {
        (**self).idle(until);
    }
    fn bell(&self) -> Waker {
        (**self).bell()
    }
    fn turn(&self) {
        (**self).turn();
    }
}

/// Watching completion words from the calling thread.
pub trait Park {
    /// Waits until `ready` says true ([`Wake::Reached`]) or `until` has come ([`Wake::Woke`]).
    ///
    /// `line` is the one line that `ready` depends on, `None` where it looks at several. MUST call `ready` at
    /// least once, and again after announcing interest in the line and before sleeping (else a store between the
    /// two is slept through). MUST NOT run other code of the caller's, polls above all. MUST return within a scheduling delay of `until`. May return [`Wake::Woke`] early,
    /// and MUST do so within a bounded time of a ring of the [`Idle`] it belongs to, if it belongs to one.
    fn park(&self, line: Option<&CompletionLine>, until: Instant, ready: impl FnMut() -> bool) -> Wake;
}

impl<P: Park + ?Sized> Park for &P {
    fn park(&self, line: Option<&CompletionLine>, until: Instant, ready: impl FnMut() -> bool) -> Wake {
        (**self).park(line, until, ready)
    }
}

/// Watching a point's completion word, as a future.
///
/// Implemented by whoever watches: [`Inline`](crate::Inline) parks the calling thread, the
/// [`Reactor`](crate::Reactor) watches between polls; a watcher thread may watch for all runtimes. Generic over
/// the port, so that an implementer may ask more of its line (`Send`, say).
pub trait Watch<P: CompletionPort> {
    /// Resolves once the word of `port` is reached or `until` has come.
    ///
    /// MUST look at the word before it first pends; MUST resolve within a scheduling delay of `until`; may resolve
    /// early with [`Wake::Woke`]. A spurious poll MUST NOT call the driver. Dropping the future MUST end the watch.
    fn watch(&self, port: &P, until: Instant) -> impl Future<Output = Wake>;
}

/// Seeing a point to its end, whether or not anybody awaits it.
///
/// What keeps memory until a device is done with it cannot hang on a future, which may be dropped or forgotten. It hangs on
/// this: who tends takes the point over and tells of its end. See [`Charge`] and [`Awaiter`] for what passes between the two.
pub trait Tend<P: CompletionPort>: Clock {
    /// Takes over `port`, waits for its point as `charge` says, and calls `ended` with what became of the wait.
    ///
    /// MUST call `ended` exactly once, also when the wait cannot begin, the device faults or whoever tends closes; at once and
    /// on the calling thread is allowed. Once the awaiter says that it [is over](Awaiter::is_over) it MAY drop `ended` instead.
    /// MUST NOT hold a lock or a borrow when it calls `ended` or the awaiter, since those drop and wake what is others'.
    /// MUST NOT wait for the device, and of driver calls MUST make none but the arming on the calling thread, and that only where
    /// `charge` does not say what came of it.
    fn tend<A, E>(&self, port: P, charge: &Charge<'_>, awaiter: A, ended: E)
    where
        A: Awaiter,
        E: FnOnce(Result<Report, Error>) + Send + 'static;

    /// Watches for one slice, in a poll, where `lookout` says that it is to be done: until `ended` says true.
    ///
    /// `who` names the task, by the address of something of its own. MUST return within a slice, a few tens of microseconds; MUST
    /// say [`Watched::NotAsked`] where another task of this thread watches already. Makes no driver call.
    fn watch(&self, lookout: &Lookout, who: usize, ended: impl FnMut() -> bool) -> Watched;

    /// Has the task polled again, whose slice is over and which is to watch on, once others have had their turn: its poll returns pending next.
    ///
    /// Wakes it, unless who tends knows what is cheaper in its runtime.
    fn again(&self, context: &mut Context<'_>) {
        context.waker().wake_by_ref();
    }

    /// The task watches no longer, whatever `lookout` says.
    fn unwatch(&self, lookout: &Lookout, who: usize);

    /// A task has seen the end of its point by itself: its awaiter [is over](Awaiter::is_over). Who tends lets go of such points within a bounded time, and
    /// MUST NOT do so here, nor make a driver call. Provided: nothing.
    fn let_go(&self) {}

    /// What is tended may end from now on, of which nobody could know when: the host has opened a gate that it was behind, say. Where who tends looks ever more seldom at
    /// what is long in coming, it looks closely again. Provided: nothing.
    fn attend(&self) {}

    /// Wakes `waker` once at about `at`, or earlier.
    ///
    /// MUST NOT call it from within. Who tends may have closed: then nobody is woken.
    fn alarm(&self, at: Instant, waker: &Waker);
}

/// What who tends a point is told of it.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'p> {
    /// How it is waited for.
    pub plan: &'p WaitPlan,
    /// What came of arming the point; `None` where that is still to be done.
    pub arming: Option<Arming>,
    /// How long the work is expected to take from now on, for a plan with `+predict`: zero where nothing is known of it, `None` where
    /// whoever tends may go by what it has learned itself.
    pub residual: Option<Nanos>,
    /// By how much its end may be told late, in the interest of fewer wake-ups.
    pub late: Nanos,
}

impl<'p> Charge<'p> {
    /// By this plan; nothing else is known.
    pub const fn new(plan: &'p WaitPlan) -> Self {
        Self { plan, arming: None, residual: None, late: Nanos::ZERO }
    }
}

/// A task that awaits a tended point and may see its end by itself. `()` is one that does not.
///
/// All of it may be called from any thread, several at a time.
pub trait Awaiter: Send + Sync + 'static {
    /// Where who tends says until when the task is to watch, having woken it before the predicted end. `None` for a task that is not to be
    /// woken early. Where it says so already when the point is handed over, the task watches from the start.
    fn lookout(&self) -> Option<&Lookout> {
        None
    }

    /// Wakes the task, before there is an outcome.
    fn wake(&self) {}

    /// Whether the task has seen the end by itself: then nobody needs to be told of it.
    fn is_over(&self) -> bool {
        false
    }
}

impl Awaiter for () {}

/// A simulated device that a host's thread drives in real time.
pub trait Turn {
    /// Does everything that is due at `now` and returns when something is due next, `None` while nothing is.
    ///
    /// MUST NOT block for longer than its work takes.
    fn turn(&self, now: Instant) -> Option<Instant>;

    /// Takes what to ring when new work makes something due earlier than the last [`turn`](Self::turn) said.
    fn set_bell(&self, bell: Waker);
}

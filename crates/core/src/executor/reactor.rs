//! What the tasks of one thread wait for: words and moments.

use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use super::timers::Timers;
use crate::line::{CompletionLine, LineRef, MemoryDescriptor};
use crate::port::{Clock, CompletionPort, Park, Timer, Wake, Watch};
use crate::time::Instant;
use crate::yielding::yield_once;

/// How many words are looked at between two polls; before the thread goes idle all are.
pub const SCAN_WORDS_MAX: usize = 64;

/// The words and moments that the tasks of one thread wait for, over any number of lines.
///
/// A reactor is a host of [`drive`](crate::drive): its futures register a word or a moment when they first pend and take the
/// registration back when they are dropped. Whoever owns the thread, an [`Executor`](crate::Executor) say, calls
/// [`turn`](Self::turn) between polls and parks on all of it when nothing is ready.
///
/// Cost: a look at a word is a load (a nanosecond); registering and taking back is constant for the word and logarithmic for the
/// deadline. Memory: about 100 bytes for each future that pends at a time, kept for the next; nothing is allocated
/// beyond that high-water mark. No waker is called, cloned or dropped while the reactor is borrowed.
///
/// ```
/// use std::sync::Arc;
/// use wakeline_core::{Clock, HostLine, Executor, Nanos, Reactor, Timer};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualHost, VirtualTime};
///
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let host = VirtualHost::new(&device);
/// let reactor = Reactor::<_, Arc<HostLine>>::new(&host);
/// let mut executor = Executor::new(&reactor, &host, &host, 4)?;
/// executor.spawn(async {
///     reactor.sleep_until(reactor.now() + Nanos::from_millis(5)).await;
///     reactor.now()
/// })?;
/// let stats = executor.run(|_, now| assert_eq!(now.as_nanos(), 5_000_000))?;
/// assert_eq!(stats.slept_ns, 5_000_000);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Reactor<C, L> {
    clock: C,
    state: RefCell<State<L>>,
}

#[derive(Debug)]
struct State<L> {
    entries: Vec<Entry<L>>,
    free: Vec<usize>,
    /// The entries that watch a word, in no order.
    watching: Vec<usize>,
    /// Where the next look between polls begins.
    scan: usize,
    timers: Timers,
    completions: u64,
    /// Wakers taken out to be called, kept for its capacity.
    due: Vec<Waker>,
}

#[derive(Debug)]
struct Entry<L> {
    word: Option<MemoryDescriptor<L>>,
    waker: Option<Waker>,
    /// What ended it.
    end: Option<Wake>,
    /// Where it stands in `watching`.
    place: usize,
}

impl<C: Clock, L: LineRef> Reactor<C, L> {
    /// A reactor on the time line of `clock`, with nothing registered.
    pub fn new(clock: C) -> Self {
        let state = State {
            entries: Vec::new(),
            free: Vec::new(),
            watching: Vec::new(),
            scan: 0,
            timers: Timers::default(),
            completions: 0,
            due: Vec::new(),
        };
        Self { clock, state: RefCell::new(state) }
    }

    /// Looks at words (at most [`SCAN_WORDS_MAX`] of them, all for `everything`) and at the time, and wakes whose turn has come.
    /// Returns how many were woken.
    pub fn turn(&self, everything: bool) -> usize {
        let now = self.clock.now();
        let mut due = Due { reactor: self, wakers: Vec::new() };
        {
            let mut state = self.state.borrow_mut();
            state.scan(everything);
            while let Some((at, entry)) = state.timers.earliest() {
                if at > now {
                    break;
                }
                state.end(entry, Wake::Woke);
            }
            core::mem::swap(&mut state.due, &mut due.wakers);
        }
        let woken = due.wakers.len();
        while let Some(waker) = due.wakers.pop() {
            waker.wake();
        }
        woken
    }

    /// Wakes a task that waits, though nothing has come for it: one that has not been woken since it last pended, the one whose
    /// time ends first where that is such a one. Says whether there was one.
    ///
    /// For a host whose waits turn the reactor in their own polls: whichever of them did so and leaves wakes the next.
    /// Constant, but for the time after several calls without a poll: then it looks through all registrations.
    pub fn nudge(&self) -> bool {
        // Taken out of the borrow before it is called. Its task's next poll leaves another.
        let waker = {
            let mut state = self.state.borrow_mut();
            let earliest = state.timers.earliest().map(|(_, entry)| entry);
            let first = earliest.and_then(|entry| state.entries[entry].waker.take());
            first.or_else(|| {
                let mut pending = state.entries.iter_mut().filter(|entry| entry.end.is_none());
                pending.find_map(|entry| entry.waker.take())
            })
        };
        let woken = waker.is_some();
        if let Some(waker) = waker {
            waker.wake();
        }
        woken
    }

    /// How many words and moments are registered.
    pub fn registered(&self) -> usize {
        self.state.borrow().timers.len()
    }

    /// How many words are watched.
    pub fn watched(&self) -> usize {
        self.state.borrow().watching.len()
    }

    /// The earliest moment at which a registration ends by itself.
    pub fn earliest(&self) -> Option<Instant> {
        self.state.borrow().timers.earliest().map(|(at, _)| at)
    }

    /// How many words have been seen to be reached.
    pub fn completions(&self) -> u64 {
        self.state.borrow().completions
    }

    /// Parks this thread on all watched words until one is reached, `until` has come or `interrupted` says true.
    ///
    /// # Panics
    ///
    /// When `park` or `interrupted` calls back into this reactor, which a [`Park`] must not.
    pub fn park(&self, park: &impl Park, until: Instant, interrupted: impl Fn() -> bool) -> Wake {
        let state = self.state.borrow();
        park.park(state.common_line(), until, || state.any_reached() || interrupted())
    }
}

/// Wakers whose turn has come. What a panicking one leaves is woken by the next turn, and the list keeps its memory.
struct Due<'r, C, L> {
    reactor: &'r Reactor<C, L>,
    wakers: Vec<Waker>,
}

impl<C, L> Drop for Due<'_, C, L> {
    fn drop(&mut self) {
        // Not borrowed: no waker is called while it is.
        if let Ok(mut state) = self.reactor.state.try_borrow_mut() {
            self.wakers.append(&mut state.due);
            core::mem::swap(&mut state.due, &mut self.wakers);
        }
    }
}

impl<L: LineRef> State<L> {
    fn words(&self) -> impl Iterator<Item = &MemoryDescriptor<L>> {
        self.watching.iter().filter_map(|&entry| self.entries[entry].word.as_ref())
    }

    fn any_reached(&self) -> bool {
        self.words().any(MemoryDescriptor::reached)
    }

    /// The line of all watched words, where it is one.
    fn common_line(&self) -> Option<&CompletionLine> {
        let mut lines = self.words().map(MemoryDescriptor::line);
        let first = lines.next()?;
        lines.all(|line| core::ptr::eq(line, first)).then_some(first)
    }

    fn scan(&mut self, everything: bool) {
        if everything {
            self.scan = 0;
        }
        let looks = if everything { self.watching.len() } else { self.watching.len().min(SCAN_WORDS_MAX) };
        for _ in 0..looks {
            if self.scan >= self.watching.len() {
                self.scan = 0;
            }
            let Some(&entry) = self.watching.get(self.scan) else { break };
            if self.entries[entry].word.as_ref().is_some_and(MemoryDescriptor::reached) {
                // Another takes this place and is looked at next.
                self.completions += 1;
                self.end(entry, Wake::Reached);
            } else {
                self.scan += 1;
            }
        }
    }

    /// Ends a registration; its future finds how.
    fn end(&mut self, entry: usize, how: Wake) {
        self.take_back(entry);
        let entry = &mut self.entries[entry];
        entry.end = Some(how);
        self.due.extend(entry.waker.take());
    }

    /// Neither watches nor times it any longer.
    fn take_back(&mut self, index: usize) {
        self.timers.remove(index);
        let entry = &mut self.entries[index];
        if entry.word.is_some() && entry.end.is_none() {
            let place = entry.place;
            self.watching.swap_remove(place);
            if let Some(&moved) = self.watching.get(place) {
                self.entries[moved].place = place;
            }
        }
    }

    fn register(&mut self, word: Option<MemoryDescriptor<L>>, until: Instant, waker: Waker) -> usize {
        let place = self.watching.len();
        let watching = word.is_some();
        let entry = Entry { word, waker: Some(waker), end: None, place };
        let index = if let Some(index) = self.free.pop() {
            self.entries[index] = entry;
            index
        } else {
            self.entries.push(entry);
            self.entries.len() - 1
        };
        self.timers.insert(index, until);
        if watching {
            self.watching.push(index);
        }
        index
    }
}

impl<C: Clock, L> Clock for Reactor<C, L> {
    fn now(&self) -> Instant {
        self.clock.now()
    }
}

impl<C: Clock, L: LineRef> Timer for Reactor<C, L> {
    async fn sleep_until(&self, at: Instant) {
        Registration { reactor: self, word: None, until: at, index: Cell::new(None) }.await;
    }

    fn yield_now(&self) -> impl Future<Output = ()> {
        yield_once()
    }
}

impl<C: Clock, P: CompletionPort> Watch<P> for Reactor<C, P::Line> {
    async fn watch(&self, port: &P, until: Instant) -> Wake {
        Registration { reactor: self, word: port.descriptor().cloned(), until, index: Cell::new(None) }.await
    }
}

/// A word or a moment that a task waits for.
#[derive(Debug)]
struct Registration<'r, C, L: LineRef> {
    reactor: &'r Reactor<C, L>,
    /// Handed over when it is registered.
    word: Option<MemoryDescriptor<L>>,
    until: Instant,
    index: Cell<Option<usize>>,
}

impl<C, L: LineRef> Unpin for Registration<'_, C, L> {}

impl<C: Clock, L: LineRef> Future for Registration<'_, C, L> {
    type Output = Wake;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Wake> {
        let Some(index) = self.index.get() else {
            if self.word.as_ref().is_some_and(MemoryDescriptor::reached) {
                return Poll::Ready(Wake::Reached);
            }
            if self.reactor.clock.now() >= self.until {
                return Poll::Ready(Wake::Woke);
            }
            let (word, until, waker) = (self.word.take(), self.until, context.waker().clone());
            let index = self.reactor.state.borrow_mut().register(word, until, waker);
            self.index.set(Some(index));
            return Poll::Pending;
        };
        let known = {
            let state = self.reactor.state.borrow();
            let entry = &state.entries[index];
            if let Some(end) = entry.end {
                return Poll::Ready(end);
            }
            entry.waker.as_ref().is_some_and(|known| known.will_wake(context.waker()))
        };
        if !known {
            // Cloned before and dropped after the borrow: both may run the waker's own code, which may turn the reactor.
            let newer = context.waker().clone();
            let mut state = self.reactor.state.borrow_mut();
            let entry = &mut state.entries[index];
            if let Some(end) = entry.end {
                return Poll::Ready(end);
            }
            let older = entry.waker.replace(newer);
            drop(state);
            drop(older);
        }
        Poll::Pending
    }
}

impl<C, L: LineRef> Drop for Registration<'_, C, L> {
    fn drop(&mut self) {
        let Some(index) = self.index.get() else { return };
        let left = {
            let mut state = self.reactor.state.borrow_mut();
            state.take_back(index);
            state.free.push(index);
            let entry = &mut state.entries[index];
            (entry.word.take(), entry.waker.take())
        };
        drop(left);
    }
}

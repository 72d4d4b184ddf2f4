//! Random programs against all that a task can do and all that can go wrong, with tasks that watch by themselves.
//!
//! Futures are awaited, run on the spot, dropped, forgotten and left pending between any two polls; they have time-outs and tokens that
//! come and that do not; closures and wakers panic; the device loses stores, stores late, is slow to answer and faults at any moment or call.
//! Whatever happens: the device sees no misuse, a result that is given is the right one, nothing stays in flight, and memory that is not given
//! back is accounted for.
//!
//! `SEEDS=1000000 cargo test --release -p wakeline-ops --test swarm` runs more of them; `SEEDS=N-M` those from N to M.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use common::CONFIG;
use wakeline_core::{CancelToken, Error, ErrorCode, Nanos};
use wakeline_ops::{
    Completion, DeviceFuture, DeviceOp, Runtime, RuntimeConfig, SingleStream, StreamPoolRoundRobin, Tensor,
};
use wakeline_sim::{Faults, MemoryUse, SimConfig, SimDevice, VirtualTime, VirtualWatcher};

type Bytes = Tensor<u8, SimDevice>;
type Boxed = Pin<Box<dyn Future<Output = Result<Vec<u8>, Error>>>>;

const SEEDS: u64 = 10_000;
const STEPS: u64 = 16;
const LEN: usize = 16;

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// A waker that panics as it is called.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new("a waker"));
    }
}

struct Program {
    device: SimDevice,
    watcher: VirtualWatcher,
    runtime: Runtime<SimDevice>,
    dice: Dice,
    tensors: Vec<(Bytes, u8)>,
    pending: Vec<(Boxed, u8)>,
    tokens: Vec<CancelToken>,
    /// The most buffers that forgotten futures can keep.
    forgotten: usize,
}

impl Program {
    fn new(seed: u64, faults: &Faults, strict: bool) -> Option<Self> {
        let mut dice = Dice(seed ^ 0x5A4D);
        let copy_ns = 1 + dice.below(60_000);
        let launch_ns = dice.below(3) * 700;
        let store_latency_ns = dice.below(2) * 2_300;
        let config = SimConfig {
            seed,
            copy_ns,
            launch_ns,
            store_latency_ns,
            query_ns: 300,
            faults: *faults,
            ..CONFIG
        };
        let device = SimDevice::new(VirtualTime::new(), config).ok()?;
        let watcher = VirtualWatcher::new(&device);
        watcher.let_tasks_watch(true);
        let completion = match dice.below(6) {
            0 => Completion::Callback,
            1 => Completion::Poll,
            _ => Completion::Word,
        };
        let spin_us = [0, 50, 200][usize::try_from(dice.below(3)).unwrap()];
        let mut setup = RuntimeConfig::default().completion(completion).spin_us(spin_us).unwrap();
        if strict {
            let plan = "flag:park_us=50,backstop_us=1000+predict:margin_us=20,min_sleep_us=40,max_sleep_us=100000,window=8";
            setup = setup.plan(plan.parse().unwrap());
        }
        let policy = StreamPoolRoundRobin::new(3).unwrap();
        let runtime = Runtime::with_config(device.clone(), &policy, watcher.clone(), setup).ok()?;
        let (tensors, pending, tokens) = (Vec::new(), Vec::new(), Vec::new());
        Some(Self { device, watcher, runtime, dice, tensors, pending, tokens, forgotten: 0 })
    }

    /// Binds an operation, with any wishes.
    fn wishes<O: DeviceOp<Device = SimDevice>>(&mut self, op: O) -> DeviceFuture<O> {
        let mut future = op.on(&self.runtime);
        if self.dice.one_in(4) {
            future = future.schedule(&SingleStream);
        }
        if self.dice.one_in(6) {
            future = future.late_us(u32::try_from(self.dice.below(600)).unwrap());
        }
        if self.dice.one_in(6) {
            future = future.keyed(self.dice.below(3));
        }
        if self.dice.one_in(4) {
            future = future.timeout(Nanos::from_micros(self.dice.below(300)));
        }
        if self.dice.one_in(4) {
            let token = if self.dice.one_in(3) { CancelToken::new() } else { self.runtime.cancel_token() };
            future = future.cancelled_by(&token);
            self.tokens.push(token);
        }
        future
    }

    /// Polls once, with a waker of any kind. `None` where that panicked, as it may.
    fn poll<F: Future + Unpin>(&mut self, future: &mut F) -> Option<Poll<F::Output>> {
        let waker = if self.dice.one_in(8) { Waker::from(Arc::new(Panics)) } else { Waker::noop().clone() };
        catch_unwind(AssertUnwindSafe(|| Pin::new(future).poll(&mut Context::from_waker(&waker)))).ok()
    }

    /// Runs an operation in one of the ways there are; its output where it was waited for.
    fn ends<O: DeviceOp<Device = SimDevice>>(&mut self, op: O) -> Option<<O as DeviceOp>::Output> {
        let mut future = self.wishes(op);
        match self.dice.below(9) {
            0 => drop(future),
            1 | 2 => {
                for _ in 0..self.dice.below(4) {
                    if let Some(Poll::Ready(result)) = self.poll(&mut future) {
                        return result.ok();
                    }
                    if self.dice.one_in(3) {
                        self.watcher.turn();
                    }
                }
            }
            3 => {
                if let Some(Poll::Pending) | None = self.poll(&mut future) {
                    std::mem::forget(future);
                    self.forgotten += 3;
                }
            }
            4 => return future.sync().ok(),
            _ => return self.watcher.run(future).ok()?.ok(),
        }
        None
    }

    fn step(&mut self) {
        match self.dice.below(9) {
            0 => {
                let byte = u8::try_from(self.dice.below(200)).unwrap();
                if let Some(tensor) = self.ends(Tensor::full(LEN, byte)) {
                    self.tensors.push((tensor, byte));
                }
            }
            1 => {
                let through = Tensor::from_host(vec![7; LEN])
                    .then(|from: Bytes| Tensor::full(LEN, 9).then(move |to| from.copy_to(to)));
                if let Some(tensor) = self.ends(through) {
                    self.tensors.push((tensor, 7));
                }
            }
            2 if self.tensors.len() > 1 => {
                let target = usize::try_from(self.dice.below(self.tensors.len() as u64)).unwrap();
                let (target, _) = self.tensors.swap_remove(target);
                let (copy, byte) = (self.tensors[0].0.copy_to(target), self.tensors[0].1);
                if let Some(tensor) = self.ends(copy) {
                    self.tensors.push((tensor, byte));
                }
            }
            3 if !self.tensors.is_empty() => {
                let (read, byte) = (self.tensors[0].0.to_host(), self.tensors[0].1);
                let mut read: Boxed = Box::pin(self.wishes(read));
                if let Some(Poll::Pending) = self.poll(&mut read) {
                    self.pending.push((read, byte));
                }
            }
            4 if !self.pending.is_empty() => {
                let (read, byte) = self.pending.swap_remove(0);
                if let Ok(Ok(bytes)) = self.watcher.run(read) {
                    assert_eq!(bytes, [byte; LEN]);
                }
            }
            5 => self.polls_pending(),
            6 => {
                // A closure that panics, at submission or on the host.
                let early = self.dice.one_in(2);
                let op = Tensor::full(LEN, 3).map(move |tensor: Bytes| {
                    assert!(!early, "on purpose");
                    tensor
                });
                let op = op.then(|tensor| tensor.to_host()).map_host(|bytes| {
                    assert!(bytes.is_empty(), "on purpose");
                });
                let future = self.wishes(op);
                let watcher = self.watcher.clone();
                drop(catch_unwind(AssertUnwindSafe(move || watcher.run(future))));
            }
            7 if !self.tokens.is_empty() => {
                let token = usize::try_from(self.dice.below(self.tokens.len() as u64)).unwrap();
                let token = self.tokens.swap_remove(token);
                // The bell may call a waker that panics, which is not told to who cancels.
                token.cancel();
            }
            _ => {
                self.watcher.turn();
            }
        }
    }

    /// Polls, drops or forgets one that is pending.
    fn polls_pending(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let at = usize::try_from(self.dice.below(self.pending.len() as u64)).unwrap();
        let (mut read, byte) = self.pending.swap_remove(at);
        match self.dice.below(5) {
            0 => {
                std::mem::forget(read);
                self.forgotten += 3;
            }
            1 => drop(read),
            _ => match self.poll(&mut read) {
                Some(Poll::Ready(Ok(bytes))) => assert_eq!(bytes, [byte; LEN]),
                Some(Poll::Ready(Err(_))) | None => {}
                Some(Poll::Pending) => self.pending.push((read, byte)),
            },
        }
    }
}

/// Runs the program of a seed, and says whether the device was well at the end.
fn run(seed: u64, faults: &Faults, strict: bool) -> bool {
    let Some(mut program) = Program::new(seed, faults, strict) else { return false };
    for _ in 0..STEPS {
        program.step();
    }
    let Program { device, watcher, runtime, tensors, pending, tokens, forgotten, .. } = program;
    drop((tensors, pending, tokens));
    while watcher.pending() > 0 && watcher.turn() {}
    while watcher.turn() {}
    let (counts, left) = (runtime.counts(), device.memory_use());
    assert_eq!(device.misuses(), [], "seed {seed}");
    assert_eq!(counts.in_flight(), 0, "seed {seed}: {counts:?}");
    let accounted = usize::try_from(counts.owners_leaked + counts.frees_failed).unwrap() + forgotten;
    assert!(left.buffers + left.pinned <= accounted, "seed {seed}: {left:?} {counts:?}");
    let well = device.health().is_none();
    if well && forgotten == 0 && counts.leaked == 0 {
        assert_eq!(left, MemoryUse::default(), "seed {seed}: {counts:?}");
    }
    well
}

fn seeds() -> Range<u64> {
    let number = |text: &str| text.parse::<u64>().unwrap();
    // tidy: allow(env) how much a test does is said by whoever runs it
    match std::env::var("SEEDS") {
        Ok(text) => match text.split_once('-') {
            Some((from, to)) => number(from)..number(to),
            None => 0..number(&text),
        },
        Err(_) => 0..SEEDS,
    }
}

/// A swarm whose waits all end: without a deadline one for a point that is stuck never does.
fn swarm(seed: u64) -> Faults {
    Faults { stuck_ppm: 0, ..Faults::swarm(seed) }
}

/// Those of them that forge no word.
fn honest(seed: u64) -> Faults {
    let Faults { lost_store_ppm, late_store, fault_at, fault_at_call, slow_query, unsupported_ppm, .. } =
        swarm(seed);
    Faults {
        lost_store_ppm,
        late_store,
        fault_at,
        fault_at_call,
        slow_query,
        unsupported_ppm,
        ..Faults::none()
    }
}

/// Panics on purpose are not shown.
fn quietly(check: impl FnOnce()) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload().downcast_ref::<&str>().copied().unwrap_or_default();
        if !text.contains("on purpose") {
            hook(info);
        }
    }));
    check();
}

#[test]
fn programs_whose_tasks_watch_by_themselves() {
    quietly(|| {
        let all = seeds();
        let total = all.end - all.start;
        let mut well = 0;
        for seed in all {
            // By the word's authority three times in four.
            let strict = seed % 4 == 0;
            let faults = match seed % 8 {
                1 => Faults::none(),
                _ if strict => swarm(seed),
                _ => honest(seed),
            };
            well += u64::from(run(seed, &faults, strict));
        }
        assert!(
            total < 1_000 || (total / 8..total).contains(&well),
            "both kinds of devices were there: {well}"
        );
    });
}

#[test]
fn a_fault_at_each_call_of_some_programs() {
    quietly(|| {
        for seed in 0..12 {
            for call in 1..120 {
                let faults = Faults { fault_at_call: Some(call), ..Faults::none() };
                run(seed, &faults, seed % 4 == 0);
            }
        }
    });
}

#[test]
fn what_is_refused_is_told_by_its_code() {
    let device = SimDevice::new(VirtualTime::new(), CONFIG).unwrap();
    let watcher = VirtualWatcher::new(&device);
    let runtime = Runtime::new(device, &SingleStream, watcher.clone()).unwrap();
    let mut future = Tensor::full(LEN, 1_u8).on(&runtime);
    watcher.run(&mut future).unwrap().unwrap();
    let again = watcher.run(future).unwrap();
    assert_eq!(again.unwrap_err().code(), ErrorCode::PolledAfterEnd);
}

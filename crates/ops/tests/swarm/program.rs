//! A random program: what it does to futures, and what it knows of their results.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use wakeline_core::{CancelToken, Error, Nanos};
use wakeline_ops::{
    Completion, DeviceFuture, DeviceOp, LeastLoaded, Runtime, RuntimeConfig, Shared, SingleStream,
    StreamPoolRoundRobin,
};
use wakeline_sim::{Faults, SimConfig, SimDevice, VirtualTime, VirtualWatcher};
use wakeline_tensor::{FromHost, Tensor};

use crate::How;
use crate::common::CONFIG;

pub(crate) type Bytes = Tensor<u8, SimDevice>;
pub(crate) type Boxed = Pin<Box<dyn Future<Output = Result<Vec<u8>, Error>>>>;

pub(crate) const LEN: usize = 16;

/// The most buffers that a forgotten future keeps.
const FORGOTTEN: usize = 8;

/// Numbers from a seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
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

pub(crate) struct Program {
    pub(crate) device: SimDevice,
    pub(crate) watcher: VirtualWatcher,
    pub(crate) runtime: Runtime<SimDevice>,
    pub(crate) dice: Dice,
    pub(crate) tensors: Vec<(Bytes, u8)>,
    pub(crate) pending: Vec<(Boxed, u8)>,
    pub(crate) tokens: Vec<CancelToken>,
    pub(crate) shared: Vec<(Shared<FromHost<u8, SimDevice>>, u8)>,
    /// The most buffers that forgotten futures can keep.
    pub(crate) forgotten: usize,
}

impl Program {
    pub(crate) fn new(seed: u64, faults: &Faults, how: How) -> Option<Self> {
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
        watcher.let_tasks_watch(how.watches);
        let completion = match dice.below(6) {
            0 => Completion::Callback,
            1 => Completion::Poll,
            _ => Completion::Word,
        };
        let spin_us = [0, 50, 200][usize::try_from(dice.below(3)).unwrap()];
        let mut setup = RuntimeConfig::default();
        if how.watches {
            setup = setup.completion(completion).spin_us(spin_us).unwrap();
        }
        if let Some(plan) = how.plan {
            setup = setup.plan(plan.parse().unwrap());
        }
        let policy = StreamPoolRoundRobin::new(3).unwrap();
        let runtime = Runtime::with_config(device.clone(), &policy, watcher.clone(), setup).ok()?;
        let (tensors, pending, tokens, shared) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Some(Self { device, watcher, runtime, dice, tensors, pending, tokens, shared, forgotten: 0 })
    }

    /// Binds an operation, with any wishes.
    pub(crate) fn wishes<O: DeviceOp<Device = SimDevice>>(&mut self, op: O) -> DeviceFuture<O> {
        let runtime = match self.dice.below(6) {
            0 => self.runtime.scheduled(&LeastLoaded::default()),
            1 => self.runtime.scheduled(&SingleStream),
            _ => self.runtime.clone(),
        };
        let mut future = op.on(&runtime);
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
    pub(crate) fn poll<F: Future + Unpin>(&mut self, future: &mut F) -> Option<Poll<F::Output>> {
        let waker = if self.dice.one_in(8) { Waker::from(Arc::new(Panics)) } else { Waker::noop().clone() };
        catch_unwind(AssertUnwindSafe(|| Pin::new(future).poll(&mut Context::from_waker(&waker)))).ok()
    }

    /// Forgets one that may be in flight.
    pub(crate) fn forget<F>(&mut self, future: F) {
        std::mem::forget(future);
        self.forgotten += FORGOTTEN;
    }

    /// Runs an operation in one of the ways there are; its output where it was waited for.
    pub(crate) fn ends<O: DeviceOp<Device = SimDevice>>(&mut self, op: O) -> Option<<O as DeviceOp>::Output> {
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
                    self.forget(future);
                }
            }
            4 => return future.sync().ok(),
            _ => return self.watcher.run(future).ok()?.ok(),
        }
        None
    }

    pub(crate) fn step(&mut self) {
        match self.dice.below(15) {
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
            8 | 9 => {
                self.watcher.turn();
            }
            _ => self.compose(),
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
                self.forget(read);
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

//! A random program: what it does to futures, and what it knows of their results.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use wakeline_core::{CancelToken, Error, Nanos};
use wakeline_ops::{DeviceFuture, DeviceOp, LeastLoaded, Runtime, Shared, SingleStream};
use wakeline_sim::SimDevice;
use wakeline_tensor::{FromHost, Tensor};

use super::Way;
use crate::caught::Caught;
use crate::dice::Dice;

/// Memory of a program: [`LEN`] times the same byte.
pub(crate) type Bytes = Tensor<u8, SimDevice>;

/// A read under way, or something else that ends with bytes.
pub(crate) type Boxed = Pin<Box<dyn Future<Output = Result<Vec<u8>, Error>>>>;

/// How long memory is.
pub(crate) const LEN: usize = 16;

/// The most buffers that a forgotten future keeps.
const FORGOTTEN: usize = 8;

/// What becomes of an operation, by its number.
const ENDS: [&str; 9] = [
    "dropped",
    "polled",
    "polled",
    "polled and forgotten",
    "waited for on the spot, or awaited",
    "awaited",
    "awaited",
    "awaited",
    "awaited",
];

/// A waker that panics as it is called.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new("a waker"));
    }
}

/// One task: what it has, and how its operations come to their ends.
pub(crate) struct Program<W> {
    pub(crate) way: W,
    pub(crate) device: SimDevice,
    pub(crate) runtime: Runtime<SimDevice>,
    pub(crate) dice: Dice,
    pub(crate) tensors: Vec<(Bytes, u8)>,
    pub(crate) pending: Vec<(Boxed, u8)>,
    pub(crate) tokens: Vec<CancelToken>,
    pub(crate) shared: Vec<(Shared<FromHost<u8, SimDevice>>, u8)>,
    /// The most buffers that forgotten futures can keep.
    pub(crate) forgotten: Rc<Cell<usize>>,
}

impl<W: Way> Program<W> {
    pub(crate) fn new(way: W, device: SimDevice, runtime: Runtime<SimDevice>) -> Self {
        let (tensors, pending, tokens, shared) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            way,
            device,
            runtime,
            dice: Dice::new(0),
            tensors,
            pending,
            tokens,
            shared,
            forgotten: Rc::default(),
        }
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
            future = future.late_us(u32::try_from(self.dice.below(600)).unwrap_or(0));
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

    /// Something was forgotten, and keeps so many buffers at most.
    pub(crate) fn may_keep(&self, buffers: usize) {
        self.forgotten.set(self.forgotten.get() + buffers);
    }

    /// Forgets one that may be in flight.
    pub(crate) fn forget<F>(&mut self, future: F) {
        std::mem::forget(future);
        self.may_keep(FORGOTTEN);
    }

    /// Runs an operation in one of the ways there are; its output where it was waited for.
    pub(crate) async fn ends<O: DeviceOp<Device = SimDevice>>(
        &mut self,
        op: O,
    ) -> Option<<O as DeviceOp>::Output> {
        let mut future = self.wishes(op);
        let end = self.dice.below(9);
        self.way.note(|| format!("  an operation, {}", ENDS[usize::try_from(end).unwrap_or(0)]));
        match end {
            0 => drop(future),
            1 | 2 => {
                for _ in 0..self.dice.below(4) {
                    if let Some(Poll::Ready(result)) = self.poll(&mut future) {
                        return result.ok();
                    }
                    if self.dice.one_in(3) {
                        self.way.moment().await;
                    }
                }
            }
            3 => {
                if let Some(Poll::Pending) | None = self.poll(&mut future) {
                    self.forget(future);
                }
            }
            4 if self.way.may_block() => return future.sync().ok(),
            _ => return self.way.wait(future).await.ok()?.ok(),
        }
        None
    }

    pub(crate) async fn step(&mut self) {
        let step = self.dice.below(15);
        self.way.note(|| format!("  step {step} of 15"));
        match step {
            0 => {
                let byte = self.byte();
                if let Some(tensor) = self.ends(Tensor::full(LEN, byte)).await {
                    self.tensors.push((tensor, byte));
                }
            }
            1 => {
                let through = Tensor::from_host(vec![7; LEN])
                    .then(|from: Bytes| Tensor::full(LEN, 9).then(move |to| from.copy_to(to)));
                if let Some(tensor) = self.ends(through).await {
                    self.tensors.push((tensor, 7));
                }
            }
            2 if self.tensors.len() > 1 => {
                let target = self.dice.place(self.tensors.len());
                let (target, _) = self.tensors.swap_remove(target);
                let (copy, byte) = (self.tensors[0].0.copy_to(target), self.tensors[0].1);
                if let Some(tensor) = self.ends(copy).await {
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
                if let Ok(Ok(bytes)) = self.way.wait(read).await {
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
                drop(self.way.wait(Caught::new(future)).await);
            }
            7 if !self.tokens.is_empty() => {
                let token = self.dice.place(self.tokens.len());
                let token = self.tokens.swap_remove(token);
                // The bell may call a waker that panics, which is not told to who cancels.
                token.cancel();
            }
            8 | 9 => self.way.moment().await,
            _ => self.compose().await,
        }
    }

    /// Polls, drops or forgets one that is pending.
    fn polls_pending(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let at = self.dice.place(self.pending.len());
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

//! The steps of a program that compose.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use wakeline_core::{Error, ErrorCode, Nanos};
use wakeline_ops::{DeviceOp, Submission, all, gate, unzip, value, with_context, zip};
use wakeline_sim::SimDevice;
use wakeline_tensor::Tensor;

use super::Way;
use super::program::{Boxed, Bytes, LEN, Program};
use crate::caught::Caught;

/// A gate stays closed for that long at most.
const CLOSED_US_MAX: u64 = 400;

/// As many are read at a time at most: no more than a forgotten future may keep.
const READS_MAX: usize = 6;

/// As many operations in one submission at most.
const LARGE_MAX: u64 = 2_000;

/// The steps by their numbers.
const NAMES: [&str; 13] = [
    "branches",
    "a diamond",
    "many reads",
    "a shared operation",
    "parts of one",
    "a gate",
    "a gate",
    "one within another",
    "a branch that fails",
    "boxes",
    "a large one",
    "reads behind a write in flight",
    "a shared operation of several tasks",
];

/// So many launches that keep nothing.
fn launches(count: u64) -> impl DeviceOp<Device = SimDevice, Pending = Vec<()>, Output = Vec<()>> {
    let launch = |submission: &mut Submission<SimDevice>| {
        submission.stream().raw().launch(Nanos::from_nanos(10))?;
        Ok(value(()))
    };
    all((0..count).map(move |_| with_context(launch)))
}

fn full(byte: u8) -> impl DeviceOp<Device = SimDevice, Pending = Bytes, Output = Bytes> {
    Tensor::full(LEN, byte)
}

impl<W: Way> Program<W> {
    pub(crate) fn byte(&mut self) -> u8 {
        u8::try_from(self.dice.below(200)).unwrap_or(0)
    }

    pub(crate) async fn compose(&mut self) {
        let step = self.dice.below(13);
        self.way.note(|| format!("  {}", NAMES[usize::try_from(step).unwrap_or(0)]));
        match step {
            0 => self.zips().await,
            1 => self.diamond().await,
            2 => self.reads_many().await,
            3 => self.shares().await,
            4 => self.unzips().await,
            5 | 6 => self.gates().await,
            7 => self.nests().await,
            8 => self.fails_in_a_branch().await,
            9 => self.boxes().await,
            10 => self.large().await,
            11 => self.reads_behind_a_write().await,
            _ => self.shares_among_tasks(),
        }
    }

    async fn zips(&mut self) {
        let byte = self.byte();
        let op = zip!(full(byte), full(byte).then(|from| full(9).then(move |to| from.copy_to(to))), byte);
        let (one, other, byte) = if self.dice.one_in(3) {
            let Some(output) = self.ends(op.in_one_stream()).await else { return };
            output
        } else {
            let Some(output) = self.ends(op).await else { return };
            output
        };
        self.tensors.extend([(one, byte), (other, byte)]);
    }

    async fn diamond(&mut self) {
        let byte = self.byte();
        let op = Tensor::from_host(vec![byte; LEN]).arc().then(|from: Arc<Bytes>| {
            let (one, other) = (Arc::clone(&from), Arc::clone(&from));
            let copied = full(1).then(move |to| one.copy_to(to));
            let read = full(2).then(move |to| other.copy_to(to)).then(|copy| copy.to_host());
            zip!(copied, zip!(from.to_host(), read))
        });
        if let Some((tensor, (first, second))) = self.ends(op).await {
            assert_eq!((&first, &second), (&vec![byte; LEN], &vec![byte; LEN]));
            self.tensors.push((tensor, byte));
        }
    }

    async fn reads_many(&mut self) {
        let some = self.tensors.iter().take(READS_MAX);
        let reads: Vec<_> = some.clone().map(|(tensor, _)| tensor.to_host()).collect();
        let wanted: Vec<_> = some.map(|&(_, byte)| vec![byte; LEN]).collect();
        if self.dice.one_in(2) {
            if let Some(read) = self.ends(all(reads)).await {
                assert_eq!(read, wanted);
            }
            return;
        }
        let at_a_time = 1 + self.dice.place(4);
        let mut join = self.runtime.join_all(reads, at_a_time);
        if self.dice.one_in(3) {
            if let Some(Poll::Ready(Ok(read))) = self.poll(&mut join) {
                assert_eq!(read, wanted);
            }
        } else if let Ok(Ok(read)) = self.way.wait(join).await {
            assert_eq!(read, wanted);
        }
    }

    async fn shares(&mut self) {
        if self.shared.len() < 2 || self.dice.one_in(4) {
            let byte = self.byte();
            self.shared.push((Tensor::from_host(vec![byte; LEN]).shared(), byte));
        }
        let at = self.dice.place(self.shared.len());
        let (shared, byte) = (self.shared[at].0.clone(), self.shared[at].1);
        let again = shared.clone();
        let read = zip!(
            shared.then(|tensor: Arc<Bytes>| tensor.to_host()),
            value(()).then(move |()| again).then(|tensor: Arc<Bytes>| tensor.to_host())
        );
        if let Some((one, other)) = self.ends(read).await {
            assert_eq!((one, other), (vec![byte; LEN], vec![byte; LEN]));
        }
        if self.dice.one_in(4) {
            drop(self.shared.swap_remove(at));
        }
    }

    /// More than a stream's queue takes, known before or not.
    async fn large(&mut self) {
        let many = launches(self.dice.below(LARGE_MAX));
        if self.dice.one_in(2) {
            self.ends(many).await;
        } else {
            self.ends(value(()).then(|()| many)).await;
        }
    }

    /// A write is left in flight, and what it wrote is read by submissions that come behind it, in whichever streams.
    async fn reads_behind_a_write(&mut self) {
        let (before, byte) = (self.byte(), self.byte());
        let made = (full(before).on(&self.runtime), full(byte).on(&self.runtime));
        let Ok(Ok(target)) = self.way.wait(made.0).await else { return };
        let Ok(Ok(source)) = self.way.wait(made.1).await else { return };
        let reads = Arc::new(Mutex::new(Vec::new()));
        let (give, count) = (Arc::clone(&reads), 1 + self.dice.below(3));
        let write = source.copy_to(target).map(move |tensor: Bytes| {
            // Once that is enqueued.
            let mut reads = give.lock().unwrap_or_else(PoisonError::into_inner);
            reads.extend((0..count).map(|_| tensor.to_host()));
        });
        let mut write: Boxed = {
            let write = self.wishes(write);
            Box::pin(async move { write.await.map(|()| vec![byte; LEN]) })
        };
        if let Some(Poll::Pending) = self.poll(&mut write) {
            self.pending.push((write, byte));
        }
        let reads = core::mem::take(&mut *reads.lock().unwrap_or_else(PoisonError::into_inner));
        for read in reads {
            let mut read: Boxed = Box::pin(self.wishes(read));
            match self.poll(&mut read) {
                Some(Poll::Ready(Ok(bytes))) => assert_eq!(bytes, [byte; LEN]),
                Some(Poll::Pending) => self.pending.push((read, byte)),
                _ => {}
            }
        }
    }

    /// Several that are pending at a time, and polled in any order.
    fn shares_among_tasks(&mut self) {
        let byte = self.byte();
        let inner = Tensor::from_host(vec![byte; LEN]).shared();
        let outer = inner.clone().then(|tensor: Arc<Bytes>| value(tensor)).shared();
        for _ in 0..=self.dice.below(4) {
            let (one, other) = (inner.clone(), outer.clone());
            let mut read: Boxed = if self.dice.one_in(2) {
                Box::pin(self.wishes(one.then(|tensor: Arc<Bytes>| tensor.to_host())))
            } else {
                Box::pin(self.wishes(other.then(|tensor: Arc<Arc<Bytes>>| tensor.to_host())))
            };
            match self.poll(&mut read) {
                Some(Poll::Ready(Ok(bytes))) => assert_eq!(bytes, [byte; LEN]),
                Some(Poll::Pending) => self.pending.push((read, byte)),
                _ => {}
            }
        }
    }

    async fn unzips(&mut self) {
        let byte = self.byte();
        let (one, other) = unzip!(zip!(full(byte), full(byte + 1)));
        if self.dice.one_in(2)
            && let Some(read) = self.ends(other.then(|tensor| tensor.to_host())).await
        {
            assert_eq!(read, [byte + 1; LEN]);
        }
        if let Some(tensor) = self.ends(one).await {
            self.tensors.push((tensor, byte));
        }
    }

    /// Whatever becomes of it, it is open at the end, or nobody waits on the spot.
    async fn gates(&mut self) {
        let byte = self.byte();
        let closed = Nanos::from_micros(1 + self.dice.below(CLOSED_US_MAX));
        let Ok((handle, opened)) = gate(closed) else { unreachable!("a closing time within the bound") };
        let step =
            opened.then(move |()| zip!(full(byte), value(byte))).first().then(|tensor| tensor.to_host());
        let mut future: Boxed = Box::pin(self.wishes(step));
        let mut handle = Some(handle);
        if self.dice.one_in(4) {
            // In front of its submission.
            assert!(handle.take().is_some_and(|handle| handle.open().is_ok()), "nobody opened it before");
        }
        let ends = self.poll(&mut future);
        if self.dice.one_in(3) {
            self.way.moment().await;
        }
        if self.dice.one_in(3) {
            self.behind_a_gate();
        }
        match (self.dice.below(4), handle.take()) {
            (0, Some(handle)) => drop(handle),
            (1, Some(handle)) => std::mem::forget(handle),
            // It may have been opened by its deadline before.
            (2, Some(handle)) => drop(handle.open()),
            (_, kept) => handle = kept,
        }
        match (ends, self.dice.below(3)) {
            (Some(Poll::Ready(Ok(read))), _) => assert_eq!(read, [byte; LEN]),
            (Some(Poll::Ready(Err(_))), _) | (_, 0) => drop(future),
            (_, 1) => self.forget(future),
            _ => {
                if let Ok(Ok(read)) = self.way.wait(future).await {
                    assert_eq!(read, [byte; LEN]);
                }
            }
        }
        self.way.left_closed(Nanos::from_micros(CLOSED_US_MAX)).await;
        drop(handle);
    }

    /// While one may be closed: old constants are read, and much is enqueued. Nobody waits on the spot.
    fn behind_a_gate(&mut self) {
        for at in 0..self.tensors.len().min(READS_MAX) {
            let (read, byte) = (self.tensors[at].0.to_host(), self.tensors[at].1);
            let mut read: Boxed = Box::pin(self.wishes(read));
            match self.poll(&mut read) {
                Some(Poll::Ready(Ok(bytes))) => assert_eq!(bytes, [byte; LEN]),
                Some(Poll::Pending) => self.pending.push((read, byte)),
                _ => {}
            }
        }
        let many = launches(self.dice.below(LARGE_MAX));
        let mut many = self.wishes(value(()).then(|()| many));
        if let Some(Poll::Ready(Err(error))) = self.poll(&mut many) {
            assert!(self.device.misuses().is_empty(), "{error}");
            assert!(!error.to_string().contains("the queue of this stream is full"), "{error}");
        }
    }

    async fn nests(&mut self) {
        let runtime = self.runtime.clone();
        let nested = full(3).then(move |tensor: Bytes| value(tensor.to_host().on(&runtime).sync()));
        if let Some(result) = self.ends(nested).await {
            assert_eq!(result.map_err(|error| error.code()), Err(ErrorCode::NestedExecution));
        }
    }

    async fn fails_in_a_branch(&mut self) {
        let panics = self.dice.one_in(2);
        let fails = full(4).and_then_with_context(move |submission, tensor| {
            submission.retain(tensor);
            assert!(!panics, "on purpose");
            Err::<wakeline_ops::Value<SimDevice, ()>, _>(Error::new(ErrorCode::Stalled, [&1]))
        });
        let op = full(1).then(|tensor: Bytes| zip!(tensor.to_host(), fails, full(2)));
        let mut future = self.wishes(op);
        let failed = self.way.wait(Caught::new(&mut future)).await;
        assert!(!matches!(failed, Ok(Some(Ok(_)))));
    }

    async fn boxes(&mut self) {
        let byte = self.byte();
        let boxed = (0..=self.dice.below(5)).map(|n| {
            let op = full(byte).inspect(|tensor| assert_eq!(tensor.len(), LEN)).arc().unwrap_arc();
            if n % 2 == 0 { op.boxed() } else { op.in_one_stream().boxed() }
        });
        let op = all(boxed.collect::<Vec<_>>()).last();
        if let Some(Some(tensor)) = self.ends(op).await {
            self.tensors.push((tensor, byte));
        }
    }
}

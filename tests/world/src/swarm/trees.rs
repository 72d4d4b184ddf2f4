//! Random trees of operations that all use the same few buffers, in any streams: what each adds to a buffer is there at the end, in whatever
//! order the device was told to do it.

use wakeline_core::{Error, Nanos};
use wakeline_ops::port::Shape;
use wakeline_ops::{Boxed as BoxedOp, DeviceOp, all, value, zip};
use wakeline_sim::{SimDevice, SimKernel};
use wakeline_tensor::{KernelArg, Launch, Tensor, launch};

use super::Way;
use super::program::{Boxed, Bytes, LEN, Program};
use crate::dice::Dice;

/// How many steps a program has.
pub(crate) const STEPS: u32 = 16;

/// How deep a tree is.
const DEPTH: u32 = 4;
const COUNTERS: usize = 3;

/// The most buffers that the flight of a tree keeps.
pub(crate) const BUFFERS: usize = 2 * COUNTERS + 2;

const ONE: Shape = Shape::new([1; 3], [1; 3]);

type Tree = BoxedOp<SimDevice, ()>;

/// A buffer all of whose bytes are a number that operations add to; and the number, where it is known.
struct Counter {
    tensor: Bytes,
    number: Option<u8>,
}

/// What the trees of a program share.
pub(crate) struct Trees<W> {
    program: Program<W>,
    counters: Vec<Counter>,
    /// Written and read by anybody, in any order.
    scratch: Bytes,
}

/// Writes the bytes of one tensor, and a number more, to another.
fn adds(run: Nanos, to: &Bytes, from: &Bytes, plus: u8) -> Launch<SimDevice> {
    let kernel = SimKernel::new(run, |args| {
        let (from, plus) = (args.bytes(1).to_vec(), args.word(2).to_le_bytes()[0]);
        args.bytes_mut(0).iter_mut().zip(from).for_each(|(to, from)| *to = from.wrapping_add(plus));
    });
    // SAFETY: the kernel takes two tensors and a number, and writes the first only.
    unsafe {
        launch(kernel, ONE, [KernelArg::write(to), KernelArg::read(from), KernelArg::word(plus.into())])
    }
}

impl<W: Way> Trees<W> {
    pub(crate) fn new(program: Program<W>) -> Option<Self> {
        let made = (0..=COUNTERS).map_while(|_| Tensor::full(LEN, 0_u8).on(&program.runtime).sync().ok());
        let mut made: Vec<_> = made.collect();
        let scratch = made.pop()?;
        let counters = made.into_iter().map(|tensor| Counter { tensor, number: Some(0) }).collect::<Vec<_>>();
        (counters.len() == COUNTERS).then_some(Self { program, counters, scratch })
    }

    fn dice(&mut self, bound: u64) -> u64 {
        self.program.dice.below(bound)
    }

    fn at(&mut self) -> usize {
        self.program.dice.place(COUNTERS)
    }

    /// A tree, and what it adds to each counter.
    fn tree(&mut self, depth: u32, sums: &mut [u8; COUNTERS]) -> Tree {
        match if depth == 0 { self.dice(5) } else { self.dice(12) } {
            0..=2 => {
                let (at, plus) = (self.at(), self.program.byte());
                let run = Nanos::from_nanos(1 + self.dice(40_000));
                sums[at] = sums[at].wrapping_add(plus);
                let counter = &self.counters[at].tensor;
                adds(run, counter, counter, plus).boxed()
            }
            3 => {
                let (at, run) = (self.at(), Nanos::from_nanos(1 + self.dice(10_000)));
                if self.dice(2) == 0 {
                    adds(run, &self.scratch, &self.counters[at].tensor, 1).boxed()
                } else {
                    self.counters[at].tensor.dup().map(drop).boxed()
                }
            }
            4 => value(()).boxed(),
            5 | 6 => {
                let (one, other) = (self.tree(depth - 1, sums), self.tree(depth - 1, sums));
                zip!(one, other).map(drop).boxed()
            }
            7 => {
                // A branch that begins with what enqueues nothing, beside one that does not.
                let (one, other) = (self.tree(depth - 1, sums), self.tree(depth - 1, sums));
                zip!(value(()), value(()).then(move |()| one), other).map(drop).boxed()
            }
            8 => {
                let (one, other) = (self.tree(depth - 1, sums), self.tree(depth - 1, sums));
                one.then(move |()| other).boxed()
            }
            9 => {
                let trees: Vec<_> = (0..=self.dice(4)).map(|_| self.tree(depth - 1, sums)).collect();
                all(trees).map(drop).boxed()
            }
            10 => self.tree(depth - 1, sums).in_one_stream().boxed(),
            _ => {
                // It runs once, however many want it.
                let shared = self.tree(depth - 1, sums).shared();
                let other = self.tree(depth - 1, sums);
                let again = shared.clone();
                zip!(shared.map(drop), other.then(move |()| again.map(drop))).map(drop).boxed()
            }
        }
    }

    /// Runs one in any way.
    async fn runs_one(&mut self) {
        let mut sums = [0; COUNTERS];
        let tree = self.tree(DEPTH, &mut sums);
        let ended = self.program.ends(tree).await.is_some();
        self.learn(ended.then_some(sums));
    }

    /// Has some in flight at a time.
    async fn runs_some(&mut self) {
        let mut sums = [0; COUNTERS];
        let mut flying: Vec<Boxed> = Vec::new();
        let mut all_well = true;
        for _ in 0..=self.dice(3) {
            let tree = self.tree(DEPTH - 1, &mut sums);
            let future = self.program.wishes(tree);
            let mut future: Boxed = Box::pin(async { future.await.map(|()| Vec::new()) });
            match self.program.poll(&mut future) {
                Some(std::task::Poll::Pending) => flying.push(future),
                Some(std::task::Poll::Ready(result)) => all_well &= result.is_ok(),
                None => all_well = false,
            }
        }
        for future in flying {
            let result: Result<Result<_, Error>, _> = self.program.way.wait(future).await;
            all_well &= matches!(result, Ok(Ok(_)));
        }
        self.learn(all_well.then_some(sums));
    }

    /// Takes in what was added; where it is not known that all was, the numbers are not known any more.
    fn learn(&mut self, sums: Option<[u8; COUNTERS]>) {
        for (at, counter) in self.counters.iter_mut().enumerate() {
            counter.number = counter.number.zip(sums).map(|(number, sums)| number.wrapping_add(sums[at]));
        }
    }

    /// Reads them. Some whose number is not known are made anew, the others are used on.
    pub(crate) async fn checks(&mut self) {
        for at in 0..COUNTERS {
            let (read, number) = (self.counters[at].tensor.to_host(), self.counters[at].number);
            match (self.program.ends(read).await, number) {
                (Some(bytes), Some(number)) => assert_eq!(bytes, [number; LEN]),
                (_, None) if self.program.dice.one_in(2) => {
                    let made = Tensor::full(LEN, 0_u8).on(&self.program.runtime).sync();
                    if let Ok(tensor) = made {
                        self.counters[at] = Counter { tensor, number: Some(0) };
                    }
                }
                _ => {}
            }
        }
    }

    pub(crate) fn draw(&mut self, dice: Dice) {
        self.program.dice = dice;
    }

    pub(crate) async fn step(&mut self) {
        match self.dice(8) {
            0..=2 => self.runs_one().await,
            3 | 4 => self.runs_some().await,
            5 | 6 => self.checks().await,
            _ => self.program.step().await,
        }
    }

    /// Lets go of the buffers; whether all that was in them was known.
    pub(crate) fn end(self) -> (Program<W>, bool) {
        let known = self.counters.iter().all(|counter| counter.number.is_some());
        (self.program, known)
    }
}

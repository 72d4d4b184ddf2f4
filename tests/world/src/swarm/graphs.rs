//! Random programs with graphs: captured while others wait, end, fault and are dropped; launched, changed and let go in any way.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wakeline_core::{Error, ErrorCode, Nanos};
use wakeline_ops::port::{Priority, Shape};
use wakeline_ops::{DeviceOp, Graph, Recorder, zip};
use wakeline_sim::{SimDevice, SimKernel};
use wakeline_tensor::{KernelArg, Launch, Tensor, launch, set_kernel};

use super::Way;
use super::program::{Boxed, Bytes, LEN, Program};

/// The most buffers that a flight of a graph keeps, by which what was leaked is accounted for.
pub(crate) const BUFFERS: usize = 8;

const ONE: Shape = Shape::new([1; 3], [1; 3]);

/// The first output is the input and a number, the second that and five.
struct Made {
    graph: Graph<SimDevice>,
    input: Bytes,
    outputs: [Bytes; 2],
    plus: u8,
}

/// Writes the bytes of one tensor, and a number more, to another.
fn adds(run: Nanos) -> SimKernel {
    SimKernel::new(run, |args| {
        let (from, plus) = (args.bytes(1).to_vec(), args.word(2).to_le_bytes()[0]);
        args.bytes_mut(0).iter_mut().zip(from).for_each(|(to, from)| *to = from.wrapping_add(plus));
    })
}

fn args(to: &Bytes, from: &Bytes, plus: u8) -> [KernelArg<SimDevice>; 3] {
    [KernelArg::write(to), KernelArg::read(from), KernelArg::word(plus.into())]
}

fn add(run: Nanos, to: &Bytes, from: &Bytes, plus: u8) -> Launch<SimDevice> {
    // SAFETY: the kernel takes two tensors and a number, and writes the first only.
    unsafe { launch(adds(run), ONE, args(to, from, plus)) }
}

/// A program that has graphs as well.
pub(crate) struct Graphs<W> {
    pub(crate) program: Program<W>,
    made: Vec<Made>,
    /// Those that use no memory: nothing but the graph itself orders its launches.
    bare: Vec<Graph<SimDevice>>,
    /// What was submitted and may still end.
    flying: Vec<Boxed>,
}

/// The steps of a graph, with something in between.
fn record(
    graph: &mut Recorder<'_, SimDevice>,
    (input, [first, second], plus): (&Bytes, &[Bytes; 2], u8),
    run: Nanos,
    meanwhile: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    let both = zip!(add(run, first, input, plus), add(run, second, input, 9)).map(drop);
    graph.record(both)?;
    meanwhile()?;
    graph.record(add(run, second, first, 5))
}

impl<W: Way> Graphs<W> {
    pub(crate) fn new(program: Program<W>) -> Self {
        Self { program, made: Vec::new(), bare: Vec::new(), flying: Vec::new() }
    }

    /// Whether it has any.
    pub(crate) fn has_some(&self) -> bool {
        !self.made.is_empty()
    }

    /// Lets all of them go, and what is under way.
    pub(crate) fn end(self) -> Program<W> {
        self.program
    }

    fn dice(&mut self, bound: u64) -> u64 {
        self.program.dice.below(bound)
    }

    fn byte(&mut self) -> u8 {
        self.program.byte()
    }

    fn run_time(&mut self) -> Nanos {
        Nanos::from_nanos(1 + self.dice(40_000))
    }

    fn at(&mut self) -> Option<usize> {
        let count = self.made.len();
        (count > 0).then(|| self.program.dice.place(count))
    }

    async fn captures(&mut self) {
        let runtime = self.program.runtime.clone();
        let mut tensors = Vec::new();
        for _ in 0..3 {
            let full = Tensor::full(LEN, self.byte()).on(&runtime);
            let made = if self.dice(2) == 0 && self.program.way.may_block() {
                full.sync().ok()
            } else {
                self.program.way.wait(full).await.ok().and_then(Result::ok)
            };
            tensors.extend(made);
        }
        let Ok([input, first, second]) = <[Bytes; 3]>::try_from(tensors) else { return };
        let Ok(stream) = runtime.stream(Priority::Normal) else { return };
        let (outputs, plus, run) = ([first, second], self.byte(), self.run_time());
        let (turns, fate) = (self.dice(4), self.dice(12));
        // Others wait, end and are dropped while it captures; and the device may fault.
        let mut dropped = core::mem::take(&mut self.flying);
        if self.dice(2) == 0 {
            self.flying = dropped.split_off(dropped.len() / 2);
        }
        let program = &self.program;
        let captured = catch_unwind(AssertUnwindSafe(|| {
            Graph::scope(&stream, |graph| {
                record(graph, (&input, &outputs, plus), run, &mut || {
                    for _ in 0..turns {
                        program.way.turn();
                        drop(dropped.pop());
                    }
                    match fate {
                        0 => return Err(Error::new(ErrorCode::Stalled, [&1])),
                        1 => std::panic::resume_unwind(Box::new("on purpose")),
                        2 => drop(program.runtime.cancel_token()),
                        3 => program.device.inject_fault(),
                        _ => {}
                    }
                    Ok(())
                })?;
                if fate == 4 {
                    // Refused, whatever becomes of the error.
                    drop(graph.record(Tensor::<u8, SimDevice>::full(LEN, 1)));
                }
                Ok(())
            })
        }));
        self.flying.append(&mut dropped);
        match captured {
            Ok(Ok(graph)) => {
                assert!(![0, 1, 4].contains(&fate), "it was to fail");
                self.made.push(Made { graph, input, outputs, plus });
            }
            Ok(Err(error)) => {
                let well = self.program.device.health().is_none();
                assert!(!well || [0, 4].contains(&fate), "{error}");
            }
            Err(_) => assert_eq!(fate, 1),
        }
    }

    /// Launches one in any way; where it is sure that it has run, looks at what it did.
    async fn launches(&mut self) {
        let Some(at) = self.at() else { return };
        let launch = self.made[at].graph.launch();
        if self.program.ends(launch).await.is_some() {
            self.checks(at).await;
        }
    }

    async fn checks(&mut self, at: usize) {
        let Made { input, outputs: [first, second], plus, .. } = &self.made[at];
        let read = zip!(input.to_host(), first.to_host(), second.to_host()).in_one_stream();
        let plus = *plus;
        if let Some((input, first, second)) = self.program.ends(read).await {
            let wanted = |plus: u8| input.iter().map(|byte| byte.wrapping_add(plus)).collect::<Vec<_>>();
            assert_eq!((first, second), (wanted(plus), wanted(plus.wrapping_add(5))));
        }
    }

    /// Launches some, and leaves them pending.
    fn leaves_pending(&mut self) {
        let Some(at) = self.at() else { return };
        for _ in 0..=self.dice(3) {
            let future = self.program.wishes(self.made[at].graph.launch());
            let mut future: Boxed = Box::pin(async { future.await.map(|()| Vec::new()) });
            if self.program.poll(&mut future).is_some_and(|polled| polled.is_pending()) {
                self.flying.push(future);
            }
        }
    }

    /// Launches one that uses no memory several times, in whichever streams, and leaves them pending.
    fn launches_again(&mut self) {
        if self.bare.is_empty() || self.dice(4) == 0 {
            let Ok(stream) = self.program.runtime.stream(Priority::Normal) else { return };
            let kernel = SimKernel::new(self.run_time(), |_| {});
            // SAFETY: the kernel takes no memory.
            let op = unsafe { launch(kernel, ONE, [KernelArg::word(1)]) };
            let well = self.program.device.health().is_none();
            match Graph::scope(&stream, |graph| graph.record(op)) {
                Ok(graph) => self.bare.push(graph),
                Err(error) => assert!(!well || self.program.device.health().is_some(), "{error}"),
            }
        }
        if self.bare.is_empty() {
            return;
        }
        let at = self.program.dice.place(self.bare.len());
        for _ in 0..=self.dice(4) {
            let future = self.program.wishes(self.bare[at].launch());
            let mut future: Boxed = Box::pin(async { future.await.map(|()| Vec::new()) });
            if self.program.poll(&mut future).is_some_and(|polled| polled.is_pending()) {
                self.flying.push(future);
            }
        }
        if self.dice(4) == 0 {
            drop(self.bare.swap_remove(at));
        }
    }

    fn updates(&mut self) {
        let (Some(at), byte, run) = (self.at(), self.byte(), self.run_time()) else { return };
        let Made { graph, input, .. } = &self.made[at];
        // It reads and writes one: each byte becomes its number and another.
        drop(graph.update(add(run, input, input, byte)));
    }

    fn changes(&mut self) {
        let (Some(at), plus, run) = (self.at(), self.byte(), self.run_time()) else { return };
        let well = self.program.device.health().is_none();
        let sets = self.dice(2) == 0;
        let Made { graph, input, outputs, .. } = &mut self.made[at];
        let changed = if sets {
            // SAFETY: the kernel takes two tensors and a number, and writes the first only, as the node did.
            unsafe { set_kernel(graph, 0, &adds(run), ONE, args(&outputs[0], input, plus)) }
        } else {
            let [first, second] = &*outputs;
            let both = zip!(add(run, first, input, plus), add(run, second, input, 9)).map(drop);
            let last = add(run, second, first, 5);
            graph.recapture(both.then(move |()| last))
        };
        match changed {
            Ok(()) => self.made[at].plus = plus,
            Err(error) => assert!(!well || self.program.device.health().is_some(), "{error}"),
        }
    }

    /// A stream that is captured by others takes none.
    fn meets_a_capture(&mut self) {
        let Some(at) = self.at() else { return };
        let Ok(stream) = self.program.runtime.stream(Priority::Normal) else { return };
        if stream.raw().begin_capture().is_err() {
            return;
        }
        let refused = self.made[at].graph.launch().sync_on(&stream);
        assert_eq!(refused.map_err(|error| error.code()), Err(ErrorCode::StreamCapturing));
        drop(stream.raw().end_capture());
    }

    fn lets_go(&mut self) {
        let Some(at) = self.at() else { return };
        let made = self.made.swap_remove(at);
        if self.dice(3) == 0 {
            self.leaves_pending();
        }
        drop(made);
    }

    pub(crate) async fn step(&mut self) {
        let step = self.dice(16);
        self.program.way.note(|| format!("  step {step} of 16 with graphs"));
        match step {
            0..=2 => self.captures().await,
            3..=5 => self.launches().await,
            6 | 7 => self.leaves_pending(),
            8 => self.updates(),
            9 => self.changes(),
            10 => self.meets_a_capture(),
            11 => self.lets_go(),
            12 if !self.flying.is_empty() => {
                let future = self.flying.swap_remove(0);
                match self.dice(3) {
                    0 => drop(future),
                    1 => {
                        std::mem::forget(future);
                        self.program.may_keep(BUFFERS);
                    }
                    _ => drop(self.program.way.wait(future).await),
                }
            }
            13 => self.program.way.moment().await,
            14 => self.launches_again(),
            _ => self.program.step().await,
        }
    }
}

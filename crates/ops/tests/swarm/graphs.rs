//! Random programs with graphs: captured while others wait, end, fault and are dropped; launched, changed and let go in any way.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wakeline_core::{Error, ErrorCode, Nanos};
use wakeline_ops::port::{Priority, Shape};
use wakeline_ops::{DeviceOp, Graph, Recorder, zip};
use wakeline_sim::{Faults, SimDevice, SimKernel};
use wakeline_tensor::{KernelArg, Launch, Tensor, launch, set_kernel};

use crate::program::{Boxed, Bytes, LEN, Program};
use crate::{How, STRICT, TRUSTING, WATCHING, WATCHING_STRICT, honest, quietly, seeds_or, swarm};

/// How many programs there are where nothing else is said; see the head of `main.rs`.
const SEEDS: u64 = 400;
const STEPS: u64 = 24;

/// The most buffers that a flight of a graph keeps, by which what was leaked is accounted for.
const BUFFERS: usize = 8;

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

pub(crate) struct Graphs {
    program: Program,
    made: Vec<Made>,
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

impl Graphs {
    fn dice(&mut self, bound: u64) -> u64 {
        self.program.dice.below(bound)
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.dice(200)).unwrap()
    }

    fn run_time(&mut self) -> Nanos {
        Nanos::from_nanos(1 + self.dice(40_000))
    }

    fn at(&mut self) -> Option<usize> {
        let count = self.made.len() as u64;
        (count > 0).then(|| usize::try_from(self.dice(count)).unwrap())
    }

    fn captures(&mut self) {
        let runtime = self.program.runtime.clone();
        let tensors: Vec<_> = (0..3)
            .map_while(|_| {
                let byte = self.byte();
                Tensor::full(LEN, byte).on(&runtime).sync().ok()
            })
            .collect();
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
                        program.watcher.turn();
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
    fn launches(&mut self) {
        let Some(at) = self.at() else { return };
        let launch = self.made[at].graph.launch();
        if self.program.ends(launch).is_some() {
            self.checks(at);
        }
    }

    fn checks(&mut self, at: usize) {
        let Made { input, outputs: [first, second], plus, .. } = &self.made[at];
        let read = zip!(input.to_host(), first.to_host(), second.to_host()).in_one_stream();
        let plus = *plus;
        if let Some((input, first, second)) = self.program.ends(read) {
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
        let refused = self.made[at].graph.launch().sync_on(&stream).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::StreamCapturing);
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

    fn step(&mut self) {
        match self.dice(16) {
            0..=2 => self.captures(),
            3..=5 => self.launches(),
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
                        self.program.forgotten += BUFFERS;
                    }
                    _ => drop(self.program.watcher.run(future)),
                }
            }
            13 => {
                self.program.watcher.turn();
            }
            _ => self.program.step(),
        }
    }
}

/// Runs the program of a seed, and says whether the device was well at the end, and whether a graph was made.
fn run(seed: u64, faults: &Faults, how: How) -> (bool, bool) {
    let Some(program) = Program::new(seed ^ 0x6A4F, faults, how) else { return (false, false) };
    let mut graphs = Graphs { program, made: Vec::new(), flying: Vec::new() };
    let mut made = false;
    for _ in 0..STEPS {
        graphs.step();
        made |= !graphs.made.is_empty();
    }
    let Graphs { program, made: left, flying } = graphs;
    drop((left, flying));
    (program.ends_clean(seed, BUFFERS), made)
}

#[test]
fn programs_with_graphs_that_are_captured_while_others_wait_fault_and_are_dropped() {
    quietly(|| {
        let all = seeds_or(SEEDS);
        let total = all.end - all.start;
        let (mut well, mut made) = (0, 0);
        for seed in all {
            let faults = match seed % 8 {
                1 | 5 => Faults::none(),
                _ if seed % 4 == 0 => swarm(seed),
                _ => honest(seed),
            };
            let how = match (seed % 4 == 0, seed % 3 == 0) {
                (true, true) => STRICT,
                (true, false) => WATCHING_STRICT,
                (false, true) => TRUSTING,
                (false, false) => WATCHING,
            };
            let (ended_well, with_graphs) = run(seed, &faults, how);
            well += u64::from(ended_well);
            made += u64::from(with_graphs);
        }
        assert!(
            total < 100 || (total / 8..total).contains(&well),
            "both kinds of devices were there: {well}"
        );
        assert!(total < 100 || made > total / 2, "most have graphs: {made}");
    });
}

#[test]
fn a_fault_at_each_call_of_programs_with_graphs() {
    quietly(|| {
        for seed in 0..4 {
            for call in 1..100 {
                let faults = Faults { fault_at_call: Some(call), ..Faults::none() };
                run(seed, &faults, if seed % 2 == 0 { STRICT } else { WATCHING });
            }
        }
    });
}

//! Random programs over several streams: tensors are made, viewed, written in place, copied and read; futures are awaited, dropped in flight and forgotten.
//!
//! Whatever happens: what is read is what the host says, the device is not misused, and nothing stays.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

#[path = "../../ops/tests/common/mod.rs"]
mod common;

use common::{Rig, poll_once};
use proptest::prelude::*;
use proptest::sample::Index;
use wakeline_ops::DeviceOp;
use wakeline_sim::SimDevice;
use wakeline_tensor::{IntoPartition, Tensor};

type Numbers = Tensor<u32, SimDevice>;

const ROWS: usize = 6;
const COLUMNS: usize = 5;

/// A tensor of `ROWS` by `COLUMNS`, and what is in it.
struct Held {
    tensor: Numbers,
    numbers: [[u32; COLUMNS]; ROWS],
}

#[derive(Clone, Copy, Debug)]
enum End {
    Awaited,
    Dropped,
    Forgotten,
}

#[derive(Clone, Debug)]
enum Step {
    Make(u32),
    Count(u32),
    Dup(Index),
    /// From the first to the second.
    Copy(Index, Index, End),
    /// A column or a row of one to the same of another.
    CopyPart(Index, Index, bool, Index),
    Overwrite(Index, u32),
    /// A read that goes on while others are submitted; checked at the end of the program.
    Read(Index),
    ReadPart(Index, bool, Index),
    Drop(Index),
    Partition(Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let i = any::<Index>;
    let end = prop_oneof![Just(End::Awaited), Just(End::Dropped), Just(End::Forgotten)];
    let step = prop_oneof![
        2 => any::<u32>().prop_map(Step::Make),
        1 => any::<u32>().prop_map(Step::Count),
        2 => i().prop_map(Step::Dup),
        4 => (i(), i(), end).prop_map(|(a, b, end)| Step::Copy(a, b, end)),
        4 => (i(), i(), any::<bool>(), i()).prop_map(|(a, b, row, at)| Step::CopyPart(a, b, row, at)),
        2 => (i(), any::<u32>()).prop_map(|(a, n)| Step::Overwrite(a, n)),
        4 => i().prop_map(Step::Read),
        2 => (i(), any::<bool>(), i()).prop_map(|(a, row, at)| Step::ReadPart(a, row, at)),
        1 => i().prop_map(Step::Drop),
        1 => i().prop_map(Step::Partition),
    ];
    proptest::collection::vec(step, 1..40)
}

fn two(held: &mut [Held], from: Index, to: Index) -> Option<(&Held, &mut Held)> {
    let (from, to) = (from.index(held.len()), to.index(held.len()));
    let [from, to] = held.get_disjoint_mut([from, to]).ok()?;
    Some((from, to))
}

/// One row or one column of it.
fn part(tensor: &Numbers, row: bool, at: Index) -> (Numbers, usize) {
    let at = at.index(if row { ROWS } else { COLUMNS });
    (tensor.select(usize::from(!row), at).unwrap(), at)
}

fn picked(numbers: &[[u32; COLUMNS]; ROWS], row: bool, at: usize) -> Vec<u32> {
    if row { numbers[at].to_vec() } else { numbers.iter().map(|row| row[at]).collect() }
}

fn run(rig: &Rig, program: &[Step]) {
    let mut held: Vec<Held> = Vec::new();
    let mut reads = Vec::new();
    for step in program {
        if let Step::Make(number) = *step {
            let tensor = rig.run(Tensor::full([ROWS, COLUMNS], number).on(&rig.runtime)).unwrap();
            held.push(Held { tensor, numbers: [[number; COLUMNS]; ROWS] });
        }
        if let Step::Count(first) = *step {
            let numbers: Vec<u32> = (0..).map(|n: u32| first.wrapping_add(n)).take(ROWS * COLUMNS).collect();
            let op = Tensor::from_shaped([ROWS, COLUMNS], numbers.clone()).on(&rig.runtime);
            let mut rows = [[0; COLUMNS]; ROWS];
            rows.iter_mut().flatten().zip(numbers).for_each(|(room, number)| *room = number);
            held.push(Held { tensor: rig.run(op).unwrap(), numbers: rows });
        }
        if held.is_empty() {
            continue;
        }
        match *step {
            Step::Make(_) | Step::Count(_) => {}
            Step::Dup(from) => {
                let Held { tensor, numbers } = &held[from.index(held.len())];
                let (numbers, op) = (*numbers, tensor.dup().on(&rig.runtime));
                held.push(Held { tensor: rig.run(op).unwrap(), numbers });
            }
            Step::Copy(from, to, end) => {
                let Some((from, to)) = two(&mut held, from, to) else { continue };
                let mut copying = from.tensor.copy_into(&mut to.tensor).on(&rig.runtime);
                // Submitted by this poll, in the next stream.
                let polled = poll_once(&mut copying);
                match end {
                    End::Awaited if polled.is_pending() => drop(rig.run(copying).unwrap()),
                    End::Awaited | End::Dropped => drop(copying),
                    End::Forgotten => std::mem::forget(copying),
                }
                to.numbers = from.numbers;
            }
            Step::CopyPart(from, to, row, at) => {
                let Some((from, to)) = two(&mut held, from, to) else { continue };
                let (source, at) = part(&from.tensor, row, at);
                let target = to.tensor.view_mut().select(usize::from(!row), at).unwrap();
                let mut copying = target.copy_from(&source).on(&rig.runtime);
                let _ = poll_once(&mut copying);
                drop((copying, source));
                for (index, number) in picked(&from.numbers, row, at).into_iter().enumerate() {
                    let (row, column) = if row { (at, index) } else { (index, at) };
                    to.numbers[row][column] = number;
                }
            }
            Step::Overwrite(to, number) => {
                let at = to.index(held.len());
                let Held { tensor, .. } = held.swap_remove(at);
                let op = tensor.overwrite(vec![number; ROWS * COLUMNS]).on(&rig.runtime);
                held.push(Held { tensor: rig.run(op).unwrap(), numbers: [[number; COLUMNS]; ROWS] });
            }
            Step::Read(from) => {
                let Held { tensor, numbers } = &held[from.index(held.len())];
                let mut reading = tensor.to_host().on(&rig.runtime);
                let polled = poll_once(&mut reading);
                reads.push((reading, polled, numbers.as_flattened().to_vec()));
            }
            Step::ReadPart(from, row, at) => {
                let Held { tensor, numbers } = &held[from.index(held.len())];
                let (view, at) = part(tensor, row, at);
                let mut reading = view.to_host().on(&rig.runtime);
                let polled = poll_once(&mut reading);
                reads.push((reading, polled, picked(numbers, row, at)));
            }
            Step::Drop(which) => drop(held.swap_remove(which.index(held.len()))),
            Step::Partition(which) => {
                let at = which.index(held.len());
                let tiles = (&mut held[at].tensor).partition([4, 4]).unwrap();
                assert_eq!(tiles.tiles(), 4);
            }
        }
    }
    for (reading, polled, wanted) in reads {
        let read = match polled {
            std::task::Poll::Ready(read) => read,
            std::task::Poll::Pending => rig.run(reading),
        };
        assert_eq!(read.unwrap(), wanted);
    }
    for Held { tensor, numbers } in held {
        assert_eq!(rig.run(tensor.to_host().on(&rig.runtime)).unwrap(), numbers.as_flattened());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_programs_read_what_the_host_says_and_leave_nothing(program in steps()) {
        let rig = Rig::new();
        run(&rig, &program);
        rig.assert_clean();
    }
}

#[test]
fn tensors_and_their_operations_go_where_their_users_do() {
    fn both<T: Send + Sync>() {}
    fn send<T: Send>() {}
    both::<Numbers>();
    both::<wakeline_tensor::Partition<Numbers>>();
    both::<wakeline_tensor::Partition<&mut Numbers>>();
    send::<wakeline_tensor::Generated<f32, SimDevice>>();
    send::<wakeline_tensor::LentFuture<wakeline_tensor::CopyInto<u32, SimDevice>, &mut Numbers>>();
    send::<wakeline_tensor::HostCopy<u32, SimDevice>>();
}

//! Ranks of two processes, which find each other by an id: on the stand-in, whose ranks meet in a folder.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use libtest_mimic::Trial;
use wakeline_core::ErrorCode;
use wakeline_cuda::Cuda;
use wakeline_hip::Hip;
use wakeline_mapped::{CollectiveVendor, OpDevice};
use wakeline_ops::port::{Collectives, Reduce, UniqueId};
use wakeline_ops::{DeviceOp, Ranks};
use wakeline_tensor::Tensor;
use wakeline_tests::vendor::Vendor;

use crate::rig::{HASTY, PATIENT, RanksRig, VendorRanks};

/// The argument behind which the other process is told whose devices it has, and the id.
pub(crate) const CHILD: &str = "--other-process";

pub(crate) fn trials() -> Vec<Trial> {
    fn of<V: Vendor + CollectiveVendor>() -> Trial {
        let name =
            format!("{}::processes::ranks_of_two_processes_compute_together_until_one_is_killed", V::ON.0);
        Trial::test(name, || {
            ranks_of_two_processes_compute_together_until_one_is_killed::<V>();
            Ok(())
        })
    }
    vec![of::<Cuda>(), of::<Hip>()]
}

fn numbers(rank: u32) -> Vec<u32> {
    (0..50).map(|number| number * (rank + 1)).collect()
}

fn one_step<V: Vendor + CollectiveVendor>(
    rig: &VendorRanks<V>,
    ranks: &Ranks<OpDevice<V>>,
    rank: u32,
) -> Result<Vec<u32>, wakeline_core::Error> {
    let tensor = rig.run(Tensor::from_host(numbers(rank)).on(&rig.runtimes()[0]))?;
    let sums = rig.run(ranks.all_reduce(vec![tensor], Reduce::Sum))?;
    Ok(rig.read(0, &sums[0]))
}

fn other<V: Vendor + CollectiveVendor>(id: &UniqueId) -> Child {
    let hex = id.as_bytes().map(|byte| format!("{byte:02x}")).concat();
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args([CHILD, &format!("{}:{hex}", V::ON.0)]);
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn ranks_of_two_processes_compute_together_until_one_is_killed<V: Vendor + CollectiveVendor>() {
    let rig = VendorRanks::<V>::fake(1);
    let id = OpDevice::<V>::unique_id(rig.library()).unwrap();
    let mut child = other::<V>(&id);
    let own = vec![(0, rig.runtimes()[0].clone())];
    let ranks = rig.run(Ranks::join(rig.library(), &id, 2, own, PATIENT)).unwrap();
    assert_eq!((ranks.len(), ranks.world()), (1, 2));
    let right: Vec<u32> = numbers(0).iter().zip(numbers(1)).map(|(one, other)| one + other).collect();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        // The other does one step for each line.
        writeln!(child.stdin.as_mut().unwrap(), "step").unwrap();
        assert_eq!(one_step(&rig, &ranks, 0).unwrap(), right);
        assert_eq!(said.next().unwrap().unwrap(), format!("{right:?}"));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // It is gone, which nobody tells: the deadline does.
    let hasty = ranks.iter().next().unwrap().within(HASTY.within).unwrap();
    let tensor = rig.run(Tensor::from_host(numbers(0)).on(&rig.runtimes()[0])).unwrap();
    let error = rig.run(hasty.all_reduce(tensor, Reduce::Sum).on(&rig.runtimes()[0])).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::RankMissing, "{error}");
    drop((hasty, ranks));
    rig.end(false).unwrap();
}

/// The other process.
pub(crate) fn child(what: &str) {
    let (on, hex) = what.split_once(':').unwrap();
    let bytes: Vec<u8> =
        (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
    let id = UniqueId::from_bytes(bytes.try_into().unwrap());
    if on == Cuda::ON.0 { steps::<Cuda>(&id) } else { steps::<Hip>(&id) }
}

fn steps<V: Vendor + CollectiveVendor>(id: &UniqueId) {
    let rig = VendorRanks::<V>::fake(1);
    let own = vec![(1, rig.runtimes()[0].clone())];
    let ranks = rig.run(Ranks::join(rig.library(), id, 2, own, PATIENT)).unwrap();
    for _ in std::io::stdin().lines() {
        println!("{:?}", one_step(&rig, &ranks, 1).unwrap());
    }
}

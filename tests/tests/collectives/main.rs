//! Devices that compute together: on simulated devices in virtual time, on the stand-in for both vendors' drivers and libraries, and on GPUs where there are some.
//!
//! | file | what |
//! |---|---|
//! | `results.rs` | what collectives give, of every kind of number; their order with all else |
//! | `faults.rs` | ranks that do not come, deadlines, aborts |
//! | `library.rs` | the vendor's library: calls that fail, are slow, or are absent; which thread makes them |
//! | `processes.rs` | ranks of two processes |

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "small numbers"
)]
#![allow(unsafe_code, reason = "it launches kernels")]

mod faults;
mod library;
mod processes;
mod reference;
mod results;
mod rig;
mod simulated;

use libtest_mimic::{Arguments, Trial};
use wakeline_core::Nanos;
use wakeline_cuda::Cuda;
use wakeline_hip::Hip;
use wakeline_mapped::CollectiveVendor;
use wakeline_tests::vendor::Vendor;

use crate::rig::{SimRanks, VendorRanks};

pub(crate) const fn ms(length: u64) -> Nanos {
    Nanos::from_millis(length)
}

/// Tests that run on all devices, with so many ranks.
macro_rules! everywhere {
    ($trials:ident; $($group:ident::$name:ident on $($world:literal)+;)+) => {$($({
        let name = format!("{}::{}::{}", stringify!($group), stringify!($name), $world);
        $trials.push(Trial::test(format!("sim::{name}"), || {
            let rig = SimRanks::new($world);
            $group::$name(&rig);
            rig.end();
            Ok(())
        }));
        $trials.push(on_stand_in::<Cuda>(&name, $world, $group::$name));
        $trials.push(on_stand_in::<Hip>(&name, $world, $group::$name));
        $trials.push(on_gpus(&name, $world, $group::$name));
    })+)+};
}

/// Tests that run on the stand-in alone.
macro_rules! stand_in {
    ($trials:ident; $($group:ident::$name:ident on $world:literal;)+) => {$(
        let name = format!("{}::{}::{}", stringify!($group), stringify!($name), $world);
        $trials.push(on_stand_in::<Cuda>(&name, $world, $group::$name));
        $trials.push(on_stand_in::<Hip>(&name, $world, $group::$name));
    )+};
}

fn on_stand_in<V: Vendor + CollectiveVendor>(name: &str, world: usize, run: fn(&VendorRanks<V>)) -> Trial {
    Trial::test(format!("{}::{name}", V::ON.0), move || {
        let rig = VendorRanks::fake(world);
        run(&rig);
        Ok(rig.end(false)?)
    })
}

fn on_gpus(name: &str, world: usize, run: fn(&VendorRanks<Cuda>)) -> Trial {
    let lacks = VendorRanks::gpus(world).err();
    let trial = Trial::test(format!("gpu::{name}"), move || {
        let rig = VendorRanks::gpus(world).map_err(|error| error.to_string())?;
        run(&rig);
        Ok(rig.end(false)?)
    });
    trial.with_ignored_flag(lacks.is_some())
}

fn main() {
    if let Some(id) = std::env::args().skip_while(|word| word != processes::CHILD).nth(1) {
        return processes::child(&id);
    }
    let mut trials = Vec::new();
    everywhere! { trials;
        results::all_kinds_of_numbers_are_reduced_in_all_ways on 1 2 3 8;
        results::each_rank_gets_what_it_is_to_get on 1 2 3 8;
        results::numbers_go_from_rank_to_rank_and_around on 2 3 8;
        results::what_writes_before_and_reads_after_is_ordered_on_the_device on 1 2 3;
        results::it_composes_with_other_operations_of_its_device on 1 2 3;
        results::what_cannot_be_done_is_told_and_leaves_the_communicator_well on 1 2;
        results::nothing_is_waited_for_or_lost_where_it_is_dropped_in_flight on 2 3;
        faults::a_rank_that_never_comes_is_told_by_the_deadline on 2 3;
        faults::another_deadline_may_be_given_to_what_a_rank_does on 2;
        faults::ranks_that_never_join_are_told_by_the_deadline on 2;
        faults::ranks_join_by_an_id_in_any_order on 2 3;
        faults::ranks_that_do_different_things_at_one_time_are_told on 2;
        faults::an_abort_ends_what_is_under_way_with_its_cause on 2;
    }
    stand_in! { trials;
        library::a_rank_that_dies_is_told_long_before_the_deadline on 3;
        library::each_call_that_fails_once_is_told_by_its_name on 2;
        library::slow_calls_are_waited_for_and_none_is_made_by_who_submits on 2;
        library::ranks_are_handed_over_in_one_group on 3;
        library::a_library_that_does_not_begin_is_told_as_that on 2;
        library::ranks_of_one_device_are_told_before_the_library_is_asked on 2;
    }
    trials.extend(library::trials());
    trials.extend(processes::trials());
    trials.extend(simulated::trials());
    let skipped = trials.iter().filter(|trial| trial.has_ignored_flag()).count();
    if skipped > 0 {
        let why =
            VendorRanks::gpus(2).err().map_or_else(|| "too few GPUs".to_owned(), |error| error.to_string());
        eprintln!("skipped: no GPUs with a library of collectives: {skipped} tests are ignored ({why})");
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit()
}

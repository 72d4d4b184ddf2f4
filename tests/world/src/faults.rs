//! The faults of programs, and leaving some of them out.

use wakeline_sim::{Chance, Faults};

use crate::script::{Part, Script};

/// A swarm whose waits all end: without a deadline one for a point that is stuck never does.
pub fn swarm(seed: u64) -> Faults {
    Faults { stuck_ppm: 0, ..Faults::swarm(seed) }
}

/// Those of them that forge no word.
pub fn honest(seed: u64) -> Faults {
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

/// Those of them that a script runs, of the device of this number.
pub fn kept(faults: &Faults, device: u32, script: &Script) -> Faults {
    let mut kept = *faults;
    let chances: [&mut Chance; 7] = [
        &mut kept.late_store,
        &mut kept.early_store,
        &mut kept.repeated_store,
        &mut kept.slow_query,
        &mut kept.spurious_wake,
        &mut kept.early_sleep,
        &mut kept.clock_step,
    ];
    let runs = |kind: usize| script.runs(Part::Fault(device, u32::try_from(kind).unwrap_or(u32::MAX)));
    for (kind, chance) in chances.into_iter().enumerate() {
        if chance.ppm > 0 && !runs(kind) {
            *chance = Chance::NEVER;
        }
    }
    let parts: [&mut u32; 5] = [
        &mut kept.lost_store_ppm,
        &mut kept.swapped_store_ppm,
        &mut kept.deferred_store_ppm,
        &mut kept.stuck_ppm,
        &mut kept.unsupported_ppm,
    ];
    for (kind, ppm) in parts.into_iter().enumerate() {
        if *ppm > 0 && !runs(7 + kind) {
            *ppm = 0;
        }
    }
    kept.fault_at = kept.fault_at.filter(|_| runs(12));
    kept.fault_at_call = kept.fault_at_call.filter(|_| runs(13));
    kept
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_fault_can_be_left_out_alone() {
        let all = (0..200).map(Faults::swarm);
        for faults in all {
            let script = Script::traced(None);
            assert_eq!(kept(&faults, 0, &script), faults);
            let parts = script.ran();
            for part in &parts {
                let mut others = parts.clone();
                others.remove(part);
                let fewer = kept(&faults, 0, &Script::traced(Some(others)));
                assert_ne!(fewer, faults, "{part}");
            }
            let lag = Faults { fault_lag_ns: faults.fault_lag_ns, ..Faults::none() };
            assert_eq!(kept(&faults, 0, &Script::traced(Some(BTreeSet::new()))), lag);
        }
    }
}

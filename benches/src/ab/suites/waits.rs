//! Suites `wake` and `burn`: one piece of work at a time, and a wait for it.

use wakeline_core::{Error, Nanos};
use wakeline_std::Point;

use super::{Suite, timeline};
use crate::ab::arms::{Arm, Host, Way};
use crate::ab::device::Device;
use crate::ab::hosts::{LateWakes, Waiter};
use crate::ab::rounds::{Turn, quantity};
use crate::ab::session::{Named, Output, Setup, cpu, since};
use crate::draws::Draws;
use crate::gpu::Failure;

/// How long the waits of a turn take together, and how many there are at least and at most.
const WAKE_TURN: Nanos = Nanos::from_millis(20);
const WAKE_WAITS: [u64; 2] = [3, 50];
/// The energy counters of GPUs change every 20 to 100 ms.
const BURN_TURN: Nanos = Nanos::from_millis(200);
const BURN_WAITS: [u64; 2] = [2, 10];

/// By how much longer than its length work is at most, in thousandths: recorded steps of a decode loop spread so.
const SPREAD: f64 = 0.007;

/// The work of which a wait is drawn.
const DRAWN: Nanos = Nanos::from_millis(5);

/// What a turn's waits came to.
struct Waited {
    late_ns: Vec<i64>,
    /// CPU time of this thread between the launches and the ends of the waits.
    cpu: Option<Nanos>,
    late_wakes: LateWakes,
}

pub(super) fn measure<D: Device>(
    setup: &Setup<'_, D>,
    output: &mut Output,
    named: &Named,
    suite: Suite,
    length: Nanos,
) -> Result<(), Failure> {
    let bases: &[&str] = if suite == Suite::Wake { &["spin"] } else { &["sync-spin", "status-spin"] };
    let Some(chosen) = setup.choose(bases, |arm| arm.waits() && arm.host() != Host::Threads) else {
        output.passes_over(named);
        return Ok(());
    };
    let points: Vec<Point> = chosen.arms.iter().map(|arm| Point::new(&arm.name)).collect();
    let (turn, [least, most]) =
        if suite == Suite::Wake { (WAKE_TURN, WAKE_WAITS) } else { (BURN_TURN, BURN_WAITS) };
    let waits = (turn.as_nanos() / length.as_nanos().max(1)).clamp(least, most);
    let waiter = setup.waiter();
    setup.rounds(output, named, &chosen, |index, round| {
        let arm = &chosen.arms[index];
        // The same for every arm of a round.
        let mut draws = Draws::new(setup.extent.seed, length.as_nanos() ^ (round << 32));
        let lengths: Vec<Nanos> = (0..waits).map(|_| spread(length, draws.share())).collect();
        waiter.begin(arm)?;
        let task = wait_for(setup.device, &waiter, arm, &points[index], &lengths);
        let result = setup.metered(arm, || setup.hosts.run(arm.host(), task)?);
        waiter.end(arm)?;
        let (came, meters) = result?;
        let mut turn = Turn::new();
        meters.tell(&mut turn, waits, came.cpu);
        turn.set(quantity::LATE_WAKES, came.late_wakes.share());
        turn.late(came.late_ns);
        Ok(turn)
    })?;
    if suite == Suite::Wake && length == DRAWN {
        for (arm, point) in chosen.arms.iter().zip(&points) {
            // What a driver or a peer does inside is not seen.
            if !matches!(arm.way, Way::Raw(_)) {
                output.write(&timeline::draw(setup, named, arm, point, length)?)?;
            }
        }
    }
    Ok(())
}

fn spread(length: Nanos, share: f64) -> Nanos {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of the length")]
    let more = (crate::ab::session::real(length.as_nanos()) * SPREAD * share) as u64;
    length + Nanos::from_nanos(more)
}

/// Launches work of each length in turn and waits for it.
async fn wait_for<D: Device>(
    device: &D,
    waiter: &Waiter<'_, D>,
    arm: &Arm,
    point: &Point,
    lengths: &[Nanos],
) -> Result<Waited, Error> {
    let mut came = Waited {
        late_ns: Vec::with_capacity(lengths.len()),
        cpu: Some(Nanos::ZERO),
        late_wakes: LateWakes::default(),
    };
    for length in lengths {
        let launched = device.launch(*length)?;
        let before = cpu();
        let known = waiter.wait(arm, 1, point).await?;
        let used = cpu().zip(before).map(|(now, then)| now - then);
        came.cpu = came.cpu.zip(used).map(|(sum, used)| sum + used);
        came.late_ns.push(since(known.at, device.ended(&launched, known.at)?));
        came.late_wakes.count(known);
    }
    Ok(came)
}

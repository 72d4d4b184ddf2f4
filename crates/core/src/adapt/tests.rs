//! What is kept, and what is decided by it.

use super::*;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use proptest::prelude::*;

impl Known {
    /// Its residuals.
    pub(crate) fn in_micros(&self) -> Vec<u64> {
        self.residuals.all().iter().map(|units| (ns(*units) + 8) / 1_000).collect()
    }
}

fn adapt() -> Adapt {
    Adapt::new(1, 5, 20, 20_000, 64).unwrap()
}

fn us(us: u64) -> Nanos {
    Nanos::from_micros(us)
}

/// A window of these, in microseconds.
fn window(residuals_us: &[u64]) -> Window {
    let mut window = Window::new(64, &Arc::new(Oversleep::new()));
    for us in residuals_us {
        window.push(us * 1_000);
    }
    window
}

fn course(residuals_us: &[u64], elapsed: Nanos) -> Course {
    window(residuals_us).known().course(&adapt(), elapsed, true)
}

/// How long it is to sleep, in microseconds.
fn sleep_us(residuals_us: &[u64], elapsed_us: u64) -> Option<u64> {
    match course(residuals_us, us(elapsed_us)) {
        Course::Sleep { until, .. } => Some((until - us(elapsed_us)).as_micros()),
        Course::Watch(until) => {
            assert!(until >= us(elapsed_us), "watches until {until}, which is over");
            None
        }
    }
}

#[test]
fn a_cold_point_naps_in_proportion_to_the_time_spent() {
    assert_eq!(sleep_us(&[], 1_000), None, "a nap of 1 % would be under 20 us");
    let Course::Watch(until) = course(&[], us(1_000)) else { panic!("sleeps") };
    assert!(
        until > us(2_000) && until < us(3_000),
        "{until}: until 1 % is 20 us and what a timer is late by"
    );
    assert!(sleep_us(&[], until.as_micros() + 1).is_some());
    let nap = sleep_us(&[], 10_000).unwrap();
    assert!((80..100).contains(&nap), "{nap}");
    assert_eq!(sleep_us(&[], 100_000_000), Some(20_000), "max_sleep_us");
}

#[test]
fn it_sleeps_to_a_cluster_and_watches_it() {
    let cluster: Vec<u64> = (0..64).map(|index| 5_000 + index % 16).collect();
    let first = sleep_us(&cluster, 2).unwrap();
    assert!((4_700..4_900).contains(&first), "{first}");
    let second = sleep_us(&cluster, first + 60).unwrap();
    assert!(first + 60 + second < 5_000 - 5 - 10, "{first} {second}");
    assert_eq!(sleep_us(&cluster, 4_980), None);
    for now in 5_000..5_015 {
        assert_eq!(sleep_us(&cluster, now), None, "{now}");
    }
}

#[test]
fn it_sleeps_through_the_gap_between_two_clusters() {
    // Seven in eight end at 10 us, the others at 9 ms.
    let two: Vec<u64> = (0..64).map(|index| if index % 8 == 0 { 9_000 + index % 5 } else { 10 }).collect();
    assert_eq!(sleep_us(&two, 3), None, "too short for a sleep");
    let (mut now, mut sleeps) = (11, 0);
    while now < 8_600 {
        match course(&two, us(now)) {
            Course::Sleep { until, .. } => {
                let length = until.as_micros() - now;
                assert!(
                    length <= (now - 10) / 4 + now / 100,
                    "{length} at {now}: it grows with the distance"
                );
                (now, sleeps) = (until.as_micros() + 10, sleeps + 1);
            }
            Course::Watch(until) => {
                assert!(until <= us(300), "{until} at {now}");
                now = until.as_micros() + 1;
            }
        }
    }
    assert!((10..40).contains(&sleeps), "{sleeps}");
}

#[test]
fn one_outlier_does_not_make_it_sleep_past_what_is_usual() {
    let mut residuals = alloc::vec![5_000; 63];
    residuals.push(500_000);
    for now in 5_001..5_050 {
        assert!(sleep_us(&residuals, now).is_none_or(|length| length <= now / 100), "{now}");
    }
}

/// A context that grows: each residual is 3 us longer than the one before, and the window knows those of 200 us ago.
#[test]
fn what_came_lately_counts_once_it_has_told_what_comes() {
    let at = |turn: u64| 5_000 + 3 * turn + turn % 2;
    let mut grows = window(&[]);
    let mut floors = Vec::new();
    for turn in 0..400 {
        grows.push(at(turn) * 1_000);
        floors.push(ns(grows.known().floor) / 1_000);
    }
    assert!(floors[..40].iter().all(|floor| *floor == 0), "not tried out yet");
    let floor = floors[399];
    assert!((at(399) - 60..at(400)).contains(&floor), "{floor}");
    let course = |window: &Window| window.known().course(&adapt(), us(2), true);
    let (Course::Sleep { until, .. }, shortest) = (course(&grows), at(400 - 64)) else { panic!("watches") };
    // The same residuals in a window that has seen too few to go by that.
    let (plain, mut now) = (window(&(370..400).map(at).collect::<Vec<_>>()), us(2));
    assert_eq!(plain.known().floor, 0);
    let shortest = shortest.max(at(370));
    while let Course::Sleep { until, .. } = plain.known().course(&adapt(), now, true) {
        now = until;
    }
    assert!(now < us(shortest) && until + us(60) > now, "{until} {now}");
    // Below the floor, but for one: not after that.
    assert!(grows.known().next(us(10)).is_some());
    grows.push(at(300) * 1_000);
    (400..420).for_each(|turn| grows.push(at(turn) * 1_000));
    assert!(grows.known().floor > 0, "one miss in 128 is few enough");
    grows.push(at(320) * 1_000);
    (400..420).for_each(|turn| grows.push(at(turn) * 1_000));
    assert_eq!(grows.known().floor, 0, "another one");
    (420..600).for_each(|turn| grows.push(at(turn) * 1_000));
    assert!(grows.known().floor > 0);
}

/// What comes in clusters has no regime: the last ones tell nothing that the window does not.
#[test]
fn what_came_lately_is_nothing_where_residuals_are_mixed() {
    let mut mixed = window(&[]);
    for turn in 0..2_000_u64 {
        // Nine in ten are short, and once in a while a row of long ones comes.
        let long = turn % 10 == 9 || turn % 100 < 9;
        mixed.push(if long { 9_000_000 } else { 10_000 });
        assert_eq!(mixed.known().floor, 0, "{turn}");
    }
}

#[test]
fn a_long_sleep_is_taken_in_two_only_where_that_ends_it_better() {
    let cluster: Vec<u64> = (0..64).map(|index| 5_000 + index % 16).collect();
    let window = window(&cluster);
    let known = window.known();
    let until = || match known.course(&adapt(), us(2), true) {
        Course::Sleep { until, .. } => until,
        Course::Watch(until) => panic!("watches until {until}"),
    };
    // Long ones are late by 100 us and short ones by 5.
    let late =
        |length: u64, late: u64| (0..3_000).for_each(|_| known.oversleep.at(1).learn(length, length, late));
    late(4_900_000, 100_000);
    for length in [90_000, 150_000] {
        late(length, 5_000);
    }
    let first = until();
    assert!((us(4_700)..us(4_810)).contains(&first), "{first}");
    for length in [90_000, 150_000] {
        late(length, 300_000);
    }
    let once = until();
    assert!((us(4_840)..us(4_900)).contains(&once), "{once}");
}

#[test]
fn a_young_point_sleeps_in_steps() {
    assert!(sleep_us(&[5_000], 2).unwrap() <= 200, "4 % of the only one");
    assert!(sleep_us(&[5_000; 8], 2).unwrap() <= 900);
    assert!(sleep_us(&[5_000; 50], 2).unwrap() > 4_500);
}

#[test]
fn oversleep_is_learned_by_length_and_no_single_one_counts_for_much() {
    let oversleep = Oversleep::new();
    let (short, long) = (50_000, 5_000_000);
    let prior = oversleep.at(1).margin(short);
    assert!(prior < 15_000 && oversleep.at(1).margin(long) > 50_000);
    oversleep.at(1).learn(short, short, 3_000_000_000);
    assert!(oversleep.at(1).margin(short) < 2 * prior, "one late by seconds");
    // One in 50 is late by 40 us, the others by 5.
    for turn in 0..5_000_u64 {
        oversleep.at(1).learn(short, short, if turn % 50 == 0 { 40_000 } else { 5_000 });
    }
    assert!((35_000..70_000).contains(&oversleep.at(1).margin(short)), "{}", oversleep.at(1).margin(short));
    (0..5_000).for_each(|_| oversleep.at(1).learn(short, short, 5_000));
    assert!((3_500..7_600).contains(&oversleep.at(1).margin(short)), "{}", oversleep.at(1).margin(short));
    assert!(oversleep.at(1).margin(long) > 50_000, "another class");
}

/// Of sleeps that are late by anything up to 100 us.
#[test]
fn a_margin_covers_all_but_the_share_of_the_sleeps_that_may_be_late() {
    let oversleep = Oversleep::new();
    let mut last = u64::MAX;
    // Of each the power of two below it.
    for (late_pct, share) in [(1, 1), (2, 2), (5, 4), (10, 8), (50, 32)] {
        let (margins, mut later, mut sum) = (oversleep.at(late_pct), 0, 0);
        for turn in 0..40_000_u64 {
            let late = turn * 61_803 % 100_000;
            if turn >= 20_000 {
                later += u64::from(late > margins.margin(50_000));
                sum += margins.margin(50_000);
            }
            margins.learn(50_000, 50_000, late);
        }
        let per_myriad = later / 2;
        assert!((share * 70..share * 140).contains(&per_myriad), "{late_pct}: {per_myriad} in 10,000");
        assert!(sum < last, "{late_pct}: it costs as much as a smaller share");
        last = sum;
    }
    assert_eq!(oversleep.at(5).margin(50_000), oversleep.at(7).margin(50_000));
}

/// Sleeps were to be later than there was time, so there were none, and nothing was learned ever after.
#[test]
fn a_margin_that_leaves_no_time_for_a_sleep_fades() {
    let window = window(&[1_000; 64]);
    let known = window.known();
    (0..20).for_each(|_| known.oversleep.at(1).learn(900_000, 900_000, 5_000_000));
    let sleeps = |fresh| matches!(known.course(&adapt(), us(2), fresh), Course::Sleep { .. });
    assert!(!(0..5_000).any(|_| sleeps(false)), "a wait that has slept has learned from that");
    let waits = (0..5_000).take_while(|_| !sleeps(true)).count();
    assert!((500..4_500).contains(&waits), "{waits}");
}

#[test]
fn waits_that_hold_what_was_known_keep_it_and_later_ones_know_more() {
    let mut window = window(&[1]);
    let first = Arc::clone(window.known());
    window.push(2_000);
    let second = Arc::clone(window.known());
    assert_eq!((first.in_micros(), second.in_micros()), (alloc::vec![1], alloc::vec![1, 2]));
    // Both are held: the next wait knows no more than the second.
    window.push(3_000);
    assert_eq!(window.known().in_micros(), [1, 2]);
    drop(first);
    window.push(4_000);
    assert_eq!(window.known().in_micros(), [1, 2, 3, 4]);
    drop(second);
}

/// Sleeps of 39 us had been later than sleeps of 10 us by more than they are longer: the nap was too short for the one and long enough for
/// the other, so it was decided to watch until a moment that was over, without end.
#[test]
fn it_naps_where_longer_sleeps_are_later_by_more_than_they_are_longer() {
    let adapt = Adapt::new(1, 0, 10, 20_000, 64).unwrap();
    let window = window(&[]);
    let known = window.known();
    (0..4).for_each(|_| known.oversleep.at(1).learn(10_000, 10_000, 362_474));
    (0..6).for_each(|_| known.oversleep.at(1).learn(39_000, 39_000, 362_474));
    let elapsed = Nanos::from_nanos(3_862_238);
    let nap = elapsed.as_nanos() / 100;
    assert!(nap < known.oversleep.at(1).usual(nap) && nap >= 10_000 + known.oversleep.at(1).usual(10_000));
    assert!(
        matches!(known.course(&adapt, elapsed, true), Course::Sleep { until, .. } if until == elapsed + us(10))
    );
    // A little earlier not even the shortest fits in, and it says from when on one does.
    let Course::Watch(until) = known.course(&adapt, us(3_500), true) else { panic!("sleeps") };
    assert!(until > us(3_500) && until < elapsed, "{until}");
    assert!(matches!(known.course(&adapt, until, true), Course::Sleep { .. }));
}

proptest! {
    /// The ring and the sorted array against a plain list.
    #[test]
    fn it_keeps_the_last_of_a_window_in_order(
        size in 1_u16..20,
        residuals in prop::collection::vec(0_u64..40, 0..100),
    ) {
        let mut window = Window::new(size, &Arc::new(Oversleep::new()));
        let mut model = VecDeque::new();
        for residual in residuals {
            window.push(residual * 16);
            model.push_back(residual * 16);
            if model.len() > usize::from(size) {
                model.pop_front();
            }
            let sorted = &window.known().residuals;
            let mut expected: Vec<u64> = model.iter().copied().collect();
            expected.sort_unstable();
            prop_assert_eq!(sorted.all().iter().map(|units| ns(*units)).collect::<Vec<_>>(), expected.clone());
            for now in [0, residual * 16, residual * 16 + 17, u64::MAX] {
                let next = expected.iter().find(|other| **other >> 4 > now >> 4).map(|ns| Nanos::from_nanos(*ns - now));
                prop_assert_eq!(window.known().next(Nanos::from_nanos(now)), next);
            }
            prop_assert_eq!(window.clone().in_order(), window.in_order());
            prop_assert_eq!(window.in_order(), model.iter().copied().collect::<Vec<_>>());
        }
    }

    /// Whatever is known of the point and of the host and whenever it is asked, it sleeps within its limits or watches on, and time passes.
    #[test]
    fn any_decision_is_within_the_plan_and_takes_time(
        residuals in prop_oneof![
            Just(Vec::new()),
            prop::collection::vec(prop_oneof![0..100_u64, 0..20_000_000_u64, 0..u64::MAX], 0..80),
        ],
        late in prop::collection::vec(
            (prop_oneof![0..100_000_u64, 0..100_000_000_u64], 0..100_000_000_u64, prop_oneof![0..1_000_000_u64, any::<u64>()]),
            0..60,
        ),
        fresh: bool,
        now in prop_oneof![0..100_u64, 0..30_000_000_u64, any::<u64>()],
        (late_pct, guard) in (1_u8..=50, 0_u64..1_000_000),
        (min, max) in (prop_oneof![1_u64..100, 1_u64..60_000_000], 1_u64..60_000_000),
    ) {
        let adapt = Adapt::new(late_pct, guard, min.min(max), min.max(max), 64).unwrap();
        let mut window = Window::new(64, &Arc::new(Oversleep::new()));
        for ns in &residuals {
            window.push(*ns);
        }
        for (length, wanted, late) in &late {
            window.known().oversleep.at(1).learn(*length, *wanted, *late);
        }
        let elapsed = Nanos::from_nanos(now);
        match window.known().course(&adapt, elapsed, fresh) {
            Course::Sleep { until, .. } => {
                prop_assert!(until - elapsed <= adapt.max_sleep());
                prop_assert!(until - elapsed >= adapt.min_sleep() || until == Nanos::MAX);
            }
            Course::Watch(until) => prop_assert!(until - elapsed >= Nanos::from_nanos(BEHIND_NS)),
        }
    }
}

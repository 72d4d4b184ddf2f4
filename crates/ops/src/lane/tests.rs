//! What is in flight in a stream, and when it is expected to end.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::task::{Wake, Waker};

use super::*;

fn us(us: u64) -> Nanos {
    Nanos::from_micros(us)
}

/// Not at the origin, at which nothing has happened.
fn at(at: u64) -> Instant {
    Instant::ORIGIN + us(1_000 + at)
}

/// A ticket, and the place that goes with it.
fn depart(lane: &Arc<Lane>, now: Instant, service: Option<Nanos>) -> (Ticket, Permit) {
    let permit = lane.admit_anyway(1);
    (lane.depart(now, service), permit)
}

fn took(took: Nanos, exact: bool) -> Lesson {
    Lesson { took, exact }
}

#[test]
fn work_ends_behind_what_is_in_front_of_it() {
    let lane = Lane::new();
    let (first, second) = (depart(&lane, at(100), Some(us(50))), depart(&lane, at(110), Some(us(50))));
    assert_eq!((first.0.expected, second.0.expected), (Some(at(150)), Some(at(200))));
    assert_eq!(lane.arrive(&first.0, at(150), true), Some(took(us(50), true)));
    assert_eq!(lane.arrive(&second.0, at(205), true), Some(took(us(55), true)), "not what it waited for");
    drop((first, second));
    let third = depart(&lane, at(400), Some(us(50)));
    assert_eq!(third.0.expected, Some(at(450)), "nothing is in front any more");
}

/// Threads that begin at one moment: none of them is alone, and the first end is told late.
#[test]
fn the_first_of_all_is_where_ends_are_counted_from() {
    let lane = Lane::new();
    let permits = [0; 3].map(|_| lane.admit_anyway(1));
    let begin = at(60_000_000);
    let [first, second] = [0; 2].map(|_| lane.depart(begin, Some(us(100))));
    assert_eq!((first.expected, second.expected), (Some(begin + us(100)), Some(begin + us(200))));
    lane.arrive(&first, begin + us(130), false);
    lane.arrive(&second, begin + us(210), true);
    let third = lane.depart(begin + us(210), Some(us(100))).expected.unwrap();
    assert!(third.since(begin + us(210)) < us(130), "{third:?}");
    drop(permits);
}

/// What one of them reads may be older than what another has seen to end since.
#[test]
fn threads_that_submit_in_one_stream_at_a_time_are_never_far_off() {
    const EACH: u64 = 20_000;
    let (lane, clock, worst) = (Lane::new(), AtomicU64::new(1_000_000), AtomicU64::new(0));
    let now = || Instant::from_nanos(clock.fetch_add(100, Ordering::Relaxed));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut flying = VecDeque::new();
                for _ in 0..EACH {
                    let (ticket, permit) = depart(&lane, now(), Some(us(20)));
                    let ahead = ticket.expected.unwrap().since(ticket.submitted);
                    worst.fetch_max(ahead.max(lane.residual(now())).as_nanos(), Ordering::Relaxed);
                    flying.push_back((ticket, permit));
                    if flying.len() > 2 {
                        let (ticket, permit) = flying.pop_front().unwrap();
                        lane.arrive(&ticket, now(), true);
                        drop(permit);
                    }
                }
            });
        }
    });
    // As much as all of it takes at the highest rate, and no hour.
    let most = us(20).as_nanos() * 8 * EACH * 16;
    assert!(worst.load(Ordering::Relaxed) < most, "{worst:?} ns ahead");
}

/// Nobody knows for how long a gate is closed.
#[test]
fn what_waits_at_a_gate_teaches_nothing_and_what_is_behind_it_is_counted_from_its_end() {
    let lane = Lane::new();
    let (mut held, behind) = (depart(&lane, at(0), None), depart(&lane, at(1), Some(us(50))));
    held.0.held = true;
    assert_eq!(lane.arrive(&held.0, at(1_500_000), false), None);
    let next = depart(&lane, at(1_500_010), Some(us(50)));
    assert_eq!(next.0.expected, Some(at(1_500_100)), "behind one more");
    assert_eq!(lane.arrive(&behind.0, at(1_500_050), true), Some(took(us(50), true)));
}

/// A few are woken for each place, the first to come first, and all that are left once nothing is in flight that would wake them.
#[test]
fn few_are_woken_for_a_place_and_none_is_left_behind() {
    let lane = Lane::of(2);
    let places = [0; 2].map(|_| lane.admit_anyway(1));
    let tasks: Vec<_> = (0..100).map(|_| Arc::new(Woken::default())).collect();
    let mut turns = [None; 100];
    for (task, turn) in tasks.iter().zip(&mut turns) {
        let waker = Waker::from(Arc::clone(task));
        for _ in 0..2 {
            let admitted = lane.admit(1, turn, &Context::from_waker(&waker));
            assert!(admitted.is_pending(), "twice, and registered once");
        }
    }
    let woken = || tasks.iter().map(|task| task.0.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let [first, second] = places;
    drop(first);
    assert_eq!(woken()[..4], [1, 1, 0, 0]);
    assert_eq!(woken().iter().sum::<usize>(), 2);
    // Those two are never polled again.
    drop(second);
    assert!(woken().iter().all(|times| *times == 1), "{:?}", woken());
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Somebody who asks for so many entries.
struct Asker {
    entries: u32,
    turn: Option<Turn>,
    task: Arc<Woken>,
}

impl Asker {
    fn new(entries: u32) -> Self {
        Self { entries, turn: None, task: Arc::default() }
    }

    fn poll(&mut self, lane: &Arc<Lane>) -> Poll<Permit> {
        let waker = Waker::from(Arc::clone(&self.task));
        lane.admit(self.entries, &mut self.turn, &Context::from_waker(&waker))
    }

    /// How often it was woken since it was asked.
    fn woken(&self) -> usize {
        self.task.0.swap(0, Ordering::Relaxed)
    }
}

#[expect(clippy::panic, reason = "a test's")]
fn admitted(poll: Poll<Permit>) -> Permit {
    let Poll::Ready(permit) = poll else { panic!("it pends") };
    permit
}

const ALL: u32 = 64;

#[test]
fn who_is_woken_and_finds_no_room_waits_where_it_was() {
    let lane = Lane::of(2);
    let [first, second] = [0; 2].map(|_| lane.admit_anyway(1));
    let mut askers = [0; 5].map(|_| Asker::new(1));
    assert!(askers.iter_mut().all(|asker| asker.poll(&lane).is_pending()));
    drop(first);
    assert_eq!(askers.each_ref().map(Asker::woken), [1, 1, 0, 0, 0]);
    // Another is in its place by then.
    let other = admitted(Asker::new(1).poll(&lane));
    assert!(askers[0].poll(&lane).is_pending());
    drop(second);
    assert_eq!(askers.each_ref().map(Asker::woken), [1, 0, 1, 0, 0], "the first to come is the first again");
    drop(other);
}

#[test]
fn room_is_held_for_a_large_one_until_it_has_its_place_and_then_all_are_told() {
    let lane = Lane::of(ALL);
    let mut flying: VecDeque<_> = (0..3).map(|_| lane.admit_anyway(1)).collect();
    let (mut large, mut small) = (Asker::new(ALL), Asker::new(1));
    assert!(large.poll(&lane).is_pending());
    assert!(small.poll(&lane).is_pending(), "there is room, which is held");
    assert!(lane.take_more(1), "not from who has a place");
    lane.give(1);
    assert_eq!((lane.entries(), lane.in_flight()), ((3, ALL), 3));
    for _ in 0..3 {
        assert_eq!((large.woken(), small.woken()), (0, 0));
        flying.pop_front();
    }
    // Who looks before it does is told to look again.
    assert_eq!((large.woken(), small.woken()), (1, 1));
    assert!(small.poll(&lane).is_pending());
    assert_eq!(small.woken(), 1);
    let place = admitted(large.poll(&lane));
    assert_eq!(small.woken(), 1);
    assert!(small.poll(&lane).is_pending(), "no room");
    drop(place);
    drop(admitted(small.poll(&lane)));
    assert!(lane.is_alone() && lane.entries() == (0, ALL));
}

#[test]
fn room_is_no_longer_held_for_a_large_one_that_leaves() {
    let lane = Lane::of(ALL);
    let flying = lane.admit_anyway(1);
    let (mut large, mut small) = (Asker::new(ALL), Asker::new(1));
    assert!(large.poll(&lane).is_pending() && small.poll(&lane).is_pending());
    lane.leave(&mut large.turn);
    assert_eq!((small.woken(), large.woken()), (1, 0));
    drop(admitted(small.poll(&lane)));
    drop(flying);
    assert!(lane.take(ALL));
}

/// Neither by looks, where nothing is in flight, nor by ends where threads that wait on the spot keep the stream busy.
#[test]
fn a_large_one_that_is_forgotten_keeps_nobody_for_longer_than_it_is_said() {
    let lane = Lane::of(ALL);
    let flying = lane.admit_anyway(1);
    let mut forgotten = Asker::new(ALL);
    assert!(forgotten.poll(&lane).is_pending());
    drop(flying);
    let (mut small, mut looks) = (Asker::new(1), 1);
    while small.poll(&lane).is_pending() {
        assert_eq!(small.woken(), 1, "it looks again by itself");
        looks += 1;
    }
    assert_eq!(looks, waiting::HOLD_LOOKS);
    // Nor is room held again at once.
    let (mut flying, mut ends) = (lane.admit_anyway(1), 0);
    loop {
        assert!(forgotten.poll(&lane).is_pending());
        if small.poll(&lane).is_pending() {
            break;
        }
        ends += 1;
    }
    assert_eq!((ends, small.woken()), (waiting::HOLD_ENDS, 0));
    for _ in 0..waiting::HOLD_ENDS {
        assert_eq!(small.woken(), 0);
        // One is in flight all the while.
        flying = lane.admit_anyway(1);
    }
    assert_eq!(small.woken(), 1);
    drop(admitted(small.poll(&lane)));
    drop(flying);
}

/// Two that ended long before anybody was told, and a third that was submitted then: the stream had nothing to do in between.
#[test]
fn time_in_which_nobody_had_submitted_does_not_make_a_stream_slow() {
    let lane = Lane::new();
    let service = Some(us(100));
    let (zeroth, first) = (depart(&lane, at(0), service), depart(&lane, at(0), service));
    lane.arrive(&zeroth.0, at(100), true);
    let second = depart(&lane, at(110), service);
    lane.arrive(&first.0, at(5_000), false);
    let third = depart(&lane, at(5_000), service);
    lane.arrive(&second.0, at(5_001), false);
    lane.arrive(&third.0, at(5_100), true);
    let _other = lane.admit_anyway(1);
    let next = depart(&lane, at(5_100), service).0.expected.unwrap();
    assert!(next.since(at(5_100)) <= us(125), "{next:?}");
}

#[test]
fn an_error_is_made_good_once() {
    let lane = Lane::new();
    let [first, second, third] = [0; 3].map(|_| depart(&lane, at(0), Some(us(100))));
    // The first takes 40 us longer, the others as expected.
    lane.arrive(&first.0, at(140), true);
    drop(first);
    assert_eq!(depart(&lane, at(141), Some(us(100))).0.expected, Some(at(440)));
    lane.arrive(&second.0, at(240), true);
    lane.arrive(&third.0, at(340), true);
    drop((second, third));
    let _other = lane.admit_anyway(1);
    assert_eq!(depart(&lane, at(341), Some(us(100))).0.expected, Some(at(540)));
}

#[test]
fn an_end_that_nobody_saw_come_teaches_nothing_of_the_next() {
    let lane = Lane::new();
    let [first, second, third, fourth] = [0; 4].map(|_| depart(&lane, at(0), Some(us(100))));
    assert_eq!(lane.arrive(&first.0, at(130), false), Some(took(us(130), false)), "at most so long");
    assert_eq!(lane.arrive(&second.0, at(130), false), None, "it had ended as well, and took some time");
    assert_eq!(lane.arrive(&third.0, at(200), true), None, "it began before anybody looked");
    assert_eq!(lane.arrive(&first.0, at(201), true), None, "told a second time");
    assert_eq!(lane.arrive(&fourth.0, at(290), true), Some(took(us(90), true)));
}

#[test]
fn what_is_not_known_is_not_expected_and_a_long_queue_goes_by_its_rate() {
    let lane = Lane::new();
    let unknown = depart(&lane, at(0), None);
    assert_eq!(unknown.0.expected, None);
    lane.arrive(&unknown.0, at(10), true);
    drop(unknown);
    // Expected to take 10 us each, and one ends every 30.
    let mut flying: VecDeque<_> = (0..8).map(|_| depart(&lane, at(10), Some(us(10)))).collect();
    for n in 1..100 {
        let end = at(10 + 30 * n);
        lane.arrive(&flying.pop_front().unwrap().0, end, true);
        flying.push_back(depart(&lane, end, Some(us(10))));
    }
    let (last, now) = (flying.back().unwrap().0.expected.unwrap(), at(10 + 30 * 99));
    let wait = last.since(now);
    assert!((us(200)..us(260)).contains(&wait), "{wait}, 240 us of queue");
}

/// Tasks that each submit again when they are told, by sleeps that end a little before what is expected: one of `depth`, whose work
/// takes what the first of the pair says and is known to take the second. By how much each was told late, and how long it waited.
fn closed_loop(
    lane: &Arc<Lane>,
    depth: usize,
    kinds: impl IntoIterator<Item = (Nanos, Nanos)>,
) -> Vec<(Nanos, Nanos)> {
    let (mut now, mut free) = (at(0), at(0));
    let mut flying: VecDeque<((Ticket, Permit), Instant)> = VecDeque::new();
    let (mut kinds, mut told) = (kinds.into_iter(), Vec::new());
    loop {
        while flying.len() < depth {
            let Some((length, known)) = kinds.next() else { return told };
            free = free.max(now) + length;
            flying.push_back((depart(lane, now, Some(known)), free));
        }
        let Some(((ticket, _place), ended)) = flying.pop_front() else { return told };
        // It is looked at when it is expected, and watched from then on.
        let looked = now.max(ticket.expected.unwrap_or(now));
        now = looked.max(ended);
        told.push((now.since(ended), now.since(ticket.submitted)));
        lane.arrive(&ticket, now, ended > looked);
    }
}

/// Had they been told too late once, they would be for good.
#[test]
fn a_rate_that_is_too_slow_gets_quicker_by_ends_that_had_come_before() {
    let (lane, depth) = (Lane::new(), 32);
    // As left behind by ends that came ten times as slow.
    lane.rate.store(RATE_ONE * 10, Ordering::Relaxed);
    let told = closed_loop(&lane, depth, (0..depth * 21).map(|_| (us(100), us(100))));
    let (_, waited) = told[told.len() - 1];
    assert!(waited <= us(100 * depth as u64 + 1_000), "{waited}: {} us of queue", 100 * depth);
}

/// Short work among long work, in an order that nobody could guess.
fn mixed(n: u64) -> u64 {
    [5, 5_000][(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61) as usize & 1]
}

/// By one pace of ends for all of it, most would be told late by more than that.
#[test]
fn in_a_deep_queue_of_kinds_of_5_us_and_of_5_ms_few_are_told_late() {
    for (what, longer_by, known_by) in [("as known", 0, 0), ("longer", 3, 0), ("shorter", 0, 3)] {
        let kinds = (0..800).map(|n| {
            let length = mixed(n);
            (us(length + length * longer_by / 100), us(length + length * known_by / 100))
        });
        let told = closed_loop(&Lane::new(), 32, kinds);
        let late = told.iter().filter(|(late, _)| *late > us(200)).count();
        assert!(late <= 60, "{what}: {late} of {} were told late by more than 200 us", told.len());
        let last = told[600..].iter().filter(|(late, _)| *late > us(200)).count();
        assert_eq!(last, 0, "{what}: {last} of the last ones");
    }
}

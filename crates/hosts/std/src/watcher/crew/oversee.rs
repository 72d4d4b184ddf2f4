//! The overseer: looks whether leaders are held up, and sees a closing watcher to its end.

use std::sync::Arc;

use wakeline_core::{Clock, Instant, Nanos};

use super::super::home::Hub;
use super::super::sync::{Ordering, fence};
use super::{AWAY_NS_MAX, Crew, FAST, Leader, OFF, SLOW, Work};

/// How often the overseer looks, while calls are made.
const OVERSEE: Nanos = Nanos::from_millis(3);

/// The same while only wakers are called, which are not to take long.
const OVERSEE_SLOWLY: Nanos = Nanos::from_millis(10);

/// After so many looks without any call it looks less often, and then sleeps until the next call.
const QUIET_LOOKS: u32 = 32;

/// Looks, while calls are made, whether a leader is held up in one. When the watcher closes, until every shard is closed and all told.
pub(super) fn oversee(hub: &Arc<Hub>) {
    let duty = &hub.crew.duty;
    let idle = duty.idle.lock();
    let clock = hub.clock;
    let (mut calls, mut quiet) = (0, 0);
    // Since when the leader was away in whose place a helper was asked to lead.
    let mut helped = vec![0; hub.posts.len()];
    // Closed shards of which there is nobody to tell what is left.
    let mut untold = Vec::new();
    loop {
        let closing = hub.is_closing();
        let now = clock.now();
        let mut away = false;
        for (post, helped) in helped.iter_mut().enumerate() {
            let shard = &hub.posts[post].shard;
            let since = shard.away_since.load(Ordering::Relaxed);
            away |= since != 0;
            if since == 0 || now.since(Instant::from_nanos(since)).as_nanos() <= AWAY_NS_MAX {
                continue;
            }
            if !closing {
                // Where nobody is left to lead, the one that is held up goes on when it can.
                if *helped != since && Crew::help(hub, Work::Lead(post, since)).is_ok() {
                    *helped = since;
                }
            } else if shard.lead_from(since) {
                shard.counters.takeovers.bump();
                Leader { hub, post }.close(shard.lock());
                if !hub.posts[post].left.lock().is_empty() {
                    untold.push(post);
                }
            }
        }
        if closing {
            untold.retain(|&post| Crew::help(hub, Work::Tell(post)).is_err());
            if untold.is_empty() && (0..hub.posts.len()).all(|post| Leader { hub, post }.is_over()) {
                return;
            }
        }
        // Looks as often as the last calls ask for; less often, and then not at all, after a while without such.
        let pace = duty.pace.load(Ordering::Relaxed);
        let begun =
            if pace == FAST { duty.asks.load(Ordering::Relaxed) } else { duty.calls.load(Ordering::Relaxed) };
        quiet = if closing || away || begun != calls { 0 } else { quiet + 1 };
        calls = begun;
        if quiet >= QUIET_LOOKS {
            quiet = 0;
            duty.pace.store(pace.saturating_sub(1), Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if hub.posts.iter().any(|post| post.shard.away_since.load(Ordering::Relaxed) != 0) {
                duty.pace.store(pace, Ordering::Relaxed);
            }
        }
        // Read once: where it is raised from here on, that is seen at the last look.
        let pace = duty.pace.load(Ordering::Relaxed);
        let until = match pace {
            // Until a waker returns that does not look like it.
            _ if !untold.is_empty() => now + OVERSEE_SLOWLY,
            // Those who lead need not be away to close their shards.
            _ if closing => now + OVERSEE,
            OFF => Instant::MAX,
            SLOW => now + OVERSEE_SLOWLY,
            _ => now + OVERSEE,
        };
        let as_agreed = || duty.pace.load(Ordering::Relaxed) <= pace && closing == hub.is_closing();
        let bound = (until < Instant::MAX).then_some(until);
        duty.door.sleep(until, as_agreed, || idle.sleep_at_once(bound));
    }
}

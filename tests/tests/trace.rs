//! Events of the feature `tracing`: one for each wait that ended at a point, with what it did.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};
use wakeline_core::{
    CancelToken, Clock as _, Error, ErrorCode, Inline, Nanos, Report, Wait, WaitPlan, drive, run_inline,
};
use wakeline_sim::{SimConfig, SimDevice, VirtualHost, VirtualTime};
use wakeline_std::Point;

/// An event as it was emitted.
#[derive(Debug)]
struct Seen {
    target: String,
    level: Level,
    fields: BTreeMap<&'static str, String>,
}

/// Keeps all events.
#[derive(Clone, Default)]
struct Capture(Arc<Mutex<Vec<Seen>>>);

impl Subscriber for Capture {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let (target, level) = (event.metadata().target().to_owned(), *event.metadata().level());
        self.0.lock().unwrap().push(Seen { target, level, fields: fields.0 });
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

/// The events that `emit` emits, all of our target.
fn seen(emit: impl FnOnce()) -> Vec<Seen> {
    let capture = Capture::default();
    tracing::subscriber::with_default(capture.clone(), emit);
    let seen = std::mem::take(&mut *capture.0.lock().unwrap());
    assert!(seen.iter().all(|event| event.target == "wakeline"), "{seen:?}");
    seen
}

/// A wait for 2 ms of work with what the point knows, ended at a deadline or by a token where one is given.
fn wait(point: &Point, deadline: Option<Nanos>, cancel: Option<&CancelToken>) -> Result<Report, Error> {
    let device = SimDevice::new(VirtualTime::new(), SimConfig::default()).unwrap();
    let host = VirtualHost::new(&device);
    let inline = Inline::new(&host, &host, &host);
    let plan: WaitPlan =
        "flag:park_us=50,backstop_us=1000+predict:margin_us=40,min_sleep_us=100,max_sleep_us=20000,window=8"
            .parse()
            .unwrap();
    let stream = device.stream().unwrap();
    stream.launch(Nanos::from_millis(2)).unwrap();
    let deadline = deadline.map(|length| host.now() + length);
    let wait = Wait::new(&plan).predicted(point.predict(&plan)).deadline(deadline);
    let result = run_inline(drive(wait, &mut stream.point(), &inline, cancel)).unwrap();
    point.observe(&result);
    result
}

#[test]
fn a_wait_that_ended_well_is_told_with_what_it_did() {
    let point = Point::new("decode");
    wait(&point, None, None).unwrap();
    let mut report = None;
    let seen = seen(|| report = Some(wait(&point, None, None).unwrap()));
    let ([event], Some(report)) = (&seen[..], report) else { panic!("{seen:?}") };
    assert_eq!(event.level, Level::TRACE);
    assert_eq!(report.sleeps, 1);
    let fields = [
        ("elapsed_ns", report.elapsed.as_nanos().to_string()),
        ("message", "a wait ended".to_owned()),
        ("outcome", "parked".to_owned()),
        ("overshoot_ns", report.overshoot.as_nanos().to_string()),
        ("parks", report.parks.to_string()),
        ("point", "decode".to_owned()),
        ("queries", report.queries.to_string()),
        ("sleeps", "1".to_owned()),
    ];
    assert_eq!(event.fields, BTreeMap::from(fields));
}

#[test]
fn a_wait_that_failed_is_a_warning_and_one_that_was_cancelled_is_none() {
    let point = Point::new("decode");
    let token = CancelToken::new();
    token.cancel();
    let lost = Error::new(ErrorCode::Backend, [&"sim", &"query", &"device lost"]);
    let seen = seen(|| {
        wait(&point, Some(Nanos::from_millis(1)), None).unwrap_err();
        wait(&point, None, Some(&token)).unwrap_err();
        point.observe(&Err(Error::new(ErrorCode::StoreLost, [&1, &0])));
        point.observe(&Err(lost));
    });
    let told: Vec<_> = seen.iter().map(|event| (event.level, &*event.fields["outcome"])).collect();
    assert_eq!(
        told,
        [
            (Level::WARN, "timed_out"),
            (Level::TRACE, "cancelled"),
            (Level::WARN, "store_lost"),
            (Level::WARN, "failed")
        ]
    );
    assert_eq!(seen[3].fields["error"], "sim: query failed: device lost");
    assert!(seen.iter().all(|event| event.fields["point"] == "decode"));
}

/// A subscriber is code of the user's: it may ask the very point whose wait is told.
#[test]
fn no_lock_is_held_while_an_event_is_emitted() {
    struct Asks(Point, Arc<Mutex<Vec<u64>>>);
    impl Subscriber for Asks {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, _: &Event<'_>) {
            self.1.lock().unwrap().push(self.0.snapshot().counts.waits());
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }
    let (point, waits) = (Point::new("decode"), Arc::default());
    tracing::subscriber::with_default(Asks(point.clone(), Arc::clone(&waits)), || {
        wait(&point, None, None).unwrap();
    });
    assert_eq!(*waits.lock().unwrap(), [1]);
}

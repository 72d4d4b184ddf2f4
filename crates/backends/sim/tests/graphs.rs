//! Captures and graphs: what becomes of what is captured, what ends a capture as an error, and which launches are misuses.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use wakeline_core::{CompletionPort, Error, ErrorCode, Instant, Nanos};
use wakeline_sim::{
    Misuse, SimArg, SimCapture, SimConfig, SimDevice, SimKernel, SimNodeKind, SimStream, VirtualTime,
};

const RUN: Nanos = Nanos::from_micros(10);

fn device() -> SimDevice {
    SimDevice::new(VirtualTime::new(), SimConfig { copy_ns: 1_000, ..SimConfig::exact() }).unwrap()
}

fn captured(stream: &SimStream, work: impl FnOnce() -> Result<(), Error>) -> Result<SimCapture, Error> {
    stream.begin_capture()?;
    let worked = work();
    let ended = stream.end_capture();
    worked.and(ended)
}

fn wait(stream: &SimStream) -> Instant {
    let mut point = stream.point();
    point.block(None).unwrap();
    point.witness().truth().ended_at.unwrap()
}

#[test]
fn what_is_captured_does_not_run_and_runs_with_each_launch() {
    let device = device();
    let stream = device.stream().unwrap();
    let (memory, pinned) = (stream.alloc(4).unwrap(), device.pinned(4).unwrap());
    stream.fill(&memory, 1).unwrap();
    let doubles = SimKernel::new(RUN, |args| args.bytes_mut(0).iter_mut().for_each(|byte| *byte *= 2));
    let capture = captured(&stream, || {
        stream.run(&doubles.clone().named("doubles"), &[SimArg::Write((&memory).into())])?;
        stream.download(&memory, &pinned, 4)
    });
    let capture = capture.unwrap();
    let nodes = capture.nodes();
    assert_eq!(nodes.len(), 2);
    assert_eq!(
        (nodes[0].kind, nodes[0].name, &*nodes[0].after),
        (SimNodeKind::Kernel, Some("doubles"), &[][..])
    );
    assert_eq!((nodes[1].kind, &*nodes[1].after), (SimNodeKind::Copy, &[0][..]));
    let graph = device.instantiate(&capture).unwrap();
    let mut bytes = [0; 4];
    for wanted in [2, 4, 8] {
        stream.launch_graph(&graph).unwrap();
        assert!(pinned.read(&mut bytes).is_err(), "the launch is under way");
        wait(&stream);
        pinned.read(&mut bytes).unwrap();
        assert_eq!(bytes, [wanted; 4]);
    }
    assert!(device.misuses().iter().all(|misuse| matches!(misuse, Misuse::ByHost { .. })));
}

#[test]
fn what_no_graph_can_have_ends_the_capture_as_an_error_and_the_stream_goes_on() {
    let device = device();
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let memory = stream.alloc(4).unwrap();
    let (outside, gate) = (device.event(), device.gate().unwrap());
    other.record(&outside).unwrap();
    let graph = device.instantiate(&captured(&stream, || stream.launch(RUN)).unwrap()).unwrap();
    let whole: [&dyn Fn() -> Result<(), Error>; 7] = [
        &|| stream.call_host(|| ()),
        &|| stream.alloc(4).map(drop),
        &|| stream.free(&memory),
        &|| stream.wait_open(&gate),
        &|| stream.wait(&outside),
        &|| stream.launch_graph(&graph),
        &|| stream.launch_until(Instant::from_nanos(1)),
    ];
    for (number, forbidden) in whole.iter().enumerate() {
        stream.begin_capture().unwrap();
        stream.launch(RUN).unwrap();
        assert_eq!(forbidden().unwrap_err().code(), ErrorCode::Backend, "{number}");
        assert!(stream.launch(RUN).is_err(), "it is invalid by then");
        let error = stream.end_capture().unwrap_err();
        assert!(error.to_string().contains("the capture is invalid"), "{number}: {error}");
        assert!(!stream.is_capturing());
        stream.launch(RUN).unwrap();
        wait(&stream);
    }
    let error = stream.end_capture().unwrap_err();
    assert!(error.to_string().contains("not being captured"), "{error}");
    assert_eq!(device.misuses(), []);
}

#[test]
fn streams_join_a_capture_by_its_events_and_are_to_be_joined_again() {
    let device = device();
    let [home, branch, third] = [(); 3].map(|()| device.stream().unwrap());
    let (begin, end) = (device.event(), device.event());
    let unjoined = captured(&home, || {
        home.launch(RUN)?;
        home.record(&begin)?;
        branch.wait(&begin)?;
        assert!(branch.is_capturing());
        assert_eq!(branch.begin_capture().unwrap_err().code(), ErrorCode::StreamCapturing);
        branch.launch(RUN)
    });
    assert!(unjoined.unwrap_err().to_string().contains("was not joined again"));
    assert!(!branch.is_capturing());
    // An event of a capture that is over is nobody's.
    assert!(third.wait(&begin).is_err());
    let ends_elsewhere = captured(&home, || {
        home.record(&begin)?;
        branch.wait(&begin)?;
        branch.end_capture().map(drop)
    });
    assert!(ends_elsewhere.unwrap_err().to_string().contains("did not begin in"));
    // Of two captures neither can wait for the other.
    third.begin_capture().unwrap();
    let merged = captured(&home, || {
        home.record(&begin)?;
        third.wait(&begin)
    });
    assert!(merged.is_err() && third.end_capture().is_err());
    let joined = captured(&home, || {
        home.launch(RUN)?;
        home.record(&begin)?;
        branch.wait(&begin)?;
        branch.launch(RUN)?;
        branch.record(&end)?;
        home.launch(RUN)?;
        home.wait(&end)?;
        home.launch(RUN)
    });
    let joined = joined.unwrap();
    let after: Vec<_> = joined.nodes().into_iter().map(|node| node.after).collect();
    assert_eq!(after, [vec![], vec![0], vec![0], vec![2, 1]]);
    let graph = device.instantiate(&joined).unwrap();
    home.launch_graph(&graph).unwrap();
    assert_eq!(wait(&home), Instant::from_nanos(3 * RUN.as_nanos()), "the two in the middle at a time");
    // A stream that goes takes its capture with it.
    home.begin_capture().unwrap();
    home.record(&begin).unwrap();
    branch.wait(&begin).unwrap();
    drop(home);
    assert!(!branch.is_capturing());
    branch.launch(RUN).unwrap();
    wait(&branch);
    assert_eq!(device.misuses(), []);
}

#[test]
fn nodes_that_conflict_and_that_nothing_orders_are_found_as_they_are_captured() {
    let device = device();
    let (home, branch) = (device.stream().unwrap(), device.stream().unwrap());
    let memory = home.alloc(4).unwrap();
    let (begin, end) = (device.event(), device.event());
    let conflicts = captured(&home, || {
        home.record(&begin)?;
        branch.wait(&begin)?;
        home.fill(&memory, 1)?;
        let conflict = branch.fill(&memory, 2);
        branch.record(&end)?;
        home.wait(&end)?;
        conflict
    });
    assert!(conflicts.is_err());
    assert!(matches!(device.misuses()[..], [Misuse::Unordered { .. }]));
    assert!(captured(&home, || home.fill_with(&memory, &[1], 5)).is_err());
    assert!(matches!(device.misuses()[1..], [Misuse::Beyond { len: 4, wanted: 5, .. }]));
}

#[test]
fn a_graph_runs_once_at_a_time_and_is_kept_until_it_has() {
    let device = device();
    let (one, other) = (device.stream().unwrap(), device.stream().unwrap());
    let capture = captured(&one, || one.launch(RUN)).unwrap();
    let graph = device.instantiate(&capture).unwrap();
    one.launch_graph(&graph).unwrap();
    one.launch_graph(&graph).unwrap();
    assert!(other.launch_graph(&graph).is_err(), "nothing orders it behind the two");
    assert!(matches!(device.misuses()[..], [Misuse::GraphTwice { .. }]));
    let behind = device.event();
    one.record(&behind).unwrap();
    other.wait(&behind).unwrap();
    other.launch_graph(&graph).unwrap();
    drop(graph);
    assert!(matches!(device.misuses()[1..], [Misuse::GraphInUse { launches: 3 }]));
    assert_eq!((wait(&other), device.graphs()), (Instant::from_nanos(3 * RUN.as_nanos()), 0));
    // After memory of it was freed it cannot be launched.
    let memory = one.alloc(4).unwrap();
    let graph = device.instantiate(&captured(&one, || one.fill(&memory, 1)).unwrap()).unwrap();
    one.free(&memory).unwrap();
    assert!(one.launch_graph(&graph).is_err());
    assert!(matches!(device.misuses()[2..], [Misuse::UseAfterFree { .. }]));
    let elsewhere = self::device();
    assert!(elsewhere.stream().unwrap().launch_graph(&graph).is_err());
    assert_eq!(elsewhere.misuses(), [Misuse::Foreign]);
}

#[test]
fn a_fault_ends_captures_and_runs_and_leaves_no_stream_captured() {
    let device = device();
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let capture = captured(&stream, || stream.launch(RUN)).unwrap();
    let graph = device.instantiate(&capture).unwrap();
    stream.launch_graph(&graph).unwrap();
    other.begin_capture().unwrap();
    device.inject_fault();
    assert!(stream.point().block(None).is_err());
    assert!(device.instantiate(&capture).is_err() && stream.launch_graph(&graph).is_err());
    assert!(graph.update(&capture).is_err());
    assert!(other.end_capture().is_err() && !other.is_capturing());
    // Nothing that would use it happens any more.
    drop(graph);
    assert_eq!(device.misuses(), []);
}

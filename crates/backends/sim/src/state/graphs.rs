//! The part of the engine that captures streams, and replays what was captured.
//!
//! ```text
//!   none ── begin ──► active ── end ──► none, with nodes ── instantiate ──► an executable ── launch ──► a run, one work of its stream
//!                       └─ what may not be ──► invalid ── end ──► none, an error
//! ```
//!
//! A run starts each node when those that it comes after have ended: nodes that nothing orders run at a time. Of an executable one run is under way at a time,
//! which is what whoever launches it has to see to.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use wakeline_core::{Error, ErrorCode, Instant, Nanos};

use super::jobs::Whose;
use super::{Call, State, Touch, What};
use crate::error::{BACKEND, failed};
use crate::job::{Effect, Job};
use crate::memory::Misuse;
use crate::order::Place;
use crate::queue::Work;
use crate::table::Key;

/// What is done to which bytes of which buffer.
pub(crate) type Touches = Vec<(Key, usize, Touch)>;

/// One work of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    effect: Option<Effect>,
    length: Nanos,
    touches: Touches,
    /// The nodes that it comes right after, by their numbers.
    pub(crate) after: Vec<usize>,
    /// All that it comes after, one bit each.
    behind: Vec<u64>,
}

impl Node {
    pub(crate) const fn effect(&self) -> Option<&Effect> {
        self.effect.as_ref()
    }

    /// What two nodes in the same place are alike in.
    fn kind(&self) -> Option<core::mem::Discriminant<Effect>> {
        self.effect.as_ref().map(core::mem::discriminant)
    }

    fn is_behind(&self, other: usize) -> bool {
        self.behind.get(other / 64).is_some_and(|bits| bits >> (other % 64) & 1 == 1)
    }

    fn conflicts(&self, other: &Self) -> Option<Key> {
        let both = |one: &(Key, usize, Touch)| {
            let wrote =
                |two: &&(Key, usize, Touch)| one.0 == two.0 && (one.2 != Touch::Read || two.2 != Touch::Read);
            other.touches.iter().any(|two| wrote(&two))
        };
        self.touches.iter().find(|one| both(one)).map(|(key, ..)| *key)
    }
}

/// The nodes of a graph, each behind those that it comes after.
pub(crate) type Nodes = Arc<Vec<Node>>;

#[derive(Debug)]
pub(super) struct Capture {
    origin: Key,
    /// The streams that are in it, and the nodes that come last in each.
    streams: Vec<(Key, Vec<usize>)>,
    nodes: Vec<Node>,
    /// Why it can be nothing any more.
    invalid: Option<String>,
}

#[derive(Debug)]
pub(super) struct Exec {
    nodes: Nodes,
    /// Its last launch.
    last: Option<Place>,
    /// How many launches are enqueued and not over.
    active: u64,
}

#[derive(Debug)]
pub(super) struct Run {
    stream: Key,
    exec: Key,
    nodes: Nodes,
    /// For how many others each still waits.
    waits: Vec<usize>,
    left: usize,
}

/// What an event that was recorded in a capture stands for.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    capture: Key,
    after: Vec<usize>,
}

impl State {
    pub(crate) fn is_capturing(&self, stream: Key) -> bool {
        self.capture_of(stream).is_some()
    }

    pub(super) fn capture_of(&self, stream: Key) -> Option<Key> {
        self.streams.get(stream)?.capture
    }

    fn invalidate(&mut self, capture: Key, why: &str) {
        if let Some(capture) = self.captures.get_mut(capture) {
            capture.invalid.get_or_insert_with(|| why.into());
        }
    }

    /// Stops a call that no graph can have, and the capture with it.
    pub(crate) fn forbid_captured(&mut self, call: &'static str, stream: Key) -> Result<(), Error> {
        let Some(capture) = self.capture_of(stream) else { return Ok(()) };
        let why = format!("`{call}` was called for a stream that is being captured");
        self.invalidate(capture, &why);
        Err(failed(call, &why))
    }

    /// Stops a call that would be awaited; the capture goes on.
    pub(crate) fn refuse_captured(&self, stream: Key) -> Result<(), Error> {
        if !self.is_capturing(stream) {
            return Ok(());
        }
        Err(self.stream_capturing(stream))
    }

    pub(crate) fn stream_capturing(&self, stream: Key) -> Error {
        Error::new(ErrorCode::StreamCapturing, [&BACKEND, &self.number(stream)])
    }

    pub(crate) fn begin_capture(&mut self, stream: Key) -> Result<(), Error> {
        self.refuse_captured(stream)?;
        let streams = Vec::from([(stream, Vec::new())]);
        let capture =
            self.captures.insert(Capture { origin: stream, streams, nodes: Vec::new(), invalid: None });
        if let Some(queue) = self.streams.get_mut(stream) {
            queue.capture = Some(capture);
        }
        Ok(())
    }

    /// Ends the capture that began in this stream, whatever has become of it.
    pub(crate) fn end_capture(&mut self, stream: Key) -> Result<Nodes, Error> {
        const CALL: &str = "end_capture";
        let Some(key) = self.capture_of(stream) else {
            return Err(failed(CALL, &"the stream is not being captured"));
        };
        if self.captures.get(key).is_some_and(|capture| capture.origin != stream) {
            let why = "it was ended in a stream that it did not begin in";
            self.invalidate(key, why);
            return Err(failed(CALL, &why));
        }
        let Some(capture) = self.captures.remove(key) else { return Ok(Nodes::default()) };
        for (stream, _) in &capture.streams {
            if let Some(queue) = self.streams.get_mut(*stream) {
                queue.capture = None;
            }
        }
        if let Some(why) = &capture.invalid {
            return Err(failed(CALL, &format!("the capture is invalid: {why}")));
        }
        let Capture { streams, nodes, .. } = capture;
        let mut streams = streams.into_iter();
        let home = streams.next().map(|(_, last)| last).unwrap_or_default();
        let joined = |node: &usize| {
            home.contains(node)
                || home.iter().any(|last| nodes.get(*last).is_some_and(|last| last.is_behind(*node)))
        };
        if let Some((stream, _)) = streams.find(|(_, last)| !last.iter().all(joined)) {
            let why = format!("stream {} was not joined again", self.number(stream));
            return Err(failed(CALL, &why));
        }
        Ok(Arc::new(nodes))
    }

    /// Makes work of a capturing stream a node.
    pub(super) fn capture_work(
        &mut self,
        call: &'static str,
        stream: Key,
        length: Nanos,
        job: Option<Job>,
        touches: &[(Key, usize, Touch)],
    ) -> Result<(), Error> {
        let Some(key) = self.capture_of(stream) else { return Ok(()) };
        let effect = match job {
            None => None,
            Some(Job::Effect(effect)) => Some(effect),
            Some(Job::Free(_) | Job::Host(_)) => return self.forbid_captured(call, stream),
        };
        for &(buffer, bytes, _) in touches {
            if let Err(misuse) = self.check_bytes(buffer, bytes) {
                return Err(self.misused(call, misuse));
            }
        }
        let Some(capture) = self.captures.get_mut(key) else { return Ok(()) };
        if let Some(why) = &capture.invalid {
            return Err(failed(call, &format!("the capture is invalid: {why}")));
        }
        let number = capture.nodes.len();
        let Some((_, last)) = capture.streams.iter_mut().find(|(its, _)| *its == stream) else {
            return Ok(());
        };
        let after = core::mem::replace(last, Vec::from([number]));
        let mut behind = alloc::vec![0_u64; number / 64 + 1];
        for &before in &after {
            if let Some(bits) = behind.get_mut(before / 64) {
                *bits |= 1 << (before % 64);
            }
            let its = capture.nodes.get(before).map(|node| node.behind.as_slice()).unwrap_or_default();
            behind.iter_mut().zip(its).for_each(|(bits, its)| *bits |= its);
        }
        let node = Node { effect, length, touches: touches.to_vec(), after, behind };
        let mut apart = capture.nodes.iter().enumerate().filter(|(other, _)| !node.is_behind(*other));
        let conflict = apart.find_map(|(_, other)| node.conflicts(other));
        capture.nodes.push(node);
        if let Some(buffer) = conflict {
            return Err(self.unordered_nodes(call, buffer, stream));
        }
        Ok(())
    }

    fn unordered_nodes(&mut self, call: &'static str, buffer: Key, stream: Key) -> Error {
        let (buffer, stream) =
            (self.buffers.get(buffer).map_or(u64::MAX, |it| it.number), self.number(stream));
        self.misused(call, Misuse::Unordered { buffer, stream, other: stream })
    }

    /// What an event stands for that is recorded in a capturing stream.
    pub(crate) fn record_captured(&self, stream: Key) -> Option<Captured> {
        let capture = self.capture_of(stream)?;
        let (_, last) = self.captures.get(capture)?.streams.iter().find(|(its, _)| *its == stream)?;
        Some(Captured { capture, after: last.clone() })
    }

    /// A stream waits for an event that was recorded in a capture: it joins that.
    pub(crate) fn join_capture(&mut self, stream: Key, captured: &Captured) -> Result<(), Error> {
        const CALL: &str = "wait";
        let own = self.capture_of(stream);
        if self.captures.get(captured.capture).is_none() {
            return Err(self.isolated(own, "an event of a capture that is over was waited for"));
        }
        match own {
            Some(own) if own != captured.capture => {
                let why = "a stream of one capture was to wait for another capture";
                self.invalidate(own, why);
                self.invalidate(captured.capture, why);
                return Err(failed(CALL, &why));
            }
            _ => {}
        }
        let Some(capture) = self.captures.get_mut(captured.capture) else { return Ok(()) };
        match capture.streams.iter_mut().find(|(its, _)| *its == stream) {
            Some((_, last)) => {
                let more = captured.after.iter().filter(|node| !last.contains(node)).copied();
                let more: Vec<usize> = more.collect();
                last.extend(more);
                // Those that others of them come after say nothing more.
                let (nodes, all) = (&capture.nodes, last.clone());
                let is_behind =
                    |other: &usize, node: usize| nodes.get(*other).is_some_and(|it| it.is_behind(node));
                last.retain(|node| !all.iter().any(|other| is_behind(other, *node)));
            }
            None => capture.streams.push((stream, captured.after.clone())),
        }
        if let Some(queue) = self.streams.get_mut(stream) {
            queue.capture = Some(captured.capture);
        }
        Ok(())
    }

    /// A capture was to depend on what is not in it.
    pub(crate) fn isolated(&mut self, own: Option<Key>, why: &str) -> Error {
        if let Some(own) = own {
            self.invalidate(own, why);
        }
        failed("wait", &why)
    }

    /// The stream is in a capture and waits for an event of none.
    pub(crate) fn forbid_outside(&mut self, stream: Key) -> Result<(), Error> {
        match self.capture_of(stream) {
            Some(own) => {
                Err(self.isolated(Some(own), "a stream that is being captured was to wait for what is not"))
            }
            None => Ok(()),
        }
    }

    /// A stream goes that is in a capture.
    pub(super) fn leave_capture(&mut self, stream: Key) {
        let Some(key) = self.streams.get_mut(stream).and_then(|queue| queue.capture.take()) else { return };
        self.invalidate(key, "one of its streams is gone");
        let Some(capture) = self.captures.get_mut(key) else { return };
        capture.streams.retain(|(its, _)| *its != stream);
        if capture.origin == stream {
            // Nobody can end it any more.
            let Some(capture) = self.captures.remove(key) else { return };
            for (other, _) in capture.streams {
                if let Some(queue) = self.streams.get_mut(other) {
                    queue.capture = None;
                }
            }
        }
    }

    // Executables.

    /// How many there are.
    pub(crate) fn execs_in_use(&mut self) -> usize {
        self.execs.values_mut().count()
    }

    pub(crate) fn instantiate(&mut self, nodes: &Nodes) -> Result<Key, Error> {
        let most = self.config.graph_nodes_max;
        if nodes.len() > most {
            let node = format!("node {most}");
            let why = format!("it has {} nodes, and there may be {most}", nodes.len());
            return Err(Error::new(ErrorCode::GraphRefused, [&BACKEND, &node, &why]));
        }
        Ok(self.execs.insert(Exec { nodes: Arc::clone(nodes), last: None, active: 0 }))
    }

    /// Gives it the work of another graph of the same topology.
    pub(crate) fn update_exec(&mut self, exec: Key, nodes: &Nodes) -> Result<(), Error> {
        let Some(exec) = self.execs.get_mut(exec) else { return Ok(()) };
        let differs =
            |node: &str, why: &str| Err(Error::new(ErrorCode::GraphMismatch, [&BACKEND, &node, &why]));
        if exec.nodes.len() != nodes.len() {
            let why = format!("it has {} nodes, and the other {}", exec.nodes.len(), nodes.len());
            return differs("their number", &why);
        }
        for (number, (old, new)) in exec.nodes.iter().zip(nodes.iter()).enumerate() {
            let node = format!("node {number}");
            if old.kind() != new.kind() {
                return differs(&node, "it does something of another kind");
            }
            if old.after != new.after {
                return differs(&node, "it comes after other nodes");
            }
        }
        exec.nodes = Arc::clone(nodes);
        Ok(())
    }

    /// Has a node of it do this from now on.
    pub(crate) fn set_node(
        &mut self,
        exec: Key,
        number: usize,
        length: Nanos,
        effect: Effect,
        touches: Touches,
    ) -> Result<(), Error> {
        const CALL: &str = "set_kernel";
        for &(buffer, bytes, _) in &touches {
            if let Err(misuse) = self.check_bytes(buffer, bytes) {
                return Err(self.misused(CALL, misuse));
            }
        }
        let Some(nodes) = self.execs.get(exec).map(|exec| Arc::clone(&exec.nodes)) else { return Ok(()) };
        let name = format!("node {number}");
        let mismatch = |why: &str| Err(Error::new(ErrorCode::GraphMismatch, [&BACKEND, &name, &why]));
        let Some(before) = nodes.get(number) else {
            return mismatch(&format!("there are {} nodes", nodes.len()));
        };
        if !matches!(before.effect, Some(Effect::Kernel(..))) {
            return mismatch("it launches no kernel");
        }
        let node = Node { effect: Some(effect), length, touches, ..before.clone() };
        let apart = |(other, its): &(usize, &Node)| {
            *other != number && !node.is_behind(*other) && !its.is_behind(number)
        };
        let conflict = nodes.iter().enumerate().filter(apart).find_map(|(_, other)| node.conflicts(other));
        if let Some(buffer) = conflict {
            let number = self.buffers.get(buffer).map_or(u64::MAX, |buffer| buffer.number);
            let misuse = Misuse::Unordered { buffer: number, stream: u64::MAX, other: u64::MAX };
            return Err(self.misused(CALL, misuse));
        }
        let mut nodes = Vec::clone(&nodes);
        if let Some(place) = nodes.get_mut(number) {
            *place = node;
        }
        if let Some(exec) = self.execs.get_mut(exec) {
            exec.nodes = Arc::new(nodes);
        }
        Ok(())
    }

    /// Nobody has it any more.
    pub(crate) fn drop_exec(&mut self, exec: Key) {
        if let Some(exec) = self.execs.remove(exec)
            && exec.active > 0
            && self.fault.is_none()
        {
            self.buffers.misuse(Misuse::GraphInUse { launches: exec.active });
        }
    }

    pub(crate) fn enqueue_graph(&mut self, stream: Key, key: Key) -> Result<(), Error> {
        const CALL: &str = "launch_graph";
        self.forbid_captured(CALL, stream)?;
        self.check_room(stream, Call::Other(CALL))?;
        let Some(exec) = self.execs.get(key) else { return Err(self.misused(CALL, Misuse::Foreign)) };
        let nodes = Arc::clone(&exec.nodes);
        if let Some(last) = exec.last.filter(|last| !self.is_ordered(stream, last)) {
            let (stream, other) = (self.number(stream), last.number);
            return Err(self.misused(CALL, Misuse::GraphTwice { stream, other }));
        }
        for &(buffer, bytes, touch) in nodes.iter().flat_map(|node| &node.touches) {
            if let Err(misuse) = self.check(stream, buffer, bytes, touch) {
                return Err(self.misused(CALL, misuse));
            }
        }
        let Some((place, _)) = self.record(stream) else { return Ok(()) };
        let place = Place { works: place.works + 1, ..place };
        // Reads first: a write is what is left of all.
        for writes in [false, true] {
            for &(buffer, _, touch) in nodes.iter().flat_map(|node| &node.touches) {
                if (touch != Touch::Read) == writes {
                    self.note(buffer, place, touch);
                }
            }
        }
        let faulted = self.fault.is_some();
        let Some(queue) = self.streams.get_mut(stream) else { return Ok(()) };
        if faulted {
            queue.push_in_vain();
            return Ok(());
        }
        let waits = nodes.iter().map(|node| node.after.len()).collect();
        let (left, length) = (nodes.len(), longest(&nodes));
        let run = self.runs.insert(Run { stream, exec: key, nodes, waits, left });
        queue.push_graph(run, Work::For(length), self.now);
        let number = queue.number;
        if let Some(exec) = self.execs.get_mut(key) {
            exec.last = Some(place);
            exec.active += 1;
        }
        self.counts.launches += 1;
        self.log(self.now, number, crate::log::LogEvent::Launched);
        self.step(stream, self.now);
        self.turn(self.now);
        Ok(())
    }

    /// The stream has come to a launch.
    pub(super) fn start_run(&mut self, key: Key, at: Instant) {
        let Some(run) = self.runs.get(key) else { return };
        if run.nodes.is_empty() {
            return self.schedule(at, What::RunEnds(key));
        }
        let first = run.waits.iter().enumerate().filter(|(_, waits)| **waits == 0);
        let first: Vec<(usize, Nanos)> =
            first.filter_map(|(node, _)| Some((node, run.nodes.get(node)?.length))).collect();
        for (node, length) in first {
            self.schedule(at + length, What::NodeEnds(key, node));
        }
    }

    pub(super) fn end_node(&mut self, key: Key, node: usize, at: Instant) {
        let effect = self.runs.get(key).and_then(|run| run.nodes.get(node)?.effect.clone());
        if effect.is_none_or(|effect| self.effect(effect, Whose::Node(key, node), at)) {
            self.finish_node(key, node, at);
        }
    }

    pub(super) fn finish_node(&mut self, key: Key, ended: usize, at: Instant) {
        let Some(run) = self.runs.get_mut(key) else { return };
        run.left -= 1;
        if run.left == 0 {
            return self.end_run(key, at);
        }
        let mut next = Vec::new();
        for ((number, node), waits) in run.nodes.iter().enumerate().zip(&mut run.waits) {
            if node.after.contains(&ended) {
                *waits -= 1;
                if *waits == 0 {
                    next.push((number, node.length));
                }
            }
        }
        for (node, length) in next {
            self.schedule(at + length, What::NodeEnds(key, node));
        }
    }

    pub(super) fn end_run(&mut self, key: Key, at: Instant) {
        let Some(Run { stream, exec, .. }) = self.runs.remove(key) else { return };
        if let Some(exec) = self.execs.get_mut(exec) {
            exec.active -= 1;
        }
        self.finish_work(stream, at);
    }

    /// The device has faulted: no run ever ends.
    pub(super) fn stop_runs(&mut self) {
        let all: Vec<Key> = self.runs.keys().collect();
        for key in all {
            let own = |run: &Run| self.device_of(run.stream) == self.device;
            if self.runs.get(key).is_some_and(own) {
                self.runs.remove(key);
            }
        }
    }
}

/// How long a run takes by itself.
fn longest(nodes: &[Node]) -> Nanos {
    let mut ends: Vec<Nanos> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let begins = node.after.iter().filter_map(|before| ends.get(*before).copied()).max();
        ends.push(begins.unwrap_or(Nanos::ZERO) + node.length);
    }
    ends.into_iter().max().unwrap_or(Nanos::ZERO)
}

//! A server in this process, and a small client.

#![allow(dead_code, reason = "not every test needs all of it")]
#![allow(clippy::panic, clippy::unwrap_used, reason = "for tests")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::Parser as _;
use http_serve::args::Args;
use http_serve::device::{self, Sim};
use http_serve::error::ServeError;
use http_serve::model::{INPUTS, OUTPUTS, weights};
use http_serve::serve::{listen, serve};
use serde_json::Value;
use tokio::sync::oneshot;

/// How long anything here may take before it counts as hung.
const HUNG: Duration = Duration::from_secs(60);

/// A server on the simulated device.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) device: Sim,
    stop: Option<oneshot::Sender<()>>,
    thread: JoinHandle<Result<(), ServeError>>,
}

impl Server {
    /// Started with these arguments, on a free port.
    pub(crate) fn start(words: &str) -> Self {
        let words = ["http_serve", "--listen", "127.0.0.1:0"].into_iter().chain(words.split_whitespace());
        let args = Args::try_parse_from(words).unwrap();
        let (tell, told) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let tokio = tokio::runtime::Builder::new_multi_thread();
            let tokio = { tokio }.worker_threads(2).enable_all().build().unwrap();
            tokio.block_on(async {
                let (listener, opened) = (listen(&args).await?, device::sim(&args).await?);
                let device = opened.model.runtime().device().clone();
                tell.send((listener.local_addr().unwrap(), device)).unwrap();
                serve(listener, opened, &args, async { _ = stopped.await }).await
            })
        });
        let (address, device) = told.recv_timeout(HUNG).unwrap();
        Self { address, device, stop: Some(stop), thread }
    }

    /// What is told to it at its end.
    pub(crate) fn tell_to_stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// How it ended, and how long that took.
    pub(crate) fn ends(mut self) -> (Result<(), ServeError>, Duration) {
        let start = Instant::now();
        drop(self.stop.take());
        until("the server has ended", || self.thread.is_finished());
        (self.thread.join().unwrap(), start.elapsed())
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        ask(self.address, "GET", path, "")
    }

    pub(crate) fn infer(&self, body: &str) -> Reply {
        ask(self.address, "POST", "/infer", body)
    }

    pub(crate) fn stats(&self) -> Value {
        self.get("/stats").json()
    }

    /// So many requests at a time, each with numbers of its own; what came of each.
    pub(crate) fn infer_many(&self, count: u16) -> Vec<Reply> {
        thread::scope(|scope| {
            let ask = |seed| scope.spawn(move || self.infer(&body(&input(seed))));
            let asked: Vec<_> = (0..count).map(ask).collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        })
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// What it says of what went wrong.
    pub(crate) fn error(&self) -> (String, String) {
        let error = &self.json()["error"];
        let text = |key: &str| error[key].as_str().unwrap_or_else(|| panic!("{self:?}")).to_owned();
        (text("code"), text("message"))
    }

    fn read(mut stream: TcpStream) -> Self {
        let mut text = Vec::new();
        stream.read_to_end(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }
}

/// A connection with a request on it.
pub(crate) fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HUNG)).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).unwrap();
    stream
}

/// Its answer.
pub(crate) fn answer(stream: TcpStream) -> Reply {
    Reply::read(stream)
}

pub(crate) fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> Reply {
    answer(send(address, method, path, body))
}

/// The numbers of a request: small whole ones, whose products and sums are exact.
pub(crate) fn input(seed: u16) -> [f32; INPUTS] {
    std::array::from_fn(|at| f32::from((seed * 7 + u16::try_from(at * at).unwrap()) % 23) - 11.0)
}

pub(crate) fn body(input: &[f32]) -> String {
    format!("{{\"input\": {input:?}}}")
}

/// What is right for them.
pub(crate) fn right(input: &[f32]) -> Vec<f32> {
    let weights = weights();
    let sum = |column| (0..INPUTS).map(|row| input[row] * weights[row * OUTPUTS + column]).sum();
    (0..OUTPUTS).map(sum).collect()
}

/// The numbers of an answer.
pub(crate) fn output(reply: &Reply) -> Vec<f32> {
    assert_eq!(reply.status, 200, "{reply:?}");
    serde_json::from_value(reply.json()["output"].clone()).unwrap()
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < HUNG, "not after {HUNG:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

//! The program: signals, exit codes, and the CUDA device on a stand-in for the driver.

#![cfg(target_os = "linux")]
#![allow(clippy::panic, clippy::unwrap_used, reason = "for tests")]

mod common;

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::{env, fs, process};

use wakeline_fake_driver::Fake;

use common::{answer, ask, body, input, output, right, send, until};

fn program(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_http_serve"));
    command.args(words.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Started, and where it listens; ended where the test fails.
struct Running {
    child: Child,
    address: SocketAddr,
    said: String,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.args(["--listen", "127.0.0.1:0"]).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        let address = said.split_once("http://").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        let Some(address) = address else {
            let output = child.wait_with_output().unwrap();
            panic!("{said}{}", String::from_utf8_lossy(&output.stderr));
        };
        Self { child, address, said }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Its exit code.
    fn ends(mut self) -> Option<i32> {
        let mut code = None;
        until("the program has ended", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        code.unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn both_signals_end_it_when_what_is_in_flight_is_answered() {
    for signal in ["-TERM", "-INT"] {
        let running = Running::start(&mut program("--step-us 200000 --deadline-ms 60000 --grace-ms 60000"));
        let asked = send(running.address, "POST", "/infer", &body(&input(3)));
        until("it is on the device", || ask(running.address, "GET", "/stats", "").json()["in_flight"] == 1);
        running.signal(signal);
        assert_eq!(output(&answer(asked)), right(&input(3)));
        assert_eq!(running.ends(), Some(0));
    }
}

#[test]
fn a_thread_that_sleeps_in_place_of_a_device_gives_the_same() {
    let running = Running::start(&mut program("--device sleep --step-us 1000"));
    assert!(running.said.contains("a thread sleeps 1000"), "{}", running.said);
    let reply = ask(running.address, "POST", "/infer", &body(&input(4)));
    assert_eq!(output(&reply), right(&input(4)));
    running.signal("-TERM");
    assert_eq!(running.ends(), Some(0));
}

#[test]
fn what_keeps_it_from_starting_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let driver = Folder::new("none");
    fs::write(driver.library(), "no library").unwrap();
    for (mut command, code, says) in [
        (program(&format!("--listen {address}")), 1, &*format!("cannot listen on {address}: ")),
        (program("--plan poll+trust"), 2, "invalid plan `poll+trust`"),
        (driver.on(program("--device cuda --listen 127.0.0.1:0")), 3, "libcuda.so.1"),
    ] {
        let output = command.output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains(says) && output.stdout.is_empty(), "{told}");
    }
}

#[test]
fn a_gpu_gives_the_same() {
    let driver = Folder::new("stand-in");
    fs::copy(Fake::new().unwrap().path(), driver.library()).unwrap();
    let mut command = driver.on(program("--device cuda"));
    // The stand-in is a compiler, too.
    command.env("WAKELINE_NVRTC", driver.library()).env("XDG_CACHE_HOME", driver.0.join("cache"));
    let running = Running::start(&mut command);
    assert!(running.said.contains("Fake GPU 0"), "{}", running.said);
    for seed in 0..5 {
        let reply = ask(running.address, "POST", "/infer", &body(&input(seed)));
        assert_eq!(output(&reply), right(&input(seed)));
    }
    running.signal("-TERM");
    assert_eq!(running.ends(), Some(0));
}

/// A folder in which the loader looks for the driver first; gone with this value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("http-serve-{}-{name}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn library(&self) -> PathBuf {
        self.0.join("libcuda.so.1")
    }

    fn on(&self, mut command: Command) -> Command {
        command.env("LD_LIBRARY_PATH", &self.0);
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind is nobody's failure.
        let _ = fs::remove_dir_all(&self.0);
    }
}

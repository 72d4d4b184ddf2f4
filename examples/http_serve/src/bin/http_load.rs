//! Load on the server, and what it does under it: on the simulated device, beside the same server in which a thread sleeps in place of the device.
//!
//! ```text
//! cargo build --release && cargo run --release --bin http_load -- --seconds 60 --rounds 2 --json load.jsonl
//! ```
//!
//! Both take turns, in an order that turns around each round. The load is that of `wrk` (Debian: apt-get install wrk): connections that ask again as soon as they are answered.
//! It runs on the same machine, and so takes of its processors what the server would have: what that does to both is the same.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, process, thread};

use clap::Parser;
use serde_json::{Value, json};

/// How long a server is under load before it is looked at, seconds.
const WARM_S: u32 = 3;
/// How long a server may take to end.
const END_S_MAX: u64 = 10;
/// By how much p99 may exceed what the device and the window take together.
const P99_BY_IDEAL: f64 = 1.2;
/// The 99th of a hundred, and so on, as `wrk` prints them.
const QUANTILES: [&str; 4] = ["50%", "75%", "90%", "99%"];

/// Load on the server, on the simulated device and beside a bare sleep
#[derive(Debug, Parser)]
struct Args {
    /// For how long each server is under load in a round
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// How often each has its turn
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How many connections ask
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// How long the device takes for a batch
    #[arg(long, default_value_t = 5_000)]
    step_us: u64,
    /// How long a batch is kept open
    #[arg(long, default_value_t = 1_000)]
    window_us: u64,
    /// How many threads serve HTTP
    #[arg(long, default_value_t = 2)]
    workers: u32,
    /// A file to which a line is added for each turn
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "http_load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> io::Result<()> {
    for round in 0..args.rounds {
        let mut arms = ["sim", "sleep"];
        if round % 2 == 1 {
            arms.reverse();
        }
        for arm in arms {
            let record = turn(args, arm, round)?;
            writeln!(io::stdout(), "{record}")?;
            if let Some(file) = &args.json {
                let mut file = OpenOptions::new().create(true).append(true).open(file)?;
                writeln!(file, "{record}")?;
            }
        }
    }
    Ok(())
}

/// A server under load for so long, and what it did.
fn turn(args: &Args, arm: &str, round: u32) -> io::Result<Value> {
    let server = Server::start(args, arm)?;
    server.load(args, WARM_S)?;
    let (before, machine) = (server.stats()?, Machine::now()?);
    let start = Instant::now();
    let load = server.load(args, args.seconds)?;
    let took = start.elapsed().as_secs_f64();
    let (after, machine_after) = (server.stats()?, Machine::now()?);
    let ended_well = server.end()?;
    let grew = |key: &str| after[key].as_f64().unwrap_or(f64::NAN) - before[key].as_f64().unwrap_or(f64::NAN);
    let ideal_us = args.step_us + args.window_us;
    let p99_us = quantile(&load, "99%");
    let words: Vec<_> = env::args().skip(1).collect();
    Ok(json!({
        "case": "http_serve", "arm": arm, "round": round, "command": format!("http_load {}", words.join(" ")),
        "step_us": args.step_us, "window_us": args.window_us, "connections": args.connections, "seconds": args.seconds,
        "requests": grew("answered"), "batches": grew("batches"), "rows_a_batch": grew("rows") / grew("batches"),
        "requests_per_s": grew("answered") / took,
        "errors": errors(&load) + grew("refused") + f64::from(u8::from(!ended_well)),
        "p50_us": quantile(&load, QUANTILES[0]), "p75_us": quantile(&load, QUANTILES[1]),
        "p90_us": quantile(&load, QUANTILES[2]), "p99_us": p99_us,
        "ideal_us": ideal_us, "p99_by_ideal": p99_us.map(|us| us / micros(ideal_us)),
        "is_within": p99_us.map(|us| us <= micros(ideal_us) * P99_BY_IDEAL),
        "server_step_p50_us": after["step_us"]["p50"], "server_step_p99_us": after["step_us"]["p99"],
        "cpu_process": grew("cpu_process") / took,
        "cpu_watcher": grew("cpu_watcher") / took, "cpu_tasks": grew("cpu_tasks") / took,
        "cpu_waiting": (grew("cpu_watcher") + grew("cpu_tasks")) / took,
        "plan": after["about"]["plan"],
        "machine_idle": machine_after.share(&machine, Machine::IDLE), "machine_stolen": machine_after.share(&machine, Machine::STOLEN),
        "machine_load": fs::read_to_string("/proc/loadavg")?.split(' ').next(),
        "nice": of_this_process(NICE), "real_time_priority": of_this_process(REAL_TIME_PRIORITY),
        "processors": thread::available_parallelism().map_or(0, usize::from), "processor": processor(),
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease")?.trim(),
    }))
}

/// Where a process's priorities stand behind its name in what Linux tells of it.
const NICE: usize = 16;
const REAL_TIME_PRIORITY: usize = 37;

/// One of the priorities of this process, which its children have as well.
fn of_this_process(place: usize) -> Option<i64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(place)?.parse().ok()
}

/// The processor's name.
fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(": ")?.1.to_owned())
}

#[expect(clippy::cast_precision_loss, reason = "times of seconds at most")]
fn micros(us: u64) -> f64 {
    us as f64
}

/// A quantile in what `wrk` prints: `     99%    7.12ms`.
fn quantile(load: &str, name: &str) -> Option<f64> {
    let text = load.lines().find_map(|line| line.trim().strip_prefix(name))?.trim();
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let per_us = match &text[number.len()..] {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number * per_us)
}

/// Errors in what it prints, in two lines that are there where there are any.
fn errors(load: &str) -> f64 {
    let lines = load.lines().filter(|line| line.contains("Socket errors") || line.contains("Non-2xx"));
    let numbers = lines.flat_map(|line| line.split([' ', ',']));
    numbers.filter_map(|word| word.parse::<f64>().ok()).sum()
}

/// The program, as a process of its own.
struct Server {
    child: Child,
    address: String,
    script: PathBuf,
}

impl Server {
    fn start(args: &Args, arm: &str) -> io::Result<Self> {
        let program = env::current_exe()?.with_file_name("http_serve");
        let words = ["--device", arm, "--listen", "127.0.0.1:0"].map(OsString::from);
        let number = |name: &str, value: u64| [OsString::from(name), value.to_string().into()];
        let mut child = Command::new(program)
            .args(words)
            .args(number("--step-us", args.step_us))
            .args(number("--window-us", args.window_us))
            .args(number("--workers", args.workers.into()))
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = String::new();
        if let Some(out) = child.stdout.as_mut() {
            BufReader::new(out).read_line(&mut said)?;
        }
        let address = said.split_once("http://").and_then(|(_, rest)| rest.split(' ').next());
        let address =
            address.ok_or_else(|| io::Error::other(format!("the server said {said:?}")))?.to_owned();
        let script = env::temp_dir().join(format!("http-load-{}.lua", process::id()));
        let body = "{\"input\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]}";
        fs::write(&script, format!("wrk.method = 'POST'\nwrk.body = '{body}'\n"))?;
        Ok(Self { child, address, script })
    }

    /// What `wrk` says of so many seconds.
    fn load(&self, args: &Args, seconds: u32) -> io::Result<String> {
        let output = Command::new("wrk")
            .args(["-t1", &format!("-c{}", args.connections), &format!("-d{seconds}s"), "--latency", "-s"])
            .arg(&self.script)
            .arg(format!("http://{}/infer", self.address))
            .output()
            .map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("wrk cannot be run: {error}; Debian: apt-get install wrk"),
                )
            })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(io::Error::other(format!("wrk failed: {said}")));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn stats(&self) -> io::Result<Value> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.write_all(b"GET /stats HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        serde_json::from_str(body).map_err(io::Error::other)
    }

    /// Whether it ended by itself, and well.
    fn end(mut self) -> io::Result<bool> {
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(END_S_MAX) {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.success());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(false)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.script);
    }
}

/// What the machine's processors have done since it started, in ticks of each kind.
struct Machine(Vec<f64>);

impl Machine {
    const IDLE: usize = 3;
    const STOLEN: usize = 7;

    fn now() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/stat")?;
        let ticks = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
        Ok(Self(ticks.take(8).filter_map(|tick| tick.parse().ok()).collect()))
    }

    /// The share of one kind in all since then.
    fn share(&self, before: &Self, kind: usize) -> Option<f64> {
        let grew: Vec<_> = self.0.iter().zip(&before.0).map(|(after, before)| after - before).collect();
        Some(grew.get(kind)? / grew.iter().sum::<f64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_prints_is_understood() {
        let good = "  Latency Distribution\n     50%  981.00us\n     75%    6.01ms\n     90%  250.12ms\n     99%    1.20s \n  3 requests in 1.00s, 1KB read\n";
        assert_eq!(
            QUANTILES.map(|name| quantile(good, name)),
            [Some(981.0), Some(6_010.0), Some(250_120.0), Some(1_200_000.0)]
        );
        assert_eq!((quantile("", "50%"), errors(good)), (None, 0.0));
        let bad = format!(
            "{good}  Socket errors: connect 1, read 0, write 2, timeout 3\n  Non-2xx or 3xx responses: 40\n"
        );
        assert!((errors(&bad) - 46.0).abs() < f64::EPSILON);
    }

    #[test]
    fn shares_are_of_what_the_processors_did_meanwhile() {
        let [before, after] =
            [[5.0; 8], [6.0, 5.0, 5.0, 7.0, 5.0, 5.0, 5.0, 6.0]].map(|ticks| Machine(ticks.to_vec()));
        assert_eq!(after.share(&before, Machine::IDLE), Some(0.5));
        assert_eq!(after.share(&before, Machine::STOLEN), Some(0.25));
    }
}

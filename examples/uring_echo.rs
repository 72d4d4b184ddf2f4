//! One thread serves TCP connections on an `io_uring` while it awaits GPU work on completion words: no GPU needed. Linux.
//!
//! ```text
//! cargo run --release --example uring_echo                  # with clients of its own, a few seconds
//! cargo run --release --example uring_echo -- --port 7000   # for `nc localhost 7000`, until Ctrl-C
//! ```
//!
//! A task launches a step of 2 ms on a simulated device and awaits it, again and again; other tasks accept a connection each and send
//! back what comes. All of them share one `Executor`, whose idle sleep and whose parks on words are in the ring, so
//! that bytes and words wake the same thread.

#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::process::ExitCode;

/// What went wrong.
#[cfg_attr(
    not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))),
    allow(dead_code, reason = "nothing is tried there")
)]
enum Failure {
    /// The arguments make no sense, or help was asked for: the text, and whether it was.
    Usage(String, bool),
    /// There is no ring here, and so nothing to show.
    Fallback(String),
    /// It went wrong as it ran.
    Run(wakeline::Error),
}

impl From<wakeline::Error> for Failure {
    fn from(error: wakeline::Error) -> Self {
        Self::Run(error)
    }
}

fn main() -> ExitCode {
    let (code, text) = match echo::run() {
        Ok(text) => {
            return io::stdout().write_all(text.as_bytes()).map_or(ExitCode::SUCCESS, |()| ExitCode::SUCCESS);
        }
        Err(Failure::Usage(text, true)) => {
            // Whoever closes the output has seen enough.
            let _ = io::stdout().write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(Failure::Usage(text, false)) => (2, text),
        Err(Failure::Fallback(text)) => (1, format!("warning: {text}")),
        Err(Failure::Run(error)) => (1, error.to_string()),
    };
    let _ = writeln!(io::stderr(), "uring_echo: {text}");
    ExitCode::from(code)
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod echo {
    use super::Failure;

    pub(crate) fn run() -> Result<String, Failure> {
        let probe = wakeline_uring::Probe::run();
        Err(Failure::Fallback(format!("no io_uring: {}", probe.why_not().unwrap_or_default())))
    }
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod echo {
    use std::cell::{Cell, RefCell};
    use std::io::{self, Read as _, Write as _};
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::JoinHandle;
    use std::time::Duration;

    use clap::Parser;
    use clap::error::ErrorKind;
    use wakeline::sim::{RealTime, SimConfig, SimDevice, SimStream};
    use wakeline::{
        Clock, Error, ErrorCode, Executor, ExecutorKind, HostLine, Instant, Nanos, PointTable, Reactor,
        RunStats, Strictness, Timer, Wait, WaitPlan, drive_at, resolve,
    };
    use wakeline_measure::{Apart, Tail};
    use wakeline_std::{DeviceThread, ParkPolicy, StdClock, StdPark, TimerSlack};
    use wakeline_uring::{Probe, UringIdle, UringStats};

    use super::Failure;

    /// How long a step of the device takes.
    const STEP: Nanos = Nanos::from_millis(2);
    /// Sleep until 150 us before the predicted end, then watch the completion word.
    const PLAN: &str =
        "flag:park_us=50,backstop_us=1000+predict:margin_us=150,min_sleep_us=200,max_sleep_us=20000,window=8";
    /// The most connections at a time; others wait in the listener's queue.
    const CONNECTIONS: u16 = 64;
    /// What a connection reads at a time.
    const BUFFER_BYTES: usize = 4_096;
    /// What a client of its own sends a round.
    const MESSAGE_BYTES: usize = 64;

    type Device = SimDevice<RealTime<StdClock, fn(Nanos)>>;
    type Stream = SimStream<RealTime<StdClock, fn(Nanos)>>;

    /// Serve TCP echo on an io_uring while the same thread awaits steps of a simulated GPU.
    #[derive(Debug, Parser)]
    #[command(name = "uring_echo")]
    struct Cli {
        /// Serve others on this port of 127.0.0.1, without clients of its own, until Ctrl-C or --seconds
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
        port: Option<u16>,
        /// Go on for so long; 3 with clients of its own
        #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=86_400))]
        seconds: Option<u32>,
        /// So many clients of its own, each on a thread
        #[arg(long, value_name = "N", default_value_t = 4, conflicts_with = "port",
              value_parser = clap::value_parser!(u16).range(1..=i64::from(CONNECTIONS)))]
        clients: u16,
    }

    impl Cli {
        fn read() -> Result<Self, Failure> {
            Self::try_parse().map_err(|error| {
                let text = error.to_string();
                if error.kind() == ErrorKind::DisplayHelp {
                    return Failure::Usage(text, true);
                }
                let lines: Vec<_> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
                let line = lines.join(" ");
                let line = line.strip_prefix("error: ").unwrap_or(&line);
                Failure::Usage(format!("{line} (--help lists the arguments)"), false)
            })
        }
    }

    /// What a task does.
    enum Role {
        /// Launches and awaits step after step.
        Steps(Stream),
        /// Accepts a connection of this listener, sends back what comes, and accepts the next.
        Serve(Arc<OwnedFd>),
    }

    /// What the tasks share. All run on one thread, so cells do.
    struct Shared<'r> {
        ring: &'r UringIdle,
        reactor: Reactor<StdClock, Arc<HostLine>>,
        plan: WaitPlan,
        end: Instant,
        connections: Cell<usize>,
        echoes: Cell<u64>,
        durations: RefCell<PointTable<&'static str>>,
        /// By how much the end of each step was seen late.
        late: RefCell<Tail>,
    }

    impl Shared<'_> {
        async fn task(&self, role: Role) -> Result<(), Error> {
            match role {
                Role::Steps(stream) => self.steps(&stream).await,
                Role::Serve(listener) => self.serve(&listener).await,
            }
        }

        fn is_over(&self) -> bool {
            self.reactor.now() >= self.end
        }

        async fn steps(&self, stream: &Stream) -> Result<(), Error> {
            while !self.is_over() {
                stream.launch(STEP)?;
                let mut point = stream.point();
                let witness = point.witness();
                drive_at(&self.durations, "step", Wait::new(&self.plan), &mut point, &self.reactor, None)
                    .await?;
                let seen = self.reactor.now();
                if let Some(ended) = witness.truth().ended_at {
                    self.late.borrow_mut().record(seen.since(ended).as_nanos());
                }
            }
            Ok(())
        }

        async fn serve(&self, listener: &Arc<OwnedFd>) -> Result<(), Error> {
            while let Some(accepted) = self.unless_over(self.ring.accept(listener)).await {
                let fd = accepted.map_err(|error| failed("accept", &error))?;
                self.connections.set(self.connections.get() + 1);
                self.echo(Arc::new(fd)).await;
            }
            Ok(())
        }

        /// A connection that breaks is over; that is no failure of the server.
        async fn echo(&self, fd: Arc<OwnedFd>) {
            let mut buffer = Vec::with_capacity(BUFFER_BYTES);
            while let Some((Ok(1..), mut received)) = self.unless_over(self.ring.recv(&fd, buffer)).await {
                while !received.is_empty() {
                    let (sent, rest) = self.ring.send(&fd, received).await;
                    received = rest;
                    let Ok(sent) = sent else { return };
                    received.drain(..sent.min(received.len()));
                }
                self.echoes.set(self.echoes.get() + 1);
                buffer = received;
            }
            if let Some(fd) = Arc::into_inner(fd) {
                // What a failing close tells, nobody could use.
                let _ = self.ring.close(fd).await;
            }
        }

        /// What `future` gives, or `None` once the time is up, which is looked for now and then: dropping the future takes
        /// the operation back.
        async fn unless_over<F: Future>(&self, future: F) -> Option<F::Output> {
            let mut future = std::pin::pin!(future);
            let mut time = std::pin::pin!(self.reactor.sleep_until(self.end));
            std::future::poll_fn(|context| {
                if let std::task::Poll::Ready(output) = future.as_mut().poll(context) {
                    return std::task::Poll::Ready(Some(output));
                }
                time.as_mut().poll(context).map(|()| None)
            })
            .await
        }
    }

    fn failed(call: &'static str, error: &io::Error) -> Error {
        Error::new(ErrorCode::Backend, [&"uring_echo", &call, error])
    }

    /// A client of its own: the times of its round trips, in nanoseconds.
    fn client(address: SocketAddr, stop: &AtomicBool, clock: StdClock) -> io::Result<Vec<u64>> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut trips = Vec::new();
        let (message, mut back) = ([7; MESSAGE_BYTES], [0; MESSAGE_BYTES]);
        while !stop.load(Ordering::Relaxed) {
            let start = clock.now();
            stream.write_all(&message)?;
            stream.read_exact(&mut back)?;
            trips.push(clock.now().since(start).as_nanos());
        }
        Ok(trips)
    }

    /// Clients that stop a little before the server does.
    fn clients(
        count: u16,
        address: SocketAddr,
        seconds: u32,
        clock: StdClock,
    ) -> Vec<JoinHandle<io::Result<Vec<u64>>>> {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..count).map(|_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || client(address, &stop, clock))
        });
        let threads = threads.collect();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(seconds.into()));
            stop.store(true, Ordering::Relaxed);
        });
        threads
    }

    /// A ring, or the warning that there is none.
    fn ring(clock: StdClock) -> Result<UringIdle, Failure> {
        let probe = Probe::run();
        let declared = resolve(ExecutorKind::IoUring, Strictness::Fallback, &probe.caps())?;
        if let (ExecutorKind::GpuReactor | ExecutorKind::Naive, [warning, ..]) =
            (declared.granted(), declared.warnings())
        {
            let why = probe.why_not().unwrap_or_default();
            return Err(Failure::Fallback(format!("{}: {warning}: {why}", warning.code())));
        }
        Ok(UringIdle::new(clock)?)
    }

    pub(crate) fn run() -> Result<String, Failure> {
        let cli = Cli::read()?;
        let _slack = TimerSlack::set(TimerSlack::LEAST);
        let clock = StdClock::new();
        let ring = ring(clock)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, cli.port.unwrap_or(0)));
        let listener = listener.map_err(|error| failed("bind", &error))?;
        let address = listener.local_addr().map_err(|error| failed("getsockname", &error))?;
        let seconds = cli.seconds.or_else(|| cli.port.is_none().then_some(3));
        if cli.port.is_some() {
            // Whoever closes the output does not want to know.
            let _ = writeln!(io::stdout(), "serving on {address}");
        }
        let sleep = |length: Nanos| std::thread::sleep(Duration::from_nanos(length.as_nanos()));
        let device = Device::new(RealTime::new(clock, sleep as fn(Nanos)), SimConfig::default())?;
        let stream = device.stream()?;
        // The device and the clients shall not take the processor of this thread.
        let ((device, clients), _apart) = Apart::from(|| {
            let clients = match (cli.port, seconds) {
                (None, Some(seconds)) => clients(cli.clients, address, seconds, clock),
                _ => Vec::new(),
            };
            (DeviceThread::spawn(clock, device), clients)
        });

        let start = clock.now();
        // A little longer than the clients, so that no answer is cut off.
        let end = seconds
            .map_or(Instant::MAX, |seconds| start + Nanos::from_millis(u64::from(seconds) * 1_000 + 100));
        let shared = Shared {
            ring: &ring,
            reactor: Reactor::new(clock),
            plan: PLAN.parse()?,
            end,
            connections: Cell::new(0),
            echoes: Cell::new(0),
            durations: RefCell::new(PointTable::new(1)?),
            late: RefCell::default(),
        };
        let park = StdPark::new(&ring, ParkPolicy::default());
        let mut executor = Executor::new(&shared.reactor, &ring, &park, usize::from(CONNECTIONS) + 1)?;
        executor.spawn(shared.task(Role::Steps(stream)))?;
        let listener = Arc::new(OwnedFd::from(listener));
        for _ in 0..CONNECTIONS {
            executor.spawn(shared.task(Role::Serve(Arc::clone(&listener))))?;
        }
        let mut ended = Ok(());
        let stats = executor.run(|_, end| ended = ended.clone().and(end))?;
        ended?;
        let took = clock.now().since(start);
        drop(executor);
        device?.stop()?;
        let mut trips = Tail::default();
        for client in clients {
            let result = client.join().unwrap_or_else(|_| Err(io::Error::other("a client panicked")));
            result.map_err(|error| failed("client", &error))?.into_iter().for_each(|ns| trips.record(ns));
        }
        Ok(report(&shared, &trips, &stats, ring.stats(), took))
    }

    #[allow(clippy::cast_precision_loss, reason = "shares of some seconds, for people to read")]
    fn report(shared: &Shared<'_>, trips: &Tail, stats: &RunStats, ring: UringStats, took: Nanos) -> String {
        let us = |ns: u64| format!("{:8.1}", ns as f64 / 1e3);
        let share = |ns: u64| format!("{:5.1} %", 100.0 * ns as f64 / took.as_nanos().max(1) as f64);
        let seconds = took.as_nanos().max(1) as f64 / 1e9;
        let echoes = shared.echoes.get();
        let mut lines = vec![format!(
            "one thread, one ring: steps of {} ms awaited, {} connections served, {seconds:.1} s\n",
            STEP.as_micros() / 1_000,
            shared.connections.get()
        )];
        lines.push("            count  a second         us: p50      p99      max".to_owned());
        let mut row = |name: &str, tail: &Tail| {
            let tail = tail.quantiles();
            let [p50, p99, max] = [tail.p50_ns, tail.p99_ns, tail.max_ns].map(us);
            lines.push(format!(
                "{name:9}{:8}{:10.0}       {p50} {p99} {max}",
                tail.count,
                tail.count as f64 / seconds
            ));
        };
        if trips.quantiles().count > 0 {
            row("trips", trips);
        }
        row("steps", &shared.late.borrow());
        lines.push("\ntrips: from a client's write to its read of the answer".to_owned());
        lines.push("steps: from the true end of a step to its task".to_owned());
        lines.push(format!(
            "ring:  {echoes} echoes by {} system calls; asleep {}, parked on words {}",
            ring.enters,
            share(stats.slept_ns),
            share(stats.parked_ns)
        ));
        lines.join("\n") + "\n"
    }
}

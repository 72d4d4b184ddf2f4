//! The server as a program.
//!
//! ```text
//! cargo run --release                          # on the simulated device, http://127.0.0.1:8080
//! cargo run --release -- --device cuda         # on the first NVIDIA GPU
//! curl -d '{"input": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]}' http://127.0.0.1:8080/infer
//! ```
//!
//! SIGTERM and ctrl-c end it: what it has accepted is answered before. Without a driver `--device cuda` says so and ends with code 3.

use std::future::Future;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use http_serve::args::{Args, On};
use http_serve::device::{self, Opened};
use http_serve::error::ServeError;
use http_serve::model::Model;
use http_serve::serve::{listen, serve};
use tokio::net::TcpListener;

/// How long threads that sleep, with `--device sleep`, are waited for at the end.
const THREADS_END_MS_MAX: u64 = 1_000;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "http_serve: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(args: &Args) -> Result<(), ServeError> {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(args.workers as usize)
        .enable_all()
        .build()
        .map_err(|source| ServeError::System { what: "a runtime of tokio", source })?;
    let ended = tokio.block_on(start(args));
    tokio.shutdown_timeout(Duration::from_millis(THREADS_END_MS_MAX));
    ended
}

async fn start(args: &Args) -> Result<(), ServeError> {
    let stop = signals().map_err(|source| ServeError::System { what: "handling signals", source })?;
    let listener = listen(args).await?;
    match args.device {
        On::Sim => run_on(device::sim(args).await?, listener, args, stop).await,
        On::Cuda => run_on(device::cuda(args).await?, listener, args, stop).await,
        On::Sleep => run_on(device::sleep(args)?, listener, args, stop).await,
    }
}

async fn run_on<M: Model>(
    opened: Opened<M>,
    listener: TcpListener,
    args: &Args,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let address = listener.local_addr();
    let address = address.map_err(|source| ServeError::System { what: "the socket's address", source })?;
    // A reader that is gone needs no panic.
    let _ = writeln!(io::stdout(), "listening on http://{address} ({})", opened.about.device);
    serve(listener, opened, args, stop).await
}

/// Resolves at the first SIGTERM or ctrl-c.
#[cfg(unix)]
fn signals() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Resolves at the first ctrl-c.
#[cfg(not(unix))]
fn signals() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}

//! What the programs that need a GPU share: finding one, every host with every plan, arguments and the ways in which a program ends.
//!
//! | here | what |
//! |---|---|
//! | [`Gpu`] | a driver, and a name for records; or word that there is none |
//! | [`Failure`], [`finish`] | why a program ends early, and its exit code |
//! | [`Host`], [`PLANS`] | each way of running a wait, and each way of waiting |
//! | [`CudaMachine`] | a GPU whose operations are awaited |
//! | [`Words`], [`texts`] | arguments, one by one |

mod args;
mod hosts;
mod machine;
mod plans;

pub use args::{Words, texts};
pub use hosts::Host;
pub use machine::CudaMachine;
pub use plans::{BACKSTOP_US, PLANS, TRUSTED, learned};

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use wakeline_core::{Error, ErrorCode};
use wakeline_cuda::{Cuda, CudaContext};

use crate::plain;

/// The exit code of a program that needs a GPU and finds none.
pub const SKIPPED: u8 = 3;

/// A CUDA driver with a device.
#[derive(Clone, Debug)]
pub struct Gpu {
    cuda: Cuda,
    name: String,
}

impl Gpu {
    /// Loads the library at `driver`, or else the system's.
    ///
    /// # Errors
    ///
    /// [`Failure::NoGpu`] where there is none; [`Failure::Driver`] where the library at `driver` is not one that can be used: whoever names one
    /// is told so, and not that there is no GPU.
    pub fn open(driver: Option<&Path>) -> Result<Self, Failure> {
        let loaded = driver.map_or_else(Cuda::load, Cuda::load_from);
        let cuda = loaded.map_err(|error| match (error.code(), driver) {
            (ErrorCode::NoDevice, _) => Failure::NoGpu(error),
            (code, None) if code.is_no_device() => Failure::NoGpu(error),
            (_, Some(path)) => Failure::Driver { path: path.to_owned(), error },
            (_, None) => Failure::Wakeline(error),
        })?;
        let device = cuda.devices().next().transpose()?;
        let name = device.map_or_else(|| Ok(String::new()), |device| device.name())?;
        let name = format!("{name}, CUDA {}", cuda.version());
        Ok(Self { cuda, name })
    }

    /// The driver.
    pub const fn cuda(&self) -> &Cuda {
        &self.cuda
    }

    /// The device and the driver, for records.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first device's primary context, which is what other libraries use.
    ///
    /// # Errors
    ///
    /// As [`Cuda::context`].
    pub fn context(&self) -> Result<CudaContext, Error> {
        self.cuda.context(0)
    }
}

/// Why a program ends early.
#[derive(Debug)]
pub enum Failure {
    /// The arguments are no good.
    Usage(String),
    /// There is no GPU.
    NoGpu(Error),
    /// The driver that was named cannot be used.
    Driver {
        /// Its library, as given.
        path: PathBuf,
        /// Why not.
        error: Error,
    },
    /// What was found out cannot be written.
    Output(io::Error),
    /// A wait, the device or a host failed.
    Wakeline(Error),
    /// Something that was to be checked is not so.
    Broken(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Wakeline(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Says how `program` ended, in one line, and with which exit code: 2 for arguments, [`SKIPPED`] without a GPU, 1 for all else that failed.
pub fn finish(program: &str, result: Result<(), Failure>) -> ExitCode {
    let (code, message) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        // Who read it has seen enough.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
        Err(Failure::NoGpu(error)) => (SKIPPED, format!("skipped: no CUDA device ({error})")),
        Err(Failure::Usage(message)) => (2, format!("{program}: {message}")),
        Err(Failure::Driver { path, error }) => {
            (2, format!("{program}: `--driver {}` cannot be used: {error}", path.display()))
        }
        Err(Failure::Output(error)) => (1, format!("{program}: the results cannot be written: {error}")),
        Err(Failure::Wakeline(error)) => (1, format!("{program}: {error}")),
        Err(Failure::Broken(what)) => (1, format!("{program}: {what}")),
    };
    // Where even that cannot be written, the exit code tells.
    let _ = writeln!(io::stderr(), "{}", plain(&message));
    ExitCode::from(code)
}

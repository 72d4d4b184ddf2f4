//! This program, run again as another process for a part of a check: some things end a process's use of the driver.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant as Wall};

use wakeline_benches::gpu::Failure;
use wakeline_core::{Error, ErrorCode};

/// How long a child may take.
const LONGEST: Duration = Duration::from_secs(60);

/// Between two looks at a child.
pub(crate) const NAP: Duration = Duration::from_millis(5);

/// A process that does a part.
pub(crate) struct Child {
    process: std::process::Child,
    started: Wall,
}

/// How one ended.
pub(crate) struct Ended {
    pub(crate) took: Duration,
    /// What it printed; why it failed.
    pub(crate) said: Result<String, String>,
}

impl Child {
    /// Starts one with these arguments, which must print less than a pipe holds.
    pub(crate) fn start(args: &[&str], driver: Option<&Path>) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        let mut command = Command::new(program);
        command.args(args);
        if let Some(driver) = driver {
            command.arg("--driver").arg(driver);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = command.spawn().map_err(|error| failed(&error))?;
        Ok(Self { process, started: Wall::now() })
    }

    /// How it ended, if it has; one that takes too long is ended.
    pub(crate) fn look(&mut self) -> Result<Option<Ended>, Failure> {
        let took = self.started.elapsed();
        let status = self.process.try_wait().map_err(|error| failed(&error))?;
        let said = match status {
            Some(status) if status.success() => Ok(read(self.process.stdout.as_mut())),
            Some(status) => Err(format!("{status} {}", read(self.process.stderr.as_mut()).trim())),
            None if took > LONGEST => {
                self.process.kill().and_then(|()| self.process.wait()).map_err(|error| failed(&error))?;
                Err(format!("it had not ended after {} s", LONGEST.as_secs()))
            }
            None => return Ok(None),
        };
        Ok(Some(Ended { took, said }))
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Result<Ended, Failure> {
        loop {
            if let Some(ended) = self.look()? {
                return Ok(ended);
            }
            std::thread::sleep(NAP);
        }
    }
}

/// What is in a pipe; where it cannot be read, what was read of it so far: the status says the rest.
fn read(pipe: Option<&mut impl io::Read>) -> String {
    let mut said = Vec::new();
    if let Some(pipe) = pipe {
        let _ = pipe.read_to_end(&mut said);
    }
    String::from_utf8_lossy(&said).into_owned()
}

fn failed(error: &io::Error) -> Error {
    Error::new(ErrorCode::Backend, [&"gpu_checks", &"running itself", error])
}

//! Running other programs: one command, shown as a line that a shell would take.
//!
//! Whatever fails names the line to repeat, so a failure of `ci` is reproduced by copying it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

/// How often a child under a time limit is looked at.
const LOOK_MS: u64 = 20;

/// A program with its arguments and what differs from our environment.
#[derive(Debug)]
pub(crate) struct Cmd {
    program: OsString,
    shown_as: String,
    args: Vec<OsString>,
    envs: Vec<(&'static str, OsString)>,
    removed_envs: Vec<&'static str>,
    /// In the folder that we were started in, in place of the workspace's root.
    here: bool,
}

impl Cmd {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref().to_owned();
        let shown_as = quoted(&program);
        Self { program, shown_as, args: Vec::new(), envs: Vec::new(), removed_envs: Vec::new(), here: false }
    }

    /// The cargo that runs us, so that all steps are done by one toolchain.
    pub(crate) fn cargo() -> Self {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        Self { shown_as: "cargo".to_owned(), ..Self::new(program) }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Several plain words at once: `words("test --workspace")`.
    pub(crate) fn words(self, words: &str) -> Self {
        self.args(words.split_whitespace())
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.envs.push((name, value.as_ref().to_owned()));
        self
    }

    /// With this folder behind those that programs are looked for in.
    pub(crate) fn path_also(self, folder: &Path) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain([folder.to_owned()]);
        match std::env::join_paths(folders) {
            Ok(path) => self.env("PATH", path),
            Err(_) => self,
        }
    }

    /// Runs it where we were started: its arguments may name files from there.
    pub(crate) fn here(self) -> Self {
        Self { here: true, ..self }
    }

    pub(crate) fn without_env(mut self, names: &[&'static str]) -> Self {
        self.removed_envs.extend(names);
        self
    }

    /// Runs it with our own output.
    ///
    /// # Errors
    /// It cannot be started, or it fails.
    pub(crate) fn run(&self) -> Result<()> {
        println!("  $ {self}");
        let status = self.command().stdin(Stdio::null()).status().with_context(|| self.cannot_start())?;
        self.check(status)
    }

    /// Runs it with our own output and without naming it there; its exit code is for us to pass on.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn run_for_code(&self) -> Result<ExitCode> {
        let status = self.command().stdin(Stdio::null()).status().with_context(|| self.cannot_start())?;
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
    }

    /// Runs it with our own output, and ends it when it is not done after `limit`.
    ///
    /// # Errors
    /// As [`Cmd::run`], or the time is up.
    pub(crate) fn run_within(&self, limit: Duration) -> Result<()> {
        println!("  $ {self}");
        let mut child = self.command().stdin(Stdio::null()).spawn().with_context(|| self.cannot_start())?;
        match wait_until(&mut child, Instant::now() + limit)? {
            Some(status) => self.check(status),
            None => Err(anyhow!("not done after {} s, ended; to repeat: {self}", limit.as_secs())),
        }
    }

    /// Runs it with nothing shown, and ends it when it is not done after `limit`.
    ///
    /// # Errors
    /// As [`Cmd::run_within`].
    pub(crate) fn run_quietly_within(&self, limit: Duration) -> Result<()> {
        println!("  $ {self}");
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| self.cannot_start())?;
        match wait_until(&mut child, Instant::now() + limit)? {
            Some(status) => self.check(status),
            None => Err(anyhow!("not done after {} s, ended; to repeat: {self}", limit.as_secs())),
        }
    }

    /// Runs it, handing every line of its standard output to `line` on top of showing it.
    ///
    /// # Errors
    /// As [`Cmd::run`].
    pub(crate) fn run_reading(&self, mut line: impl FnMut(&str)) -> Result<()> {
        println!("  $ {self}");
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| self.cannot_start())?;
        if let Some(output) = child.stdout.take() {
            for read in BufReader::new(output).lines() {
                let read = read?;
                println!("{read}");
                line(&read);
            }
        }
        self.check(child.wait()?)
    }

    /// Its standard output, as text; standard error is ours.
    ///
    /// # Errors
    /// As [`Cmd::run`], or the output is no UTF-8.
    pub(crate) fn read(&self) -> Result<String> {
        let mut command = self.command();
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = command.output().with_context(|| self.cannot_start())?;
        self.check(output.status)?;
        String::from_utf8(output.stdout).with_context(|| format!("`{self}` printed no UTF-8"))
    }

    /// Both outputs as text, unshown; they are part of the error where it fails.
    ///
    /// # Errors
    /// As [`Cmd::run`].
    pub(crate) fn read_quietly(&self) -> Result<(String, String)> {
        let output = self.command().stdin(Stdio::null()).output().with_context(|| self.cannot_start())?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            return Ok((stdout, stderr));
        }
        let said = format!("{stdout}{stderr}");
        Err(self.check(output.status).err().map_or_else(|| anyhow!("it failed"), |e| e.context(said)))
    }

    /// Pipes its standard output into `next`.
    ///
    /// # Errors
    /// Either cannot be started or fails.
    pub(crate) fn pipe_into(&self, next: &Self) -> Result<()> {
        let mut first = self.command();
        first.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut first = first.spawn().with_context(|| self.cannot_start())?;
        let between = first.stdout.take().context("the pipe is missing")?;
        let second = next.command().stdin(between).status().with_context(|| next.cannot_start())?;
        self.check(first.wait()?)?;
        next.check(second)
    }

    /// Whether it can be started and succeeds; shows nothing.
    pub(crate) fn works(&self) -> bool {
        self.read_quietly().is_ok()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for name in &self.removed_envs {
            command.env_remove(name);
        }
        command.args(&self.args).envs(self.envs.iter().map(|(name, value)| (name, value)));
        if !self.here {
            command.current_dir(crate::workspace::root());
        }
        command
    }

    fn check(&self, status: ExitStatus) -> Result<()> {
        if status.success() {
            return Ok(());
        }
        bail!("failed ({status}); to repeat: {self}")
    }

    fn cannot_start(&self) -> String {
        format!("cannot start `{}`", Path::new(&self.program).display())
    }
}

/// As a shell line: `NAME='value' program arguments`.
impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.envs {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str(&self.shown_as)?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Waits for `child` until `end`, then ends it.
fn wait_until(child: &mut Child, end: Instant) -> Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(LOOK_MS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_lines_can_be_pasted_into_a_shell() {
        let cmd = Cmd::cargo().words("doc --workspace").arg("a b").env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(cmd.to_string(), "RUSTDOCFLAGS='-D warnings' cargo doc --workspace 'a b'");
        assert_eq!(quoted(OsStr::new("it's")), r"'it'\''s'");
    }

    #[test]
    fn failures_name_the_line_to_repeat() {
        let error = Cmd::new("false").arg("x").run().unwrap_err().to_string();
        assert!(error.contains("to repeat: false x"), "{error}");
        assert!(!Cmd::new("no-such-program-of-ours").works());
    }

    #[test]
    fn a_child_past_its_limit_is_ended() {
        let started = Instant::now();
        let error = Cmd::new("sleep").arg("60").run_within(Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("not done after"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}

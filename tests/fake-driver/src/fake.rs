//! A test's handle to one loaded copy of the library.
//!
//! It speaks to that copy through one symbol, `wakeline_fake_control`, resolved from that copy: see `wire`.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::fmt;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde::de::DeserializeOwned;

use crate::locate::{Copied, FakeError};
use crate::wire::{Call, Live, Options, Request, Rule, RuleId};

/// Takes the bytes of an answer.
type Sink = extern "C" fn(*mut c_void, *const u8, usize);
/// `wakeline_fake_control`.
type Control = unsafe extern "C" fn(*const u8, usize, Sink, *mut c_void) -> c_int;

/// One instance of the fake driver, apart from all others. Its calls may be made from any thread.
///
/// Dropping it lets go of the calls that its rules block, and removes its file; the library stays loaded.
pub struct Fake {
    path: PathBuf,
    control: Control,
    /// Its file, where it is the handle's own.
    copied: Option<Copied>,
}

impl Fake {
    /// Loads a copy of its own.
    ///
    /// # Errors
    /// The built library is neither beside the running program nor in the folder above, or it cannot be copied or loaded.
    pub fn new() -> Result<Self, FakeError> {
        let copied = Copied::new()?;
        let mut fake = Self::at(copied.path())?;
        fake.copied = Some(copied);
        Ok(fake)
    }

    /// A handle to the copy at `path`, which is loaded if it is not yet: for programs that find the driver by its name, in a folder that they
    /// are told to look in. Of one file there is one instance in a process, however it was found; the file is left alone.
    ///
    /// # Errors
    /// It cannot be loaded, or is another library.
    pub fn at(path: impl Into<PathBuf>) -> Result<Self, FakeError> {
        let path = path.into();
        let failed = |source| FakeError::Load { path: path.clone(), source };
        // SAFETY: the library is built from this package; what it does when it is loaded is what std does for any.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }.map_err(failed)?;
        // SAFETY: the symbol is a function of that type: `driver/control.rs` of this package.
        let control = *unsafe { library.get::<Control>(b"wakeline_fake_control\0") }.map_err(failed)?;
        // Threads of the library run in it until the process ends, so it is never unloaded.
        let _ = library.into_raw();
        Ok(Self { path, control, copied: None })
    }

    /// The file that the loader under test is to open: the copy this handle has loaded.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How it behaves now.
    pub fn options(&self) -> Options {
        self.ask(&Request::Options)
    }

    /// Changes how it behaves, at any time. Operations keep the lags they were enqueued with.
    pub fn configure(&self, change: impl FnOnce(&mut Options)) {
        let mut options = self.options();
        change(&mut options);
        self.ask::<()>(&Request::SetOptions(options));
    }

    /// Adds a rule. Where several fit a call, the first that was added and is not used up acts.
    pub fn rule(&self, rule: Rule) -> RuleId {
        self.ask(&Request::Rule(rule))
    }

    /// How often the rule has acted.
    pub fn hits(&self, rule: RuleId) -> u64 {
        self.ask(&Request::Hits(rule))
    }

    /// Removes all rules. What they block stays blocked until it is released.
    pub fn clear_rules(&self) {
        self.ask::<()>(&Request::ClearRules);
    }

    /// Lets all calls go on that a rule blocks now.
    pub fn release(&self) {
        self.ask::<()>(&Request::Release);
    }

    /// How many calls a rule blocks now.
    pub fn blocked(&self) -> u64 {
        self.ask(&Request::Blocked)
    }

    /// How many calls came, of an exported name or of all that are this name but for `_v2`. A call counts when it comes.
    pub fn calls(&self, name: &str) -> u64 {
        self.ask(&Request::Calls(name.to_owned()))
    }

    /// The calls that ended, oldest first; the last [`Options::log_len_max`] of them.
    pub fn log(&self) -> Vec<Call> {
        self.ask(&Request::Log)
    }

    /// Empties the log, and sets the counts of calls back.
    pub fn clear_log(&self) {
        self.ask::<()>(&Request::ClearLog);
    }

    /// What no program may do to a driver, and somebody did.
    pub fn violations(&self) -> Vec<String> {
        self.ask(&Request::Violations)
    }

    /// Forgets the violations so far: for a test that commits them on purpose.
    pub fn forgive(&self) {
        self.ask::<()>(&Request::Forgive);
    }

    /// The priority of the stream with this handle; 0 of one that is not there.
    pub fn priority(&self, stream: u64) -> i32 {
        self.ask(&Request::Priority(stream))
    }

    /// How many free bytes the default pool of this device keeps when somebody synchronizes.
    pub fn release_threshold(&self, device: i32) -> u64 {
        self.ask(&Request::ReleaseThreshold(device))
    }

    /// What is not given back yet.
    pub fn live(&self) -> Live {
        self.ask(&Request::Live)
    }

    /// Makes it as it was when it was new, but for the options: no context, nothing live, no rule, an empty log, `cuInit` to
    /// be called again. Loading one takes longer than most tests, so many rows of one table may share it, each after the
    /// other. Calls that are blocked go on; what still runs in a stream is gone.
    pub fn reset(&self) {
        self.ask::<()>(&Request::Reset);
    }

    /// The driver's symbols that the library exports.
    pub fn symbols(&self) -> Vec<String> {
        self.ask(&Request::Symbols)
    }

    /// # Panics
    /// The loaded library does not understand: it was not built from the source this program was.
    #[allow(clippy::panic)]
    fn ask<T: DeserializeOwned>(&self, request: &Request) -> T {
        extern "C" fn take(user: *mut c_void, bytes: *const u8, len: usize) {
            // SAFETY: the control function hands its `user` on, which is the vector below; nobody else uses it now.
            let answer = unsafe { &mut *user.cast::<Vec<u8>>() };
            // SAFETY: the control function lends `len` bytes for the length of this call.
            answer.extend_from_slice(unsafe { core::slice::from_raw_parts(bytes, len) });
        }

        let mut answer = Vec::<u8>::new();
        let status = match serde_json::to_vec(request) {
            Ok(bytes) => {
                let user = (&raw mut answer).cast();
                // SAFETY: the bytes and the vector outlive the call, and the sink takes the vector that goes with it.
                unsafe { (self.control)(bytes.as_ptr(), bytes.len(), take, user) }
            }
            Err(error) => panic!("{request:?} cannot be written: {error}"),
        };
        match serde_json::from_slice(&answer) {
            Ok(answer) if status == 0 => answer,
            _ => panic!("the fake driver does not know {request:?}: build it again"),
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.clear_rules();
        self.release();
    }
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fake")
            .field("path", &self.path)
            .field("own", &self.copied.is_some())
            .finish_non_exhaustive()
    }
}

/// The calling thread, as the log names it: Linux's number of it.
pub fn thread_id() -> u64 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs().into()
}

//! A library of collectives, loaded by its name: from that to functions of known interfaces, or to an error that says why not.
//!
//! Invariants: nothing is linked, no environment is read here, no failure panics; an opened library is never closed, for it keeps threads of its own.

use core::ffi::{CStr, c_char, c_int};
use core::fmt;
use core::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode};
use wakeline_ops::port::{UNIQUE_ID_BYTES, UniqueId};

use super::sys::{Functions, RawId, RawResult, SUCCESS, VERSION_LEAST};
use crate::driver::WorkDriver;
use crate::library::Opened;

/// A vendor with a library of collectives. The same type is its [`WorkDriver`].
pub trait CollectiveVendor: WorkDriver {
    /// What messages call it: "NCCL".
    const COLLECTIVES: &'static str;
    /// Its library by its names, in the order in which they are tried.
    const COLLECTIVE_LIBRARIES: &'static [&'static str];
    /// How its kernels are loaded before their first use: what messages name.
    const LOADS_EARLY: &'static str;
}

/// Has a job that may block run on a thread of its own: what a host supplies, `on_a_thread` of `wakeline-std` say. It MUST NOT run it on the calling thread.
pub type Spawn = Arc<dyn Fn(Box<dyn FnOnce() + Send>) -> Result<(), Error> + Send + Sync>;

/// A vendor's library of collectives, loaded. Cheap to clone.
///
/// Its calls may block: they are made on a thread for each communicator's ranks of this process, which the host supplies and which ends with them. Where a library is so old that it has
/// no calls that come back at once (before 2.14), an abort is made on another such thread, and a rank that never joins keeps the first one for good.
pub struct CollectiveLibrary<V> {
    pub(super) loaded: Arc<Loaded>,
    vendor: PhantomData<fn() -> V>,
}

pub(super) struct Loaded {
    pub(super) functions: Functions,
    pub(super) spawn: Spawn,
    version: c_int,
    name: String,
}

impl<V> Clone for CollectiveLibrary<V> {
    fn clone(&self) -> Self {
        Self { loaded: Arc::clone(&self.loaded), vendor: PhantomData }
    }
}

impl<V> fmt::Debug for CollectiveLibrary<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectiveLibrary")
            .field("name", &self.loaded.name)
            .field("version", &self.loaded.version)
            .finish_non_exhaustive()
    }
}

impl<V: CollectiveVendor> CollectiveLibrary<V> {
    /// Loads the first of the vendor's libraries that the system finds, by the names in [`CollectiveVendor::COLLECTIVE_LIBRARIES`].
    ///
    /// # Errors
    ///
    /// [`CollectivesMissing`](ErrorCode::CollectivesMissing): no library of these names can be loaded, or it lacks a function that is used, or is too old.
    pub fn load<S>(spawn: S) -> Result<Self, Error>
    where
        S: Fn(Box<dyn FnOnce() + Send>) -> Result<(), Error> + Send + Sync + 'static,
    {
        Self::of(None, Arc::new(spawn))
    }

    /// Loads this library, and no other. It runs with all rights of the process: name none that you would not link.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub fn load_from<S>(path: impl AsRef<Path>, spawn: S) -> Result<Self, Error>
    where
        S: Fn(Box<dyn FnOnce() + Send>) -> Result<(), Error> + Send + Sync + 'static,
    {
        Self::of(Some(path.as_ref()), Arc::new(spawn))
    }

    fn of(path: Option<&Path>, spawn: Spawn) -> Result<Self, Error> {
        let names = V::COLLECTIVE_LIBRARIES;
        let tried = path.map_or_else(|| names.join(", "), |path| path.display().to_string());
        let missing =
            |why: &dyn fmt::Display| Error::new(ErrorCode::CollectivesMissing, [&V::NAME, &tried, why]);
        let library = Opened::open(V::NAME, path, names).map_err(|error| {
            // What the system said.
            missing(&error.args().get(2).map_or("", String::as_str))
        })?;
        // SAFETY: a library exports the functions of collectives under their names, and stays.
        let functions = unsafe { Functions::find(|name| library.exported(name)) };
        let name = library.name().to_owned();
        let functions = functions.map_err(|absent| {
            missing(&format!("{name} has no `{absent}`, as every {} of 2.10 or later has", V::COLLECTIVES))
        })?;
        let mut version = 0;
        // SAFETY: `version` is a number's room.
        let result = unsafe { (functions.version)(&raw mut version) };
        if result != SUCCESS {
            return Err(missing(&format!("{name} fails in ncclGetVersion ({result})")));
        }
        if version < VERSION_LEAST {
            return Err(missing(&format!(
                "{name} is {} of version {version}, before 2.10 ({VERSION_LEAST})",
                V::COLLECTIVES
            )));
        }
        Ok(Self { loaded: Arc::new(Loaded { functions, spawn, version, name }), vendor: PhantomData })
    }

    /// Its release, as it numbers them: 22603 is 2.26.3.
    pub fn version(&self) -> u32 {
        self.loaded.version.unsigned_abs()
    }

    /// The name or path by which it was loaded.
    pub fn name(&self) -> &str {
        &self.loaded.name
    }

    /// Whether it has calls that come back at once: then a rank that never comes keeps no thread.
    pub fn is_nonblocking(&self) -> bool {
        self.loaded.functions.init_config.is_some()
    }

    pub(super) fn make_id(&self) -> Result<UniqueId, Error> {
        let id = self.raw_id().map_err(|result| self.failed("ncclGetUniqueId", result))?;
        Ok(UniqueId::from_bytes(id.internal.map(|byte| byte.to_ne_bytes()[0])))
    }

    pub(super) fn raw_id(&self) -> Result<RawId, RawResult> {
        let mut id = RawId { internal: [0; UNIQUE_ID_BYTES] };
        // SAFETY: `id` is the room of one.
        match unsafe { (self.loaded.functions.unique_id)(&raw mut id) } {
            SUCCESS => Ok(id),
            failed => Err(failed),
        }
    }

    /// The error of a call that has failed so.
    #[cold]
    pub(super) fn failed(&self, call: &str, result: RawResult) -> Error {
        let functions = &self.loaded.functions;
        // SAFETY: it takes any number.
        let name = unsafe { (functions.says)(result) };
        // SAFETY: it is null, or a text that stays.
        let name = unsafe { text(name) };
        // SAFETY: of no communicator it gives this thread's last, or null.
        let last = functions.last.map(|last| unsafe { last(core::ptr::null_mut()) });
        // SAFETY: it is null, or a text that stays until the next failure.
        let last = last.map(|last| unsafe { text(last) }).unwrap_or_default();
        let said = match (name.is_empty(), last.is_empty()) {
            (true, _) => format!("{} said {result}", V::COLLECTIVES),
            (false, true) => format!("{name} ({result})"),
            (false, false) => format!("{name} ({result}): {last}"),
        };
        Error::new(ErrorCode::CommunicatorFailed, [&V::NAME, &call, &said])
    }
}

/// A text of the library's.
///
/// # Safety
///
/// It is null, or ends with a zero and stays for this call.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned()
}

pub(super) fn raw_id(id: &UniqueId) -> RawId {
    RawId { internal: id.as_bytes().map(|byte| c_char::from_ne_bytes([byte])) }
}

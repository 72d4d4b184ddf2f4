//! Coded errors: a number, a template and the arguments that fill it.
//!
//! Programs match on [`ErrorCode`], people read the text; nothing is ever matched by text. Numbers are
//! append-only: a code keeps its number and its meaning for good.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $number:literal $name:ident $template:literal,)*) => {
        /// What kind of error or warning it is. Append-only: numbers are never changed or reused.
        ///
        /// ```
        /// use wakeline_core::ErrorCode;
        /// assert_eq!(ErrorCode::InvalidPlan as u16, 0x0001);
        /// assert_eq!(ErrorCode::Timeout.to_string(), "0x0009 Timeout");
        /// ```
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum ErrorCode { $($(#[$doc])* $name = $number,)* }

        impl ErrorCode {
            /// Every code, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The text with a `{}` for each argument.
            pub const fn template(self) -> &'static str {
                match self { $(Self::$name => $template,)* }
            }

            /// The code's name, as in the source.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

codes! {
    /// A plan or band text that cannot be read. Arguments: the text, the column (from 1, in characters), what is wrong and what would be right.
    0x0001 InvalidPlan "invalid plan `{}`, column {}: {}",
    /// Warning: no word wait in hardware. Arguments: why not, what parks instead.
    0x0002 ParkFallback "no word wait in hardware ({}): parking by {} instead",
    /// Warning: an executor was replaced. Arguments: what was asked for, why it cannot run, what runs.
    0x0003 ExecutorFallback "executor `{}` cannot run here ({}): running `{}` instead",
    /// An executor cannot run here and strict settings forbid another. Arguments: what was asked for, why it cannot run.
    0x0004 ExecutorRefused "executor `{}` cannot run here ({}), and a fallback is refused; ask for another or allow fallbacks",
    /// An executor name that does not exist. Arguments: the text, the column (from 1, in characters), what is wrong and what would be right.
    0x0005 InvalidExecutor "unknown executor `{}`, column {}: {}",
    /// A future pended in an inline run, where nothing could wake it. Arguments: none.
    0x0006 PendedInline "the future pended in an inline run, where nothing could wake it; hand it ports that wait on the calling thread, or run it on an executor",
    /// Tasks are left but nothing can wake them. Arguments: how many tasks.
    0x0007 Stalled "stalled with {} task(s) left: nothing is registered and no waker of theirs is alive, so nothing could ever wake them",
    /// A driver call failed. Arguments: the backend, the call, the status.
    0x0008 Backend "{}: {} failed: {}",
    /// The deadline passed before the point completed. Arguments: the sequence number awaited, what its word read last, the time waited.
    0x0009 Timeout "timed out waiting for sequence {}: the word read {} after {}; nothing in flight was freed",
    /// The wait was cancelled; the work goes on. Arguments: the sequence number awaited, what its word read last, the time waited.
    0x000A Cancelled "cancelled while waiting for sequence {}: the word read {} after {}; the work goes on and nothing in flight was freed",
    /// A slot index beyond the line. Arguments: the index, the highest there is.
    0x000B InvalidSlot "slot {} is out of range: a completion line has slots 0 to {}",
    /// The driver says done, but the trusted word was never stored. Arguments: the sequence number awaited, what its word reads.
    0x000C StoreLost "the driver says done, but the word of sequence {} reads {}: its store was lost; wait with a strict `flag` (without `+trust`), which survives that",
    /// No room for another task. Arguments: the limit.
    0x000D ExecutorFull "the executor is full: it was made for at most {} task(s)",
    /// A setting that cannot be read. Arguments: its name, its value, what is wrong and what would be right.
    0x000E InvalidSetting "invalid setting {}=`{}`: {}",
    /// A blocking wait that this port cannot bound. Arguments: the backend.
    0x000F BlockUnbounded "{} cannot end a blocking wait at a deadline: use a `poll` or `flag` plan, or block on a helper of the host",
    /// The limit of a bounded resource is out of range. Arguments: what is limited, the value, the smallest and the largest allowed.
    0x0010 InvalidLimit "{} is {}, but must be from {} to {}",
    /// A watcher has no room for another flight. Arguments: the limit.
    0x0011 WatcherFull "the watcher is full: it was made for at most {} flight(s) at a time",
    /// A watcher was closed before the wait had ended, or before it began. Arguments: none.
    0x0012 WatcherClosed "the watcher was closed before the wait had ended; the work goes on and nothing in flight was freed",
    /// A blocking wait found no thread to block. Arguments: how many there may be.
    0x0013 HelpersBusy "all {} helper thread(s) are in driver calls that have not returned; use a `poll` or `flag` plan, or allow more helpers",
    /// A wait was polled after it had ended. Arguments: none.
    0x0014 PolledAfterEnd "the wait was polled after it had ended: its result was given before",
    /// No room for another named point. Arguments: the name, the limit.
    0x0015 PointsFull "no room for the point `{}`: there may be {} point(s), and every one keeps its name",
    /// No driver library could be loaded. Arguments: the backend, the names tried, what the system's loader said.
    0x0016 LibraryMissing "{}: no driver library could be loaded: tried {} ({}); install the device's driver, or name its library by path",
    /// A library lacks a function without which nothing works. Arguments: the backend, the library, the symbol, what needs it and since when drivers have it.
    0x0017 SymbolMissing "{}: the library {} has no `{}`, which is needed for {}; load the library that comes with the device's driver",
    /// A library that is only for linking against was loaded. Arguments: the backend, the library, what it said.
    0x0018 LibraryStub "{}: the library {} is a stub for linking programs and drives no device ({}); load the one that comes with the device's driver, not the one of a toolkit",
    /// A driver does not do. Arguments: the backend, what was found, what is needed.
    0x0019 DriverTooOld "{}: the driver does not do: found {}, needed {}; update the device's driver",
    /// A driver without a device. Arguments: the backend, what the driver said.
    0x001A NoDevice "{}: the driver is there, but finds no device ({}); check that the device is plugged in and this process may see it",
    /// Warning: words are stored in another way than asked for. Arguments: what was asked for, why it cannot run, what runs.
    0x001B CompletionFallback "completion by `{}` cannot run here ({}): running `{}` instead",
    /// Words cannot be stored as asked for and strict settings forbid another way. Arguments: what was asked for, why it cannot run.
    0x001C CompletionRefused "completion by `{}` cannot run here ({}), and a fallback is refused; ask for another or allow fallbacks",
    /// A stream was handed to a context that is not its own. Arguments: the backend, the stream, the context it belongs to, the context it was handed to.
    0x001D ForeignStream "{}: stream {} belongs to {} and not to {}: hand it to its own",
    /// A point of a stream that is being captured. Arguments: the backend, the stream.
    0x001E StreamCapturing "{}: stream {} is being captured, so nothing of it can be awaited; end the capture and await its launch",
    /// The driver was initialised before this process was forked off. Arguments: the backend.
    0x001F Forked "{}: the driver was loaded before this process was forked off, and does not work here; fork before loading it, or run a program of its own",
    /// Something new was asked of a context that was closed. Arguments: the backend.
    0x0020 ContextClosed "{}: the context was closed",
    /// A context could not be closed in time. Arguments: the backend, milliseconds waited, handles in use, words into which stores have not landed.
    0x0021 ContextInUse "{}: the context is in use after {} ms: {} handle(s), stream(s), port(s) or line(s), {} word(s) whose stores have not landed; nothing was freed",
    /// No word is left for another stream. Arguments: the backend, how many there may be.
    0x0022 SlotsFull "{}: no completion word is left for another stream: the context was made for {}; drop some, or make it for more",
    /// A device operation was awaited or run where no runtime for its device is bound. Arguments: none.
    0x0023 NoRuntime "no runtime is bound here for this operation's device: call `.on(&runtime)`, or await it within `runtime.scope(..)`",
    /// Something of the host was asked for while the device may still write it. Arguments: what.
    0x0024 StillInFlight "{} is still in flight: await the operation that gives it",
    /// Memory of one runtime was used by another's operation. Arguments: none.
    0x0025 ForeignMemory "a tensor belongs to another runtime: use it where it was made, or bring its numbers over by way of the host",
    /// There is not that much memory. Arguments: the backend, what sort of memory, how many bytes were asked for, what stands in the way.
    0x0026 OutOfMemory "{}: out of {} memory: {} bytes were asked for ({})",
    /// An operation was executed within the submission of another. Arguments: none.
    0x0027 NestedExecution "an operation was executed in a closure that runs while another is submitted: return it from the closure instead, so that it becomes part of that one; in a graph's scope `record` it; or allow this by `then_unchecked`",
    /// A shared operation came to be executed within its own execution. Arguments: none.
    0x0028 SharedReentered "a shared operation was executed within its own execution: it would wait for itself",
    /// A shared operation is still being submitted by another thread. Arguments: how many milliseconds were waited.
    0x0029 SharedBusy "a shared operation is still being submitted by another thread after {} ms: its closures must not wait for whoever uses it",
    /// A shared operation panicked while it was submitted. Arguments: none.
    0x002A SharedPanicked "a shared operation panicked while it was submitted: nobody has its value",
    /// A value in an `Arc` cannot be taken out. Arguments: how many others have it.
    0x002B ArcShared "the value is also held by {} other(s): drop their clones before `unwrap_arc`",
    /// A gate was opened by its deadline. Arguments: how long it was closed.
    0x002C GateTimedOut "a gate was opened by its deadline after {}: whoever holds it had not; what was behind it has run",
    /// A gate was opened since its handle was dropped. Arguments: none.
    0x002D GateDropped "a gate was opened because its handle was dropped, and not by `open`; what was behind it has run",
    /// A runtime whose flights have not all ended in time. Arguments: how many are in flight, the time waited.
    0x002E NotDrained "{} operation(s) are still in flight after {}: nothing of them was ended or freed; wait for longer, or close what tends them, which leaks what they keep",
    /// A shape that no tensor has, or that does not fit. Arguments: the shape, what is wrong and what would be right.
    0x002F InvalidShape "shape {}: {}",
    /// What is to be written is named by others, who would see it change. Arguments: what it is, how many others name it.
    0x0030 TensorShared "{} is also named by {} other handle(s), view(s) or operation(s) that did not run yet: drop them, or write to a copy",
    /// No compiler of kernels could be loaded. Arguments: the backend, the names tried, what the system's loader said.
    0x0031 CompilerMissing "{}: no run-time compiler could be loaded: tried {} ({}); install the toolkit's, name it by path, or load kernels that are compiled",
    /// A source of kernels that does not compile. Arguments: the backend, its name, what the compiler returned, the compiler's log.
    0x0032 CompileFailed "{}: {} does not compile ({}): {}",
    /// A source includes a header that is not there. Arguments: the backend, the source's name, the header, the folders looked in.
    0x0033 HeaderMissing "{}: {} includes `{}`, which is in none of these folders: {}; install the toolkit's headers, or name the folder that has it",
    /// A compiler does not know an architecture. Arguments: the backend, the compiler, the architecture, those that it knows.
    0x0034 ArchUnsupported "{}: {} cannot compile for {}: it knows {}; load another release of the compiler",
    /// An image of kernels that cannot be loaded. Arguments: the backend, what is wrong and what would be right.
    0x0035 InvalidImage "{}: the image of kernels cannot be loaded: {}",
    /// A kernel takes other arguments than it was bound with. Arguments: its name, what it takes, what it was bound with.
    0x0036 KernelMismatch "kernel `{}` takes {}, but was bound with {}",
    /// A kernel cannot be launched in this way here. Arguments: the backend, the way, why not.
    0x0037 LaunchUnsupported "{}: no kernel can be launched {} here: {}",
    /// A folder cannot be used as a cache. Arguments: the folder, what is wrong.
    0x0038 CacheFolder "the folder {} cannot be used as a cache: {}",
    /// A kernel does not do with these arguments. Arguments: its name, the condition that does not hold, the arguments.
    0x0039 InvalidArguments "kernel `{}` asks for `{}`, which does not hold for {}",
    /// There is no room in the queue of a stream behind a gate that may be closed. Arguments: how many entries were asked for, how many are taken, how many there are.
    0x003A QueueFull "{} more entries were to be enqueued in a stream whose queue has {} of at most {}, and a gate that is closed may be in front of them, so that room cannot be waited for: enqueue less ahead, or open the gate first; many operations go a few at a time by `join_all`",
    /// Something cannot be recorded in a graph. Arguments: what, what to do instead.
    0x003B CaptureRefused "{} cannot be part of a graph: {}",
    /// What was captured cannot be made into a graph that can be launched. Arguments: the backend, the node that is the reason, why.
    0x003C GraphRefused "{}: what was captured cannot be launched as a graph because of {}: {}",
    /// A graph cannot be changed so. Arguments: the backend, the node that is the reason, why.
    0x003D GraphMismatch "{}: the graph cannot be changed so because of {}: {}",
    /// No library of collectives can be used. Arguments: the backend, the names tried, why not.
    0x003E CollectivesMissing "{}: no library of collectives can be used: tried {} ({}); install it, or name it by path",
    /// A collective cannot be done with what it was handed. Arguments: the operation, what is wrong and what would be right.
    0x003F InvalidCollective "{} cannot be done so: {}",
    /// A communicator has failed, for good. Arguments: the backend, the call or the rank that is the reason, what it said.
    0x0040 CommunicatorFailed "{}: the communicator has failed by {}: {}; make another with the ranks that are there",
    /// Ranks did not all come, or not all end, in time; the communicator is aborted. Arguments: what was waited for, how long.
    0x0041 RankMissing "{} did not end within {}: a rank has not come, or is gone; the communicator is aborted, so make another with the ranks that are there",
    /// Devices of one machine that are not of one driver. Arguments: the number of the one, the number of the other.
    0x0042 DevicesApart "device {} of a machine has another driver than device {}, so that neither can wait for the other: load the driver once, or have a machine for each",
    /// No device of a machine takes operations. Arguments: how many there are, the last fault.
    0x0043 DevicesOut "none of the {} device(s) of the machine takes operations any more: {}",
    /// An operation was not submitted, since nobody would see it to its end. Arguments: why nobody would.
    0x0044 Unwatched "nothing was submitted, since {}: run it on the spot by `sync`, or make a runtime whose watcher is there for as long",
    /// A library's call that begins a collective has not come back in time; the communicator is aborted. Arguments: what was waited for, how long, the library, how its kernels are loaded early.
    0x0045 LibraryStuck "{} did not end within {}: the ranks of this process have all come to it, but {} has not come back from the call that begins it; a kernel that is loaded at its first use waits for all that the device is at, and that may wait for this: have kernels loaded early ({}), or await a first collective of each kind behind joining, while the streams are idle; of ranks in other processes one may be missing, too; the communicator is aborted, so make another",
}

impl ErrorCode {
    /// Whether it says that there is no device here, or no driver that does, rather than that something is wrong with one: where a
    /// program falls back to something else, or skips.
    ///
    /// ```
    /// use wakeline_core::ErrorCode;
    /// assert!(ErrorCode::LibraryMissing.is_no_device() && !ErrorCode::Backend.is_no_device());
    /// ```
    pub const fn is_no_device(self) -> bool {
        matches!(
            self,
            Self::LibraryMissing
                | Self::SymbolMissing
                | Self::LibraryStub
                | Self::DriverTooOld
                | Self::NoDevice
        )
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x} {}", *self as u16, self.name())
    }
}

/// An error or a warning: its [`ErrorCode`], its arguments and, where there is one, its cause.
///
/// Cheap to clone, so that one fault can end many waits. Displays as the code's template with the
/// arguments filled in.
///
/// ```
/// use wakeline_core::{Error, ErrorCode};
/// let error = Error::new(ErrorCode::Backend, [&"sim", &"query", &"device lost"]);
/// assert_eq!(error.code(), ErrorCode::Backend);
/// assert_eq!(error.args(), ["sim", "query", "device lost"]);
/// assert_eq!(error.to_string(), "sim: query failed: device lost");
/// ```
#[derive(Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    code: ErrorCode,
    args: Vec<String>,
    source: Option<Arc<dyn core::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of this code; `args` fill the template's `{}` in order. Allocates: errors are off the hot path.
    pub fn new<const N: usize>(code: ErrorCode, args: [&dyn fmt::Display; N]) -> Self {
        debug_assert_eq!(
            code.template().matches("{}").count(),
            N,
            "{code} takes another number of arguments"
        );
        let args = args.iter().map(ToString::to_string).collect();
        Self { inner: Arc::new(Inner { code, args, source: None }) }
    }

    /// The same error with its cause.
    #[must_use]
    pub fn with_source(self, source: impl core::error::Error + Send + Sync + 'static) -> Self {
        let Inner { code, args, .. } = &*self.inner;
        Self { inner: Arc::new(Inner { code: *code, args: args.clone(), source: Some(Arc::new(source)) }) }
    }

    /// What kind it is; match on this.
    pub fn code(&self) -> ErrorCode {
        self.inner.code
    }

    /// The arguments, as listed at the [`ErrorCode`].
    pub fn args(&self) -> &[String] {
        &self.inner.args
    }
}

impl fmt::Debug for Error {
    /// `0x000B InvalidSlot: slot 8 is out of range: ..`: what a `main` that returns it prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.code())?;
        self.inner.source.as_ref().map_or(Ok(()), |source| write!(f, " (caused by: {source})"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut args = self.inner.args.iter();
        let mut pieces = self.inner.code.template().split("{}");
        f.write_str(pieces.next().unwrap_or_default())?;
        for piece in pieces {
            f.write_str(args.next().map_or("?", String::as_str))?;
            f.write_str(piece)?;
        }
        Ok(())
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.inner.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_by_one_from_1() {
        for (index, code) in ErrorCode::ALL.iter().enumerate() {
            assert_eq!(usize::from(*code as u16), index + 1, "{code}");
        }
    }

    #[test]
    fn an_argument_with_braces_is_kept_as_it_is() {
        let error = Error::new(ErrorCode::InvalidPlan, [&"{}{}", &1, &"x"]);
        assert_eq!(error.to_string(), "invalid plan `{}{}`, column 1: x");
    }

    #[test]
    fn the_cause_is_kept() {
        let cause = Error::new(ErrorCode::InvalidSlot, [&9, &7]);
        let error = Error::new(ErrorCode::Backend, [&"sim", &"arm", &"bad slot"]).with_source(cause);
        let source = core::error::Error::source(&error).unwrap();
        assert!(source.to_string().contains("slot 9"), "{source}");
        let debug = alloc::format!("{error:?}");
        assert!(debug.starts_with("0x0008 Backend: sim: arm failed: bad slot (caused by: slot 9"), "{debug}");
    }
}

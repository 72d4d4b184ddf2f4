//! cudarc: its stream, on which all arms' work is launched, and its own ways of waiting for it.

use core::fmt::Display;
use std::sync::Arc;

use cudarc::driver::{CudaContext as TheirContext, CudaEvent, CudaStream, DriverError, sys::CUevent_flags};
use wakeline_benches::ab::device::RawWay;
use wakeline_core::{Error, ErrorCode};
use wakeline_cuda::{CuStream, Cuda, CudaContext, FromCudarc as _};

/// What records call it: the line of versions that the manifest asks for.
const FAMILY: &str = "cudarc 0.19";

/// A stream of cudarc's.
#[derive(Clone, Debug)]
pub(crate) struct Theirs(Arc<CudaStream>);

fn failed(what: &dyn Display, error: DriverError) -> Error {
    Error::new(ErrorCode::Backend, [&"cudarc", what, &error]).with_source(error)
}

impl Theirs {
    /// Makes it in the first device's primary context; and the same stream as ours.
    pub(crate) fn open(cuda: &Cuda) -> Result<(Self, CuStream), Error> {
        let device = TheirContext::new(0).map_err(|error| failed(&"opening the device", error))?;
        let stream = device.new_stream().map_err(|error| failed(&"making a stream", error))?;
        // Refuses a stream of another library than ours.
        let context = CudaContext::from_cudarc(cuda, &stream)?;
        let ours = CuStream::from_cudarc(&context, &stream)?;
        Ok((Self(stream), ours))
    }

    /// Its ways of waiting.
    pub(crate) fn ways(&self) -> Result<[Box<dyn RawWay>; 3], Error> {
        let event = |name, flags| {
            let made = self.0.context().new_event(flags);
            let event = made.map_err(|error| failed(&"making an event", error))?;
            Ok::<_, Error>(Box::new(Event { name, stream: Arc::clone(&self.0), behind: event }))
        };
        Ok([
            Box::new(Synchronize(Arc::clone(&self.0))),
            event("cudarc-event", None)?,
            event("cudarc-event-block", Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC))?,
        ])
    }
}

/// `CudaStream::synchronize`.
struct Synchronize(Arc<CudaStream>);

impl RawWay for Synchronize {
    fn name(&self) -> &'static str {
        "cudarc-sync"
    }

    fn family(&self) -> &'static str {
        FAMILY
    }

    fn wait(&self) -> Result<(), Error> {
        self.0.synchronize().map_err(|error| failed(&"synchronizing", error))
    }
}

/// An event behind the work, and `CudaEvent::synchronize`.
struct Event {
    name: &'static str,
    stream: Arc<CudaStream>,
    behind: CudaEvent,
}

impl RawWay for Event {
    fn name(&self) -> &'static str {
        self.name
    }

    fn family(&self) -> &'static str {
        FAMILY
    }

    fn wait(&self) -> Result<(), Error> {
        self.behind.record(&self.stream).map_err(|error| failed(&"recording an event", error))?;
        self.behind.synchronize().map_err(|error| failed(&"waiting for an event", error))
    }
}

//! cuda-async: an operation of nothing behind the work, waited for and awaited in its own ways.
#![allow(unsafe_code, reason = "a stream is lent to it")]

use core::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;

use cuda_async::device_operation::{DeviceOp as _, value};
use cuda_async::error::DeviceError;
use cuda_async::scheduling_policies::SingleStream;
use cuda_core::{Context, Stream};
use tokio::runtime::{Builder, Runtime};
use wakeline_benches::ab::device::{CudaBench, RawWay};
use wakeline_core::{Error, ErrorCode};

const FAMILY: &str = "cuda-async 0.5.0";

/// How many workers the runtime with several threads has.
const WORKERS: usize = 2;

fn failed(what: &dyn Display, error: &dyn Display) -> Error {
    Error::new(ErrorCode::Backend, [&"cuda-async", what, error])
}

/// How it waits.
enum How {
    Sync,
    /// On this thread.
    Await(Runtime),
    /// In a task of a runtime with several.
    Workers(Runtime),
}

struct Way {
    name: &'static str,
    how: How,
    stream: Rc<Lent>,
}

/// The stream that work is launched on, as cuda-async has streams.
struct Lent {
    stream: Arc<Stream>,
    policy: Arc<SingleStream>,
}

/// Its ways of waiting for work of `device`, which outlives them.
pub(crate) fn ways(device: &CudaBench) -> Result<Vec<Box<dyn RawWay + '_>>, Error> {
    // The primary context, which is the device's too.
    let context = Context::new(0).map_err(|error| failed(&"opening the device", &error))?;
    let raw = device.steps().stream().raw().as_ptr();
    // SAFETY: the stream is alive for as long as `device`, which the ways borrow; nobody destroys it meanwhile, and it is of the primary context.
    let stream = unsafe { Stream::borrow_raw(raw, &context) };
    let policy = Arc::new(SingleStream::from_stream(Arc::clone(&stream)));
    let stream = Rc::new(Lent { stream, policy });
    let built = |mut builder: Builder| builder.build().map_err(|error| failed(&"building a runtime", &error));
    let one = built(Builder::new_current_thread())?;
    let mut several = Builder::new_multi_thread();
    several.worker_threads(WORKERS);
    let several = built(several)?;
    let hows = [
        ("cuda-async-sync", How::Sync),
        ("cuda-async-await", How::Await(one)),
        ("cuda-async-await-workers", How::Workers(several)),
    ];
    let way = |(name, how)| Box::new(Way { name, how, stream: Rc::clone(&stream) }) as Box<dyn RawWay>;
    Ok(hows.into_iter().map(way).collect())
}

impl RawWay for Way {
    fn name(&self) -> &'static str {
        self.name
    }

    fn family(&self) -> &'static str {
        FAMILY
    }

    fn has_threads(&self) -> bool {
        // Its reactor, or the driver's thread that calls it; and workers.
        !matches!(self.how, How::Sync)
    }

    fn wait(&self) -> Result<(), Error> {
        let failed = |error: DeviceError| failed(&"waiting", &error);
        match &self.how {
            How::Sync => value(()).sync_on(&self.stream.stream).map_err(failed),
            How::Await(runtime) => {
                let future = value(()).schedule(&*self.stream.policy).map_err(failed)?;
                runtime.block_on(future).map_err(failed)
            }
            How::Workers(runtime) => {
                let future = value(()).schedule(&*self.stream.policy).map_err(failed)?;
                let task = runtime.spawn(future);
                runtime
                    .block_on(task)
                    .map_err(|error| self::failed(&"running a task", &error))?
                    .map_err(failed)
            }
        }
    }
}

//! The start-up probe: does a store land at all?

use std::sync::Arc;
use std::time::{Duration, Instant};

use wakeline_core::Error;

use crate::driver::LineDriver;
use crate::error::CallError;
use crate::inner::Inner;
use crate::path::{CompletionPath, Probe};
use crate::stream::Stream;

/// How long the probe watches the word without a pause.
const SPIN: Duration = Duration::from_micros(200);

/// Between two looks after that.
const NAP: Duration = Duration::from_micros(50);

/// Tries a store out on a stream of its own.
///
/// A device may say that streams can store words, take the store, and never carry it out.
#[derive(Debug)]
pub(crate) struct Prober<D: LineDriver> {
    inner: Arc<Inner<D>>,
    within: Duration,
}

impl<D: LineDriver> Prober<D> {
    pub(crate) fn new(inner: &Arc<Inner<D>>, within: Duration) -> Self {
        Self { inner: Arc::clone(inner), within }
    }
}

impl<D: LineDriver> Probe for Prober<D> {
    fn stores(&self, path: CompletionPath) -> Result<(), String> {
        let stream = Stream::make(&self.inner, 0, false).map_err(|error| reason(&error))?;
        let word = stream.shared().store_by(path).map_err(|error| reason(&error))?;
        let Some(word) = word else {
            return Err("the driver says that it is not supported".into());
        };
        let start = Instant::now();
        while !word.reached() {
            let elapsed = start.elapsed();
            if elapsed > self.within {
                return Err(format!(
                    "a store on an idle stream was taken but had not landed after {} ms",
                    self.within.as_millis()
                ));
            }
            if elapsed < SPIN { core::hint::spin_loop() } else { std::thread::sleep(NAP) }
        }
        Ok(())
    }
}

/// Why not, with the call that failed.
fn reason(error: &Error) -> String {
    match core::error::Error::source(error).and_then(|source| source.downcast_ref::<CallError>()) {
        Some(call) => format!("{} failed: {call}", call.call),
        None => error.to_string(),
    }
}

//! Words that kernels of one stream store, and that go back behind the last of these kernels.

use core::sync::atomic::{AtomicBool, Ordering};

use wakeline_core::{CompletionPort, Error, Seq, Status};

use crate::wait::{CuStream, CudaKernelWord};

/// Words that kernels of one stream store and nobody awaits.
#[derive(Debug)]
pub(crate) struct StreamWords<const N: usize> {
    stream: CuStream,
    /// `None` once they were given back.
    words: Option<[CudaKernelWord; N]>,
    /// A kernel was launched that is perhaps not of this stream.
    stray: AtomicBool,
}

impl<const N: usize> StreamWords<N> {
    /// Takes words of the stream's context.
    pub(crate) fn new(stream: &CuStream) -> Result<Self, Error> {
        let context = stream.context();
        let mut words = Vec::with_capacity(N);
        for _ in 0..N {
            let word = context.kernel_word()?;
            // Times in nanoseconds since 1970, which come next, are within 2^62 of it.
            word.set(Seq::ZERO);
            words.push(word);
        }
        Ok(Self { stream: stream.clone(), words: words.try_into().ok(), stray: AtomicBool::new(false) })
    }

    /// The stream.
    pub(crate) const fn stream(&self) -> &CuStream {
        &self.stream
    }

    /// The words; none while they are being given back.
    pub(crate) const fn all(&self) -> Option<&[CudaKernelWord; N]> {
        self.words.as_ref()
    }

    /// To be asked after each launch: a capture may have begun between the look before it and the launch, and then the kernel is in a
    /// graph, which may run at any time.
    pub(crate) fn look(&self) -> Result<(), Error> {
        self.doubt(self.stream.ready())
    }

    /// Passes on what a look at the stream gave that was made after a launch.
    pub(crate) fn doubt<T>(&self, looked: Result<T, Error>) -> Result<T, Error> {
        looked.inspect_err(|_| self.stray.store(true, Ordering::Release))
    }
}

impl<const N: usize> Drop for StreamWords<N> {
    fn drop(&mut self) {
        let Some(words) = self.words.take() else { return };
        if *self.stray.get_mut() {
            // They are set aside.
            return;
        }
        let idle = self.stream.port().and_then(|mut port| port.query());
        for word in words {
            if matches!(idle, Ok(Status::Done)) {
                // SAFETY: all kernels that store it were launched on this stream, which has nothing left to run.
                unsafe { word.retire() };
            } else {
                // SAFETY: all kernels that store it were launched on this stream, before this; they store times in nanoseconds, or nothing.
                unsafe { word.retire_behind(&self.stream) };
            }
        }
    }
}

//! What all suites share: kernels of given lengths that tell when they ended, and how this thread waits.

use wakeline_benches::gpu::Gpu;
use wakeline_core::{
    Clock, CompletionPort, Error, Inline, Instant, Nanos, Report, Status, Wait, drive, run_inline,
};
use wakeline_cuda::kernels::TimedSteps;
use wakeline_cuda::{Answer, Calls, CuStream, CudaContext, CudaKernelWord, CudaPort};
use wakeline_std::{ParkPolicy, StdClock, StdIdle, StdPark};

/// How long a word is watched without a nap: longer than any kernel here.
const SPIN_US: u32 = ParkPolicy::SPIN_US_LIMIT;

/// How long a nap would be.
const NAP_US: u32 = 50;

/// A stream of a GPU, kernels for it, and a word that they can store themselves.
pub(crate) struct Bench {
    pub(crate) clock: StdClock,
    pub(crate) context: CudaContext,
    pub(crate) steps: TimedSteps<StdClock>,
    pub(crate) word: CudaKernelWord,
    /// How this thread waits: made once, as a program that waits all the time does.
    idle: StdIdle,
    park: StdPark,
}

impl Bench {
    pub(crate) fn new(gpu: &Gpu) -> Result<Self, Error> {
        let (clock, context) = (StdClock::new(), gpu.context()?);
        let steps = TimedSteps::new(&context.stream()?, clock)?;
        let word = context.kernel_word()?;
        let park = StdPark::new(StdIdle::new(clock), ParkPolicy::new(SPIN_US, NAP_US)?);
        Ok(Self { clock, context, steps, word, idle: StdIdle::new(clock), park })
    }

    pub(crate) fn stream(&self) -> &CuStream {
        self.steps.stream()
    }

    /// An armed point behind all that was launched.
    pub(crate) fn armed(&self) -> Result<CudaPort, Error> {
        self.stream().armed_port()
    }

    /// Looks at the word of `port` all the time: what everything is compared with. When it was seen.
    pub(crate) fn spin(&self, port: &CudaPort) -> Instant {
        while port.poll() != wakeline_core::Wake::Reached {
            core::hint::spin_loop();
        }
        self.clock.now()
    }

    /// The same, then asks the driver of the point's event, or of the stream, until it says done.
    pub(crate) fn ask(&self, whom: Answer) -> Result<Instant, Error> {
        let calls = Calls::new(&self.context, self.stream())?;
        calls.record()?;
        self.spin(&self.armed()?);
        loop {
            let status = match whom {
                Answer::Event => calls.query_event(),
                Answer::Stream => calls.query_stream(),
            };
            if status? == Status::Done {
                return Ok(self.clock.now());
            }
        }
    }

    /// Waits on this thread, which spins wherever it watches the word; and when it was known.
    pub(crate) fn wait<P: CompletionPort>(
        &self,
        wait: Wait,
        port: &mut P,
    ) -> (Instant, Result<Report, Error>) {
        let host = Inline::new(self.clock, &self.idle, &self.park);
        let result = run_inline(drive(wait, port, &host, None)).and_then(core::convert::identity);
        (self.clock.now(), result)
    }

    /// How long after the end of the step that was launched at `launched` it was `known`. Below zero by no more than the clocks are apart.
    pub(crate) fn late_ns(&self, launched: Instant, known: Instant) -> Result<i64, Error> {
        Ok(since(known, self.steps.ended(launched)?))
    }
}

/// From `earlier` to `later`, in nanoseconds; below zero where they are the other way round.
pub(crate) fn since(later: Instant, earlier: Instant) -> i64 {
    let ns = |length: Nanos| i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
    ns(later.since(earlier)) - ns(earlier.since(later))
}

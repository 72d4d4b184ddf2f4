//! Waits that Metal's own threads wake: no watcher, and no thread for a wait.

use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;

use wakeline_core::{Clock, CompletionPort, Instant, Timer, Wake, Watch};

use crate::driver::MetalDriver;
use crate::port::SharedEventPort;

/// A host whose waits for words are ended by the event's listener or the buffer's handler, on whichever runtime the host's timer is of.
///
/// A word is then no shorter way than a callback, but a task costs no thread and no spin. The plan's `park_us` is how long a timer of the host's is set for:
/// make it as long as the backstop.
///
/// ```
/// use wakeline_core::{Nanos, Outcome, Wait, WaitPlan, drive, run_inline};
/// use wakeline_fake_metal::FakeMetal;
/// use wakeline_metal::{Device, Notified, Stream};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualHost, VirtualTime};
/// # use wakeline_core::{Clock, Instant, Timer};
///
/// let simulated = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let stream = Stream::new(&Device::system(FakeMetal::new(&simulated))?, simulated.time().clone())?;
/// let buffer = stream.buffer()?;
/// buffer.work(Nanos::from_micros(250));
/// let mut port = stream.submit(&buffer)?;
///
/// let host = VirtualHost::new(&simulated); // with tokio: its clock and timer
/// let plan: WaitPlan = "flag:park_us=2000,backstop_us=2000+trust".parse()?;
/// let report = run_inline(drive(Wait::new(&plan), &mut port, &Notified::new(&host), None))??;
/// assert_eq!(report.outcome(), Some(Outcome::Trusted));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Notified<'h, H>(&'h H);

impl<'h, H: Clock + Timer> Notified<'h, H> {
    /// By this host's clock and timer.
    pub const fn new(host: &'h H) -> Self {
        Self(host)
    }
}

impl<H: Clock> Clock for Notified<'_, H> {
    fn now(&self) -> Instant {
        self.0.now()
    }
}

impl<H: Timer> Timer for Notified<'_, H> {
    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> {
        self.0.sleep_until(at)
    }

    fn yield_now(&self) -> impl Future<Output = ()> {
        self.0.yield_now()
    }
}

impl<D: MetalDriver, C: Clock + Clone, H: Timer> Watch<SharedEventPort<D, C>> for Notified<'_, H> {
    async fn watch(&self, port: &SharedEventPort<D, C>, until: Instant) -> Wake {
        let mut sleep = pin!(self.0.sleep_until(until));
        poll_fn(|context| {
            // Known first and looked for then: who stores the word wakes after that.
            port.signal().waker().register(context.waker());
            match port.poll() {
                Wake::Reached => Poll::Ready(Wake::Reached),
                Wake::Woke => sleep.as_mut().poll(context).map(|()| port.poll()),
            }
        })
        .await
    }
}

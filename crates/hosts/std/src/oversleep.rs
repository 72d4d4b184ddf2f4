//! Measuring how late this machine wakes a sleeper.

use alloc::vec::Vec;

use wakeline_core::{Clock, Error, ErrorCode, Nanos};

use crate::clock::StdClock;

/// The most samples that [`Oversleep::measure`] takes.
pub const OVERSLEEP_SAMPLES_MAX: u32 = 10_000;

/// By how much sleeps of one length ended late, as a sorted sample.
///
/// It depends on the machine, on the length of the sleep (a virtual processor that slept longer wakes later)
/// and on the thread's [`TimerSlack`](crate::TimerSlack): measure on the kind of thread that will wait.
///
/// ```
/// use wakeline_core::Nanos;
/// use wakeline_std::{Oversleep, StdClock};
/// let oversleep = Oversleep::measure(StdClock::new(), Nanos::from_micros(100), 20)?;
/// assert!(oversleep.quantile(0.5) <= oversleep.quantile(0.99));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Oversleep {
    length: Nanos,
    /// Sorted, never empty.
    samples: Vec<Nanos>,
}

impl Oversleep {
    /// Sleeps `samples` times for `length` on the calling thread: takes their product and a little more.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidLimit`] when `samples` is not from 1 to [`OVERSLEEP_SAMPLES_MAX`].
    pub fn measure(clock: StdClock, length: Nanos, samples: u32) -> Result<Self, Error> {
        if !(1..=OVERSLEEP_SAMPLES_MAX).contains(&samples) {
            return Err(Error::new(
                ErrorCode::InvalidLimit,
                [&"the number of samples", &samples, &1, &OVERSLEEP_SAMPLES_MAX],
            ));
        }
        let mut samples: Vec<Nanos> = (0..samples)
            .map(|_| {
                let at = clock.now() + length;
                clock.sleep_until(at);
                clock.now().since(at)
            })
            .collect();
        samples.sort_unstable();
        Ok(Self { length, samples })
    }

    /// How long the sleeps were meant to be.
    pub fn length(&self) -> Nanos {
        self.length
    }

    /// All samples, ascending.
    pub fn samples(&self) -> &[Nanos] {
        &self.samples
    }

    /// The lateness that a share `q` of the sleeps stayed within, by nearest rank; `q` is clamped to 0 to 1.
    pub fn quantile(&self, q: f64) -> Nanos {
        // At most 10,000 samples: exact in an f64, and a rank never leaves the range.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let rank = (q.clamp(0.0, 1.0) * self.samples.len() as f64).ceil() as usize;
        self.samples.get(rank.saturating_sub(1)).copied().unwrap_or(Nanos::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_ranks() {
        let samples: Vec<Nanos> = (1..=10).map(Nanos::from_nanos).collect();
        let oversleep = Oversleep { length: Nanos::ZERO, samples };
        for (q, ns) in [(-1.0, 1), (0.0, 1), (0.1, 1), (0.11, 2), (0.5, 5), (0.99, 10), (1.0, 10), (9.0, 10)]
        {
            assert_eq!(oversleep.quantile(q), Nanos::from_nanos(ns), "{q}");
        }
        assert_eq!(oversleep.quantile(f64::NAN), Nanos::from_nanos(1));
    }

    #[test]
    fn no_samples_and_too_many_are_refused() {
        for samples in [0, OVERSLEEP_SAMPLES_MAX + 1] {
            let error = Oversleep::measure(StdClock::new(), Nanos::ZERO, samples).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidLimit);
        }
    }
}

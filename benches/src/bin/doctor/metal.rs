//! Whether Metal gives a device and what its points need.

use serde::Serialize;

use crate::report::Coded;

/// What there is.
#[derive(Debug, Serialize)]
pub(crate) struct Metal {
    /// Whether this system has Metal at all.
    pub(crate) built: bool,
    /// Whether it gives a device, a queue, a shared event and a command buffer.
    pub(crate) works: bool,
    /// What it does not give.
    pub(crate) error: Option<Coded>,
}

impl Metal {
    /// Asks for each of them, once; nothing is committed.
    #[cfg(target_vendor = "apple")]
    pub(crate) fn ask() -> Self {
        use wakeline::metal;
        let device = metal::Device::system(metal::Metal::new());
        let made = device
            .and_then(|device| metal::Stream::new(&device, wakeline_std::StdClock::new()))
            .and_then(|stream| stream.buffer());
        let error = made.err().as_ref().map(Coded::from);
        Self { built: true, works: error.is_none(), error }
    }

    /// It is Apple's alone.
    #[cfg(not(target_vendor = "apple"))]
    pub(crate) fn ask() -> Self {
        Self { built: false, works: false, error: None }
    }

    /// For people.
    pub(crate) fn text(&self) -> &str {
        match (self.built, self.works, &self.error) {
            (false, ..) => "no: only Apple's systems have it",
            (true, true, _) => "gives a device, a queue, a shared event and a command buffer",
            (true, false, Some(error)) => &error.text,
            (true, false, None) => "unknown",
        }
    }
}

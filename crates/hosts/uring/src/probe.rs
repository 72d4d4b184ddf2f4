//! Whether the kernel lets this process have a ring, and if not, why.

use std::io;

use wakeline_core::{Error, ErrorCode, HostCaps};

/// Whether a ring that this host needs can be made here: what [`resolve`](wakeline_core::resolve) wants to know.
///
/// Makes a ring of four entries and closes it again: some 50 us. Where `io_uring` is absent, that is a declared fallback: hand
/// [`caps`](Self::caps) to `resolve`, and the executor granted comes with a coded warning.
///
/// ```
/// use wakeline_core::{ErrorCode, ExecutorKind, Strictness, resolve};
/// use wakeline_uring::Probe;
///
/// let probe = Probe::run();
/// let executor = resolve(ExecutorKind::IoUring, Strictness::Fallback, &probe.caps())?;
/// match executor.granted() {
///     ExecutorKind::IoUring => assert_eq!(probe.works(), Some(true)),
///     _ => assert_eq!(executor.warnings()[0].code(), ErrorCode::ExecutorFallback),
/// }
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Probe {
    works: Option<bool>,
    why_not: Option<String>,
    sysctl_disabled: Option<u32>,
}

impl Probe {
    /// Tries it. Reads one file of `/proc`; allocates.
    pub fn run() -> Self {
        Self::of(make(), sysctl_disabled())
    }

    /// `None`: not here, nothing was tried.
    fn of(made: Option<io::Result<()>>, sysctl_disabled: Option<u32>) -> Self {
        let (works, why_not) = match made {
            Some(Ok(())) => (Some(true), None),
            Some(Err(error)) => (Some(false), Some(why_not(&error, sysctl_disabled))),
            None => (None, Some("not here: only Linux on x86-64 and aarch64 is supported".to_owned())),
        };
        Self { works, why_not, sysctl_disabled }
    }

    /// Whether it worked; `None` where it is not tried, since this is no such system.
    pub fn works(&self) -> Option<bool> {
        self.works
    }

    /// Why not, for people: the sysctl first, since it is what can be changed.
    pub fn why_not(&self) -> Option<&str> {
        self.why_not.as_deref()
    }

    /// `/proc/sys/kernel/io_uring_disabled`: 0 for all, 1 for privileged processes only, 2 for nobody. `None` where there is no
    /// such file, as before Linux 6.6.
    pub fn sysctl_disabled(&self) -> Option<u32> {
        self.sysctl_disabled
    }

    /// What this host offers: a park by naps, and `io_uring` where it works. Add
    /// [`WORD_WAIT`](HostCaps::WORD_WAIT) where a probe found one.
    pub fn caps(&self) -> HostCaps {
        let mut caps = HostCaps::NAP_PARK;
        caps.set(HostCaps::IO_URING, self.works == Some(true));
        caps
    }

    /// The same as a result.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Backend`] with the reason, as making a ring gives it.
    pub fn result(&self) -> Result<(), Error> {
        match &self.why_not {
            None => Ok(()),
            Some(why) => Err(Error::new(ErrorCode::Backend, [&"io_uring", &"io_uring_setup", why])),
        }
    }
}

/// The error of a ring that could not be made.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn refused(error: io::Error) -> Error {
    let why = why_not(&error, sysctl_disabled());
    Error::new(ErrorCode::Backend, [&"io_uring", &"io_uring_setup", &why]).with_source(error)
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere there is nothing to try")]
fn make() -> Option<io::Result<()>> {
    Some(crate::ring::try_one())
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn make() -> Option<io::Result<()>> {
    None
}

fn sysctl_disabled() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?.trim().parse().ok()
}

fn why_not(error: &io::Error, sysctl_disabled: Option<u32>) -> String {
    match (error.kind(), sysctl_disabled) {
        (io::ErrorKind::PermissionDenied, Some(level @ 1..)) => {
            let whom = if level == 1 { "unprivileged processes" } else { "all processes" };
            format!("EPERM: the sysctl kernel.io_uring_disabled={level} forbids it to {whom}")
        }
        (io::ErrorKind::PermissionDenied, _) => {
            "EPERM: a sandbox (seccomp, as containers have by default) forbids it".to_owned()
        }
        // Only one with a number comes from the kernel; the other is that of a kernel that is too old.
        (io::ErrorKind::Unsupported, _) if error.raw_os_error().is_some() => {
            "ENOSYS: the kernel has none, or a sandbox hides it".to_owned()
        }
        (io::ErrorKind::OutOfMemory, _) => "ENOMEM: the limit of locked memory is too low".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use wakeline_core::{ExecutorKind, Strictness, resolve};

    #[test]
    fn a_system_without_rings_says_so_and_offers_naps() {
        let probe = Probe::of(None, None);
        assert_eq!((probe.works(), probe.caps()), (None, HostCaps::NAP_PARK));
        assert!(probe.why_not().unwrap().starts_with("not here"));
        let error = probe.result().unwrap_err();
        assert_eq!(error.code(), ErrorCode::Backend);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn each_refusal_is_named() {
        let said = |errno, sysctl| why_not(&io::Error::from_raw_os_error(errno), sysctl);
        assert!(said(libc::EPERM, Some(2)).contains("io_uring_disabled=2 forbids it to all"));
        assert!(said(libc::EPERM, Some(1)).contains("io_uring_disabled=1 forbids it to unprivileged"));
        assert!(said(libc::EPERM, Some(0)).contains("seccomp"));
        assert!(said(libc::EPERM, None).starts_with("EPERM"));
        assert!(said(libc::ENOSYS, None).starts_with("ENOSYS"));
        assert!(said(libc::ENOMEM, Some(0)).starts_with("ENOMEM"));
        assert!(!said(libc::EIO, None).is_empty());
        let old = io::Error::new(io::ErrorKind::Unsupported, "too old");
        assert_eq!(why_not(&old, None), "too old");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_refused_ring_is_a_declared_fallback() {
        for errno in [libc::ENOSYS, libc::EPERM, libc::ENOMEM, libc::EMFILE] {
            let probe = Probe::of(Some(Err(io::Error::from_raw_os_error(errno))), Some(0));
            assert_eq!(probe.works(), Some(false));
            let granted = resolve(ExecutorKind::IoUring, Strictness::Fallback, &probe.caps()).unwrap();
            assert_eq!(granted.granted(), ExecutorKind::GpuReactor);
            assert_eq!(granted.warnings()[0].code(), ErrorCode::ExecutorFallback);
            let strict = resolve(ExecutorKind::IoUring, Strictness::Strict, &probe.caps());
            assert_eq!(strict.unwrap_err().code(), ErrorCode::ExecutorRefused);
        }
    }
}

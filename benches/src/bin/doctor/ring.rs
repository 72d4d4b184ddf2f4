//! `io_uring`: whether the kernel lets this process make one.

use std::io;

use serde::Serialize;

use crate::parse;

/// What became of the attempt.
#[derive(Debug, Serialize)]
pub(crate) struct Ring {
    /// `None` where it was not tried.
    pub(crate) works: Option<bool>,
    /// Why not.
    pub(crate) why_not: Option<String>,
    /// `/proc/sys/kernel/io_uring_disabled`: 0 for all, 1 for privileged processes only, 2 for nobody.
    pub(crate) sysctl_disabled: Option<u32>,
}

impl Ring {
    /// Makes a ring of two entries and closes it again.
    pub(crate) fn probe() -> Self {
        let sysctl_disabled =
            parse::read("/proc/sys/kernel/io_uring_disabled").and_then(|text| text.trim().parse().ok());
        let (works, why_not) = match make() {
            Some(Ok(())) => (Some(true), None),
            Some(Err(error)) => (Some(false), Some(why_not(&error, sysctl_disabled))),
            None => (None, Some("it is not tried on this system".to_owned())),
        };
        Self { works, why_not, sysctl_disabled }
    }
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere there is nothing to try")]
fn make() -> Option<io::Result<()>> {
    Some(io_uring::IoUring::new(2).map(drop))
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn make() -> Option<io::Result<()>> {
    None
}

/// The error in words: the sysctl first, since it is what can be changed.
fn why_not(error: &io::Error, sysctl_disabled: Option<u32>) -> String {
    match (error.kind(), sysctl_disabled) {
        (io::ErrorKind::PermissionDenied, Some(level @ 1..)) => {
            let whom = if level == 1 { "unprivileged processes" } else { "all processes" };
            format!("EPERM: the sysctl kernel.io_uring_disabled={level} forbids it to {whom}")
        }
        (io::ErrorKind::PermissionDenied, _) => {
            "EPERM: a sandbox (seccomp, as containers have by default) forbids it".to_owned()
        }
        (io::ErrorKind::Unsupported, _) => "ENOSYS: the kernel has none, or a sandbox hides it".to_owned(),
        (io::ErrorKind::OutOfMemory, _) => "ENOMEM: the limit of locked memory is too low".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_is_named() {
        let said = |errno, sysctl| why_not(&io::Error::from_raw_os_error(errno), sysctl);
        let (eperm, enomem, enosys) = (1, 12, 38);
        assert!(said(eperm, Some(2)).contains("io_uring_disabled=2 forbids it to all"));
        assert!(said(eperm, Some(1)).contains("io_uring_disabled=1 forbids it to unprivileged"));
        assert!(said(eperm, Some(0)).contains("seccomp"));
        assert!(said(eperm, None).starts_with("EPERM"));
        assert!(said(enosys, None).starts_with("ENOSYS"));
        assert!(said(enomem, Some(0)).starts_with("ENOMEM"));
        assert!(!said(5, None).is_empty());
    }
}

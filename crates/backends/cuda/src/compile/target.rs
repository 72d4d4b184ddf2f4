//! What code is made: machine code for the device, or a text for its driver to compile.

use core::fmt;

use wakeline_core::{Error, ErrorCode};

use super::nvrtc::Facts;
use super::options::CompileOptions;
use crate::arch::Arch;
use crate::error::BACKEND;

/// What code is made, as compilers write it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Target {
    /// Machine code of an architecture, which those of its generation run.
    Machine(Arch),
    /// Machine code that only this architecture runs.
    Specific(Arch),
    /// A text in PTX for an architecture, which the driver compiles for it and every later one.
    Text(Arch),
    /// The same for this architecture only.
    SpecificText(Arch),
}

impl Target {
    /// What is made for a device: machine code where the compiler knows the device's architecture, and else the newest PTX that it can make.
    ///
    /// # Errors
    ///
    /// [`ArchUnsupported`](ErrorCode::ArchUnsupported): the compiler knows only later ones; or not this one, and nothing else will do.
    pub(super) fn for_device(device: Arch, facts: &Facts, options: &CompileOptions) -> Result<Self, Error> {
        let known = facts.archs.contains(&device);
        let newest = facts.archs.iter().rev().find(|arch| **arch <= device);
        match (known, options.is_specific(), options.wants_ptx(), newest) {
            (true, true, true, _) => Ok(Self::SpecificText(device)),
            (true, true, false, _) => Ok(Self::Specific(device)),
            (true, false, false, _) => Ok(Self::Machine(device)),
            (_, false, _, Some(newest)) => Ok(Self::Text(*newest)),
            _ => {
                let compiler = format!("NVRTC {} ({})", facts.version, facts.path.display());
                let known: Vec<_> = facts.archs.iter().map(ToString::to_string).collect();
                Err(Error::new(ErrorCode::ArchUnsupported, [&BACKEND, &compiler, &device, &known.join(", ")]))
            }
        }
    }

    pub(super) const fn is_machine_code(self) -> bool {
        matches!(self, Self::Machine(_) | Self::Specific(_))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(arch) => write!(f, "sm_{}", arch.number()),
            Self::Specific(arch) => write!(f, "sm_{}a", arch.number()),
            Self::Text(arch) => write!(f, "compute_{}", arch.number()),
            Self::SpecificText(arch) => write!(f, "compute_{}a", arch.number()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::nvrtc::CompilerVersion;
    use super::*;

    fn chosen(device: (u32, u32), options: &CompileOptions) -> Result<String, Error> {
        let archs = [75, 80, 86, 90].map(Arch::of_number).to_vec();
        let facts =
            Facts { version: CompilerVersion { major: 12, minor: 1 }, archs, path: "libnvrtc.so.12".into() };
        Target::for_device(Arch::new(device.0, device.1), &facts, options).map(|target| target.to_string())
    }

    #[test]
    fn a_device_gets_machine_code_or_the_newest_text() {
        let plain = CompileOptions::new();
        assert_eq!(chosen((9, 0), &plain).unwrap(), "sm_90");
        assert_eq!(chosen((9, 0), &plain.clone().as_ptx()).unwrap(), "compute_90");
        assert_eq!(chosen((9, 0), &plain.clone().specific()).unwrap(), "sm_90a");
        assert_eq!(chosen((9, 0), &plain.clone().specific().as_ptx()).unwrap(), "compute_90a");
        // Newer than the compiler, and one of a generation that it left out.
        assert_eq!(chosen((12, 0), &plain).unwrap(), "compute_90");
        assert_eq!(chosen((8, 9), &plain).unwrap(), "compute_86");
    }

    #[test]
    fn what_the_compiler_cannot_do_is_told() {
        for (device, options) in
            [((7, 0), CompileOptions::new()), ((12, 0), CompileOptions::new().specific())]
        {
            let error = chosen(device, &options).unwrap_err();
            assert_eq!(error.code(), ErrorCode::ArchUnsupported);
            assert_eq!(error.args()[1..2], ["NVRTC 12.1 (libnvrtc.so.12)"]);
            assert_eq!(error.args()[3], "7.5, 8.0, 8.6, 9.0");
        }
    }
}

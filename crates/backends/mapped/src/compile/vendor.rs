//! What differs from one vendor's run-time compiler to another's: names, options, and what code is made for a device.

use core::ffi::CStr;
use core::fmt;

use wakeline_core::Error;

use super::library::Facts;
use super::options::{CompileOptions, Standard};
use crate::context::Context;
use crate::driver::WorkDriver;
use crate::module::Module;

/// A vendor with a compiler that is called while the program runs. The same type is its [`WorkDriver`].
pub trait RtcVendor: WorkDriver {
    /// What messages call the compiler: "NVRTC".
    const COMPILER: &'static str;
    /// How the names of its functions begin: "nvrtc".
    const PREFIX: &'static str;
    /// Its library by its names, in the order in which they are tried.
    const LIBRARIES: &'static [&'static str];
    /// Which of them have all that is used: "of 11.2 or later".
    const SINCE: &'static str;
    /// What its functions call machine code: "CUBIN".
    const MACHINE: &'static str;
    /// What they call a text that the driver compiles, where there is one: "PTX".
    const TEXT: Option<&'static str>;
    /// Whether it tells which architectures it knows.
    const HAS_ARCHS: bool;
    /// What sources are called that are not given a name.
    const SOURCE: &'static str;
    /// Beginnings of options that have another way: those of folders and headers, and the architecture.
    const RESERVED: &'static [&'static str];
    /// Where a toolkit is that nobody has named; empty for nowhere.
    const TOOLKIT: &'static str;

    /// What code is compiled for, and what a device is.
    type Arch: Clone + PartialEq + fmt::Debug + fmt::Display + Send + Sync + 'static;

    /// An architecture by the number that the compiler has for it.
    fn arch_of_number(number: u32) -> Self::Arch;

    /// What the bound device of a context is.
    ///
    /// # Errors
    ///
    /// What the driver says.
    fn arch(context: &Context<Self>) -> Result<Self::Arch, Error>;

    /// What is made for a device.
    ///
    /// # Errors
    ///
    /// [`ArchUnsupported`](wakeline_core::ErrorCode::ArchUnsupported): this compiler cannot make anything for it;
    /// [`InvalidSetting`](wakeline_core::ErrorCode::InvalidSetting): an option that it does not have.
    fn target(device: &Self::Arch, facts: &Facts, options: &CompileOptions) -> Result<Target, Error>;

    /// An option as this compiler takes it; `None` where it has none of the kind.
    fn written(option: Opt<'_>) -> Option<String>;

    /// Loads a text that the compiler made, with names of kernels by what the source calls them.
    ///
    /// # Errors
    ///
    /// What the driver says.
    fn load_text(
        context: &Context<Self>,
        text: &CStr,
        names: Vec<(String, String)>,
    ) -> Result<Module<Self>, Error>;
}

/// An option of a compilation.
#[derive(Clone, Copy, Debug)]
pub enum Opt<'a> {
    /// The architecture, as [`Target::text`] has it.
    Target(&'a str),
    /// The language.
    Standard(Standard),
    /// A macro and its value.
    Define(&'a str, &'a str),
    /// Speed in place of exactness.
    FastMath,
    /// Lines of the source for profilers.
    LineInfo,
    /// The most registers of a thread.
    Registers(u32),
    /// A folder of headers.
    Folder(&'a str),
}

/// What code is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// As the compiler takes it: `sm_90`.
    pub text: String,
    /// Whether it is machine code, and no text for the driver to compile.
    pub is_machine_code: bool,
}

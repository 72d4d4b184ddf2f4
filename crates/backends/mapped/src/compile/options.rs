//! What a source is compiled with.

use std::path::{Path, PathBuf};

use wakeline_core::{Error, invalid_setting};

use super::vendor::{Opt, RtcVendor, Target};

/// The language that a source is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Standard {
    /// C++11
    Cpp11,
    /// C++14
    Cpp14,
    /// C++17
    #[default]
    Cpp17,
    /// C++20, of NVRTC 12 on.
    Cpp20,
}

impl Standard {
    /// As compilers have it behind their option: "c++17".
    pub const fn text(self) -> &'static str {
        match self {
            Self::Cpp11 => "c++11",
            Self::Cpp14 => "c++14",
            Self::Cpp17 => "c++17",
            Self::Cpp20 => "c++20",
        }
    }
}

/// What a source is compiled with, beside the device that it is for.
///
/// ```
/// use wakeline_mapped::compile::{CompileOptions, Standard};
/// let options = CompileOptions::new()
///     .name("scale.cu")
///     .standard(Standard::Cpp14)
///     .define("TILE", "128")
///     .include("/opt/kernels/include")
///     .instance("scale<float, 4>")
///     .fast_math();
/// println!("{options:?}");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "options compile nothing by themselves"]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own, set by a method")]
pub struct CompileOptions {
    name: Option<String>,
    standard: Standard,
    folders: Vec<PathBuf>,
    headers: Vec<(String, String)>,
    defines: Vec<(String, String)>,
    instances: Vec<String>,
    fast_math: bool,
    line_info: bool,
    registers_max: Option<u32>,
    specific: bool,
    as_ptx: bool,
    others: Vec<String>,
}

impl Default for CompileOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl CompileOptions {
    /// C++17, and nothing else.
    pub fn new() -> Self {
        Self {
            name: None,
            standard: Standard::default(),
            folders: Vec::new(),
            headers: Vec::new(),
            defines: Vec::new(),
            instances: Vec::new(),
            fast_math: false,
            line_info: false,
            registers_max: None,
            specific: false,
            as_ptx: false,
            others: Vec::new(),
        }
    }

    /// What the compiler's log calls the source. No file is looked for by it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The language that it is in.
    pub fn standard(mut self, standard: Standard) -> Self {
        self.standard = standard;
        self
    }

    /// A folder that headers are looked for in, behind those that were added before.
    pub fn include(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folders.push(folder.into());
        self
    }

    /// A header as a text, which is included by just this name, before any folder is looked in.
    pub fn header(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.headers.push((name.into(), text.into()));
        self
    }

    /// Defines a macro.
    pub fn define(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.defines.push((name.into(), value.into()));
        self
    }

    /// Makes an instance of a template, which the module then has under this name: `scale<float>`.
    pub fn instance(mut self, name: impl Into<String>) -> Self {
        self.instances.push(name.into());
        self
    }

    /// Trades exactness for speed: `--use_fast_math`.
    pub fn fast_math(mut self) -> Self {
        self.fast_math = true;
        self
    }

    /// Lets profilers tell the line of the source that an instruction is of.
    pub fn line_info(mut self) -> Self {
        self.line_info = true;
        self
    }

    /// So many registers a thread at most.
    pub fn registers_max(mut self, registers: u32) -> Self {
        self.registers_max = Some(registers);
        self
    }

    /// May use what only devices of just this architecture have: `sm_90a`. There is no fallback for others, then.
    pub fn specific(mut self) -> Self {
        self.specific = true;
        self
    }

    /// As a text in PTX, which the driver compiles when it is loaded.
    pub fn as_ptx(mut self) -> Self {
        self.as_ptx = true;
        self
    }

    /// Any other option, as the compiler takes it. Not for folders and headers, which have options of their own: what is compiled is kept by what they hold.
    pub fn other(mut self, option: impl Into<String>) -> Self {
        self.others.push(option.into());
        self
    }

    pub(super) fn shown_name<R: RtcVendor>(&self) -> &str {
        self.name.as_deref().unwrap_or(R::SOURCE)
    }

    pub(super) fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    pub(super) fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    pub(super) fn instances(&self) -> &[String] {
        &self.instances
    }

    /// Whether a text was asked for, by [`as_ptx`](Self::as_ptx).
    pub const fn wants_ptx(&self) -> bool {
        self.as_ptx
    }

    /// Whether the device's own architecture was asked for, by [`specific`](Self::specific).
    pub const fn is_specific(&self) -> bool {
        self.specific
    }

    /// As the compiler takes them.
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`](wakeline_core::ErrorCode::InvalidSetting): one that has another way, or a folder that cannot be written as an option.
    pub(super) fn texts<'f, R: RtcVendor>(
        &self,
        target: &Target,
        folders: impl Iterator<Item = &'f Path>,
    ) -> Result<Vec<String>, Error> {
        let mut texts = Vec::new();
        let mut add = |option: Opt<'_>| {
            let text = R::written(option).ok_or_else(|| {
                let right = format!("one that {} has", R::COMPILER);
                invalid_setting("a compiler's option", &format!("{option:?}"), right)
            })?;
            texts.push(text);
            Ok::<(), Error>(())
        };
        add(Opt::Target(&target.text))?;
        add(Opt::Standard(self.standard))?;
        for (name, value) in &self.defines {
            add(Opt::Define(name, value))?;
        }
        if self.fast_math {
            add(Opt::FastMath)?;
        }
        if self.line_info {
            add(Opt::LineInfo)?;
        }
        if let Some(registers) = self.registers_max {
            add(Opt::Registers(registers))?;
        }
        for option in &self.others {
            if R::RESERVED.iter().any(|start| option.starts_with(start)) {
                let right = "folders and headers are given by `include` and `header`, so that what is kept of a compilation is not used when they have changed; the \
                             architecture is the device's";
                return Err(invalid_setting("a compiler's option", option, right));
            }
        }
        texts.extend(self.others.iter().cloned());
        for folder in folders {
            let text = folder.to_str().ok_or_else(|| {
                invalid_setting(
                    "a folder of headers",
                    &folder.to_string_lossy(),
                    "not valid UTF-8, as the compiler needs it",
                )
            })?;
            texts.extend(R::written(Opt::Folder(text)));
        }
        Ok(texts)
    }
}

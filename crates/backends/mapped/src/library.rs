//! A driver's library, opened by its name, and the table of what is used of it.
//!
//! Invariants: nothing is linked, no environment is read, no failure panics; an opened library is never closed.

use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::ffi::OsStr;
use std::path::Path;

use libloading::Library;
use wakeline_core::{Error, ErrorCode};

/// An opened library.
///
/// It is never closed, on purpose: a driver starts threads of its own and has the process call it at exit, functions of it are
/// copied into tables that outlive this value, and pages that a device may still store into are the driver's. Opening it again
/// opens the same, so no more than one is ever left.
#[derive(Debug)]
pub struct Opened {
    library: ManuallyDrop<Library>,
    name: String,
}

impl Opened {
    /// Opens the library at `path`, or where none is given the first of these names that the system finds. It runs with all rights of the process.
    ///
    /// # Errors
    ///
    /// [`LibraryMissing`](ErrorCode::LibraryMissing), with all names that were tried and what the system said.
    pub fn open(backend: &'static str, path: Option<&Path>, names: &[&str]) -> Result<Self, Error> {
        let names: Vec<&OsStr> =
            path.map_or_else(|| names.iter().map(OsStr::new).collect(), |path| vec![path.as_os_str()]);
        let mut said: Vec<String> = Vec::new();
        // The system opens the program itself for an empty name.
        for name in names.iter().filter(|name| !name.is_empty()) {
            // SAFETY: opening runs the library's initializers: those of a driver, which the user has installed, or of the library
            // that the user names, who is told so.
            match unsafe { Library::new(*name) } {
                Ok(library) => {
                    let name = name.to_string_lossy().into_owned();
                    return Ok(Self { library: ManuallyDrop::new(library), name });
                }
                // The system's own words are the error's source.
                Err(error) => said.push(match core::error::Error::source(&error) {
                    Some(source) => source.to_string(),
                    None => error.to_string(),
                }),
            }
        }
        let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
        Err(Error::new(ErrorCode::LibraryMissing, [&backend, &names.join(", "), &said.join("; ")]))
    }

    /// The name or path by which it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address that the library exports under this name.
    pub fn exported(&self, name: &str) -> Option<NonNull<c_void>> {
        // SAFETY: the symbol is taken as an address without a type, which any symbol has.
        let symbol = unsafe { self.library.get::<*mut c_void>(name) }.ok()?;
        NonNull::new(*symbol)
    }
}

/// A row of a driver's table: what is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The function's name.
    pub name: &'static str,
    /// The version whose binary interface is wanted, as the driver counts.
    pub version: i32,
    /// The name under which a library exports the function with this interface.
    pub exported: &'static str,
}

/// Makes the table of a driver's functions, `Symbols`: one row a function, with its name, the version whose binary interface the arguments are of, the name under
/// which a library exports just that one, and what needs it: `required`, or a bit of the capabilities that is unset where the function is absent.
///
/// ```text
/// symbols! { Caps, CUresult;
///     cuStreamQuery 2000 "cuStreamQuery" required (CUstream);
///     cuStreamWaitEvent 3020 "cuStreamWaitEvent" DEVICE_WAITS (CUstream, CUevent, c_uint);
/// }
/// ```
///
/// A row says a last `-> type` where a function returns another type than the driver's results.
#[macro_export]
macro_rules! symbols {
    ($caps:ty, $result:ty;
        $($name:ident $version:literal $exported:literal $need:ident ($($argument:ty),* $(,)?) $(-> $other:ty)?;)*) => {
        /// The driver's functions. Calling one is unsafe as its manual says.
        #[expect(non_snake_case, reason = "the names of the C interface")]
        #[allow(dead_code, reason = "the table is what the driver has, not what is called so far")]
        #[derive(Debug)]
        pub(crate) struct Symbols {
            $(pub(crate) $name: $crate::symbols!(@field $need, $crate::symbols!(@function $result, ($($argument),*) $(-> $other)?)),)*
        }

        impl Symbols {
            /// All rows, in their order.
            #[cfg(test)]
            pub(crate) const ROWS: &[$crate::Wanted] =
                &[$($crate::Wanted { name: stringify!($name), version: $version, exported: $exported },)*];

            /// Of each row what it is exported as, what it returns, and its arguments, as the table has them.
            #[cfg(test)]
            #[allow(dead_code, reason = "for those who hold it against a header")]
            pub(crate) const PROTOTYPES: &[(&str, &str, &[&str])] = &[$((
                $exported,
                $crate::symbols!(@returns $result $(, $other)?),
                &[$(stringify!($argument)),*],
            ),)*];

            /// Fills the table with what `find` finds, and says which capabilities are whole.
            ///
            /// # Errors
            /// A required function is absent: its row.
            ///
            /// # Safety
            /// What `find` gives for a row is the address of the driver's function of that name, with the binary interface
            /// of that version, and stays so for as long as the process lives.
            pub(crate) unsafe fn find(
                mut find: impl FnMut($crate::Wanted) -> Option<::core::ptr::NonNull<::core::ffi::c_void>>,
            ) -> Result<(Self, $caps), $crate::Wanted> {
                let mut caps = <$caps>::all();
                let symbols = Self {
                    $($name: {
                        let wanted =
                            $crate::Wanted { name: stringify!($name), version: $version, exported: $exported };
                        let address = find(wanted);
                        $crate::symbols!(
                            @found $need, $caps, wanted, address, caps,
                            $crate::symbols!(@function $result, ($($argument),*) $(-> $other)?)
                        )
                    },)*
                };
                Ok((symbols, caps))
            }
        }
    };
    (@returns $result:ty) => { stringify!($result) };
    (@returns $result:ty, $other:ty) => { stringify!($other) };
    (@function $result:ty, ($($argument:ty),*)) => { unsafe extern "system" fn($($argument),*) -> $result };
    (@function $result:ty, ($($argument:ty),*) -> $other:ty) => { unsafe extern "system" fn($($argument),*) -> $other };
    (@field required, $function:ty) => { $function };
    (@field $cap:ident, $function:ty) => { Option<$function> };
    (@found required, $all:ty, $wanted:ident, $address:ident, $caps:ident, $function:ty) => {
        $address.map(|address| $crate::symbols!(@typed address, $function)).ok_or($wanted)?
    };
    (@found $cap:ident, $all:ty, $wanted:ident, $address:ident, $caps:ident, $function:ty) => {{
        if $address.is_none() {
            $caps.remove(<$all>::$cap);
        }
        $address.map(|address| $crate::symbols!(@typed address, $function))
    }};
    (@typed $address:ident, $function:ty) => {
        // SAFETY: by the contract of `Symbols::find` the address is of the function that the row names, with the binary
        // interface of the row's version; `$function` is its C declaration as that version has it.
        unsafe { ::core::mem::transmute::<*mut ::core::ffi::c_void, $function>($address.as_ptr()) }
    };
}

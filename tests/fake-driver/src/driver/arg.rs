//! The arguments of exported calls, as types that know what may be done with them.
//!
//! All of them are `repr(transparent)` over what the driver's header declares, so the exported functions have its exact
//! interface. The dereferences of what a caller handed in are here, behind a check for null.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::{Answer, Stop};
use crate::Status;

/// An argument. What is special about one: it may be a stream.
pub(super) trait Arg: Copy {
    /// The stream it is, for the log.
    fn stream(self) -> Option<u64> {
        None
    }

    /// What it is where stream 0 means the per-thread default stream.
    fn per_thread(self) -> Self {
        self
    }
}

impl Arg for u8 {}
impl Arg for u16 {}
impl Arg for c_int {}
impl Arg for c_uint {}
impl Arg for u64 {}
impl Arg for usize {}
impl Arg for Status {}
impl Arg for Text {}
impl Arg for Chars {}
impl Arg for Image {}
impl Arg for Address {}
impl Arg for Option<HostFn> {}
impl Arg for Option<CallbackFn> {}
impl<T> Arg for Out<T> {}
impl<T> Arg for List<T> {}

/// `CUhostFn`
pub(super) type HostFn = unsafe extern "C" fn(*mut c_void);

/// `hipStreamCallback_t`
pub(super) type CallbackFn = unsafe extern "C" fn(StreamArg, Status, *mut c_void);

/// `CUstream`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct StreamArg(pub(super) u64);

impl StreamArg {
    pub(super) const LEGACY: Self = Self(1);
    pub(super) const PER_THREAD: Self = Self(2);
}

impl Arg for StreamArg {
    fn stream(self) -> Option<u64> {
        Some(self.0)
    }

    fn per_thread(self) -> Self {
        if self.0 == 0 { Self::PER_THREAD } else { self }
    }
}

/// A pointer to host memory that is only carried.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct Address(*const c_void);

impl Address {
    pub(super) fn value(self) -> u64 {
        self.number() as u64
    }

    pub(super) fn number(self) -> usize {
        self.0.expose_provenance()
    }
}

/// Where a call writes a result, or reads what it then replaces.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    pub(super) const fn none() -> Self {
        Self(core::ptr::null_mut())
    }

    /// A place of the library's own, while that is borrowed.
    pub(super) const fn to(place: &mut T) -> Self {
        Self(place)
    }

    pub(super) fn is_none(self) -> bool {
        self.0.is_null()
    }

    /// Refuses null, for a call that must not begin without a place for its result.
    pub(super) fn needed(self) -> Answer {
        if self.0.is_null() { Err(Stop::from(Status::INVALID_VALUE)) } else { Ok(()) }
    }

    pub(super) fn set(self, value: T) -> Answer {
        self.needed()?;
        // SAFETY: it is not null, and a caller of the driver passes pointers to places of that type, writable for the call.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Writes several, one after the other.
    pub(super) fn fill(self, values: &[T]) -> Answer
    where
        T: Copy,
    {
        self.needed()?;
        // SAFETY: it is not null, and a caller passes room for as many as it was told; the values are elsewhere.
        unsafe { core::ptr::copy_nonoverlapping(values.as_ptr(), self.0, values.len()) };
        Ok(())
    }

    /// Leaves a null pointer alone.
    pub(super) fn set_if_wanted(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: as in `set`.
            unsafe { self.0.write(value) }
        }
    }
    pub(super) fn get(self) -> Answer<T>
    where
        T: Copy,
    {
        self.needed()?;
        // SAFETY: it is not null, and a caller passes a place that holds a value where the call reads one.
        Ok(unsafe { self.0.read() })
    }
}

/// An array of the caller's, of a length that is known from elsewhere.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct List<T>(*const T);

impl<T> Clone for List<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for List<T> {}

impl<T> List<T> {
    pub(super) const fn none() -> Self {
        Self(core::ptr::null())
    }
}

impl<T: Copy> List<T> {
    pub(super) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The first `len` values.
    pub(super) fn take(self, len: usize) -> Answer<Vec<T>> {
        if len == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() {
            return Err(Stop::from(Status::INVALID_VALUE));
        }
        // SAFETY: it is not null, and a caller passes as many values as the call says it reads.
        Ok(unsafe { core::slice::from_raw_parts(self.0, len) }.to_vec())
    }
}

/// The parameters of a kernel: an array of pointers to one value each.
pub(super) type Params = List<List<u8>>;

/// A string of the caller's.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct Text(*const c_char);

impl Text {
    pub(super) fn read(self) -> Answer<String> {
        if self.0.is_null() {
            return Err(Stop::from(Status::INVALID_VALUE));
        }
        // SAFETY: it is not null, and a caller passes a string that ends in a zero.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

/// A module's image: a text, or a file that says itself how long it is.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct Image(*const u8);

impl Image {
    /// Whether it is a text, and no ELF file.
    pub(super) fn is_text(self) -> Answer<bool> {
        // No byte is looked at behind one that is another: a text may end there.
        for (at, wanted) in b"\x7fELF".iter().enumerate() {
            if self.bytes(at, 1)?.first() != Some(wanted) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn text(self) -> Text {
        Text(self.0.cast())
    }

    /// So many bytes of it.
    pub(super) fn bytes(self, from: usize, len: usize) -> Answer<Vec<u8>> {
        if self.0.is_null() {
            return Err(Stop::from(Status::INVALID_VALUE));
        }
        let mut bytes = vec![0; len];
        // SAFETY: it is not null, and a caller passes a file of the length that it says itself.
        let from = unsafe { self.0.add(from) };
        // SAFETY: as above; the vector is new.
        unsafe { core::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), len) };
        Ok(bytes)
    }
}

/// A buffer of the caller's for a string.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct Chars(*mut c_char);

impl Chars {
    /// The rest of it, from so many bytes on.
    pub(super) fn from(self, bytes: usize) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Writes what fits in `len` bytes, the zero at the end included.
    pub(super) fn write(self, text: &str, len: c_int) -> Answer {
        let room = usize::try_from(len).ok().and_then(|len| len.checked_sub(1));
        let (false, Some(room)) = (self.0.is_null(), room) else {
            return Err(Stop::from(Status::INVALID_VALUE));
        };
        let kept = text.len().min(room);
        // SAFETY: a caller passes a buffer of `len` bytes, and the text has fewer; it is nobody else's during the call.
        unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), self.0.cast(), kept) };
        // SAFETY: `kept` is less than `len`, so this is within the buffer.
        let end = unsafe { self.0.add(kept) };
        // SAFETY: as above.
        unsafe { end.write(0) };
        Ok(())
    }
}

//! A completion line in mapped memory.

use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;
use std::sync::Arc;

use wakeline_core::CompletionLine;

use crate::driver::LineDriver;
use crate::inner::Inner;

/// A handle of a line that a device stores into. Keeps the line's page, and the context that the page belongs to, alive.
///
/// A clone names the same line and costs one atomic addition.
pub struct MappedLine<D: LineDriver> {
    /// Keeps the page.
    context: Arc<Inner<D>>,
    line: NonNull<CompletionLine>,
}

// SAFETY: a shared reference to a line, which is `Sync`, and the owner of its memory, which is `Send` and `Sync`.
unsafe impl<D: LineDriver> Send for MappedLine<D> {}
// SAFETY: as above.
unsafe impl<D: LineDriver> Sync for MappedLine<D> {}

impl<D: LineDriver> MappedLine<D> {
    /// # Safety
    ///
    /// `line` is of a page of `context`.
    pub(crate) unsafe fn new(context: Arc<Inner<D>>, line: NonNull<CompletionLine>) -> Self {
        Self { context, line }
    }
}

impl<D: LineDriver> Deref for MappedLine<D> {
    type Target = CompletionLine;

    #[inline]
    fn deref(&self) -> &CompletionLine {
        // SAFETY: the page is filled with lines when it is made and freed when the last holder of the context goes.
        unsafe { self.line.as_ref() }
    }
}

impl<D: LineDriver> Clone for MappedLine<D> {
    fn clone(&self) -> Self {
        Self { context: Arc::clone(&self.context), line: self.line }
    }
}

impl<D: LineDriver> fmt::Debug for MappedLine<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

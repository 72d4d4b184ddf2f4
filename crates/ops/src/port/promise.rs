//! What callers of the port promise.

// What makes a promise is declared unsafe; nothing unsafe is done here.
#![allow(unsafe_code)]

/// A caller's word that what a method lists under *Promise* holds; for all of them, that the arguments are of that device.
///
/// Where the call is recorded in a graph it is not done before the last launch of that is: [`Submission::retain`](crate::Submission::retain) and
/// [`Submission::touch`](crate::Submission::touch) keep things for as long.
///
/// ```compile_fail,E0603
/// let promise = wakeline_ops::port::Promise(()); // nobody makes one in safe code
/// ```
#[derive(Debug)]
pub struct Promise(());

impl Promise {
    /// Gives the word for the one call that this is handed to.
    ///
    /// # Safety
    ///
    /// What the method that it is handed to lists under *Promise* holds, and stream, buffers and kernel are of the device that it is
    /// called on.
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

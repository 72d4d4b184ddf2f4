//! What the CUDA and HIP backends share.
#![allow(unsafe_code, reason = "a backend: it hands the driver's pointers on")]

pub mod census;
pub mod driver;
pub mod error;

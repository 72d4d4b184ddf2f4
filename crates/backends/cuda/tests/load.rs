//! Loading where there is nothing to load, or something that is no driver: an error that says what is wrong, never a panic.

use wakeline_core::ErrorCode;
use wakeline_cuda::{Cuda, Loader};

#[test]
fn case_67_a_missing_library_is_an_error_that_names_it() {
    let error = Cuda::load_from("no/such/place/libcuda.so.1").unwrap_err();
    assert_eq!(error.code(), ErrorCode::LibraryMissing);
    assert_eq!(error.args()[..2], ["cuda", "no/such/place/libcuda.so.1"]);
    assert!(!error.args()[2].is_empty(), "what the system said: {error}");
}

#[test]
fn case_67_the_systems_driver_is_there_or_the_error_says_why_not() {
    match Cuda::load() {
        Ok(cuda) => assert!(cuda.device_count() > 0, "{cuda:?}"),
        Err(error) if error.code() == ErrorCode::LibraryMissing => {
            let name = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
            assert_eq!(error.args()[1], name, "never `libcuda.so`, which may be a stub for linking");
        }
        Err(error) => assert_ne!(error.code(), ErrorCode::SymbolMissing, "{error}"),
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn a_library_that_is_no_driver_is_an_error_that_names_the_first_symbol_it_lacks() {
    for loader in [Loader::new(), Loader::new().without_proc_address()] {
        let error = loader.path("libm.so.6").load().unwrap_err();
        assert_eq!(error.code(), ErrorCode::SymbolMissing);
        assert_eq!(error.args()[..3], ["cuda", "libm.so.6", "cuInit"]);
    }
}

//! Loading a library that has the driver's symbols, and what becomes of drivers that do not do.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(unsafe_code, reason = "the calls of a driver")]

mod common;

use common::{Bound, clean, fake, until};
use wakeline_core::ErrorCode;
use wakeline_cuda::{Caps, Cuda, Loader};
use wakeline_fake_driver::{Act, Fake, Rule, Status};
use wakeline_mapped::driver::{LineDriver, Ordinal};
use wakeline_mapped::error::{CallError, Kind};

/// By `cuGetProcAddress` and by exported names.
fn loaders(fake: &Fake) -> [Loader; 2] {
    let loader = Loader::new().path(fake.path());
    [loader.clone(), loader.without_proc_address()]
}

#[test]
fn a_driver_is_loaded_and_says_what_it_can_do() {
    let fake = fake(|options| options.devices = 3);
    for loader in loaders(&fake) {
        let cuda = loader.load().unwrap();
        assert_eq!(cuda.device_count(), 3);
        assert_eq!(cuda.version().to_string(), "13.0");
        assert_eq!(cuda.caps(), Caps::all());
        assert_eq!(cuda.devices().count(), 3);
    }
}

#[test]
fn exported_names_are_pinned_without_a_call_of_the_drivers_look_up() {
    let fake = fake(|_| ());
    Loader::new().path(fake.path()).without_proc_address().load().unwrap();
    assert_eq!(fake.calls("cuGetProcAddress"), 0);
    Loader::new().path(fake.path()).load().unwrap();
    assert!(fake.calls("cuGetProcAddress_v2") > 0);
}

#[test]
fn case_43_the_variant_that_works_is_bound_where_the_plain_name_has_another() {
    let fake = fake(|_| ());
    for loader in loaders(&fake) {
        let cuda = loader.load().unwrap();
        fake.clear_log();
        let bound = Bound::new(&cuda);
        let (page, stream) = (bound.page().unwrap(), bound.stream());
        // SAFETY: the stream is alive.
        assert_eq!(unsafe { cuda.stream_context(stream) }, Ok(bound.context));
        bound.store(stream, page, 1);
        let own = cuda.create(Ordinal(0)).unwrap();
        // SAFETY: it was made above, and nothing is in it.
        unsafe { cuda.destroy(own) }.unwrap();
        until("the store", || bound.stream_status(stream) == Ok(wakeline_core::Status::Done));
        bound.end_stream(stream);
        bound.end_page(page);
        drop(bound);

        let made: Vec<String> = fake.log().into_iter().map(|call| call.name).collect();
        let made = |name: &str| made.iter().any(|made| made == name);
        for (bound, other) in [
            ("cuStreamWriteValue64_v2", "cuStreamWriteValue64"),
            ("cuStreamGetCtx", "cuStreamGetCtx_v2"),
            ("cuCtxCreate_v2", "cuCtxCreate_v4"),
            ("cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease"),
        ] {
            assert!(made(bound) && !made(other), "{loader:?}: {bound}");
        }
        clean(&fake);
    }
}

#[test]
fn a_function_that_the_look_up_does_not_know_is_found_by_its_exported_name() {
    let fake = fake(|options| options.hidden.extend(["cuEventQuery".into(), "cuMemAlloc_v2".into()]));
    let cuda = Cuda::load_from(fake.path()).unwrap();
    assert_eq!(cuda.caps(), Caps::all());
}

#[test]
fn a_look_up_that_fails_is_done_without() {
    let fake = fake(|_| ());
    fake.rule(Rule::new("cuGetProcAddress_v2", Act::Fail(Status::NOT_SUPPORTED)));
    assert_eq!(Cuda::load_from(fake.path()).unwrap().caps(), Caps::all());
}

#[test]
fn an_interface_newer_than_the_driver_is_not_asked_for() {
    let fake = fake(|options| options.driver_version = 9_000);
    let cuda = Cuda::load_from(fake.path()).unwrap();
    assert_eq!(cuda.version().to_string(), "9.0");
    let asked: Vec<Status> = fake
        .log()
        .into_iter()
        .filter(|call| call.name == "cuGetProcAddress_v2")
        .map(|call| call.status)
        .collect();
    assert!(!asked.is_empty() && asked.iter().all(|status| *status == Status::SUCCESS), "{asked:?}");
}

#[test]
fn case_69_a_stub_for_linking_is_an_error_of_its_own() {
    let fake = fake(|options| options.stub = true);
    for loader in loaders(&fake) {
        let error = loader.load().unwrap_err();
        assert_eq!(error.code(), ErrorCode::LibraryStub);
        assert_eq!(error.args()[..2], ["cuda", fake.path().to_str().unwrap()]);
        assert!(error.args()[2].contains("34"), "{error}");
    }
}

#[test]
fn no_device_is_an_error_of_its_own() {
    let none = fake(|options| options.devices = 0);
    let refused = fake(|options| options.init = Status::NO_DEVICE);
    for fake in [&none, &refused] {
        let error = Cuda::load_from(fake.path()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::NoDevice);
        assert_eq!(error.args()[0], "cuda");
    }
    let error = Cuda::load_from(refused.path()).unwrap_err();
    assert_eq!(error.args()[1], "CUDA_ERROR_NO_DEVICE (100), no CUDA-capable device is detected");
}

#[test]
fn a_driver_that_does_not_fit_the_systems_says_what_would() {
    let fake = fake(|options| options.init = Status::SYSTEM_DRIVER_MISMATCH);
    let error = Cuda::load_from(fake.path()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DriverTooOld);
    assert!(
        error.args()[1].contains("of CUDA 13.0, which says CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"),
        "{error}"
    );
}

#[test]
fn any_other_failure_names_the_call_and_the_status() {
    for (call, status) in [("cuInit", Status::SYSTEM_NOT_READY), ("cuDeviceGetCount", Status::UNKNOWN)] {
        let fake = fake(|_| ());
        fake.rule(Rule::new(call, Act::Fail(status)));
        let error = Cuda::load_from(fake.path()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Backend);
        assert_eq!(error.args()[..2], ["cuda", call]);
        assert!(error.args()[2].contains(status.name().unwrap()), "{error}");
    }
}

#[test]
fn case_25_a_driver_that_is_being_unloaded_says_so() {
    let fake = fake(|_| ());
    let cuda = Cuda::load_from(fake.path()).unwrap();
    fake.configure(|options| options.deinitialized = true);
    let error: CallError = cuda.current().unwrap_err();
    assert_eq!((error.status, error.kind), (4, Kind::Gone));
}

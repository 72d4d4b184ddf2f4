//! Each call of the table that lines and points are built on: what it does, and what its failures become.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(unsafe_code, reason = "the calls of a driver")]

mod common;

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use common::{Bound, clean, fake, loaded, until};
use wakeline_core::Status as Asked;
use wakeline_cuda::{Attribute, Cuda};
use wakeline_fake_driver::{Act, Rule, Status};
use wakeline_mapped::driver::{CaptureMode, LineDriver, Ordinal, RawContext, RawStream, Special};
use wakeline_mapped::error::Kind;

#[test]
fn a_context_that_is_made_leaves_the_callers_as_it_is() {
    let (fake, cuda) = loaded();
    let made = cuda.create(Ordinal(0)).unwrap();
    assert_eq!(cuda.current(), Ok(RawContext::NULL));
    let bound = Bound::new(&cuda);
    let other = cuda.create(Ordinal(0)).unwrap();
    assert_eq!(cuda.current(), Ok(bound.context));
    assert!(![made, bound.context].contains(&other));
    drop(bound);
    for context in [made, other] {
        // SAFETY: made above, and nothing is in it.
        unsafe { cuda.destroy(context) }.unwrap();
    }
    clean(&fake);
}

#[test]
fn a_context_that_cannot_be_taken_off_again_is_destroyed_and_the_error_tells() {
    let (fake, cuda) = loaded();
    fake.rule(Rule::new("cuCtxPopCurrent", Act::Fail(Status::UNKNOWN)).times(1));
    let error = cuda.create(Ordinal(0)).unwrap_err();
    assert_eq!((error.call, error.status), ("cuCtxPopCurrent", 999));
    assert_eq!(cuda.current(), Ok(RawContext::NULL));
    clean(&fake);
}

#[test]
fn a_page_that_cannot_be_mapped_is_freed_and_the_error_tells() {
    let (fake, cuda) = loaded();
    let bound = Bound::new(&cuda);
    fake.rule(Rule::new("cuMemHostGetDevicePointer", Act::Fail(Status::NOT_SUPPORTED)));
    let error = bound.page().unwrap_err();
    assert_eq!((error.call, error.kind), ("cuMemHostGetDevicePointer", Kind::NotSupported));
    assert_eq!(fake.live().pinned_pages, 0);
    fake.rule(Rule::new("cuMemFreeHost", Act::FailAfter(Status::UNKNOWN)).times(1));
    let error = bound.page().unwrap_err();
    assert!(
        error.text.ends_with("then cuMemFreeHost failed too: CUDA_ERROR_UNKNOWN (999), unknown error"),
        "{error}"
    );
    drop(bound);
    clean(&fake);
}

#[test]
fn a_store_lands_behind_the_work_and_an_event_tells_when() {
    let (fake, cuda) = loaded();
    let bound = Bound::new(&cuda);
    let (page, stream, event) = (bound.page().unwrap(), bound.stream(), bound.event());
    assert!(page.host.as_ptr().addr().is_multiple_of(64));
    bound.record(event, stream);
    bound.store(stream, page, 7);
    // SAFETY: aligned, alive, and stored into by the driver as a whole.
    let word = unsafe { AtomicU64::from_ptr(page.host.as_ptr().cast()) };
    until("the word", || word.load(Ordering::Acquire) == 7);
    assert_eq!(bound.event_status(event), Ok(Asked::Done));
    until("the status", || bound.stream_status(stream) == Ok(Asked::Done));
    bound.end_event(event);
    bound.end_stream(stream);
    bound.end_page(page);
    drop(bound);
    clean(&fake);
}

#[test]
fn not_ready_is_pending_and_no_failure() {
    let (fake, cuda) = loaded();
    let bound = Bound::new(&cuda);
    let (stream, event) = (bound.stream(), bound.event());
    for call in ["cuStreamQuery", "cuEventQuery"] {
        fake.rule(Rule::new(call, Act::Fail(Status::NOT_READY)).times(1));
    }
    let ask = || (bound.stream_status(stream), bound.event_status(event));
    assert_eq!(ask(), (Ok(Asked::Pending), Ok(Asked::Pending)));
    assert_eq!(ask(), (Ok(Asked::Done), Ok(Asked::Done)));
    bound.end_event(event);
    bound.end_stream(stream);
    drop(bound);
    clean(&fake);
}

#[test]
fn a_failure_has_its_kind_its_name_and_its_text() {
    let (fake, cuda) = loaded();
    for (status, kind, name) in [
        (2, Kind::OutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"),
        (4, Kind::Gone, "CUDA_ERROR_DEINITIALIZED"),
        (700, Kind::Sticky, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        (719, Kind::Sticky, "CUDA_ERROR_LAUNCH_FAILED"),
        (801, Kind::NotSupported, "CUDA_ERROR_NOT_SUPPORTED"),
        (906, Kind::Capturing, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"),
    ] {
        fake.rule(Rule::new("cuCtxGetCurrent", Act::Fail(Status(status))).times(1));
        let error = cuda.current().unwrap_err();
        assert_eq!((error.backend, error.call), ("cuda", "cuCtxGetCurrent"));
        assert_eq!((error.status, error.kind, error.name.as_str()), (status, kind, name));
        assert!(!error.text.is_empty(), "{error:?}");
    }
}

#[test]
fn a_status_without_a_name_is_told_by_its_number() {
    let (fake, cuda) = loaded();
    fake.rule(Rule::new("cuCtxGetCurrent", Act::Fail(Status(12_345))));
    let error = cuda.current().unwrap_err();
    assert_eq!(error.to_string(), "CUresult 12345 (12345)");
    assert_eq!(error.kind, Kind::Refused);
}

#[test]
fn a_host_function_is_called_once_with_what_it_was_given() {
    /// # Safety
    /// `data` is the test's counter, alive.
    unsafe extern "C" fn add(data: *mut c_void) {
        // SAFETY: as the caller says.
        let counter = unsafe { &*data.cast::<AtomicU64>() };
        counter.fetch_add(1, Ordering::Release);
    }
    let (fake, cuda) = loaded();
    let counter = AtomicU64::new(0);
    let bound = Bound::new(&cuda);
    let stream = bound.stream();
    let data = ptr::from_ref(&counter).cast_mut().cast();
    // SAFETY: the stream is alive, and the counter until the call has come.
    unsafe { cuda.call_host(stream, add, data) }.unwrap();
    until("the call", || counter.load(Ordering::Acquire) == 1);
    bound.end_stream(stream);
    drop(bound);
    clean(&fake);
}

#[test]
fn default_streams_are_known_by_their_numbers() {
    let special = |number| Cuda::special(RawStream::from_ptr(ptr::without_provenance_mut(number)));
    assert_eq!(special(0), Some(Special::Legacy));
    assert_eq!(special(1), Some(Special::Legacy));
    assert_eq!(special(2), Some(Special::PerThread));
    assert_eq!(special(3), None);
}

#[test]
fn a_capture_is_seen_and_a_thread_keeps_out_of_it() {
    let (fake, cuda) = loaded();
    let bound = Bound::new(&cuda);
    let stream = bound.stream();
    // SAFETY: the stream is alive.
    assert_eq!(unsafe { cuda.capturing(stream) }, Ok(false));
    let before = cuda.exchange_capture_mode(Cuda::RELAXED).unwrap();
    assert_eq!(before, CaptureMode(0), "a thread begins in the global mode");
    assert_eq!(cuda.exchange_capture_mode(before), Ok(Cuda::RELAXED));
    bound.end_stream(stream);
    drop(bound);
    clean(&fake);
}

#[test]
fn a_device_says_who_it_is_and_what_it_can_do() {
    let fake = fake(|options| {
        options.devices = 2;
        options.total_memory_bytes = 5 << 30;
        options.attributes.extend([(75, 8), (76, 6), (122, 0), (19, 1)]);
    });
    let cuda = Cuda::load_from(fake.path()).unwrap();
    let devices: Vec<_> = cuda.devices().map(|device| device.unwrap()).collect();
    assert!(!devices[0].name().unwrap().is_empty());
    assert_ne!(devices[0].uuid().unwrap(), devices[1].uuid().unwrap());
    assert_eq!(devices[1].compute_capability().unwrap(), (8, 6));
    assert_eq!(devices[1].total_memory().unwrap(), 5 << 30);
    assert!(!devices[1].stores_words().unwrap());
    assert!(devices[1].maps_host_memory().unwrap());
    assert!(!devices[1].primary_context_is_active().unwrap());
    let error = devices[0].attribute(Attribute(-1)).unwrap_err();
    assert_eq!(error.args()[..2], ["cuda", "cuDeviceGetAttribute"]);
    let error = cuda.device(Ordinal(2)).unwrap_err();
    assert!(error.args()[2].contains("CUDA_ERROR_INVALID_DEVICE"), "{error}");
    let error = cuda.device(Ordinal(u32::MAX)).unwrap_err();
    assert!(error.args()[2].contains("CUDA_ERROR_INVALID_DEVICE"), "{error}");
}

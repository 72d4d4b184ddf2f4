//! What a driver does with a store in a stream that is being captured, and that none is made there.

use core::sync::atomic::{AtomicU64, Ordering};

use wakeline_core::{CompletionPort, ErrorCode};
use wakeline_hip::Hip;
use wakeline_mapped::driver::LineDriver;
use wakeline_mapped::{Graph, HostBuffer, Kernels};
use wakeline_tests::driver_tests;
use wakeline_tests::rig::Rig;
use wakeline_tests::vendor::Vendor;

use crate::waiting::{PLANS, ms, wait};

driver_tests![
    Both: case_34_a_store_on_a_stream_that_is_captured_is_refused_and_the_word_unchanged;
    @hip Both: case_34_hip_stores_at_once_while_a_stream_is_captured;
];

/// What the driver would do with it is its own affair: the word of a point is never stored there.
fn case_34_a_store_on_a_stream_that_is_captured_is_refused_and_the_word_unchanged<D: Vendor>(rig: &Rig<D>) {
    let stream = rig.stream();
    let mut early = stream.armed_port().unwrap();
    wait(PLANS[3], &mut early).unwrap();
    let word = early.descriptor().unwrap().clone();
    let before = word.line().load(word.slot());
    let mut bare = stream.port().unwrap();
    let kernels: &Kernels<D> = rig.kernels();
    let graph = Graph::capture(&stream, kernels.clone(), |kernels| {
        kernels.occupy(&stream, ms(1))?;
        assert_eq!(bare.arm().unwrap_err().code(), ErrorCode::StreamCapturing);
        for refused in [stream.armed_port().err(), stream.word_port().err(), stream.port().err()] {
            assert_eq!(refused.unwrap().code(), ErrorCode::StreamCapturing);
        }
        Ok(())
    });
    assert_eq!(word.line().load(word.slot()), before, "nothing was stored, now or by the graph");
    if rig.is_fake() {
        assert_eq!(rig.log().iter().filter(|call| call.name.starts_with("cuStreamWriteValue64")).count(), 2);
    }
    let mut graph = graph.unwrap();
    // SAFETY: the graph is kept until it is done.
    unsafe { graph.launch(stream.raw()) }.unwrap();
    let mut behind = stream.armed_port().unwrap();
    wait(PLANS[3], &mut behind).unwrap();
    assert_eq!(behind.descriptor().unwrap().seq(), before.next(), "no number was used up");
}

/// Why it is refused: on HIP the store is carried out when it is enqueued, in front of the work that it was to be behind.
fn case_34_hip_stores_at_once_while_a_stream_is_captured(rig: &Rig<Hip>) {
    let stream = rig.stream();
    let buffer = HostBuffer::new(rig.context(), size_of::<u64>()).unwrap();
    let word = || {
        // SAFETY: the buffer is aligned to a page, has values, and is written by stores of eight bytes alone.
        unsafe { AtomicU64::from_ptr(buffer.as_slice().as_ptr().cast_mut().cast()) }.load(Ordering::Acquire)
    };
    let graph = Graph::capture(&stream, rig.kernels().clone(), |kernels| {
        kernels.occupy(&stream, ms(1))?;
        // SAFETY: the context is bound, the stream alive, and the word the buffer's, which is kept.
        unsafe { rig.driver().store(stream.raw(), buffer.address(), 7) }.unwrap();
        Ok(())
    });
    drop(graph.unwrap());
    assert_eq!(word(), 7, "no launch of the graph was needed for it");
}

//! Typed kernels: what they compute, what they are handed, what they give back.

#![allow(unsafe_code, reason = "it binds kernels to signatures that are not theirs")]
#![allow(clippy::many_single_char_names, reason = "as in z = a * x + y")]

use std::sync::Arc;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng as _;
use wakeline_core::ErrorCode;
use wakeline_ops::port::Priority;
use wakeline_ops::{DeviceOp, value, zip};
use wakeline_std::block_on;
use wakeline_tensor::{IntoPartition, LaunchConfig, Tensor, kernel};
use wakeline_tests::device_tests;
use wakeline_tests::ops_rig::{CudaRig, OpsRig};

device_tests![
    Everywhere: results_are_those_of_the_host_on_any_grid,
        what_is_handed_in_comes_back_owned_shared_borrowed_or_made,
        launches_on_one_tensor_are_ordered_in_whatever_streams,
        what_does_not_fit_is_refused_and_nothing_is_launched;
    Cuda: a_signature_that_is_not_the_kernels_is_refused_where_the_driver_can_tell;
    Fake: a_source_is_compiled_once_for_many_kernels;
];

/// What no result is.
const POISON: f32 = -12_345.678;

fn random(draws: &mut Pcg64, len: usize) -> Vec<f32> {
    (0..len).map(|_| f32::from(i16::try_from(draws.next_u32() >> 17).unwrap()) / 64.0 - 200.0).collect()
}

fn results_are_those_of_the_host_on_any_grid<R: OpsRig>(rig: &R) {
    let saxpy = rig.saxpy();
    let mut draws = Pcg64::new(7, 11);
    for len in [1, 31, 32, 1_000, 70_001] {
        let (x, y) = (random(&mut draws, len), random(&mut draws, len));
        let a = random(&mut draws, 1)[0];
        let n = u32::try_from(len - len / 3).unwrap();
        let reference = |i: usize| if i < n as usize { a.mul_add(x[i], y[i]) } else { POISON };
        let wanted: Vec<f32> = (0..len).map(reference).collect();
        let (x, y) = (Tensor::from_host(x.clone()), Tensor::from_host(y.clone()));
        let inputs = block_on(zip!(x, y).on(rig.runtime())).unwrap();
        let configs = [
            LaunchConfig::new(),
            LaunchConfig::new().threads([64, 1, 1]),
            LaunchConfig::new().blocks([3, 1, 1]).threads([32, 1, 1]),
            LaunchConfig::new().blocks([1, 1, 1]).threads([1, 1, 1]).shared_bytes(1 << 10),
        ];
        for config in configs {
            let out = Tensor::full(len, POISON).then(value);
            // SAFETY: it does with any number of blocks and threads, and needs no shared memory.
            let configured = unsafe { saxpy.with(config) };
            let op = configured.call(out, a, inputs.0.clone(), inputs.1.clone(), n);
            let z = block_on(op.on(rig.runtime())).unwrap().0;
            assert_eq!(block_on(z.to_host().on(rig.runtime())).unwrap(), wanted, "{len} {config:?}");
        }
        // In tiles, the last of which is not whole.
        let mut z = block_on(Tensor::full(len, POISON).on(rig.runtime())).unwrap();
        for tile in [1, 7, 128, 100_000] {
            if len / tile > 60_000 {
                continue;
            }
            let tiles = (&mut z).partition([tile]).unwrap();
            block_on(saxpy.call(tiles, a, &inputs.0, &inputs.1, n).on(rig.runtime())).unwrap();
            assert_eq!(block_on(z.to_host().on(rig.runtime())).unwrap(), wanted, "{len} in tiles of {tile}");
        }
    }
    rig.settle_clean();
}

fn what_is_handed_in_comes_back_owned_shared_borrowed_or_made<R: OpsRig>(rig: &R) {
    let (saxpy, runtime) = (rig.saxpy(), rig.runtime());
    let read = |tensor: &Tensor<f32, R::Device>| block_on(tensor.to_host().on(runtime)).unwrap();
    let ones = || Tensor::<f32, R::Device>::ones(64);
    let shared = Arc::new(block_on(ones().on(runtime)).unwrap());

    // Owned, still to be made, shared; a number still to be made.
    let op = saxpy.call(Tensor::zeros(64), value(3.0), ones(), Arc::clone(&shared), value(32));
    let (z, a, x, y, n) = block_on(op.on(runtime)).unwrap();
    assert_eq!((a, n, x.len(), Arc::ptr_eq(&y, &shared)), (3.0, 32, 64, true));
    let both: Vec<f32> = (0..64).map(|i| if i < 32 { 4.0 } else { 0.0 }).collect();
    assert_eq!(read(&z), both);

    // A launch of what another one gives, in one operation.
    let next = saxpy.clone();
    let chain = saxpy.call(z, 1.0, x, y, 64_u32).then(move |(z, _, x, y, n)| {
        next.call(x, 0.5, z.clone(), y, n).map(move |(x, _, _, y, _)| (x, y, z))
    });
    let (x, y, z) = block_on(chain.on(runtime)).unwrap();
    assert_eq!((read(&z), read(&x)), (vec![2.0; 64], vec![2.0; 64]));

    // Borrowed: given back as it was.
    let mut z = z;
    let (back, _, from, other, _) = block_on(saxpy.call(&mut z, 2.0, &x, y, 64).on(runtime)).unwrap();
    assert_eq!((back.len(), from.len(), Arc::ptr_eq(&other, &shared)), (64, 64, true));
    assert_eq!(read(&z), [5.0; 64]);

    // In tiles, of one's own and borrowed.
    let tiles = z.partition([16]).unwrap();
    let op = saxpy.call(tiles, 1.0, Arc::clone(&shared), Arc::clone(&shared), 64);
    let tiles = block_on(op.on(runtime)).unwrap().0;
    assert_eq!(tiles.grid(), [4].into());
    let mut z = tiles.unpartition();
    let tiles = (&mut z).partition([8]).unwrap();
    let call = saxpy.call(tiles, 3.0, &*shared, &x, 64);
    let (tiles, ..) = call.on(runtime).sync().unwrap();
    assert_eq!(tiles.grid(), [8].into());
    assert_eq!(read(tiles.unpartition()), [5.0; 64]);

    // Bound by the task, and in a stream that was named.
    block_on(runtime.scope(async { saxpy.call(&mut z, 1.0, &*shared, &x, 64).await.map(drop) })).unwrap();
    let stream = runtime.stream(Priority::Normal).unwrap();
    saxpy.call(&mut z, 1.0, &*shared, &x, 64).sync_on(&stream).unwrap();
    assert_eq!(read(&z), [3.0; 64]);
    drop((z, x, other, shared, stream));
    rig.settle_clean();
}

fn launches_on_one_tensor_are_ordered_in_whatever_streams<R: OpsRig>(rig: &R) {
    let (affine, runtime) = (rig.typed_affine(), rig.runtime());
    let mut tensor = block_on(Tensor::full(1_000, 1_u32).on(runtime)).unwrap();
    let mut wanted = 1_u32;
    for addend in 0..20 {
        // Dropped when it was submitted: what is in flight goes on, and is no other name of the tensor.
        let mut future = affine.call(&mut tensor, 1_000, 3, addend).on(runtime);
        let _ = wakeline_tests::ops_rig::poll_once(&mut future);
        drop(future);
        wanted = wanted.wrapping_mul(3).wrapping_add(u32::try_from(addend).unwrap());
    }
    assert_eq!(block_on(tensor.to_host().on(runtime)).unwrap(), [wanted; 1_000]);
    drop(tensor);
    rig.settle_clean();
}

fn what_does_not_fit_is_refused_and_nothing_is_launched<R: OpsRig>(rig: &R) {
    let (saxpy, affine, runtime) = (rig.saxpy(), rig.typed_affine(), rig.runtime());
    let x = block_on(Tensor::ones(10).on(runtime)).unwrap();
    let mut z = block_on(Tensor::full(8, POISON).on(runtime)).unwrap();
    for (n, condition) in [(9, "n as usize <= z.len()"), (u32::MAX, "n as usize <= z.len()")] {
        let error = block_on(saxpy.call(&mut z, 1.0, &x, &x, n).on(runtime)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArguments);
        assert_eq!(error.args()[..2], ["Saxpy", condition]);
    }
    // Named by others, who would see it change.
    let shared = z.clone();
    for error in [
        block_on(saxpy.call(&mut z, 1.0, &x, &x, 8).on(runtime)).map(drop).unwrap_err(),
        block_on(saxpy.call(shared.clone(), 1.0, &x, &x, 8).on(runtime)).map(drop).unwrap_err(),
    ] {
        assert_eq!(error.code(), ErrorCode::TensorShared, "{error}");
    }
    drop(shared);
    assert_eq!(block_on(z.to_host().on(runtime)).unwrap(), [POISON; 8]);
    block_on(saxpy.call(&mut z, 1.0, &x, &x, 8).on(runtime)).unwrap();
    assert_eq!(block_on(z.to_host().on(runtime)).unwrap(), [2.0; 8]);
    // A view whose numbers do not lie row by row.
    let columns = block_on(Tensor::<f32, _>::zeros([2, 4]).on(runtime)).unwrap().transpose().unwrap();
    let error = block_on(saxpy.call(&mut z, 1.0, &columns, &x, 8).on(runtime)).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidShape, "{error}");
    // Nothing at all is as good as any.
    let nothing = Tensor::<u32, R::Device>::zeros(0);
    let (none, ..) = block_on(affine.call(nothing, 0, 1, 1).on(runtime)).unwrap();
    assert!(none.is_empty());
    // More threads than any device has.
    // SAFETY: nothing is launched.
    let wide = unsafe { affine.with(LaunchConfig::new().threads([4_096, 1, 1])) };
    let error = block_on(wide.call(Tensor::zeros(8), 8, 1, 1).on(runtime)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidLimit, "{error}");
    drop((x, z, none, columns));
    rig.settle_clean();
}

kernel! { struct OfDoubles(out z: [f64], a: f64, in x: [f64], in y: [f64], n: u32); }
kernel! { struct TooFew(out z: [f32], a: f32, in x: [f32], in y: [f32]); }

fn a_signature_that_is_not_the_kernels_is_refused_where_the_driver_can_tell(rig: &CudaRig) {
    use wakeline_cuda::Caps;
    use wakeline_cuda::kernels::{SAXPY, SAXPY_PTX};
    if !rig.device().context().driver().caps().contains(Caps::PARAMETER_INFO) {
        println!("skipped: the driver cannot tell what a kernel takes");
        return;
    }
    let kernel = rig.device().ptx(SAXPY_PTX).unwrap().function(SAXPY).unwrap();
    // SAFETY: nothing is launched.
    let errors = [
        unsafe { OfDoubles::bind(rig.device(), kernel.clone()) }.map(drop).unwrap_err(),
        // SAFETY: as above.
        unsafe { TooFew::bind(rig.device(), kernel) }.map(drop).unwrap_err(),
    ];
    for (error, bound) in errors.iter().zip(["[8, 8, 8, 8, 4]", "4 argument(s) of [8, 4, 8, 8]"]) {
        assert_eq!((error.code(), &error.args()[0][..]), (ErrorCode::KernelMismatch, SAXPY));
        assert!(error.args()[1].contains("5 argument(s) of [8, 4, 8, 8, 4]"), "{error}");
        assert!(error.args()[2].contains(bound), "{error}");
    }
    rig.settle_clean();
}

fn a_source_is_compiled_once_for_many_kernels(rig: &CudaRig) {
    use wakeline_cuda::{CompileOptions, Compiler, KernelCache};
    use wakeline_tests::kernels::SAXPY_CUDA;
    let cache = KernelCache::in_memory();
    let compiler = Compiler::at(rig.fake().path()).cached(&cache);
    for _ in 0..3 {
        rig.device().compile(&compiler, SAXPY_CUDA, &CompileOptions::new()).unwrap();
    }
    assert_eq!((cache.stats().misses, cache.stats().memory_hits), (1, 2));
    assert_eq!(rig.fake().calls("nvrtcCompileProgram"), 1);
}

//! Memory of device and host: none, too much, none left.

use wakeline_core::ErrorCode;
use wakeline_cuda::{Cuda, CudaDevice, CudaDeviceConfig, Ordinal};
use wakeline_mapped::{ContextConfig, DEVICE_BYTES_KEPT, OpDevice};
use wakeline_ops::port::{Device, Memory, Pinned, Priority};
use wakeline_ops::{DeviceOp, SingleStream};
use wakeline_std::block_on;
use wakeline_tensor::Tensor;
use wakeline_tests::device_tests;
use wakeline_tests::ops_rig::{CudaRig, OpsRig, VendorRig};
use wakeline_tests::vendor::Vendor;

device_tests![
    Everywhere: numbers_of_every_sort_come_back_as_they_were,
        nothing_is_a_length_as_any;
    Vendors: more_than_there_is_is_an_error_of_its_own_and_the_device_goes_on,
        pinned_memory_is_used_again_and_bounded;
    Fakes: the_devices_pool_keeps_what_is_freed;
    Fake: a_device_without_pools_is_refused_with_a_reason;
];

fn numbers_of_every_sort_come_back_as_they_were<R: OpsRig>(rig: &R) {
    let single = rig.runtime().with_policy(&SingleStream).unwrap();
    macro_rules! there_and_back {
        ($($numbers:expr),*) => {$(
            let numbers = $numbers;
            let op = Tensor::from_host(numbers.clone()).then(|tensor| tensor.to_host());
            assert_eq!(block_on(op.on(&single)).unwrap(), numbers);
        )*};
    }
    there_and_back!(
        vec![1_u8, 255],
        vec![-3_i16],
        vec![f32::MIN, 1.5],
        vec![f64::MAX; 3],
        vec![i64::MIN, 7],
        (0..3_000_000_u32).collect::<Vec<_>>()
    );
    let full = block_on(Tensor::full(100_000, -7_i32).then(|tensor| tensor.to_host()).on(&single)).unwrap();
    assert!(full.len() == 100_000 && full.iter().all(|number| *number == -7));
    rig.settle_clean();
}

fn nothing_is_a_length_as_any<R: OpsRig>(rig: &R) {
    let tensor = block_on(Tensor::<u32, R::Device>::from_host(Vec::new()).on(rig.runtime())).unwrap();
    let other = block_on(Tensor::full(0, 9_u32).on(rig.runtime())).unwrap();
    assert!(tensor.is_empty());
    let copy = block_on(tensor.copy_to(other).on(rig.runtime())).unwrap();
    assert_eq!(block_on(copy.to_host().on(rig.runtime())).unwrap(), [0_u32; 0]);
    drop((tensor, copy));
    rig.settle_clean();
}

fn more_than_there_is_is_an_error_of_its_own_and_the_device_goes_on<D: Vendor>(rig: &VendorRig<D>) {
    let stream = rig.device().stream(Priority::Normal).unwrap();
    let error = rig.device().alloc(&stream, 1 << 42).unwrap_err();
    assert_eq!((error.code(), error.args()[1].as_str()), (ErrorCode::OutOfMemory, "device"), "{error}");
    assert!(error.to_string().contains("4398046511104 bytes"), "{error}");
    let error = rig.device().pinned(2 << 30).unwrap_err();
    assert_eq!((error.code(), error.args()[1].as_str()), (ErrorCode::OutOfMemory, "pinned"), "{error}");
    assert!(error.to_string().contains("at most 1073741824 bytes"), "{error}");
    let error = rig.device().pinned(usize::MAX).unwrap_err();
    assert_eq!(error.code(), ErrorCode::OutOfMemory, "{error}");
    let op = Tensor::full(4, 2_u8).then(|tensor| tensor.to_host());
    assert_eq!(block_on(op.on(rig.runtime())).unwrap(), [2; 4]);
    rig.settle();
}

fn pinned_memory_is_used_again_and_bounded<D: Vendor>(rig: &VendorRig<D>) {
    let config = ContextConfig { pinned_bytes_max: 1 << 16, ..ContextConfig::default() };
    let context = rig.rig().context_beside(&config).unwrap();
    let device = OpDevice::in_context(context, DEVICE_BYTES_KEPT).unwrap();
    #[expect(unsafe_code, reason = "the port is called as operations do")]
    // SAFETY: no device uses it.
    let promise = || unsafe { wakeline_ops::port::Promise::new() };
    for round in 0..100_u8 {
        let pinned = device.pinned(5_000).unwrap();
        pinned.write(0, &[round; 5_000], promise()).unwrap();
        let mut back = [0; 5_000];
        pinned.read(0, &mut back, promise()).unwrap();
        assert_eq!(back, [round; 5_000]);
        assert_eq!(pinned.read(0, &mut [0; 5_001], promise()).unwrap_err().code(), ErrorCode::InvalidLimit);
        assert_eq!(pinned.write(0, &[0; 5_001], promise()).unwrap_err().code(), ErrorCode::InvalidLimit);
    }
    let used = device.context().pinned();
    assert_eq!((used.bytes, used.kept_bytes), (8_192, 8_192), "one block for all");
    let most: Vec<_> = (0..8).map(|_| device.pinned(8_192).unwrap()).collect();
    assert_eq!(device.pinned(1).unwrap_err().code(), ErrorCode::OutOfMemory);
    drop(most);
    // What is kept of other lengths makes room.
    let large = device.pinned(1 << 16).unwrap();
    assert_eq!((device.context().pinned().bytes, device.context().pinned().kept_bytes), (1 << 16, 0));
    assert_eq!(device.pinned(1).unwrap_err().code(), ErrorCode::OutOfMemory);
    drop(large);
    drop(device.pinned(1).unwrap());
}

fn a_device_without_pools_is_refused_with_a_reason(rig: &CudaRig) {
    let context = || rig.rig().context_beside(&ContextConfig::default()).unwrap();
    rig.fake().configure(|options| options.attributes = [(115, 0)].into());
    let error = CudaDevice::in_context(context(), DEVICE_BYTES_KEPT).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Backend);
    assert!(error.to_string().contains("no pools of memory"), "{error}");
    rig.fake().configure(|options| options.attributes.clear());

    // A driver that does not have the functions says the same.
    let old = wakeline_fake_driver::Fake::new().unwrap();
    old.configure(|options| options.hidden = ["cuMemAllocAsync".to_owned()].into());
    let cuda = Cuda::load_from(old.path()).unwrap();
    let has = cuda.caps().contains(wakeline_cuda::Caps::MEMORY_POOLS);
    let made = CudaDevice::with(&cuda, Ordinal(0), &CudaDeviceConfig::default());
    assert_eq!(made.is_ok(), has, "{made:?}");
}

fn the_devices_pool_keeps_what_is_freed<D: Vendor>(rig: &VendorRig<D>) {
    let kept = || rig.rig().release_threshold();
    assert_eq!(kept(), DEVICE_BYTES_KEPT);
    // It is set higher and never lower.
    drop(OpDevice::in_context(rig.rig().context().clone(), 1 << 20).unwrap());
    assert_eq!(kept(), DEVICE_BYTES_KEPT);
}

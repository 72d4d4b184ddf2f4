//! From the library's name to its functions, or to an error that says why not: on this machine, and on the stand-in.

#![allow(unsafe_code, reason = "it hands raw streams in")]
#![allow(clippy::unwrap_used, reason = "tests")]

use wakeline_core::ErrorCode;
use wakeline_hip::Hip;

/// A missing library made the program panic, or kept it from starting.
#[test]
fn case_67_a_machine_without_hip_gets_an_error_that_names_what_is_missing() {
    match Hip::load() {
        Ok(hip) => println!("{hip:?}"),
        Err(error) if error.code() == ErrorCode::LibraryMissing => {
            assert!(
                error.args()[1].contains("libamdhip64.so.7, libamdhip64.so.6, libamdhip64.so.5"),
                "{error}"
            );
        }
        Err(error) => assert_eq!(error.code(), ErrorCode::NoDevice, "{error}"),
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod on_the_stand_in {
    use wakeline_core::{
        CompletionPort, ErrorCode, Inline, Nanos, Status as Answer, Wait, WaitPlan, drive, run_inline,
    };
    use wakeline_fake_driver::{Act, Fake, Rule, Status};
    use wakeline_hip::{
        Caps, CompletionPath, ContextConfig, GfxArch, Hip, HipContext, HipStream, HostBuffer, Loader,
        Ordinal, kernels,
    };
    use wakeline_std::{ParkPolicy, StdClock, StdIdle, StdPark};

    /// What Debian 12's HIP 5.2 lacks of what is used.
    const LACKS_OF_5_2: [&str; 4] = [
        "hipStreamGetDevice",
        "hipLaunchHostFunc",
        "hipGetDevicePropertiesR0600",
        "hipModuleLaunchCooperativeKernel",
    ];

    fn waits(stream: &HipStream) {
        let clock = StdClock::new();
        let idle = StdIdle::new(clock);
        let park = StdPark::new(&idle, ParkPolicy::default());
        let plan: WaitPlan = "flag:park_us=50,backstop_us=1000".parse().unwrap();
        let mut port = stream.port().unwrap();
        run_inline(drive(Wait::new(&plan), &mut port, &Inline::new(clock, &idle, &park), None))
            .unwrap()
            .unwrap();
        assert_eq!(port.query().unwrap(), Answer::Done);
    }

    #[test]
    fn a_whole_library_has_all_capabilities_and_devices_tell_what_they_are() {
        let fake = Fake::new().unwrap();
        let hip = Hip::load_from(fake.path()).unwrap();
        assert_eq!((hip.caps(), hip.device_count()), (Caps::all(), 1));
        assert_eq!(hip.version().to_string(), "6.4.43484");
        let device = hip.device(Ordinal(0)).unwrap();
        assert_eq!(device.name().unwrap(), "Fake GPU 0");
        assert_eq!(device.arch().unwrap(), GfxArch::new("gfx942:sramecc+:xnack-"));
        assert!(device.maps_host_memory().unwrap() && device.has_memory_pools().unwrap());
        assert!(device.waits_for_words().unwrap());
        assert_eq!(device.total_memory().unwrap(), 80 << 30);
        assert_eq!(hip.device(Ordinal(1)).unwrap_err().code(), ErrorCode::Backend);
        assert!(fake.violations().is_empty());
    }

    #[test]
    fn what_an_older_library_lacks_is_bridged() {
        let fake = Fake::new().unwrap();
        fake.configure(|options| options.devices = 2);
        let hip = Loader::new().path(fake.path()).without(LACKS_OF_5_2).load().unwrap();
        let lacks = Caps::STREAM_DEVICES | Caps::HOST_FUNCTIONS | Caps::PROPERTIES_R0600 | Caps::COOPERATIVE;
        assert_eq!(hip.caps(), Caps::all() - lacks);
        assert_eq!(hip.device(Ordinal(0)).unwrap().arch().unwrap().processor(), "gfx942");

        let config = ContextConfig { completion: CompletionPath::Callback, ..ContextConfig::default() };
        let context = HipContext::primary(&hip, Ordinal(0), &config).unwrap();
        assert_eq!(context.completion(), CompletionPath::Callback, "{:?}", context.warnings());
        assert!(fake.calls("hipStreamAddCallback") > 0);
        let stream = context.stream().unwrap();
        let kernels = kernels::Kernels::load(&context).unwrap();
        kernels.occupy(&stream, Nanos::from_millis(2)).unwrap();
        waits(&stream);

        let other = hip.context(1).unwrap();
        let theirs = other.stream().unwrap();
        // SAFETY: the stream lives to the end of the test.
        let error = unsafe { HipStream::from_raw(&context, theirs.raw().as_ptr()) }.unwrap_err();
        assert_eq!(error.code(), ErrorCode::ForeignStream);
        // SAFETY: as above.
        let own = unsafe { HipStream::from_raw(&other, theirs.raw().as_ptr()) }.unwrap();
        waits(&own);
        drop((own, theirs, stream, kernels));
        context.close(std::time::Duration::from_secs(5)).unwrap();
        other.close(std::time::Duration::from_secs(5)).unwrap();
        assert!(fake.violations().is_empty(), "{:?}", fake.violations());
    }

    #[test]
    fn a_library_without_devices_says_so_by_either_number() {
        let fake = Fake::new().unwrap();
        for status in [Status::NO_DEVICE, Status::INVALID_DEVICE] {
            fake.configure(|options| options.init = status);
            let error = Hip::load_from(fake.path()).unwrap_err();
            assert_eq!(error.code(), ErrorCode::NoDevice);
            assert!(error.to_string().contains(&format!("({})", status.0)), "{error}");
        }
    }

    #[test]
    fn a_library_of_something_else_names_the_function_that_it_lacks() {
        let error = Hip::load_from("libm.so.6").unwrap_err();
        assert_eq!(error.code(), ErrorCode::SymbolMissing);
        assert_eq!(error.args()[1..3], ["libm.so.6", "hipInit"]);
        let fake = Fake::new().unwrap();
        let error = Loader::new().path(fake.path()).without(["hipEventQuery"]).load().unwrap_err();
        assert_eq!(error.args()[2], "hipEventQuery");
    }

    /// A call that gave nothing was taken for one that gave the first device.
    #[test]
    fn a_device_that_no_call_gave_is_not_the_first() {
        for call in ["hipStreamGetDevice", "hipGetDevice", "hipDeviceGet"] {
            let fake = Fake::new().unwrap();
            fake.configure(|options| options.devices = 2);
            let hip = Hip::load_from(fake.path()).unwrap();
            let context = hip.context(1).unwrap();
            let stream = context.stream().unwrap();
            let rule = fake.rule(Rule::new(call, Act::DropEffect));
            // SAFETY: the stream lives to the end of the test.
            let theirs = unsafe { HipStream::from_raw(&context, stream.raw().as_ptr()) };
            let again = hip.context(1);
            assert!(fake.hits(rule) > 0, "{call}");
            fake.clear_rules();
            let errors = [theirs.err(), again.err()];
            assert!(errors.iter().any(Option::is_some), "{call}");
            for error in errors.into_iter().flatten() {
                assert!(error.to_string().contains("-1 is no device's number"), "{call}: {error}");
            }
            drop(stream);
            assert!(fake.violations().is_empty(), "{call}: {:?}", fake.violations());
        }
    }

    /// Whether host memory was coherent was left to flags that were left out, and so to a variable of the environment. The stand-in calls each such allocation a violation.
    #[test]
    fn case_11_all_host_memory_is_coherent_by_its_flag_and_not_by_the_environment() {
        let fake = Fake::new().unwrap();
        let hip = Hip::load_from(fake.path()).unwrap();
        let allocations = || fake.calls("hipHostMalloc");
        let context = hip.context(0).unwrap();
        let stream = context.stream().unwrap();
        waits(&stream);
        let words = allocations();
        assert!(words > 0, "the words of streams are in host memory");
        let buffer = HostBuffer::new(&context, 4_096).unwrap();
        let kernel_word = context.kernel_word().unwrap();
        let pinned = wakeline_mapped::Pinned::new(&context, 1 << 20).unwrap();
        assert!(allocations() >= words + 2, "buffers and pinned memory are others");
        drop((buffer, kernel_word, pinned, stream));
        context.close(std::time::Duration::from_secs(5)).unwrap();
        assert!(fake.violations().is_empty(), "{:?}", fake.violations());
    }

    #[test]
    fn a_context_beside_a_devices_own_is_refused() {
        let fake = Fake::new().unwrap();
        let hip = Hip::load_from(fake.path()).unwrap();
        let error = HipContext::create(&hip, Ordinal(0), &ContextConfig::default()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Backend);
        assert!(error.to_string().contains("no contexts beside the devices' own"), "{error}");
    }
}

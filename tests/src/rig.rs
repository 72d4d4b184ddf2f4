//! A driver to test on, CUDA's or HIP's: the stand-in, or the machine's own.
//!
//! The same tests run on both. Where there is no GPU those on the machine's own are counted as ignored, and say so.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, clippy::panic, reason = "for tests")]

use std::time::Duration;

use libtest_mimic::Trial;
use wakeline_core::{Error, Nanos};
use wakeline_cuda::Cuda;
use wakeline_fake_driver::{Call, Fake, Live, Options, cuda_name};
use wakeline_hip::Hip;
use wakeline_mapped::{Context, ContextConfig, Kernels, Stream};

use crate::suite::{Devices, Suite};
use crate::vendor::Vendor;

/// How long the stand-in takes to tell of a fault: the real one takes 340 ms. Long enough that a test on a busy machine gets its waits under way.
pub const FAKE_FAULT: Duration = Duration::from_millis(40);

/// How long a GPU's driver takes at most: 0.6 to 0.9 s on an H200 (driver 580), and 3.1 to 4.2 s there with 32 hardware queues
/// (`CUDA_DEVICE_MAX_CONNECTIONS`).
const GPU_FAULT: Duration = Duration::from_secs(8);

/// How long what a test leaves under way may take to end.
const LEFT: Duration = Duration::from_secs(5);

/// A driver, and a context of its own on its first device.
#[derive(Debug)]
pub struct Rig<D: Vendor> {
    context: Context<D>,
    kernels: Kernels<D>,
    driver: D,
    /// The stand-in, where it is that.
    fake: Option<Fake>,
}

impl<D: Vendor> Rig<D> {
    /// The stand-in, as `change` has it behave.
    pub fn fake(change: impl FnOnce(&mut Options)) -> Self {
        let fake = Fake::new().unwrap();
        fake.configure(|options| {
            options.fault_delay_us = u64::try_from(FAKE_FAULT.as_micros()).unwrap();
            D::prepare(options);
            change(options);
        });
        let driver = D::load_from(fake.path()).unwrap();
        Self::on(driver, Some(fake))
    }

    /// The machine's own driver.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn gpu() -> Result<Self, Error> {
        Ok(Self::on(D::load()?, None))
    }

    fn on(driver: D, fake: Option<Fake>) -> Self {
        let context = driver.own_context(&ContextConfig::default()).unwrap();
        let kernels = Kernels::load(&context).unwrap();
        Self { context, kernels, driver, fake }
    }

    /// The driver.
    pub const fn driver(&self) -> &D {
        &self.driver
    }

    /// Another context than the test's own.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn context_beside(&self, config: &ContextConfig) -> Result<Context<D>, Error> {
        self.driver.context_beside(config)
    }

    /// The calls that the stand-in's log has, by CUDA's names.
    pub fn log(&self) -> Vec<Call> {
        let named = |call: Call| match cuda_name(&call.name) {
            Some(name) => Call { name: name.to_owned(), ..call },
            None => call,
        };
        self.stand_in().log().into_iter().map(named).collect()
    }

    /// The test's own context.
    pub const fn context(&self) -> &Context<D> {
        &self.context
    }

    /// Its kernels.
    pub const fn kernels(&self) -> &Kernels<D> {
        &self.kernels
    }

    /// The stand-in, in a test that runs on it alone.
    pub fn stand_in(&self) -> &Fake {
        self.fake.as_ref().unwrap()
    }

    /// What priority the stand-in's stream has.
    pub fn priority(&self, stream: &Stream<D>) -> i32 {
        self.stand_in().priority(stream.raw().as_ptr().addr() as u64)
    }

    /// How many free bytes the default pool of the stand-in's device keeps.
    pub fn release_threshold(&self) -> u64 {
        self.stand_in().release_threshold(0)
    }

    /// Whether it is the stand-in.
    pub const fn is_fake(&self) -> bool {
        self.fake.is_some()
    }

    /// How long the driver takes to tell of a fault, at most: 340 to 800 ms on an H200.
    pub const fn fault_delay(&self) -> Duration {
        if self.is_fake() { FAKE_FAULT } else { GPU_FAULT }
    }

    /// A stream of the test's context.
    pub fn stream(&self) -> Stream<D> {
        self.context.stream().unwrap()
    }

    /// A stream that is occupied for so long.
    pub fn busy(&self, length: Nanos) -> Stream<D> {
        let stream = self.stream();
        self.kernels.occupy(&stream, length).unwrap();
        stream
    }

    /// Lets go of everything, and looks what is left in the stand-in.
    pub(crate) fn end(self, leaves: bool) -> Result<(), String> {
        let Self { context, kernels, driver, fake } = self;
        // Stores of what was dropped under work may be under way: a context that goes now leaves their pages behind.
        let start = std::time::Instant::now();
        while !leaves && context.slots().settling > 0 && context.health().is_ok() && start.elapsed() < LEFT {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(kernels);
        drop(context);
        drop(driver);
        let Some(fake) = fake else { return Ok(()) };
        fake.clear_rules();
        fake.release();
        let violations = fake.violations();
        if !violations.is_empty() {
            return Err(format!("the driver was misused: {violations:#?}"));
        }
        // Threads that a test has told to end may still be at it.
        let start = std::time::Instant::now();
        let left = || {
            let live = fake.live();
            if D::MODULES_STAY { Live { modules: 0, ..live } } else { live }
        };
        while !leaves && left() != Live::default() {
            if start.elapsed() > LEFT {
                return Err(format!("left behind: {:?}", left()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Where a test can run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    /// On the stand-in and on a GPU.
    Both,
    /// As `Both`, and it may leave something behind: on a GPU in a process of its own, since a fault there ends every context of the process.
    BothLeaving,
    /// On the stand-in alone: it makes the driver fail.
    Fake,
    /// On the stand-in alone, and it may leave something behind.
    FakeLeaving,
    /// On the stand-in alone, for minutes: ignored unless it is asked for.
    FakeLong,
}

/// What a test does, on a driver.
pub type Run<D> = fn(&Rig<D>);

/// A test.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// Its function's name.
    pub name: &'static str,
    /// Where it runs.
    pub on: On,
    /// What it does on CUDA; `None` where it is of what HIP alone does.
    pub cuda: Option<Run<Cuda>>,
    /// What it does on HIP; `None` where it is of what CUDA alone has.
    pub hip: Option<Run<Hip>>,
}

/// Lists functions as tests: `driver_tests![Both: one, two; Fake: three]`. They are generic over the [`Vendor`], but those behind `@cuda` or `@hip`:
/// `driver_tests![Both: one; @cuda Fake: two]`.
#[macro_export]
macro_rules! driver_tests {
    (@cuda $($on:ident: $($name:ident),+ $(,)?);+ $(;)?) => {
        pub(crate) const TESTS: &[$crate::rig::Test] = &[$($(
            $crate::rig::Test { name: stringify!($name), on: $crate::rig::On::$on, cuda: Some($name), hip: None },
        )+)+];
    };
    ($($on:ident: $($name:ident),+ $(,)?);+ $(;)? @hip $($other_on:ident: $($other:ident),+ $(,)?);+ $(;)?) => {
        pub(crate) const TESTS: &[$crate::rig::Test] = &[
            $($($crate::rig::Test {
                name: stringify!($name),
                on: $crate::rig::On::$on,
                cuda: Some($name::<wakeline_cuda::Cuda>),
                hip: Some($name::<wakeline_hip::Hip>),
            },)+)+
            $($($crate::rig::Test {
                name: stringify!($other),
                on: $crate::rig::On::$other_on,
                cuda: None,
                hip: Some($other),
            },)+)+
        ];
    };
    ($($on:ident: $($name:ident),+ $(,)?);+ $(;)? $(@cuda $($other_on:ident: $($other:ident),+ $(,)?);+ $(;)?)?) => {
        pub(crate) const TESTS: &[$crate::rig::Test] = &[
            $($($crate::rig::Test {
                name: stringify!($name),
                on: $crate::rig::On::$on,
                cuda: Some($name::<wakeline_cuda::Cuda>),
                hip: Some($name::<wakeline_hip::Hip>),
            },)+)+
            $($($($crate::rig::Test {
                name: stringify!($other),
                on: $crate::rig::On::$other_on,
                cuda: Some($other),
                hip: None,
            },)+)+)?
        ];
    };
}

/// Runs the tests of these groups as the arguments say; does not return.
pub fn run(groups: &[(&'static str, &'static [Test])]) -> ! {
    let mut suite = Suite::from_args();
    let mut cuda_devices = Devices::new("CUDA device", Cuda::load().err().map(|error| error.to_string()));
    let mut hip_devices = Devices::new("HIP device", Hip::load().err().map(|error| error.to_string()));
    for (group, tests) in groups {
        for test in *tests {
            let Test { name, on, cuda, hip } = *test;
            let full = format!("{group}::{name}");
            if let Some(cuda) = cuda {
                add(&mut suite, &mut cuda_devices, &full, on, cuda);
            }
            if let Some(hip) = hip {
                add(&mut suite, &mut hip_devices, &full, on, hip);
            }
        }
    }
    suite.run([cuda_devices, hip_devices])
}

/// Adds a test where it can run.
fn add<D: Vendor>(suite: &mut Suite, devices: &mut Devices, name: &str, on: On, run: Run<D>) {
    let (stand_in, device) = D::ON;
    let leaves = matches!(on, On::FakeLeaving | On::BothLeaving);
    let trial = Trial::test(format!("{stand_in}::{name}"), move || {
        let rig = Rig::fake(|_| {});
        run(&rig);
        Ok(rig.end(leaves)?)
    });
    suite.add(trial.with_ignored_flag(on == On::FakeLong), leaves);
    if matches!(on, On::Both | On::BothLeaving) {
        suite.add_on(devices, format!("{device}::{name}"), leaves, move || {
            let rig = Rig::gpu().map_err(|error| error.to_string())?;
            run(&rig);
            Ok(rig.end(leaves)?)
        });
    }
}

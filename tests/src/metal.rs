//! A Metal device to test on: the fake, on virtual or on real time.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "for tests")]

use wakeline_core::{Error, Instant, Nanos};
use wakeline_fake_metal::{FakeBuffer, FakeMetal, Faults, Time};
use wakeline_metal::{Device, SharedEventPort, Stream};
use wakeline_sim::{SimConfig, SimDevice, VirtualHost, VirtualTime};

use crate::conform::{Backend, Truth};

/// A stream of the fake, on its own clock.
pub type MetalStream<T> = Stream<FakeMetal<T>, T>;
/// A point of it.
pub type MetalPort<T> = SharedEventPort<FakeMetal<T>, T>;

/// A device of the fake.
#[derive(Debug)]
pub struct MetalRig<T: Time + Clone> {
    /// Metal.
    pub metal: FakeMetal<T>,
    /// Its device.
    pub device: Device<FakeMetal<T>>,
}

impl MetalRig<VirtualTime> {
    /// On virtual time, as `faults` has it behave, and the host that lets the time pass.
    pub fn on_virtual_time(faults: Faults) -> (Self, VirtualHost) {
        let simulated = SimDevice::new(VirtualTime::new(), SimConfig::exact()).unwrap();
        let host = VirtualHost::new(&simulated);
        let rig = Self::on(&simulated);
        rig.metal.set_faults(faults);
        (rig, host)
    }
}

impl<T: Time + Clone> MetalRig<T> {
    /// On this simulated device.
    pub fn on(simulated: &SimDevice<T>) -> Self {
        let metal = FakeMetal::new(simulated);
        let device = Device::system(metal.clone()).unwrap();
        Self { metal, device }
    }

    /// A stream.
    pub fn stream(&self) -> MetalStream<T> {
        Stream::new(&self.device, self.metal.device().time().clone()).unwrap()
    }

    /// A buffer of the stream's with work that takes so long, and what is to be awaited of it.
    pub fn submit(&self, stream: &MetalStream<T>, length: Nanos) -> (FakeBuffer<T>, MetalPort<T>) {
        let buffer = stream.buffer().unwrap();
        buffer.work(length);
        let port = stream.submit(&buffer).unwrap();
        (buffer, port)
    }
}

/// A buffer, and how often it was asked before anybody awaited it.
#[derive(Debug)]
pub struct Submitted<T: Time>(FakeBuffer<T>, u64);

impl<T: Time> Truth for Submitted<T> {
    fn ended_at(&self) -> Option<Instant> {
        self.0.ended_at()
    }

    fn queries(&self) -> u64 {
        self.0.asked_times() - self.1
    }
}

impl<T: Time + Clone> Backend for MetalRig<T> {
    type Stream = MetalStream<T>;
    type Port = MetalPort<T>;
    type Truth = Submitted<T>;

    fn stream(&self) -> Result<MetalStream<T>, Error> {
        Stream::new(&self.device, self.metal.device().time().clone())
    }

    fn launch(&self, stream: &MetalStream<T>, length: Nanos) -> Result<(), Error> {
        let buffer = stream.buffer()?;
        buffer.work(length);
        buffer.commit();
        Ok(())
    }

    fn point(&self, stream: &MetalStream<T>) -> Result<(MetalPort<T>, Submitted<T>), Error> {
        let buffer = stream.buffer()?;
        let port = stream.submit(&buffer)?;
        let before = buffer.asked_times();
        Ok((port, Submitted(buffer, before)))
    }

    fn cannot_store(&self) -> bool {
        false
    }

    fn break_down(&self) {
        self.metal.remove_device();
    }
}

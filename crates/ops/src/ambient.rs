//! The runtime that is bound where an operation is awaited without naming one.

use core::any::Any;
use core::cell::RefCell;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use crate::port::Device;
use crate::runtime::Runtime;

type Bind = Arc<dyn Any + Send + Sync>;

thread_local! {
    /// The runtimes bound on this thread now, the innermost last: of each kind of device the last counts.
    static BOUND: RefCell<Vec<Bind>> = const { RefCell::new(Vec::new()) };
}

/// The runtime bound here for this kind of device.
pub(crate) fn current<D: Device>() -> Option<Runtime<D>> {
    let find = |bound: &RefCell<Vec<Bind>>| {
        let bound = bound.try_borrow().ok()?;
        bound.iter().rev().find_map(|bind| Runtime::of_inner(bind))
    };
    // A thread that is ending has nothing bound.
    BOUND.try_with(find).ok().flatten().or_else(crate::unbound::ask)
}

/// Unbinds when it is dropped, so that a panic leaves nothing bound.
struct Bound;

impl Bound {
    fn new<D: Device>(runtime: &Runtime<D>) -> Self {
        let bind = runtime.inner() as Bind;
        BOUND.with_borrow_mut(|bound| bound.push(bind));
        Self
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let last = BOUND.try_with(|bound| bound.try_borrow_mut().ok().and_then(|mut bound| bound.pop()));
        // Without the borrow: a runtime's drop runs code of others.
        drop(last);
    }
}

impl<D: Device> Runtime<D> {
    /// Binds this runtime to a future: operations that are awaited in it run here. Of nested scopes the innermost counts.
    ///
    /// Bound for the time of each poll only, so other futures of the thread do not see it; a task that is spawned in it needs a scope of
    /// its own. Costs an allocation.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
    /// use wakeline_tensor::Tensor;
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let watcher = VirtualWatcher::new(&device);
    /// let runtime = Runtime::new(device, &SingleStream, watcher.clone())?;
    /// let sum = watcher.run(runtime.scope(async {
    ///     let tensor: Tensor<u32, SimDevice> = Tensor::from_host(vec![1, 2, 3]).await?;
    ///     tensor.to_host().await
    /// }))??;
    /// assert_eq!(sum, [1, 2, 3]);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    pub fn scope<F: Future>(&self, future: F) -> Scope<D, F> {
        Scope { runtime: self.clone(), future: Box::pin(future) }
    }

    /// Binds this runtime while `f` runs, for operations that are run on the spot, and for those that are turned into futures.
    ///
    /// ```
    /// use wakeline_core::ErrorCode;
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream, value};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
    /// let op = || value::<SimDevice, _>(4);
    /// assert_eq!(runtime.enter(|| op().sync())?, 4);
    /// assert_eq!(op().sync().unwrap_err().code(), ErrorCode::NoRuntime);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    pub fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        let _bound = Bound::new(self);
        f()
    }
}

/// A future with a runtime bound to it; see [`Runtime::scope`].
#[must_use = "it does nothing until it is awaited"]
pub struct Scope<D: Device, F> {
    runtime: Runtime<D>,
    future: Pin<Box<F>>,
}

impl<D: Device, F: Future> Future for Scope<D, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let _bound = Bound::new(&this.runtime);
        this.future.as_mut().poll(context)
    }
}

impl<D: Device, F> fmt::Debug for Scope<D, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}

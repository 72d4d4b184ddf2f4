//! The server's life: from a listening socket and a device to the end of all that was in flight.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use wakeline::Nanos;

use crate::args::Args;
use crate::batcher::Batcher;
use crate::device::Opened;
use crate::error::ServeError;
use crate::http::{App, router};
use crate::metrics::Metrics;
use crate::model::Model;

/// Takes the address of the arguments.
///
/// # Errors
///
/// Another program has it, say.
pub async fn listen(args: &Args) -> Result<TcpListener, ServeError> {
    let address = args.listen;
    TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })
}

/// Serves until `stop` resolves. Then it accepts nothing more, answers what it has accepted, and waits until the device is done: all of that within `--grace-ms`.
///
/// # Errors
///
/// Not all of that ended in time, or the device's threads do not.
pub async fn serve<M: Model>(
    listener: TcpListener,
    opened: Opened<M>,
    args: &Args,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let Opened { model, about, watch, close } = opened;
    let metrics = Arc::new(Metrics::new());
    let (queue, jobs) = mpsc::channel(args.queue_max as usize);
    let slots = Arc::new(Semaphore::new(args.in_flight as usize));
    let batcher = Batcher {
        model: Arc::clone(&model),
        metrics: Arc::clone(&metrics),
        timer: watch.tokio.clone(),
        window: args.window(),
        batch_max: args.batch_max as usize,
        slots: Arc::clone(&slots),
    };
    let batcher = tokio::spawn(batcher.run(jobs));
    let app = App { args: args.clone(), about, queue, metrics, watch };
    let (has_ended, by) = answer(listener, app, args, stop).await;

    // Whoever is still in the queue is told that the server ends; what is on the device is let be done.
    batcher.abort();
    let batches_ended = timeout_at(by, slots.acquire_many(args.in_flight)).await.is_ok();
    let left = u64::try_from(by.saturating_duration_since(Instant::now()).as_nanos()).unwrap_or(u64::MAX);
    let drained = model.drain(Nanos::from_nanos(left)).await;
    // Its memory goes while somebody still watches.
    drop(model);
    close()?;
    let late = |what| ServeError::Grace { what, grace_ms: args.grace_ms };
    match (batches_ended, has_ended) {
        (false, _) => Err(late("a batch")),
        (_, false) => Err(late("a connection")),
        _ => Ok(drained?),
    }
}

/// Answers until `stop`, and then until all connections have ended, for as long as they may. Whether they have, and when all is to be over.
async fn answer(
    listener: TcpListener,
    app: App,
    args: &Args,
    stop: impl Future<Output = ()> + Send + 'static,
) -> (bool, Instant) {
    let (tell, told) = oneshot::channel();
    let grace = args.grace();
    let stop = async move {
        stop.await;
        let _ = tell.send(Instant::now() + grace);
    };
    let router = router(Arc::new(app));
    let mut server = pin!(axum::serve(listener, router).with_graceful_shutdown(stop).into_future());
    tokio::select! {
        _ = &mut server => (true, Instant::now() + grace),
        by = told => {
            let by = by.unwrap_or_else(|_| Instant::now());
            (timeout_at(by, server).await.is_ok(), by)
        }
    }
}

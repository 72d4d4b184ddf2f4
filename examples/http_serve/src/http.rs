//! What is asked by HTTP, and what is answered.

use std::sync::Arc;
use std::time::Instant;

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use axum::{Router, body::Body};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout_at;

use crate::args::Args;
use crate::batcher::Job;
use crate::device::Watch;
use crate::error::{BodyError, Refusal, said};
use crate::metrics::{About, Metrics};
use crate::model::INPUTS;

/// The longest body, bytes: 16 numbers as long as anybody writes them.
const BODY_BYTES_MAX: usize = 4_096;

/// What all handlers share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) args: Args,
    pub(crate) about: About,
    pub(crate) queue: mpsc::Sender<Job>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) watch: Arc<Watch>,
}

/// A request for the model.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    input: Vec<f64>,
}

/// What it gives.
#[derive(Debug, Serialize)]
struct Answer {
    output: Vec<f32>,
    /// How many requests were computed together.
    batch: u32,
}

/// All routes.
pub(crate) fn router(app: Arc<App>) -> Router {
    let nothing = || async { said(StatusCode::NOT_FOUND, "no_such_page", "there is nothing here; see /") };
    let other = || async {
        said(StatusCode::METHOD_NOT_ALLOWED, "no_such_method", "this is asked by another method")
    };
    Router::new()
        .route("/infer", post(infer))
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .route("/stats", get(stats))
        .route("/", get(async || page("text/html; charset=utf-8", include_str!("page/index.html"))))
        .route("/page.css", get(async || page("text/css; charset=utf-8", include_str!("page/page.css"))))
        .route("/page.js", get(async || page("text/javascript; charset=utf-8", include_str!("page/page.js"))))
        .fallback(nothing)
        .method_not_allowed_fallback(other)
        .with_state(app)
}

async fn infer(State(app): State<Arc<App>>, request: Request) -> Result<Json<Answer>, Refusal> {
    let arrived = Instant::now();
    let outcome = answer(&app, arrived, request.into_body()).await;
    app.metrics.ended(arrived, &outcome);
    outcome.map(Json)
}

/// The way of a request: its body, a place in the queue, the end of its batch; all by its deadline.
async fn answer(app: &App, arrived: Instant, body: Body) -> Result<Answer, Refusal> {
    let deadline = tokio::time::Instant::from_std(arrived + app.args.deadline());
    let bytes = timeout_at(deadline, to_bytes(body, BODY_BYTES_MAX)).await;
    let bytes = bytes.map_err(|_| Refusal::Slow(app.args.deadline_ms))?;
    let input = numbers(&bytes.map_err(|error| BodyError::Unread(error.to_string()))?)?;
    let (reply, done) = oneshot::channel();
    app.queue.try_send(Job { input, arrived, reply }).map_err(|error| match error {
        mpsc::error::TrySendError::Full(_) => Refusal::Full(app.args.queue_max),
        mpsc::error::TrySendError::Closed(_) => Refusal::Lost,
    })?;
    let done = timeout_at(deadline, done).await.map_err(|_| Refusal::Late(app.args.deadline_ms))?;
    let done = done.map_err(|_| Refusal::Lost)??;
    Ok(Answer { output: done.output, batch: done.rows })
}

/// The numbers of a body.
fn numbers(bytes: &[u8]) -> Result<Vec<f32>, BodyError> {
    let ask = Json::<Ask>::from_bytes(bytes).map_err(|rejection| {
        // Its cause says which field, and where.
        let cause = std::error::Error::source(&rejection).map(ToString::to_string);
        BodyError::Json(cause.unwrap_or_else(|| rejection.body_text()))
    })?;
    if ask.0.input.len() != INPUTS {
        return Err(BodyError::Count(ask.0.input.len()));
    }
    let each = ask.0.input.into_iter().enumerate();
    each.map(|(place, number)| {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the model has so many bits; what is too large is told"
        )]
        let narrow = number as f32;
        let wrong = || BodyError::Number { place, number: number.to_string() };
        if narrow.is_finite() { Ok(narrow) } else { Err(wrong()) }
    })
    .collect()
}

async fn health(State(app): State<Arc<App>>) -> Response {
    match app.metrics.fault() {
        None => (StatusCode::OK, "ok\n").into_response(),
        Some(error) => said(StatusCode::SERVICE_UNAVAILABLE, "device", &error.to_string()),
    }
}

async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let text = app.metrics.prometheus(&app.about, &app.watch, app.queued());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

async fn stats(State(app): State<Arc<App>>) -> Response {
    let stats = app.metrics.stats(&app.about, &app.watch, app.queued());
    ([(CACHE_CONTROL, "no-store")], Json(stats)).into_response()
}

/// A file of the page, which may load nothing from elsewhere.
fn page(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let headers: [(HeaderName, &str); 4] = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-cache"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "default-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"),
    ];
    (headers, text)
}

impl App {
    /// How many requests wait for a batch.
    fn queued(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_told_what_is_wrong_with_it() {
        let good = format!("{{\"input\": {:?}}}", [0.5; INPUTS]);
        assert_eq!(numbers(good.as_bytes()), Ok(vec![0.5; INPUTS]));
        for (body, says) in [
            ("", "EOF while parsing"),
            ("[", "EOF while parsing"),
            ("{\"input\": [1, 2]}", "`input` has 2 numbers"),
            (
                "{\"input\": [1, \"2\"]}",
                "input[1]: invalid type: string \"2\", expected f64 at line 1 column 17",
            ),
            ("{\"inptu\": []}", "unknown field `inptu`, expected `input`"),
            ("{}", "missing field `input`"),
            (&good.replacen("0.5", "1e39", 1), "`input[0]` is 1000000000"),
            (&good.replacen("0.5", "NaN", 1), "expected value at line 1 column 12"),
        ] {
            let said = Refusal::from(numbers(body.as_bytes()).unwrap_err()).to_string();
            assert!(said.contains(says) && said.contains("with 16 numbers"), "{body}: {said}");
        }
    }
}

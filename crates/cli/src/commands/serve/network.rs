//! [`Network`]: connections, routes and limits.
//!
//! One thread serves all connections. A request that does not arrive in time, or is too long, gets a status and
//! costs no other client anything. At the end, requests in progress are answered.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use super::answers::{Job, Refusal};
use super::metrics::Metrics;
use super::question::Facts;
use crate::args::LimitArgs;
use crate::error::CliError;

/// Interval of looking for a signal, and of trying again after a failed accept.
const POLL: Duration = Duration::from_millis(50);
/// Time for requests in progress at the end.
const LAST: Duration = Duration::from_secs(5);

/// State that all requests share.
pub struct Shared {
    pub facts: Facts,
    pub jobs: SyncSender<Job>,
    pub metrics: Arc<Metrics>,
    pub limits: LimitArgs,
}

/// Server that listens, but does not answer yet.
pub struct Network {
    runtime: Runtime,
    listener: tokio::net::TcpListener,
    shared: Arc<Shared>,
}

impl Network {
    /// Takes over a listener.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new(listener: TcpListener, shared: Arc<Shared>) -> Result<Self, CliError> {
        let failed = |error| CliError::Other(format!("cannot listen: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(failed)?
        };
        Ok(Self { runtime, listener, shared })
    }

    /// Serves until `stop` is set.
    pub fn run(self, stop: &AtomicBool) {
        let Self { runtime, listener, shared } = self;
        runtime.block_on(accept_all(listener, shared, stop));
    }
}

/// Accepts connections until `stop` is set, then waits for open requests.
async fn accept_all(listener: tokio::net::TcpListener, shared: Arc<Shared>, stop: &AtomicBool) {
    let limits = shared.limits;
    let router = routes(shared);
    let seats = Arc::new(Semaphore::new(limits.max_connections as usize));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(limits.timeout.into()));
    let open = GracefulShutdown::new();
    while !stop.load(Ordering::Acquire) {
        let Ok(Ok(seat)) = timeout(POLL, Arc::clone(&seats).acquire_owned()).await else { continue };
        let stream = match timeout(POLL, listener.accept()).await {
            Err(_) => continue,
            Ok(Ok((stream, _))) => stream,
            Ok(Err(error)) => {
                tracing::warn!("a connection is not accepted: {error}");
                sleep(POLL).await;
                continue;
            }
        };
        // Answers are short: each is sent at once.
        let _ = stream.set_nodelay(true);
        let connection = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        let connection = open.watch(connection);
        tokio::spawn(async move {
            let _seat = seat;
            // Errors are those of the client: it left, was late or does not speak HTTP.
            if let Err(error) = connection.await {
                tracing::debug!("a connection ended: {error}");
            }
        });
    }
    drop(listener);
    let _ = timeout(LAST, open.shutdown()).await;
}

fn routes(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(description))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/predict", post(predict))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .with_state(shared)
}

async fn description(State(shared): State<Arc<Shared>>) -> Response {
    shared.respond(StatusCode::OK, &shared.facts.to_json())
}

async fn health(State(shared): State<Arc<Shared>>) -> Response {
    shared.respond(StatusCode::OK, &json!({ "status": "ok" }))
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], shared.metrics.to_text()).into_response()
}

async fn unknown(State(shared): State<Arc<Shared>>) -> Response {
    shared.refuse(StatusCode::NOT_FOUND, "no such path; there are /, /health, /metrics and /predict")
}

async fn wrong_method(State(shared): State<Arc<Shared>>) -> Response {
    shared.refuse(StatusCode::METHOD_NOT_ALLOWED, "POST /predict; GET the other paths")
}

async fn predict(State(shared): State<Arc<Shared>>, body: Body) -> Response {
    let limits = shared.limits;
    let wait = Duration::from_secs(limits.timeout.into());
    let body = match timeout(wait, to_bytes(body, limits.max_body as usize)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let why = format!("the body is cut off, or longer than {} bytes", limits.max_body);
            return shared.refuse(StatusCode::PAYLOAD_TOO_LARGE, &why);
        }
        Err(_) => {
            let why = format!("the body did not arrive within {} s", limits.timeout);
            return shared.refuse(StatusCode::REQUEST_TIMEOUT, &why);
        }
    };
    let start = Instant::now();
    let question = match shared.facts.question(&body) {
        Ok(question) => question,
        Err(why) => return shared.refuse(StatusCode::BAD_REQUEST, &why),
    };
    let (answer, answered) = oneshot::channel();
    shared.metrics.queued();
    if let Err(error) = shared.jobs.try_send(Job { nodes: question.nodes, answer }) {
        shared.metrics.took(1);
        let why = match error {
            TrySendError::Full(_) => "too many requests wait; try again",
            TrySendError::Disconnected(_) => "the server ends",
        };
        return shared.refuse(StatusCode::SERVICE_UNAVAILABLE, why);
    }
    match answered.await {
        Ok(Ok(logits)) => {
            let response = shared.respond(StatusCode::OK, &shared.facts.answer(&logits, question.logits));
            shared.metrics.answered_in(start.elapsed());
            response
        }
        Ok(Err(Refusal::Question(why))) => shared.refuse(StatusCode::BAD_REQUEST, &why),
        Ok(Err(Refusal::Failure(why))) => shared.refuse(StatusCode::INTERNAL_SERVER_ERROR, &why),
        Err(_) => shared.refuse(StatusCode::INTERNAL_SERVER_ERROR, "the model does not answer any more"),
    }
}

impl Shared {
    fn respond(&self, status: StatusCode, body: &Value) -> Response {
        self.metrics.responded(status.as_u16());
        (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
    }

    fn refuse(&self, status: StatusCode, why: &str) -> Response {
        let mut response = self.respond(status, &json!({ "error": why }));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        response
    }
}

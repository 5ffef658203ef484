//! `girih serve`: answers questions about nodes over HTTP.
//!
//! ```text
//! thread of the network   requests ─▶ queue with a limit          answers ─▶ responses
//! main thread                             └─▶ some questions at once ─┘
//! ```
//! - `question`: bodies of requests, and their answers.
//! - `answers`: the main thread, which holds the model.
//! - `network`: connections, routes and limits.
//! - `metrics`: counts for Prometheus.

mod answers;
mod metrics;
mod network;
mod question;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use girih_datasets::Dataset;
use girih_features::MiniBatchBackend;
use girih_trainer::{Checkpoint, Combination, ExecutionPlan, NodePredictor};

use self::metrics::Metrics;
use self::network::Shared;
use self::question::Facts;
use crate::args::ServeArgs;
use crate::context::combination::execution;
use crate::context::device::on_backend;
use crate::context::trained::{best_checkpoint, data_of_one, describe};
use crate::error::CliError;
use crate::interrupt;

/// Answers until a signal asks for the end.
pub fn run(args: &ServeArgs) -> Result<(), CliError> {
    let checkpoint = best_checkpoint(&args.checkpoint)?;
    check_classifies(&checkpoint)?;
    let (backend, dataset) = data_of_one(&checkpoint, (&args.checkpoint, &args.data), &args.device)?;
    let listen = args.limits.listen;
    let listener = TcpListener::bind(listen).map_err(|error| {
        CliError::Other(format!(
            "cannot listen on {listen}: {error}; choose another --listen, or port 0 for a free one"
        ))
    })?;
    on_backend!(&backend, backend => serve(backend, dataset, &checkpoint, (args, listener)))
}

/// Refuses models that do not classify nodes.
fn check_classifies(checkpoint: &Checkpoint) -> Result<(), CliError> {
    let what = match execution(&Combination::of(&checkpoint.progress.config).applied())? {
        ExecutionPlan::Recommend => "recommends items",
        ExecutionPlan::Links => "predicts links",
        ExecutionPlan::Triples => "ranks entities of triples",
        _ => return Ok(()),
    };
    let message = format!(
        "{} {what}, and girih serve answers for classifiers of nodes; girih predict and girih embed write what it knows",
        checkpoint.progress.config.model.name()
    );
    Err(CliError::Other(message))
}

fn serve<B: MiniBatchBackend>(
    backend: &B,
    dataset: Dataset,
    checkpoint: &Checkpoint,
    (args, listener): (&ServeArgs, TcpListener),
) -> Result<(), CliError> {
    let limits = args.limits;
    let facts = Facts::new(&dataset, checkpoint, limits.max_nodes as usize);
    let mut results = describe(checkpoint, &backend.name());
    let predictor = NodePredictor::new(backend, dataset, checkpoint, args.fanout.clone())?;
    let (jobs, queue) = sync_channel(limits.queue as usize);
    let metrics = Arc::new(Metrics::default());
    let stop = interrupt::watch();
    let address = listener.local_addr().map_err(|error| CliError::Other(format!("no address: {error}")))?;
    let shared = Arc::new(Shared { facts, jobs, metrics: Arc::clone(&metrics), limits });
    let network = network::Network::new(listener, shared)?;
    let name = thread::Builder::new().name("network".to_owned());
    let network = name
        .spawn(move || network.run(stop))
        .map_err(|error| CliError::Other(format!("cannot start a thread: {error}; raise ulimit -u or -v")))?;
    let url = format!("http://{address}");
    results.add("nodes", predictor.n_nodes(), "Nodes", predictor.n_nodes().to_string()).add(
        "address",
        url.as_str(),
        "Listening on",
        url.as_str(),
    );
    results.print(args.output.json);
    answers::answer_all(predictor, &queue, limits.max_nodes as usize, &metrics);
    network.join().map_err(|_| CliError::Other("the thread of the network panicked".to_owned()))
}

//! [`answer_all`]: the thread that holds the model.

use std::sync::mpsc::Receiver;

use girih_features::MiniBatchBackend;
use girih_graph_format::{Matrix, NodeId};
use girih_trainer::{NodePredictor, TrainError};
use tokio::sync::oneshot;

use super::metrics::Metrics;
use super::question::Nodes;

/// Nodes of a request, and where their logits go.
pub struct Job {
    pub nodes: Nodes,
    pub answer: oneshot::Sender<Result<Matrix, Refusal>>,
}

/// Reason why a question has no answer.
#[derive(Debug)]
pub enum Refusal {
    /// The question does not fit graph or model.
    Question(String),
    /// The backend failed.
    Failure(String),
}

/// Answers questions until no thread can ask any more. Questions that wait are answered together, up to `max_nodes`
/// nodes at a time.
pub fn answer_all<B: MiniBatchBackend>(
    mut predictor: NodePredictor<'_, B>,
    queue: &Receiver<Job>,
    max_nodes: usize,
    metrics: &Metrics,
) {
    while let Ok(first) = queue.recv() {
        let mut n_nodes = first.nodes.len();
        let mut jobs = vec![first];
        while n_nodes < max_nodes
            && let Ok(job) = queue.try_recv()
        {
            n_nodes += job.nodes.len();
            jobs.push(job);
        }
        metrics.took(jobs.len());
        // Nobody reads the answer of a client that has gone.
        jobs.retain(|job| !job.answer.is_closed());
        metrics.computed(jobs.iter().map(|job| job.nodes.len()).sum());
        answer(&mut predictor, jobs);
    }
}

/// Answers some questions: those about nodes of the graph in one pass, the others one by one.
fn answer<B: MiniBatchBackend>(predictor: &mut NodePredictor<'_, B>, jobs: Vec<Job>) {
    let mut known: Vec<(Vec<NodeId>, oneshot::Sender<_>)> = Vec::new();
    for Job { nodes, answer } in jobs {
        match nodes {
            Nodes::Known(nodes) => known.push((nodes, answer)),
            Nodes::New(new) => {
                let logits = predictor.logits_of_new(&new).map_err(|error| refusal(&error));
                let _ = answer.send(logits);
            }
        }
    }
    if known.is_empty() {
        return;
    }
    let nodes: Vec<NodeId> = known.iter().flat_map(|(nodes, _)| nodes.iter().copied()).collect();
    let logits = predictor.logits(&nodes).map_err(|error| failure(&error));
    let mut first = 0;
    for (nodes, answer) in known {
        let rows = first..first + nodes.len();
        first = rows.end;
        let own = match &logits {
            Ok(logits) => Ok(logits.row_slice(rows)),
            Err(Refusal::Failure(why) | Refusal::Question(why)) => Err(Refusal::Failure(why.clone())),
        };
        let _ = answer.send(own);
    }
}

/// Refusal of a question, or the failure of the backend.
fn refusal(error: &TrainError) -> Refusal {
    if error.is_of_backend() { failure(error) } else { Refusal::Question(error.to_string()) }
}

fn failure(error: &TrainError) -> Refusal {
    tracing::warn!("a question has no answer: {error}");
    Refusal::Failure(error.to_string())
}

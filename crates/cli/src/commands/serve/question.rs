//! Bodies of `POST /predict`, and their answers.
//!
//! ```text
//! {"nodes": [0, 5]}                                        nodes of the graph
//! {"new_nodes": {"x": [[0.5, …]], "edge_index": [[0, 5], [N, N]], "edge_weight": [1, 1]}}
//! {"nodes": [0], "logits": true}                           with the logits
//! ```
//! New nodes have the ids `N`, `N + 1`, …, where `N` is the number of nodes of the graph.

use girih_datasets::{Dataset, FeatureNorm, NewNodes};
use girih_graph_format::{Matrix, NodeId};
use girih_trainer::Checkpoint;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::output::as_written;
use crate::scores::argmax;

/// Sizes and names of graph and model, which questions have to fit.
#[derive(Clone, Debug)]
pub struct Facts {
    data: String,
    model: &'static str,
    n_nodes: usize,
    n_features: usize,
    n_classes: usize,
    multi_label: bool,
    feature_norm: FeatureNorm,
    /// Largest number of nodes of one question.
    max_nodes: usize,
}

/// Nodes whose classes are asked for.
#[derive(Debug)]
pub enum Nodes {
    /// Nodes of the graph.
    Known(Vec<NodeId>),
    /// Nodes that the graph does not have.
    New(NewNodes),
}

/// Question of one request.
#[derive(Debug)]
pub struct Question {
    pub nodes: Nodes,
    /// Whether the answer also lists logits.
    pub logits: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    nodes: Option<Vec<NodeId>>,
    new_nodes: Option<NewBody>,
    #[serde(default)]
    logits: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewBody {
    x: Vec<Vec<f32>>,
    edge_index: [Vec<NodeId>; 2],
    edge_weight: Option<Vec<f32>>,
}

impl Facts {
    /// Facts of a data set and a trained model.
    pub fn new(dataset: &Dataset, checkpoint: &Checkpoint, max_nodes: usize) -> Self {
        let trained = &checkpoint.progress.data;
        Self {
            data: dataset.name.clone(),
            model: checkpoint.progress.config.model.kind.name(),
            n_nodes: dataset.n_nodes(),
            n_features: trained.n_features,
            n_classes: trained.n_classes,
            multi_label: trained.multi_label,
            feature_norm: dataset.feature_norm,
            max_nodes,
        }
    }

    /// Description for clients.
    pub fn to_json(&self) -> Value {
        json!({
            "data": self.data, "model": self.model, "nodes": self.n_nodes, "features": self.n_features,
            "classes": self.n_classes, "multi_label": self.multi_label, "max_nodes": self.max_nodes,
        })
    }

    /// Reads the body of a request.
    ///
    /// # Errors
    /// When it is no such JSON, or asks for no nodes, unknown ones or too many.
    pub fn question(&self, body: &[u8]) -> Result<Question, String> {
        let body: Body =
            serde_json::from_slice(body).map_err(|error| format!("the body is not as expected: {error}"))?;
        let nodes = match (body.nodes, body.new_nodes) {
            (Some(nodes), None) => self.known(nodes)?,
            (None, Some(new)) => self.new_nodes(new)?,
            _ => return Err("give either nodes or new_nodes".to_owned()),
        };
        Ok(Question { nodes, logits: body.logits })
    }

    fn known(&self, nodes: Vec<NodeId>) -> Result<Nodes, String> {
        self.check_number(nodes.len())?;
        match nodes.iter().find(|&&node| node as usize >= self.n_nodes) {
            None => Ok(Nodes::Known(nodes)),
            Some(node) => {
                let last = self.n_nodes.saturating_sub(1);
                Err(format!("there is no node {node}; the graph has the nodes 0 to {last}"))
            }
        }
    }

    fn new_nodes(&self, new: NewBody) -> Result<Nodes, String> {
        self.check_number(new.x.len())?;
        let width = self.n_features;
        if let Some(row) = new.x.iter().position(|row| row.len() != width) {
            let found = new.x[row].len();
            return Err(format!("row {row} of x has {found} values; give the {width} features of each node"));
        }
        let features = Matrix::new(new.x.len(), width, new.x.concat());
        let nodes = features.map_err(Into::into).and_then(|features| {
            NewNodes::new(features, new.edge_index, new.edge_weight)?.normalized(self.feature_norm)
        });
        nodes.map(Nodes::New).map_err(|error| error.to_string())
    }

    fn check_number(&self, n_nodes: usize) -> Result<(), String> {
        match n_nodes {
            0 => Err("no node is asked for; give at least one".to_owned()),
            n if n > self.max_nodes => Err(format!("{n} nodes in one request; the limit is {}", self.max_nodes)),
            _ => Ok(()),
        }
    }

    /// Answer with the classes of nodes, or the labels of each, and perhaps the logits.
    pub fn answer(&self, logits: &Matrix, with_logits: bool) -> Value {
        let rows = || (0..logits.n_rows()).map(|row| logits.row(row));
        let mut answer = if self.multi_label {
            let labels = |row: &[f32]| row.iter().map(|&logit| u8::from(logit > 0.0)).collect::<Vec<_>>();
            json!({ "labels": rows().map(labels).collect::<Vec<_>>() })
        } else {
            json!({ "classes": rows().map(argmax).collect::<Vec<_>>() })
        };
        if with_logits {
            let written = |row: &[f32]| row.iter().map(|&logit| as_written(logit)).collect::<Vec<_>>();
            answer["logits"] = rows().map(written).collect::<Vec<_>>().into();
        }
        answer
    }
}

impl Nodes {
    /// Number of nodes.
    pub fn len(&self) -> usize {
        match self {
            Self::Known(nodes) => nodes.len(),
            Self::New(new) => new.n_nodes(),
        }
    }
}

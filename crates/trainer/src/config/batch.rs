//! [`BatchConfig`]: the part of the graph that a training step sees: the whole graph or a mini-batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use girih_graph_format::{Csr, Schema};
use girih_reorder::clusters;
use girih_sampling::{ClusterSampler, FanOut, FanOutRules, Neighbors, SaintSampler, SubgraphSampler, TypedFanOut};
use serde::{Deserialize, Serialize};

use crate::TrainError;

/// Kind of batches: the part of the graph that a training step sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BatchKind {
    /// The whole graph, in one step per epoch.
    #[default]
    Full,
    /// Sampled neighbors of the seeds, layer by layer (Hamilton et al., GraphSAGE, NeurIPS 2017).
    Neighbor,
    /// Nodes sampled for a whole layer at once, by importance (Zou et al., LADIES, NeurIPS 2019).
    Layer,
    /// Some clusters of the graph (Chiang et al., Cluster-GCN, KDD 2019).
    Cluster,
    /// A sampled subgraph, with weights that correct for the omitted rest (Zeng et al., GraphSAINT, ICLR 2020).
    Saint,
}

impl BatchKind {
    /// Name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Neighbor => "neighbor",
            Self::Layer => "layer",
            Self::Cluster => "cluster",
            Self::Saint => "saint",
        }
    }

    /// Whether a batch has a block for each layer, rather than one subgraph for all layers.
    #[must_use]
    pub fn has_blocks(self) -> bool {
        matches!(self, Self::Neighbor | Self::Layer)
    }
}

/// Unit that GraphSAINT samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SaintKind {
    /// Nodes.
    Node,
    /// Edges, with both end nodes.
    Edge,
    /// Random walks, with all their nodes.
    #[default]
    Walk,
}

/// Method that computes the logits for evaluation in mini-batch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScoreBy {
    /// One pass over the whole graph on the device, with the rows of all nodes in every layer.
    Graph,
    /// Layer-wise inference: one layer after the other, for a chunk of nodes at a time.
    Layers,
    /// Batches of sampled neighbors, with the fan-out of training and the same draws in every evaluation. Training nodes are
    /// not scored.
    Samples,
}

/// Settings of batches, except for the number of seeds, [`TrainConfig::batch_size`](crate::TrainConfig::batch_size).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatchConfig {
    /// Kind of batches.
    pub kind: BatchKind,
    /// Fan-out of each layer, from the seeds outward: neighbors per node, where −1 takes all. For layer-wise
    /// batches, nodes of the whole layer. Empty for [`DEFAULT_FANOUT`] or [`DEFAULT_LAYER_NODES`].
    pub fanout: Vec<i64>,
    /// Fan-out of edge types by relation or full name, in place of [`fanout`](Self::fanout); 0 does not follow the type.
    /// If there are some and `fanout` is empty, they must name all edge types.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fanout_by_type: BTreeMap<String, Vec<i64>>,
    /// Whether sampling is with replacement.
    pub replace: bool,
    /// Number of clusters of the graph; `None` for one per 200 nodes.
    pub clusters: Option<usize>,
    /// Number of clusters in a batch; `None` for a quarter of all, at most 20.
    pub clusters_per_batch: Option<usize>,
    /// Unit that GraphSAINT samples.
    pub saint: SaintKind,
    /// Number of steps of GraphSAINT's walks.
    pub walk_length: u32,
    /// Number of subgraphs in a step of cluster and saint batches. Each is a graph of its own; ranks divide them.
    pub subgraphs_per_step: usize,
    /// Number of batches that are prepared ahead of the step. Results do not depend on it.
    pub prefetch: usize,
    /// Method that computes the logits for evaluation. `None` selects layer-wise inference where devices do not hold
    /// all of graph and features and the model supports it, else the whole graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score_by: Option<ScoreBy>,
}

/// Default fan-out, from the seeds outward. Deeper layers use the last number.
pub const DEFAULT_FANOUT: [i64; 3] = [15, 10, 5];
/// Default number of nodes of a layer in a layer-wise batch.
pub const DEFAULT_LAYER_NODES: i64 = 2048;
/// Default number of seeds of a batch.
pub const DEFAULT_BATCH_SIZE: usize = 1024;
/// Approximate number of nodes of a cluster.
const CLUSTER_NODES: usize = 200;
/// Default upper bound of the clusters in a batch.
const CLUSTERS_PER_BATCH: usize = 20;
/// Number of presampled subgraphs per batch of an epoch, which estimate the weights of GraphSAINT's walks (Zeng et
/// al., ICLR 2020, section 5, use 50).
const COUNTED_PER_BATCH: usize = 50;

impl Default for BatchConfig {
    fn default() -> Self {
        Self {
            kind: BatchKind::Full,
            fanout: Vec::new(),
            fanout_by_type: BTreeMap::new(),
            replace: false,
            clusters: None,
            clusters_per_batch: None,
            saint: SaintKind::Walk,
            walk_length: 2,
            subgraphs_per_step: 1,
            prefetch: 2,
            score_by: None,
        }
    }
}

impl BatchConfig {
    /// Whether steps see mini-batches.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.kind != BatchKind::Full
    }

    /// Fan-out of `n_layers` layers, from the seeds outward.
    ///
    /// # Errors
    /// When the number of fan-outs differs from `n_layers`, or one is neither positive nor −1.
    pub fn fan_out(&self, n_layers: usize) -> Result<FanOut, TrainError> {
        let hop = |at: usize| match (self.fanout.get(at), self.kind) {
            (Some(&count), _) => count,
            (None, BatchKind::Layer) => DEFAULT_LAYER_NODES,
            (None, _) => DEFAULT_FANOUT[at.min(DEFAULT_FANOUT.len() - 1)],
        };
        let n_hops = if self.fanout.is_empty() { n_layers } else { self.fanout.len() };
        let neighbors = |count: i64| match count {
            -1 => Ok(Neighbors::All),
            count => u32::try_from(count).map(Neighbors::Count).map_err(|_| {
                TrainError::invalid(format!("setting `batch.fanout` has {count}; give positive numbers, or -1 for all"))
            }),
        };
        let hops = (0..n_hops).map(|at| neighbors(hop(at))).collect::<Result<Vec<_>, _>>()?;
        let fan_out = FanOut::new(hops)?;
        fan_out.check_layers(n_layers)?;
        Ok(fan_out)
    }

    /// Fan-out of the edge types of a schema in `n_layers` layers, from the seeds outward.
    ///
    /// # Errors
    /// When the number of fan-outs differs from `n_layers`, one is neither -1 nor at least 0, a name is not that of an edge
    /// type, or an edge type has no fan-out.
    pub fn typed_fan_out(&self, schema: &Schema, n_layers: usize) -> Result<TypedFanOut, TrainError> {
        Ok(self.fan_out_rules(n_layers)?.of_schema(schema)?)
    }

    /// Fan-outs of `n_layers` layers by edge type, and that of all others.
    ///
    /// # Errors
    /// When the number of fan-outs differs from `n_layers`, or one is neither -1 nor at least 0.
    pub fn fan_out_rules(&self, n_layers: usize) -> Result<FanOutRules, TrainError> {
        if self.fanout_by_type.is_empty() {
            return Ok(FanOutRules::from(&self.fan_out(n_layers)?));
        }
        let others = Some((FanOutRules::OTHERS.to_owned(), self.fanout.clone())).filter(|(_, of)| !of.is_empty());
        let by_type = self.fanout_by_type.iter().map(|(name, numbers)| (name.clone(), numbers.clone()));
        let rules = FanOutRules::new(by_type.chain(others).collect())?;
        if rules.n_hops() == n_layers {
            return Ok(rules);
        }
        Err(TrainError::invalid(format!(
            "the fan-out {rules} has {} hops, but the model has {n_layers} layers; give one number a layer",
            rules.n_hops()
        )))
    }

    /// Number of hops of the given fan-outs; `None` if there are none, and the default has as many as there are layers.
    #[must_use]
    pub fn n_hops(&self) -> Option<usize> {
        self.fanout_by_type.values().chain([&self.fanout]).map(Vec::len).find(|&n_hops| n_hops > 0)
    }

    /// Number of clusters of a graph with `n_nodes` nodes, and number of clusters in a batch.
    #[must_use]
    pub fn n_clusters(&self, n_nodes: usize) -> (usize, usize) {
        let clusters = self.clusters.unwrap_or(n_nodes.div_ceil(CLUSTER_NODES)).clamp(1, n_nodes.max(1));
        let per_batch = self.clusters_per_batch.unwrap_or(clusters.div_ceil(4).min(CLUSTERS_PER_BATCH));
        (clusters, per_batch.min(clusters))
    }

    /// Upper bound of the nodes in a GraphSAINT subgraph of `n_draws` draws.
    #[must_use]
    pub fn saint_nodes(&self, n_draws: usize) -> usize {
        match self.saint {
            SaintKind::Node => n_draws,
            SaintKind::Edge => 2 * n_draws,
            SaintKind::Walk => n_draws * (self.walk_length as usize + 1),
        }
    }

    /// Clusters of cluster batches, equal for all runs and ranks; `None` for other batches.
    ///
    /// # Errors
    /// When the graph cannot be divided into clusters.
    pub fn cluster_sampler(&self, graph: &Csr) -> Result<Option<Arc<ClusterSampler>>, TrainError> {
        if self.kind != BatchKind::Cluster {
            return Ok(None);
        }
        let (n_clusters, per_batch) = self.n_clusters(graph.n_rows());
        let cluster_of = clusters(graph, n_clusters).map_err(|error| TrainError::invalid(error.to_string()))?;
        Ok(Some(Arc::new(ClusterSampler::new(&cluster_of, n_clusters, per_batch)?)))
    }

    /// Sampler of the subgraphs of cluster and saint batches, and the number of subgraphs in an epoch: enough to have
    /// as many nodes as the graph. `clusters` come from [`cluster_sampler`](Self::cluster_sampler), or are computed
    /// here. `n_draws` is GraphSAINT's number of draws for a batch, and `seed` the seed for estimating the weights of
    /// its walks.
    ///
    /// # Errors
    /// When the graph cannot be divided into clusters, or the settings yield no batches.
    pub fn subgraph_sampler(
        &self,
        graph: &Csr,
        clusters: Option<Arc<ClusterSampler>>,
        (n_draws, seed): (usize, u64),
    ) -> Result<(Arc<dyn SubgraphSampler>, usize), TrainError> {
        let clusters = clusters.map_or_else(|| self.cluster_sampler(graph), |clusters| Ok(Some(clusters)))?;
        if let Some(clusters) = clusters {
            let n_batches = clusters.n_batches();
            return Ok((clusters, n_batches));
        }
        let n_batches = graph.n_rows().div_ceil(self.saint_nodes(n_draws)).max(1);
        let n_draws = u32::try_from(n_draws).map_err(|_| {
            TrainError::invalid(format!("--batch-size asks for {n_draws} draws a batch: give fewer than 2^32"))
        })?;
        let sampler = match self.saint {
            SaintKind::Node => SaintSampler::nodes(graph, n_draws)?,
            SaintKind::Edge => SaintSampler::edges(graph, n_draws)?,
            SaintKind::Walk => {
                let n_counted = u32::try_from(COUNTED_PER_BATCH * n_batches).map_err(|_| {
                    TrainError::invalid(format!(
                        "an epoch has {n_batches} batches, too many to estimate sampling probabilities: give a larger --batch-size"
                    ))
                })?;
                SaintSampler::walks(graph, n_draws, self.walk_length, n_counted, seed)?
            }
        };
        Ok((Arc::new(sampler), n_batches))
    }

    /// Refuses settings that do not fit each other or the number of layers.
    ///
    /// # Errors
    /// At the first such setting; the message names valid values.
    pub(crate) fn validate(&self, n_layers: usize) -> Result<(), TrainError> {
        if !self.is_sampled() {
            let usual = Self::default();
            let unused = [
                (!self.fanout.is_empty(), "fanout"),
                (!self.fanout_by_type.is_empty(), "fanout_by_type"),
                (self.replace, "replace"),
                (self.clusters.is_some(), "clusters"),
                (self.clusters_per_batch.is_some(), "clusters_per_batch"),
                (self.subgraphs_per_step != 1, "subgraphs_per_step"),
                (self.saint != usual.saint, "saint"),
                (self.walk_length != usual.walk_length, "walk_length"),
                (self.prefetch != usual.prefetch, "prefetch"),
            ];
            return match unused.iter().find(|(is_set, _)| *is_set) {
                Some((_, setting)) => Err(TrainError::invalid(format!(
                    "setting `batch.{setting}` is for mini-batches, but steps see the full graph; choose a batch kind: \
                     neighbor, layer, cluster or saint"
                ))),
                None => Ok(()),
            };
        }
        self.check()?;
        if self.kind.has_blocks() { self.fan_out_rules(n_layers).map(drop) } else { Ok(()) }
    }

    /// Whether batches of this kind read a setting, by its name in files.
    pub(super) fn reads(&self, setting: &str) -> bool {
        match setting {
            "fanout" | "replace" => self.kind.has_blocks(),
            "fanout_by_type" => self.kind == BatchKind::Neighbor,
            "clusters" | "clusters_per_batch" => self.kind == BatchKind::Cluster,
            "saint" => self.kind == BatchKind::Saint,
            "walk_length" => self.kind == BatchKind::Saint && self.saint == SaintKind::Walk,
            "subgraphs_per_step" => !self.kind.has_blocks(),
            _ => true,
        }
    }

    /// Refuses settings that do not fit the kind of batches, or that yield no batches.
    ///
    /// # Errors
    /// At the first such setting; the message names valid values.
    pub fn check(&self) -> Result<(), TrainError> {
        let (fans_out, clusters) = (self.kind.has_blocks(), self.kind == BatchKind::Cluster);
        let (saint, usual) = (self.kind == BatchKind::Saint, Self::default());
        let walks = saint && self.saint == SaintKind::Walk;
        let rules = [
            (fans_out || self.fanout.is_empty(), "fanout", "left out: only neighbor and layer batches use it"),
            (
                self.kind == BatchKind::Neighbor || self.fanout_by_type.is_empty(),
                "fanout_by_type",
                "left out: only neighbor batches use it",
            ),
            (fans_out || !self.replace, "replace", "false: only neighbor and layer batches sample with replacement"),
            (clusters || self.clusters.is_none(), "clusters", "left out: only cluster batches use it"),
            (
                clusters || self.clusters_per_batch.is_none(),
                "clusters_per_batch",
                "left out: only cluster batches use it",
            ),
            (self.clusters != Some(0), "clusters", "at least 1"),
            (self.clusters_per_batch != Some(0), "clusters_per_batch", "at least 1"),
            (saint || self.saint == usual.saint, "saint", "left out: only saint batches use it"),
            (
                walks || self.walk_length == usual.walk_length,
                "walk_length",
                "left out: only saint batches of random walks use it",
            ),
            (self.walk_length >= 1, "walk_length", "at least 1"),
            (self.walk_length <= 1 << 16, "walk_length", "at most 65536"),
            (self.subgraphs_per_step >= 1, "subgraphs_per_step", "at least 1"),
            (
                !fans_out || self.subgraphs_per_step == 1,
                "subgraphs_per_step",
                "left out: only cluster and saint batches use it",
            ),
            (self.prefetch <= 64, "prefetch", "at most 64"),
        ];
        match rules.iter().find(|(holds, ..)| !holds) {
            None => Ok(()),
            Some((_, setting, rule)) => Err(TrainError::invalid(format!("setting `batch.{setting}` must be {rule}"))),
        }
    }
}

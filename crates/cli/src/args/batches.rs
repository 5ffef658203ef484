//! Flags that override settings of mini-batches, links and triples.

use clap::Args;
use girih_sampling::FanOutRules;
use girih_trainer::{BatchConfig, BatchKind, DecoderKind, Distance, SaintKind, ScoreBy, TaskKind, TrainConfig};

use super::choices::set;
use super::{Batch, DistanceArg, Saint, ScoreByArg, one_of};

/// Settings of mini-batches.
#[derive(Debug, Args)]
#[command(next_help_heading = "Mini-batches")]
pub struct BatchSettings {
    /// Graph of a training step [default: full]
    ///
    /// full: the full graph. neighbor: sampled neighbors of some training nodes (GraphSAGE). layer: nodes sampled for
    /// each layer as a whole. cluster: some clusters (Cluster-GCN). saint: a sampled subgraph (GraphSAINT). Evaluation is
    /// always on the full graph.
    #[arg(long, value_enum)]
    pub batch: Option<Batch>,
    /// Sampled neighbors of a node in each hop, from the seeds outward; -1 for all
    ///
    /// For layer batches: nodes sampled for each layer. For types of edges: numbers by relation, by full name and, as *,
    /// for all others, such as "cites=15,10; author.writes.paper=5,0; *=10,10"; 0 does not follow a type. [default:
    /// 15,10,5; layer 2048]
    #[arg(long, value_name = "K,…", allow_hyphen_values = true)]
    pub fanout: Option<FanOutRules>,
    /// Seeds of a batch [default: 1024; lightgcn 2048]
    ///
    /// Training nodes or links of a neighbor or layer batch; nodes, edges or walks that a saint batch samples;
    /// interactions in a step of lightgcn.
    #[arg(long, value_name = "N")]
    pub batch_size: Option<usize>,
    /// Sample with replacement (neighbor, layer)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub replace: Option<bool>,
    #[command(flatten)]
    pub subgraphs: SubgraphSettings,
    /// Cluster or saint batches in a step, each a graph of its own [default: 1]
    ///
    /// With several ranks, each computes some of them.
    #[arg(long, value_name = "N")]
    pub subgraphs_per_step: Option<usize>,
    /// Batches that are sampled ahead of the step; results do not depend on it [default: 2]
    #[arg(long, value_name = "N")]
    pub prefetch: Option<usize>,
    /// Neighbors that evaluation reads: all of them (graph, layers), or samples [default: graph]
    ///
    /// All of them in one pass over the graph (graph), or layer by layer for some nodes at a time (layers), which takes less
    /// memory. With --feature-cache or --topology-cache the default is layers. samples: batches with the fan-out of
    /// training, for networks of relations; graphs of any size fit.
    #[arg(long, value_enum)]
    pub score_by: Option<ScoreByArg>,
}

/// Settings of batches that are subgraphs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Mini-batches")]
pub struct SubgraphSettings {
    /// Clusters of the graph, for cluster batches [default: one for 200 nodes]
    #[arg(long, value_name = "N")]
    pub clusters: Option<usize>,
    /// Clusters in a batch [default: a quarter of them, at most 20]
    #[arg(long, value_name = "N")]
    pub clusters_per_batch: Option<usize>,
    /// Sampler of saint batches [default: walk]
    #[arg(long, value_enum)]
    pub saint: Option<Saint>,
    /// Length of the random walks of saint batches [default: 2]
    #[arg(long, value_name = "N")]
    pub walk_length: Option<u32>,
}

impl SubgraphSettings {
    /// Writes the given values into `config`.
    pub(super) fn override_in(&self, config: &mut BatchConfig) {
        set(&mut config.clusters, self.clusters.map(Some));
        set(&mut config.clusters_per_batch, self.clusters_per_batch.map(Some));
        set(&mut config.saint, self.saint.map(SaintKind::from));
        set(&mut config.walk_length, self.walk_length);
    }
}

/// Settings of link prediction and of triples.
#[derive(Debug, Args)]
#[command(next_help_heading = "Links and triples (--task links, triples)")]
pub struct LinkSettings {
    /// Negative samples for each training link, new in every epoch [default: 1]
    ///
    /// With --task triples, wrong entities for each head and tail; 0 for all entities at once [default: 0].
    #[arg(long, value_name = "N")]
    pub negatives: Option<usize>,
    /// Score of triples [default: distmult]
    #[arg(long, value_name = "NAME", value_parser = one_of::<DecoderKind>(DecoderKind::ALL.map(DecoderKind::name)))]
    pub decoder: Option<DecoderKind>,
    /// Distance of transe: sums of absolute or of squared differences [default: l2]
    #[arg(long, value_enum)]
    pub distance: Option<DistanceArg>,
    /// Share of the links for validation [default: 0.05]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub val_links: Option<f64>,
    /// Share of the links for the test [default: 0.1]
    ///
    /// Messages are passed along the other links only.
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub test_links: Option<f64>,
    /// Width of the embeddings whose inner products are scores of links [default: 16]
    ///
    /// With --task triples, of the rows of entities and relations [default: 200].
    #[arg(long, value_name = "N")]
    pub embedding_width: Option<usize>,
}

impl LinkSettings {
    /// Writes the given values into `config`.
    pub(super) fn override_in(&self, config: &mut TrainConfig) {
        let (links, triples) = (&mut config.links, &mut config.triples);
        let (negatives, width) = match config.task {
            TaskKind::Triples => (&mut triples.negatives, &mut triples.width),
            TaskKind::Nodes | TaskKind::Links => (&mut links.negatives, &mut links.width),
        };
        set(negatives, self.negatives);
        set(width, self.embedding_width);
        set(&mut links.val, self.val_links);
        set(&mut links.test, self.test_links);
        set(&mut triples.decoder, self.decoder);
        set(&mut triples.distance, self.distance.map(Distance::from));
    }
}

impl BatchSettings {
    /// Writes the given values into `config`.
    pub(super) fn override_in(&self, config: &mut TrainConfig) {
        set(&mut config.batch_size, self.batch_size.map(Some));
        let batch = &mut config.batch;
        set(&mut batch.kind, self.batch.map(BatchKind::from));
        override_fan_out(batch, self.fanout.as_ref());
        set(&mut batch.replace, self.replace);
        set(&mut batch.subgraphs_per_step, self.subgraphs_per_step);
        set(&mut batch.prefetch, self.prefetch);
        set(&mut batch.score_by, self.score_by.map(|by| Some(ScoreBy::from(by))));
        self.subgraphs.override_in(batch);
    }
}

/// Writes a given fan-out into `batch`, in place of all that it had.
pub(super) fn override_fan_out(batch: &mut BatchConfig, rules: Option<&FanOutRules>) {
    let Some(rules) = rules else { return };
    batch.fanout = rules.others().unwrap_or_default().to_vec();
    batch.fanout_by_type = rules.by_type().map(|(name, numbers)| (name.to_owned(), numbers.to_vec())).collect();
}

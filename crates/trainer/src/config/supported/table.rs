//! Rows of the table of [`supported`](super::supported()), in the order in which they are asked.
//!
//! Rows about a configuration come first, then those about ranks, then those about the device. So a check of less,
//! such as [`TrainConfig::validate`](crate::TrainConfig::validate), gives the same reason as a check of all.
//!
//! In texts, `{batch}` and other fields stand for the value that was asked.

use girih_compute::Dtype;
use girih_partition::Scheme;

use super::{Cache, Combination, DeviceKind, Reason};
use crate::config::BatchKind::{Cluster, Full, Neighbor, Saint};
use crate::config::ModelKind::{Embedding, Gcn, Sgc};
use crate::config::{GraphPlacement, ModelBatches, NormKind, ScoreBy};

/// Row of the table: combinations that are refused, and what is said of them.
pub(super) struct Row {
    /// Whether the row refuses a combination.
    pub(super) refuses: fn(&Combination) -> bool,
    asked: &'static str,
    why: &'static str,
    instead: &'static str,
    is_usage: bool,
}

impl Row {
    const fn new(refuses: fn(&Combination) -> bool, [asked, why, instead]: [&'static str; 3]) -> Self {
        Self { refuses, asked, why, instead, is_usage: false }
    }

    /// As [`new`](Self::new), where flags alone contradict each other.
    const fn of_flags(refuses: fn(&Combination) -> bool, texts: [&'static str; 3]) -> Self {
        Self { is_usage: true, ..Self::new(refuses, texts) }
    }

    /// Text of the reason, and whether the command line is wrong.
    pub(super) fn reason_alone(&self) -> (&'static str, bool) {
        (self.why, self.is_usage)
    }

    /// Reason why this row refuses `found`.
    pub(super) fn reason(&self, found: &Combination) -> Reason {
        let &Self { asked, why, instead, is_usage, .. } = self;
        Reason { asked: found.filled(asked), why, instead: found.filled(instead), is_usage }
    }
}

/// Combinations that are not supported.
pub(super) static TABLE: [Row; 58] = [
    // Task, network and batches.
    Row::of_flags(
        |c| c.is_links() && c.reorders,
        [
            "--reorder with --task links",
            "the split of the links depends on node ids, and girih evaluate would test other links",
            "write the order once with `girih reorder --out DIR`, and train on DIR",
        ],
    ),
    Row::new(
        |c| c.is_triples() && c.model != Embedding && !c.model.reads_relations(),
        [
            "--task triples with --model {model}",
            "rows of entities are learned as they are, or computed over the relations of the training triples",
            "leave --model out, or give --model embedding, rgcn, hsage, rgat or hgt",
        ],
    ),
    Row::new(
        |c| c.is_triples() && c.model.reads_relations() && c.is_sampled(),
        [
            "--task triples with --model {model} and --batch {batch}",
            "each step computes the rows of all entities",
            "leave --batch out",
        ],
    ),
    Row::new(
        |c| !c.is_triples() && c.model == Embedding,
        [
            "--task {task} with --model {model}",
            "it learns the rows of entities for scores of triples, and has no layers",
            "give --task triples, or another --model, such as gcn",
        ],
    ),
    Row::new(
        |c| c.is_links() && c.model.is_recommender(),
        [
            "--task links with --model {model}",
            "it computes no embeddings of nodes from their features",
            "give another --model, such as gcn or sage",
        ],
    ),
    Row::new(
        |c| c.is_links() && c.model == Sgc,
        [
            "--task links with --model {model}",
            "from its initial weights of zero, inner products have no gradient",
            "give another --model, such as gcn",
        ],
    ),
    Row::new(
        |c| c.is_links() && c.model.reads_relations(),
        [
            "--task links with --model {model}",
            "links of one kind have no relations",
            "give another --model, such as gcn or sage",
        ],
    ),
    Row::new(
        |c| c.reorders && (c.model.reads_relations() || c.is_triples()),
        [
            "--reorder with --model {model}",
            "it learns rows for nodes by their ids, which another order would change for training alone",
            "leave --reorder out",
        ],
    ),
    Row::new(
        |c| c.is_links() && !matches!(c.batch, Full | Neighbor),
        [
            "--task links with --batch {batch}",
            "links are trained on neighbor batches or on the full graph",
            "give --batch neighbor or full",
        ],
    ),
    Row::new(
        |c| c.has_edge_features && !c.model.reads_edge_features() && !c.is_outside,
        [
            "--edge-features or --time-encoding with --model {model}",
            "it does not read features of edges",
            "give --model gine, gat or gatv2",
        ],
    ),
    Row::new(
        |c| c.model.needs_edge_features() && !c.in_time && !c.is_trained,
        [
            "--model {model} without --before",
            "it reads features of edges, which only edges with times have",
            "give --task links --before seed, or --model gin",
        ],
    ),
    Row::new(
        |c| (c.has_edge_features || c.has_edge_labels) && !c.in_time,
        [
            "--edge-features, --edge-label or --time-encoding without --before",
            "only edges with times have features and labels",
            "give --task links --before seed, with a column of times in the data",
        ],
    ),
    Row::new(
        |c| c.in_time && !c.is_links(),
        [
            "--before or --until with --task {task}",
            "only edges have times, and these are what links ask for",
            "give --task links, or leave both out",
        ],
    ),
    Row::new(
        |c| c.in_time && c.batch != Neighbor,
        [
            "--before or --until with --batch {batch}",
            "each seed sees other edges, which only sampled neighbors are drawn from",
            "give --batch neighbor",
        ],
    ),
    Row::new(
        |c| c.in_time && c.has_cache(),
        [
            "--feature-cache or --topology-cache with --before",
            "the host draws batches in time, and the device holds all features",
            "leave the caches out",
        ],
    ),
    Row::new(
        |c| c.in_time && c.is_dry_run,
        ["a plan of links in time", "its batches are not predicted yet", "leave --plan out, and train one epoch"],
    ),
    Row::new(
        |c| c.in_time && c.model == Gcn && !c.is_outside,
        [
            "--before or --until with --model {model}",
            "it divides by the degrees of neighbors in the whole graph, which later edges change",
            "give --model sage, gat, gatv2, gin or gine",
        ],
    ),
    Row::new(
        |c| c.is_sampled() && c.model.properties().batches == ModelBatches::Full,
        [
            "--batch {batch} with --model {model}",
            "its training steps do not read sampled neighbors",
            "leave --batch out, or choose the model {sampled}",
        ],
    ),
    Row::new(
        |c| c.batch.has_blocks() && c.model.properties().batches == ModelBatches::Subgraphs,
        [
            "--batch {batch} with --model {model}",
            "it propagates over more hops than these batches contain",
            "give --batch cluster, saint or full",
        ],
    ),
    Row::new(
        |c| !matches!(c.batch, Full | Neighbor) && c.model.properties().batches == ModelBatches::Neighbors,
        [
            "--batch {batch} with --model {model}",
            "such batches have no types of edges",
            "give --batch neighbor or full",
        ],
    ),
    Row::new(
        |c| !c.batch_reads_types() && c.has_typed_fan_out,
        [
            "a --fanout by edge type with --model {model} and --batch {batch}",
            "only neighbor batches of models that read relations have types of edges",
            "give one number a layer, such as 15,10, or --model rgcn, hsage, rgat or hgt",
        ],
    ),
    Row::new(
        |c| c.replace && c.reads_neighbors_once,
        [
            "--replace with this network",
            "it counts a neighbor once, even if it is drawn several times",
            "leave --replace out, or choose the model gcn, gin, or sage with the aggregator mean",
        ],
    ),
    Row::new(
        |c| c.score_by.is_some() && (c.is_links() || !c.is_sampled()),
        [
            "--score-by with --task {task} and --batch {batch}",
            "it says how node classifiers that train on mini-batches are evaluated",
            "leave --score-by out",
        ],
    ),
    Row::new(
        |c| c.score_by == Some(ScoreBy::Samples) && !c.batch_reads_types(),
        [
            "--score-by samples with --model {model} and --batch {batch}",
            "only networks of relations are scored on sampled neighbors",
            "give --score-by layers, or --batch neighbor and --model rgcn, hsage, rgat or hgt",
        ],
    ),
    // Features.
    Row::new(
        |c| c.features_from.is_some() && !c.model.reads_features(),
        [
            "--features-from {rule} with --model {model}",
            "it learns a row of its own for each node",
            "leave --features-from out",
        ],
    ),
    Row::new(
        |c| c.codec && !c.model.reads_features(),
        ["--codec with --model {model}", "it reads no features", "leave --codec out"],
    ),
    Row::new(
        |c| c.codec && c.features_from.is_some(),
        ["--features-from {rule} with --codec", "features that are made are not compressed", "leave one of them out"],
    ),
    Row::new(
        |c| c.model.reads_relations() && c.knows_nodes() && !c.learns_features(),
        [
            "--features-from {rule} with --model {model}",
            "without features it learns rows for nodes already",
            "leave --features-from out, or give embedding:WIDTH",
        ],
    ),
    Row::new(
        |c| c.model == Sgc && c.knows_nodes(),
        [
            "--features-from {rule} with --model {model}",
            "it aggregates features once before training, where onehot would fill a matrix of nodes × nodes and embeddings are \
             not known yet",
            "give --features-from degree or random-walk",
        ],
    ),
    Row::new(
        |c| c.learns_features() && c.precision != Dtype::F32,
        [
            "--features-from {rule} with --precision bf16",
            "embeddings are parameters, which are f32",
            "give --features-from degree or random-walk, or --precision f32",
        ],
    ),
    Row::new(
        |c| c.is_triples() && c.norm != NormKind::None,
        ["--norm with --task triples", "there are no hidden layers to normalise", "leave --norm out"],
    ),
    Row::new(
        |c| c.is_triples() && c.precision != Dtype::F32,
        [
            "--precision bf16 with --task triples",
            "rows of entities are scored in f32, as the parameters are",
            "leave --precision out",
        ],
    ),
    Row::new(
        |c| c.learns_features() && c.has_cache(),
        [
            "--features-from {rule} with --feature-cache or --topology-cache",
            "embeddings change in every step, and cached copies would not",
            "give --features-from degree or random-walk, or leave the caches out",
        ],
    ),
    // Caches.
    Row::new(
        |c| c.has_cache() && !c.is_sampled(),
        [
            "--feature-cache or --topology-cache with --batch full",
            "full batches read the whole graph and all features in each step",
            "leave the caches out, or give --batch neighbor",
        ],
    ),
    Row::new(
        |c| c.has_cache() && c.model.reads_relations(),
        [
            "--feature-cache or --topology-cache with --model {model}",
            "the device holds the features and relations of all types",
            "leave the caches out",
        ],
    ),
    Row::new(
        |c| c.is_dry_run && c.score_by == Some(ScoreBy::Layers) && c.model.reads_relations(),
        [
            "a plan of --score-by layers with --model {model}",
            "the memory of its chunks is not predicted yet",
            "leave --plan out, or give --score-by graph",
        ],
    ),
    Row::new(
        |c| c.is_dry_run && c.is_triples(),
        ["a plan of --task triples", "its steps are not predicted yet", "leave --plan out, and train one epoch"],
    ),
    Row::new(
        |c| c.topology_cache != Cache::None && !c.is_drawn_by_device(),
        [
            "--topology-cache with these batches",
            "GPUs sample neighbor batches of nodes without replacement, and only they read a cached graph",
            "leave --topology-cache out, or give --batch neighbor and --task nodes without --replace",
        ],
    ),
    // Ranks.
    Row::new(
        |c| c.is_on_ranks() && c.is_links(),
        [
            "--task links on ranks",
            "one rank splits the links and trains on them",
            "leave --ranks, --gpus and launchers out, or give --task nodes",
        ],
    ),
    Row::new(
        |c| c.is_on_ranks() && c.is_triples(),
        ["--task triples on ranks", "one rank has the rows of all entities", "leave --ranks, --gpus and launchers out"],
    ),
    Row::new(
        |c| c.is_on_ranks() && c.model.reads_relations(),
        [
            "--model {model} on ranks",
            "partitions divide the rows of one adjacency, and it has one for each relation",
            "train on one rank: leave --ranks, --gpus and launchers out",
        ],
    ),
    Row::of_flags(
        |c| c.scheme.is_none() && (c.is_sampled() || c.model.is_recommender()),
        [
            "--partition auto with --model {model} and --batch {batch}",
            "the planner knows only full-batch training of models that read features",
            "name a partition, such as --partition 1d, or for mini-batches leave it out",
        ],
    ),
    Row::of_flags(
        |c| c.placement.is_some() && !c.is_on_ranks(),
        [
            "--layout on one rank",
            "one rank holds all data",
            "give --ranks N or --gpus N, or start several processes with girih launch",
        ],
    ),
    Row::of_flags(
        |c| c.placement.is_some() && !c.is_sampled(),
        [
            "--layout {layout} with full batches",
            "--partition divides the graph of full batches",
            "leave --layout out, or give --batch neighbor",
        ],
    ),
    Row::new(
        |c| c.is_dry_run && c.is_on_ranks() && c.model.is_recommender(),
        [
            "a plan for ranks with --model {model}",
            "it is for full-batch training of node classifiers, and for patches",
            "leave --plan out, or --ranks and --gpus",
        ],
    ),
    Row::new(
        |c| c.is_dry_run && c.is_on_ranks() && c.is_sampled() && !c.is_divided(),
        [
            "a plan for ranks that each hold the whole graph",
            "it equals the plan of one rank with its share of a batch",
            "give --layout patches or split-features, or plan one rank",
        ],
    ),
    Row::new(
        |c| c.is_divided() && c.batch != Neighbor,
        [
            "--layout {layout} with --batch {batch}",
            "such batches need the whole graph and all features on each rank",
            "give --batch neighbor, or --layout replicated",
        ],
    ),
    Row::new(
        |c| matches!(c.batch, Cluster | Saint) && c.n_ranks.is_some_and(|n_ranks| n_ranks > c.subgraphs_per_step),
        [
            "a step of {subgraphs} subgraph(s) on {n_ranks} ranks",
            "each rank needs one",
            "give --subgraphs-per-step {n_ranks} (steps become fewer and larger)",
        ],
    ),
    Row::new(
        |c| c.is_on_ranks() && c.is_sampled() && c.norm == NormKind::Batch,
        [
            "--norm batch with --batch {batch} on ranks",
            "batch normalisation needs the statistics of a whole mini-batch, and each rank sees its own seeds only",
            "give --norm layer, or train on one rank",
        ],
    ),
    Row::new(
        |c| c.is_on_ranks() && c.is_sampled() && c.scheme.is_some_and(|scheme| scheme != Scheme::OneD),
        [
            "--partition {scheme} with --batch {batch}",
            "it divides the full graph, which only full batches use",
            "leave it out: for mini-batches, --layout says what each rank holds",
        ],
    ),
    // Ranks with a part of the features, or of the graph.
    Row::of_flags(
        |c| c.is_divided() && c.plans_caches,
        ["--tier-memory with --layout {layout}", "each rank holds its own rows", "leave one of them out"],
    ),
    Row::new(
        |c| c.placement == Some(GraphPlacement::Patches) && c.has_cache(),
        [
            "--feature-cache or --topology-cache with --layout {layout}",
            "each rank holds its own rows in the memory of its device",
            "leave the caches out, or give --layout replicated",
        ],
    ),
    Row::new(
        |c| c.is_divided() && c.knows_nodes(),
        [
            "--features-from {rule} with --layout {layout}",
            "ranks cannot exchange these features: onehot rows are too wide, and embeddings change in every step",
            "give --features-from degree or random-walk, or --layout replicated",
        ],
    ),
    Row::new(
        |c| c.is_divided() && c.feature_cache == Cache::Spread,
        [
            "a second share of --feature-cache with --layout {layout}",
            "rows that not every GPU caches are read from the host, never from another GPU",
            "leave it out, or give --layout replicated",
        ],
    ),
    Row::new(
        |c| c.is_divided() && c.topology_cache == Cache::Spread,
        [
            "a second share of --topology-cache with --layout {layout}",
            "what not every GPU caches of the graph is read from the host, never from another GPU",
            "leave it out, or give --layout replicated",
        ],
    ),
    Row::new(
        |c| c.is_divided() && c.score_by == Some(ScoreBy::Layers),
        [
            "--score-by layers with --layout {layout}",
            "ranks that hold a part of the graph score all nodes in one pass",
            "leave it out, or give --layout replicated",
        ],
    ),
    // The device.
    Row::new(
        |c| c.device == Some(DeviceKind::Cpu) && c.topology_cache != Cache::None,
        [
            "--topology-cache on the CPU",
            "the CPU reads host memory directly, so that caches have no effect",
            "leave --topology-cache out, or give --device cuda",
        ],
    ),
    Row::new(
        // One rank on a CPU reads codes from the host whether or not they are cached.
        |c| {
            let reads_codes = c.has_codes && !c.is_divided();
            c.device == Some(DeviceKind::Cpu) && c.feature_cache != Cache::None && !reads_codes
        },
        [
            "--feature-cache on the CPU",
            "the CPU reads host memory directly, so that caches have no effect",
            "leave --feature-cache out, or give --device cuda",
        ],
    ),
];

//! [`TimedLinks`]: edges in the order of time, and the batches that ask for them.

use std::ops::Range;
use std::sync::Arc;

use girih_datasets::Dataset;
use girih_graph_format::{Coo, Csr, Duplicates, FormatError, NodeId, Norm, TimedEdge, TimedRows};
use girih_random::Key;
use girih_sampling::{
    Admits, Block, Bound, DrawKey, Expand, TimeRule, TimedBatch, TimedOptions, TimedSampler, TimedSeed,
};

use super::edges::{EdgeRows, check_labels, labels_of};
use crate::TrainError;
use crate::config::{DEFAULT_BATCH_SIZE, TrainConfig};
use crate::minibatch::host_batch::{HostBatch, HostBlock, HostGraphs, HostLoss};
use crate::minibatch::neighborhoods::RowSums;
use crate::models::Adjacency;
use crate::tasks::links::{Draws, Link, LinkPart, PairList};

/// Epoch of draws whose batches hold the held-out edges; those of training count from 0.
const HELD_OUT: u32 = u32::MAX;

/// Edges of a graph in the order of time, in three parts, and the sampler of the blocks that predict them.
pub(crate) struct TimedLinks {
    rows: Arc<TimedRows>,
    edges: Vec<TimedEdge>,
    train: Range<usize>,
    val: Range<usize>,
    test: Range<usize>,
    /// Nodes that some edge ends in, ascending: the answers that a wrong edge may have.
    destinations: Vec<NodeId>,
    sampler: TimedSampler,
    rule: TimeRule,
    adjacency: Adjacency,
    /// Features of edges for the blocks, if the model reads them.
    edge_rows: Option<EdgeRows>,
    /// Whether the label of each edge is positive, by the number of the edge in its list; `None` where links are asked for.
    labels: Option<Vec<bool>>,
    n_negatives: usize,
    batch_size: usize,
    seed: u64,
}

/// Training edges of an epoch, in batches.
pub(crate) struct TimedEpoch {
    /// Positions of edges.
    order: Vec<usize>,
    /// Number of the batch that stands at each place.
    batches: Vec<usize>,
    batch_size: usize,
    negatives: Key,
}

impl TimedEpoch {
    /// Number of batches.
    pub(crate) fn n_batches(&self) -> usize {
        self.batches.len()
    }
}

impl TimedLinks {
    /// Edges of a data set, for a model that reads `adjacency`, and perhaps features of edges.
    ///
    /// # Errors
    /// When edges have no times or not the columns that are asked for, the settings do not fit, or too few edges are left
    /// to train on or to compare with.
    pub(crate) fn new(
        dataset: &mut Dataset,
        (adjacency, reads_edges): (Adjacency, bool),
        config: &TrainConfig,
    ) -> Result<Self, TrainError> {
        let Some(rows) = dataset.timed.take() else {
            return Err(TrainError::invalid(format!(
                "{} was loaded without the times of its edges, which time.before and time.until read: load it with \
                 LoadOptions::times",
                dataset.name
            )));
        };
        let name = &dataset.name;
        let labels = labels_of(&config.edges, dataset)?;
        let rule = config.time.rule(rows.tick())?;
        check_rule(&rule, adjacency, config)?;
        if config.edges.has_features() && !reads_edges {
            return Err(TrainError::invalid(format!(
                "the input spec of {} reads no features of edges: leave --edge-features and --time-encoding out, or let it set \
                 `edges`",
                config.model.name()
            )));
        }
        let mut edges = rows.edges_in_time();
        // An edge from a node to itself is seen as a neighbor, but no question.
        edges.retain(|edge| edge.source != edge.destination);
        let [train, val, test] = parts_of(&edges, (config.links.val, config.links.test));
        let mut destinations: Vec<NodeId> = edges.iter().map(|edge| edge.destination).collect();
        destinations.sort_unstable();
        destinations.dedup();
        if train.is_empty() || destinations.len() < 3 {
            return Err(TrainError::invalid(format!(
                "{name} has {} edges for training, and edges end in {} nodes; links in time need an edge at least, and three \
                 nodes: give smaller --val-links and --test-links, or data with more edges",
                train.len(),
                destinations.len()
            )));
        }
        if let Some(labels) = &labels {
            let parts = [("training", &train), ("validation", &val), ("test", &test)];
            parts.iter().try_for_each(|(part, range)| check_labels(name, part, &edges[(*range).clone()], labels))?;
        }
        let edge_rows =
            reads_edges.then(|| EdgeRows::new(&config.edges, dataset.edge_features.take(), adjacency.self_loops));
        let options = TimedOptions { rule, replace: config.batch.replace, expand: Expand::Once, edge_ids: reads_edges };
        Ok(Self {
            rows,
            edges,
            train,
            val,
            test,
            destinations,
            sampler: TimedSampler::new(config.batch.fan_out(config.model.layers)?, options)?,
            rule,
            adjacency,
            edge_rows,
            labels,
            n_negatives: config.links.negatives,
            batch_size: config.batch_size.unwrap_or(DEFAULT_BATCH_SIZE),
            seed: config.seed,
        })
    }

    /// Graph of the training edges, as features that are made from the graph may know it.
    ///
    /// # Errors
    /// When memory does not suffice.
    pub(crate) fn training_graph(&self) -> Result<Csr, TrainError> {
        let (n_nodes, edges) = (self.rows.n_nodes(), &self.edges[self.train.clone()]);
        let (rows, columns) = edges.iter().map(|edge| (edge.destination, edge.source)).unzip();
        let graph = Coo::new(n_nodes, n_nodes, rows, columns, None)?.to_csr(Duplicates::Merge)?;
        Ok(if self.rows.goes_both_ways() { graph.symmetrized() } else { graph })
    }

    /// Whether there are edges that validate.
    pub(crate) fn has_validation(&self) -> bool {
        !self.val.is_empty()
    }

    /// Draws the order of an epoch of run `run`. Batches whose seeds share a bound keep edges of about one time together,
    /// and only their order is drawn.
    pub(crate) fn epoch(&self, epoch: u64, run: u64) -> TimedEpoch {
        let key = |draws: Draws| draws.key(self.seed).child(run).child(epoch);
        let mut order: Vec<usize> = self.train.clone().collect();
        let mut batches: Vec<usize> = (0..order.len().div_ceil(self.batch_size)).collect();
        let mut stream = key(Draws::Orders).stream(0, 0);
        if self.rule.bound == Bound::Batch {
            stream.shuffle(&mut batches);
        } else {
            stream.shuffle(&mut order);
        }
        TimedEpoch { order, batches, batch_size: self.batch_size, negatives: key(Draws::Training) }
    }

    /// Batch number `at` of an epoch of training.
    ///
    /// # Errors
    /// When a block has more rows than a matrix may have.
    pub(crate) fn batch(&self, epoch: &TimedEpoch, at: usize, key: DrawKey) -> Result<HostBatch, TrainError> {
        let start = epoch.batches[at] * epoch.batch_size;
        let numbers = &epoch.order[start..(start + epoch.batch_size).min(epoch.order.len())];
        self.of_edges(numbers, (epoch.negatives, self.n_negatives), key)
    }

    /// Batches of a part in the order of time; each edge has one wrong one beside it.
    pub(crate) fn held_out(&self, of: LinkPart) -> impl Iterator<Item = Result<HostBatch, TrainError>> {
        let part = match of {
            LinkPart::Train => self.train.clone(),
            LinkPart::Val => self.val.clone(),
            LinkPart::Test => self.test.clone(),
        };
        let negatives = Draws::HeldOut.key(self.seed).child(of as u64);
        part.clone().step_by(self.batch_size).map(move |start| {
            let numbers: Vec<usize> = (start..(start + self.batch_size).min(part.end)).collect();
            let key = DrawKey::new(self.seed, HELD_OUT, (start / self.batch_size) as u32);
            self.of_edges(&numbers, (negatives, 1), key)
        })
    }

    /// Blocks that embed nodes from all edges of the data.
    ///
    /// # Errors
    /// When a block has more rows than a matrix may have.
    pub(crate) fn of_nodes(&self, nodes: Range<NodeId>, number: u32) -> Result<HostBatch, TrainError> {
        let time = self.edges.last().map_or(0, |edge| edge.time).saturating_add(1);
        let seeds: Vec<TimedSeed> = nodes.map(|node| TimedSeed { node, time }).collect();
        let pairs = PairList { ends: Vec::new(), n_links: 0 };
        self.of_seeds(&seeds, &pairs, DrawKey::new(self.seed, HELD_OUT, number))
    }

    /// Batch of edges, given by their positions: with wrong ones, or those of a positive label before the others.
    fn of_edges(
        &self,
        numbers: &[usize],
        (negatives, n_negatives): (Key, usize),
        key: DrawKey,
    ) -> Result<HostBatch, TrainError> {
        if let Some(labels) = &self.labels {
            return self.of_labelled(numbers, labels, key);
        }
        let mut seeds = Vec::with_capacity(numbers.len() * (2 + n_negatives));
        let mut ends: Vec<Link> = numbers.iter().map(|&number| self.add_ends(number, &mut seeds)).collect();
        for (at, &number) in numbers.iter().enumerate() {
            let (source, time) = (ends[at][0], self.edges[number].time);
            for i in 0..n_negatives {
                let node = self.other_destination(&self.edges[number], negatives, (number, i));
                seeds.push(TimedSeed { node, time });
                ends.push([source, (seeds.len() - 1) as NodeId]);
            }
        }
        self.of_seeds(&seeds, &PairList { ends, n_links: numbers.len() }, key)
    }

    /// Batch of edges whose labels are asked for.
    fn of_labelled(&self, numbers: &[usize], labels: &[bool], key: DrawKey) -> Result<HostBatch, TrainError> {
        let is_positive = |number: &usize| labels[self.edges[*number].edge as usize];
        let (positive, others): (Vec<usize>, Vec<usize>) = numbers.iter().partition(|number| is_positive(number));
        let mut seeds = Vec::with_capacity(numbers.len() * 2);
        let ends = positive.iter().chain(&others).map(|&number| self.add_ends(number, &mut seeds)).collect();
        self.of_seeds(&seeds, &PairList { ends, n_links: positive.len() }, key)
    }

    /// Adds the ends of an edge as seeds at its time. The pair holds their positions.
    fn add_ends(&self, number: usize, seeds: &mut Vec<TimedSeed>) -> Link {
        let TimedEdge { source, destination, time, .. } = self.edges[number];
        seeds.extend([source, destination].map(|node| TimedSeed { node, time }));
        [(seeds.len() - 2) as NodeId, (seeds.len() - 1) as NodeId]
    }

    /// A node that edges end in, and that is no end of this edge.
    fn other_destination(&self, edge: &TimedEdge, negatives: Key, (number, i): (usize, usize)) -> NodeId {
        let mut stream = negatives.stream(number as u64, (i as u64) << 32);
        loop {
            // Terminates, since there are three such nodes at least.
            let other = self.destinations[stream.below(self.destinations.len() as u64) as usize];
            if other != edge.source && other != edge.destination {
                return other;
            }
        }
    }

    /// Batch of seeds and of pairs of them.
    fn of_seeds(&self, seeds: &[TimedSeed], pairs: &PairList, key: DrawKey) -> Result<HostBatch, TrainError> {
        let sampled = self.sampler.sample(&self.rows, seeds, key)?;
        let block = |block: &Block| -> Result<HostBlock, FormatError> {
            let weights = |v| self.weights_of(block, &sampled, v);
            let edges = self.edge_rows.as_ref().map(|edges| edges.of_block(&self.rows, block, &sampled, weights));
            Ok(HostBlock { rows: self.rows_of(block, &sampled)?, in_place: None, edges: edges.transpose()? })
        };
        let blocks = sampled.blocks.blocks.iter().map(block).collect::<Result<Vec<_>, _>>()?;
        let n_loss = pairs.ends.len();
        let ends = pairs.ends.iter().map(|pair| pair.map(|seed| sampled.seed_rows[seed as usize])).collect();
        Ok(HostBatch {
            graphs: HostGraphs::Blocks(blocks),
            inputs: sampled.blocks.inputs().to_vec(),
            rows: None,
            outputs: sampled.blocks.seeds().to_vec(),
            loss: HostLoss::Pairs(PairList { ends, n_links: pairs.n_links }),
            n_loss,
        })
    }

    /// Weight of each edge that is drawn into a destination, and of its edge to itself.
    fn weights_of(&self, block: &Block, sampled: &TimedBatch, v: usize) -> [f32; 2] {
        let n_drawn = block.row(v).len();
        match self.adjacency.norm {
            Norm::Row => [1.0 / (n_drawn + usize::from(self.adjacency.self_loops)) as f32; 2],
            Norm::None | Norm::Symmetric => {
                let seen = self.rows.within(block.nodes[v] as usize, &self.rule.window_of(sampled.bounds[v]));
                [seen.len() as f32 / n_drawn.max(1) as f32, 1.0]
            }
        }
    }

    /// Rows of the normalised adjacency for a block, by the edges that each node sees: means over the draws, or sums that
    /// estimate those over all of them.
    fn rows_of(&self, block: &Block, sampled: &TimedBatch) -> Result<Csr, FormatError> {
        let mut rows = RowSums::new(block.n_destinations, block.n_edges());
        let mut row = Vec::new();
        for v in 0..block.n_destinations {
            let drawn = block.row(v);
            let own = self.adjacency.self_loops.then_some(v as NodeId);
            let [weight, own_weight] = self.weights_of(block, sampled, v);
            row.clear();
            row.extend(drawn.iter().map(|&column| (column, weight)));
            row.extend(own.map(|own| (own, own_weight)));
            rows.push(&mut row);
        }
        rows.into_csr(block.n_columns)
    }
}

/// Refuses rules and networks under which an edge would see itself or later ones.
fn check_rule(rule: &TimeRule, adjacency: Adjacency, config: &TrainConfig) -> Result<(), TrainError> {
    if rule.admits == Admits::Until {
        return Err(TrainError::invalid(format!(
            "time.until = \"{}\" with the task links admits the edge that is asked for: give time.before = \"{0}\" (--before)",
            rule.bound
        )));
    }
    if adjacency.norm == Norm::Symmetric {
        return Err(TrainError::invalid(format!(
            "{} divides by the degrees of neighbors in the whole graph, which later edges change: give a model that takes means \
             or sums",
            config.model.name()
        )));
    }
    Ok(())
}

/// Training, validation and test part of edges in the order of time, by the shares of the last two. Edges of one time are in
/// one part, the earlier one.
#[must_use]
pub fn parts_of(edges: &[TimedEdge], (val, test): (f64, f64)) -> [Range<usize>; 3] {
    let n = edges.len();
    let share = |share: f64| (share * n as f64).round() as usize;
    let after_equals = |at: usize| {
        let is_split = |at: &usize| *at > 0 && *at < n && edges[*at].time == edges[at - 1].time;
        (at..=n).find(|at| !is_split(at)).unwrap_or(n)
    };
    let test_from = after_equals(n - share(test).min(n));
    let val_from = after_equals(n.saturating_sub(share(test) + share(val))).min(test_from);
    [0..val_from, val_from..test_from, test_from..n]
}

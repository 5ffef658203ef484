//! [`Benchmark`]: data sets of the Open Graph Benchmark, with the metrics of its evaluator (package `ogb`, version 1.3).

use crate::{DataSource, DatasetError, Negatives, Outline};

/// Data set of the Open Graph Benchmark whose scores can be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Benchmark {
    /// Name in the benchmark.
    pub name: &'static str,
    /// Metric of its evaluator.
    pub metric: BenchmarkMetric,
}

/// Metric of an evaluator of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchmarkMetric {
    /// Share of nodes with the right class: `acc`.
    Accuracy,
    /// Area under the receiver operating characteristic, the mean over the labels of nodes: `rocauc`.
    RocAuc,
    /// Share of edges with a larger score than the negative pair of this rank: `hits@K`.
    Hits(usize),
    /// Reciprocal rank of edges among negative pairs of their own: `mrr_list`.
    ReciprocalRank,
}

/// All that are supported.
const BENCHMARKS: [Benchmark; 8] = [
    Benchmark { name: "ogbn-arxiv", metric: BenchmarkMetric::Accuracy },
    Benchmark { name: "ogbn-products", metric: BenchmarkMetric::Accuracy },
    Benchmark { name: "ogbn-papers100M", metric: BenchmarkMetric::Accuracy },
    Benchmark { name: "ogbn-proteins", metric: BenchmarkMetric::RocAuc },
    Benchmark { name: "ogbl-ddi", metric: BenchmarkMetric::Hits(20) },
    Benchmark { name: "ogbl-collab", metric: BenchmarkMetric::Hits(50) },
    Benchmark { name: "ogbl-ppa", metric: BenchmarkMetric::Hits(100) },
    Benchmark { name: "ogbl-citation2", metric: BenchmarkMetric::ReciprocalRank },
];

/// Kinds of made-up data that make scores other ones than the benchmark's.
const OTHER_SCORES: [&str; 4] = ["drawn_split", "replaced_splits", "replaced_labels", "empty_part"];

impl Benchmark {
    /// Benchmark of data by their name, with `-` or `_`, that have the benchmark's own split.
    ///
    /// # Errors
    /// When the data are none of the supported sets, or lack the split of the metric.
    pub fn of(data: &DataSource) -> Result<Self, DatasetError> {
        let outline = data.outline();
        let wanted = outline.name.replace('_', "-");
        let found = BENCHMARKS.into_iter().find(|benchmark| benchmark.name.eq_ignore_ascii_case(&wanted));
        let Some(benchmark) = found else {
            let known = BENCHMARKS.map(|benchmark| benchmark.name).join(", ");
            return Err(DatasetError::invalid(format!(
                "{} is no data set of the Open Graph Benchmark whose metric is known; the name of the folder tells: {known}",
                outline.name
            )));
        };
        match benchmark.why_not(data, &outline) {
            None => Ok(benchmark),
            Some(why) => {
                let name = outline.name;
                Err(DatasetError::invalid(format!("{name} {why}, so that its scores are not the benchmark's")))
            }
        }
    }

    /// Whether edges are scored, and not nodes.
    #[must_use]
    pub fn scores_edges(self) -> bool {
        matches!(self.metric, BenchmarkMetric::Hits(_) | BenchmarkMetric::ReciprocalRank)
    }

    /// Reason why scores on some data are not the benchmark's.
    fn why_not(self, data: &DataSource, outline: &Outline) -> Option<String> {
        if outline.generated {
            return Some("is generated".to_owned());
        }
        if let Some(made) = data.notes().made_up.iter().find(|made| OTHER_SCORES.contains(&made.kind)) {
            return Some(format!("is not used as shipped ({})", made.text));
        }
        let shares = data
            .edge_split()
            .map(|split| split.held_out().into_iter().all(|(_, part)| matches!(part.negatives, Negatives::Shared(_))));
        match (self.metric, shares, outline.splits.len()) {
            (BenchmarkMetric::Hits(_) | BenchmarkMetric::ReciprocalRank, None, _) => {
                Some("has no split of edges (split/NAME/train.pt, valid.pt and test.pt)".to_owned())
            }
            (BenchmarkMetric::Hits(_), Some(false), _) => Some("has negative pairs of each edge's own".to_owned()),
            (BenchmarkMetric::ReciprocalRank, Some(true), _) => {
                Some("has negative pairs that all edges share".to_owned())
            }
            (BenchmarkMetric::Accuracy | BenchmarkMetric::RocAuc, _, n) if n != 1 => {
                Some(format!("has {n} splits of nodes"))
            }
            (BenchmarkMetric::Accuracy, ..) if outline.multi_label => Some("has several labels a node".to_owned()),
            (BenchmarkMetric::RocAuc, ..) if !outline.multi_label => Some("has one label a node".to_owned()),
            _ => None,
        }
    }
}

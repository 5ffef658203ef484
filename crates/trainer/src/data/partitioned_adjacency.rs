//! [`PartitionedAdjacency`]: the normalised adjacency as a rank reads it: its own rows, and messages of other ranks.
//!
//! ```text
//! rows       read, checked and dropped again each time that blocks are built from them
//! symmetric  whether hashes of all entries and of all mirrored ones agree
//! degrees    of own rows; if the adjacency is not symmetric, column sums come from the ranks with their entries
//! transpose  entries from the rows of other ranks, when a product first needs them
//! ```

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use girih_compute::{Backend, ComputeError, Dtype, Transpose};
use girih_datasets::DataSource;
use girih_graph_format::{UndefinedDegree, WeightSum, degree_factors};
use girih_partition::Exchange;

use super::mirror::{column_sums, is_symmetric, transposed};
use crate::TrainError;
use crate::models::Adjacency;
use crate::tape::ranks::{AllScales, BlockSource, Blocks, HostBlocks, LoopedRows, Pattern, Ranks, failed};

/// `Â = L·A·R`, of which a rank reads its own rows.
pub struct PartitionedAdjacency {
    source: Arc<DataSource>,
    self_loops: bool,
    exchange: Exchange,
    wire: Dtype,
    /// Diagonals of `L` and `R`, for all nodes.
    scales: AllScales,
    symmetric: bool,
    /// Blocks of a symmetric adjacency, kept from the first use of one direction until the other is needed.
    blocks: Mutex<Option<HostBlocks>>,
}

impl PartitionedAdjacency {
    /// Adjacency of `source` for a model, with `f32` operands sent as `wire`; all ranks call it together.
    ///
    /// # Errors
    /// When rows that this rank reads break an invariant, or another rank fails.
    pub fn new<B: Backend>(
        source: Arc<DataSource>,
        adjacency: Adjacency,
        ranks: &Ranks<B>,
        (exchange, wire): (Exchange, Dtype),
    ) -> Result<Self, TrainError> {
        let own = ranks.own();
        let rows = LoopedRows::new(source.graph_rows(own.clone())?, own.start, adjacency.self_loops);
        let symmetric = is_symmetric(&rows, ranks)?;
        let [left, right] = adjacency.norm.powers();
        let joined = |sums: &[WeightSum], power, is_column: bool| -> Result<Arc<[f32]>, TrainError> {
            let undefined = |undefined: UndefinedDegree| {
                adjacency.undefined(UndefinedDegree { node: own.start + undefined.node, is_column, ..undefined })
            };
            let factors = degree_factors(sums, adjacency.degrees, power).map_err(undefined)?;
            Ok(ranks.join_rows(&factors).map(Arc::from)?)
        };
        let left = left.map(|power| joined(&rows.sums(), power, false)).transpose()?;
        let right = match right {
            None => None,
            Some(power) if symmetric && adjacency.norm.powers()[0] == Some(power) => left.clone(),
            Some(power) => Some(joined(&column_sums(&rows, ranks)?, power, true)?),
        };
        let (self_loops, blocks) = (adjacency.self_loops, Mutex::default());
        Ok(Self { source, self_loops, exchange, wire, scales: [left, right], symmetric, blocks })
    }

    /// Rows of `op(A)` of each panel of this rank's products. Of the transpose, they have the columns of its steps
    /// only.
    fn panels<B: Backend>(&self, ranks: &Ranks<B>, transpose: Transpose) -> Result<Vec<LoopedRows>, ComputeError> {
        if transpose == Transpose::Yes && !self.symmetric {
            return transposed(&self.rows(ranks.own())?, ranks).map_err(|error| failed(&error));
        }
        ranks.product_rows(ranks.rank()).map(|rows| self.rows(rows)).collect()
    }

    fn rows(&self, rows: Range<usize>) -> Result<LoopedRows, ComputeError> {
        let first = rows.start;
        let csr = self.source.graph_rows(rows);
        let csr = csr.map_err(|error| ComputeError::device("reading rows of the graph", error.to_string()))?;
        Ok(LoopedRows::new(csr, first, self.self_loops))
    }
}

impl PartitionedAdjacency {
    /// Diagonals of `L` and `R`, for all nodes.
    pub(crate) fn scales(&self) -> &AllScales {
        &self.scales
    }
}

impl<B: Backend> BlockSource<B> for PartitionedAdjacency {
    fn wire(&self) -> Dtype {
        self.wire
    }

    fn blocks(&self, backend: &B, ranks: &Ranks<B>, transpose: Transpose) -> Result<Blocks<B>, ComputeError> {
        let mut kept = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let blocks = match kept.take() {
            Some(blocks) => blocks,
            None => {
                let rows = self.panels(ranks, transpose)?;
                let blocks = HostBlocks::new(&rows, ranks, self.exchange).map_err(|error| failed(&error))?;
                // The other direction of a symmetric adjacency differs in the scales alone.
                *kept = self.symmetric.then(|| blocks.clone());
                blocks
            }
        };
        let mut scales = self.scales.clone();
        if transpose == Transpose::Yes {
            scales.reverse();
        }
        blocks.upload(backend, ranks, &scales)
    }

    fn pattern(&self, backend: &B, ranks: &Arc<Ranks<B>>) -> Result<Pattern<B>, ComputeError> {
        Pattern::new(backend, ranks, &self.rows(ranks.own())?, &self.scales)
    }
}

//! Graphs for sampling on a CUDA device.

use girih_compute::{ComputeError, NeighborGraph, NeighborOperand, SamplingDevice};

use crate::Cuda;
use crate::sampling::CudaGraph;

impl SamplingDevice for Cuda {
    fn neighbor_graph(
        &self,
        operand: &NeighborOperand<'_>,
    ) -> Result<Option<Box<dyn NeighborGraph<Self>>>, ComputeError> {
        let graph = CudaGraph::new(self, operand)?;
        Ok(Some(Box::new(graph)))
    }
}

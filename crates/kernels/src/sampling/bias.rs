//! [`DeviceBias`]: weights of edges on a device.

use girih_compute::ComputeError;
use girih_graph_format::Csr;
use girih_sampling::Bias;
use rayon::prelude::*;

use super::{DeviceTopology, OPERATION};
use crate::Cuda;
use crate::abi::sampling as arguments;
use crate::buffer::Buffer;

/// [`Bias`] on a device.
pub(super) struct DeviceBias {
    running: Buffer<u64>,
    n_positive: Buffer<u32>,
    exponents: Buffer<i16>,
}

impl DeviceBias {
    /// Uploads the weights of the edges of `graph`, which is the host copy of `topology`.
    pub(super) fn upload(
        cuda: &Cuda,
        topology: &DeviceTopology,
        graph: &Csr,
        bias: &Bias,
    ) -> Result<Self, ComputeError> {
        check_edges(bias.n_edges(), topology.n_edges(), graph.nnz(), topology.n_nodes() == graph.n_rows())?;
        let n_positive: Vec<u32> = (0..graph.n_rows())
            .into_par_iter()
            .with_min_len(1024)
            .map(|row| n_increases(&bias.running()[graph.row_range(row)]))
            .collect();
        Ok(Self {
            running: cuda.upload_list(OPERATION, bias.running())?,
            n_positive: cuda.upload_list(OPERATION, &n_positive)?,
            exponents: cuda.upload_list(OPERATION, bias.exponents())?,
        })
    }

    pub(super) fn argument(&self, cuda: &Cuda) -> arguments::Weights {
        arguments::Weights {
            running: cuda.pointer(Some(&self.running)),
            n_positive: cuda.pointer(Some(&self.n_positive)),
        }
    }

    /// Device address of the exponents, a power of two for each row.
    pub(super) fn exponents(&self, cuda: &Cuda) -> u64 {
        cuda.pointer(Some(&self.exponents))
    }
}

/// Fails if the weights are not of the edges of the graph on the device and on the host.
fn check_edges(weights: usize, on_gpu: usize, on_host: usize, same_nodes: bool) -> Result<(), ComputeError> {
    if [weights, on_gpu] == [on_host; 2] && same_nodes {
        return Ok(());
    }
    let what = format!(
        "there are weights of {weights} edges, {on_gpu} edges on the GPU and {on_host} on the host: pass the graph that the others \
         were made from"
    );
    Err(ComputeError::argument(OPERATION, what))
}

/// Number of weights that are not zero, from running sums.
fn n_increases(running: &[u64]) -> u32 {
    let mut before = 0;
    running.iter().filter(|&&sum| std::mem::replace(&mut before, sum) < sum).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_another_graph_are_refused() {
        assert!(check_edges(5, 5, 5, true).is_ok());
        assert_eq!(
            check_edges(5, 7, 7, true).unwrap_err().to_string(),
            "sampling on the device: there are weights of 5 edges, 7 edges on the GPU and 7 on the host: pass the graph that the others were \
             made from"
        );
        assert!(check_edges(5, 5, 5, false).is_err());
    }

    #[test]
    fn weights_that_are_not_zero_are_counted() {
        assert_eq!(n_increases(&[]), 0);
        assert_eq!(n_increases(&[0, 0]), 0);
        assert_eq!(n_increases(&[3, 3, 4, 9, 9]), 3);
    }
}

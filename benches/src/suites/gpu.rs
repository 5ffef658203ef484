//! What the suites of devices share: the device with its ceiling, and orders of nodes.

use std::time::Instant;

use girih_graph_format::{Csr, Permutation};
use girih_kernels::{Cuda, Device};
use girih_reorder::OrderKind;

use crate::{Accelerator, Error, Report};

/// The orders that suites run in unless they are told: the one that pays.
pub(super) const ORDERS: [OrderKind; 1] = [OrderKind::Community];

/// Opens the first device, measures its memory and notes both.
pub(super) fn open_device(report: &mut Report) -> Result<Cuda, Error> {
    let cuda = Cuda::new(Device::open(0)?);
    report.device = Some(Accelerator { name: cuda.device().name(), copy_gb_s: cuda.copy_gb_s()? });
    Ok(cuda)
}

/// An order of nodes, found.
pub(super) struct Order {
    pub(super) kind: OrderKind,
    /// Seconds that finding it took, on the processor.
    pub(super) seconds: f64,
    /// `None` for the order that there is.
    pub(super) permutation: Option<Permutation>,
}

impl Order {
    /// Finds the order of a graph. Ids of generated graphs are shuffled, so that nothing is owed to the generator.
    pub(super) fn find(kind: OrderKind, graph: &Csr) -> Result<Self, Error> {
        if kind == OrderKind::None {
            return Ok(Self { kind, seconds: 0.0, permutation: None });
        }
        let start = Instant::now();
        let permutation = Some(kind.order(1, 1).order(graph)?);
        let seconds = start.elapsed().as_secs_f64();
        eprintln!("order {kind} in {seconds:.1} s");
        Ok(Self { kind, seconds, permutation })
    }
}

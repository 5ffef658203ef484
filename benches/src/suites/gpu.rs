//! What the suites of devices share: the device with its ceiling, and orders of nodes.

use std::time::Instant;

use girih_graph_format::{Csr, Permutation};
use girih_kernels::{Cuda, Device};
use girih_reorder::OrderKind;

use crate::{Accelerator, Error, Report};

/// Notes the first device and measures its memory.
pub(super) fn note_device(report: &mut Report) -> Result<(), Error> {
    let device = Device::open(0)?;
    let name = device.name();
    report.device = Some(Accelerator { name, copy_gb_s: Cuda::new(device).copy_gb_s()? });
    Ok(())
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

//! `spmm`: `Â·X` with `Â = D^-½ (A + I) D^-½`, the product in which full-batch training spends its time.

use std::cell::RefCell;
use std::path::Path;

use girih_compute::{Backend, Cpu, Dtype, Epilogue, Shape, SparseOperand, Transpose};
use girih_graph_format::{Csr, Norm};

use super::{DTYPES, Setup, dtype_name, random_matrix};
use crate::peer::Peer;
use crate::timing::{Contestant, Summary, compete};
use crate::{Case, Error, Report, graphs};

/// Widths of the hidden layers and class counts that are common.
const WIDTHS: [usize; 5] = [16, 41, 64, 128, 256];
/// What a peer is asked for: plain sums of neighbours, and the product that girih computes, with the operand scaled
/// before and the result after. A weight on every edge would send DGL to a kernel that is many times slower.
const PEER_KINDS: [&str; 2] = ["copy", "scaled"];

/// Adds a case for each width and storage type, and for the peer.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let dataset = graphs::load(setup.graph())?;
    report.graph = Some(graphs::describe(&dataset));
    let csr = dataset.graph.with_self_loops();
    let peer = setup.peer.as_ref().map(|python| start_peer(python, &csr)).transpose()?;
    let products = Products::new(&csr, peer)?;
    for width in WIDTHS {
        let results = compete(setup.protocol, products.contestants(width)?)?;
        report.cases.extend(cases(&results, width, csr.nnz(), report.ceilings.l3_read_gb_s_all));
    }
    Ok(())
}

fn start_peer(python: &Path, csr: &Csr) -> Result<Peer, Error> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("graph");
    graphs::export_graph(csr, &path)?;
    // The script has read everything when it is ready, so that the folder may go.
    Peer::start(python, "dgl_spmm.py", &[path.as_os_str()])
}

/// The sparse operand, here and in the peer.
struct Products {
    backend: Cpu,
    sparse: <Cpu as Backend>::Sparse,
    peer: Option<RefCell<Peer>>,
}

impl Products {
    fn new(csr: &Csr, peer: Option<Peer>) -> Result<Self, Error> {
        let backend = Cpu::default();
        let operand = SparseOperand { csr, scales: csr.scales(Norm::Symmetric), symmetric: csr.is_symmetric() };
        Ok(Self { sparse: backend.upload_sparse(&operand)?, backend, peer: peer.map(RefCell::new) })
    }

    /// Girih with `f32` and with bf16 rows, then the peer's kinds.
    fn contestants(&self, width: usize) -> Result<Vec<Contestant<'_>>, Error> {
        let sparse = self.backend.sparse_shape(&self.sparse);
        let host = random_matrix(sparse.cols, width)?;
        let mut contestants = Vec::new();
        for dtype in DTYPES {
            let x = self.backend.upload(&host, dtype)?;
            let mut out = self.backend.zeros(Shape::new(sparse.rows, width), Dtype::F32)?;
            contestants.push(Contestant::new(format!("w{width}/{}", dtype_name(dtype)), move || {
                self.backend.spmm((&self.sparse, Transpose::No), None, &x, Epilogue::default(), &mut out)
            }));
        }
        if let Some(peer) = &self.peer {
            contestants.extend(PEER_KINDS.map(|kind| {
                let name = format!("w{width}/{} {kind}", peer.borrow().name());
                Contestant::timed(name, move || peer.borrow_mut().ask(&format!("{width} {kind}")))
            }));
        }
        Ok(contestants)
    }
}

/// The cases of one width; `results` are in the order of [`Products::contestants`].
fn cases(results: &[(String, Summary)], width: usize, nnz: usize, ceiling_gb_s: f64) -> Vec<Case> {
    let (ours, peers) = results.split_at(DTYPES.len());
    let elements = (nnz * width) as f64;
    let mut cases = Vec::new();
    for ((name, time), dtype) in ours.iter().zip(DTYPES) {
        let gathered_gb_s = elements * dtype.n_bytes() as f64 / time.median_s / 1e9;
        let mut case = Case::new(name, *time)
            .with("gflop_s", elements / time.median_s / 1e9)
            .with("gathered_gb_s", gathered_gb_s)
            .with("share_of_l3", gathered_gb_s / ceiling_gb_s);
        for ((_, peer), kind) in peers.iter().zip(PEER_KINDS) {
            case = case.with(&format!("x_peer_{kind}"), peer.median_s / time.median_s);
        }
        cases.push(case);
    }
    cases.extend(
        peers.iter().map(|(name, time)| Case::new(name, *time).with("gflop_s", elements / time.median_s / 1e9)),
    );
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_from_time_and_bytes() {
        let result = |name: &str, seconds| (name.to_owned(), Summary::of(&[seconds]));
        let results = [result("a", 1.0), result("b", 0.5), result("copy", 2.0), result("scaled", 3.0)];
        let cases = cases(&results, 10, 100_000_000, 8.0);
        assert_eq!(cases[0].metrics["gflop_s"], 1.0);
        assert_eq!(cases[0].metrics["share_of_l3"], 0.5);
        assert_eq!(cases[1].metrics["gathered_gb_s"], 4.0);
        assert_eq!(cases[1].metrics["x_peer_scaled"], 6.0);
        assert_eq!(cases.len(), 4);
    }
}

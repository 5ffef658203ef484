//! `spmm`: `Â·X` with `Â = D^-½ (A + I) D^-½`, the product that dominates full-batch training.
//!
//! `Â` is stored by rows (`csr`) or in dense tiles of 32 × 32 (`tiles`). `tile_share` is the share of entries in dense
//! tiles; `x_peer_copy` and `x_peer_scaled` are speedups over the peer's plain sums and its normalised product.

use std::cell::RefCell;
use std::path::Path;

use girih_compute::cpu::CpuTiles;
use girih_compute::prelude::*;
use girih_compute::{Cpu, Dtype, Epilogue, Shape, SparseOperand, Transpose};
use girih_graph_format::{Csr, Norm, TileMatrix};

use super::setup::{Setup, random_matrix};
use crate::peer::Peer;
use crate::timing::{Contestant, Summary, compete};
use crate::{Case, Error, Report, graphs};

/// Common widths of hidden layers, and class counts.
const WIDTHS: [usize; 5] = [16, 41, 64, 128, 256];
/// girih's variants: layout of the sparse operand, and storage type of the dense one.
const OURS: [(Layout, Dtype); 4] =
    [(Layout::Csr, Dtype::F32), (Layout::Csr, Dtype::Bf16), (Layout::Tiles, Dtype::F32), (Layout::Tiles, Dtype::Bf16)];
/// Products of a peer: plain sums of neighbors, and girih's product with the operand scaled before and the result
/// after. Edge weights would select a DGL kernel that is many times slower.
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
        report.cases.extend(cases(&results, width, csr.nnz(), products.tile_share, report.ceilings.l3_read_gb_s_all));
    }
    Ok(())
}

fn start_peer(python: &Path, csr: &Csr) -> Result<Peer, Error> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("graph");
    graphs::export_graph(csr, &path)?;
    // A script that is ready has read all its data, so the folder can be deleted.
    Peer::start(python, "dgl_spmm.py", &[path.as_os_str()])
}

/// Storage of the sparse operand.
#[derive(Clone, Copy)]
enum Layout {
    /// CSR rows.
    Csr,
    /// Tiles of 32 × 32 where they are dense enough, rows for the rest.
    Tiles,
}

impl Layout {
    fn name(self) -> &'static str {
        match self {
            Self::Csr => "csr",
            Self::Tiles => "tiles",
        }
    }
}

/// Sparse operand in both layouts, and in the peer.
struct Products {
    backend: Cpu,
    sparse: <Cpu as Memory>::Sparse,
    tiles: CpuTiles,
    /// Share of the entries in dense tiles.
    tile_share: f64,
    peer: Option<RefCell<Peer>>,
}

impl Products {
    fn new(csr: &Csr, peer: Option<Peer>) -> Result<Self, Error> {
        let backend = Cpu::default();
        let scales = csr.scales(Norm::Symmetric);
        let tiles = TileMatrix::from_csr(csr, TileMatrix::DEFAULT_THRESHOLD)?;
        let tile_share = tiles.coverage();
        let operand = SparseOperand { csr, scales: scales.clone(), symmetric: csr.is_symmetric(), names: None };
        Ok(Self {
            sparse: backend.upload_sparse(&operand)?,
            tiles: backend.upload_tiles(tiles, scales)?,
            tile_share,
            peer: peer.map(RefCell::new),
            backend,
        })
    }

    /// Contestants: those of [`OURS`], then the peer's [`PEER_KINDS`].
    fn contestants(&self, width: usize) -> Result<Vec<Contestant<'_>>, Error> {
        let sparse = self.backend.sparse_shape(&self.sparse);
        let host = random_matrix(sparse.cols, width)?;
        let mut contestants = Vec::new();
        for (layout, dtype) in OURS {
            let x = self.backend.upload(&host, dtype)?;
            let mut out = self.backend.zeros(Shape::new(sparse.rows, width), Dtype::F32)?;
            let name = format!("w{width}/{}/{}", layout.name(), dtype.name());
            contestants.push(Contestant::new(name, move || match layout {
                Layout::Csr => {
                    self.backend.spmm((&self.sparse, Transpose::No), None, &x, Epilogue::default(), &mut out)
                }
                Layout::Tiles => self.backend.spmm_tiles(&self.tiles, &x, &Epilogue::default(), &mut out),
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

/// Cases of one width; `results` are in the order of [`Products::contestants`].
fn cases(results: &[(String, Summary)], width: usize, nnz: usize, tile_share: f64, ceiling_gb_s: f64) -> Vec<Case> {
    let (ours, peers) = results.split_at(OURS.len());
    let elements = (nnz * width) as f64;
    let rated =
        |(name, time): &(String, Summary)| Case::new(name, *time).with("gflop_s", elements / time.median_s / 1e9);
    let mut cases = Vec::new();
    for (result, (layout, dtype)) in ours.iter().zip(OURS) {
        let seconds = result.1.median_s;
        let gathered_gb_s = elements * dtype.n_bytes() as f64 / seconds / 1e9;
        let mut case =
            rated(result).with("gathered_gb_s", gathered_gb_s).with("share_of_l3", gathered_gb_s / ceiling_gb_s);
        if matches!(layout, Layout::Tiles) {
            case = case.with("tile_share", tile_share);
        }
        for ((_, peer), kind) in peers.iter().zip(PEER_KINDS) {
            case = case.with(&format!("x_peer_{kind}"), peer.median_s / seconds);
        }
        cases.push(case);
    }
    cases.extend(peers.iter().map(rated));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_from_time_and_bytes() {
        let result = |name: &str, seconds| (name.to_owned(), Summary::of(&[seconds]));
        let mut results = vec![result("a", 1.0), result("b", 0.5), result("c", 1.0), result("d", 1.0)];
        results.extend([result("copy", 2.0), result("scaled", 3.0)]);
        let cases = cases(&results, 10, 100_000_000, 0.25, 8.0);
        assert_eq!(cases[0].metrics["gflop_s"], 1.0);
        assert_eq!(cases[0].metrics["share_of_l3"], 0.5);
        assert_eq!(cases[1].metrics["gathered_gb_s"], 4.0);
        assert_eq!(cases[1].metrics["x_peer_scaled"], 6.0);
        assert_eq!(cases[2].metrics["tile_share"], 0.25);
        assert_eq!(cases.len(), 6);
    }
}

//! `gpu-spmm`: `A·X` on a CUDA device with the plain adjacency, which sums neighbors. cuSPARSE alternates, with each
//! of its algorithms on the same node order; the best one counts.
//!
//! Columns: `x_cusparse` is the speedup over cuSPARSE's best algorithm. `compulsory_mb` is offsets, indices, operand
//! and result once each. `error_millionths` compares with `f64` sums of 500 rows. Blocks of a density of
//! `threshold_percent` or more go to tensor cores.

use std::borrow::Cow;

use girih_compute::prelude::*;
use girih_compute::{Dtype, Epilogue, Shape, Transpose};
use girih_graph_format::{Csr, Matrix};
use girih_kernels::{BlockKernel, Cuda, CudaMatrix, CudaSparse, Split, Tiling};

use super::gpu::{self, Order};
use super::setup::{DTYPES, Setup, random_matrix};
use crate::cusparse::{Adjacency, CuSparse, Operands, Product};
use crate::sampled::SampledProduct;
use crate::timing::{Contestant, Protocol, Summary, compete};
use crate::{Case, Error, Report, graphs};

/// Columns of the operand.
const WIDTHS: [usize; 4] = [32, 64, 128, 256];
/// Graph; features are not needed.
const GRAPH: &str = "synth:reddit,features=0";

/// Adds two cases for each order, storage type and width: girih's and cuSPARSE's.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let mut cuda = gpu::open_device(report)?;
    let peer = CuSparse::open()?;
    if peer.is_none() {
        eprintln!(
            "no cuSPARSE (libcusparse, or libnvJitLink that it needs) was found: girih runs alone; install CUDA 13, or set \
             LD_LIBRARY_PATH to where it is"
        );
    }
    let dataset = graphs::load(setup.graph_or(GRAPH))?;
    report.graph = Some(graphs::describe(&dataset));
    let graph = dataset.graph.with_values(None)?;
    let tilings = setup.tilings_or(&[Tiling::Auto]);
    for &kind in setup.orders_or(&gpu::ORDERS) {
        let order = Order::find(kind, &graph)?;
        let ordered =
            order.permutation.as_ref().map_or(Cow::Borrowed(&graph), |order| Cow::Owned(graph.permuted(order)));
        for (i, (kernel, tiling, suffix)) in variants(&setup.kernels, tilings).into_iter().enumerate() {
            cuda = cuda.tiling(tiling);
            if let Some(kernel) = kernel {
                cuda = cuda.multiplying_blocks_by(kernel)?;
            }
            let bench = Bench { cuda: &cuda, graph: &ordered, protocol: setup.protocol };
            bench.run(&order, peer.as_ref().filter(|_| i == 0), &suffix, report)?;
        }
    }
    Ok(())
}

/// Every kernel with every choice of blocks. The text is the suffix of case names if there are several.
fn variants(kernels: &[BlockKernel], tilings: &[Tiling]) -> Vec<(Option<BlockKernel>, Tiling, String)> {
    let kernels: Vec<Option<BlockKernel>> = match kernels {
        [] => vec![None],
        kernels => kernels.iter().copied().map(Some).collect(),
    };
    let several = (kernels.len() > 1, tilings.len() > 1);
    let with = |(kernel, tiling): (Option<BlockKernel>, Tiling)| {
        let mut suffix = String::new();
        if let (true, Some(kernel)) = (several.0, kernel) {
            suffix += &format!("/{kernel}");
        }
        if several.1 {
            suffix += &format!("/{tiling}");
        }
        (kernel, tiling, suffix)
    };
    kernels.iter().flat_map(|&kernel| tilings.iter().map(move |&tiling| (kernel, tiling))).map(with).collect()
}

/// Graph in one order.
struct Bench<'a> {
    cuda: &'a Cuda,
    graph: &'a Csr,
    protocol: Protocol,
}

impl Bench<'_> {
    /// Measures all storage types and widths.
    fn run(&self, order: &Order, peer: Option<&CuSparse>, suffix: &str, report: &mut Report) -> Result<(), Error> {
        let copy_gb_s = report.device.as_ref().map_or(0.0, |device| device.copy_gb_s);
        for dtype in DTYPES {
            let adjacency = peer.map(|peer| peer.adjacency(self.graph, dtype)).transpose()?;
            for width in WIDTHS {
                let measured = self.measure(dtype, width, adjacency.as_ref())?;
                let work = Work { n_rows: self.graph.n_rows(), nnz: self.graph.nnz(), width, dtype, copy_gb_s };
                let name = format!("{}/w{width}/{}{suffix}", order.kind, dtype.name());
                report.cases.extend(measured.cases(&name, &work, order));
            }
        }
        Ok(())
    }

    /// Measures both libraries on one operand.
    fn measure(&self, dtype: Dtype, width: usize, peer: Option<&Adjacency<'_>>) -> Result<Measured, Error> {
        let x = self.cuda.upload(&random_matrix(self.graph.n_cols(), width)?, dtype)?;
        let mut out = self.cuda.zeros(Shape::new(self.graph.n_rows(), width), dtype)?;
        // Uploaded for each operand, because the first operand decides which blocks are built.
        let sparse = gpu::upload(self.cuda, self.graph)?;
        // Values as stored, so that rounding does not count as an error of the product.
        let host = self.cuda.download(&x)?;
        let sampled = SampledProduct::of(self.graph, &host);
        let operands = peer.map(|peer| peer.operands(host.data(), width)).transpose()?;
        drop(host);
        let products = operands.as_ref().map(Operands::products).transpose()?.unwrap_or_default();
        let mut results = compete(self.protocol, self.contestants(&products, &sparse, &x, &mut out))?;
        let girih = (results.remove(0).1, sampled.relative_error(self.rows(&out, sampled.rows())?.data()));
        let mut measured = Measured { girih, split: self.cuda.split(&sparse), peer: None };
        if let (Some(at), Some(operands)) = (fastest(&results), &operands) {
            products[at].run()?;
            let error = sampled.relative_error(&operands.rows(sampled.rows())?);
            measured.peer = Some((products[at].algorithm().name(), results[at].1, error));
        }
        Ok(measured)
    }

    /// Contestants: girih first, then every algorithm of the peer.
    fn contestants<'c>(
        &'c self,
        products: &'c [Product<'c>],
        sparse: &'c CudaSparse,
        x: &'c CudaMatrix,
        out: &'c mut CudaMatrix,
    ) -> Vec<Contestant<'c>> {
        let product = move || {
            let a = (sparse, Transpose::No);
            self.cuda.elapsed(|| Ok(self.cuda.spmm(a, None, x, Epilogue::default(), &mut *out)?))
        };
        let rivals = products.iter().map(|product| Contestant::timed(product.algorithm().name(), || product.seconds()));
        std::iter::once(Contestant::timed("girih", product)).chain(rivals).collect()
    }

    /// Some rows of a matrix.
    fn rows(&self, matrix: &CudaMatrix, rows: &[u32]) -> Result<Matrix, Error> {
        let ids = self.cuda.upload_ids(rows)?;
        let shape = Shape::new(rows.len(), self.cuda.shape(matrix).cols);
        let mut gathered = self.cuda.zeros(shape, self.cuda.dtype(matrix))?;
        self.cuda.gather_rows(matrix, &ids, &mut gathered)?;
        Ok(self.cuda.download(&gathered)?)
    }
}

/// Index of the result with the lowest median.
fn fastest(results: &[(String, Summary)]) -> Option<usize> {
    (0..results.len()).min_by(|&a, &b| results[a].1.median_s.total_cmp(&results[b].1.median_s))
}

/// Work of a product, and the ceiling to compare it with.
struct Work {
    n_rows: usize,
    nnz: usize,
    width: usize,
    dtype: Dtype,
    copy_gb_s: f64,
}

impl Work {
    /// Bytes of operand rows, read once per entry.
    fn gathered_bytes(&self) -> f64 {
        (self.nnz * self.width * self.dtype.n_bytes()) as f64
    }

    /// Bytes of memory traffic with perfect caches: offsets, indices, operand and result, once each.
    fn compulsory_bytes(&self) -> f64 {
        let pattern = (self.n_rows + 1) * size_of::<u64>() + self.nnz * size_of::<u32>();
        (pattern + 2 * self.n_rows * self.width * self.dtype.n_bytes()) as f64
    }

    fn rated(&self, name: String, time: Summary, error: f64) -> Case {
        let gathered_gb_s = self.gathered_bytes() / time.median_s / 1e9;
        let compulsory_gb_s = self.compulsory_bytes() / time.median_s / 1e9;
        Case::new(name, time)
            .with("gathered_gb_s", gathered_gb_s)
            .with("gathered_of_copy", gathered_gb_s / self.copy_gb_s)
            .with("compulsory_mb", self.compulsory_bytes() / 1e6)
            .with("compulsory_of_copy", compulsory_gb_s / self.copy_gb_s)
            .with("error_millionths", error * 1e6)
    }
}

/// Times and errors with one operand.
struct Measured {
    girih: (Summary, f64),
    /// Division into blocks and rows, if there are blocks.
    split: Option<Split>,
    /// Best algorithm of the peer, with its time and error.
    peer: Option<(&'static str, Summary, f64)>,
}

impl Measured {
    fn cases(&self, name: &str, work: &Work, order: &Order) -> Vec<Case> {
        let (time, error) = self.girih;
        let mut girih = work.rated(format!("{name}/girih"), time, error).with("order_s", order.seconds);
        if let Some(split) = self.split {
            girih = girih.with("threshold_percent", 100.0 * split.threshold).with("coverage", split.coverage);
        }
        let mut cases = Vec::new();
        if let Some((algorithm, peer_time, error)) = self.peer {
            girih = girih.with("x_cusparse", peer_time.median_s / time.median_s);
            cases.push(work.rated(format!("{name}/cusparse"), peer_time, error).by(algorithm));
        }
        cases.insert(0, girih);
        cases
    }
}

#[cfg(test)]
mod tests {
    use girih_reorder::OrderKind;

    use super::*;

    #[test]
    fn the_lowest_median_is_the_fastest() {
        let result = |name: &str, seconds: &[f64]| (name.to_owned(), Summary::of(seconds));
        let results = [result("a", &[3.0, 3.0, 3.0]), result("b", &[9.0, 2.0, 2.0]), result("c", &[1.0, 4.0, 4.0])];
        assert_eq!(fastest(&results), Some(1));
        assert_eq!(fastest(&[]), None);
    }

    #[test]
    fn cases_are_told_apart_by_what_differs() {
        let suffixes = |kernels: &[BlockKernel], tilings: &[Tiling]| -> Vec<String> {
            variants(kernels, tilings).into_iter().map(|(_, _, suffix)| suffix).collect()
        };
        assert_eq!(suffixes(&[], &[Tiling::Auto]), [""]);
        assert_eq!(suffixes(&[BlockKernel::Mma], &[Tiling::Auto, Tiling::Never]), ["/auto", "/never"]);
        let kernels = [BlockKernel::Mma, BlockKernel::Paper];
        assert_eq!(suffixes(&kernels, &[Tiling::Auto]), ["/mma", "/paper"]);
        assert_eq!(
            suffixes(&kernels, &[Tiling::Auto, Tiling::Never]),
            ["/mma/auto", "/mma/never", "/paper/auto", "/paper/never"]
        );
    }

    #[test]
    fn rates_follow_from_time_and_bytes() {
        let work = Work { n_rows: 1_000_000, nnz: 100_000_000, width: 100, dtype: Dtype::Bf16, copy_gb_s: 80.0 };
        let second = Summary::of(&[1.0]);
        let split = Split { entries_min: 328, threshold: 0.02, n_blocks: 7, coverage: 0.6 };
        let measured =
            Measured { girih: (second, 1e-3), split: Some(split), peer: Some(("csr_alg2", Summary::of(&[2.0]), 0.0)) };
        let order = Order { kind: OrderKind::None, seconds: 5.0, permutation: None };
        let cases = measured.cases("w100/bf16", &work, &order);
        let [girih, peer] = &cases[..] else { panic!("two libraries") };
        assert_eq!(girih.metrics["gathered_gb_s"], 20.0);
        assert_eq!(girih.metrics["gathered_of_copy"], 0.25);
        assert_eq!(girih.metrics["compulsory_mb"], 8.000_008 + 400.0 + 400.0);
        assert_eq!(girih.metrics["x_cusparse"], 2.0);
        assert_eq!((girih.metrics["threshold_percent"], girih.metrics["coverage"]), (2.0, 0.6));
        assert_eq!((peer.name.as_str(), peer.variant.as_deref()), ("w100/bf16/cusparse", Some("csr_alg2")));
        assert_eq!(peer.metrics["gathered_gb_s"], 10.0);
    }
}

//! Settings of the caller for suites, and the operands and storage types that suites share.

use std::path::PathBuf;

use girih_comm::GpuTransport;
use girih_compute::Dtype;
use girih_graph_format::Matrix;
use girih_kernels::{BlockKernel, Tiling};
use girih_random::Key;
use girih_reorder::OrderKind;
use rayon::prelude::*;

use crate::timing::Protocol;
use crate::{Error, graphs};

/// Settings of the caller.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// SPECs of the graphs; if empty, the suite's default, which depends on `small`.
    pub graphs: Vec<String>,
    /// Whether to run quickly, on small operands.
    pub small: bool,
    /// Number of runs of each case.
    pub protocol: Protocol,
    /// Node orders, for suites that compare them; if empty, the suite's default.
    pub orders: Vec<OrderKind>,
    /// Python interpreter with the other library, to compare with.
    pub peer: Option<PathBuf>,
    /// Width of hidden layers, for suites whose published runs differ in width.
    pub hidden: Option<usize>,
    /// Number of layers, for the suite that trains deeper networks.
    pub layers: Option<usize>,
    /// Adjacency blocks that a device multiplies with tensor cores, for suites that compare them; if empty, the
    /// suite's default.
    pub tilings: Vec<Tiling>,
    /// Training runs with different seeds, for suites that measure accuracy.
    pub runs: u64,
    /// NVIDIA's kernel profiler, for the suite that uses it.
    pub ncu: Option<PathBuf>,
    /// Folder of the documents whose generated parts are updated, for the suite that has some.
    pub docs: Option<PathBuf>,
    /// Folder for timelines of devices, for the suite that records them.
    pub timelines: Option<PathBuf>,
    /// Transports between devices, for the suite that compares them; if empty, its default.
    pub transports: Vec<GpuTransport>,
    /// Names of training variants, for suites that compare many; if empty, all.
    pub ways: Vec<String>,
    /// Kernels that multiply these blocks, for suites that compare them; if empty, the fastest one of the device.
    pub kernels: Vec<BlockKernel>,
}

impl Setup {
    /// SPEC of the graph.
    #[must_use]
    pub fn graph(&self) -> &str {
        self.graph_or(graphs::DEFAULT)
    }

    /// SPEC of the graph, for a suite with its own `default`.
    pub(super) fn graph_or<'a>(&'a self, default: &'a str) -> &'a str {
        let default = if self.small { graphs::SMALL } else { default };
        self.graphs.first().map_or(default, String::as_str)
    }

    /// Node orders, for a suite with its own `default`.
    pub(super) fn orders_or<'a>(&'a self, default: &'a [OrderKind]) -> &'a [OrderKind] {
        if self.orders.is_empty() { default } else { &self.orders }
    }

    /// Transports between devices, for a suite with its own `default`.
    pub(super) fn transports_or<'a>(&'a self, default: &'a [GpuTransport]) -> &'a [GpuTransport] {
        if self.transports.is_empty() { default } else { &self.transports }
    }

    /// Requested ones of all training variants.
    ///
    /// # Errors
    /// When a requested variant does not exist.
    pub(super) fn ways_of<W>(&self, all: Vec<W>, name: impl Fn(&W) -> &str) -> Result<Vec<W>, Error> {
        if let Some(unknown) = self.ways.iter().find(|asked| !all.iter().any(|way| name(way) == *asked)) {
            let names: Vec<_> = all.iter().map(|way| format!("\n  {}", name(way))).collect();
            return Err(format!("no way to train is called {unknown:?}; these are:{}", names.concat()).into());
        }
        let is_asked_for = |way: &W| self.ways.is_empty() || self.ways.iter().any(|asked| asked == name(way));
        Ok(all.into_iter().filter(is_asked_for).collect())
    }

    /// Blocks for tensor cores, for a suite with its own `default`.
    pub(super) fn tilings_or<'a>(&'a self, default: &'a [Tiling]) -> &'a [Tiling] {
        if self.tilings.is_empty() { default } else { &self.tilings }
    }
}

/// Storage types that suites compare.
pub(super) const DTYPES: [Dtype; 2] = [Dtype::F32, Dtype::Bf16];

/// Random matrix with values in -1..1. Speeds do not depend on the values, except for zeros and denormals.
pub(super) fn random_matrix(rows: usize, cols: usize) -> Result<Matrix, Error> {
    let key = Key::new(rows as u64, cols as u32);
    let mut data = vec![0.0; rows * cols];
    data.par_chunks_mut(4096).enumerate().for_each(|(chunk, values)| {
        let mut stream = key.stream(0, (chunk as u64) << 32);
        values.fill_with(|| 2.0 * stream.unit_f32() - 1.0);
    });
    Ok(Matrix::new(rows, cols, data)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_chosen_by_name() {
        let asking =
            |ways: &[&str]| Setup { ways: ways.iter().map(|&way| way.to_owned()).collect(), ..Setup::default() };
        let of = |ways: &[&str]| asking(ways).ways_of(vec!["near", "far", "farther"], |way| way);
        assert_eq!(of(&[]).unwrap(), ["near", "far", "farther"]);
        assert_eq!(of(&["far", "near"]).unwrap(), ["near", "far"]);
        let refused = of(&["near", "fa"]).unwrap_err().to_string();
        assert!(refused.contains("\"fa\"") && refused.contains("farther"), "{refused}");
    }
}

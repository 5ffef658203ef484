//! [`Operands`]: the sparse matrices that layers multiply by, made of one list of edges.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use girih_compute::cpu::CpuSparse;
use girih_compute::{Cpu, Memory, SparseOperand};
use girih_graph_format::{Buffer, Csr, NodeId, Scales, scale_factors};
use rayon::prelude::*;

use super::kind::Kind;
#[cfg(feature = "cuda")]
use super::uploaded::Uploaded;

/// Meaning of the values of the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// There are none: every edge counts one.
    Ones,
    /// Numbers of parallel edges.
    Counts,
    /// Weights of a graph.
    Weights,
}

/// Graph that a block was sampled from, whose rows those of the block estimate.
pub struct Whole {
    /// Edges of the graph, by destination.
    pub graph: Csr,
    /// Nodes of the sources in the graph, the destinations first.
    pub nodes: Vec<NodeId>,
}

impl Whole {
    /// Number of in-neighbors of each source in the graph.
    fn degrees(&self) -> Vec<f64> {
        self.nodes.iter().map(|&node| self.graph.degree(node as usize) as f64).collect()
    }

    /// Whether the graph stores a self loop of each source.
    fn loops(&self) -> Vec<bool> {
        let has_loop = |&node: &NodeId| self.graph.row(node as usize).binary_search(&node).is_ok();
        self.nodes.par_iter().with_min_len(1 << 10).map(has_loop).collect()
    }
}

/// Edges from sources (columns) to destinations (rows), and the operands that were made of them.
///
/// Destination `v` is source `v`, so that a self loop is an entry `(v, v)`.
pub struct Operands {
    /// Entries, in memory of this process.
    csr: Csr,
    values: Values,
    /// Name of each entry: the position of its edge in the caller's order. Empty: the entry's own position.
    names: Arc<Vec<i64>>,
    /// Number of edges that the caller gave.
    pub n_edges: usize,
    /// Whether a transpose may turn out to be the matrix itself, so that looking pays.
    is_kept: bool,
    whole: Option<Whole>,
    made: Mutex<HashMap<Kind, Arc<CpuSparse>>>,
    /// Operands on GPUs.
    #[cfg(feature = "cuda")]
    pub on_gpus: Uploaded,
}

impl Operands {
    /// Operands of a matrix, `names` and meaning of its values. `is_kept` says that they serve more than one step.
    pub fn new(csr: Csr, values: Values, names: Arc<Vec<i64>>, n_edges: usize, is_kept: bool) -> Self {
        Self {
            csr,
            values,
            names,
            n_edges,
            is_kept,
            whole: None,
            made: Mutex::default(),
            #[cfg(feature = "cuda")]
            on_gpus: Uploaded::default(),
        }
    }

    /// Operands of a sampled block, with the terms of its graph where these are known.
    pub fn of_block(self, whole: Option<Whole>) -> Self {
        Self { whole, ..self }
    }

    /// Edges, by destination.
    pub fn csr(&self) -> &Csr {
        &self.csr
    }

    /// Operand of a kind, made at the first call.
    pub fn of(&self, backend: &Cpu, kind: Kind) -> Result<Arc<CpuSparse>, String> {
        let made = || self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = made().get(&kind) {
            return Ok(Arc::clone(found));
        }
        // Made outside the lock: it runs on all threads, and one that waits for them may come here for another kind.
        let operand = Arc::new(self.upload(backend, kind)?);
        Ok(Arc::clone(made().entry(kind).or_insert(operand)))
    }

    /// Operand of a kind on a backend.
    pub fn upload<B: Memory>(&self, backend: &B, kind: Kind) -> Result<B::Sparse, String> {
        let (csr, scales) = self.make(kind)?;
        let symmetric = self.is_kept && csr.is_square() && csr.is_symmetric();
        let operand = SparseOperand { csr: &csr, scales, symmetric, names: None };
        backend.upload_sparse(&operand).map_err(|error| error.to_string())
    }

    /// For each entry of the pattern, the position of its edge in the caller's order; of an added self loop of
    /// destination `v`, the number of edges plus `v`.
    pub fn edges(&self, loops: bool) -> Result<Vec<i64>, String> {
        self.check_no_parallel("edge_weight")?;
        let name = |at: usize| self.names.get(at).copied().unwrap_or(at as i64);
        if !loops {
            return Ok((0..self.csr.nnz()).map(name).collect());
        }
        let mut names = Vec::new();
        self.looped(|row, found, _| {
            names.push(found.map_or((self.n_edges + row) as i64, name));
            None
        })?;
        Ok(names)
    }

    /// Source and destination of each entry of the pattern.
    pub fn ends(&self, loops: bool) -> Result<(Vec<i64>, Vec<i64>), String> {
        let pattern = if loops { self.looped(|_, _, _| None)? } else { self.csr.clone() };
        let sources = pattern.indices().iter().map(|&source| i64::from(source)).collect();
        let of_row = |row: usize| std::iter::repeat_n(row as i64, pattern.degree(row));
        Ok((sources, (0..pattern.n_rows()).flat_map(of_row).collect()))
    }

    fn check_no_parallel(&self, what: &str) -> Result<(), String> {
        if self.values != Values::Counts {
            return Ok(());
        }
        Err(format!(
            "edges are listed repeatedly, and {what} needs each of them once: coalesce edge_index, or make a \
             girih.Graph with duplicates=\"merge\""
        ))
    }

    fn make(&self, kind: Kind) -> Result<(Csr, Scales), String> {
        let plain = |csr: Csr| (csr, Scales::default());
        match kind {
            Kind::Sum => self.counted().map(plain),
            Kind::Weights => Ok(plain(self.csr.clone())),
            Kind::Mean => {
                let csr = self.counted()?;
                let left = Some(scale_factors(&sums(&csr), -1.0));
                Ok((csr, Scales { left, right: None }))
            }
            Kind::Pattern { loops } => {
                self.check_no_parallel("attention")?;
                if loops { self.looped(|_, _, _| None).map(plain) } else { self.pattern().map(plain) }
            }
            Kind::Gcn { loops, estimated: true, .. } => self.estimated(loops),
            Kind::Gcn { loops, improved, .. } => self.normalized(loops, improved),
        }
    }

    fn pattern(&self) -> Result<Csr, String> {
        self.csr.with_values(None).map_err(|error| error.to_string())
    }

    /// Entries with their numbers of parallel edges, but without weights.
    fn counted(&self) -> Result<Csr, String> {
        if self.values == Values::Counts { Ok(self.csr.clone()) } else { self.pattern() }
    }

    /// Symmetric normalisation by the entries' own sums, as of a square matrix whose other rows are empty.
    fn normalized(&self, loops: bool, improved: bool) -> Result<(Csr, Scales), String> {
        let weighted = self.values == Values::Weights;
        let added = if weighted && improved { 2.0 } else { 1.0 };
        let csr = match (loops, self.csr.values()) {
            (false, _) => self.csr.clone(),
            (true, None) => self.looped(|_, _, _| None)?,
            (true, Some(values)) => self.looped(|_, found, is_loop| {
                let kept = found.filter(|_| weighted || !is_loop);
                Some(kept.map_or(added, |at| values[at]))
            })?,
        };
        let mut degrees = sums(&csr);
        degrees.resize(csr.n_cols(), if loops { f64::from(added) } else { 0.0 });
        let right = scale_factors(&degrees, -0.5);
        let left = right[..csr.n_rows()].to_vec();
        Ok((csr, Scales { left: Some(left), right: Some(right) }))
    }

    /// Rows that estimate those of the whole graph: each edge stands for degree over draws of its destination.
    fn estimated(&self, loops: bool) -> Result<(Csr, Scales), String> {
        let Some(whole) = &self.whole else {
            return Err("the block does not know the degrees of its graph; use normalize=\"sampled\"".to_owned());
        };
        let (drawn, of_sources) = (sums(&self.counted()?), whole.degrees());
        let each = |row: usize| (of_sources[row] / drawn[row].max(1.0)) as f32;
        let value = |row: usize, at: usize| self.csr.values().map_or(1.0, |values| values[at]) * each(row);
        let has_loop = if loops { whole.loops() } else { vec![true; of_sources.len()] };
        let csr = if loops {
            // A loop that the graph stores is drawn as any other edge; others are exact.
            self.looped_where(|row| !has_loop[row], |row, found, _| Some(found.map_or(1.0, |at| value(row, at))))?
        } else {
            let values = (0..self.csr.n_rows()).flat_map(|row| self.csr.row_range(row).map(move |at| (row, at)));
            let values: Vec<f32> = values.map(|(row, at)| value(row, at)).collect();
            self.csr.with_values(Some(values.into())).map_err(|error| error.to_string())?
        };
        let degree = |(degree, has_loop): (&f64, &bool)| degree + f64::from(u8::from(!has_loop));
        let degrees: Vec<f64> = of_sources.iter().zip(&has_loop).map(degree).collect();
        let right = scale_factors(&degrees, -0.5);
        let left = right[..csr.n_rows()].to_vec();
        Ok((csr, Scales { left: Some(left), right: Some(right) }))
    }

    /// Entries with a self loop at every destination. See [`looped_where`](Self::looped_where).
    fn looped(&self, value: impl FnMut(usize, Option<usize>, bool) -> Option<f32>) -> Result<Csr, String> {
        self.looped_where(|_| true, value)
    }

    /// Entries with a self loop at every destination that `adds` names, where it is missing. `value(row, entry,
    /// is_loop)` is called in the order of the result, without an entry for added loops; all calls or none return a value.
    fn looped_where(
        &self,
        adds: impl Fn(usize) -> bool,
        mut value: impl FnMut(usize, Option<usize>, bool) -> Option<f32>,
    ) -> Result<Csr, String> {
        let (n_rows, n_cols) = (self.csr.n_rows(), self.csr.n_cols());
        let mut indptr = Vec::with_capacity(n_rows + 1);
        let mut indices: Vec<NodeId> = Vec::with_capacity(self.csr.nnz() + n_rows);
        let mut values = Vec::new();
        indptr.push(0u64);
        for row in 0..n_rows {
            let own = row as NodeId;
            let columns = self.csr.row(row);
            let (start, place) = (self.csr.row_range(row).start, columns.partition_point(|&column| column < own));
            let is_missing = row < n_cols && columns.get(place) != Some(&own) && adds(row);
            let entry = |at: usize| (columns[at], Some(start + at), columns[at] == own);
            let added = is_missing.then_some((own, None, true));
            for (column, found, is_loop) in (0..place).map(entry).chain(added).chain((place..columns.len()).map(entry))
            {
                indices.push(column);
                values.extend(value(row, found, is_loop));
            }
            indptr.push(indices.len() as u64);
        }
        let values: Option<Buffer<f32>> = (!values.is_empty()).then(|| values.into());
        Csr::new(n_rows, n_cols, indptr, indices, values).map_err(|error| error.to_string())
    }
}

/// Sum of the values of each row.
fn sums(csr: &Csr) -> Vec<f64> {
    let sum = |row: usize| match csr.values() {
        None => csr.degree(row) as f64,
        Some(values) => values[csr.row_range(row)].iter().map(|&value| f64::from(value)).sum(),
    };
    (0..csr.n_rows()).map(sum).collect()
}

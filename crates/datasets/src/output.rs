//! [`OutputFormat`]: formats of written data sets, by the name of the output.

use std::path::Path;

use girih_graph_format::file::{
    Tensor, write_edge_list, write_matrix_market, write_metis, write_sparse_npz, write_tensors,
};

use crate::file_kind::FileKind;
use crate::{Dataset, DatasetError, Features, Labels, UNLABELLED, typed_arrays};

/// Format in which data sets are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// Girih's own folder, which holds everything.
    Folder,
    /// One `.safetensors` file, which holds everything but the name.
    Tensors,
    /// `.npz` of named arrays, which holds typed data but for the name.
    TypedNpz,
    /// `.npz` as `scipy.sparse.save_npz` writes it: the graph alone.
    SparseNpz,
    /// `.csv`, `.tsv`, `.txt` or `.edges`, also packed as `.gz`: the graph alone.
    EdgeList,
    /// `.mtx`, also packed as `.gz`: the graph alone.
    MatrixMarket,
    /// `.graph`, also packed as `.gz`: the graph alone.
    Metis,
}

impl OutputFormat {
    /// Format of an output name; a name without a known extension is a folder.
    ///
    /// # Errors
    /// When the extension belongs to a format that is only read.
    pub fn of(path: &Path) -> Result<Self, DatasetError> {
        match FileKind::of(path) {
            None if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz")) => Err(DatasetError::invalid(
                "only text is packed as .gz: .csv.gz, .tsv.gz, .txt.gz, .edges.gz, .mtx.gz or .graph.gz",
            )
            .at(path)),
            None => Ok(Self::Folder),
            Some(FileKind::Zip) => Err(DatasetError::invalid("a .zip is read only; write a .npz").at(path)),
            Some(FileKind::NTriples) => {
                Err(DatasetError::invalid("N-Triples are read only; give a name without an ending for a folder")
                    .at(path))
            }
            Some(FileKind::Tensors) => Ok(Self::Tensors),
            Some(FileKind::Npz) => Ok(Self::SparseNpz),
            Some(FileKind::EdgeList) => Ok(Self::EdgeList),
            Some(FileKind::MatrixMarket) => Ok(Self::MatrixMarket),
            Some(FileKind::Metis) => Ok(Self::Metis),
        }
    }

    /// Format for a data set: that of an output name, or for typed data in `.npz` the named arrays.
    #[must_use]
    pub fn for_data(self, dataset: &Dataset) -> Self {
        if self == Self::SparseNpz && dataset.typed.is_some() { Self::TypedNpz } else { self }
    }

    /// Name for people and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Folder => "folder",
            Self::Tensors => "safetensors",
            Self::TypedNpz => "named arrays .npz",
            Self::SparseNpz => "scipy .npz",
            Self::EdgeList => "edge list",
            Self::MatrixMarket => "Matrix Market",
            Self::Metis => "METIS graph",
        }
    }

    /// Whether the format keeps features, labels and splits.
    #[must_use]
    pub fn holds_features(self) -> bool {
        matches!(self, Self::Folder | Self::Tensors | Self::TypedNpz)
    }
}

impl Dataset {
    /// Writes the data set, or its graph alone if `format` holds no more; the output appears whole or not at all.
    ///
    /// # Errors
    /// When the format cannot hold the graph (`METIS` wants it undirected), types, compressed features, or users and
    /// items. When writing fails.
    pub fn save_as(&self, format: OutputFormat, path: &Path) -> Result<(), DatasetError> {
        self.check_writable().map_err(|e| e.at(path))?;
        if self.interactions.is_some() && format != OutputFormat::Folder {
            let message = "users and items, and what tests recommendations, are kept in a folder alone; give a name without an ending";
            return Err(DatasetError::invalid(message).at(path));
        }
        if let Some(typed) = self.typed.as_ref().filter(|_| format != OutputFormat::Folder) {
            return typed_arrays::write(self, typed, format, path).map_err(|e| e.at(path));
        }
        match format {
            OutputFormat::Folder => return self.save(path),
            OutputFormat::Tensors => {
                if matches!(self.features, Some(Features::Compressed(_))) {
                    let message = "a .safetensors file holds no compressed features; write a folder instead";
                    return Err(DatasetError::invalid(message).at(path));
                }
                write_tensors(path, self.tensors())?;
            }
            OutputFormat::TypedNpz => {
                let message = "named arrays in .npz are for data with types; write a .safetensors file";
                return Err(DatasetError::invalid(message).at(path));
            }
            OutputFormat::SparseNpz => write_sparse_npz(path, &self.graph)?,
            OutputFormat::EdgeList => write_edge_list(path, &self.graph)?,
            OutputFormat::MatrixMarket => write_matrix_market(path, &self.graph)?,
            OutputFormat::Metis => write_metis(path, &self.graph)?,
        }
        Ok(())
    }

    /// Refuses typed data with parts that no format keeps beside types.
    ///
    /// # Errors
    /// When nodes and edges have types, and there is a split of edges, users and items, or lists of triples.
    pub fn check_writable(&self) -> Result<(), DatasetError> {
        let other = self.edge_split.as_ref().map(|_| "a split of edges");
        let other = other.or(self.interactions.as_ref().map(|_| "users and items"));
        let other = other.or(self.triples.as_ref().map(|_| "lists of triples"));
        match other.filter(|_| self.typed.is_some()) {
            None => Ok(()),
            Some(other) => Err(DatasetError::invalid(format!(
                "{} has types and {other}, and no format that girih writes keeps both; read the original files instead",
                self.name
            ))),
        }
    }

    /// All arrays under the names that loading looks for; integers are signed, as `NumPy` and PyTorch index with
    /// them.
    fn tensors(&self) -> Vec<(String, Tensor<'_>)> {
        let mut tensors = Vec::new();
        let mut add = |name: &str, tensor| tensors.push((name.to_owned(), tensor));
        add("indptr", offsets(self.graph.indptr()));
        add("indices", columns(self.graph.indices()));
        if let Some(values) = self.graph.values() {
            add("values", Tensor::new::<f32>(&[values.len()], values));
        }
        match &self.features {
            None => {}
            Some(Features::Dense(rows)) => add("x", Tensor::new::<f32>(&[rows.n_rows(), rows.n_cols()], rows.data())),
            // Left out: see `Dataset::save_as`.
            Some(Features::Compressed(_)) => {}
            Some(Features::Sparse(csr)) => {
                let shape = vec![csr.n_rows() as i64, csr.n_cols() as i64];
                add("features_shape", Tensor::new::<i64>(&[2], shape));
                add("features_indptr", offsets(csr.indptr()));
                add("features_indices", columns(csr.indices()));
                if let Some(values) = csr.values() {
                    add("features_values", Tensor::new::<f32>(&[values.len()], values));
                }
            }
        }
        if let Some(labels) = &self.labels {
            add("y", label_tensor(labels));
            add("num_classes", Tensor::new::<i64>(&[1], vec![labels.n_classes() as i64]));
            if self.is_multi_label() {
                add("multi_label", Tensor::new::<i64>(&[1], vec![1]));
            }
        }
        for (part, name) in ["train_mask", "val_mask", "test_mask"].into_iter().enumerate() {
            if !self.splits.is_empty() {
                add(name, self.mask_tensor(part));
            }
        }
        tensors
    }

    /// Masks of one part, `n × splits`: a column per split set.
    fn mask_tensor(&self, part: usize) -> Tensor<'static> {
        let n_splits = self.splits.len();
        let mut mask = vec![0; self.n_nodes() * n_splits];
        for (i, split) in self.splits.iter().enumerate() {
            let (_, ids) = split.parts()[part];
            ids.iter().for_each(|&v| mask[v as usize * n_splits + i] = 1);
        }
        Tensor::bools(&[self.n_nodes(), n_splits], mask)
    }
}

fn offsets(indptr: &[u64]) -> Tensor<'static> {
    Tensor::new::<i64>(&[indptr.len()], indptr.iter().map(|&p| p as i64).collect::<Vec<_>>())
}

fn columns(indices: &[u32]) -> Tensor<'static> {
    Tensor::new::<i32>(&[indices.len()], indices.iter().map(|&c| c as i32).collect::<Vec<_>>())
}

fn label_tensor(labels: &Labels) -> Tensor<'static> {
    match labels {
        Labels::Single { classes, .. } => {
            let class = |&c: &u32| if c == UNLABELLED { -1 } else { i64::from(c) };
            Tensor::new::<i64>(&[classes.len()], classes.iter().map(class).collect::<Vec<_>>())
        }
        Labels::Multi { n_classes, targets } => {
            let bits: Vec<u8> = targets.data().iter().map(|&t| u8::from(t != 0.0)).collect();
            Tensor::new::<u8>(&[targets.n_rows(), *n_classes], bits)
        }
    }
}

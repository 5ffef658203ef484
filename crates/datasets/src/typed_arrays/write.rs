//! Writing typed data as named arrays.

use std::borrow::Cow;
use std::path::Path;

use girih_graph_format::file::{NpzWriter, Tensor, write_tensors};
use girih_graph_format::{Csr, Schema};

use super::scheme::{EDGES, full_name, relation_of};
use crate::{
    Dataset, DatasetError, Features, Labels, NameList, OutputFormat, Split, TypeFeatures, TypedData, UNLABELLED,
};

/// Values of an array; integers are signed, as `NumPy` and PyTorch index with them.
enum Values<'a> {
    Int(Vec<i64>),
    Float(Cow<'a, [f32]>),
    Byte(Cow<'a, [u8]>),
    Bool(Vec<u8>),
}

/// Arrays with names and shapes.
#[derive(Default)]
struct Arrays<'a> {
    list: Vec<(String, Vec<usize>, Values<'a>)>,
}

/// Writes typed data as `.safetensors` or `.npz`; the file appears whole or not at all.
///
/// # Errors
/// When the format keeps no types, features are compressed, names of types do not tell relations apart, or writing
/// fails.
pub(crate) fn write(
    dataset: &Dataset,
    typed: &TypedData,
    format: OutputFormat,
    path: &Path,
) -> Result<(), DatasetError> {
    match format {
        OutputFormat::Tensors => Ok(write_tensors(path, Arrays::of(dataset, typed)?.into_tensors())?),
        OutputFormat::TypedNpz | OutputFormat::SparseNpz => {
            let arrays = Arrays::of(dataset, typed)?;
            Ok(NpzWriter::write_file(path, |npz| {
                arrays.list.iter().try_for_each(|(name, shape, values)| match values {
                    Values::Int(values) => npz.array(name, shape, values),
                    Values::Float(values) => npz.array(name, shape, values),
                    Values::Byte(values) => npz.array(name, shape, values),
                    Values::Bool(values) => npz.array(name, shape, values),
                })
            })?)
        }
        _ => Err(DatasetError::invalid(format!(
            "{} has types ({}), which a file of this kind ({}) does not keep; give a name without an ending for a folder, \
             .safetensors or .npz, or --homogeneous to leave the types out",
            dataset.name,
            typed.graph.schema(),
            format.name()
        ))),
    }
}

impl<'a> Arrays<'a> {
    fn of(dataset: &'a Dataset, typed: &'a TypedData) -> Result<Self, DatasetError> {
        let schema = typed.graph.schema();
        check_names(schema)?;
        let mut arrays = Self::default();
        for (number, of) in schema.node_types().iter().enumerate() {
            let add = &mut arrays.under(&of.name);
            add.int("num_nodes", of.n_nodes);
            add.int("number", number);
            match (dataset.features_of_type(number), typed.features.get(number)) {
                (Some(features), _) => add.features(features)?,
                (None, Some(TypeFeatures::Learned(width))) => add.int("learned_width", width.unwrap_or(0)),
                (None, _) => {}
            }
            if let Some(names) = &dataset.names {
                let first = schema.first(number);
                add.names("name", &(first..first + of.n_nodes).map(|node| names.nodes.get(node)).collect());
            }
        }
        let ids = typed.target_ids();
        let add = &mut arrays.under(&schema.node_types()[typed.target].name);
        add.int("target", 1);
        if let Some(labels) = &dataset.labels {
            add.labels(&labels.row_slice(ids.clone()));
        }
        let splits: Vec<Split> = dataset.splits.iter().map(|split| split.row_slice(ids.clone())).collect();
        add.splits(&splits, ids.len());
        if let Some(names) = dataset.names.as_ref().filter(|names| !names.classes.is_empty()) {
            add.names("class_name", &names.classes.iter().map(String::as_str).collect());
        }
        for (number, relation) in typed.graph.relations().iter().enumerate() {
            let add = &mut arrays.under(&full_name(&schema.edge_parts(number).map(str::to_owned)));
            add.edges(relation);
            add.int("number", number);
            if let Some(of) = schema.edge_types()[number].reverse_of {
                add.int("reverse_of", of);
            }
        }
        Ok(arrays)
    }

    fn under(&mut self, name: &str) -> Under<'_, 'a> {
        Under { arrays: self, name: name.to_owned() }
    }

    fn into_tensors(self) -> Vec<(String, Tensor<'a>)> {
        let tensor = |(name, shape, values): (String, Vec<usize>, Values<'a>)| {
            let tensor = match values {
                Values::Int(values) => Tensor::new::<i64>(&shape, values),
                Values::Float(values) => Tensor::new::<f32>(&shape, values),
                Values::Byte(values) => Tensor::new::<u8>(&shape, values),
                Values::Bool(values) => Tensor::bools(&shape, values),
            };
            (name, tensor)
        };
        self.list.into_iter().map(tensor).collect()
    }
}

/// Refuses names of types that would not be found again in names of arrays.
fn check_names(schema: &Schema) -> Result<(), DatasetError> {
    let nodes: Vec<String> = schema.node_types().iter().map(|of| of.name.clone()).collect();
    for number in 0..schema.edge_types().len() {
        let of = schema.edge_parts(number).map(str::to_owned);
        let full = full_name(&of);
        let is_found = relation_of(&full, &nodes).is_ok_and(|found| found == of);
        if !is_found || nodes.contains(&full) {
            return Err(DatasetError::invalid(format!(
                "the name {full} of an array would not tell the types of {}; write a folder, or rename types that have __ \
                 in their names",
                schema.edge_name(number)
            )));
        }
    }
    Ok(())
}

/// Arrays whose names begin with that of a type.
struct Under<'b, 'a> {
    arrays: &'b mut Arrays<'a>,
    name: String,
}

impl<'a> Under<'_, 'a> {
    fn add(&mut self, key: &str, shape: &[usize], values: Values<'a>) {
        self.arrays.list.push((format!("{}.{key}", self.name), shape.to_vec(), values));
    }

    fn int(&mut self, key: &str, value: usize) {
        self.add(key, &[1], Values::Int(vec![value as i64]));
    }

    fn ints(&mut self, key: &str, values: impl IntoIterator<Item = i64>) {
        let values: Vec<i64> = values.into_iter().collect();
        self.add(key, &[values.len()], Values::Int(values));
    }

    fn features(&mut self, features: &'a Features) -> Result<(), DatasetError> {
        match features {
            Features::Dense(rows) => {
                self.add("x", &[rows.n_rows(), rows.n_cols()], Values::Float(rows.data().into()));
            }
            Features::Sparse(csr) => {
                self.ints("features_shape", [csr.n_rows() as i64, csr.n_cols() as i64]);
                self.ints("features_indptr", csr.indptr().iter().map(|&offset| offset as i64));
                self.ints("features_indices", csr.indices().iter().map(|&column| i64::from(column)));
                if let Some(values) = csr.values() {
                    self.add("features_values", &[values.len()], Values::Float(values.into()));
                }
            }
            Features::Compressed(_) => {
                return Err(DatasetError::invalid(format!(
                    "the features of {} are compressed, which named arrays do not keep; write a folder instead",
                    self.name
                )));
            }
        }
        Ok(())
    }

    fn names(&mut self, key: &str, names: &NameList) {
        let bytes: Vec<u8> = names.iter().flat_map(str::bytes).collect();
        let ends = names.iter().scan(0, |end, name| {
            *end += name.len() as i64;
            Some(*end)
        });
        self.ints(&format!("{key}_ends"), ends);
        self.add(&format!("{key}_bytes"), &[bytes.len()], Values::Byte(bytes.into()));
    }

    fn labels(&mut self, labels: &Labels) {
        match labels {
            Labels::Single { classes, .. } => {
                let class = |&class: &u32| if class == UNLABELLED { -1 } else { i64::from(class) };
                self.ints("y", classes.iter().map(class));
            }
            Labels::Multi { n_classes, targets } => {
                let bits: Vec<u8> = targets.data().iter().map(|&target| u8::from(target != 0.0)).collect();
                self.add("y", &[targets.n_rows(), *n_classes], Values::Byte(bits.into()));
                self.int("multi_label", 1);
            }
        }
        self.int("num_classes", labels.n_classes());
    }

    /// Adds masks of each part, `n × splits`: a column per split set.
    fn splits(&mut self, splits: &[Split], n_nodes: usize) {
        for (part, key) in ["train_mask", "val_mask", "test_mask"].into_iter().enumerate() {
            if splits.is_empty() {
                continue;
            }
            let mut mask = vec![0; n_nodes * splits.len()];
            for (i, split) in splits.iter().enumerate() {
                let (_, nodes) = split.parts()[part];
                nodes.iter().for_each(|&node| mask[node as usize * splits.len() + i] = 1);
            }
            self.add(key, &[n_nodes, splits.len()], Values::Bool(mask));
        }
    }

    fn edges(&mut self, relation: &Csr) {
        let sources = relation.indices().iter().map(|&source| i64::from(source));
        let destinations = (0..relation.n_rows()).flat_map(|row| std::iter::repeat_n(row as i64, relation.degree(row)));
        self.add(EDGES, &[2, relation.nnz()], Values::Int(sources.chain(destinations).collect()));
    }
}

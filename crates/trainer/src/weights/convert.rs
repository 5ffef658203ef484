//! [`export_weights`] and [`import_weights`]: between a checkpoint and named tensors.

use std::collections::BTreeMap;
use std::path::Path;

use girih_graph_format::Matrix;

use super::layout::{Dimension, Found, Layout, Width, shape_of};
use super::table::{Content, Entry, Library, table};
use crate::TrainError;
use crate::config::{TaskKind, TrainConfig};
use crate::engine::{Checkpoint, DataShape, PartialEpoch, Progress};

/// Named tensor of a state dict.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedWeight {
    /// Name, such as `convs.0.lin.weight`.
    pub name: String,
    /// Length of every dimension.
    pub shape: Vec<usize>,
    /// Values in C order.
    pub values: Vec<f32>,
}

/// Best parameters of a checkpoint as tensors of a library, in the order of its modules. Before the first evaluation,
/// the current parameters.
///
/// # Errors
/// When the model or one of its settings has no counterpart in the library, or the checkpoint lacks a parameter.
pub fn export_weights(checkpoint: &Checkpoint, library: Library) -> Result<Vec<NamedWeight>, TrainError> {
    let params = if checkpoint.best_params.is_empty() { &checkpoint.params } else { &checkpoint.best_params };
    let entries = table(&checkpoint.progress.config, library).map_err(|what| checkpoint.refused(what))?;
    let mut found = Found::default();
    for entry in &entries {
        if let Content::Param { param, rows, cols, .. } = &entry.content {
            let matrix = params.get(param).ok_or_else(|| {
                checkpoint
                    .refused(format!("there is no `{param}`: the parameters belong to another model than the settings"))
            })?;
            let (expected, sizes) = ([Dimension(*rows), Dimension(*cols)], [matrix.n_rows(), matrix.n_cols()]);
            if !found.take(&expected, &sizes) {
                let expected = found.show(&expected);
                return Err(
                    checkpoint.refused(format!("`{param}` has the shape {sizes:?}; its settings say {expected}"))
                );
            }
        }
    }
    if let Some(extra) = params.keys().find(|name| !entries.iter().any(|entry| entry.holds(name))) {
        return Err(checkpoint.refused(format!("`{extra}` has no counterpart among the tensors of {library}")));
    }
    let mut weights: Vec<NamedWeight> = Vec::with_capacity(entries.len());
    for entry in &entries {
        weights.push(exported(entry, params, found, &weights));
    }
    Ok(weights)
}

impl Entry {
    /// Whether the tensor holds this parameter.
    fn holds(&self, name: &str) -> bool {
        matches!(&self.content, Content::Param { param, .. } if param == name)
    }

    /// Shape of the tensor.
    fn shape(&self) -> Vec<Dimension> {
        match &self.content {
            Content::Param { rows, cols, form, .. } => shape_of(*form, *rows, *cols),
            Content::Fixed { len, .. } | Content::Negative { len, .. } => vec![Dimension(*len)],
        }
    }

    /// Layout of the parameter, with all sizes known.
    fn layout(&self, found: Found) -> Option<Layout> {
        let Content::Param { rows, cols, form, .. } = &self.content else { return None };
        Some(Layout::new(*form, found.parts(*rows), found.parts(*cols)))
    }
}

impl Found {
    /// Heads and columns of a head.
    fn parts(self, width: Width) -> (usize, usize) {
        (width.heads, self.extent(width.each).expect("all sizes are known"))
    }

    /// Lengths of all dimensions.
    fn lengths(self, shape: &[Dimension]) -> Vec<usize> {
        shape.iter().map(|dimension| self.parts(dimension.0)).map(|(heads, each)| heads * each).collect()
    }
}

/// Tensor of an entry of the table. `before`: tensors of the entries before it.
fn exported(entry: &Entry, params: &BTreeMap<String, Matrix>, found: Found, before: &[NamedWeight]) -> NamedWeight {
    let shape = found.lengths(&entry.shape());
    let values = match (&entry.content, entry.layout(found)) {
        (Content::Param { param, .. }, Some(layout)) => layout.tensor(params[param].data()),
        (Content::Negative { of, .. }, _) => {
            let other = before.iter().find(|weight| weight.name == *of).expect("the table has it before");
            other.values.iter().map(|value| -value).collect()
        }
        (Content::Fixed { value, .. }, _) => vec![*value; shape.iter().product()],
        (Content::Param { .. }, None) => unreachable!("a parameter has a layout"),
    };
    NamedWeight { name: entry.name.clone(), shape, values }
}

/// Checkpoint at the start of a run of `config` with the given tensors of a library as parameters. `file` is named by
/// errors. Numbers of features, classes and nodes follow from the tensors; `data` is what the model will be applied to,
/// if known, and then a run can continue on it. `multi_label`: whether a node may have several labels, if `data` is not
/// known.
///
/// # Errors
/// When a tensor is missing, left over, of another shape or not finite, or does not fit `data`; when the configuration
/// is invalid or has no counterpart in the library.
pub fn import_weights(
    file: &Path,
    (weights, library): (Vec<NamedWeight>, Library),
    config: TrainConfig,
    (data, multi_label): (Option<DataShape>, bool),
) -> Result<Checkpoint, TrainError> {
    let refused = |what: String| TrainError::checkpoint(file, what);
    config.validate()?;
    let entries = table(&config, library).map_err(refused)?;
    let mut weights: BTreeMap<String, NamedWeight> = weights.into_iter().map(|w| (w.name.clone(), w)).collect();
    let model = described(&config);
    if let Some(extra) = weights.keys().find(|name| !entries.iter().any(|entry| entry.name == **name)) {
        return Err(refused(extra_tensor(extra, &entries, &config)));
    }
    let mut found = Found::default();
    for entry in &entries {
        let weight = weights.get(&entry.name).ok_or_else(|| {
            refused(format!(
                "there is no tensor `{}`, which {model} has: {}",
                entry.name, "give the state dict of this model, or --model and --layers of the model in the file"
            ))
        })?;
        check(entry, weight, &mut found, (&model, library)).map_err(refused)?;
        check_numbers(entry, weight, &weights).map_err(refused)?;
    }
    let mut params = BTreeMap::new();
    for entry in entries {
        let weight = weights.remove(&entry.name).expect("checked");
        if let (Some(layout), Content::Param { param, .. }) = (entry.layout(found), &entry.content) {
            let (n_rows, n_cols) = layout.sizes();
            params.insert(param.clone(), Matrix::new(n_rows, n_cols, layout.matrix(&weight.values))?);
        }
    }
    let data = data_shape(file, &config, found, (data, multi_label)).map_err(refused)?;
    let zeros = |matrix: &Matrix| Matrix::new(matrix.n_rows(), matrix.n_cols(), vec![0.0; matrix.data().len()]);
    let moments = params.iter().map(|(name, matrix)| Ok((name.clone(), (zeros(matrix)?, zeros(matrix)?))));
    Ok(Checkpoint {
        moments: moments.collect::<Result<_, TrainError>>()?,
        progress: Progress {
            version: crate::engine::CHECKPOINT_VERSION,
            config,
            data,
            run: 0,
            epoch: 0,
            partial: PartialEpoch::default(),
            n_steps: 0,
            finished: false,
            best: None,
            last: None,
            train_loss: 0.0,
            arrangement: None,
        },
        params,
        best_params: BTreeMap::new(),
        file: None,
    })
}

/// Model and sizes, as messages name them.
fn described(config: &TrainConfig) -> String {
    let model = &config.model;
    let layers = if model.layers == 1 { "1 layer".to_owned() } else { format!("{} layers", model.layers) };
    format!("{} with {layers}", model.name())
}

/// Message about a tensor that the model lacks.
fn extra_tensor(name: &str, entries: &[Entry], config: &TrainConfig) -> String {
    let model = described(config);
    let in_lists = name.split('.').nth(1).and_then(|number| number.parse::<usize>().ok());
    let known_list =
        name.split('.').next().is_some_and(|list| entries.iter().any(|e| e.name.split('.').next() == Some(list)));
    match in_lists.filter(|&layer| known_list && layer >= config.model.layers && layer < 1000) {
        Some(layer) => format!(
            "tensor `{name}` is of layer {layer}, counted from 0, and {model} ends before: give --layers {}",
            layer + 1
        ),
        None => format!(
            "{model} has no tensor `{name}`: give the --model of the file; state dicts of other modules, and layers with other \
             options (edge features, residuals, normalisation), have no counterpart"
        ),
    }
}

/// Compares the shape of a tensor with its entry, and learns sizes from it.
fn check(
    entry: &Entry,
    weight: &NamedWeight,
    found: &mut Found,
    (model, library): (&str, Library),
) -> Result<(), String> {
    let (name, shape) = (&entry.name, entry.shape());
    if !found.take(&shape, &weight.shape) {
        let expected = found.show(&shape);
        let mut turned = weight.shape.clone();
        turned.reverse();
        let remedy = if shape.len() == 2 && found.clone().take(&shape, &turned) {
            format!("it is transposed: save it as {library} has it")
        } else {
            "give --hidden, --layers, --heads and --out-heads of the model in the file".to_owned()
        };
        return Err(format!("tensor `{name}` has the shape {:?}; {model} expects {expected}: {remedy}", weight.shape));
    }
    Ok(())
}

/// Checks the numbers of a tensor of the right shape.
fn check_numbers(entry: &Entry, weight: &NamedWeight, all: &BTreeMap<String, NamedWeight>) -> Result<(), String> {
    let name = &entry.name;
    if let Some(at) = weight.values.iter().position(|value| !value.is_finite()) {
        return Err(format!(
            "tensor `{name}`: value {at} is {}: weights have to be finite; train again with a lower learning rate",
            weight.values[at]
        ));
    }
    let (expected, why) = match &entry.content {
        Content::Param { .. } => return Ok(()),
        Content::Fixed { value, why, .. } => (vec![*value; weight.values.len()], why),
        Content::Negative { of, why, .. } => (all[of].values.iter().map(|value| 0.0 - value).collect(), why),
    };
    match weight.values.iter().zip(expected).enumerate().find(|(_, (found, expected))| (*found - expected).abs() > 1e-6)
    {
        Some((at, (found, expected))) => {
            Err(format!("tensor `{name}`: value {at} is {found}, and girih has {expected} there: {why}"))
        }
        None => Ok(()),
    }
}

/// Data that the checkpoint names.
fn data_shape(
    file: &Path,
    config: &TrainConfig,
    found: Found,
    (data, multi_label): (Option<DataShape>, bool),
) -> Result<DataShape, String> {
    let (features, outputs) = (found.features.unwrap_or(0), found.classes.unwrap_or(0));
    if config.task == TaskKind::Links && outputs != config.links.width {
        return Err(format!(
            "embeddings of {outputs} columns, and `links.width` is {}: set it to {outputs} in --config",
            config.links.width
        ));
    }
    let name = file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let n_classes = if config.task == TaskKind::Links { 0 } else { outputs };
    let Some(data) = data else {
        if let Some(n_nodes) = found.nodes {
            return Err(format!(
                "embeddings of {n_nodes} users and items: give their --data, which says how many are users"
            ));
        }
        let (n_nodes, n_edges, n_users, fingerprints) = (0, 0, None, Vec::new());
        return Ok(DataShape {
            name,
            n_nodes,
            n_edges,
            n_features: features,
            n_classes,
            multi_label,
            n_users,
            node_types: Vec::new(),
            edge_types: Vec::new(),
            fingerprints,
        });
    };
    let differs = |what: &str, of_file: usize, of_data: usize| {
        Err(format!(
            "the weights are for {of_file} {what}, and {} has {of_data}: give the --data they were trained on",
            data.name
        ))
    };
    if let Some(n_nodes) = found.nodes {
        return if n_nodes == data.n_nodes { Ok(data) } else { differs("users and items", n_nodes, data.n_nodes) };
    }
    if features != data.n_features {
        return differs("features", features, data.n_features);
    }
    let too_many = if data.multi_label { n_classes != data.n_classes } else { data.n_classes > n_classes };
    if config.task == TaskKind::Nodes && data.n_classes > 0 && too_many {
        return differs("classes", n_classes, data.n_classes);
    }
    let n_classes = if config.task == TaskKind::Links { data.n_classes } else { n_classes };
    let multi_label = data.multi_label || (data.n_classes == 0 && multi_label);
    Ok(DataShape { n_classes, multi_label, ..data })
}

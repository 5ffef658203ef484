//! [`similarity`]: effect of compressed features on every layer of a network.
//!
//! The report follows Ma et al. (Computer Systems & Applications 33(1), 2024, table 2), for two sets of parameters:
//! the initial ones of a run, and its best. Both passes use the same parameters and differ only in the features.

use girih_compress::{CodecSpec, CompressedFeatures, mean_cosine};
use girih_compute::Backend;
use girih_datasets::{Dataset, Features};
use girih_graph_format::{Csr, Matrix};

use crate::TrainError;
use crate::config::TaskKind;
use crate::data::{check_features, check_untyped};
use crate::engine::{Checkpoint, ModelSource, RunState};
use crate::layers::Inputs;
use crate::minibatch;
use crate::models::{InputSpec, Model, Propagation};
use crate::tape::{Mode, Params, Pool, Tape};
use crate::tasks::links::LinkSplit;

/// Mean cosine over nodes between rows of two passes: one with the raw features, one with their decoded codes. Two
/// zero rows have cosine one; a zero row and a non-zero row have cosine zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Similarity {
    /// Codec of the codes.
    pub codec: CodecSpec,
    /// Mean cosine of the features.
    pub inputs: f64,
    /// Mean cosine of each layer's output, from the input layer on, for the initial parameters of the run.
    pub initial: Vec<f64>,
    /// Mean cosine of each layer's output, from the input layer on, for the best parameters of the run.
    pub trained: Vec<f64>,
}

/// Compares the layers of a checkpoint's network on the features of a data set, and on their codes by `codec`. `None`
/// takes the codec of the training.
///
/// Layers are those that the model names ([`Tape::mark_layer`]), and its output. Passes read the whole graph,
/// whatever the batches of the training, and use no dropout.
///
/// # Errors
/// When data set and checkpoint do not fit each other, no codec is known, the features are already compressed, or the
/// backend fails.
pub fn similarity<B: Backend>(
    backend: &B,
    dataset: Dataset,
    checkpoint: &Checkpoint,
    codec: Option<CodecSpec>,
) -> Result<Similarity, TrainError> {
    let config = &checkpoint.progress.config;
    checkpoint.check_built_by::<B>(&config.model)?;
    let codec = codec.or(config.codec).ok_or_else(|| {
        TrainError::invalid("the model was trained without a codec: name one to compare with, such as --codec topk:8")
    })?;
    if let Some(rule) = config.features_from {
        return Err(TrainError::invalid(format!(
            "the model was trained with features from {rule}, which no codec compresses; compare a model that was trained on \
             features of the data"
        )));
    }
    let mut dataset = dataset.with_features_from(None)?;
    let links = config.task == TaskKind::Links;
    let (trained_on, found) = (&checkpoint.progress.data, dataset.outline());
    let fits = if links { trained_on.check_features(&found) } else { trained_on.check_widths(&found) };
    fits.map_err(|what| checkpoint.refused(what))?;
    let mut source = ModelSource::new(&config.model, config, &found)?;
    if !links {
        source.dims.n_classes = trained_on.n_classes;
    }
    check_untyped(&dataset.outline(), "a comparison of features with their codes")?;
    check_features(&dataset.outline())?;
    let features = dataset.features.take().expect("checked");
    if matches!(features, Features::Compressed(_)) {
        return Err(TrainError::invalid(format!(
            "the features of {} are compressed already; give them as they were, to compare them with their codes",
            dataset.name
        )));
    }
    let graph = if links { LinkSplit::new(&config.links, config.seed).messages(&dataset.graph) } else { dataset.graph };

    let encoded = CompressedFeatures::fitted(codec, features.rows(), config.seed)?;
    let inputs = mean_cosine(features.rows(), &encoded)?;
    let (model, params) = source.build(backend, checkpoint.progress.run, None)?;
    let input_spec = of_raw_features(&model.input_spec());
    let prepare =
        |graph: Csr, features: Features| Inputs::prepare(backend, graph, features, &input_spec, config.precision);
    let both = [prepare(graph.clone(), features)?, prepare(graph, Features::Compressed(encoded))?];

    let mut state = RunState::new(backend, config, &config.optimizer, params, checkpoint.progress.run)?;
    let initial = compare(backend, &*model, &state.params, &both)?;
    state.restore(checkpoint)?;
    state.restore_best()?;
    let trained = compare(backend, &*model, &state.params, &both)?;
    Ok(Similarity { codec, inputs, initial, trained })
}

/// Raw features, so that both passes compute alike. Models that read only aggregated features keep these.
fn of_raw_features(input_spec: &InputSpec) -> InputSpec {
    if input_spec.propagation == Propagation::Always { input_spec.clone() } else { minibatch::raw(input_spec) }
}

/// Mean cosine of each layer between two passes.
fn compare<B: Backend>(
    backend: &B,
    model: &dyn Model<B>,
    params: &Params<B>,
    [a, b]: &[Inputs<B>; 2],
) -> Result<Vec<f64>, TrainError> {
    let (a, b) = (layers(backend, model, params, a)?, layers(backend, model, params, b)?);
    a.iter().zip(&b).map(|(a, b)| Ok(mean_cosine(a, b)?)).collect()
}

/// Output of each layer, on the host.
fn layers<B: Backend>(
    backend: &B,
    model: &dyn Model<B>,
    params: &Params<B>,
    inputs: &Inputs<B>,
) -> Result<Vec<Matrix>, TrainError> {
    let mut pool = Pool::default();
    let mut tape = Tape::new(backend, params, &mut pool, Mode::Evaluate);
    let output = model.forward(&mut tape, inputs)?;
    let hidden = tape.layers().iter().copied().filter(|&layer| layer != output);
    let all: Vec<_> = hidden.chain([output]).collect();
    all.into_iter().map(|layer| Ok(backend.download(tape.value(layer))?)).collect()
}

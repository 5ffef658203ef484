//! [`similarity`]: what compressing features changes in every layer of a network.
//!
//! The report is that of Ma et al. (Computer Systems & Applications 33(1), 2024, table 2), for two sets of parameters:
//! the first ones of a run, and its best. Both passes have the same parameters; only the features differ.

use girih_compress::{CodecSpec, CompressedFeatures, mean_cosine};
use girih_compute::Backend;
use girih_datasets::{Dataset, Features};
use girih_graph_format::{Csr, Matrix};

use crate::TrainError;
use crate::checkpoint::Checkpoint;
use crate::config::TaskKind;
use crate::inputs::{InputSpec, Inputs, Propagation};
use crate::links::LinkSplit;
use crate::models::{Dims, Model};
use crate::params::Params;
use crate::sampled;
use crate::session::{build_model, check_features};
use crate::state::RunState;
use crate::tape::{Mode, Pool, Tape};

/// Cosines between rows of two passes, one over features as they are and one over what their codes decode to: means
/// over nodes, where two rows of zeros have the cosine one, and a row of zeros and another one zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Similarity {
    /// The codec.
    pub codec: CodecSpec,
    /// Of the features.
    pub inputs: f64,
    /// Of what each layer leaves, that at the inputs first, with the first parameters of the run.
    pub initial: Vec<f64>,
    /// The same with the best parameters of the run.
    pub trained: Vec<f64>,
}

/// Compares the layers of the network of a checkpoint on the features of a data set, and on these compressed by
/// `codec`: `None` for the one that the network was trained with.
///
/// Layers are those that a model names ([`Tape::mark_layer`]) and its output; the graph is whole, whatever batches it
/// was trained on, and nothing is dropped out.
///
/// # Errors
/// When data set and checkpoint do not fit each other, no codec is named, the features are compressed already, or the
/// backend fails.
pub fn similarity<B: Backend>(
    backend: &B,
    dataset: Dataset,
    checkpoint: &Checkpoint,
    codec: Option<CodecSpec>,
) -> Result<Similarity, TrainError> {
    let config = &checkpoint.progress.config;
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
    let of_dataset = Dims::of(&dataset);
    let dims = Dims { n_classes: if links { config.links.width } else { trained_on.n_classes }, ..of_dataset };
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
    let (model, params) = build_model(backend, config, dims, checkpoint.progress.run, None)?;
    let needs = of_raw_features(&model.input_spec());
    let prepare = |graph: Csr, features: Features| Inputs::prepare(backend, graph, features, &needs, config.precision);
    let both = [prepare(graph.clone(), features)?, prepare(graph, Features::Compressed(encoded))?];

    let mut state = RunState::new(backend, config, &config.optimizer, params, checkpoint.progress.run)?;
    let initial = compare(backend, &*model, &state.params, &both)?;
    state.restore(checkpoint)?;
    state.restore_best()?;
    let trained = compare(backend, &*model, &state.params, &both)?;
    Ok(Similarity { codec, inputs, initial, trained })
}

/// Features as they are, so that both passes compute alike; models that look at aggregated ones alone get those.
fn of_raw_features(needs: &InputSpec) -> InputSpec {
    if needs.propagation == Propagation::Always { *needs } else { sampled::raw(needs) }
}

/// The mean cosines of the layers of two passes.
fn compare<B: Backend>(
    backend: &B,
    model: &dyn Model<B>,
    params: &Params<B>,
    [a, b]: &[Inputs<B>; 2],
) -> Result<Vec<f64>, TrainError> {
    let (a, b) = (layers(backend, model, params, a)?, layers(backend, model, params, b)?);
    a.iter().zip(&b).map(|(a, b)| Ok(mean_cosine(a, b)?)).collect()
}

/// What each layer leaves, on the host.
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

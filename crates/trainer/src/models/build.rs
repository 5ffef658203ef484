//! [`BuildModel`]: a builder of models, of girih or from outside; [`BuildSampler`]: one of their samplers.

use girih_compute::{Backend, ComputeError};
use girih_graph_format::Csr;
use girih_sampling::{FanOut, NeighborOptions, SampleError, Sampler};

use super::appnp::Appnp;
use super::embedding::Embedding;
use super::gat::{Gat, Gatv2};
use super::gcn::Gcn;
use super::gin::Gin;
use super::gine::Gine;
use super::hgt::Hgt;
use super::lightgcn::LightGcn;
use super::mlp::Mlp;
use super::ngcn::Ngcn;
use super::rgat::Rgat;
use super::rgcn::Rgcn;
use super::sage::Sage;
use super::sgc::Sgc;
use super::spec::Model;
use crate::config::{ModelConfig, ModelKind};
use crate::layers::Dims;
use crate::tape::ParamInit;

/// Builder of a model: sizes and initial parameters in, a [`Model`] out.
///
/// [`ModelConfig`] builds the models of girih. A type of your own builds a model of your own, which
/// [`train_model`](crate::train_model) trains as any other:
/// ```
/// use girih_compute::{Backend, ComputeError, Cpu};
/// use girih_datasets::{LoadOptions, load};
/// use girih_graph_format::Norm;
/// use girih_trainer::models::BuildModel;
/// use girih_trainer::{
///     Adjacency, AggregateOptions, Control, Dims, InputSpec, Inputs, Linear, LinearOptions, Model, ModelConfig,
///     ParamInit, Rows, SessionOptions, Tape, TrainConfig, Var, train_model,
/// };
///
/// /// Logits `Â·(X·W + b)`.
/// struct OneHop(Linear);
///
/// impl<B: Backend> Model<B> for OneHop {
///     fn input_spec(&self) -> InputSpec {
///         InputSpec::of_raw_features(Some(Adjacency::new(true, Norm::Symmetric)))
///     }
///
///     fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
///         let features = Rows::raw_input(tape, inputs)?;
///         let transformed = self.0.forward(tape, &features, LinearOptions::default())?;
///         tape.aggregate(inputs.graph(0), transformed, AggregateOptions::default())
///     }
/// }
///
/// struct BuildOneHop;
///
/// impl<B: Backend> BuildModel<B> for BuildOneHop {
///     fn config(&self) -> ModelConfig {
///         ModelConfig { layers: 1, ..ModelConfig::from_outside("one-hop", ()) }
///     }
///
///     fn build(&self, dims: Dims, init: &mut ParamInit<'_, B>) -> Result<Box<dyn Model<B>>, ComputeError> {
///         Ok(Box::new(OneHop(Linear::new(init, 0, dims.n_features, dims.n_classes)?)))
///     }
/// }
///
/// let dataset = load("synth:planted,nodes=200,features=8,classes=2", &LoadOptions::default())?;
/// let (config, options) = (TrainConfig { epochs: 20, ..TrainConfig::default() }, SessionOptions::default());
/// let observe = &mut |_: girih_trainer::Event<'_>| Control::Continue;
/// let outcome = train_model(&Cpu::new(), dataset, &BuildOneHop, &config, &options, observe)?;
/// assert!(outcome.runs[0].best.val_accuracy.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait BuildModel<B: Backend>: Sync {
    /// Settings of the model, which checkpoints record. A model from outside has a name and settings of its own
    /// ([`ModelConfig::own`]); a checkpoint is refused by a builder with others. Mini-batches also read:
    ///
    /// - [`layers`](ModelConfig::layers), the number of graphs that a forward pass asks for with
    ///   [`Inputs::graph`](crate::Inputs::graph): as many blocks are sampled.
    /// - [`input_dropout`](ModelConfig::input_dropout): if it is zero and [`InputSpec::hops`](crate::InputSpec::hops)
    ///   is not, the first aggregation reads features in place. The forward pass may not mask them then.
    fn config(&self) -> ModelConfig;

    /// A model with newly initialised parameters. It is called for each run, and for input specs.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn build(&self, dims: Dims, init: &mut ParamInit<'_, B>) -> Result<Box<dyn Model<B>>, ComputeError>;

    /// Builder of a sampler of its own for neighbor batches; `None`, unless a model from outside has one.
    ///
    /// Its settings belong to those of [`config`](Self::config), so that checkpoints know them. The host then samples,
    /// on a GPU, too. Training refuses other batches than [`BatchKind::Neighbor`](crate::BatchKind::Neighbor), links,
    /// and ranks that do not have all data. Full batches and scores read the whole graph.
    fn sampler(&self) -> Option<&dyn BuildSampler> {
        None
    }
}

/// Builder of a sampler from outside. The package `examples/own-sampler` of the repository has one.
pub trait BuildSampler: Sync {
    /// A sampler for the batches of a run.
    ///
    /// # Errors
    /// When the sampler does not fit the graph.
    fn build_sampler(&self, draws: &BlockDraws<'_>) -> Result<Box<dyn Sampler>, SampleError>;
}

/// Blocks that a model asks of a sampler, a block for each layer. A
/// [`NeighborSampler`](girih_sampling::NeighborSampler) of this fan-out and these options draws them.
#[derive(Clone, Debug)]
pub struct BlockDraws<'g> {
    /// Graph that is sampled: that of training, without self loops if the model adds them.
    pub graph: &'g Csr,
    /// Number of neighbors in each hop; there is a hop for each layer.
    pub fan_out: FanOut,
    /// Options of the session. Blocks must have edge ids if [`edge_ids`](NeighborOptions::edge_ids) is set; their columns
    /// may be local whatever [`inputs`](NeighborOptions::inputs) says.
    pub options: NeighborOptions,
}

impl<B: Backend> BuildModel<B> for ModelConfig {
    /// This configuration without the name of a model from outside, since a model of girih is built.
    fn config(&self) -> ModelConfig {
        Self { own: None, ..self.clone() }
    }

    fn build(&self, dims: Dims, init: &mut ParamInit<'_, B>) -> Result<Box<dyn Model<B>>, ComputeError> {
        Ok(match self.kind {
            ModelKind::Gcn => Box::new(Gcn::new(self, &dims, init)?),
            ModelKind::Sgc => Box::new(Sgc::new(self, &dims, init)?),
            ModelKind::Sage => Box::new(Sage::new(self, &dims, init)?),
            ModelKind::Gat => Box::new(Gat::new(self, &dims, init)?),
            ModelKind::Gatv2 => Box::new(Gatv2::new(self, &dims, init)?),
            ModelKind::Gin => Box::new(Gin::new(self, &dims, init)?),
            ModelKind::Gine => Box::new(Gine::new(self, &dims, init)?),
            ModelKind::Ngcn => Box::new(Ngcn::new(self, &dims, init)?),
            ModelKind::Appnp => Box::new(Appnp::new(self, &dims, init)?),
            ModelKind::Mlp => Box::new(Mlp::new(self, &dims, init)?),
            ModelKind::Rgcn | ModelKind::Hsage => Box::new(Rgcn::new(self, &dims, init)?),
            ModelKind::Rgat => Box::new(Rgat::new(self, &dims, init)?),
            ModelKind::Hgt => Box::new(Hgt::new(self, &dims, init)?),
            ModelKind::Embedding => Box::new(Embedding::new(&dims, init)?),
            ModelKind::LightGcn => Box::new(LightGcn::new(self, dims.n_nodes, init)?),
        })
    }
}

//! A model from outside the crate: a struct of layers and two functions.

use girih_compute::{Activation, Backend, ComputeError, Cpu};
use girih_graph_format::Norm;
use girih_trainer::{
    Adjacency, Dims, FullBatch, GraphConv, InputSpec, Inputs, Linear, LinearOptions, Masks, Model, ParamInit,
    Propagation, Rows, Run, Tape, Var,
};

use crate::{ModelKind, Stage, config, planted, train_epochs};

/// Convolution with a skip connection: `relu(Â·X·V)·W + X·U + b`.
struct Skip {
    convolution: GraphConv,
    last: Linear,
    around: Linear,
}

impl Skip {
    fn new<B: Backend>(dims: &Dims, hidden: usize, init: &mut ParamInit<'_, B>) -> Result<Self, ComputeError> {
        Ok(Self {
            convolution: GraphConv::new(init, 0, dims.n_features, hidden)?,
            last: Linear::new(init, 1, hidden, dims.n_classes)?,
            around: Linear::part(init, 1, "around", (dims.n_features, dims.n_classes), 1)?,
        })
    }
}

impl<B: Backend> Model<B> for Skip {
    fn input_spec(&self) -> InputSpec {
        let graph = Some(Adjacency::new(true, Norm::Symmetric));
        InputSpec {
            graph,
            hops: 1,
            raw_features: true,
            propagation: Propagation::WhenDense,
            relations: None,
            edges: false,
        }
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        let (aggregated, raw) = (Rows::aggregated_input(tape, inputs)?, Rows::raw_input(tape, inputs)?);
        let hidden =
            self.convolution.forward(tape, inputs.graph(0), &aggregated, Masks::default(), Activation::Relu)?;
        let add = Some(self.around.forward(tape, &raw, LinearOptions::default())?);
        self.last.forward(tape, &Rows::Dense(hidden), LinearOptions { add, ..LinearOptions::default() })
    }
}

#[test]
fn a_model_of_a_user_trains() {
    let config = config(ModelKind::Gcn, 60);
    let cpu = Cpu::new();
    let mut init = ParamInit::new(&cpu, config.seed, 0);
    let dataset = planted("nodes=1500");
    let model = Skip::new(&crate::dims(&dataset), 16, &mut init).unwrap();
    let params = init.finish();
    let stage = Stage::with_needs(dataset, &config, &Model::<Cpu>::input_spec(&model));
    let mut run = FullBatch::new(&stage.cpu, &stage.inputs, stage.task(), &config, Box::new(model), params, 0).unwrap();
    let losses = train_epochs(&mut run, 60);
    assert!(losses[59] < 0.5 * losses[0], "{losses:?}");
    let val_accuracy = run.state().summary().unwrap().best.val_accuracy.unwrap();
    assert!(val_accuracy > 0.6, "{val_accuracy}");
}

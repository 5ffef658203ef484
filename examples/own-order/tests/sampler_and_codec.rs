//! A sampler and a codec from outside, where the traits of girih take them. README.md says where they do not.

use std::collections::{HashMap, HashSet};

use girih_compress::{CodecSpec, CompressedFeatures, FeatureCodec, Refused};
use girih_compute::prelude::*;
use girih_compute::{Cpu, Dtype, SparseOperand};
use girih_datasets::{Dataset, Features, LoadOptions, load};
use girih_graph_format::{Csr, Matrix, Norm};
use girih_random::Key;
use girih_sampling::{
    Block, DrawKey, LoaderOptions, MiniBatch, NodeId, SampleError, Sampler, SeedLoader, Subgraph, SubgraphSampler,
};
use girih_trainer::{
    BlockGraph, BuildModel, Control, Dims, FeatureInput, Gradients, Graph, Inputs, LayerGraphs, Mode, Model,
    ModelConfig, Neighborhoods, Optimizer, ParamInit, Pool, SessionOptions, Tape, Targets, TrainConfig, train,
};

fn dataset() -> Dataset {
    load("synth:planted,nodes=400,degree=10,features=24,classes=3", &LoadOptions::default()).unwrap()
}

/// Dense rows of the features.
fn rows(dataset: &Dataset) -> Matrix {
    match dataset.features.as_ref().unwrap() {
        Features::Dense(matrix) => matrix.clone(),
        Features::Sparse(csr) => Matrix::from_sparse(csr),
        Features::Compressed(_) => unreachable!("generated features are not compressed"),
    }
}

/// The first neighbors of each node, for each layer from the input layer on.
struct FirstNeighbors(Vec<usize>);

impl Sampler for FirstNeighbors {
    fn sample_into(&self, graph: &Csr, seeds: &[NodeId], _: DrawKey, batch: &mut MiniBatch) -> Result<(), SampleError> {
        batch.blocks.clear();
        let distinct: HashSet<&NodeId> = seeds.iter().collect();
        if !graph.is_square() || distinct.len() < seeds.len() || seeds.iter().any(|&v| v as usize >= graph.n_rows()) {
            return Err(SampleError::invalid("give an adjacency, and each seed once, as a node of it"));
        }
        let mut frontier = seeds.to_vec();
        for &most in self.0.iter().rev() {
            let (mut nodes, mut indptr, mut indices) = (frontier.clone(), vec![0], Vec::new());
            let mut places: HashMap<NodeId, NodeId> = frontier.iter().copied().zip(0..).collect();
            for &node in &frontier {
                for &neighbor in graph.row(node as usize).iter().take(most) {
                    let place = *places.entry(neighbor).or_insert_with(|| {
                        nodes.push(neighbor);
                        nodes.len() as NodeId - 1
                    });
                    indices.push(place);
                }
                indptr.push(indices.len() as u64);
            }
            let (n_destinations, n_columns) = (frontier.len(), nodes.len());
            frontier.clone_from(&nodes);
            batch.blocks.insert(0, Block { nodes, n_destinations, n_columns, indptr, indices, ..Block::default() });
        }
        Ok(())
    }
}

/// Inputs of a batch: rows of `Â` for its blocks, and the features of its nodes.
fn inputs(cpu: &Cpu, neighborhoods: &Neighborhoods, features: &Matrix, batch: &MiniBatch) -> Inputs<Cpu> {
    let block = |block: &Block| {
        let rows = neighborhoods.rows(block).unwrap();
        let operand = SparseOperand { csr: &rows, scales: rows.scales(Norm::None), symmetric: false, names: None };
        let matrix = cpu.upload_sparse(&operand).unwrap();
        Graph::Block(BlockGraph { matrix, n_destinations: block.n_destinations, in_place: None, edges: None })
    };
    let values: Vec<f32> = batch.inputs().iter().flat_map(|&node| features.row(node as usize).to_vec()).collect();
    let features = Matrix::new(batch.inputs().len(), features.n_cols(), values).unwrap();
    Inputs {
        graphs: LayerGraphs::Blocks(batch.blocks.iter().map(block).collect()),
        features: Some(FeatureInput::dense(cpu.upload(&features, Dtype::F32).unwrap())),
        propagated: None,
        n_nodes: batch.inputs().len(),
        relations: None,
        ranks: None,
    }
}

/// The laws of girih's own samplers.
#[test]
fn the_sampler_keeps_the_laws_of_samplers() {
    girih_sampling::testing::check_sampler(&FirstNeighbors(vec![2, 3]));
}

/// A loop of one's own takes the loader, the rows of `Â`, the tape and the optimiser of girih.
#[test]
fn a_model_learns_on_batches_of_a_sampler_from_outside() {
    let (cpu, dataset, config) = (Cpu::new(), dataset(), TrainConfig::default());
    let (features, labels) = (rows(&dataset), dataset.labels.clone().unwrap());
    let mut init = ParamInit::new(&cpu, 0, 0);
    let settings = ModelConfig { dropout: 0.0, ..ModelConfig::default() };
    let model: Box<dyn Model<Cpu>> = settings.build(Dims::of(&dataset), &mut init).unwrap();
    let mut params = init.finish();
    let neighborhoods = Neighborhoods::new(&dataset.graph, model.input_spec().graph.unwrap()).unwrap();
    let mut optimizer = Optimizer::new(&cpu, &config.optimizer, &params).unwrap();
    let mut gradients = Gradients::new(&cpu, &params).unwrap();
    let options = LoaderOptions { batch_size: 32, ..LoaderOptions::default() };
    let seeds = dataset.splits[0].train.clone();
    let loader = SeedLoader::new(neighborhoods.graph(), FirstNeighbors(vec![4, 3]), seeds, options).unwrap();
    let mut means = Vec::new();
    for epoch in 0..20 {
        let (mut sum, mut n_batches) = (0.0, 0.0);
        for batch in loader.epoch(epoch) {
            let batch = batch.unwrap();
            let inputs = inputs(&cpu, &neighborhoods, &features, &batch);
            let targets = Targets::upload(&cpu, &labels.of_nodes(batch.seeds())).unwrap();
            let all = cpu.upload_ids(&(0..batch.seeds().len() as u32).collect::<Vec<_>>()).unwrap();
            let mut pool = Pool::default();
            let mut tape = Tape::new(&cpu, &params, &mut pool, Mode::Train(Key::new(0, epoch)));
            let logits = model.forward(&mut tape, &inputs).unwrap();
            let loss = tape.loss(logits, &targets, &all).unwrap();
            let loss = tape.backward(loss, &mut gradients).unwrap();
            let step = optimizer.begin(0.02);
            optimizer.apply((&cpu, &mut pool), step, &mut gradients, &mut params).unwrap();
            sum += cpu.download(&loss).unwrap().data()[0];
            n_batches += 1.0;
        }
        means.push(sum / n_batches);
    }
    assert!(means[19] < 0.6 * means[0], "{means:?}");
}

/// The even nodes, in every batch.
struct EvenNodes;

impl SubgraphSampler for EvenNodes {
    fn batch_nodes(&self, graph: &Csr, _: DrawKey) -> Result<Vec<NodeId>, SampleError> {
        Ok((0..graph.n_rows() as NodeId).step_by(2).collect())
    }

    fn sample_into(&self, graph: &Csr, key: DrawKey, subgraph: &mut Subgraph) -> Result<(), SampleError> {
        *subgraph = Subgraph::induced(graph, &self.batch_nodes(graph, key)?)?;
        Ok(())
    }
}

#[test]
fn a_subgraph_from_outside_has_rows_of_the_adjacency() {
    let dataset = dataset();
    let sampler: &dyn SubgraphSampler = &EvenNodes;
    let model: Box<dyn Model<Cpu>> =
        ModelConfig::default().build(Dims::of(&dataset), &mut ParamInit::new(&Cpu::new(), 0, 0)).unwrap();
    let neighborhoods = Neighborhoods::new(&dataset.graph, model.input_spec().graph.unwrap()).unwrap();
    let subgraph = sampler.sample(neighborhoods.graph(), DrawKey::new(0, 0, 0)).unwrap();
    let rows = neighborhoods.rows(&subgraph.block).unwrap();
    assert_eq!((rows.n_rows(), rows.n_cols()), (200, 200));
    assert!(rows.nnz() > 200, "self loops, and edges among even nodes");
}

/// Features in whole steps of 1/16, a byte each. In memory a codec from outside may have any name of girih.
#[derive(Debug)]
struct Steps(usize);

impl FeatureCodec for Steps {
    fn spec(&self) -> CodecSpec {
        CodecSpec::Int8
    }

    fn width(&self) -> usize {
        self.0
    }

    fn row_bytes(&self) -> usize {
        self.0
    }

    fn encode_row(&self, row: &[f32], code: &mut [u8]) -> Result<(), Refused> {
        for (column, (&value, byte)) in row.iter().zip(code).enumerate() {
            if !value.is_finite() {
                return Err(Refused { column, value, expected: "finite numbers" });
            }
            *byte = ((16.0 * value).round() as i8).to_le_bytes()[0];
        }
        Ok(())
    }

    fn decode_row(&self, code: &[u8], row: &mut [f32]) {
        row.fill(0.0);
        self.add_scaled(code, 1.0, row);
    }

    fn add_scaled(&self, code: &[u8], weight: f32, sum: &mut [f32]) {
        for (&byte, sum) in code.iter().zip(sum) {
            *sum += weight * f32::from(i8::from_le_bytes([byte])) / 16.0;
        }
    }

    fn parameters(&self) -> Vec<u8> {
        Vec::new()
    }
}

#[test]
fn a_model_learns_from_codes_of_a_codec_from_outside() {
    let dataset = dataset();
    let rows = rows(&dataset);
    let codes = CompressedFeatures::encode(Box::new(Steps(rows.n_cols())), &rows).unwrap();
    assert_eq!(codes.codes().len(), rows.n_rows() * rows.n_cols());
    let dataset = Dataset { features: Some(Features::Compressed(codes)), ..dataset };
    let model = ModelConfig { dropout: 0.0, ..ModelConfig::default() };
    let config = TrainConfig { epochs: 60, model, ..TrainConfig::default() };
    let options = SessionOptions::default();
    let outcome = train(&Cpu::new(), dataset, &config, &options, &mut |_| Control::Continue).unwrap();
    let accuracy = outcome.runs[0].best.val_accuracy.unwrap();
    assert!(accuracy > 0.6, "{accuracy}");
}

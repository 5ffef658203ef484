//! Logits of every model on the CPU equal the published formula, implemented here with plain loops.

mod attention;
mod relations;
mod typed;

use std::collections::HashMap;

use girih_compress::CodecSpec;
use girih_compute::prelude::*;
use girih_compute::{Cpu, Dtype};
use girih_datasets::{Dataset, Features, TypedData};
use girih_graph_format::{Degrees, Matrix};
use girih_trainer::models::{BuildModel, Dims};
use girih_trainer::{
    Aggregator, Inputs, Jump, Mode, Model, ModelConfig, ModelKind, NormKind, ParamInit, Pool, SelfWeight, Tape,
};

use self::relations::Typed;
use crate::bounded::{Bounded, Rows, map, plus_row, product, zip};
use crate::campaign::for_each_seed;
use crate::graphs::{Draws, SmallGraph, feature_rows, features, labels};

/// Dense adjacency of a small graph.
type Dense = Vec<Vec<Option<f64>>>;

#[test]
fn logits_are_those_of_the_published_formula() {
    let (mut n_logits, mut n_narrow, mut n_refused) = (0, 0, 0);
    for_each_seed("models", 60, |seed| {
        // The network of edges has a law of its own.
        for kind in ModelKind::ALL.into_iter().filter(|kind| !kind.needs_edge_features()) {
            // The networks of node types have laws of their own.
            let is_of_types = kind.reads_relations() && kind != ModelKind::Rgcn;
            match if is_of_types { typed::check(seed, kind) } else { check(seed, kind) } {
                Checked::Refused => n_refused += 1,
                Checked::Logits { all, narrow } => {
                    n_logits += all;
                    n_narrow += narrow;
                }
            }
        }
    });
    println!("{n_logits} logits, {n_narrow} of them within a hundredth; {n_refused} graphs refused");
    // Bounds that are always wide would accept any formula.
    assert!(n_logits < 1000 || 2 * n_narrow > n_logits, "{n_narrow} of {n_logits}");
}

/// Result of a seed.
enum Checked {
    /// The graph has no normalisation and was refused.
    Refused,
    /// Number of compared logits, and of those with a narrow tolerance.
    Logits { all: usize, narrow: usize },
}

const SELF_WEIGHTS: [SelfWeight; 4] = [SelfWeight::Shared, SelfWeight::Type, SelfWeight::Relation, SelfWeight::None];

/// Random configuration of a network.
fn config(draws: &mut Draws, kind: ModelKind) -> ModelConfig {
    let stacks = matches!(kind, ModelKind::Gcn | ModelKind::Gat | ModelKind::Gatv2 | ModelKind::Gin);
    let fewest = usize::from(kind != ModelKind::LightGcn);
    let (layers, hidden, bases) = (draws.between(fewest, 3), draws.between(1, 9), draws.below(4));
    ModelConfig {
        kind,
        layers,
        hidden,
        dropout: 0.3,
        input_dropout: Some(draws.one_of(&[0.0, 0.4])),
        aggregate_once: !draws.one_in(3),
        aggregator: draws.one_of(&[Aggregator::Mean, Aggregator::Pool, Aggregator::Lstm]),
        heads: draws.between(1, 4),
        out_heads: draws.between(1, 3),
        slope: draws.one_of(&[0.2, 0.0, 1.5]),
        hops: draws.below(4),
        teleport: draws.one_of(&[0.1, 0.5, 1.0]),
        mixing: draws.one_in(2),
        normalization: draws.one_of(&[Degrees::Default, Degrees::Absolute]),
        residual: stacks && draws.one_in(2),
        norm: if stacks { draws.one_of(&[NormKind::None, NormKind::Layer, NormKind::Batch]) } else { NormKind::None },
        bases,
        blocks: if bases == 0 { blocks(draws, kind, (layers, hidden)) } else { 0 },
        self_weight: draws.one_of(&SELF_WEIGHTS),
        jump: if stacks { draws.one_of(&[Jump::None, Jump::Concat, Jump::Max]) } else { Jump::None },
        ..ModelConfig::default()
    }
}

/// Number of blocks of a network of relations that has a layer for them, with or without features.
fn blocks(draws: &mut Draws, kind: ModelKind, (layers, hidden): (usize, usize)) -> usize {
    let reads_blocks = kind == ModelKind::Rgcn && layers == 3 || kind == ModelKind::Hsage && layers > 1;
    let divisors: Vec<usize> = (0..=hidden).filter(|&n| n == 0 || hidden % n == 0).collect();
    if reads_blocks { draws.one_of(&divisors) } else { 0 }
}

/// Elements of a weight, row by row, of which blocks are given one after the other.
fn whole_weight(blocks: &[Bounded], n: usize, inputs: usize) -> Vec<Bounded> {
    let (rows, cols) = (inputs / n, blocks.len() / inputs);
    let element = |(k, c): (usize, usize)| match (k / rows, c / cols) {
        (block, other) if block == other => blocks[block * rows * cols + k % rows * cols + c % cols],
        _ => Bounded::default(),
    };
    (0..inputs).flat_map(|k| (0..n * cols).map(move |c| (k, c))).map(element).collect()
}

/// Random data with dense, sparse or encoded features.
fn data(draws: &mut Draws, graph: &SmallGraph) -> Dataset {
    let (features, labels) = (features(draws, graph.n), labels(draws, graph.n));
    let dataset = Dataset::new("small", graph.csr.clone(), Some(features), Some(labels), Vec::new()).unwrap();
    if draws.one_in(6) { dataset.with_codec(Some(CodecSpec::Int8), 0).unwrap() } else { dataset }
}

fn check(seed: u64, kind: ModelKind) -> Checked {
    let draws = &mut Draws::new(seed, 100 + kind as u64);
    let graph = SmallGraph::new(draws);
    let (config, dataset) = (config(draws, kind), data(draws, &graph));
    let rows = feature_rows(dataset.features.as_ref().unwrap());
    let typed = Typed::new(draws, &graph);
    let has_features = kind != ModelKind::Rgcn || draws.one_in(2);
    let cpu = Cpu::new();
    let mut init = ParamInit::new(&cpu, seed, 0);
    let n_features = if has_features { dataset.n_features() } else { 0 };
    let dims = Dims { n_features, relations: typed.graph.sizes().clone(), ..Dims::of(&dataset) };
    let model: Box<dyn Model<Cpu>> = config.build(dims, &mut init).unwrap();
    let mut params = init.finish();
    let values: Vec<Matrix> = params.download(&cpu).unwrap().iter().map(|value| random_like(draws, value)).collect();
    params.write(&cpu, &values).unwrap();
    let named = params.iter().map(|(_, param)| param.name.clone()).zip(&values);
    let reference = Reference {
        config: &config,
        graph: graph.dense(),
        relations: typed.relations,
        types: typed.types,
        features: if has_features { bounded(&rows) } else { Vec::new() },
        n_classes: dataset.n_classes(),
        params: named.map(|(name, value)| (name, bounded_matrix(value))).collect(),
    };
    let features = dataset.features.unwrap();
    let inputs = match kind {
        ModelKind::LightGcn => Inputs::of_graph(&cpu, graph.csr, &model.input_spec()),
        ModelKind::Rgcn => {
            let inputs = match has_features {
                true => Inputs::prepare(&cpu, graph.csr, features, &model.input_spec(), Dtype::F32),
                false => Inputs::of_graph(&cpu, graph.csr, &model.input_spec()),
            };
            let (typed, spec) = (TypedData::of_graph(typed.graph), model.input_spec());
            inputs.map(|inputs| inputs.with_relations(&cpu, &typed, &spec, Dtype::F32).unwrap())
        }
        _ => Inputs::prepare(&cpu, graph.csr, features, &model.input_spec(), Dtype::F32),
    };
    let (expected, inputs) = match (reference.logits(), inputs) {
        (Ok(Some(expected)), Ok(inputs)) => (expected, inputs),
        (Ok(None), Err(_)) | (Err(NearlyZero), _) => return Checked::Refused,
        (Ok(Some(_)), Err(error)) => panic!("{config:?}: {error}"),
        (Ok(None), Ok(_)) => panic!("{config:?}: a graph without normalisation is taken"),
    };
    let mut pool = Pool::default();
    let mut tape = Tape::new(&cpu, &params, &mut pool, Mode::Evaluate);
    let logits = model.forward(&mut tape, &inputs).unwrap();
    compare(&config, &expected, &cpu.download(tape.value(logits)).unwrap())
}

fn compare(config: &ModelConfig, expected: &Rows, found: &Matrix) -> Checked {
    assert_eq!((found.n_rows(), found.n_cols()), (expected.len(), expected[0].len()), "{config:?}");
    let mut narrow = 0;
    for (v, row) in expected.iter().enumerate() {
        for (class, &bound) in row.iter().enumerate() {
            let logit = found.row(v)[class];
            assert!(bound.may_be(logit), "{config:?}\nnode {v}, class {class}: {logit} instead of {bound:?}");
            narrow += usize::from(bound.is_narrow());
        }
    }
    Checked::Logits { all: expected.len() * expected[0].len(), narrow }
}

/// Random values in the shape of a parameter, so that biases are not zero and gains not one.
fn random_like(draws: &mut Draws, value: &Matrix) -> Matrix {
    let values = value.data().iter().map(|_| 0.5 * draws.normal()).collect::<Vec<_>>();
    Matrix::new(value.n_rows(), value.n_cols(), values).unwrap()
}

fn bounded(rows: &[Vec<f64>]) -> Rows {
    rows.iter().map(|row| row.iter().map(|&x| Bounded::from(x)).collect()).collect()
}

fn bounded_matrix(matrix: &Matrix) -> Rows {
    (0..matrix.n_rows()).map(|r| matrix.row(r).iter().map(|&x| Bounded::from(f64::from(x))).collect()).collect()
}

/// Error: a degree is so close to zero that the summation order decides its sign.
#[derive(Debug)]
struct NearlyZero;

/// Reference implementation of a network, from its publication.
struct Reference<'a> {
    config: &'a ModelConfig,
    graph: Dense,
    /// Edges of each relation: row `v` has the in-neighbors of node `v`.
    relations: Vec<Vec<Vec<usize>>>,
    /// Type of each node.
    types: Vec<usize>,
    /// None, if the network learns rows instead.
    features: Rows,
    n_classes: usize,
    params: HashMap<String, Rows>,
}

impl Reference<'_> {
    /// Logits; `None` if the graph has no normalisation.
    fn logits(&self) -> Result<Option<Rows>, NearlyZero> {
        let symmetric = |loops: bool| self.normalized(loops, [-0.5, -0.5]);
        Ok(match self.config.kind {
            ModelKind::Gcn => symmetric(true)?.map(|a| self.stack(&|layer, x| self.gcn_layer(&a, layer, x))),
            ModelKind::Sgc => symmetric(true)?.map(|a| self.sgc(&a)),
            ModelKind::Sage => match self.config.aggregator {
                Aggregator::Mean => self.normalized(false, [-1.0, 0.0])?.map(|a| self.sage(&a)),
                Aggregator::Pool | Aggregator::Lstm => Some(self.sage(&Vec::new())),
            },
            ModelKind::Gat | ModelKind::Gatv2 => Some(self.stack(&|layer, x| self.attention_layer(layer, x))),
            ModelKind::Gin => Some(self.stack(&|layer, x| self.gin_layer(layer, x))),
            ModelKind::Ngcn => symmetric(true)?.map(|a| self.ngcn(&a)),
            ModelKind::Appnp => symmetric(true)?.map(|a| self.appnp(&a)),
            ModelKind::Mlp => Some(self.mlp()),
            ModelKind::Rgcn => Some(self.rgcn()),
            ModelKind::Hsage | ModelKind::Rgat | ModelKind::Hgt | ModelKind::Gine => {
                unreachable!("checked by themselves")
            }
            ModelKind::LightGcn => symmetric(false)?.map(|a| self.light_gcn(&a)),
            ModelKind::Embedding => Some(self.param(0, "entities").clone()),
        })
    }

    fn n(&self) -> usize {
        self.graph.len()
    }

    fn param(&self, layer: usize, name: &str) -> &Rows {
        let name = format!("layer{layer}.{name}");
        self.params.get(&name).unwrap_or_else(|| panic!("no {name} among {:?}", self.params.keys()))
    }

    /// Product `X·W` of a layer.
    fn times(&self, x: &Rows, layer: usize, name: &str) -> Rows {
        let weight = self.param(layer, name);
        product(x, weight, weight[0].len())
    }

    /// Linear part `X·W + b` of a layer.
    fn linear(&self, x: &Rows, layer: usize, suffix: &str) -> Rows {
        plus_row(self.times(x, layer, &format!("weight{suffix}")), self.param(layer, &format!("bias{suffix}")))
    }

    /// Adjacency; with `loops`, nodes without a self-loop get one of weight one.
    fn adjacency(&self, loops: bool) -> Dense {
        let mut a = self.graph.clone();
        if loops {
            (0..self.n()).for_each(|v| _ = a[v][v].get_or_insert(1.0));
        }
        a
    }

    /// Normalised adjacency `Dᵣ^p · A · D_c^q`, with the row sums and column sums.
    fn normalized(&self, loops: bool, [row, column]: [f64; 2]) -> Result<Option<Rows>, NearlyZero> {
        let (a, n) = (self.adjacency(loops), self.n());
        let entry = |v: usize, u: usize| a[v][u].unwrap_or(0.0);
        let rows: Vec<Vec<f64>> = (0..n).map(|v| (0..n).map(|u| entry(v, u)).collect()).collect();
        let columns: Vec<Vec<f64>> = (0..n).map(|u| (0..n).map(|v| entry(v, u)).collect()).collect();
        let (Some(left), Some(right)) = (self.factors(&rows, row)?, self.factors(&columns, column)?) else {
            return Ok(None);
        };
        let scaled = |v: usize, u: usize| Bounded::from(entry(v, u)).times(left[v]).times(right[u]);
        Ok(Some((0..n).map(|v| (0..n).map(|u| scaled(v, u)).collect()).collect()))
    }

    /// Powers of the degrees; zero for nodes with zero degree. `None` if a degree is negative.
    fn factors(&self, weights: &[Vec<f64>], power: f64) -> Result<Option<Vec<Bounded>>, NearlyZero> {
        let mut factors = Vec::new();
        for weights in weights {
            let absolute: f64 = weights.iter().map(|w| w.abs()).sum();
            let signed: f64 = weights.iter().sum();
            let degree = if self.config.normalization == Degrees::Absolute { absolute } else { signed };
            let factor = match power {
                0.0 => 1.0,
                _ if absolute == 0.0 => 0.0,
                _ if degree.abs() < 1e-9 * absolute => return Err(NearlyZero),
                _ if degree < 0.0 => return Ok(None),
                _ => degree.powf(power),
            };
            // Rounded to `f32`, and multiplied by one.
            factors.push(Bounded::from(factor).times(Bounded::from(1.0)));
        }
        Ok(Some(factors))
    }

    /// Kipf and Welling (2017), equation 2, without the activation.
    fn gcn_layer(&self, a: &Rows, layer: usize, x: &Rows) -> Rows {
        let transformed = self.times(x, layer, "weight");
        plus_row(product(a, &transformed, transformed[0].len()), self.param(layer, "bias"))
    }

    /// Wu et al. (2019), equation 8.
    fn sgc(&self, a: &Rows) -> Rows {
        let width = self.features[0].len();
        let x = (0..self.config.layers).fold(self.features.clone(), |x, _| product(a, &x, width));
        self.linear(&x, 0, "")
    }

    /// Xu et al. (2019), equation 4.1 with ε = 0. A self-loop of the graph replaces the node's own term.
    fn gin_layer(&self, layer: usize, x: &Rows) -> Rows {
        let a = bounded(&zeroed(&self.adjacency(true)));
        let sums = product(&a, x, x[0].len());
        let hidden = map(self.linear(&sums, layer, ""), Bounded::relu);
        self.linear(&hidden, layer, "_out")
    }

    /// Hamilton et al. (2017), algorithm 1 and section 3.3; `a` is the matrix of means.
    fn sage(&self, a: &Rows) -> Rows {
        let layers = self.config.layers;
        (0..layers).fold(self.features.clone(), |x, layer| {
            let neighbors = match self.config.aggregator {
                Aggregator::Mean => product(a, &x, x[0].len()),
                Aggregator::Pool => self.pooled(layer, &x),
                Aggregator::Lstm => self.last_states(layer, &x),
            };
            let (own, neighbors) =
                (self.times(&x, layer, "weight_own"), self.times(&neighbors, layer, "weight_neighbors"));
            let out = plus_row(zip(&own, &neighbors, Bounded::plus), self.param(layer, "bias"));
            if layer + 1 == layers { out } else { map(out, Bounded::relu) }
        })
    }

    fn neighbors(&self, v: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.n()).filter(move |&u| self.graph[v][u].is_some())
    }

    fn pooled(&self, layer: usize, x: &Rows) -> Rows {
        let transformed = map(self.linear(x, layer, "_pool"), Bounded::relu);
        let most =
            |v: usize, k: usize| self.neighbors(v).map(|u| transformed[u][k]).reduce(Bounded::max).unwrap_or_default();
        (0..self.n()).map(|v| (0..transformed[0].len()).map(|k| most(v, k)).collect()).collect()
    }

    /// Last states of an LSTM over neighbors in stored order. The gates are input, forget, cell, output.
    fn last_states(&self, layer: usize, x: &Rows) -> Rows {
        let (inputs, recurrent) = (self.linear(x, layer, "_inputs"), self.param(layer, "weight_recurrent"));
        let width = recurrent.len();
        let last = |v: usize| {
            let (mut state, mut memory) = (vec![Bounded::default(); width], vec![Bounded::default(); width]);
            for u in self.neighbors(v) {
                let added = product(&vec![state.clone()], recurrent, 4 * width).remove(0);
                let gates: Vec<Bounded> = inputs[u].iter().zip(&added).map(|(&a, &b)| a.plus(b)).collect();
                for k in 0..width {
                    let gate = |i: usize| gates[i * width + k];
                    let kept = gate(1).sigmoid().times(memory[k]);
                    memory[k] = kept.plus(gate(0).sigmoid().times(gate(2).tanh()));
                    state[k] = gate(3).sigmoid().times(memory[k].tanh());
                }
            }
            state
        };
        (0..self.n()).map(last).collect()
    }

    /// Abu-El-Haija et al. (2019), equations 3 and 4.
    fn ngcn(&self, a: &Rows) -> Rows {
        let ModelConfig { layers, hops, mixing, .. } = *self.config;
        let instance = |k: usize| {
            (0..layers).fold(self.features.clone(), |x, layer| {
                let x = self.times(&x, layer, &format!("weight_power{k}"));
                let x = (0..k).fold(x, |x, _| product(a, &x, x[0].len()));
                let x = plus_row(x, self.param(layer, &format!("bias_power{k}")));
                if layer + 1 == layers { x } else { map(x, Bounded::relu) }
            })
        };
        let mixed = |k: usize| match mixing {
            true => self.times(&instance(k), layers, &format!("mixing{k}")),
            false => map(instance(k), |x| x.over((hops as f64 + 1.0).into())),
        };
        (1..=hops).fold(mixed(0), |sum, k| zip(&sum, &mixed(k), Bounded::plus))
    }

    fn mlp(&self) -> Rows {
        let layers = self.config.layers;
        (0..layers).fold(self.features.clone(), |x, layer| {
            let x = self.linear(&x, layer, "");
            if layer + 1 == layers { x } else { map(x, Bounded::relu) }
        })
    }

    /// Gasteiger et al. (2019), equation 4.
    fn appnp(&self, a: &Rows) -> Rows {
        let (logits, teleport) = (self.mlp(), f64::from(self.config.teleport as f32));
        (0..self.config.hops).fold(logits.clone(), |z, _| {
            zip(&product(a, &z, self.n_classes), &logits, |spread, logit| {
                spread.times((1.0 - teleport).into()).plus(logit.times(teleport.into()))
            })
        })
    }

    /// He et al. (2020), equations 3 and 8.
    fn light_gcn(&self, a: &Rows) -> Rows {
        let (mut power, hops) = (self.param(0, "embedding").clone(), self.config.layers);
        let mut sum = power.clone();
        for _ in 0..hops {
            power = product(a, &power, power[0].len());
            sum = zip(&sum, &power, Bounded::plus);
        }
        map(sum, |x| x.over((hops as f64 + 1.0).into()))
    }

    /// Convolutions with residual connections, normalisation and jumps. `convolve` is a layer without its activation.
    fn stack(&self, convolve: &dyn Fn(usize, &Rows) -> Rows) -> Rows {
        let ModelConfig { layers, residual, jump, .. } = *self.config;
        let attends = self.config.kind.has_heads();
        let activation = |x: Bounded| if attends { x.elu() } else { x.relu() };
        let mut x = self.features.clone();
        if residual {
            x = map(self.linear(&x, 0, "_entry"), activation);
        }
        let mut results = Vec::new();
        for layer in 0..layers {
            let is_output = !residual && jump == Jump::None && layer + 1 == layers;
            x = if is_output {
                convolve(layer, &x)
            } else if residual {
                zip(&map(convolve(layer, &self.norm(layer, x.clone())), activation), &x, Bounded::plus)
            } else {
                map(self.norm(layer, convolve(layer, &x)), activation)
            };
            results.push(x.clone());
        }
        match jump {
            Jump::None if !residual => x,
            Jump::None => self.linear(&self.norm(layers, x), layers, ""),
            Jump::Max => {
                let most = results.into_iter().reduce(|a, b| zip(&a, &b, Bounded::max)).unwrap();
                let most = if residual { self.norm(layers, most) } else { most };
                self.linear(&most, layers, "")
            }
            Jump::Concat => {
                let parts = results.iter().enumerate().map(|(i, x)| self.times(x, layers, &format!("weight_{i}")));
                let sum = parts.reduce(|a, b| zip(&a, &b, Bounded::plus)).unwrap();
                plus_row(sum, self.param(layers, "bias"))
            }
        }
    }

    /// Normalisation of rows or of columns, with gain and bias.
    fn norm(&self, layer: usize, x: Rows) -> Rows {
        let normalized = match self.config.norm {
            NormKind::None => return x,
            NormKind::Layer => x.iter().map(|row| normalized(row)).collect(),
            NormKind::Batch => {
                let columns: Rows = (0..x[0].len()).map(|k| x.iter().map(|row| row[k]).collect()).collect();
                let columns: Rows = columns.iter().map(|column| normalized(column)).collect();
                (0..x.len()).map(|v| columns.iter().map(|column| column[v]).collect()).collect()
            }
        };
        let gain = &self.param(layer, "norm_gain")[0];
        let scaled = |row: Vec<Bounded>| row.into_iter().zip(gain).map(|(x, &gain)| x.times(gain)).collect();
        plus_row(Rows::into_iter(normalized).map(scaled).collect(), self.param(layer, "norm_bias"))
    }
}

fn zeroed(dense: &Dense) -> Vec<Vec<f64>> {
    dense.iter().map(|row| row.iter().map(|x| x.unwrap_or(0.0)).collect()).collect()
}

/// Values minus their mean, divided by their deviation.
fn normalized(values: &[Bounded]) -> Vec<Bounded> {
    let n = Bounded::from(values.len() as f64);
    let mean = Bounded::sum(values.iter().copied()).over(n);
    let centred: Vec<Bounded> = values.iter().map(|x| x.minus(mean)).collect();
    let variance = Bounded::dot(centred.iter().map(|&x| (x, x))).over(n);
    let deviation = variance.plus(Bounded::from(1e-5)).root();
    centred.iter().map(|x| x.over(deviation)).collect()
}

/// Models read equal features in every storage.
#[test]
fn features_are_the_same_rows_however_they_are_stored() {
    for seed in 0..20 {
        let draws = &mut Draws::new(seed, 99);
        let n = draws.between(1, 20);
        let features = features(draws, n);
        let rows = feature_rows(&features);
        let matrix = match &features {
            Features::Dense(matrix) => matrix.clone(),
            Features::Sparse(csr) => Matrix::from_sparse(csr),
            Features::Compressed(_) => unreachable!("the generator makes none"),
        };
        assert!((0..n).all(|v| matrix.row(v).iter().zip(&rows[v]).all(|(&a, &b)| f64::from(a) == b)));
    }
}

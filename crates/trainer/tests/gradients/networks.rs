//! Gradients of whole models, on graphs and on batches.

use super::*;

/// Every model, with dense and sparse features, wider and narrower than the hidden layer. The first aggregation runs
/// before training or during it.
#[test]
fn models() {
    for kind in ModelKind::classifiers().filter(|kind| !kind.reads_relations()) {
        for hidden in [2, 6] {
            for dropout in [0.0, 0.3] {
                for sparse in [false, true] {
                    let config = ModelConfig { kind, layers: 3, hidden, dropout, heads: 2, ..ModelConfig::default() };
                    check_model(&config, sparse);
                }
            }
        }
    }
}

/// Options around convolutions: residual connections, normalisation, jumping knowledge, averaged heads.
#[test]
fn stacks() {
    for kind in [ModelKind::Gcn, ModelKind::Gat, ModelKind::Gin] {
        for norm in [NormKind::None, NormKind::Layer, NormKind::Batch] {
            for residual in [false, true] {
                for jump in [Jump::None, Jump::Concat, Jump::Max] {
                    let base =
                        ModelConfig { kind, layers: 2, hidden: 3, heads: 2, out_heads: 3, ..ModelConfig::default() };
                    check_model(&ModelConfig { norm, residual, jump, dropout: 0.3, ..base }, false);
                }
            }
        }
    }
}

#[test]
fn aggregators_of_sage() {
    for aggregator in [Aggregator::Pool, Aggregator::Lstm] {
        for (hidden, dropout, sparse) in [(2, 0.0, true), (6, 0.3, false)] {
            let kind = ModelKind::Sage;
            check_model(&ModelConfig { kind, hidden, dropout, aggregator, ..ModelConfig::default() }, sparse);
        }
    }
}

#[test]
fn ngcn_without_its_mixing_layer() {
    let config = ModelConfig { kind: ModelKind::Ngcn, mixing: false, hops: 3, ..ModelConfig::default() };
    check_model(&config, true);
}

/// Features of all nodes, dense or sparse.
pub(super) fn features(sparse: bool) -> Features {
    let dense = random(NODES, FEATURES, 4);
    if !sparse {
        return Features::Dense(dense);
    }
    let (rows, cols) = ((0..NODES as u32).collect::<Vec<_>>(), (0..NODES as u32).map(|v| v * 5 % FEATURES as u32));
    let coo = Coo::new(NODES, FEATURES, rows, cols.collect(), Some(dense.data()[..NODES].to_vec())).unwrap();
    Features::Sparse(coo.to_csr(Duplicates::Merge).unwrap())
}

/// Checks a model on the whole graph.
fn check_model(config: &ModelConfig, sparse: bool) {
    let mut init = ParamInit::new(&Reference, 7, 0);
    let model: Box<dyn Model<Reference>> = config.build(dims(), &mut init).unwrap();
    let mut params = init.finish();
    move_off_zero(&mut params);
    let inputs = Inputs::prepare(&Reference, graph(), features(sparse), &model.input_spec(), Dtype::F32).unwrap();
    let inputs: &'static _ = Box::leak(Box::new(inputs));
    check(params, &single_targets(), &|tape| model.forward(tape, inputs).unwrap());
}

/// Models on batches of sampled neighbors, with fewer rows in each layer. Features are gathered, or read in place.
#[test]
fn batches() {
    for kind in [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Gatv2, ModelKind::Gin] {
        for hidden in [2, 20] {
            for (dropout, sparse, in_place) in [(0.3, false, false), (0.0, true, false), (0.0, false, true)] {
                let config = ModelConfig { kind, layers: 3, hidden, dropout, heads: 2, ..ModelConfig::default() };
                let aggregates_first = matches!(kind, ModelKind::Gcn | ModelKind::Sage | ModelKind::Gin);
                check_batch(&config, sparse, in_place && aggregates_first);
            }
        }
    }
    for aggregator in [Aggregator::Pool, Aggregator::Lstm] {
        let config = ModelConfig { kind: ModelKind::Sage, layers: 2, hidden: 3, aggregator, ..ModelConfig::default() };
        check_batch(&config, false, false);
    }
}

/// Features of edges in messages and in attention, on batches alone.
#[test]
fn features_of_edges() {
    for kind in [ModelKind::Gine, ModelKind::Gat, ModelKind::Gatv2] {
        for (hidden, dropout, sparse) in [(2, 0.0, true), (6, 0.3, false)] {
            for (residual, norm) in [(false, NormKind::None), (false, NormKind::Layer), (true, NormKind::None)] {
                let config = ModelConfig { kind, layers: 2, hidden, heads: 2, out_heads: 2, ..ModelConfig::default() };
                let config = ModelConfig { dropout, residual, norm, ..config };
                check_batch_of(&config, Dims { edge_width: EDGE_WIDTH, ..dims() }, sparse, false);
            }
        }
    }
}

/// A layer of `gine` against its formula, edge by edge.
#[test]
fn a_layer_with_messages_of_edges_is_its_formula() {
    let config = ModelConfig { kind: ModelKind::Gine, layers: 1, hidden: 5, ..ModelConfig::default() };
    let mut init = ParamInit::new(&Reference, 3, 0);
    let model: Box<dyn Model<Reference>> = config.build(Dims { edge_width: EDGE_WIDTH, ..dims() }, &mut init).unwrap();
    let mut params = init.finish();
    move_off_zero(&mut params);
    let (inputs, nodes) = batch_of_nodes(&model.input_spec(), 1, false, false);
    let mut pool = Pool::default();
    let mut tape = Tape::new(&Reference, &params, &mut pool, Mode::Evaluate);
    let logits = model.forward(&mut tape, &inputs).unwrap();
    let found = Reference.download(tape.value(logits)).unwrap();

    let named = |name: &str| {
        let (id, _) = params.iter().find(|(_, param)| param.name == format!("layer0.{name}")).unwrap();
        Reference.download(params.value(id)).unwrap()
    };
    let linear = |x: &[f32], name: &str| -> Vec<f32> {
        let (weight, bias) = (named(&format!("weight_{name}")), named(&format!("bias_{name}")));
        let column = |j: usize| bias.row(0)[j] + x.iter().enumerate().map(|(i, x)| x * weight.row(i)[j]).sum::<f32>();
        (0..weight.n_cols()).map(column).collect()
    };
    let relu = |x: Vec<f32>| -> Vec<f32> { x.into_iter().map(|x| x.max(0.0)).collect() };
    let (block, all) = (sampled(&model.input_spec(), 1, false), random(NODES, FEATURES, 4));
    let block = &block.1.blocks[0];
    let rows: Vec<Vec<f32>> = nodes.iter().map(|&node| linear(all.row(node as usize), "node")).collect();
    let of_edges = random(block.n_edges(), EDGE_WIDTH, 9);
    assert!(block.n_edges() > 3);
    for v in 0..block.n_destinations {
        let mut sum = rows[v].clone();
        for edge in block.indptr[v] as usize..block.indptr[v + 1] as usize {
            let (source, features) = (&rows[block.indices[edge] as usize], linear(of_edges.row(edge), "edge"));
            let message = relu(source.iter().zip(&features).map(|(x, e)| x + e).collect());
            sum.iter_mut().zip(message).for_each(|(sum, message)| *sum += (1.0 + edge as f32 / 8.0) * message);
        }
        let expected = linear(&relu(linear(&sum, "inner")), "outer");
        for (found, expected) in found.row(v).iter().zip(expected) {
            assert!((found - expected).abs() < 1e-4 * (1.0 + expected.abs()), "{v}: {found} {expected}");
        }
    }
}

/// Attention with features of edges against PyG's formula, edge by edge.
#[test]
fn attention_with_features_of_edges_is_its_formula() {
    for kind in [ModelKind::Gat, ModelKind::Gatv2] {
        let config = ModelConfig { kind, layers: 1, out_heads: 1, slope: 0.2, ..ModelConfig::default() };
        let mut init = ParamInit::new(&Reference, 3, 0);
        let dims = Dims { edge_width: EDGE_WIDTH, ..dims() };
        let model: Box<dyn Model<Reference>> = config.build(dims, &mut init).unwrap();
        let params = init.finish();
        let (inputs, nodes) = batch_of_nodes(&model.input_spec(), 1, false, false);
        let mut pool = Pool::default();
        let mut tape = Tape::new(&Reference, &params, &mut pool, Mode::Evaluate);
        let logits = model.forward(&mut tape, &inputs).unwrap();
        let found = Reference.download(tape.value(logits)).unwrap();

        let named = |name: &str| {
            let (id, _) = params.iter().find(|(_, param)| param.name == format!("layer0.{name}")).unwrap();
            Reference.download(params.value(id)).unwrap()
        };
        let product = |x: &[f32], name: &str| -> Vec<f32> {
            let weight = named(name);
            (0..weight.n_cols()).map(|j| x.iter().enumerate().map(|(i, x)| x * weight.row(i)[j]).sum()).collect()
        };
        let dot = |x: &[f32], y: &[f32]| -> f32 { x.iter().zip(y).map(|(x, y)| x * y).sum() };
        let leaky = |x: f32| if x < 0.0 { 0.2 * x } else { x };
        let (all, (_, batch)) = (random(NODES, FEATURES, 4), sampled(&model.input_spec(), 1, false));
        let block = &batch.blocks[0];
        let x = |column: usize| all.row(nodes[column] as usize);
        let values: Vec<Vec<f32>> = (0..nodes.len()).map(|column| product(x(column), "weight_source")).collect();
        let of_edges = random(block.n_edges() + block.n_destinations, EDGE_WIDTH, 9);
        let mut edge = 0;
        for v in 0..block.n_destinations {
            let columns: Vec<usize> = block.row(v).iter().map(|&column| column as usize).chain([v]).collect();
            let score = |(i, &column): (usize, &usize)| {
                let of_edge = product(of_edges.row(edge + i), "weight_edge");
                if kind == ModelKind::Gat {
                    let of_ends = dot(&values[v], named("attention_destination").row(0))
                        + dot(&values[column], named("attention_source").row(0));
                    return leaky(of_ends + of_edge[0]).exp();
                }
                let own = product(x(v), "weight_destination");
                let sum = (0..CLASSES).map(|k| leaky(own[k] + values[column][k] + of_edge[k])).collect::<Vec<f32>>();
                dot(&sum, named("attention").row(0)).exp()
            };
            let scores: Vec<f32> = columns.iter().enumerate().map(score).collect();
            let total: f32 = scores.iter().sum();
            for k in 0..CLASSES {
                let expected: f32 = scores.iter().zip(&columns).map(|(s, &column)| s / total * values[column][k]).sum();
                let found = found.row(v)[k];
                assert!((found - expected).abs() < 1e-4 * (1.0 + expected.abs()), "{kind:?} {v}: {found} {expected}");
            }
            edge += columns.len();
        }
    }
}

#[test]
fn stacks_on_batches() {
    for kind in [ModelKind::Gcn, ModelKind::Gat] {
        for jump in [Jump::None, Jump::Concat, Jump::Max] {
            // Three rows with dropout would give variances so small that the rounding of 1/3 to `f32` shows.
            for (residual, norm, dropout) in [(false, NormKind::Batch, 0.0), (true, NormKind::Layer, 0.3)] {
                let base = ModelConfig { kind, layers: 3, hidden: 3, heads: 2, dropout, ..ModelConfig::default() };
                check_batch(&ModelConfig { norm, residual, jump, ..base }, false, false);
            }
        }
    }
}

/// Learned features, on the whole graph and on batches that gather some of their rows.
#[test]
fn learned_features() {
    for kind in [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Gatv2, ModelKind::Gin] {
        for (hidden, dropout, residual) in [(3, 0.0, false), (20, 0.3, false), (3, 0.0, true)] {
            let residual = residual && kind != ModelKind::Sage;
            let config = ModelConfig { kind, layers: 2, hidden, dropout, residual, heads: 2, ..ModelConfig::default() };
            check_learned(&config);
        }
    }
    for kind in [ModelKind::Mlp, ModelKind::Ngcn, ModelKind::Appnp] {
        check_learned(&ModelConfig { kind, layers: 2, hidden: 3, dropout: 0.0, hops: 2, ..ModelConfig::default() });
    }
    for aggregator in [Aggregator::Pool, Aggregator::Lstm] {
        check_learned(&ModelConfig {
            kind: ModelKind::Sage,
            layers: 2,
            hidden: 3,
            aggregator,
            ..ModelConfig::default()
        });
    }
}

/// Checks a model with learned features, on the whole graph and on a batch.
fn check_learned(config: &ModelConfig) {
    let built = || {
        let mut init = ParamInit::new(&Reference, 7, 0);
        let features = init.embedding(0, "features", Shape::new(NODES, FEATURES), 0.5).unwrap();
        let model: Box<dyn Model<Reference>> = config.build(dims(), &mut init).unwrap();
        let mut params = init.finish();
        move_off_zero(&mut params);
        (features, model, params)
    };
    let (features, model, params) = built();
    let input_spec = model.input_spec();
    let whole = Inputs::of_graph(&Reference, graph(), &input_spec).unwrap();
    let whole: &'static _ = Box::leak(Box::new(Inputs { features: Some(FeatureInput::Learned(features)), ..whole }));
    check(params, &single_targets(), &|tape| model.forward(tape, whole).unwrap());
    // The others here (MLP, N-GCN, APPNP) train on no blocks.
    if model.as_layers().is_none() {
        return;
    }
    let (param, model, params) = built();
    let (inputs, nodes) = batch_of_nodes(&input_spec, config.layers, false, false);
    let ids = Reference.upload_ids(&nodes).unwrap();
    let rows = FeatureInput::LearnedRows { param, ids, n_ids: nodes.len() };
    let inputs: &'static _ = Box::leak(Box::new(Inputs { features: Some(rows), propagated: None, ..inputs }));
    let (targets, rows) = (single_targets_of(3), Reference.upload_ids(&[0, 2]).unwrap());
    check_loss(params, &|tape| {
        let logits = model.forward(tape, inputs).unwrap();
        tape.loss(logits, &targets, &rows).unwrap()
    });
}

/// Checks a model on a batch of three seeds.
fn check_batch(config: &ModelConfig, sparse: bool, in_place: bool) {
    check_batch_of(config, dims(), sparse, in_place);
}

fn check_batch_of(config: &ModelConfig, dims: Dims, sparse: bool, in_place: bool) {
    let mut init = ParamInit::new(&Reference, 7, 0);
    let model: Box<dyn Model<Reference>> = config.build(dims, &mut init).unwrap();
    let mut params = init.finish();
    move_off_zero(&mut params);
    let inputs: &'static _ = Box::leak(Box::new(batch(&model.input_spec(), config.layers, sparse, in_place)));
    let (targets, rows) = (single_targets_of(3), Reference.upload_ids(&[0, 2]).unwrap());
    check_loss(params, &|tape| {
        let logits = model.forward(tape, inputs).unwrap();
        assert_eq!(tape.shape(logits), Shape::new(3, CLASSES));
        tape.loss(logits, &targets, &rows).unwrap()
    });
}

/// Classes of the first `n` seeds of a batch.
fn single_targets_of(n: usize) -> Targets<Reference> {
    Targets::Single(Reference.upload_ids(&[2, 0, 1][..n]).unwrap())
}

/// A batch for three seeds, with a fan-out of two in each layer.
fn batch(input_spec: &InputSpec, n_layers: usize, sparse: bool, in_place: bool) -> Inputs<Reference> {
    batch_of_nodes(input_spec, n_layers, sparse, in_place).0
}

/// Blocks for three seeds, with a fan-out of two in each layer.
fn sampled(input_spec: &InputSpec, n_layers: usize, in_place: bool) -> (Neighborhoods, MiniBatch) {
    let neighborhoods = Neighborhoods::new(&graph(), input_spec.graph.unwrap()).unwrap();
    let columns = if in_place { Columns::Global } else { Columns::Local };
    let options = NeighborOptions { edge_ids: true, inputs: columns, ..NeighborOptions::default() };
    let fan_out = vec!["2"; n_layers].join(",");
    let sampler = NeighborSampler::new(fan_out.parse().unwrap(), options).unwrap();
    let batch = sampler.sample(neighborhoods.graph(), &[3, 0, 1], DrawKey::new(1, 0, 0)).unwrap();
    (neighborhoods, batch)
}

/// As [`batch`], but also returns the nodes whose features the batch reads.
fn batch_of_nodes(
    input_spec: &InputSpec,
    n_layers: usize,
    sparse: bool,
    in_place: bool,
) -> (Inputs<Reference>, Vec<u32>) {
    let (neighborhoods, batch) = sampled(input_spec, n_layers, in_place);
    let block = |block: &Block| {
        let in_place = block.columns == Columns::Global;
        let rows = neighborhoods.rows(block).unwrap();
        let operand = SparseOperand { csr: &rows, scales: rows.scales(Norm::None), symmetric: false, names: None };
        Graph::Block(BlockGraph {
            matrix: Reference.upload_sparse(&operand).unwrap(),
            n_destinations: block.n_destinations,
            in_place: in_place.then(|| Reference.upload_ids(block.destinations()).unwrap()),
            edges: input_spec.edges.then(|| edges_of(block, input_spec.graph.unwrap())),
        })
    };
    let graphs = LayerGraphs::Blocks(batch.blocks.iter().map(block).collect());
    let whole = InputSpec { raw_features: true, propagation: Propagation::Never, ..input_spec.clone() };
    let features = match (features(sparse), in_place) {
        (all, true) => all,
        (all, false) => rows_of(&all, batch.inputs()),
    };
    let n_nodes = batch.inputs().len();
    let of_batch = Inputs::prepare(&Reference, Csr::empty(n_nodes, n_nodes).unwrap(), features, &whole, Dtype::F32);
    (Inputs { graphs, ..of_batch.unwrap() }, batch.inputs().to_vec())
}

/// Edges of a block, with random features; as many loops follow the edges of a row as the model adds.
fn edges_of(block: &Block, adjacency: Adjacency) -> BlockEdges<Reference> {
    let (mut indptr, mut sources) = (vec![0], Vec::new());
    for v in 0..block.n_destinations {
        sources.extend(block.row(v));
        sources.extend(adjacency.self_loops.then_some(v as u32));
        indptr.push(sources.len() as u64);
    }
    let n_edges = sources.len();
    let columns: Vec<u32> = (0..n_edges as u32).collect();
    let weights: Vec<f32> = (0..n_edges).map(|edge| 1.0 + edge as f32 / 8.0).collect();
    let sums = Csr::new(block.n_destinations, n_edges, indptr, columns, Some(weights.into())).unwrap();
    let operand = SparseOperand { csr: &sums, scales: sums.scales(Norm::None), symmetric: false, names: None };
    BlockEdges {
        n_edges,
        sources: Reference.upload_ids(&sources).unwrap(),
        features: Reference.upload(&random(n_edges, EDGE_WIDTH, 9), Dtype::F32).unwrap(),
        sums: Reference.upload_sparse(&operand).unwrap(),
    }
}

/// Selected rows of features, in the storage of the whole matrix.
fn rows_of(features: &Features, nodes: &[u32]) -> Features {
    let values = |v: &u32| match features {
        Features::Dense(matrix) => matrix.row(*v as usize).to_vec(),
        Features::Sparse(csr) => Matrix::from_sparse(csr).row(*v as usize).to_vec(),
        Features::Compressed(_) => unreachable!("`features` makes none"),
    };
    let rows: Vec<Vec<f32>> = nodes.iter().map(values).collect();
    if matches!(features, Features::Dense(_)) {
        return Features::Dense(Matrix::new(nodes.len(), FEATURES, rows.concat()).unwrap());
    }
    let entries = rows.iter().enumerate().flat_map(|(v, row)| row.iter().enumerate().map(move |(c, x)| (v, c, *x)));
    let entries: Vec<(usize, usize, f32)> = entries.filter(|(.., x)| *x != 0.0).collect();
    let (rows, cols) = entries.iter().map(|(v, c, _)| (*v as u32, *c as u32)).unzip();
    let values = entries.iter().map(|(.., x)| *x).collect();
    let coo = Coo::new(nodes.len(), FEATURES, rows, cols, Some(values)).unwrap();
    Features::Sparse(coo.to_csr(Duplicates::Refuse).unwrap())
}

/// Moves parameters off zero. With zero biases, an isolated node without features would lie on the kink of the ReLU.
pub(super) fn move_off_zero(params: &mut Params<Reference>) {
    let ids: Vec<_> = params.iter().map(|(id, _)| id).collect();
    for id in ids {
        for (i, value) in params.value_mut(id).data_mut().iter_mut().enumerate() {
            if *value == 0.0 {
                *value = 0.05 * (1.0 + i as f64);
            }
        }
    }
}

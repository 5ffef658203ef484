//! Networks of several types of nodes: GraphSAGE over relations, R-GAT and HGT.

use girih_datasets::TypeFeatures;
use girih_trainer::LayerTypes;

use super::relations::Typed;
use super::*;
use crate::bounded::{map, product};

/// Number of columns of the features of the first type.
const WIDTH: usize = 5;

/// Network with its data, in the terms of its publication.
struct TypedReference {
    config: ModelConfig,
    typed: Typed,
    layers: Vec<LayerTypes>,
    /// Features of the nodes of the first type; the second one learns rows.
    features: Rows,
    params: HashMap<String, Rows>,
}

pub(super) fn check(seed: u64, kind: ModelKind) -> Checked {
    let draws = &mut Draws::new(seed, 300 + kind as u64);
    let graph = SmallGraph::new(draws);
    let config = ModelConfig { hidden: draws.between(1, 3), heads: draws.between(1, 3), ..config(draws, kind) };
    let blocks = if config.bases == 0 { blocks(draws, kind, (config.layers, config.hidden)) } else { 0 };
    let config = ModelConfig { blocks, ..config };
    let typed = Typed::new(draws, &graph);
    let n_first = typed.types.iter().filter(|&&of| of == 0).count();
    let rows = random_like(draws, &Matrix::new(n_first, WIDTH, vec![0.0; n_first * WIDTH]).unwrap());
    let learned = draws.one_of(&[TypeFeatures::None, TypeFeatures::Learned(Some(4))]);
    let features = vec![TypeFeatures::Given(Features::Dense(rows.clone())), learned];
    let data = TypedData { graph: typed.graph.clone(), features, target: 0 };
    let target = draws.one_of(&[None, Some(0), Some(1)]);
    let dims = Dims {
        n_nodes: graph.n,
        n_features: 0,
        edge_width: 0,
        n_classes: 3,
        relations: data.graph.sizes().clone(),
        type_widths: data.features.iter().map(TypeFeatures::width).collect(),
        target,
    };
    let cpu = Cpu::new();
    let layers = LayerTypes::of(&dims.relations, target, config.layers);
    let mut init = ParamInit::new(&cpu, seed, 0);
    let model: Box<dyn Model<Cpu>> = config.build(dims, &mut init).unwrap();
    let mut params = init.finish();
    let values: Vec<Matrix> = params.download(&cpu).unwrap().iter().map(|value| random_like(draws, value)).collect();
    params.write(&cpu, &values).unwrap();
    let named = params.iter().map(|(_, param)| param.name.clone()).zip(&values);
    let params_of = named.map(|(name, value)| (name, bounded_matrix(value))).collect();
    let features = bounded_matrix(&rows);
    let reference = TypedReference { config: config.clone(), typed, layers, features, params: params_of };
    let spec = model.input_spec();
    let inputs = Inputs::of_graph(&cpu, data.graph.union().unwrap(), &spec).unwrap();
    let inputs = inputs.with_relations(&cpu, &data, &spec, Dtype::F32).unwrap();
    let mut pool = Pool::default();
    let mut tape = Tape::new(&cpu, &params, &mut pool, Mode::Evaluate);
    let logits = model.forward(&mut tape, &inputs).unwrap();
    let is_target = |v: usize| target.is_none_or(|target| reference.typed.types[v] == target);
    let zeros = vec![Bounded::default(); 3];
    let expected = reference.logits().into_iter().enumerate();
    let expected: Rows = expected.map(|(v, row)| if is_target(v) { row } else { zeros.clone() }).collect();
    compare(&config, &expected, &cpu.download(tape.value(logits)).unwrap())
}

/// Sum of two rows.
fn plus(a: &[Bounded], b: &[Bounded]) -> Vec<Bounded> {
    a.iter().zip(b).map(|(a, b)| a.plus(*b)).collect()
}

/// Product of a row with a weight whose elements lie in one row.
fn times(x: &[Bounded], weight: &[Bounded]) -> Vec<Bounded> {
    let width = weight.len() / x.len();
    (0..width).map(|c| Bounded::dot(x.iter().enumerate().map(|(k, &x)| (x, weight[k * width + c])))).collect()
}

/// Shares of a softmax.
fn softmax(scores: &[Bounded]) -> Vec<Bounded> {
    let most = scores.iter().map(|score| score.x).fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<Bounded> = scores.iter().map(|score| score.minus(Bounded::from(most)).exp()).collect();
    let all = Bounded::sum(powers.iter().copied());
    powers.into_iter().map(|power| power.over(all)).collect()
}

impl TypedReference {
    fn param(&self, layer: usize, name: &str) -> &Rows {
        let name = format!("layer{layer}.{name}");
        self.params.get(&name).unwrap_or_else(|| panic!("no {name} among {:?}", self.params.keys()))
    }

    /// Logits of all nodes. Rows that a layer does not compute are those of the layer before, and not read.
    fn logits(&self) -> Rows {
        let mut x = self.entry();
        let n_layers = self.layers.len();
        for (i, types) in self.layers.iter().enumerate() {
            let is_computed = |v: usize| types.destinations.contains(&self.typed.types[v]);
            let of_node = |v: usize| match self.config.kind {
                _ if !is_computed(v) => x[v].clone(),
                ModelKind::Hsage => self.hsage(i + 1, types, (&x, v), i + 1 == n_layers),
                ModelKind::Rgat => self.rgat(i + 1, types, (&x, v)),
                _ => self.hgt(i + 1, types, (&x, v)),
            };
            x = (0..x.len()).map(of_node).collect();
        }
        if self.config.kind == ModelKind::Hsage {
            return x;
        }
        let last = n_layers + 1;
        plus_row(product(&x, self.param(last, "weight"), 3), self.param(last, "bias"))
    }

    /// Rows of the types that the first layer reads; zeros of others.
    fn entry(&self) -> Rows {
        let heads = if self.config.kind == ModelKind::Hsage { 1 } else { self.config.heads };
        let width = self.config.hidden * heads;
        let (mut rows, mut places) = (Rows::new(), [0, 0]);
        for &of in &self.typed.types {
            let place = places[of];
            places[of] += 1;
            if !self.layers[0].sources.contains(&of) {
                rows.push(vec![Bounded::default(); width]);
                continue;
            }
            let row = if of == 0 { &self.features[place] } else { &self.param(0, "rows_1")[place] };
            let weight = format!("weight_entry_{of}");
            rows.push(match self.params.contains_key(&format!("layer0.{weight}")) {
                false => row.clone(),
                true => {
                    let product = product(&vec![row.clone()], self.param(0, &weight), width);
                    let bias = self.param(0, &format!("bias_entry_{of}"));
                    map(plus_row(product, bias), Bounded::relu).remove(0)
                }
            });
        }
        rows
    }

    /// Relations of a layer, with their places, and the neighbors of a node by each.
    fn neighbors<'s>(&'s self, types: &'s LayerTypes, v: usize) -> impl Iterator<Item = (usize, &'s [usize])> {
        let by_place = types.relations.iter().enumerate();
        by_place
            .map(move |(place, &relation)| (place, &self.typed.relations[relation][v][..]))
            .filter(|(_, of)| !of.is_empty())
    }

    /// Place of the type of a node in a list of types.
    fn place(&self, types: &[usize], v: usize) -> usize {
        types.iter().position(|&of| of == self.typed.types[v]).unwrap()
    }

    /// Bias, and the product of a node's own row.
    fn own(&self, layer: usize, types: &LayerTypes, (x, v): (&Rows, usize)) -> Vec<Bounded> {
        let bias = &self.param(layer, "bias")[0];
        let own = |place: usize| times(&x[v], &self.param(layer, "self")[place]);
        match self.config.self_weight {
            SelfWeight::None => bias.clone(),
            SelfWeight::Shared => plus(bias, &product(&vec![x[v].clone()], self.param(layer, "self"), bias.len())[0]),
            SelfWeight::Type => plus(bias, &own(self.place(&types.destinations, v))),
            SelfWeight::Relation => {
                let ends_here = |relation: usize| relation % 2 == self.typed.types[v];
                let places = types.relations.iter().enumerate().filter(|&(_, &relation)| ends_here(relation));
                places.fold(bias.clone(), |sum, (place, _)| plus(&sum, &own(place)))
            }
        }
    }

    /// Hamilton et al. (2017), algorithm 1 with means, over relations: sums over them, without normalisation. Weights of
    /// relations may be sums of bases.
    fn hsage(&self, layer: usize, types: &LayerTypes, (x, v): (&Rows, usize), is_last: bool) -> Vec<Bounded> {
        let mut sum = self.own(layer, types, (x, v));
        for (place, neighbors) in self.neighbors(types, v) {
            let share = Bounded::from(1.0).over((neighbors.len() as f64).into());
            let mean = |k: usize| Bounded::dot(neighbors.iter().map(|&u| (x[u][k], share)));
            let mean: Vec<Bounded> = (0..x[v].len()).map(mean).collect();
            let blocks = self.params.get(&format!("layer{layer}.blocks"));
            let weight = match self.config.bases {
                _ if blocks.is_some() => whole_weight(&blocks.unwrap()[place], self.config.blocks, x[v].len()),
                0 => self.param(layer, "weight")[place].clone(),
                _ => {
                    let (coefficients, bases) = (self.param(layer, "coefficients"), self.param(layer, "bases"));
                    product(&vec![coefficients[place].clone()], bases, bases[0].len()).remove(0)
                }
            };
            sum = plus(&sum, &times(&mean, &weight));
        }
        if is_last { sum } else { sum.into_iter().map(Bounded::relu).collect() }
    }

    /// Veličković et al. (2018), within each relation; the scores of destinations have a weight of their own.
    fn rgat(&self, layer: usize, types: &LayerTypes, (x, v): (&Rows, usize)) -> Vec<Bounded> {
        let (heads, slope) = (self.config.heads, f64::from(self.config.slope as f32));
        let mut sum = self.own(layer, types, (x, v));
        for (place, neighbors) in self.neighbors(types, v) {
            let weight = &self.param(layer, "weight")[place];
            let values: Rows = neighbors.iter().map(|&u| times(&x[u], weight)).collect();
            let vector = &self.param(layer, "attention_source")[place];
            let of_destination = times(&x[v], &self.param(layer, "attention_destination")[place]);
            let shares = (0..heads).map(|h| {
                let of_head =
                    |row: &Vec<Bounded>| Bounded::dot((h..row.len()).step_by(heads).map(|c| (row[c], vector[c])));
                let scores: Vec<Bounded> =
                    values.iter().map(|row| of_head(row).plus(of_destination[h]).leaky(slope)).collect();
                softmax(&scores)
            });
            let shares: Vec<Vec<Bounded>> = shares.collect();
            let attended =
                |c: usize| Bounded::dot(values.iter().zip(&shares[c % heads]).map(|(row, &share)| (row[c], share)));
            sum = plus(&sum, &(0..sum.len()).map(attended).collect::<Vec<_>>());
        }
        sum.into_iter().map(Bounded::relu).collect()
    }

    /// Hu et al. (2020), equations 3 to 5.
    fn hgt(&self, layer: usize, types: &LayerTypes, (x, v): (&Rows, usize)) -> Vec<Bounded> {
        let heads: Rows = (0..self.config.heads).map(|head| self.head(layer, types, (x, v), head)).collect();
        let columns = (0..self.config.hidden).flat_map(|k| heads.iter().map(move |head| head[k]));
        let heads: Vec<Bounded> = columns.map(gelu).collect();
        let place = self.place(&types.destinations, v);
        let out = plus(&times(&heads, &self.param(layer, "out")[place]), &self.param(layer, "bias")[0]);
        let gate = self.param(layer, "gate")[place][0].sigmoid();
        out.iter().zip(&x[v]).map(|(out, own)| own.plus(gate.times(out.minus(*own)))).collect()
    }

    fn head(&self, layer: usize, types: &LayerTypes, (x, v): (&Rows, usize), head: usize) -> Vec<Bounded> {
        let param = |name: &str| self.param(layer, &format!("{name}_{head}"));
        let query = times(&x[v], &self.param(layer, "query")[self.place(&types.destinations, v)]);
        let query: Vec<Bounded> = query.into_iter().skip(head).step_by(self.config.heads).collect();
        let scale = Bounded::from(f64::from(1.0 / (query.len() as f32).sqrt()));
        let (mut scores, mut values) = (Vec::new(), Rows::new());
        for (place, neighbors) in self.neighbors(types, v) {
            let prior = param("prior")[place][0].times(scale);
            let attention: Vec<Bounded> = param("attention")[place].iter().map(|&a| a.times(prior)).collect();
            for &u in neighbors {
                let of_type = self.place(&types.sources, u);
                let key = times(&times(&x[u], &param("key")[of_type]), &attention);
                scores.push(Bounded::dot(query.iter().copied().zip(key)));
                values.push(times(&times(&x[u], &param("value")[of_type]), &param("message")[place]));
            }
        }
        let shares = softmax(&scores);
        (0..query.len())
            .map(|c| Bounded::dot(values.iter().zip(&shares).map(|(row, &share)| (row[c], share))))
            .collect()
    }
}

/// Hendrycks and Gimpel (2016), with the sigmoid.
fn gelu(x: Bounded) -> Bounded {
    let cube = x.times(x).times(x).times(Bounded::from(f64::from(0.044_715_f32)));
    let argument = x.plus(cube).times(Bounded::from(2.0 * f64::from(0.797_884_6_f32)));
    x.times(argument.sigmoid())
}

//! [`Hgt`]: the heterogeneous graph transformer (Hu et al., WWW 2020).

use girih_compute::{Activation, Backend, ComputeError, Function, Shape};

use super::relation_stack::{RelationLayer, RelationStack};
use crate::config::ModelConfig;
use crate::layers::{Dims, LayerRelations, LayerTypes, RelationForm, RelationGraph, RelationPairs};
use crate::tape::{LinearOptions, ParamId, ParamInit, SpmmOptions, Tape, Var};

/// Layers of attention over the neighbors of all relations.
///
/// For each head, the score of the edge from `u` to `v` by relation `r` is `μ_r·(K_s·h_u)·A_r·(Q_t·h_v) / √d`, with the
/// types `s` and `t` of `u` and `v`. Its softmax over all neighbors weighs the values `M_r·V_s·h_u`. A layer returns
/// `h_v + σ(γ_t)·(O_t·gelu(heads) + b - h_v)`.
pub type Hgt = RelationStack<HgtLayer>;

/// One layer of [`Hgt`].
pub struct HgtLayer {
    heads: Vec<Head>,
    /// Row `t` has the elements of `Q_t` of all heads, whose columns are interleaved.
    queries: ParamId,
    /// Row `t` has the elements of `O_t`.
    out: ParamId,
    bias: ParamId,
    /// Row `t` has `γ_t`.
    gate: ParamId,
    /// Number of columns of all heads.
    outputs: usize,
}

/// Weights of a head: a row for each source type or relation.
struct Head {
    keys: ParamId,
    values: ParamId,
    /// Elements of `A_r`.
    attention: ParamId,
    /// Elements of `M_r`.
    messages: ParamId,
    /// `μ_r`.
    prior: ParamId,
    width: usize,
}

impl RelationLayer for HgtLayer {
    const FORM: RelationForm = RelationForm::Attention;

    fn new<B: Backend>(
        init: &mut ParamInit<'_, B>,
        config: &ModelConfig,
        (layer, _, types): (usize, &Dims, &LayerTypes),
    ) -> Result<Self, ComputeError> {
        let outputs = config.hidden * config.heads;
        let heads = (0..config.heads).map(|head| Head::new(init, (layer, head), types, (outputs, config.hidden)));
        let heads = heads.collect::<Result<_, _>>()?;
        let n_types = types.destinations.len();
        let square = Shape::new(n_types, outputs * outputs);
        Ok(Self {
            heads,
            queries: init.glorot_of(layer, "query", square, (outputs, config.hidden))?,
            out: init.glorot_of(layer, "out", square, (outputs, outputs))?,
            bias: init.zeros(layer, "bias", Shape::new(1, outputs))?,
            gate: init.ones(layer, "gate", Shape::new(n_types, 1))?,
            outputs,
        })
    }

    fn forward<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        relations: &'a LayerRelations<B>,
        rows: Var,
        config: &ModelConfig,
    ) -> Result<Var, ComputeError> {
        let RelationGraph::Attention { pairs, pattern, diagonal, types } = &relations.graph else {
            unreachable!("the model asked for attention over all neighbors");
        };
        let mask = tape.next_dropout(config.dropout);
        let own = relations.own_rows(tape, rows)?;
        let attended = self.attended(tape, (relations, pairs, pattern), rows, own)?;
        let (attended, weights) = (tape.apply(Function::Gelu, attended)?, tape.param(self.out));
        let products = tape.linear_runs(&relations.destination_runs, attended, weights, self.outputs)?;
        let bias = Some(tape.param(self.bias));
        let step = tape.combine(&[(1.0, products), (-1.0, own)], bias, Activation::Identity)?;
        let step = tape.dropout(step, mask)?;
        let gate = tape.param(self.gate);
        let gate = tape.apply(Function::Sigmoid, gate)?;
        let gates = Some(tape.gather_rows(gate, &types.ids, types.n)?);
        let step = tape.spmm(diagonal, step, SpmmOptions { weights: gates, ..SpmmOptions::default() })?;
        tape.add(own, step)
    }
}

impl HgtLayer {
    /// Values of the neighbors of each destination, weighed by attention; the columns of heads are interleaved.
    fn attended<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        (relations, pairs, pattern): (&'a LayerRelations<B>, &'a RelationPairs<B>, &'a B::Sparse),
        rows: Var,
        own: Var,
    ) -> Result<Var, ComputeError> {
        let of_pairs = tape.gather_rows(rows, &pairs.rows.ids, pairs.rows.n)?;
        let weights = self.of_relations(tape, pairs, |head| head.keys, Head::scaled_attention)?;
        let keys = tape.linear_runs(&pairs.runs, of_pairs, weights, self.outputs)?;
        let weights = self.of_relations(tape, pairs, |head| head.values, |head, tape| Ok(tape.param(head.messages)))?;
        let values = tape.linear_runs(&pairs.runs, of_pairs, weights, self.outputs)?;
        let weights = tape.param(self.queries);
        let queries = tape.linear_runs(&relations.destination_runs, own, weights, self.outputs)?;
        let scores = tape.sddmm(pattern, queries, keys, self.heads.len())?;
        let shares = Some(tape.segment_softmax(pattern, scores)?);
        tape.spmm(pattern, values, SpmmOptions { weights: shares, ..SpmmOptions::default() })
    }

    /// Products of the weight of each relation's source type with that of the relation, for all heads: row `r` has the
    /// elements of `K_s·A_r`, `outputs × outputs`, with interleaved columns.
    fn of_relations<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        pairs: &'a RelationPairs<B>,
        of_types: impl Fn(&Head) -> ParamId,
        of_relations: impl Fn(&Head, &mut Tape<'a, B>) -> Result<Var, ComputeError>,
    ) -> Result<Var, ComputeError> {
        let (n, inputs) = (pairs.sources.n, self.outputs);
        let mut heads = Vec::with_capacity(self.heads.len());
        for head in &self.heads {
            let (weights, blocks) = (tape.param(of_types(head)), of_relations(head, tape)?);
            let of_sources = tape.gather_rows(weights, &pairs.sources.ids, n)?;
            let tall = tape.reshape(of_sources, Shape::new(n * inputs, head.width))?;
            let runs: Vec<usize> = (0..=n).map(|relation| relation * inputs).collect();
            heads.push(tape.linear_runs(runs, tall, blocks, head.width)?);
        }
        let heads = tape.concat(&heads)?;
        let interleaved = self.interleaved(tape)?;
        let tall = tape.linear(heads, interleaved, LinearOptions::default())?;
        tape.reshape(tall, Shape::new(n, inputs * self.outputs))
    }

    /// Permutation that interleaves the columns of heads: column `h · width + k` becomes `k · heads + h`.
    fn interleaved<B: Backend>(&self, tape: &mut Tape<'_, B>) -> Result<Var, ComputeError> {
        let (n, n_heads) = (self.outputs, self.heads.len());
        let width = n / n_heads;
        let is_one = |row: usize, col: usize| f32::from(u8::from(col == row % width * n_heads + row / width));
        tape.made(Shape::new(n, n), is_one)
    }
}

impl Head {
    fn new<B: Backend>(
        init: &mut ParamInit<'_, B>,
        (layer, head): (usize, usize),
        types: &LayerTypes,
        (inputs, width): (usize, usize),
    ) -> Result<Self, ComputeError> {
        let (n_relations, n_sources) = (types.relations.len(), types.sources.len());
        let mut weights = |name: &str, n: usize, inputs: usize| {
            let shape = Shape::new(n, inputs * width);
            init.glorot_of(layer, &format!("{name}_{head}"), shape, (inputs, width))
        };
        Ok(Self {
            keys: weights("key", n_sources, inputs)?,
            values: weights("value", n_sources, inputs)?,
            attention: weights("attention", n_relations, width)?,
            messages: weights("message", n_relations, width)?,
            prior: init.ones(layer, &format!("prior_{head}"), Shape::new(n_relations, 1))?,
            width,
        })
    }

    /// `μ_r·A_r / √d`, a row for each relation.
    fn scaled_attention<'a, B: Backend>(&self, tape: &mut Tape<'a, B>) -> Result<Var, ComputeError> {
        let (prior, attention) = (tape.param(self.prior), tape.param(self.attention));
        let scale = 1.0 / (self.width as f32).sqrt();
        let prior = tape.combine(&[(scale, prior)], None, Activation::Identity)?;
        let n = tape.shape(prior).rows;
        tape.linear_runs((0..=n).collect::<Vec<_>>(), prior, attention, self.width * self.width)
    }
}

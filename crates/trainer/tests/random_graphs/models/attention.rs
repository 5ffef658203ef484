//! Networks of attention.

use girih_trainer::{Jump, ModelKind};

use super::Reference;
use crate::bounded::{Bounded, Rows, plus_row};

impl Reference<'_> {
    /// Veličković et al. (2018), equations 1 to 6; Brody et al. (2022), equation 7. Heads are interleaved.
    pub(super) fn attention_layer(&self, layer: usize, x: &Rows) -> Rows {
        let config = self.config;
        let is_last = layer + 1 == config.layers && !config.residual && config.jump == Jump::None;
        let heads = if is_last { config.out_heads } else { config.heads };
        let values = self.times(x, layer, "weight_source");
        let width = values[0].len() / heads;
        let pattern = self.adjacency(true);
        let scores = self.scores(layer, x, &values);
        let head = |v: usize, h: usize, k: usize| {
            let neighbors: Vec<usize> = (0..self.n()).filter(|&u| pattern[v][u].is_some()).collect();
            let scores: Vec<Bounded> = neighbors.iter().map(|&u| scores(v, u, h, heads)).collect();
            // Subtracting a constant from all scores changes nothing.
            let most = scores.iter().map(|score| score.x).fold(f64::NEG_INFINITY, f64::max);
            let powers: Vec<Bounded> = scores.iter().map(|score| score.minus(Bounded::from(most)).exp()).collect();
            let all = Bounded::sum(powers.iter().copied());
            Bounded::dot(powers.iter().zip(&neighbors).map(|(p, &u)| (p.over(all), values[u][k * heads + h])))
        };
        let rows: Rows = (0..self.n())
            .map(|v| {
                let all = |c: usize| head(v, c % heads, c / heads);
                let mean = |k: usize| Bounded::sum((0..heads).map(|h| head(v, h, k))).over((heads as f64).into());
                if is_last { (0..width).map(mean).collect() } else { (0..heads * width).map(all).collect() }
            })
            .collect();
        plus_row(rows, self.param(layer, "bias"))
    }

    /// Attention score of the edge from `u` to `v`, as a function of `(v, u, head, heads)`.
    fn scores<'s>(
        &'s self,
        layer: usize,
        x: &Rows,
        values: &'s Rows,
    ) -> Box<dyn Fn(usize, usize, usize, usize) -> Bounded + 's> {
        let slope = f64::from(self.config.slope as f32);
        let of_head = |row: &[Bounded], h: usize, heads: usize| -> Vec<Bounded> {
            row.iter().skip(h).step_by(heads).copied().collect()
        };
        let dot = |a: Vec<Bounded>, b: Vec<Bounded>| Bounded::dot(a.into_iter().zip(b));
        if self.config.kind == ModelKind::Gat {
            let [destination, source] =
                ["destination", "source"].map(|end| &self.param(layer, &format!("attention_{end}"))[0]);
            return Box::new(move |v, u, h, heads| {
                let score =
                    |vector: &[Bounded], v: usize| dot(of_head(vector, h, heads), of_head(&values[v], h, heads));
                score(destination, v).plus(score(source, u)).leaky(slope)
            });
        }
        let destinations = self.times(x, layer, "weight_destination");
        let vector = &self.param(layer, "attention")[0];
        Box::new(move |v, u, h, heads| {
            let sums = destinations[v].iter().zip(&values[u]).map(|(&a, &b)| a.plus(b).leaky(slope));
            let sums: Vec<Bounded> = sums.collect();
            dot(of_head(vector, h, heads), of_head(&sums, h, heads))
        })
    }
}

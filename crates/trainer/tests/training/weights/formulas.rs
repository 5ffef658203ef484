//! Logits of tensors by the formulas that PyG documents for its layers, in dense loops of `f64`.

use girih_graph_format::{Csr, Matrix};
use girih_trainer::{ModelConfig, ModelKind, NamedWeight};

type Rows = Vec<Vec<f64>>;

/// Network of PyG: its graph, settings and tensors.
pub(super) struct Reference<'r> {
    model: &'r ModelConfig,
    weights: &'r [NamedWeight],
    /// In-neighbors of each node, without self loops.
    neighbors: Vec<Vec<usize>>,
}

impl<'r> Reference<'r> {
    pub(super) fn new(graph: &Csr, model: &'r ModelConfig, weights: &'r [NamedWeight]) -> Self {
        let of = |v: usize| graph.row(v).iter().map(|&u| u as usize).filter(|&u| u != v).collect();
        Self { model, weights, neighbors: (0..graph.n_rows()).map(of).collect() }
    }

    fn tensor(&self, name: &str) -> &NamedWeight {
        self.weights.iter().find(|weight| weight.name == name).unwrap_or_else(|| panic!("no {name}"))
    }

    fn vector(&self, name: &str) -> Vec<f64> {
        self.tensor(name).values.iter().map(|&v| f64::from(v)).collect()
    }

    /// `x·Wᵀ`, as `torch.nn.Linear` without its bias.
    fn product(&self, name: &str, x: &Rows) -> Rows {
        let weight = self.tensor(name);
        let [outputs, inputs] = weight.shape[..] else { panic!("{name} is a matrix") };
        let at =
            |row: &Vec<f64>, o: usize| (0..inputs).map(|i| row[i] * f64::from(weight.values[o * inputs + i])).sum();
        x.iter().map(|row| (0..outputs).map(|o| at(row, o)).collect()).collect()
    }

    fn linear(&self, module: &str, x: &Rows) -> Rows {
        plus(self.product(&format!("{module}.weight"), x), &self.vector(&format!("{module}.bias")))
    }

    fn with_itself(&self, v: usize) -> Vec<usize> {
        [&self.neighbors[v][..], &[v]].concat()
    }

    /// `D̂^-½ Â D̂^-½ x`.
    fn normalised(&self, x: &Rows) -> Rows {
        let degree = |v: usize| (self.neighbors[v].len() + 1) as f64;
        self.sum(x, |v| self.with_itself(v), |v, u| 1.0 / (degree(v) * degree(u)).sqrt())
    }

    fn sum(&self, x: &Rows, of: impl Fn(usize) -> Vec<usize>, factor: impl Fn(usize, usize) -> f64) -> Rows {
        let row = |v: usize| {
            let mut sum = vec![0.0; x[0].len()];
            of(v).into_iter().for_each(|u| sum.iter_mut().zip(&x[u]).for_each(|(s, value)| *s += factor(v, u) * value));
            sum
        };
        (0..x.len()).map(row).collect()
    }

    /// `GATConv` and `GATv2Conv`: the columns of a head stand side by side.
    fn attention(&self, conv: &str, x: &Rows, concat: bool) -> Rows {
        let v2 = self.model.kind == ModelKind::Gatv2;
        let [source, target] = if v2 {
            ["lin_l", "lin_r"].map(|lin| self.linear(&format!("{conv}.{lin}"), x))
        } else {
            let z = self.product(&format!("{conv}.lin.weight"), x);
            [z.clone(), z]
        };
        let names: &[&str] = if v2 { &["att"] } else { &["att_src", "att_dst"] };
        let att: Vec<Vec<f64>> = names.iter().map(|name| self.vector(&format!("{conv}.{name}"))).collect();
        let [_, heads, width] = self.tensor(&format!("{conv}.{}", names[0])).shape[..] else {
            panic!("three dimensions")
        };
        let leaky = |s: f64| if s > 0.0 { s } else { self.model.slope * s };
        let score = |i: usize, j: usize, h: usize| -> f64 {
            let columns = h * width..(h + 1) * width;
            if v2 {
                columns.map(|c| att[0][c] * leaky(source[j][c] + target[i][c])).sum()
            } else {
                leaky(columns.map(|c| att[0][c] * source[j][c] + att[1][c] * target[i][c]).sum())
            }
        };
        let mut out = vec![vec![0.0; if concat { heads * width } else { width }]; x.len()];
        for (i, row) in out.iter_mut().enumerate() {
            for h in 0..heads {
                let all = self.with_itself(i);
                let powers: Vec<f64> = all.iter().map(|&j| score(i, j, h).exp()).collect();
                let total: f64 = powers.iter().sum();
                for (&j, power) in all.iter().zip(&powers) {
                    for k in 0..width {
                        let value = power / total * source[j][h * width + k];
                        if concat {
                            row[h * width + k] += value;
                        } else {
                            row[k] += value / heads as f64;
                        }
                    }
                }
            }
        }
        plus(out, &self.vector(&format!("{conv}.bias")))
    }

    fn layer(&self, i: usize, x: &Rows, is_last: bool) -> Rows {
        let conv = format!("convs.{i}");
        match self.model.kind {
            ModelKind::Gcn => {
                let sum = self.normalised(&self.product(&format!("{conv}.lin.weight"), x));
                plus(sum, &self.vector(&format!("{conv}.bias")))
            }
            ModelKind::Sage => {
                let mean = self.sum(x, |v| self.neighbors[v].clone(), |v, _| 1.0 / self.neighbors[v].len() as f64);
                let own = self.product(&format!("{conv}.lin_r.weight"), x);
                added(&self.linear(&format!("{conv}.lin_l"), &mean), &own, 1.0, 1.0)
            }
            ModelKind::Gin => {
                let own = 1.0 + self.vector(&format!("{conv}.eps"))[0];
                let sum = added(&self.sum(x, |v| self.neighbors[v].clone(), |_, _| 1.0), x, 1.0, own);
                self.linear(&format!("{conv}.nn.2"), &relu(self.linear(&format!("{conv}.nn.0"), &sum)))
            }
            ModelKind::Gat | ModelKind::Gatv2 => self.attention(&conv, x, !is_last),
            _ => self.linear(&format!("lins.{i}"), x),
        }
    }
}

/// Logits of all nodes.
pub(super) fn logits(of: &Reference<'_>, features: &Matrix) -> Rows {
    let mut x: Rows = (0..features.n_rows()).map(|v| features.row(v).iter().map(|&x| f64::from(x)).collect()).collect();
    let model = of.model;
    if model.kind == ModelKind::Sgc {
        (0..model.layers).for_each(|_| x = of.normalised(&x));
        return of.linear("convs.0.lin", &x);
    }
    for i in 0..model.layers {
        let is_last = i + 1 == model.layers;
        x = of.layer(i, &x, is_last);
        if !is_last {
            x = if model.kind.has_heads() { elu(x) } else { relu(x) };
        }
    }
    if model.kind == ModelKind::Appnp {
        let predicted = x.clone();
        for _ in 0..model.hops {
            x = added(&of.normalised(&x), &predicted, 1.0 - model.teleport, model.teleport);
        }
    }
    x
}

fn map(x: Rows, f: impl Fn(f64) -> f64) -> Rows {
    x.into_iter().map(|row| row.into_iter().map(&f).collect()).collect()
}

fn relu(x: Rows) -> Rows {
    map(x, |v| v.max(0.0))
}

fn elu(x: Rows) -> Rows {
    map(x, |v| if v > 0.0 { v } else { v.exp() - 1.0 })
}

fn plus(x: Rows, bias: &[f64]) -> Rows {
    x.into_iter().map(|row| row.iter().zip(bias).map(|(a, b)| a + b).collect()).collect()
}

fn added(x: &Rows, y: &Rows, a: f64, b: f64) -> Rows {
    x.iter().zip(y).map(|(x, y)| x.iter().zip(y).map(|(x, y)| a * x + b * y).collect()).collect()
}

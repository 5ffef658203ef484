//! `gemm`: the three products of a dense layer `Y = X·W` with `X` tall and `W` small.
//!
//! ```text
//! nn   Y  = X·W     n × f  times  f × w       forward
//! nt   dX = G·Wᵀ    n × w  times  w × f       backward to the input
//! tn   dW = Xᵀ·G    f × n  times  n × w       backward to the weights
//! ```

use girih_compute::prelude::*;
use girih_compute::{ComputeError, Cpu, Dtype, Epilogue, Shape, Transpose};

use super::setup::{DTYPES, Setup, random_matrix};
use crate::timing::{Contestant, compete};
use crate::{Case, Error, Report};

/// Nodes, and the features and widths of the two layers of a network 602-128-41.
const NODES: usize = 232_965;
const NODES_SMALL: usize = 20_000;
const LAYERS: [(usize, usize); 2] = [(602, 128), (128, 41)];

type CpuMatrix = <Cpu as Memory>::Matrix;

/// Adds a case for each layer, product and storage type of the tall operands.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let nodes = if setup.small { NODES_SMALL } else { NODES };
    for (features, width) in LAYERS {
        for dtype in DTYPES {
            let mut layer = Layer::new(nodes, features, width, dtype)?;
            let flops = 2.0 * (nodes * features * width) as f64;
            for product in Product::ALL {
                let name = format!("{nodes}x{features}x{width}/{}/{}", product.name(), dtype.name());
                let contestant = Contestant::new(name, || layer.multiply(product));
                for (name, time) in compete(setup.protocol, vec![contestant])? {
                    let gflop_s = flops / time.median_s / 1e9;
                    let share = gflop_s / report.ceilings.fma_gflop_s_all;
                    report.cases.push(Case::new(name, time).with("gflop_s", gflop_s).with("share_of_fma", share));
                }
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Product {
    Nn,
    Nt,
    Tn,
}

impl Product {
    const ALL: [Self; 3] = [Self::Nn, Self::Nt, Self::Tn];

    fn name(self) -> &'static str {
        match self {
            Self::Nn => "nn",
            Self::Nt => "nt",
            Self::Tn => "tn",
        }
    }
}

/// Operands and results of a layer. Tall operands have the measured storage type; results are `f32`.
struct Layer {
    backend: Cpu,
    x: CpuMatrix,
    g: CpuMatrix,
    w: CpuMatrix,
    y: CpuMatrix,
    dx: CpuMatrix,
    dw: CpuMatrix,
}

impl Layer {
    fn new(nodes: usize, features: usize, width: usize, dtype: Dtype) -> Result<Self, Error> {
        let backend = Cpu::default();
        Ok(Self {
            x: backend.upload(&random_matrix(nodes, features)?, dtype)?,
            g: backend.upload(&random_matrix(nodes, width)?, dtype)?,
            w: backend.upload(&random_matrix(features, width)?, Dtype::F32)?,
            y: backend.zeros(Shape::new(nodes, width), Dtype::F32)?,
            dx: backend.zeros(Shape::new(nodes, features), Dtype::F32)?,
            dw: backend.zeros(Shape::new(features, width), Dtype::F32)?,
            backend,
        })
    }

    fn multiply(&mut self, product: Product) -> Result<(), ComputeError> {
        use Transpose::{No, Yes};
        let (a, b, out) = match product {
            Product::Nn => ((&self.x, No), (&self.w, No), &mut self.y),
            Product::Nt => ((&self.g, No), (&self.w, Yes), &mut self.dx),
            Product::Tn => ((&self.x, Yes), (&self.g, No), &mut self.dw),
        };
        self.backend.gemm(a, None, b, Epilogue::default(), out)
    }
}

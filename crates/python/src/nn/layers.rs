//! [`Layer`]: one layer of a model, and passes over all of them, forward and backward, on any backend.
//!
//! ```text
//! H' = mask ⊙ activation(A·H·Wᵀ + b + H[:n]·Vᵀ)     in the cheaper order; without A: H·Wᵀ; the last term where there is V
//! ```

use std::sync::Arc;

use girih_compute::{Activation, ActivationGrad, ComputeError, Dropout, Epilogue, Shape, Transpose};

use super::tensors::{Held, OnTensors};

const NO: Transpose = Transpose::No;
const YES: Transpose = Transpose::Yes;

/// One layer.
pub struct Layer<B: OnTensors> {
    /// Operand `A` (`n × m`); `None` for a linear layer.
    pub a: Option<Arc<B::Sparse>>,
    /// `W` (`d × k`).
    pub weight: Held<B>,
    /// `b` (`1 × d`).
    pub bias: Option<Held<B>>,
    /// `V` (`d × k`), of the destinations; with an operand only.
    pub own: Option<Held<B>>,
    /// Whether `H·Wᵀ` is computed before the product with `A`.
    pub weight_first: bool,
    pub activation: Activation,
    pub dropout: Option<Dropout>,
}

/// Matrices that the backward pass of a layer reads.
pub struct Passed<M> {
    /// Result of the layer; `None` of the last one, which the caller has.
    pub out: Option<M>,
    /// `A·H`, unless the weight comes first.
    pub sums: Option<M>,
}

/// Forward pass of layers, as far as the backward pass reads it.
pub struct Pass<B: OnTensors> {
    pub layers: Vec<Layer<B>>,
    pub x: Held<B>,
    pub out: Held<B>,
    pub passed: Vec<Passed<B::Matrix>>,
}

/// Places of the gradients of a layer's parameters, where they are wanted.
pub struct Grads<B: OnTensors> {
    pub weight: Option<Held<B>>,
    pub bias: Option<Held<B>>,
    pub own: Option<Held<B>>,
}

/// Epilogue that adds to the result.
fn adding<'a, M>(accumulate: bool) -> Epilogue<'a, M> {
    Epilogue { accumulate, ..Epilogue::default() }
}

impl<B: OnTensors> Layer<B> {
    /// Shape of the result for so many rows of `H`.
    fn result(&self, backend: &B, rows: usize) -> Shape {
        let n = self.a.as_ref().map_or(rows, |a| backend.sparse_shape(a).rows);
        Shape::new(n, backend.shape(&self.weight).rows)
    }

    /// Derivative of activation and mask, if there are any.
    fn slope(&self) -> Option<ActivationGrad> {
        (self.activation != Activation::Identity).then(|| ActivationGrad::of(self.activation, self.dropout))
    }

    /// Writes the result, and returns `A·H` where it was computed.
    fn forward(&self, backend: &B, x: &B::Matrix, out: &mut B::Matrix) -> Result<Option<B::Matrix>, ComputeError> {
        let (activation, dropout) = (self.activation, self.dropout);
        let last = |accumulate| Epilogue { accumulate, bias: self.bias.as_deref(), activation, dropout };
        let (of_x, of_out, dtype) = (backend.shape(x), backend.shape(out), backend.dtype(x));
        let Some(a) = &self.a else {
            return backend.gemm((x, NO), None, (&self.weight, YES), last(false), out).map(|()| None);
        };
        let destinations = self.own.as_ref().map(|_| backend.first_rows(x, of_out.rows)).transpose()?;
        let own = self.own.as_deref().zip(destinations.as_deref());
        if self.weight_first {
            let mut product = backend.space(Shape::new(of_x.rows, of_out.cols), dtype)?;
            backend.gemm((x, NO), None, (&self.weight, YES), adding(false), &mut product)?;
            if let Some((own, destinations)) = own {
                backend.gemm((destinations, NO), None, (own, YES), adding(false), out)?;
            }
            return backend.spmm((a, NO), None, &product, last(own.is_some()), out).map(|()| None);
        }
        let mut sums = backend.space(Shape::new(of_out.rows, of_x.cols), dtype)?;
        backend.spmm((a, NO), None, x, adding(false), &mut sums)?;
        match own {
            None => backend.gemm((&sums, NO), None, (&self.weight, YES), last(false), out)?,
            Some((own, destinations)) => {
                backend.gemm((&sums, NO), None, (&self.weight, YES), adding(false), out)?;
                backend.gemm((destinations, NO), None, (own, YES), last(true), out)?;
            }
        }
        Ok(Some(sums))
    }

    /// Gradients of `W` and `V`, and of `H` where `of_x` is given, from that of the result before its activation.
    fn backward(
        &self,
        backend: &B,
        (x, sums): (&B::Matrix, Option<&B::Matrix>),
        grad: &B::Matrix,
        grads: &mut Grads<B>,
        mut of_x: Option<&mut B::Matrix>,
    ) -> Result<(), ComputeError> {
        let (n_rows, dtype) = (backend.shape(grad).rows, backend.dtype(grad));
        if let Some(of_own) = &mut grads.own {
            let destinations = backend.first_rows(x, n_rows)?;
            backend.gemm((grad, YES), None, (&destinations, NO), adding(false), of_own)?;
        }
        let of_weight = grads.weight.as_deref_mut();
        match (&self.a, sums) {
            (None, _) => self.backward_of_product(backend, x, grad, of_weight, of_x.as_deref_mut())?,
            (Some(a), Some(sums)) => {
                if let Some(of_weight) = of_weight {
                    backend.gemm((grad, YES), None, (sums, NO), adding(false), of_weight)?;
                }
                if let Some(of_x) = of_x.as_deref_mut() {
                    let mut of_sums = backend.space(backend.shape(sums), dtype)?;
                    backend.gemm((grad, NO), None, (&self.weight, NO), adding(false), &mut of_sums)?;
                    backend.spmm((a, YES), None, &of_sums, adding(false), of_x)?;
                }
            }
            (Some(a), None) if of_weight.is_some() || of_x.is_some() => {
                let shape = Shape::new(backend.shape(x).rows, backend.shape(grad).cols);
                let mut of_product = backend.space(shape, dtype)?;
                backend.spmm((a, YES), None, grad, adding(false), &mut of_product)?;
                self.backward_of_product(backend, x, &of_product, of_weight, of_x.as_deref_mut())?;
            }
            (Some(_), None) => {}
        }
        let (Some(own), Some(of_x)) = (&self.own, of_x) else { return Ok(()) };
        let mut of_destinations = backend.first_rows_mut(of_x, n_rows)?;
        backend.gemm((grad, NO), None, (own, NO), adding(true), &mut of_destinations)
    }

    /// Gradients of `W` and `H` from that of `H·Wᵀ`.
    fn backward_of_product(
        &self,
        backend: &B,
        x: &B::Matrix,
        grad: &B::Matrix,
        of_weight: Option<&mut B::Matrix>,
        of_x: Option<&mut B::Matrix>,
    ) -> Result<(), ComputeError> {
        if let Some(of_weight) = of_weight {
            backend.gemm((grad, YES), None, (x, NO), adding(false), of_weight)?;
        }
        of_x.map_or(Ok(()), |of_x| backend.gemm((grad, NO), None, (&self.weight, NO), adding(false), of_x))
    }
}

/// Forward pass: the result of the last layer goes to `out`. Returns what the backward pass reads, or nothing unless it
/// is to be kept.
pub fn forward<B: OnTensors>(
    backend: &B,
    layers: &[Layer<B>],
    x: &B::Matrix,
    out: &mut B::Matrix,
    keeps: bool,
) -> Result<Vec<Passed<B::Matrix>>, ComputeError> {
    let mut passed: Vec<Passed<B::Matrix>> = Vec::with_capacity(layers.len());
    for (i, layer) in layers.iter().enumerate() {
        let input = passed.last().and_then(|before| before.out.as_ref()).unwrap_or(x);
        let (sums, result) = if i + 1 == layers.len() {
            (layer.forward(backend, input, out)?, None)
        } else {
            let mut result = backend.space(layer.result(backend, backend.shape(input).rows), backend.dtype(x))?;
            (layer.forward(backend, input, &mut result)?, Some(result))
        };
        if keeps {
            passed.push(Passed { out: result, sums });
        } else {
            passed = vec![Passed { out: result, sums: None }];
        }
    }
    Ok(if keeps { passed } else { Vec::new() })
}

/// Backward pass from `grad`, the gradient of `out`. Writes the gradients that `grads` and `of_x` have places for.
pub fn backward<B: OnTensors>(
    backend: &B,
    Pass { layers, x, out, passed }: &Pass<B>,
    grad: &B::Matrix,
    grads: &mut [Grads<B>],
    mut of_x: Option<&mut B::Matrix>,
) -> Result<(), ComputeError> {
    // Gradient of the result of the layer at hand; `None`: `grad` as it was given.
    let mut own: Option<B::Matrix> = None;
    for (i, (layer, grads)) in layers.iter().zip(grads).enumerate().rev() {
        let result = passed[i].out.as_ref().unwrap_or(out);
        let bias = grads.bias.as_deref_mut();
        if let Some(slope) = layer.slope() {
            if own.is_none() {
                let mut copy = backend.space(backend.shape(grad), backend.dtype(grad))?;
                backend.convert(grad, &mut copy)?;
                own = Some(copy);
            }
            let grad = own.as_mut().expect("it was made");
            backend.epilogue_backward(slope, result, grad, bias)?;
        } else if let Some(bias) = bias {
            backend.column_sums(own.as_ref().unwrap_or(grad), bias)?;
        }
        let input = i.checked_sub(1).and_then(|before| passed[before].out.as_ref());
        let mut of_input = input.map(|input| backend.space(backend.shape(input), backend.dtype(input))).transpose()?;
        let target = of_input.as_mut().or_else(|| of_x.take());
        let operands = (input.unwrap_or(x), passed[i].sums.as_ref());
        layer.backward(backend, operands, own.as_ref().unwrap_or(grad), grads, target)?;
        own = of_input;
    }
    Ok(())
}

//! Dense products, and passes over dense matrices on the reference backend.

use super::{RefIds, RefMatrix, Reference, activated, apply_epilogue};
use crate::{
    Activation, ActivationGrad, ComputeError, DenseOps, Dropout, Dtype, Epilogue, Fits, Function, Shape, Transpose,
};

impl DenseOps for Reference {
    fn run_gemm(
        &self,
        _: Fits,
        (a, ta): (&RefMatrix, Transpose),
        dropout: Option<Dropout>,
        (b, tb): (&RefMatrix, Transpose),
        epilogue: Epilogue<'_, RefMatrix>,
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let mut masked = RefMatrix { dtype: Dtype::F32, ..a.clone() };
        if let Some(dropout) = dropout {
            self.dropout_in_place(dropout, &mut masked)?;
        }
        let depth = if ta == Transpose::No { a.shape.cols } else { a.shape.rows };
        apply_epilogue(&epilogue, out, |r, c| (0..depth).map(|k| masked.read(ta, r, k) * b.read(tb, k, c)).sum());
        Ok(())
    }

    fn run_epilogue_backward(
        &self,
        _: Fits,
        slope: ActivationGrad,
        y: &RefMatrix,
        grad: &mut RefMatrix,
        bias_grad: Option<&mut RefMatrix>,
    ) -> Result<(), ComputeError> {
        grad.update(|r, c, g| g * derivative(slope, y.get(r, c)));
        bias_grad.map_or(Ok(()), |bias_grad| self.column_sums(grad, bias_grad))
    }

    fn run_dropout(&self, _: Fits, x: &RefMatrix, dropout: Dropout, out: &mut RefMatrix) -> Result<(), ComputeError> {
        let first = dropout.first_element(x.shape.cols);
        out.update(|r, c, _| x.get(r, c) * f64::from(dropout.factor(first + x.position(r, c))));
        Ok(())
    }

    fn dropout_in_place(&self, dropout: Dropout, x: &mut RefMatrix) -> Result<(), ComputeError> {
        let (cols, first) = (x.shape.cols, dropout.first_element(x.shape.cols));
        x.update(|r, c, value| value * f64::from(dropout.factor(first + r * cols + c)));
        Ok(())
    }

    fn run_add_scaled(&self, _: Fits, factor: f32, x: &RefMatrix, out: &mut RefMatrix) -> Result<(), ComputeError> {
        out.update(|r, c, old| if r < x.shape.rows { old + f64::from(factor) * x.get(r, c) } else { old });
        Ok(())
    }

    fn run_convert(&self, _: Fits, x: &RefMatrix, out: &mut RefMatrix) -> Result<(), ComputeError> {
        out.update(|r, c, _| x.get(r, c));
        Ok(())
    }

    fn run_gather_rows(&self, _: Fits, x: &RefMatrix, ids: &RefIds, out: &mut RefMatrix) -> Result<(), ComputeError> {
        out.update(|r, c, _| x.get(ids.ids[r] as usize, c));
        Ok(())
    }

    fn run_scatter_add_rows(
        &self,
        _: Fits,
        x: &RefMatrix,
        ids: &RefIds,
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        let mut sums = RefMatrix { dtype: Dtype::F32, ..out.clone() };
        for (r, &id) in ids.ids.iter().enumerate() {
            for c in 0..x.shape.cols {
                sums.set(id as usize, c, sums.get(id as usize, c) + x.get(r, c));
            }
        }
        out.update(|r, c, _| sums.get(r, c));
        Ok(())
    }

    fn run_column_sums(&self, _: Fits, x: &RefMatrix, out: &mut RefMatrix) -> Result<(), ComputeError> {
        out.update(|_, c, _| (0..x.shape.rows).map(|r| x.get(r, c)).sum());
        Ok(())
    }

    fn run_copy_block(
        &self,
        _: Fits,
        shape: Shape,
        x: &RefMatrix,
        from: (usize, usize),
        out: &mut RefMatrix,
        to: (usize, usize),
    ) -> Result<(), ComputeError> {
        let inside =
            |r: usize, c: usize| (to.0..to.0 + shape.rows).contains(&r) && (to.1..to.1 + shape.cols).contains(&c);
        out.update(|r, c, old| if inside(r, c) { x.get(r - to.0 + from.0, c - to.1 + from.1) } else { old });
        Ok(())
    }

    fn run_activate(
        &self,
        _: Fits,
        activation: Activation,
        bias: Option<&RefMatrix>,
        x: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        x.update(|_, c, value| activated(activation, value + bias.map_or(0.0, |bias| bias.get(0, c))));
        Ok(())
    }

    fn run_apply(&self, _: Fits, function: Function, x: &RefMatrix, out: &mut RefMatrix) -> Result<(), ComputeError> {
        out.update(|r, c, _| applied(function, x.get(r, c)).0);
        Ok(())
    }

    fn run_apply_backward(
        &self,
        _: Fits,
        function: Function,
        x: &RefMatrix,
        grad: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        grad.update(|r, c, grad| applied(function, x.get(r, c)).1 * grad);
        Ok(())
    }

    fn run_reshape(&self, _: Fits, x: &RefMatrix, out: &mut RefMatrix) -> Result<(), ComputeError> {
        let (of_x, of_out) = (x.shape.cols, out.shape.cols);
        out.update(|r, c, _| x.get((r * of_out + c) / of_x, (r * of_out + c) % of_x));
        Ok(())
    }

    fn run_unit_circle(&self, _: Fits, x: &RefMatrix, out: &mut RefMatrix) -> Result<(), ComputeError> {
        let width = x.shape.cols;
        out.update(|r, c, _| if c < width { x.get(r, c).cos() } else { x.get(r, c - width).sin() });
        Ok(())
    }

    fn run_scale(&self, _: Fits, factor: f32, x: &RefMatrix, out: &mut RefMatrix) -> Result<(), ComputeError> {
        out.update(|r, c, _| f64::from(factor) * x.get(r, c));
        Ok(())
    }

    fn run_scale_rows(
        &self,
        _: Fits,
        factors: &RefMatrix,
        (x, first): (&RefMatrix, usize),
        out: &mut RefMatrix,
    ) -> Result<(), ComputeError> {
        out.update(|r, c, _| factors.get(r, 0) * x.get(r, first + c));
        Ok(())
    }

    fn run_scale_rows_in_place(&self, _: Fits, factors: &RefMatrix, x: &mut RefMatrix) -> Result<(), ComputeError> {
        x.update(|r, _, value| factors.get(r, 0) * value);
        Ok(())
    }
}

/// Derivative of an epilogue at its result `y`.
fn derivative(slope: ActivationGrad, y: f64) -> f64 {
    match slope.activation {
        Activation::Identity => 1.0,
        Activation::Relu if y > 0.0 => f64::from(slope.kept),
        Activation::Relu => 0.0,
        Activation::Elu if y > 0.0 => 1.0,
        Activation::Elu => y + 1.0,
    }
}

/// Value and derivative of a function.
fn applied(function: Function, x: f64) -> (f64, f64) {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match function {
        Function::Sigmoid => (sigmoid(x), sigmoid(x) * (1.0 - sigmoid(x))),
        Function::Gelu => {
            let [scale, cube] = [Function::GELU_SCALE, Function::GELU_CUBE].map(f64::from);
            let share = sigmoid(2.0 * scale * (x + cube * x.powi(3)));
            let slope = 2.0 * scale * (1.0 + 3.0 * cube * x * x);
            (x * share, share + x * share * (1.0 - share) * slope)
        }
    }
}

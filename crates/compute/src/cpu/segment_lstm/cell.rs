//! LSTM cell on adjacent rows: from gates to memory and state, and its backward pass.
//!
//! Each row has the gates `i`, `f`, `g`, `o` (input, forget, cell, output) one after the other. `i`, `f` and `o` pass
//! a sigmoid, `g` a hyperbolic tangent. Then `c = f ⊙ c' + i ⊙ g` and `h = o ⊙ tanh(c)`.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use crate::cpu::element::Element;
use crate::cpu::exp::{sigmoid, tanh};

/// Forward step of the cell.
pub(super) struct Cell<'a> {
    /// Number of columns of a state.
    pub(super) width: usize,
    /// Inputs of the gates, replaced by the gates.
    pub(super) gates: &'a mut [f32],
    /// Memory before the step.
    pub(super) before: &'a [f32],
    /// Memory after the step.
    pub(super) memory: &'a mut [f32],
    /// State after the step.
    pub(super) states: &'a mut [f32],
}

impl WithSimd for Cell<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { width, gates, before, memory, states } = self;
        let rows = before.chunks_exact(width).zip(memory.chunks_exact_mut(width)).zip(states.chunks_exact_mut(width));
        for (gates, ((before, memory), states)) in gates.chunks_exact_mut(4 * width).zip(rows) {
            let [input, forget, cell, output] = quarters(gates, width);
            for start in (0..width).step_by(S::F32_LANES) {
                let columns = Columns { simd, at: start..(start + S::F32_LANES).min(width) };
                let (i, f) = (sigmoid(simd, columns.load(input)), sigmoid(simd, columns.load(forget)));
                let (g, o) = (tanh(simd, columns.load(cell)), sigmoid(simd, columns.load(output)));
                let c = simd.mul_add_e_f32s(f, columns.load(before), simd.mul_f32s(i, g));
                columns.store(i, input);
                columns.store(f, forget);
                columns.store(g, cell);
                columns.store(o, output);
                columns.store(c, memory);
                columns.store(simd.mul_f32s(o, tanh(simd, c)), states);
            }
        }
    }
}

/// Backward step of the cell.
pub(super) struct CellBackward<'a> {
    /// Number of columns of a state.
    pub(super) width: usize,
    /// Memory before the step.
    pub(super) before: &'a [f32],
    /// Memory after the step.
    pub(super) memory: &'a [f32],
    /// Gradient of the state after the step.
    pub(super) states_grad: &'a [f32],
    /// Gradient of the memory after the step, replaced by that before it.
    pub(super) memory_grad: &'a mut [f32],
    /// Gates, replaced by the gradients of their inputs.
    pub(super) gates: &'a mut [f32],
}

impl WithSimd for CellBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { width, before, memory, states_grad, memory_grad, gates } = self;
        let memories = before.chunks_exact(width).zip(memory.chunks_exact(width));
        let grads = states_grad.chunks_exact(width).zip(memory_grad.chunks_exact_mut(width));
        for ((gates, (before, memory)), (dh, dc)) in gates.chunks_exact_mut(4 * width).zip(memories).zip(grads) {
            let [input, forget, cell, output] = quarters(gates, width);
            for start in (0..width).step_by(S::F32_LANES) {
                let columns = Columns { simd, at: start..(start + S::F32_LANES).min(width) };
                let (i, f) = (columns.load(input), columns.load(forget));
                let (g, o) = (columns.load(cell), columns.load(output));
                let (state_grad, tanh_c) = (columns.load(dh), tanh(simd, columns.load(memory)));
                let through_state = product(simd, [state_grad, o, tanh_slope(simd, tanh_c)]);
                let memory_grad = simd.add_f32s(columns.load(dc), through_state);
                columns.store(product(simd, [memory_grad, g, sigmoid_slope(simd, i)]), input);
                columns.store(product(simd, [memory_grad, columns.load(before), sigmoid_slope(simd, f)]), forget);
                columns.store(product(simd, [memory_grad, i, tanh_slope(simd, g)]), cell);
                columns.store(product(simd, [state_grad, tanh_c, sigmoid_slope(simd, o)]), output);
                columns.store(simd.mul_f32s(memory_grad, f), dc);
            }
        }
    }
}

/// Four gates of a row.
#[inline(always)]
fn quarters(gates: &mut [f32], width: usize) -> [&mut [f32]; 4] {
    let (first, second) = gates.split_at_mut(2 * width);
    let ((input, forget), (cell, output)) = (first.split_at_mut(width), second.split_at_mut(width));
    [input, forget, cell, output]
}

/// One vector of columns of a row; the last one may be partial.
struct Columns<S> {
    simd: S,
    at: Range<usize>,
}

impl<S: Simd> Columns<S> {
    #[inline(always)]
    fn load(&self, row: &[f32]) -> S::f32s {
        f32::load_lanes(self.simd, &row[self.at.clone()])
    }

    #[inline(always)]
    fn store(&self, values: S::f32s, row: &mut [f32]) {
        f32::store_lanes(self.simd, values, &mut row[self.at.clone()]);
    }
}

#[inline(always)]
fn product<S: Simd>(simd: S, [a, b, c]: [S::f32s; 3]) -> S::f32s {
    simd.mul_f32s(simd.mul_f32s(a, b), c)
}

/// Derivative of a sigmoid at its result `y`.
#[inline(always)]
fn sigmoid_slope<S: Simd>(simd: S, y: S::f32s) -> S::f32s {
    simd.mul_f32s(y, simd.sub_f32s(simd.splat_f32s(1.0), y))
}

/// Derivative of a hyperbolic tangent at its result `y`.
#[inline(always)]
fn tanh_slope<S: Simd>(simd: S, y: S::f32s) -> S::f32s {
    simd.sub_f32s(simd.splat_f32s(1.0), simd.mul_f32s(y, y))
}

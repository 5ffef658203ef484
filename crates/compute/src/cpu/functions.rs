//! Element-wise functions whose derivative reads the operand.

use girih_machine::parallel;
use pulp::{Simd, WithSimd};

use super::chunks::CHUNK;
use super::element::Element;
use super::exp::sigmoid;
use super::simd::Isa;
use crate::Function;

/// Computes `out = f(x)`.
pub(crate) fn apply<X: Element, Y: Element>(isa: Isa, function: Function, x: &[X], out: &mut [Y]) {
    each(isa, Piece { function, is_backward: false, x, out });
}

/// Computes `grad = f'(x) ⊙ grad`.
pub(crate) fn apply_backward<X: Element, Y: Element>(isa: Isa, function: Function, x: &[X], grad: &mut [Y]) {
    each(isa, Piece { function, is_backward: true, x, out: grad });
}

/// Elements to which a function or its derivative is applied.
struct Piece<'a, X, Y> {
    function: Function,
    is_backward: bool,
    x: &'a [X],
    out: &'a mut [Y],
}

fn each<X: Element, Y: Element>(isa: Isa, Piece { function, is_backward, x, out }: Piece<'_, X, Y>) {
    parallel::for_each(out.chunks_mut(CHUNK).zip(x.chunks(CHUNK)), |(out, x)| {
        isa.run(Piece { function, is_backward, x, out });
    });
}

impl<X: Element, Y: Element> WithSimd for Piece<'_, X, Y> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (x, out) in self.x.chunks(S::F32_LANES).zip(self.out.chunks_mut(S::F32_LANES)) {
            let x = X::load_lanes(simd, x);
            let value = match (self.function, self.is_backward) {
                (Function::Gelu, false) => gelu(simd, x),
                (Function::Sigmoid, false) => sigmoid(simd, x),
                (Function::Gelu, true) => simd.mul_f32s(gelu_slope(simd, x), Y::load_lanes(simd, out)),
                (Function::Sigmoid, true) => {
                    let share = sigmoid(simd, x);
                    simd.mul_f32s(sigmoid_slope(simd, share), Y::load_lanes(simd, out))
                }
            };
            Y::store_lanes(simd, value, out);
        }
    }
}

/// Derivative of the sigmoid where its value is `share`.
#[inline(always)]
fn sigmoid_slope<S: Simd>(simd: S, share: S::f32s) -> S::f32s {
    simd.mul_f32s(share, simd.sub_f32s(simd.splat_f32s(1.0), share))
}

/// Value `σ(2u)` of GELU, and the square of `x`.
#[inline(always)]
fn gelu_share<S: Simd>(simd: S, x: S::f32s) -> (S::f32s, S::f32s) {
    let square = simd.mul_f32s(x, x);
    let cube = simd.mul_add_e_f32s(square, simd.splat_f32s(Function::GELU_CUBE), simd.splat_f32s(1.0));
    let argument = simd.mul_f32s(simd.mul_f32s(simd.splat_f32s(2.0 * Function::GELU_SCALE), x), cube);
    (sigmoid(simd, argument), square)
}

#[inline(always)]
fn gelu<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    simd.mul_f32s(x, gelu_share(simd, x).0)
}

/// Derivative `σ(2u) + x·σ'(2u)·2u'` of GELU.
#[inline(always)]
fn gelu_slope<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let (share, square) = gelu_share(simd, x);
    let cube = simd.mul_add_e_f32s(square, simd.splat_f32s(3.0 * Function::GELU_CUBE), simd.splat_f32s(1.0));
    let slope = simd.mul_f32s(simd.mul_f32s(simd.splat_f32s(2.0 * Function::GELU_SCALE), cube), x);
    simd.mul_add_e_f32s(slope, sigmoid_slope(simd, share), share)
}

//! Vectorised exponential function, sigmoid and hyperbolic tangent.

use pulp::Simd;

/// Computes `eˣ` for `x <= 0` with a relative error of at most 2⁻²², without branches or calls. `x` below -87 counts
/// as -87.
///
/// With `x = n·log 2 + r`, the polynomial for `eʳ` and the two parts of log 2 are those of Cephes' `expf` (Moshier).
#[inline(always)]
pub(crate) fn exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    /// Rounding constant: adding it to a small number rounds that number into the low bits of the mantissa.
    const ROUND: f32 = 12_582_912.0;
    const LN_2: (f32, f32) = (0.693_359_4, -2.121_944_4e-4);
    const TERMS: [f32; 5] = [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1];
    let x = simd.max_f32s(x, simd.splat_f32s(-87.0));
    let shifted = simd.mul_add_e_f32s(x, simd.splat_f32s(std::f32::consts::LOG2_E), simd.splat_f32s(ROUND));
    let n = simd.sub_f32s(shifted, simd.splat_f32s(ROUND));
    let r = simd.mul_add_e_f32s(n, simd.splat_f32s(-LN_2.0), x);
    let r = simd.mul_add_e_f32s(n, simd.splat_f32s(-LN_2.1), r);
    let mut polynomial = simd.splat_f32s(1.987_569_1e-4);
    for term in TERMS {
        polynomial = simd.mul_add_e_f32s(polynomial, r, simd.splat_f32s(term));
    }
    let result = simd.mul_add_e_f32s(polynomial, simd.mul_f32s(r, r), simd.add_f32s(r, simd.splat_f32s(1.0)));
    // The low bits of `shifted` hold n. Shifted into the exponent, they multiply by 2ⁿ.
    let exponent = simd.wrapping_dyn_shl_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(23));
    simd.transmute_f32s_u32s(simd.add_u32s(exponent, simd.transmute_u32s_f32s(result)))
}

/// Computes the sigmoid `1 / (1 + e⁻ˣ)` within 2⁻²². NaN stays NaN.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let one = simd.splat_f32s(1.0);
    let small = exp(simd, simd.neg_f32s(simd.abs_f32s(x)));
    let is_negative = simd.less_than_f32s(x, simd.splat_f32s(0.0));
    let result = simd.div_f32s(simd.select_f32s(is_negative, small, one), simd.add_f32s(one, small));
    keep_nan(simd, x, result)
}

/// Computes the hyperbolic tangent within 2⁻²². NaN stays NaN.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let one = simd.splat_f32s(1.0);
    let small = exp(simd, simd.mul_f32s(simd.splat_f32s(-2.0), simd.abs_f32s(x)));
    let size = simd.div_f32s(simd.sub_f32s(one, small), simd.add_f32s(one, small));
    let is_negative = simd.less_than_f32s(x, simd.splat_f32s(0.0));
    keep_nan(simd, x, simd.select_f32s(is_negative, simd.neg_f32s(size), size))
}

/// Returns `result`, but NaN where `x` is NaN. [`exp`] treats NaN as a small number, which would hide a diverging
/// model.
#[inline(always)]
fn keep_nan<S: Simd>(simd: S, x: S::f32s, result: S::f32s) -> S::f32s {
    simd.select_f32s(simd.equal_f32s(x, x), result, x)
}

#[cfg(test)]
mod tests {
    use pulp::WithSimd;

    use super::*;
    use crate::cpu::element::Element;
    use crate::cpu::simd::Isa;

    struct Exp<'a>(&'a mut [f32]);

    impl WithSimd for Exp<'_> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            for x in self.0.chunks_mut(S::F32_LANES) {
                f32::store_lanes(simd, exp(simd, f32::load_lanes(simd, x)), x);
            }
        }
    }

    #[test]
    fn exp_is_close_over_its_whole_range() {
        let arguments: Vec<f32> = (0..=870_000).map(|i| i as f32 * -1e-4).collect();
        for isa in Isa::all() {
            let mut found = arguments.clone();
            isa.run(Exp(&mut found));
            for (x, found) in arguments.iter().zip(found) {
                let exact = f64::from(*x).exp();
                let error = (f64::from(found) - exact).abs();
                assert!(error < exact / f64::from(1 << 22), "exp({x}) = {found}, not {exact}, with {}", isa.name());
            }
            let mut limits = [0.0, f32::NEG_INFINITY, f32::MIN];
            isa.run(Exp(&mut limits));
            assert!(limits[0] == 1.0 && limits[1] < 1e-37 && limits[2] < 1e-37);
        }
    }

    struct Gates<'a>(&'a mut [f32], &'a mut [f32]);

    impl WithSimd for Gates<'_> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            for (a, b) in self.0.chunks_mut(S::F32_LANES).zip(self.1.chunks_mut(S::F32_LANES)) {
                f32::store_lanes(simd, sigmoid(simd, f32::load_lanes(simd, a)), a);
                f32::store_lanes(simd, tanh(simd, f32::load_lanes(simd, b)), b);
            }
        }
    }

    #[test]
    fn gates_are_close_and_keep_nan() {
        let mut arguments: Vec<f32> = (-100_000..=100_000).map(|i| i as f32 * 1e-3).collect();
        arguments.extend([f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
        for isa in Isa::all() {
            let (mut sigmoids, mut tangents) = (arguments.clone(), arguments.clone());
            isa.run(Gates(&mut sigmoids, &mut tangents));
            for ((&x, sigmoid), tangent) in arguments.iter().zip(sigmoids).zip(tangents) {
                let exact = [1.0 / (1.0 + (-f64::from(x)).exp()), f64::from(x).tanh()];
                for (found, exact) in [sigmoid, tangent].into_iter().zip(exact) {
                    let close = (f64::from(found) - exact).abs() < 1.0 / f64::from(1 << 22);
                    assert!(
                        close || (x.is_nan() && found.is_nan()),
                        "{found} at {x}, not {exact}, with {}",
                        isa.name()
                    );
                }
            }
        }
    }
}

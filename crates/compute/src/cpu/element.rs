//! [`Element`]: element type of kernels that are generic over the storage type.

use half::bf16;
use pulp::Simd;

use crate::Dtype;

/// Stored number. It is read as `f32` and written with rounding to nearest even.
pub(crate) trait Element: bytemuck::Pod + Send + Sync {
    /// Storage type of the element.
    const DTYPE: Dtype;

    fn to_f32(self) -> f32;
    fn from_f32(value: f32) -> Self;

    /// Loads `elements` into a vector. Lanes beyond their number are zero.
    #[inline(always)]
    fn load_lanes<S: Simd>(simd: S, elements: &[Self]) -> S::f32s {
        let mut values = simd.splat_f32s(0.0);
        let lanes: &mut [f32] = bytemuck::cast_slice_mut(std::slice::from_mut(&mut values));
        if elements.len() == lanes.len() {
            // With a length known to the compiler, the loop becomes one vector conversion.
            (0..S::F32_LANES).for_each(|lane| lanes[lane] = elements[lane].to_f32());
        } else {
            lanes.iter_mut().zip(elements).for_each(|(lane, element)| *lane = element.to_f32());
        }
        values
    }

    /// Writes the first lanes of `values`, as many as `out` holds.
    #[inline(always)]
    fn store_lanes<S: Simd>(_: S, values: S::f32s, out: &mut [Self]) {
        let lanes: &[f32] = bytemuck::cast_slice(std::slice::from_ref(&values));
        if out.len() == lanes.len() {
            (0..S::F32_LANES).for_each(|lane| out[lane] = Self::from_f32(lanes[lane]));
        } else {
            out.iter_mut().zip(lanes).for_each(|(out, &lane)| *out = Self::from_f32(lane));
        }
    }
}

impl Element for f32 {
    const DTYPE: Dtype = Dtype::F32;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }

    #[inline(always)]
    fn load_lanes<S: Simd>(simd: S, elements: &[Self]) -> S::f32s {
        // Whole vectors need no mask, which would slow the stores.
        match S::as_simd_f32s(elements).0 {
            [values, ..] => *values,
            [] => simd.partial_load_f32s(elements),
        }
    }

    #[inline(always)]
    fn store_lanes<S: Simd>(simd: S, values: S::f32s, out: &mut [Self]) {
        match S::as_mut_simd_f32s(out).0 {
            [out, ..] => *out = values,
            [] => simd.partial_store_f32s(out, values),
        }
    }
}

impl Element for bf16 {
    const DTYPE: Dtype = Dtype::Bf16;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    /// The code has no branches, so that loops around it vectorise.
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        // Rounding could turn a NaN into infinity or zero; a set quiet bit keeps it a NaN.
        let nan = bits >> 16 | 0x40;
        bf16::from_bits(if value.is_nan() { nan } else { rounded } as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rounding_agrees_with_the_half_crate(bits: u32) {
            let value = f32::from_bits(bits);
            prop_assert_eq!(<bf16 as Element>::from_f32(value).to_bits(), bf16::from_f32(value).to_bits());
            let stored = bf16::from_bits(bits as u16);
            // half turns signalling NaNs into quiet ones; a widening that stays one shift does not.
            prop_assert!(stored.is_nan() || Element::to_f32(stored).to_bits() == stored.to_f32().to_bits());
        }
    }
}

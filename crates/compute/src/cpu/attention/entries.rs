//! Operations on a block of entries: exponentials, masks, dot products of gathered rows, and weighted sums of them.

use pulp::Simd;

use super::table::Table;
use super::{AHEAD, Masks};
use crate::GlobalIds;
use crate::cpu::exp::exp;
use crate::cpu::mask::{LANES, philox_lanes};
use crate::dropout::HALVES;

/// Number of vectors of sums that stay in registers.
const VECTORS_MAX: usize = 4;

/// Computes `x = eˣ` in place, for `x <= 0`. It works on whole vectors, so `values` may need padding.
#[inline(always)]
pub(super) fn exponentials<S: Simd>(simd: S, values: &mut [f32]) {
    let (vectors, rest) = S::as_mut_simd_f32s(values);
    for x in vectors {
        *x = exp(simd, *x);
    }
    if !rest.is_empty() {
        let x = exp(simd, simd.partial_load_f32s(rest));
        simd.partial_store_f32s(rest, x);
    }
}

/// Gathers `out[e, h] = table[cols[e]][first + h]`. Rows of the columns `ahead`, which follow, are prefetched.
#[inline(always)]
pub(super) fn gather(heads: usize, table: &Table<'_>, first: usize, (cols, ahead): (&[u32], &[u32]), out: &mut [f32]) {
    for (e, (&col, out)) in cols.iter().zip(out.chunks_exact_mut(heads)).enumerate() {
        if let Some(&col) = ahead.get(e) {
            table.prefetch(col);
        }
        out.copy_from_slice(&table.row(col as usize)[first..][..heads]);
    }
}

/// Repeats a row: `out[e, h] = row[h]`.
#[inline(always)]
pub(super) fn repeat(heads: usize, row: &[f32], out: &mut [f32]) {
    let row = &row[..heads];
    for out in out.chunks_exact_mut(heads) {
        out.copy_from_slice(row);
    }
}

/// Computes `fold[h] = f(fold[h], …)` over `values[e, h]` of the entries. The order depends on the number of entries
/// alone.
#[inline(always)]
pub(super) fn fold<S: Simd>(
    simd: S,
    heads: usize,
    values: &[f32],
    fold: &mut [f32],
    f: impl Fn(S, S::f32s, S::f32s) -> S::f32s,
    scalar: impl Fn(f32, f32) -> f32,
) {
    let fold = &mut fold[..heads];
    let mut rest = values;
    if S::F32_LANES.is_multiple_of(heads) && values.len() >= S::F32_LANES {
        let (vectors, tail) = S::as_simd_f32s(values);
        let mut lanes = vectors[0];
        for &vector in &vectors[1..] {
            lanes = f(simd, lanes, vector);
        }
        let lanes: &[f32] = bytemuck::cast_slice(std::slice::from_ref(&lanes));
        for lanes in lanes.chunks_exact(heads) {
            fold.iter_mut().zip(lanes).for_each(|(fold, &lane)| *fold = scalar(*fold, lane));
        }
        rest = tail;
    }
    for values in rest.chunks_exact(heads) {
        fold.iter_mut().zip(values).for_each(|(fold, &value)| *fold = scalar(*fold, value));
    }
}

/// As [`fold`], with addition.
#[inline(always)]
pub(super) fn add_up<S: Simd>(simd: S, heads: usize, values: &[f32], sums: &mut [f32]) {
    fold(
        simd,
        heads,
        values,
        sums,
        #[inline(always)]
        |simd, a, b| simd.add_f32s(a, b),
        #[inline(always)]
        |a, b| a + b,
    );
}

impl Masks<'_> {
    /// Fills the dropout factors (`heads` per entry) of the entries of `row` in `cols`, as
    /// [`Dropout::entry_factor`](crate::Dropout::entry_factor) defines them. Without dropout, it does nothing.
    #[inline(always)]
    pub(super) fn fill(&self, heads: usize, row: usize, cols: &[u32], factors: &mut [f32]) {
        let Some(dropout) = self.dropout else { return };
        let (key, threshold, scale) = (dropout.key().words(), dropout.threshold(), dropout.scale());
        let name = self.name(self.transposed, row as u32);
        for (cols, factors) in cols.chunks(LANES).zip(factors.chunks_mut(LANES * heads)) {
            let mut lanes = [0; LANES];
            lanes.iter_mut().zip(cols).for_each(|(lane, &col)| *lane = self.name(!self.transposed, col));
            for first_head in (0..heads).step_by(HALVES) {
                let counter = |lane: usize| {
                    let (row, col) = if self.transposed { (lanes[lane], name) } else { (name, lanes[lane]) };
                    [col, row, 1 + (first_head / HALVES) as u32, 0]
                };
                let words = philox_lanes(counter, key);
                for (lane, factors) in factors.chunks_exact_mut(heads).enumerate() {
                    let factors = &mut factors[first_head..heads.min(first_head + HALVES)];
                    for (half, factor) in factors.iter_mut().enumerate() {
                        let bits = words[half / 2][lane] >> (16 * (half % 2)) & 0xffff;
                        *factor = if bits < threshold { 0.0 } else { scale };
                    }
                }
            }
        }
    }

    /// Global id of a column of the pattern, or of a row.
    #[inline(always)]
    fn name(&self, is_column: bool, id: u32) -> u32 {
        if is_column { GlobalIds::col(self.names, id) } else { GlobalIds::row(self.names, id) }
    }
}

/// Computes `dots[e, h] = Σ_k near[c] · far[cols[e]][c]` with `c = k · heads + h`. The padding of rows is zero. Rows
/// of the columns `ahead`, which follow, are prefetched.
#[inline(always)]
pub(super) fn head_dots<S: Simd>(
    simd: S,
    heads: usize,
    near: &[f32],
    far: &Table<'_>,
    (cols, ahead): (&[u32], &[u32]),
    dots: &mut [f32],
) {
    for (e, (&col, dots)) in cols.iter().zip(dots.chunks_exact_mut(heads)).enumerate() {
        if let Some(&col) = ahead.get(e) {
            far.prefetch(col);
        }
        let far = far.row(col as usize);
        if !S::F32_LANES.is_multiple_of(heads) {
            dots.fill(0.0);
            for (near, far) in near.chunks_exact(heads).zip(far.chunks_exact(heads)) {
                for h in 0..heads {
                    dots[h] += near[h] * far[h];
                }
            }
            continue;
        }
        // Lane `l` sums head `l mod heads`.
        let mut sums = simd.splat_f32s(0.0);
        for (&near, &far) in S::as_simd_f32s(near).0.iter().zip(S::as_simd_f32s(far).0) {
            sums = simd.mul_add_e_f32s(near, far, sums);
        }
        let lanes: &[f32] = bytemuck::cast_slice(std::slice::from_ref(&sums));
        dots.copy_from_slice(&lanes[..heads]);
        for lanes in lanes[heads..].chunks_exact(heads) {
            for h in 0..heads {
                dots[h] += lanes[h];
            }
        }
    }
}

/// Weights of entries, repeated over heads. A vector loaded at the right offset then fits any range of columns.
#[derive(Default)]
pub(super) struct Repeated {
    weights: Vec<f32>,
    /// Number of elements per entry.
    stride: usize,
}

impl Repeated {
    /// Repeats `weights`, of which each entry has `heads`.
    #[inline(always)]
    pub(super) fn fill<S: Simd>(&mut self, heads: usize, weights: &[f32]) {
        let lanes = S::F32_LANES;
        let phased = !lanes.is_multiple_of(heads);
        self.stride = if phased { lanes + heads } else { lanes };
        self.weights.resize(weights.len() / heads * self.stride, 0.0);
        for (weights, repeated) in weights.chunks_exact(heads).zip(self.weights.chunks_exact_mut(self.stride)) {
            let weights = &weights[..heads];
            if phased {
                repeated.iter_mut().enumerate().for_each(|(i, repeated)| *repeated = weights[i % heads]);
            } else {
                // The compiler knows both lengths as constants here.
                let repeated = &mut repeated[..lanes];
                for lane in 0..lanes {
                    repeated[lane] = weights[lane % heads];
                }
            }
        }
    }

    /// Computes `sums += Σ_e weights[e] ⊙ far[cols[e]]`, in whole vectors.
    #[inline(always)]
    pub(super) fn add_rows<S: Simd>(
        &self,
        simd: S,
        heads: usize,
        far: &Table<'_>,
        (cols, ahead): (&[u32], &[u32]),
        sums: &mut [f32],
    ) {
        let step = VECTORS_MAX * S::F32_LANES;
        let mut first = 0;
        while first + step <= sums.len() {
            let ahead = if first == 0 { ahead } else { &[] };
            self.add_vectors::<S, VECTORS_MAX>(
                simd,
                (heads, first),
                far,
                (cols, ahead),
                &mut sums[first..first + step],
            );
            first += step;
        }
        while first < sums.len() {
            let sums = &mut sums[first..first + S::F32_LANES];
            self.add_vectors::<S, 1>(simd, (heads, first), far, (cols, ahead), sums);
            first += S::F32_LANES;
        }
    }

    #[inline(always)]
    fn add_vectors<S: Simd, const NV: usize>(
        &self,
        simd: S,
        (heads, first): (usize, usize),
        far: &Table<'_>,
        (cols, ahead): (&[u32], &[u32]),
        sums: &mut [f32],
    ) {
        let lanes = S::F32_LANES;
        let mut phases = [0; NV];
        if self.stride != lanes {
            for v in 0..NV {
                phases[v] = (first + v * lanes) % heads;
            }
        }
        let out = &mut S::as_mut_simd_f32s(sums).0[..NV];
        let mut acc = [simd.splat_f32s(0.0); NV];
        acc.copy_from_slice(out);
        for (e, (&col, weights)) in cols.iter().zip(self.weights.chunks_exact(self.stride)).enumerate() {
            if let Some(&col) = ahead.get(e) {
                far.prefetch(col);
            }
            let row = &S::as_simd_f32s(&far.row(col as usize)[first..]).0[..NV];
            for v in 0..NV {
                let weight = S::as_simd_f32s(&weights[phases[v]..phases[v] + lanes]).0[0];
                acc[v] = simd.mul_add_e_f32s(weight, row[v], acc[v]);
            }
        }
        out.copy_from_slice(&acc);
    }
}

/// Columns [`AHEAD`] entries after `start..end`, as far as they exist.
#[inline(always)]
pub(super) fn columns_ahead(indices: &[u32], start: usize, end: usize) -> &[u32] {
    let clamp = |at: usize| (at + AHEAD).min(indices.len());
    &indices[clamp(start)..clamp(end)]
}

//! Pieces of fixed size: how work is spread over threads without the number of threads showing in a result.

use pulp::Arch;
use rayon::prelude::*;

/// Elements in a piece: 64 KiB of `f32`, so that a second look at a piece finds it in the L2 cache.
pub(crate) const CHUNK: usize = 1 << 14;

/// Rows in a piece of a matrix with `cols` columns; at least one.
pub(crate) fn rows_per_chunk(cols: usize) -> usize {
    (CHUNK / cols.max(1)).max(1)
}

/// Elements in a piece of whole rows of `cols` columns; at least one.
pub(crate) fn row_chunk_len(cols: usize) -> usize {
    rows_per_chunk(cols) * cols.max(1)
}

/// Cuts rows of `width` elements into consecutive parts of the given numbers of rows.
pub(crate) fn split_rows<T>(
    mut values: &mut [T],
    width: usize,
    counts: impl Iterator<Item = usize>,
) -> impl Iterator<Item = &mut [T]> {
    counts.map(move |count| {
        let (part, rest) = std::mem::take(&mut values).split_at_mut(count * width);
        values = rest;
        part
    })
}

/// Calls `kernel(piece of x, same piece of out)` for every piece, with the widest
/// vectors that the machine has.
///
/// `kernel` must be marked `#[inline(always)]`: what is not inlined is compiled for the oldest processor.
pub(crate) fn zip_chunks<X: Sync, Y: Send>(x: &[X], out: &mut [Y], kernel: impl Fn(&[X], &mut [Y]) + Sync) {
    let arch = Arch::new();
    let pieces = out.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK));
    pieces.for_each(|(out, x)| {
        arch.dispatch(
            #[inline(always)]
            || kernel(x, out),
        );
    });
}

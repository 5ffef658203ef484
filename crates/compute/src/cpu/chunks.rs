//! Chunks of fixed size, which distribute work over threads so that results do not depend on the number of threads.

use girih_machine::parallel;
use pulp::Arch;

/// Number of elements in a chunk: 64 KiB of `f32`, so that a second read of a chunk hits the L2 cache.
pub(crate) const CHUNK: usize = 1 << 14;

/// Number of rows in a chunk of a matrix with `cols` columns; at least one.
pub(crate) fn rows_per_chunk(cols: usize) -> usize {
    (CHUNK / cols.max(1)).max(1)
}

/// Number of elements in a chunk of whole rows of `cols` columns; at least one.
pub(crate) fn row_chunk_len(cols: usize) -> usize {
    rows_per_chunk(cols) * cols.max(1)
}

/// Splits rows of `width` elements into consecutive parts of the given numbers of rows.
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

/// Calls `kernel(chunk of x, same chunk of out)` for every chunk, with the widest vectors of the machine.
///
/// `kernel` must be marked `#[inline(always)]`: code that is not inlined is compiled for the oldest CPU.
pub(crate) fn zip_chunks<X: Sync, Y: Send>(x: &[X], out: &mut [Y], kernel: impl Fn(&[X], &mut [Y]) + Sync) {
    let arch = Arch::new();
    parallel::for_each(out.chunks_mut(CHUNK).zip(x.chunks(CHUNK)), |(out, x)| {
        arch.dispatch(
            #[inline(always)]
            || kernel(x, out),
        );
    });
}

// The transpose of a pattern that was made on the device. Entries of a column keep the order that they have in the pattern, so that
// sums over them do not depend on who was first.
#include "common.cuh"
#include "sampling.cuh"

static const u32 THREADS = ABI_BLOCK;
// Lanes of a row or a column, which are short.
static const u32 LANES = ABI_TRANSPOSE_LANES;
// Columns of more entries are long: blocks order pieces of them, of as many entries as they have threads.
static const u32 SHORT = ABI_TRANSPOSE_SHORT;

// How many entries each column has. Counts are zero before, and so is what tiles tell each other.
extern "C" __global__ void count_columns(const u32 *indices, u64 n, u32 *counts) {
    for (u64 entry = first_thread(); entry < n; entry += n_threads()) atomicAdd(&counts[indices[entry]], 1u);
}

// Where the entries of each column begin, a tile of columns a block; counts become zero again. Pieces of long columns are listed in
// any order, a column and the number of its piece in a word; how many there are is zero before.
extern "C" __global__ void __launch_bounds__(THREADS) offsets_of_columns(u32 *counts, u64 n_columns, u64 *indptr, u64 *tiles,
                                                                         unsigned long long *n_pieces, u64 *pieces) {
    __shared__ u64 sums[THREADS / 32];
    __shared__ u64 first_of_tile;
    const u64 column = (u64)blockIdx.x * THREADS + threadIdx.x;
    const u64 own = column < n_columns ? counts[column] : 0;
    u64 n_of_tile;
    const u64 before = sum_before(own, sums, n_of_tile);
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) tell_own(tiles, blockIdx.x, n_of_tile);
        const u64 sum = sum_of_tiles_before(tiles, blockIdx.x, n_of_tile);
        if (threadIdx.x == 0) first_of_tile = sum;
    }
    __syncthreads();
    if (first_thread() == 0 && n_columns == 0) indptr[0] = 0;
    if (column >= n_columns) return;
    counts[column] = 0;
    indptr[column] = first_of_tile + before;
    if (column + 1 == n_columns) indptr[n_columns] = first_of_tile + before + own;
    if (own <= SHORT) return;
    const u64 of_column = (own + THREADS - 1) / THREADS, first = atomicAdd(n_pieces, of_column);
    for (u64 piece = 0; piece < of_column; piece++) pieces[first + piece] = column << 32 | piece;
}

// Lists the entries of each column in any order, and for each entry its row. Without offsets each row has one entry.
extern "C" __global__ void list_entries(const u64 *indptr, const u32 *indices, u64 n_rows, const u64 *columns, u32 *counts,
                                        u32 *entries, u32 *rows) {
    for (u64 row = first_thread() / LANES; row < n_rows; row += n_threads() / LANES) {
        const u64 begin = indptr ? indptr[row] : row, end = indptr ? indptr[row + 1] : row + 1;
        for (u64 entry = begin + threadIdx.x % LANES; entry < end; entry += LANES) {
            const u32 column = indices[entry];
            entries[columns[column] + atomicAdd(&counts[column], 1u)] = (u32)entry;
            rows[entry] = (u32)row;
        }
    }
}

// What is known of entries, here and in the transpose.
struct Ordered {
    const u32 *rows;
    const float *values;
    u32 *indices;
    u64 *positions;
    float *out_values;

    __device__ __forceinline__ void put(u32 entry, u64 at) const {
        indices[at] = rows[entry];
        positions[at] = entry;
        if (values) out_values[at] = values[entry];
    }
};

// Puts the entries of each column in their order, by how many of them come before.
extern "C" __global__ void __launch_bounds__(THREADS) order_entries(const u64 *columns, u64 n_columns, const u64 *n_pieces,
                                                                    const u64 *pieces, const u32 *entries, Ordered ordered) {
    __shared__ u32 some[THREADS];
    const u32 lane = threadIdx.x % LANES;
    for (u64 column = first_thread() / LANES; column < n_columns; column += n_threads() / LANES) {
        const u64 begin = columns[column], end = columns[column + 1];
        if (end - begin > SHORT) continue;
        for (u64 i = begin + lane; i < end; i += LANES) {
            const u32 entry = entries[i];
            u64 at = begin;
            for (u64 j = begin; j < end; j++) at += entries[j] < entry ? 1 : 0;
            ordered.put(entry, at);
        }
    }
    const u64 n = *n_pieces;
    for (u64 piece = blockIdx.x; piece < n; piece += gridDim.x) {
        const u64 column = pieces[piece] >> 32, begin = columns[column], end = columns[column + 1];
        const u64 i = begin + (u32)pieces[piece] * (u64)THREADS + threadIdx.x;
        const u32 entry = i < end ? entries[i] : 0;
        u64 at = begin;
        for (u64 first = begin; first < end; first += THREADS) {
            __syncthreads();
            // No entry comes behind this one.
            some[threadIdx.x] = first + threadIdx.x < end ? entries[first + threadIdx.x] : ~0u;
            __syncthreads();
            for (u32 j = 0; j < THREADS; j++) at += some[j] < entry ? 1 : 0;
        }
        if (i < end) ordered.put(entry, at);
    }
}

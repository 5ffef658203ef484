// Finds the blocks of a pattern that are dense enough to be multiplied as blocks (see tiles.cu), and parts them from the rest.
// A thread block works on a window of rows at a time, and counts in `panels` numbers of its own: one for each 64 columns.
// ROWS, PANEL: rows and columns of a block, 256 × 64 for tensor cores or 32 × 32 for tiles_paper.cu.
// Constants: ROWS=ABI_WINDOW PANEL=ABI_PANEL
// Constants: ROWS=ABI_PAPER_TILE PANEL=ABI_PAPER_TILE
#include "common.cuh"

struct Tiling {
    const u64 *indptr;
    const u32 *indices;
    u64 n_rows;
    u64 n_panels;
    // Entries that make a block.
    u32 least;
    // Of all thread blocks.
    u32 *counts;

    __device__ __forceinline__ u32 *own_counts() const { return counts + blockIdx.x * n_panels; }
    __device__ __forceinline__ u64 n_windows() const { return (n_rows + ROWS - 1) / ROWS; }
    __device__ __forceinline__ u64 last_row(u64 window) const {
        return (window + 1) * ROWS < n_rows ? (window + 1) * ROWS : n_rows;
    }
};

// Counts the entries of each panel of a window.
__device__ __forceinline__ void count_panels(const Tiling &a, u64 window, u32 *counts) {
    for (u64 panel = threadIdx.x; panel < a.n_panels; panel += blockDim.x) counts[panel] = 0;
    __syncthreads();
    const u64 end = a.indptr[a.last_row(window)];
    for (u64 entry = a.indptr[window * ROWS] + threadIdx.x; entry < end; entry += blockDim.x)
        atomicAdd(counts + a.indices[entry] / PANEL, 1u);
    __syncthreads();
}

// Numbers of entries at which candidates for `least` begin, ascending.
static const u32 CANDIDATES = ABI_N_CANDIDATES;
struct Candidates {
    u32 of[CANDIDATES];
};

// How many blocks have how many entries, how many entries these are together, and how many windows have them in their densest
// block: bin b is for as many as b candidates allow. Numbers are zero before. Blocks without entries are not counted.
extern "C" __global__ void __launch_bounds__(ABI_BLOCK)
    count_fills(Tiling a, Candidates candidates, u64 *blocks, u64 *entries, u64 *windows) {
    __shared__ u64 sums[3][CANDIDATES + 1];
    __shared__ u32 densest;
    if (threadIdx.x < 3 * (CANDIDATES + 1)) sums[threadIdx.x % 3][threadIdx.x / 3] = 0;
    u32 *counts = a.own_counts();
    for (u64 window = blockIdx.x; window < a.n_windows(); window += gridDim.x) {
        if (threadIdx.x == 0) densest = 0;
        count_panels(a, window, counts);
        u32 highest = 0;
        for (u64 panel = threadIdx.x; panel < a.n_panels; panel += blockDim.x) {
            const u32 count = __ldcg(counts + panel);
            u32 bin = 0;
#pragma unroll
            for (u32 i = 0; i < CANDIDATES; i++) bin += count >= candidates.of[i];
            if (count > 0) {
                atomicAdd(&sums[0][bin], (u64)1);
                atomicAdd(&sums[1][bin], (u64)count);
            }
            highest = bin > highest ? bin : highest;
        }
        atomicMax(&densest, highest);
        __syncthreads();
        if (threadIdx.x == 0) sums[2][densest]++;
    }
    __syncthreads();
    // Whole numbers: the order in which they come does not matter.
    if (threadIdx.x <= CANDIDATES) {
        atomicAdd(blocks + threadIdx.x, sums[0][threadIdx.x]);
        atomicAdd(entries + threadIdx.x, sums[1][threadIdx.x]);
        atomicAdd(windows + threadIdx.x, sums[2][threadIdx.x]);
    }
}

// How many blocks each window has, and how many entries of each row lie outside.
extern "C" __global__ void __launch_bounds__(ABI_BLOCK) count_blocks(Tiling a, u32 *blocks, u32 *rest) {
    u32 *counts = a.own_counts();
    for (u64 window = blockIdx.x; window < a.n_windows(); window += gridDim.x) {
        count_panels(a, window, counts);
        u32 n = 0;
        for (u64 panel = threadIdx.x; panel < a.n_panels; panel += blockDim.x) n += __ldcg(counts + panel) >= a.least;
        n = block_sum(n);
        if (threadIdx.x == 0) blocks[window] = n;
        const u64 end = a.last_row(window);
        for (u64 row = window * ROWS + threadIdx.x / 32; row < end; row += blockDim.x / 32) {
            u32 outside = 0;
            for (u64 entry = a.indptr[row] + threadIdx.x % 32; entry < a.indptr[row + 1]; entry += 32)
                outside += __ldcg(counts + a.indices[entry] / PANEL) < a.least;
#pragma unroll
            for (int lanes = 16; lanes > 0; lanes >>= 1) outside += __shfl_xor_sync(~0u, outside, lanes);
            if (threadIdx.x % 32 == 0) rest[row] = outside;
        }
        __syncthreads();
    }
}

// Numbers the blocks of a window from `first` on, by panel: a count becomes the number of the block and one more, or zero.
__device__ __forceinline__ void number_blocks(const Tiling &a, u32 first, u32 *counts, u32 *columns) {
    __shared__ u32 of_warps[8];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (u64 base = 0; base < a.n_panels; base += blockDim.x) {
        const u64 panel = base + threadIdx.x;
        const bool dense = panel < a.n_panels && __ldcg(counts + panel) >= a.least;
        const u32 in_warp = __ballot_sync(~0u, dense);
        if (lane == 0) of_warps[warp] = __popc(in_warp);
        __syncthreads();
        u32 before = first + __popc(in_warp & ((1u << lane) - 1)), all = 0;
        for (u32 other = 0; other < 8; other++) {
            before += other < warp ? of_warps[other] : 0;
            all += of_warps[other];
        }
        if (panel < a.n_panels) counts[panel] = dense ? before + 1 : 0;
        if (dense) columns[before] = (u32)(panel * PANEL);
        first += all;
        __syncthreads();
    }
}

// The word and the bit of a place in a window's block, counted from the block's first word: see tiles.cu.
__device__ __forceinline__ u32 word_of(u32 row, u32 column) {
    if (ROWS == 32) return row;
    return row / 64 * 128 + row % 64 / 16 * 32 + row % 8 * 4 + column % 8 / 2;
}
__device__ __forceinline__ u32 bit_of(u32 row, u32 column) {
    if (ROWS == 32) return column;
    return column / 16 * 4 + row % 16 / 8 + column % 16 / 8 * 2 + column % 2 * 16;
}

// Writes blocks and the rest. `first` is the number of the first block of each window; bits are zero before.
extern "C" __global__ void __launch_bounds__(ABI_BLOCK) fill_blocks(Tiling a, const u32 *first, u32 *columns, u32 *bits,
                                                              const u64 *rest_indptr, u32 *rest_indices) {
    u32 *counts = a.own_counts();
    for (u64 window = blockIdx.x; window < a.n_windows(); window += gridDim.x) {
        count_panels(a, window, counts);
        number_blocks(a, first[window], counts, columns);
        const u64 end = a.last_row(window);
        const u32 lane = threadIdx.x % 32;
        for (u64 row = window * ROWS + threadIdx.x / 32; row < end; row += blockDim.x / 32) {
            u64 out = rest_indptr[row];
            for (u64 base = a.indptr[row]; base < a.indptr[row + 1]; base += 32) {
                const bool there = base + lane < a.indptr[row + 1];
                const u32 column = there ? a.indices[base + lane] : 0;
                const u32 block = there ? __ldcg(counts + column / PANEL) : 0;
                const u32 outside = __ballot_sync(~0u, there && block == 0);
                if (block > 0) {
                    const u32 at = (u32)(row % ROWS), within = column % PANEL;
                    atomicOr(bits + (u64)(block - 1) * (ROWS * PANEL / 32) + word_of(at, within), 1u << bit_of(at, within));
                } else if (there) {
                    rest_indices[out + __popc(outside & ((1u << lane) - 1))] = column;
                }
                out += __popc(outside);
            }
        }
        __syncthreads();
    }
}

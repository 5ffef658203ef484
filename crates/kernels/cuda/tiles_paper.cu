// Tiles of a sparse pattern times a dense matrix, as paper A has it (algorithm 3): one warp works on a tile of 32 × 32, which
// is staged through shared memory with the 32 rows of the matrix that it multiplies. It is what the kernels for tensor cores
// are compared with.
//
// Other than there, a warp stays with the tiles of its 32 rows, one after the other, so that each sum has one writer and one
// order. The eight warps of a thread block share a window. A window with many tiles is cut into shares, each of which takes
// its part of every row of tiles and leaves sums in a slot of its own.
// X is the storage of the matrix, Y of sums.
// Elements: X, Y
#include "common.cuh"

static const u32 TILE = ABI_PAPER_TILE, WARPS = WINDOW / TILE;

struct Share {
    u32 slot, window, part, n_parts;
};

struct Matrix {
    const X *data;
    // Elements from row to row.
    u64 pitch, rows, cols;
};

// Copies the 32 words of a tile, and the 32 columns from `column - lane` on of the rows that it multiplies.
__device__ __forceinline__ void stage(const Matrix &x, u64 first_row, u64 column, const u32 *words, u32 *tile,
                                      float (*rows)[TILE]) {
    const u32 lane = threadIdx.x % 32;
    tile[lane] = words[lane];
#pragma unroll 8
    for (u32 i = 0; i < TILE; i++) {
        const bool there = first_row + i < x.rows && column < x.cols;
        rows[i][lane] = there ? to_f32(x.data[(first_row + i) * x.pitch + column]) : 0.0f;
    }
}

// Adds the rows that a tile names to the sums of its own rows, by ascending column.
__device__ __forceinline__ void multiply(const u32 *tile, const float (*rows)[TILE], float (&sums)[TILE]) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 r = 0; r < TILE; r++)
        for (u32 word = tile[r]; word; word &= word - 1) sums[r] += rows[__ffs(word) - 1][lane];
}

// `first` is the number of the first tile of each of `n_tile_rows` rows of tiles, and of one more.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
    tiles_paper(Matrix x, const Share *shares, u32 n_shares, const u32 *first, u32 n_tile_rows, const u32 *columns,
                const u32 *bits, Y *out, u64 pitch) {
    __shared__ u32 tiles[WARPS][TILE];
    __shared__ float rows[WARPS][TILE][TILE];
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u64 column = (u64)blockIdx.y * TILE + lane;
    for (u32 i = blockIdx.x; i < n_shares; i += gridDim.x) {
        const Share share = shares[i];
        const u32 tile_row = share.window * WARPS + warp;
        // The last window may have fewer rows of tiles; its sums are zeros.
        const u32 begin = tile_row < n_tile_rows ? first[tile_row] : 0;
        const u64 n = tile_row < n_tile_rows ? first[tile_row + 1] - begin : 0;
        const u32 end = begin + (u32)(n * (share.part + 1) / share.n_parts);
        float sums[TILE] = {};
        for (u32 tile = begin + (u32)(n * share.part / share.n_parts); tile < end; tile++) {
            stage(x, columns[tile], column, bits + (u64)tile * TILE, tiles[warp], rows[warp]);
            __syncwarp();
            multiply(tiles[warp], rows[warp], sums);
            __syncwarp();
        }
        Y *to = out + ((u64)share.slot * WINDOW + warp * TILE) * pitch + column;
#pragma unroll
        for (u32 r = 0; r < TILE; r++)
            if (column < pitch) to[r * pitch] = from_f32<Y>(sums[r]);
    }
}

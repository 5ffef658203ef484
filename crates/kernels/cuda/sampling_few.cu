// Draws of at most sixteen neighbors a row: a thread for each row, all in registers. FAN_OUT is the number, REPLACE says whether
// with replacement, EDGE_IDS whether places in the graph are kept.
// Constants: FAN_OUT=1 REPLACE=0 EDGE_IDS=0
// Constants: FAN_OUT=5 REPLACE=0 EDGE_IDS=0
// Constants: FAN_OUT=10 REPLACE=0 EDGE_IDS=0
// Constants: FAN_OUT=15 REPLACE=0 EDGE_IDS=0
// Constants: FAN_OUT=16 REPLACE=0 EDGE_IDS=1
// Constants: FAN_OUT=16 REPLACE=1 EDGE_IDS=0
#include "common.cuh"
#include "sampling.cuh"

static const u32 ROWS = ABI_DRAW_ROWS;

// The positions of a row's draws: all in order where it has no more, else by Floyd's algorithm (Bentley and Floyd, CACM 30(9),
// 1987).
__device__ __forceinline__ void draw(const Row &row, const HopDraws &draws, u32 *positions) {
    if (!REPLACE && row.degree <= FAN_OUT) {
#pragma unroll
        for (u32 j = 0; j < FAN_OUT; j++) positions[j] = j;
        return;
    }
#pragma unroll
    for (u32 block = 0; block < (FAN_OUT + 3) / 4; block++) {
        const Words words = draws.block(row.node, block);
#pragma unroll
        for (u32 q = 0; q < 4; q++) {
            const u32 j = 4 * block + q;
            if (j >= FAN_OUT) continue;
            const u32 last = row.degree - FAN_OUT + j;
            const u32 drawn = position_below(draws, row.node, j, words.of[q], REPLACE ? row.degree : last + 1);
            bool taken = false;
            if (!REPLACE) {
#pragma unroll
                for (u32 i = 0; i < j; i++) taken |= positions[i] == drawn;
            }
            positions[j] = taken ? last : drawn;
        }
    }
}

// A tile of rows a block, as many as there may be.
extern "C" __global__ void __launch_bounds__(ROWS) draw_few(Topology graph, Hop hop) {
    __shared__ u32 staged[ROWS * FAN_OUT];
    __shared__ u32 sums[ROWS / 32];
    __shared__ u64 first_of_tile;
    const u64 row = hop.first_row() + (u64)blockIdx.x * ROWS + threadIdx.x;
    if (blockIdx.x > 0 && row - threadIdx.x >= hop.end_row()) return;
    const Row mine = row_at(graph, hop, row, nullptr);
    u32 n_edges;
    const u32 before = sum_before(mine.count, sums, n_edges);
    if (threadIdx.x == 0) tell_own(hop.tiles, blockIdx.x, n_edges);
    u32 positions[FAN_OUT], found[FAN_OUT];
    if (mine.count > 0) draw(mine, hop.control.draws(hop.hop), positions);
#pragma unroll
    for (u32 j = 0; j < FAN_OUT; j++) {
        if (j < mine.count) found[j] = __ldg(&mine.neighbors[positions[j]]);
    }
    // While these are on their way.
    if (threadIdx.x < 32) {
        const u64 sum = sum_of_tiles_before(hop.tiles, blockIdx.x, n_edges);
        if (threadIdx.x == 0) first_of_tile = hop.control.first_edge(hop.hop) + sum;
    }
#pragma unroll
    for (u32 j = 0; j < FAN_OUT; j++) {
        if (j >= mine.count) continue;
        staged[before + j] = found[j];
        if (hop.marked) mark(hop.marked, found[j]);
    }
    __syncthreads();
    const u64 first = first_of_tile;
    tell_offset(hop, row, first + before, mine.count);
    // Rows of a tile follow each other.
    for (u32 i = threadIdx.x; i < n_edges; i += ROWS) {
        if (first + i < hop.max_edges) hop.sources[first + i] = staged[i];
    }
    if constexpr (EDGE_IDS) {
#pragma unroll
        for (u32 j = 0; j < FAN_OUT; j++) {
            const u64 at = first + before + j;
            if (j < mine.count && at < hop.max_edges) hop.edge_ids[at] = mine.start + positions[j];
        }
    }
}

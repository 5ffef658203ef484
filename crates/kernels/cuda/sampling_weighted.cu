// Draws of neighbors by the weights of their edges: a thread for each row, one draw after the other.
#include "common.cuh"
#include "sampling.cuh"

static const u32 ROWS = ABI_DRAW_ROWS;

// The place in the running sum over a whole row of place `among` in that over what is not taken. Positions that are taken come
// in any order: the least place that is `among` and the weights of all that begin up to there.
__device__ __forceinline__ u64 past_taken(const Bias &bias, const Row &row, const u32 *taken, u32 n_taken, u64 among) {
    u64 place = among;
    while (true) {
        u64 passed = among;
        for (u32 i = 0; i < n_taken; i++) {
            const u64 before = bias.before(row.start, taken[i]);
            if (before <= place) passed += bias.running[row.start + taken[i]] - before;
        }
        if (passed == place) return place;
        place = passed;
    }
}

// Positions to where the sources will be.
__device__ __forceinline__ void draw(const Bias &bias, const Row &row, const HopDraws &draws, bool replace, u32 *positions) {
    u64 left = bias.total(row.start, row.degree);
    for (u32 i = 0; i < row.count; i++) {
        const u64 among = draw_below(draws, row.node, i, left);
        const u64 place = replace ? among : past_taken(bias, row, positions, i, among);
        const u32 position = (u32)find_place(bias.running + row.start, row.degree, place);
        positions[i] = position;
        if (!replace) left -= bias.weight(row.start, position);
    }
}

// Where all are taken they come in order.
__device__ __forceinline__ void list_positive(const Bias &bias, const Row &row, u32 *positions) {
    u32 n = 0;
    for (u32 position = 0; position < row.degree; position++) {
        if (bias.weight(row.start, position) > 0) positions[n++] = position;
    }
}

// A tile of rows a block, as many as there may be.
extern "C" __global__ void __launch_bounds__(ROWS) draw_weighted(Topology graph, Hop hop, Bias bias) {
    __shared__ u64 sums[ROWS / 32];
    __shared__ u64 first_of_tile;
    const u64 row = hop.first_row() + (u64)blockIdx.x * ROWS + threadIdx.x;
    if (blockIdx.x > 0 && row - threadIdx.x >= hop.end_row()) return;
    const Row mine = row_at(graph, hop, row, &bias);
    u64 n_edges;
    const u64 before = sum_before((u64)mine.count, sums, n_edges);
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) tell_own(hop.tiles, blockIdx.x, n_edges);
        const u64 sum = sum_of_tiles_before(hop.tiles, blockIdx.x, n_edges);
        if (threadIdx.x == 0) first_of_tile = hop.control.first_edge(hop.hop) + sum;
    }
    __syncthreads();
    const u64 first = first_of_tile + before;
    tell_offset(hop, row, first, mine.count);
    // Of rows for which there is no room nothing is written.
    if (mine.count == 0 || first + mine.count > hop.max_edges) return;
    u32 *positions = hop.sources + first;
    const u32 most = hop.shares ? hop.shares[row - hop.first_row()] : hop.fan_out;
    if (!hop.replace && most >= mine.degree) {
        list_positive(bias, mine, positions);
    } else {
        draw(bias, mine, hop.control.draws(hop.hop), hop.replace, positions);
    }
    for (u32 i = 0; i < mine.count; i++) hop.keep(mine, first + i, positions[i]);
}

// Shares: how many of the draws of a whole hop each of its rows makes, as crates/sampling/src/draw/shares.rs defines it.
#include "common.cuh"
#include "sampling.cuh"

static const u32 THREADS = ABI_BLOCK;

// What a row weighs: its edges or, where edges have weights, their integers by the power of two that belongs to the row.
__device__ __forceinline__ double weight_of(const Topology &graph, const Bias &bias, const short *exponents, u32 node) {
    const u64 start = graph.indptr[node];
    const u32 degree = (u32)(graph.indptr[node + 1] - start);
    if (!bias.running) return (double)degree;
    const double unit = __longlong_as_double((long long)(1023 - 31 + exponents[node]) << 52);
    return (double)bias.total(start, degree) * unit;
}

// The largest weight of all rows, which begins as zero; numbers that are not negative order as their bits do.
extern "C" __global__ void largest_weight(Topology graph, Hop hop, Bias bias, const short *exponents, u64 *largest) {
    const u64 first = hop.first_row(), end = hop.end_row();
    u64 mine = 0;
    for (u64 row = first + first_thread(); row < end; row += n_threads()) {
        const u64 bits = (u64)__double_as_longlong(weight_of(graph, bias, exponents, hop.nodes[row]));
        mine = bits > mine ? bits : mine;
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) {
        const u64 other = __shfl_xor_sync(~0u, mine, lanes);
        mine = other > mine ? other : mine;
    }
    if (threadIdx.x % 32 == 0 && mine > 0) atomicMax(largest, mine);
}

// Running sums of weights as integers relative to the largest; shares begin as zero. A tile of rows a block, as many as there
// may be.
extern "C" __global__ void __launch_bounds__(THREADS) running_weights(Topology graph, Hop hop, Bias bias, const short *exponents,
                                                                      const u64 *largest, u64 *running, u32 *shares) {
    __shared__ u64 sums[THREADS / 32];
    __shared__ u64 sum_before_tile;
    const u64 first = hop.first_row(), end = hop.end_row();
    const u64 at = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (first + at - threadIdx.x >= end) return;
    u64 integer = 0;
    if (first + at < end) {
        const double weight = weight_of(graph, bias, exponents, hop.nodes[first + at]);
        const double scale = __longlong_as_double((long long)(1023 + 31 + 1023 - (*largest >> 52)) << 52);
        // To nearest, ties to even; nothing but zero becomes zero.
        if (weight > 0.0) integer = (u64)rint(weight * scale);
        if (weight > 0.0 && integer == 0) integer = 1;
        shares[at] = 0;
    }
    u64 own;
    const u64 before = sum_before(integer, sums, own);
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) tell_own(hop.tiles, blockIdx.x, own);
        const u64 sum = sum_of_tiles_before(hop.tiles, blockIdx.x, own);
        if (threadIdx.x == 0) sum_before_tile = sum;
    }
    __syncthreads();
    if (first + at < end) running[at] = sum_before_tile + before + integer;
}

// Each draw falls to a row.
extern "C" __global__ void draw_shares(Hop hop, const u64 *running, u32 *shares) {
    const u64 n_rows = hop.end_row() - hop.first_row();
    const u64 total = n_rows > 0 ? running[n_rows - 1] : 0;
    if (total == 0) return;
    const HopDraws draws = hop.control.draws(hop.hop);
    for (u64 i = first_thread(); i < hop.fan_out; i += n_threads()) {
        // The draws of the hop are those of a node that there is not.
        atomicAdd(&shares[find_place(running, n_rows, draw_below(draws, ~0u, (u32)i, total))], 1u);
    }
}

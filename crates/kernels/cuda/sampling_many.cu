// Draws of any number of neighbors, or all of them: a group of LANES lanes for each row, of which there are ROWS a block.
// Constants: LANES=8
// Constants: LANES=16
// Constants: LANES=32
#include "common.cuh"
#include "sampling.cuh"

static const u32 ROWS = ABI_DRAW_ROWS_MANY, THREADS = ABI_BLOCK;

// The lanes of a row.
struct Group {
    u32 lane, mask;

    __device__ __forceinline__ Group() {
        const u32 first = threadIdx.x % 32 / LANES * LANES;
        lane = threadIdx.x % LANES;
        mask = (LANES == 32 ? ~0u : (1u << LANES % 32) - 1) << first;
    }
    __device__ __forceinline__ u32 from(u32 value, u32 source) const { return __shfl_sync(mask, value, source, LANES); }
    __device__ __forceinline__ bool any(bool is) const { return __any_sync(mask, is) != 0; }
    // Whether a lane before this one has the same value.
    __device__ __forceinline__ bool seen(u32 value) const {
        const u32 before = (1u << threadIdx.x % 32) - 1;
        return (__match_any_sync(mask, value) & before) != 0;
    }
};

// Position `draw` of a row below a bound.
__device__ __forceinline__ u32 drawn_at(const Row &row, const HopDraws &draws, u32 draw, u32 bound) {
    return position_below(draws, row.node, draw, word_of(draws.block(row.node, draw / 4), draw % 4), bound);
}

__device__ __forceinline__ void draw_repeating(const Hop &hop, const Row &row, const HopDraws &draws, u64 first,
                               const Group &group) {
    for (u32 j = group.lane; j < row.count; j += LANES) {
        hop.keep(row, first + j, drawn_at(row, draws, j, row.degree));
    }
}

// Floyd's algorithm, so many draws at a time. Positions of earlier ones stand where the sources will.
__device__ __forceinline__ void draw_distinct(const Hop &hop, const Row &row, const HopDraws &draws, u64 first,
                              const Group &group) {
    volatile u32 *positions = hop.sources + first;
    for (u32 base = 0; base < row.count; base += LANES) {
        const u32 j = base + group.lane, last = row.degree - row.count + j;
        const bool draws_too = j < row.count;
        // What others do not draw.
        const u32 drawn = draws_too ? drawn_at(row, draws, j, last + 1) : ~0u - group.lane;
        bool taken = false;
        for (u32 earlier = 0; earlier < base; earlier += LANES) {
            const u32 position = positions[earlier + group.lane];
            for (u32 i = 0; i < LANES; i++) taken |= group.from(position, i) == drawn;
        }
        u32 position = taken ? last : drawn;
        // By all lanes, whether or not they know better.
        const bool seen = group.seen(drawn);
        if (group.any(taken || seen)) {
            // In the order of draws: when lane i is asked, its position is what it will be.
            for (u32 i = 0; i < LANES; i++) {
                const u32 other = group.from(position, i);
                if (i < group.lane && other == drawn) position = last;
            }
        }
        if (row.count <= LANES) {
            if (draws_too) hop.keep(row, first + j, position);
            return;
        }
        if (draws_too) positions[j] = position;
        __syncwarp(group.mask);
    }
    for (u32 j = group.lane; j < row.count; j += LANES) hop.keep(row, first + j, positions[j]);
}

__device__ __forceinline__ void take_all(const Hop &hop, const Row &row, u64 first, const Group &group) {
#pragma unroll 4
    for (u32 j = group.lane; j < row.count; j += LANES) hop.keep(row, first + j, j);
}

// All neighbors that have a weight, in order.
__device__ __forceinline__ void take_positive(const Hop &hop, const Bias &bias, const Row &row, u64 first,
                              const Group &group) {
    for (u32 base = 0; base < row.degree; base += LANES) {
        const u32 j = base + group.lane;
        const bool is_kept = j < row.degree && bias.weight(row.start, j) > 0;
        const u32 kept = __ballot_sync(group.mask, is_kept);
        if (is_kept) hop.keep(row, first + __popc(kept & ((1u << threadIdx.x % 32) - 1)), j);
        first += __popc(kept);
    }
}

// A tile of rows a block, as many as there may be. With weights all neighbors are taken; draws are in sampling_weighted.cu.
extern "C" __global__ void __launch_bounds__(THREADS) draw_many(Topology graph, Hop hop, Bias bias) {
    __shared__ Row rows[ROWS];
    __shared__ u64 firsts[ROWS];
    __shared__ u64 sums[THREADS / 32];
    const u64 tile_row = hop.first_row() + (u64)blockIdx.x * ROWS;
    if (blockIdx.x > 0 && tile_row >= hop.end_row()) return;
    const bool is_biased = bias.running != nullptr, has_row = threadIdx.x < ROWS;
    const u64 row = tile_row + threadIdx.x;
    const Row mine = has_row ? row_at(graph, hop, row, is_biased ? &bias : nullptr) : Row{0, nullptr, 0, 0, 0};
    u64 n_edges;
    const u64 before = sum_before((u64)mine.count, sums, n_edges);
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) tell_own(hop.tiles, blockIdx.x, n_edges);
        const u64 first = hop.control.first_edge(hop.hop) + sum_of_tiles_before(hop.tiles, blockIdx.x, n_edges) + before;
        rows[threadIdx.x] = mine;
        firsts[threadIdx.x] = first;
        tell_offset(hop, row, first, mine.count);
    }
    __syncthreads();
    const Group group;
    const HopDraws draws = hop.control.draws(hop.hop);
    for (u32 r = threadIdx.x / LANES; r < ROWS; r += THREADS / LANES) {
        const Row its = rows[r];
        const u64 first = firsts[r];
        // Of rows for which there is no room nothing is written.
        if (its.count == 0 || first + its.count > hop.max_edges) continue;
        if (is_biased) {
            take_positive(hop, bias, its, first, group);
        } else if (hop.fan_out != Hop::ALL && hop.replace) {
            draw_repeating(hop, its, draws, first, group);
        } else if (its.count < its.degree) {
            draw_distinct(hop, its, draws, first, group);
        } else {
            take_all(hop, its, first, group);
        }
    }
}
